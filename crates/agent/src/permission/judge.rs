//! The permission check for effects, and the only one. Pure: equal effects and grants give equal verdicts.

use std::sync::Arc;

use super::preset::{AGENT_TOOLS, COMMAND_TOOLS, OPT_IN_TOOLS, WRITE_TOOLS};
use super::{
    CommandEffect, Confinement, ConnectPermit, Dimension, DirectoryIdentity, DirectorySet, Effect, FilePath,
    FilePermit, Grant, NameSet, Permit, ReadPermit, Relation, RunPermit, WritePermit,
};

/// The verdict on a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The call may run, with this permit.
    Allowed(Permit),
    /// The call may not run.
    Denied(Denial),
}

/// The reason for a denial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// The denied effect.
    pub effect: Effect,
    /// The dimension of the limit that forbids it.
    pub dimension: Dimension,
    /// The error message for the caller.
    pub text: String,
}

/// Judges all effects of one call: it may run if every effect is allowed.
#[must_use]
pub fn judge(effects: &[Effect], grant: &Grant) -> Verdict {
    judge_each(effects.iter().map(|effect| (effect, grant)))
}

/// Judges the effects of one call, each with its own grant.
pub(super) fn judge_each<'a>(effects: impl IntoIterator<Item = (&'a Effect, &'a Grant)>) -> Verdict {
    let mut permit = Permit::default();
    for (effect, grant) in effects {
        if let Err((dimension, text)) = judge_one(effect, grant, &mut permit) {
            return Verdict::Denied(Denial { effect: effect.clone(), dimension, text });
        }
    }
    Verdict::Allowed(permit)
}

type DenialReason = (Dimension, String);

fn judge_one(effect: &Effect, grant: &Grant, permit: &mut Permit) -> Result<(), DenialReason> {
    match effect {
        Effect::Use(tool) => require(grant.tools.contains(tool), Dimension::Tools, || {
            format!("Tool '{tool}' is disabled by permission policy; {}", enabling_setting(tool, grant))
        }),
        Effect::UseAlias(name) => require(!grant.disabled_tools.contains(name), Dimension::Tools, || {
            format!("Tool '{name}' is disabled by permission policy; {REMOVE_FROM_DISABLE_TOOLS}")
        }),
        Effect::Read(path) => {
            let file = judge_file("read", path, &grant.read, grant, Dimension::Read)?;
            permit.readable.push(ReadPermit(file));
            Ok(())
        }
        Effect::Write(path) => {
            let file = judge_file("write", path, &grant.write, grant, Dimension::Write)?;
            permit.writable.push(WritePermit(file));
            Ok(())
        }
        Effect::Run(command) => {
            permit.commands.push(judge_command(command, grant)?);
            Ok(())
        }
        Effect::Connect(to) => {
            let denied = |why| (Dimension::Hosts, format!("connecting to '{to}' is not allowed: {why}"));
            grant.hosts.check(to).map_err(denied)?;
            permit.connections.push(ConnectPermit { to: to.clone(), hosts: grant.hosts.clone() });
            Ok(())
        }
        // A tool gets the values of its caller's namespace only; presets that write nothing disable the tools.
        Effect::ReadValues | Effect::WriteValues => Ok(()),
        Effect::Create(inheritance) => judge_create(inheritance, grant),
        Effect::Reach(agent, Relation::Itself) => {
            Err((Dimension::Targets, format!("'{agent}' cannot target itself")))
        }
        Effect::Reach(agent, relation) => {
            require(grant.targets.contains(agent, *relation), Dimension::Targets, || {
                format!("cannot target agent '{agent}'; allowed: {}", grant.targets)
            })
        }
    }
}

const REMOVE_FROM_DISABLE_TOOLS: &str = "remove it from disable_tools of the agent or its preset";

