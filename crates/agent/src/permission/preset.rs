//! Grants by name: the four that everybody knows, and those that the configuration narrows from them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::{
    Budget, Dimension, DirectorySet, FilePath, Grant, NameSet, Permissions, Reasons, Resource, Targets,
};

/// How much is trusted, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Bound to its folder.
    Sandboxed,
    /// Free to read, and to create agents.
    Trusted,
    /// Free.
    Yolo,
}

impl Level {
    /// The word clients know.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Level::Sandboxed => "SANDBOXED",
            Level::Trusted => "TRUSTED",
            Level::Yolo => "YOLO",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A grant whose folders are still to be filled in.
#[derive(Debug, Clone)]
pub struct Preset {
    /// Its name, then the names of those it extends.
    pub inheritance: Vec<Arc<str>>,
    /// How much is trusted.
    pub level: Level,
    /// For people.
    pub description: Arc<str>,
    read: DirectoryScope,
    write: DirectoryScope,
    /// The folders and the rest; the areas come on top.
    base_grant: Grant,
    /// What custom presets took away by name: an ask may give back what a built-in preset leaves out, but not this.
    restriction: Grant,
}

/// Which folders a preset opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirectoryScope {
    Anywhere,
    /// The working directory; other folders when they are asked for.
    Cwd,
    /// Folders below the working directory that are asked for; none otherwise.
    Requested,
    Nowhere,
}

/// What a custom preset takes away from the one it extends.
#[derive(Debug, Clone, Default)]
pub struct Narrowing {
    /// For people.
    pub description: Option<String>,
    /// Only these tools.
    pub tools: Option<Vec<Arc<str>>>,
    /// Not these tools.
    pub disable_tools: Vec<Arc<str>>,
    /// Reading only here.
    pub read_paths: Option<Vec<FilePath>>,
    /// Writing only here.
    pub write_paths: Option<Vec<FilePath>>,
    /// Neither reading nor writing here.
    pub blocked_paths: Vec<FilePath>,
    /// Only children from these presets.
    pub may_create: Option<Vec<Arc<str>>>,
    /// Only these agents.
    pub targets: Option<Targets>,
    /// No more than this.
    pub budget: Budget,
}

/// What an agent is asked to be.
#[derive(Debug, Clone)]
pub struct GrantRequest {
    /// Its working directory.
    pub cwd: FilePath,
    /// Where it may write, when that was said.
    pub write_paths: Option<Vec<FilePath>>,
    /// Tools it may not call.
    pub disable_tools: Vec<Arc<str>>,
    /// Presets its children may have, when that was said.
    pub may_create: Option<Vec<Arc<str>>>,
    /// How much it may use up.
    pub budget: Budget,
}

/// A preset with an ask filled in.
#[derive(Debug, Clone)]
pub struct ResolvedPreset {
    /// The grant.
    pub grant: Grant,
    /// Where its limits come from.
    pub reasons: Reasons,
}

/// Why a preset cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PresetFault {
    /// There is none of that name.
    #[error("unknown preset '{name}'; choose one of {choices}")]
    Unknown {
        /// The name.
        name: String,
        /// Those there are.
        choices: String,
    },
    /// Two of one name.
    #[error("there is a preset '{0}' already")]
    DuplicateName(String),
    /// It would allow what the one it extends does not.
    #[error("preset '{name}' can only narrow '{base}': {what} would widen it")]
    Widens {
        /// The preset.
        name: String,
        /// What it extends.
        base: String,
        /// What would be wider.
        what: &'static str,
    },
    /// Writing was asked for where there is no writing.
    #[error("preset '{0}' cannot write: leave allowed_write_paths out, or choose another preset")]
    CannotWrite(String),
    /// A folder outside the one that bounds it.
    #[error("allowed_write_path '{path}' is outside sandbox root '{root}'")]
    OutsideRoot {
        /// The folder.
        path: FilePath,
        /// The bound.
        root: FilePath,
    },
}

/// The tools that write: presets without folders to write to do not show them.
const WRITE_TOOLS: &[&str] = &["fs.write_file", "fs.append_file"];

