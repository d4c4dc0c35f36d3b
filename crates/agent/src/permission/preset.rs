//! Presets: named grants. Four are built in; the configuration defines custom ones that narrow others.

mod builtin;
mod fault;
mod lists;
mod presets;

use std::fmt;
use std::sync::Arc;

use super::{
    ApprovalRules, Budget, Confinement, Dimension, DirectorySet, FilePath, Grant, HostPattern, HostSet,
    NameSet, Permissions, Reasons, Resource, Rule, RuleEntry, Targets,
};
use crate::ToolSpec;
use builtin::HOST_TOOLS;
pub(super) use builtin::{AGENT_TOOLS, COMMAND_TOOLS, OPT_IN_TOOLS, WRITE_TOOLS};
pub use fault::PresetFault;
pub use presets::Presets;

/// The trust level of a preset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Confined to its working directory.
    Sandboxed,
    /// May read anywhere, and create agents.
    Trusted,
    /// No restrictions.
    Yolo,
}

impl Level {
    /// The name on the wire.
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

/// A named grant whose directories depend on the agent.
#[derive(Debug, Clone)]
pub struct Preset {
    /// Its name, then the names of the presets it extends.
    pub inheritance: Vec<Arc<str>>,
    /// The trust level.
    pub level: Level,
    /// The description for users.
    pub description: Arc<str>,
    read: DirectoryScope,
    write: DirectoryScope,
    commands: ListScope,
    hosts: ListScope,
    /// The approval rules of its agents.
    rules: Vec<RuleEntry>,
    /// The grant before the scopes are applied: the most that a request can get.
    base_grant: Grant,
    /// The accumulated narrowings of custom presets. A request may add what a built-in preset omits, but nothing beyond
    /// this.
    restriction: Grant,
}

/// The directories that a preset allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirectoryScope {
    Anywhere,
    /// The working directory, or the requested directories.
    Cwd,
    /// Requested directories below the working directory; none otherwise.
    Requested,
    Nowhere,
}

/// The commands or hosts that a preset allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListScope {
    /// All of the base grant, or the requested ones.
    All,
    /// The requested ones; none otherwise.
    Requested,
    Never,
}

/// The restrictions of a custom preset on the preset it extends.
#[derive(Debug, Clone, Default)]
pub struct Narrowing {
    /// The description for users.
    pub description: Option<String>,
    /// Only these tools.
    pub tools: Option<Vec<Arc<str>>>,
    /// Not these tools.
    pub disable_tools: Vec<Arc<str>>,
    /// Read only in these directories.
    pub read_paths: Option<Vec<FilePath>>,
    /// Write only in these directories.
    pub write_paths: Option<Vec<FilePath>>,
    /// Neither read nor write in these directories.
    pub blocked_paths: Vec<FilePath>,
    /// Run only these commands; all if `*` is among them. Also the default of a preset that runs only requested ones.
    pub commands: Option<Vec<Arc<str>>>,
    /// Connect only to these hosts. Also the default of a preset that connects only to requested ones.
    pub hosts: Option<Vec<HostPattern>>,
    /// Connect to none of these hosts, whatever else is allowed.
    pub denied_hosts: Vec<HostPattern>,
    /// Only children with these presets.
    pub may_create: Option<Vec<Arc<str>>>,
    /// Only these agents.
    pub targets: Option<Targets>,
    /// More approval rules.
    pub rules: Vec<RuleEntry>,
    /// At most this budget.
    pub budget: Budget,
}

/// The requested permissions of a new agent.
#[derive(Debug, Clone)]
pub struct GrantRequest {
    /// Its working directory.
    pub cwd: FilePath,
    /// Writable directories, if specified.
    pub write_paths: Option<Vec<FilePath>>,
    /// Only these tools, if specified.
    pub tools: Option<Vec<Arc<str>>>,
    /// Disabled tools.
    pub disable_tools: Vec<Arc<str>>,
    /// Commands that it may run, if specified; all if `*` is among them.
    pub commands: Option<Vec<Arc<str>>>,
    /// Hosts that it may connect to, if specified.
    pub hosts: Option<Vec<HostPattern>>,
    /// Hosts that it may not connect to, whatever else is allowed.
    pub denied_hosts: Vec<HostPattern>,
    /// Presets that its children may have, if specified.
    pub may_create: Option<Vec<Arc<str>>>,
    /// Approval rules beside those of the preset.
    pub rules: Vec<RuleEntry>,
    /// Budget limits.
    pub budget: Budget,
}

