//! Random grants, presets and permissions: via presets as clients request them, and arbitrary ones as an admin may set.

use std::sync::Arc;

use agent::permission::{
    Budget, DirectoryIdentity, DirectorySet, FilePath, Grant, GrantRequest, HostPattern, HostSet, NameSet,
    Narrowing, Permissions, Presets, Reasons, Resource, Targets,
};
use testkit::TestRng;

use crate::vocabulary::Vocabulary;

/// The random generator of one case.
pub(crate) struct Generator<'words> {
    pub(crate) rng: TestRng,
    pub(crate) vocabulary: &'words Vocabulary,
}

impl Generator<'_> {
    fn sample(&mut self, from: &[Arc<str>], max: usize) -> Vec<Arc<str>> {
        (0..self.rng.between(0, max)).map(|_| Arc::clone(self.rng.pick(from))).collect()
    }

    fn paths(&mut self, low: usize) -> Vec<FilePath> {
        (0..self.rng.between(0, 3)).map(|_| self.vocabulary.path(&mut self.rng, low, 3)).collect()
    }

    fn names(&mut self, from: &[Arc<str>]) -> NameSet {
        match self.rng.below(10) {
            0..4 => NameSet::all(),
            4 => NameSet::none(),
            5..8 => NameSet::all_except(self.sample(from, 3)),
            _ => NameSet::only(self.sample(from, 5)),
        }
    }

    fn directories(&mut self) -> DirectorySet {
        match self.rng.below(10) {
            0..4 => DirectorySet::all(),
            4 => DirectorySet::none(),
            _ => DirectorySet::from_roots(self.paths(1)),
        }
    }

    fn host_patterns(&mut self, max: usize) -> Vec<HostPattern> {
        let vocabulary = self.vocabulary;
        (0..self.rng.between(0, max)).map(|_| self.rng.pick(&vocabulary.host_patterns).clone()).collect()
    }

    fn host_set(&mut self) -> HostSet {
        match self.rng.below(10) {
            0..3 => HostSet::everything(),
            3 => HostSet::none(),
            4 => HostSet::all_except(self.host_patterns(3)),
            5 => HostSet::new(self.host_patterns(6), self.host_patterns(3)),
            _ => HostSet::new(self.host_patterns(6), []),
        }
    }

    fn targets(&mut self) -> Targets {
        match self.rng.below(8) {
            0..3 => Targets::all(),
            3 => Targets::none(),
            4 => Targets::parent_and_descendants(),
            _ => Targets {
                parent: self.rng.percent(50),
                descendants: self.rng.percent(50),
                named: self.names(&self.vocabulary.agents),
                restricted_to: self.names(&self.vocabulary.agents),
            },
        }
    }

    fn budget(&mut self) -> Budget {
        Resource::ALL.into_iter().fold(Budget::unlimited(), |budget, resource| match self.rng.below(3) {
            0 => budget.with_limit(resource, Some(self.rng.below(5) as u64)),
            _ => budget,
        })
    }

    /// An arbitrary grant.
    pub(crate) fn grant(&mut self) -> Grant {
        let blocked = if self.rng.percent(40) { self.paths(1) } else { Vec::new() };
        let identity = |(inode, path)| DirectoryIdentity { path, device: 1, inode, born_ns: None };
        let mut identities: Vec<_> = (0..2).zip(self.paths(2)).map(identity).collect();
        identities.sort();
        Grant {
            tools: self.names(&self.vocabulary.tools),
            disabled_tools: self.sample(&self.vocabulary.tools, 1).into_iter().collect(),
            read: self.directories(),
            write: self.directories(),
            blocked,
            identities,
            commands: self.names(&self.vocabulary.programs),
            unsandboxed: self.rng.percent(50),
            hosts: self.host_set(),
            create: self.names(&self.vocabulary.presets),
            targets: self.targets(),
            budget: self.budget(),
        }
    }

    pub(crate) fn narrowing(&mut self) -> Narrowing {
        let vocabulary = self.vocabulary;
        Narrowing {
            description: None,
            tools: self.rng.percent(20).then(|| self.sample(&vocabulary.tools, 4)),
            disable_tools: self.sample(&vocabulary.tools, 2),
            read_paths: self.rng.percent(30).then(|| self.paths(1)),
            write_paths: self.rng.percent(30).then(|| self.paths(1)),
            blocked_paths: self.paths(2),
            commands: self.commands(30),
            hosts: self.hosts(30),
            denied_hosts: self.host_patterns(1),
            may_create: self.rng.percent(20).then(|| self.sample(&vocabulary.presets[..2], 2)),
            targets: self.rng.percent(20).then(|| self.targets()),
            rules: Vec::new(),
            budget: self.budget(),
        }
    }

    /// A list of commands, or none; sometimes all commands.
    fn commands(&mut self, percent: usize) -> Option<Vec<Arc<str>>> {
        let vocabulary = self.vocabulary;
        let mut names = self.rng.percent(percent).then(|| self.sample(&vocabulary.programs, 2))?;
        if self.rng.percent(20) {
            names.push(Arc::from("*"));
        }
        Some(names)
    }

    /// A list of hosts, or none.
    fn hosts(&mut self, percent: usize) -> Option<Vec<HostPattern>> {
        self.rng.percent(percent).then(|| self.host_patterns(4))
    }

    pub(crate) fn request(&mut self) -> GrantRequest {
        let vocabulary = self.vocabulary;
        GrantRequest {
            cwd: self.vocabulary.path(&mut self.rng, 0, 2),
            write_paths: self.rng.percent(30).then(|| self.paths(0)),
            tools: self.rng.percent(20).then(|| self.sample(&vocabulary.tools, 4)),
            disable_tools: self.sample(&vocabulary.tools, 2),
            commands: self.commands(50),
            hosts: self.hosts(50),
            denied_hosts: self.host_patterns(1),
            may_create: self.rng.percent(40).then(|| self.sample(&vocabulary.presets, 4)),
            rules: Vec::new(),
            budget: self.budget(),
        }
    }

    /// The grant of a random preset for a request that fits it.
    fn resolved_grant(&mut self, presets: &Presets) -> Grant {
        let vocabulary = self.vocabulary;
        let preset = presets
            .find(self.rng.pick::<Arc<str>>(&vocabulary.presets))
            .or_else(|_| presets.find("sandboxed"));
        let preset = preset.expect("built in");
        let mut request = self.request();
        if let Ok(resolved) = preset.resolve(&request) {
            return resolved.grant;
        }
        (request.write_paths, request.commands, request.hosts) = (None, None, None);
        preset.resolve(&request).expect("a request without paths, commands and hosts fits every preset").grant
    }

    pub(crate) fn permissions(&mut self, presets: &Presets) -> Permissions {
        let reasons = Reasons::uniform("chance");
        let may = if self.rng.percent(60) { self.resolved_grant(presets) } else { self.grant() };
        match self.rng.below(10) {
            0..6 => Permissions::uniform(may, reasons),
            6..8 => {
                let may_grant = Arc::new(self.resolved_grant(presets));
                Permissions { may_grant, ..Permissions::uniform(may, reasons) }
            }
            _ => Permissions { may_grant: Arc::new(self.grant()), ..Permissions::uniform(may, reasons) },
        }
    }
}
