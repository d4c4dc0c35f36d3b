//! What is allowed, in every dimension at once. Two grants have an exact intersection: that is what ceilings are made
//! of.

use super::{Budget, FilePath, Folders, Names, Targets};

/// What is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Tools that may be called.
    pub tools: Names,
    /// Folders that may be read.
    pub read: Folders,
    /// Folders that may be written.
    pub write: Folders,
    /// Folders that may be neither read nor written, whatever else is allowed.
    pub blocked: Vec<FilePath>,
    /// Programs that may be run.
    pub commands: Names,
    /// Hosts that may be talked to.
    pub hosts: Names,
    /// Presets that children may be created from.
    pub create: Names,
    /// Agents that may be reached.
    pub targets: Targets,
    /// How much of it.
    pub budget: Budget,
}

impl Grant {
    /// Nothing at all.
    #[must_use]
    pub fn nothing() -> Self {
        Self {
            tools: Names::none(),
            read: Folders::nowhere(),
            write: Folders::nowhere(),
            blocked: Vec::new(),
            commands: Names::none(),
            hosts: Names::none(),
            create: Names::none(),
            targets: Targets::nobody(),
            budget: Budget::none(),
        }
    }

    /// Everything: where no ancestor sets a limit.
    #[must_use]
    pub fn everything() -> Self {
        Self {
            tools: Names::any(),
            read: Folders::anywhere(),
            write: Folders::anywhere(),
            blocked: Vec::new(),
            commands: Names::any(),
            hosts: Names::any(),
            create: Names::any(),
            targets: Targets::anybody(),
            budget: Budget::unlimited(),
        }
    }

    /// What both allow.
    #[must_use]
    pub fn and(&self, other: &Grant) -> Grant {
        let mut blocked = self.blocked.clone();
        blocked.extend(other.blocked.iter().cloned());
        blocked.sort();
        blocked.dedup();
        Grant {
            tools: self.tools.and(&other.tools),
            read: self.read.and(&other.read),
            write: self.write.and(&other.write),
            blocked,
            commands: self.commands.and(&other.commands),
            hosts: self.hosts.and(&other.hosts),
            create: self.create.and(&other.create),
            targets: self.targets.and(&other.targets),
            budget: self.budget.and(&other.budget),
        }
    }

    /// Whether this grant allows nothing that the other does not.
    #[must_use]
    pub fn within(&self, other: &Grant) -> bool {
        let blocks = |path: &FilePath| self.blocked.iter().any(|own| own.holds(path));
        let touches = |folders: &Folders, path: &FilePath| {
            folders.and(&Folders::of([path.clone()])).roots().iter().any(|root| !blocks(root))
        };
        self.tools.within(&other.tools)
            && self.read.within(&other.read)
            && self.write.within(&other.write)
            && !other.blocked.iter().any(|path| touches(&self.read, path) || touches(&self.write, path))
            && self.commands.within(&other.commands)
            && self.hosts.within(&other.hosts)
            && self.create.within(&other.create)
            && self.targets.within(&other.targets)
            && self.budget.within(&other.budget)
    }
}