/// The tools that manage agents.
const AGENT_TOOLS: &[&str] = &["agent_create", "agent_status", "agent_cancel", "agent_destroy", "agent_list"];

impl Preset {
    /// The preset's name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        // A lineage begins with the preset itself; see `extend` and `builtin`.
        &self.inheritance[0]
    }

    /// Fills an ask in.
    ///
    /// # Errors
    /// When the ask does not fit the preset.
    pub fn resolve(&self, ask: &GrantRequest) -> Result<ResolvedPreset, PresetFault> {
        let mut reasons = Reasons::uniform(format!("preset '{}'", self.name()));
        let read = self.directories(self.read, &ask.cwd, None);
        let write = self.write_directories(ask, &mut reasons)?.intersection(&self.base_grant.write);
        let mut tools = self.base_grant.tools.without(&ask.disable_tools);
        if !ask.disable_tools.is_empty() {
            reasons.set(Dimension::Tools, format!("preset '{}' and disable_tools", self.name()));
        }
        if write.is_empty() {
            tools = tools.intersection(&NameSet::all_except(WRITE_TOOLS.iter().copied()));
        }
        if self.read == DirectoryScope::Cwd {
            reasons.set(Dimension::Read, format!("cwd of preset '{}'", self.name()));
        }
        let mut create = self.base_grant.create.clone();
        if let Some(presets) = &ask.may_create {
            create = NameSet::only(presets.iter().cloned());
            if !presets.is_empty() {
                tools = enable_agent_tools(tools, &ask.disable_tools);
            }
            reasons.set(Dimension::Create, "may_create");
        }
        for resource in Resource::ALL {
            if ask.budget.limit(resource).is_some() {
                reasons.set(Dimension::Budget(resource), "budget");
            }
        }
        let grant = Grant {
            tools,
            read: read.intersection(&self.base_grant.read),
            write,
            create,
            targets: self.reachable_targets(ask),
            budget: self.base_grant.budget.intersection(&ask.budget),
            ..self.base_grant.clone()
        };
        Ok(ResolvedPreset { grant: grant.intersection(&self.restriction), reasons })
    }

    /// Whoever may create children may reach them.
    fn reachable_targets(&self, ask: &GrantRequest) -> Targets {
        let mut targets = self.base_grant.targets.clone();
        targets.descendants |= ask.may_create.as_ref().is_some_and(|presets| !presets.is_empty());
        targets
    }

    fn directories(&self, area: DirectoryScope, cwd: &FilePath, asked: Option<&[FilePath]>) -> DirectorySet {
        match (area, asked) {
            (DirectoryScope::Nowhere, _) | (DirectoryScope::Requested, None) => DirectorySet::none(),
            (DirectoryScope::Anywhere, None) => DirectorySet::all(),
            (DirectoryScope::Cwd, None) => DirectorySet::from_roots([cwd.clone()]),
            (_, Some(paths)) => DirectorySet::from_roots(paths.iter().cloned()),
        }
    }

    fn write_directories(
        &self,
        ask: &GrantRequest,
        reasons: &mut Reasons,
    ) -> Result<DirectorySet, PresetFault> {
        let asked = ask.write_paths.as_deref();
        if let Some(paths) = asked {
            if self.write == DirectoryScope::Nowhere && !paths.is_empty() {
                return Err(PresetFault::CannotWrite(self.name().to_string()));
            }
            if self.write == DirectoryScope::Requested
                && let Some(path) = paths.iter().find(|path| !ask.cwd.contains(path))
            {
                return Err(PresetFault::OutsideRoot { path: path.clone(), root: ask.cwd.clone() });
            }
            reasons.set(Dimension::Write, "allowed_write_paths");
        } else if self.write == DirectoryScope::Cwd {
            reasons.set(Dimension::Write, format!("cwd of preset '{}'", self.name()));
        }
        Ok(self.directories(self.write, &ask.cwd, asked))
    }

    /// A narrower preset.
    fn extend(&self, name: &str, narrowing: Narrowing) -> Result<Preset, PresetFault> {
        let folders =
            |paths: Option<Vec<FilePath>>| paths.map_or_else(DirectorySet::all, DirectorySet::from_roots);
        let names = |names: Option<Vec<Arc<str>>>| names.map_or_else(NameSet::all, NameSet::only);
        if let Some(what) = self.find_widening(&narrowing) {
            return Err(PresetFault::Widens { name: name.to_owned(), base: self.name().to_string(), what });
        }
        let taken = Grant {
            tools: names(narrowing.tools).without(&narrowing.disable_tools),
            read: folders(narrowing.read_paths),
            write: folders(narrowing.write_paths),
            blocked: narrowing.blocked_paths,
            create: names(narrowing.may_create),
            targets: narrowing.targets.unwrap_or_else(Targets::all),
            budget: narrowing.budget,
            ..Grant::everything()
        };
        let mut lineage = vec![Arc::from(name)];
        lineage.extend(self.inheritance.iter().cloned());
        Ok(Preset {
            inheritance: lineage,
            level: self.level,
            description: narrowing.description.map_or_else(|| Arc::clone(&self.description), Arc::from),
            read: self.read,
            write: self.write,
            base_grant: self.base_grant.intersection(&taken),
            restriction: self.restriction.intersection(&taken),
        })
    }

    /// What of a narrowing would be wider than this preset. Cutting it down in silence would hide a mistake.
    fn find_widening(&self, narrowing: &Narrowing) -> Option<&'static str> {
        let old = &self.base_grant;
        let names = |new: &Option<Vec<Arc<str>>>, old: &NameSet| {
            new.as_ref().is_some_and(|new| !NameSet::only(new.iter().cloned()).is_within(old))
        };
        let folders = |new: &Option<Vec<FilePath>>, old: &DirectorySet| {
            new.as_ref().is_some_and(|new| !DirectorySet::from_roots(new.iter().cloned()).is_within(old))
        };
        let writes = narrowing.write_paths.as_ref().is_some_and(|paths| !paths.is_empty());
        let looser =
            |resource: &Resource| match (narrowing.budget.limit(*resource), old.budget.limit(*resource)) {
                (Some(new), Some(old)) => new > old,
                _ => false,
            };
        let checks = [
            ("tools", names(&narrowing.tools, &old.tools)),
            ("read_paths", folders(&narrowing.read_paths, &old.read)),
            ("write_paths", folders(&narrowing.write_paths, &old.write)),
            ("write_paths", writes && self.write == DirectoryScope::Nowhere),
            ("may_create", names(&narrowing.may_create, &old.create)),
            ("targets", narrowing.targets.as_ref().is_some_and(|new| !is_no_wider_target(new, &old.targets))),
        ];
        let wider = checks.into_iter().find(|(_, wider)| *wider).map(|(what, _)| what);
        wider.or_else(|| Resource::ALL.into_iter().find(looser).map(Resource::name))
    }
}

