//! The one place that says yes or no to an effect. Pure: the same effects and grant give the same verdict.

use std::sync::Arc;

use super::{Dimension, DirectorySet, Effect, FilePath, Grant, Relation, RootedPath};

/// Yes or no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It may run, beneath these folders.
    Allowed(Permit),
    /// It may not.
    Denied(Denial),
}

/// Leave to run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Permit {
    /// For each file among the effects, in their order: the folder it has to be opened beneath.
    pub files: Vec<RootedPath>,
    /// Folders that an opened file may not turn out to be in.
    pub blocked: Vec<FilePath>,
}

/// Why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// What was asked for.
    pub effect: Effect,
    /// Which limit forbids it.
    pub dimension: Dimension,
    /// In words, for whoever asked.
    pub text: String,
}

/// Judges all effects of one call: it may run when every one of them is allowed.
#[must_use]
pub fn judge(effects: &[Effect], grant: &Grant) -> Verdict {
    let mut permit = Permit { files: Vec::new(), blocked: grant.blocked.clone() };
    for effect in effects {
        match judge_one(effect, grant) {
            Ok(rooted) => permit.files.extend(rooted),
            Err((dimension, text)) => {
                return Verdict::Denied(Denial { effect: effect.clone(), dimension, text });
            }
        }
    }
    Verdict::Allowed(permit)
}

type DenialReason = (Dimension, String);

fn judge_one(effect: &Effect, grant: &Grant) -> Result<Option<RootedPath>, DenialReason> {
    match effect {
        Effect::Use(tool) => require(grant.tools.contains(tool), Dimension::Tools, || {
            format!("Tool '{tool}' is disabled by permission policy")
        }),
        Effect::Read(path) => judge_file("read", path, &grant.read, grant, Dimension::Read),
        Effect::Write(path) => judge_file("write", path, &grant.write, grant, Dimension::Write),
        Effect::Run(program) => require(grant.commands.contains(program), Dimension::Commands, || {
            format!("running '{program}' is not allowed; allowed: {}", grant.commands)
        }),
        Effect::Connect(host) => require(grant.hosts.contains(host), Dimension::Hosts, || {
            format!("talking to '{host}' is not allowed; allowed: {}", grant.hosts)
        }),
        Effect::Create(lineage) => judge_create(lineage, grant),
        Effect::Reach(agent, Relation::Itself) => {
            Err((Dimension::Targets, format!("'{agent}' cannot target itself")))
        }
        Effect::Reach(agent, kinship) => {
            require(grant.targets.contains(agent, *kinship), Dimension::Targets, || {
                format!("cannot target agent '{agent}'; allowed: {}", grant.targets)
            })
        }
    }
}

fn require(
    allowed: bool,
    dimension: Dimension,
    text: impl Fn() -> String,
) -> Result<Option<RootedPath>, DenialReason> {
    if allowed { Ok(None) } else { Err((dimension, text())) }
}

fn judge_file(
    verb: &str,
    path: &FilePath,
    folders: &DirectorySet,
    grant: &Grant,
    dimension: Dimension,
) -> Result<Option<RootedPath>, DenialReason> {
    if grant.blocked.iter().any(|blocked| blocked.contains(path)) {
        return Err((Dimension::Blocked, format!("cannot {verb} '{path}': the path is blocked")));
    }
    let outside = || {
        let text = format!("cannot {verb} '{path}': Path outside allowed directories. Allowed: {folders}");
        (dimension, text)
    };
    folders.find(path).map(Some).ok_or_else(outside)
}

/// A preset that extends an allowed one is narrower than it, and so allowed.
fn judge_create(lineage: &[Arc<str>], grant: &Grant) -> Result<Option<RootedPath>, DenialReason> {
    if lineage.iter().any(|name| grant.create.contains(name)) {
        return Ok(None);
    }
    let preset = lineage.first().map_or("", |name| &**name);
    Err((Dimension::Create, format!("Requested preset '{preset}' exceeds parent ceiling")))
}
