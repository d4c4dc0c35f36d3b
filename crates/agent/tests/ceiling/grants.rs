//! Random grants, presets and authorities: through presets as clients would, and free ones as an admin could.

use std::sync::Arc;

use agent::permission::{
    GrantRequest, Permissions, Budget, FilePath, DirectorySet, Grant, NameSet, Narrowing, Presets, Reasons, Resource, Targets,
};

use crate::dice::Dice;
use crate::words::Words;

/// Makes everything random of one case.
pub(crate) struct Maker<'words> {
    pub(crate) dice: Dice,
    pub(crate) words: &'words Words,
}

impl Maker<'_> {
    fn some(&mut self, from: &[Arc<str>], most: usize) -> Vec<Arc<str>> {
        (0..self.dice.between(0, most)).map(|_| Arc::clone(self.dice.pick(from))).collect()
    }

    fn paths(&mut self, low: usize) -> Vec<FilePath> {
        (0..self.dice.between(0, 3)).map(|_| self.words.path(&mut self.dice, low, 3)).collect()
    }

    fn names(&mut self, from: &[Arc<str>]) -> NameSet {
        match self.dice.below(10) {
            0..4 => NameSet::all(),
            4 => NameSet::none(),
            5..8 => NameSet::all_except(self.some(from, 3)),
            _ => NameSet::only(self.some(from, 5)),
        }
    }

    fn folders(&mut self) -> DirectorySet {
        match self.dice.below(10) {
            0..4 => DirectorySet::all(),
            4 => DirectorySet::none(),
            _ => DirectorySet::from_roots(self.paths(1)),
        }
    }

    fn targets(&mut self) -> Targets {
        match self.dice.below(8) {
            0..3 => Targets::all(),
            3 => Targets::none(),
            4 => Targets::parent_and_descendants(),
            _ => Targets {
                parent: self.dice.percent(50),
                descendants: self.dice.percent(50),
                named: self.names(&self.words.agents),
                restricted_to: self.names(&self.words.agents),
            },
        }
    }

    fn budget(&mut self) -> Budget {
        Resource::ALL.into_iter().fold(Budget::unlimited(), |budget, resource| match self.dice.below(3) {
            0 => budget.with_limit(resource, Some(self.dice.below(5) as u64)),
            _ => budget,
        })
    }

    /// Any grant at all.
    pub(crate) fn grant(&mut self) -> Grant {
        let blocked = if self.dice.percent(40) { self.paths(1) } else { Vec::new() };
        Grant {
            tools: self.names(&self.words.tools),
            read: self.folders(),
            write: self.folders(),
            blocked,
            commands: self.names(&self.words.things),
            hosts: self.names(&self.words.things),
            create: self.names(&self.words.presets),
            targets: self.targets(),
            budget: self.budget(),
        }
    }

    pub(crate) fn narrowing(&mut self) -> Narrowing {
        let words = self.words;
        Narrowing {
            description: None,
            tools: self.dice.percent(20).then(|| self.some(&words.tools, 4)),
            disable_tools: self.some(&words.tools, 2),
            read_paths: self.dice.percent(30).then(|| self.paths(1)),
            write_paths: self.dice.percent(30).then(|| self.paths(1)),
            blocked_paths: self.paths(2),
            may_create: self.dice.percent(20).then(|| self.some(&words.presets[..2], 2)),
            targets: self.dice.percent(20).then(|| self.targets()),
            budget: self.budget(),
        }
    }

    pub(crate) fn ask(&mut self) -> GrantRequest {
        let words = self.words;
        GrantRequest {
            cwd: self.words.path(&mut self.dice, 0, 2),
            write_paths: self.dice.percent(30).then(|| self.paths(0)),
            disable_tools: self.some(&words.tools, 2),
            may_create: self.dice.percent(40).then(|| self.some(&words.presets, 4)),
            budget: self.budget(),
        }
    }

    /// What a preset gives for some ask that fits it.
    fn resolved(&mut self, presets: &Presets) -> Grant {
        let words = self.words;
        let preset =
            presets.find(self.dice.pick::<Arc<str>>(&words.presets)).or_else(|_| presets.find("sandboxed"));
        let preset = preset.expect("it is always there");
        let mut ask = self.ask();
        if let Ok(resolved) = preset.resolve(&ask) {
            return resolved.grant;
        }
        ask.write_paths = None;
        preset.resolve(&ask).expect("without folders to write to, every ask fits").grant
    }

    pub(crate) fn permissions(&mut self, presets: &Presets) -> Permissions {
        let reasons = Reasons::uniform("chance");
        let may = if self.dice.percent(60) { self.resolved(presets) } else { self.grant() };
        match self.dice.below(10) {
            0..6 => Permissions::uniform(may, reasons),
            6..8 => {
                let may_grant = Arc::new(self.resolved(presets));
                Permissions { may: Arc::new(may), may_grant, reasons }
            }
            _ => Permissions { may: Arc::new(may), may_grant: Arc::new(self.grant()), reasons },
        }
    }
}