/// A choice of names among those that are allowed anyway allows nobody new.
fn is_no_wider_target(new: &Targets, old: &Targets) -> bool {
    let is_choice = Targets { restricted_to: NameSet::all(), ..new.clone() } == Targets::all();
    is_choice || new.is_within(old)
}

/// Whoever may create children may manage them, as far as nobody has forbidden it by name.
fn enable_agent_tools(tools: NameSet, disabled: &[Arc<str>]) -> NameSet {
    match tools {
        NameSet::Only(names) => NameSet::Only(names),
        NameSet::AllExcept(mut names) => {
            names.retain(|name| !AGENT_TOOLS.contains(&&**name) || disabled.contains(name));
            NameSet::AllExcept(names)
        }
    }
}

/// All presets of a daemon.
#[derive(Debug, Clone)]
pub struct Presets {
    by_name: BTreeMap<Arc<str>, Preset>,
}

impl Presets {
    /// The one an agent gets when nothing is said.
    pub const DEFAULT: &'static str = "sandboxed";

    /// The four that are always there; `blocked` is closed to all of them.
    #[must_use]
    pub fn builtin(blocked: &[FilePath]) -> Self {
        let presets = [yolo(), trusted(), sandboxed(), worker()].map(|mut preset| {
            preset.base_grant.blocked = blocked.to_vec();
            (Arc::clone(preset.name()), preset)
        });
        Self { by_name: BTreeMap::from(presets) }
    }

