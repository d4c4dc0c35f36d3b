//! Random grants, presets and authorities: through presets as clients would, and free ones as an admin could.

use std::sync::Arc;

use agent::permission::{
    Ask, Authority, Budget, FilePath, Folders, Grant, Names, Narrowing, Presets, Reasons, Resource, Targets,
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

    fn names(&mut self, from: &[Arc<str>]) -> Names {
        match self.dice.below(10) {
            0..4 => Names::any(),
            4 => Names::none(),
            5..8 => Names::all_but(self.some(from, 3)),
            _ => Names::only(self.some(from, 5)),
        }
    }

    fn folders(&mut self) -> Folders {
        match self.dice.below(10) {
            0..4 => Folders::anywhere(),
            4 => Folders::nowhere(),
            _ => Folders::of(self.paths(1)),
        }
    }

    fn targets(&mut self) -> Targets {
        match self.dice.below(8) {
            0..3 => Targets::anybody(),
            3 => Targets::nobody(),
            4 => Targets::family(),
            _ => Targets {
                parent: self.dice.percent(50),
                descendants: self.dice.percent(50),
                named: self.names(&self.words.agents),
                among: self.names(&self.words.agents),
            },
        }
    }

    fn budget(&mut self) -> Budget {
        Resource::ALL.into_iter().fold(Budget::unlimited(), |budget, resource| match self.dice.below(3) {
            0 => budget.with(resource, Some(self.dice.below(5) as u64)),
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

    pub(crate) fn ask(&mut self) -> Ask {
        let words = self.words;
        Ask {
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

    pub(crate) fn authority(&mut self, presets: &Presets) -> Authority {
        let reasons = Reasons::all("chance");
        let may = if self.dice.percent(60) { self.resolved(presets) } else { self.grant() };
        match self.dice.below(10) {
            0..6 => Authority::same(may, reasons),
            6..8 => {
                let may_grant = Arc::new(self.resolved(presets));
                Authority { may: Arc::new(may), may_grant, reasons }
            }
            _ => Authority { may: Arc::new(may), may_grant: Arc::new(self.grant()), reasons },
        }
    }
}