impl GrantRequest {
    /// A request for what a preset grants by default, in this working directory.
    #[must_use]
    pub fn default_in(cwd: FilePath) -> Self {
        Self {
            cwd,
            write_paths: None,
            tools: None,
            disable_tools: Vec::new(),
            commands: None,
            hosts: None,
            denied_hosts: Vec::new(),
            may_create: None,
            rules: Vec::new(),
            budget: Budget::unlimited(),
        }
    }
}

/// A preset applied to a request.
#[derive(Debug, Clone)]
pub struct ResolvedPreset {
    /// The grant.
    pub grant: Grant,
    /// The origins of its limits.
    pub reasons: Reasons,
    /// The approval rules.
    pub approvals: ApprovalRules,
}

impl Preset {
    /// The preset's name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        // Never empty; see `extend` and `builtin`.
        &self.inheritance[0]
    }

    /// Applies the preset to a request.
    ///
    /// # Errors
    /// When the request does not fit the preset.
    pub fn resolve(&self, request: &GrantRequest) -> Result<ResolvedPreset, PresetFault> {
        let mut reasons = Reasons::uniform(format!("preset '{}'", self.name()));
        let read = self.directories(self.read, &request.cwd, None);
        let write = self.write_directories(request, &mut reasons)?.intersection(&self.base_grant.write);
        let commands = self.command_set(request, &mut reasons)?;
        let hosts = self.host_set(request, &mut reasons)?;
        let mut tools = self.base_grant.tools.without(&request.disable_tools);
        if let Some(origin) = tools_origin(request) {
            reasons.set(Dimension::Tools, format!("preset '{}'{origin}", self.name()));
        }
        let approvals = ApprovalRules::new([&self.rules[..], &request.rules].concat());
        if write.is_empty() && !approvals.asks_for(|rule| matches!(rule, Rule::Write(_))) {
            tools = tools.intersection(&NameSet::all_except(WRITE_TOOLS.iter().copied()));
        }
        let is_sandboxed =
            |rule: &Rule| matches!(rule, Rule::Run(rule) if rule.confinement == Confinement::Sandboxed);
        if commands.is_empty() && !approvals.asks_for(is_sandboxed) {
            tools = tools.intersection(&NameSet::all_except(COMMAND_TOOLS.iter().copied()));
        }
        if self.read == DirectoryScope::Cwd {
            reasons.set(Dimension::Read, format!("cwd of preset '{}'", self.name()));
        }
        let mut create = self.base_grant.create.clone();
        if let Some(presets) = &request.may_create {
            create = NameSet::only(presets.iter().cloned());
            if !presets.is_empty() {
                tools = enable_agent_tools(tools, &request.disable_tools);
            }
            reasons.set(Dimension::Create, "may_create");
        }
        tools = tools.without(&self.unnamed_opt_in_tools(request));
        if let Some(names) = &request.tools {
            tools = tools.intersection(&NameSet::with_wildcard(names));
        }
        for resource in Resource::ALL {
            if request.budget.limit(resource).is_some() {
                reasons.set(Dimension::Budget(resource), "budget");
            }
        }
        let mut disabled_tools = self.base_grant.disabled_tools.clone();
        disabled_tools.extend(request.disable_tools.iter().cloned());
        let grant = Grant {
            tools,
            disabled_tools,
            read: read.intersection(&self.base_grant.read),
            write,
            commands,
            hosts,
            create,
            targets: self.reachable_targets(request),
            budget: self.base_grant.budget.intersection(&request.budget),
            ..self.base_grant.clone()
        };
        Ok(ResolvedPreset { grant: grant.intersection(&self.restriction), reasons, approvals })
    }

    /// The opt-in tools that neither the request nor a custom preset names.
    fn unnamed_opt_in_tools(&self, request: &GrantRequest) -> Vec<Arc<str>> {
        let is_named = |tool: &str| {
            request.tools.iter().flatten().any(|name| &**name == tool)
                || matches!(&self.restriction.tools, NameSet::Only(names) if names.contains(tool))
        };
        OPT_IN_TOOLS.iter().filter(|tool| !is_named(tool)).map(|tool| Arc::from(*tool)).collect()
    }

    /// The allowed targets: an agent that may create children may access its descendants.
    fn reachable_targets(&self, request: &GrantRequest) -> Targets {
        let mut targets = self.base_grant.targets.clone();
        targets.descendants |= request.may_create.as_ref().is_some_and(|presets| !presets.is_empty());
        targets
    }

    fn directories(
        &self,
        scope: DirectoryScope,
        cwd: &FilePath,
        requested: Option<&[FilePath]>,
    ) -> DirectorySet {
        match (scope, requested) {
            (DirectoryScope::Nowhere, _) | (DirectoryScope::Requested, None) => DirectorySet::none(),
            (DirectoryScope::Anywhere, None) => DirectorySet::all(),
            (DirectoryScope::Cwd, None) => DirectorySet::from_roots([cwd.clone()]),
            (_, Some(paths)) => DirectorySet::from_roots(paths.iter().cloned()),
        }
    }

    fn write_directories(
        &self,
        request: &GrantRequest,
        reasons: &mut Reasons,
    ) -> Result<DirectorySet, PresetFault> {
        let requested = request.write_paths.as_deref();
        if let Some(paths) = requested {
            if self.write == DirectoryScope::Nowhere && !paths.is_empty() {
                return Err(PresetFault::CannotWrite(self.name().to_string()));
            }
            if self.write == DirectoryScope::Requested
                && let Some(path) = paths.iter().find(|path| !request.cwd.contains(path))
            {
                return Err(PresetFault::OutsideRoot { path: path.clone(), root: request.cwd.clone() });
            }
            reasons.set(Dimension::Write, "allowed_write_paths");
        } else if self.write == DirectoryScope::Cwd {
            reasons.set(Dimension::Write, format!("cwd of preset '{}'", self.name()));
        }
        Ok(self.directories(self.write, &request.cwd, requested))
    }

    /// Derives a narrower preset.
    fn extend(&self, name: &str, narrowing: Narrowing) -> Result<Preset, PresetFault> {
        let directories =
            |paths: Option<Vec<FilePath>>| paths.map_or_else(DirectorySet::all, DirectorySet::from_roots);
        let names = |names: Option<Vec<Arc<str>>>| names.map_or_else(NameSet::all, NameSet::only);
        let tools = narrowing.tools.as_ref().map_or_else(NameSet::all, NameSet::with_wildcard);
        if let Some(what) = self.find_widening(&narrowing) {
            return Err(PresetFault::Widens { name: name.to_owned(), base: self.name().to_string(), what });
        }
        let scope = |is_listed: bool, scope| if is_listed { ListScope::All } else { scope };
        let commands =
            scope(narrowing.commands.as_ref().is_some_and(|names| !names.is_empty()), self.commands);
        let hosts = scope(narrowing.hosts.as_ref().is_some_and(|hosts| !hosts.is_empty()), self.hosts);
        let allowed_hosts =
            narrowing.hosts.map_or_else(HostSet::everything, |allowed| HostSet::new(allowed, []));
        let restriction = Grant {
            tools: tools.without(&narrowing.disable_tools),
            disabled_tools: narrowing.disable_tools.into_iter().collect(),
            read: directories(narrowing.read_paths),
            write: directories(narrowing.write_paths),
            blocked: narrowing.blocked_paths,
            commands: narrowing.commands.as_ref().map_or_else(NameSet::all, NameSet::with_wildcard),
            hosts: allowed_hosts.intersection(&HostSet::all_except(narrowing.denied_hosts)),
            create: names(narrowing.may_create),
            targets: narrowing.targets.unwrap_or_else(Targets::all),
            budget: narrowing.budget,
            ..Grant::everything()
        };
        let mut inheritance = vec![Arc::from(name)];
        inheritance.extend(self.inheritance.iter().cloned());
        Ok(Preset {
            inheritance,
            level: self.level,
            description: narrowing.description.map_or_else(|| Arc::clone(&self.description), Arc::from),
            read: self.read,
            write: self.write,
            commands,
            hosts,
            rules: [&self.rules[..], &narrowing.rules].concat(),
            base_grant: self.base_grant.intersection(&restriction),
            restriction: self.restriction.intersection(&restriction),
        })
    }

    /// The first setting that would widen this preset. Silently clipping it would hide a configuration mistake.
    fn find_widening(&self, narrowing: &Narrowing) -> Option<&'static str> {
        let old = &self.base_grant;
        let names_widen = |new: &Option<Vec<Arc<str>>>, old: &NameSet| {
            new.as_ref().is_some_and(|new| !NameSet::only(new.iter().cloned()).is_within(old))
        };
        let directories_widen = |new: &Option<Vec<FilePath>>, old: &DirectorySet| {
            new.as_ref().is_some_and(|new| !DirectorySet::from_roots(new.iter().cloned()).is_within(old))
        };
        let has_write_paths = narrowing.write_paths.as_ref().is_some_and(|paths| !paths.is_empty());
        let commands_widen = narrowing
            .commands
            .as_ref()
            .is_some_and(|new| !NameSet::with_wildcard(new).is_within(&old.commands));
        let hosts_widen = narrowing.hosts.iter().flatten().any(|host| !lists::is_allowed(host, &old.hosts));
        let is_looser =
            |resource: &Resource| match (narrowing.budget.limit(*resource), old.budget.limit(*resource)) {
                (Some(new), Some(old)) => new > old,
                _ => false,
            };
        let checks = [
            ("tools", narrowing.tools.as_ref().is_some_and(|new| !names_tools_within(new, &old.tools))),
            ("read_paths", directories_widen(&narrowing.read_paths, &old.read)),
            ("write_paths", directories_widen(&narrowing.write_paths, &old.write)),
            ("write_paths", has_write_paths && self.write == DirectoryScope::Nowhere),
            ("allowed_commands", commands_widen),
            ("allowed_hosts", hosts_widen),
            ("may_create", names_widen(&narrowing.may_create, &old.create)),
            ("targets", narrowing.targets.as_ref().is_some_and(|new| !is_no_wider_target(new, &old.targets))),
        ];
        let wider = checks.into_iter().find(|(_, wider)| *wider).map(|(what, _)| what);
        wider.or_else(|| Resource::ALL.into_iter().find(is_looser).map(Resource::name))
    }
}