    /// Adds a preset that narrows another.
    ///
    /// # Errors
    /// When the name is taken, the other is not there, or it would widen it.
    pub fn add(&mut self, name: &str, extends: &str, narrowing: Narrowing) -> Result<(), PresetFault> {
        if self.by_name.contains_key(name) {
            return Err(PresetFault::DuplicateName(name.to_owned()));
        }
        let preset = self.find(extends)?.extend(name, narrowing)?;
        // Whoever may create from a preset may create from a narrower one.
        for other in self.by_name.values_mut() {
            for create in [&mut other.base_grant.create, &mut other.restriction.create] {
                if let NameSet::Only(names) = create
                    && names.contains(extends)
                {
                    names.insert(Arc::clone(preset.name()));
                }
            }
        }
        self.by_name.insert(Arc::clone(preset.name()), preset);
        Ok(())
    }

    /// Finds a preset.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn find(&self, name: &str) -> Result<&Preset, PresetFault> {
        self.by_name.get(name).ok_or_else(|| PresetFault::Unknown {
            name: name.chars().take(64).collect(),
            choices: self.choices(Level::Yolo),
        })
    }

    /// The names up to a level, for people.
    #[must_use]
    pub fn choices(&self, level: Level) -> String {
        let names = self.by_name.values().filter(|preset| preset.level <= level);
        names.map(|preset| &**preset.name()).collect::<Vec<_>>().join(", ")
    }
}

fn preset(
    name: &str,
    level: Level,
    description: &str,
    areas: (DirectoryScope, DirectoryScope),
    within: Grant,
) -> Preset {
    Preset {
        inheritance: vec![Arc::from(name)],
        level,
        description: Arc::from(description),
        read: areas.0,
        write: areas.1,
        base_grant: within,
        restriction: Grant::everything(),
    }
}

/// What every preset that can be had over the wire is within: no programs, no network.
fn without_commands_or_hosts() -> Grant {
    Grant { commands: NameSet::none(), hosts: NameSet::none(), ..Grant::everything() }
}

fn yolo() -> Preset {
    let within = Grant::everything();
    preset(
        "yolo",
        Level::Yolo,
        "everything; only for a person at the machine",
        (DirectoryScope::Anywhere, DirectoryScope::Anywhere),
        within,
    )
}

fn trusted() -> Preset {
    let within = Grant {
        create: NameSet::only(["sandboxed", "worker"]),
        targets: Targets::parent_and_descendants(),
        ..without_commands_or_hosts()
    };
    let about = "reads anywhere, writes in its cwd, creates sandboxed agents";
    preset("trusted", Level::Trusted, about, (DirectoryScope::Anywhere, DirectoryScope::Cwd), within)
}

fn sandboxed() -> Preset {
    let within = Grant {
        tools: NameSet::all_except(AGENT_TOOLS.iter().copied()),
        create: NameSet::none(),
        targets: Targets::parent(),
        ..without_commands_or_hosts()
    };
    let about = "reads in its cwd, writes only where allowed_write_paths says";
    preset("sandboxed", Level::Sandboxed, about, (DirectoryScope::Cwd, DirectoryScope::Requested), within)
}

fn worker() -> Preset {
    let no = AGENT_TOOLS.iter().chain(WRITE_TOOLS).chain(&["agent_send"]).copied();
    let within = Grant {
        tools: NameSet::all_except(no),
        create: NameSet::none(),
        targets: Targets::none(),
        ..without_commands_or_hosts()
    };
    preset(
        "worker",
        Level::Sandboxed,
        "reads in its cwd, writes nothing",
        (DirectoryScope::Cwd, DirectoryScope::Nowhere),
        within,
    )
}

impl ResolvedPreset {
    /// An authority whose two sets are this one.
    #[must_use]
    pub fn into_permissions(self) -> Permissions {
        Permissions::uniform(self.grant, self.reasons)
    }
}