/// The setting that would enable a denied tool.
fn enabling_setting(tool: &Arc<str>, grant: &Grant) -> &'static str {
    let is_in = |tools: &[&str]| tools.contains(&&**tool);
    if grant.disabled_tools.contains(tool) {
        REMOVE_FROM_DISABLE_TOOLS
    } else if is_in(WRITE_TOOLS) && grant.write.is_empty() {
        "it needs allowed_write_paths"
    } else if is_in(COMMAND_TOOLS) && grant.commands.is_empty() {
        "it needs allowed_commands"
    } else if is_in(AGENT_TOOLS) && grant.create.is_empty() {
        "it needs may_create"
    } else if matches!(grant.tools, NameSet::Only(_)) || is_in(OPT_IN_TOOLS) {
        "add it to tools of the agent or its preset"
    } else {
        "choose another preset"
    }
}

fn require(allowed: bool, dimension: Dimension, text: impl Fn() -> String) -> Result<(), DenialReason> {
    if allowed { Ok(()) } else { Err((dimension, text())) }
}

fn judge_file(
    verb: &str,
    path: &FilePath,
    directories: &DirectorySet,
    grant: &Grant,
    dimension: Dimension,
) -> Result<FilePermit, DenialReason> {
    if grant.blocked.iter().any(|blocked| blocked.contains(path)) {
        return Err((Dimension::Blocked, format!("cannot {verb} '{path}': the path is blocked")));
    }
    let outside = || {
        let setting = match dimension {
            Dimension::Write => "; add the directory to allowed_write_paths",
            _ => "",
        };
        let text = format!(
            "cannot {verb} '{path}': Path outside allowed directories. Allowed: {directories}{setting}"
        );
        (dimension, text)
    };
    let path = directories.find(path).ok_or_else(outside)?;
    let is_at_or_above = |identity: &&DirectoryIdentity| identity.path.contains(&path.root);
    let identities = grant.identities.iter().filter(is_at_or_above).cloned().collect();
    Ok(FilePermit { path, blocked: grant.blocked.clone(), identities })
}

/// Judges a command. Its sandbox contains the directories of the grant; where the grant is the whole file system, the
/// sandbox contains the working directory only.
fn judge_command(command: &CommandEffect, grant: &Grant) -> Result<RunPermit, DenialReason> {
    let CommandEffect { program, cwd, confinement, .. } = command;
    require(grant.commands.contains(program), Dimension::Commands, || {
        format!(
            "running '{program}' is not allowed; allowed: {}; add it to allowed_commands of the agent or its preset",
            grant.commands
        )
    })?;
    require(*confinement == Confinement::Sandboxed || grant.unsandboxed, Dimension::Commands, || {
        format!("running '{program}' outside the sandbox is not allowed; add `unsandboxed:{program}` to ask")
    })?;
    let roots = |set: &DirectorySet| {
        let is_whole = |root: &FilePath| root.as_str() == "/";
        let roots: Vec<FilePath> =
            set.roots().iter().map(|root| if is_whole(root) { cwd.clone() } else { root.clone() }).collect();
        // A blocked directory grants nothing.
        roots.into_iter().filter(|root| !grant.blocked.iter().any(|blocked| blocked.contains(root)))
    };
    let read =
        |path: &FilePath| judge_file("run in", path, &grant.read, grant, Dimension::Read).map(ReadPermit);
    let write =
        |path: &FilePath| judge_file("run in", path, &grant.write, grant, Dimension::Write).map(WritePermit);
    Ok(RunPermit {
        program: Arc::clone(program),
        confinement: *confinement,
        cwd: read(cwd)?,
        readable: roots(&grant.read).map(|root| read(&root)).collect::<Result<_, _>>()?,
        writable: roots(&grant.write).map(|root| write(&root)).collect::<Result<_, _>>()?,
    })
}

/// A preset that extends an allowed preset is narrower, and so allowed too.
fn judge_create(inheritance: &[Arc<str>], grant: &Grant) -> Result<(), DenialReason> {
    if inheritance.iter().any(|name| grant.create.contains(name)) {
        return Ok(());
    }
    let preset = inheritance.first().map_or("", |name| &**name);
    Err((Dimension::Create, format!("Requested preset '{preset}' exceeds parent ceiling")))
}