/// Whether a tool connects to hosts.
#[must_use]
pub fn connects_to_hosts(tool: &ToolSpec) -> bool {
    HOST_TOOLS.contains(&&*tool.name)
}

/// Whether a list of tools names none beyond the set; `*` names those of the set.
fn names_tools_within(names: &[Arc<str>], set: &NameSet) -> bool {
    names.iter().all(|name| &**name == "*" || set.contains(name))
}

/// Whether `new` allows no agent that `old` does not. A mere selection of names adds no agent.
fn is_no_wider_target(new: &Targets, old: &Targets) -> bool {
    let is_selection = Targets { restricted_to: NameSet::all(), ..new.clone() } == Targets::all();
    is_selection || new.is_within(old)
}

/// The parameters of a request that limit its tools, as the end of a reason.
fn tools_origin(request: &GrantRequest) -> Option<&'static str> {
    match (&request.tools, request.disable_tools.is_empty()) {
        (None, true) => None,
        (None, false) => Some(" and disable_tools"),
        (Some(_), true) => Some(" and tools"),
        (Some(_), false) => Some(", tools and disable_tools"),
    }
}

/// Enables the agent tools for an agent that may create children, except tools that are disabled by name.
fn enable_agent_tools(tools: NameSet, disabled: &[Arc<str>]) -> NameSet {
    match tools {
        NameSet::Only(names) => NameSet::Only(names),
        NameSet::AllExcept(mut names) => {
            names.retain(|name| !AGENT_TOOLS.contains(&&**name) || disabled.contains(name));
            NameSet::AllExcept(names)
        }
    }
}

impl ResolvedPreset {
    /// Permissions whose two grants are this one.
    #[must_use]
    pub fn into_permissions(self) -> Permissions {
        Permissions { approvals: Arc::new(self.approvals), ..Permissions::uniform(self.grant, self.reasons) }
    }
}
