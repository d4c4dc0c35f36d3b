//! The four built-in presets, and the tools that depend on other permissions.

use std::sync::Arc;

use super::{DirectoryScope, Level, ListScope, Preset};
use crate::permission::{
    CommandRule, Confinement, Grant, HostPattern, HostSet, NameSet, Rule, RuleAction, RuleEntry, Targets,
};

/// The tools that write files: hidden from agents without writable directories.
pub(in crate::permission) const WRITE_TOOLS: &[&str] = &[
    "fs.edit",
    "fs.write_file",
    "fs.append_file",
    "fs.patch",
    "fs.mkdir",
    "fs.move",
    "fs.copy",
    "fs.delete",
];

/// The tools that run commands: hidden from agents without commands.
pub(in crate::permission) const COMMAND_TOOLS: &[&str] = &[
    "cmd.exec",
    "shell.exec",
    "process.start",
    "process.read",
    "process.write",
    "process.stop",
    "process.list",
];

/// The tools that connect to hosts: models of agents without hosts do not see them.
pub(in crate::permission) const HOST_TOOLS: &[&str] = &["http.request", "web.fetch"];

/// The tools that change stored values: denied to agents that write nothing.
const VALUE_WRITE_TOOLS: &[&str] = &["memory.store", "memory.delete"];

/// The tools that answer approval requests: only for agents whose request or preset names them.
pub(in crate::permission) const OPT_IN_TOOLS: &[&str] = &["approvals_list", "approvals_answer"];

/// The tools that manage agents.
pub(in crate::permission) const AGENT_TOOLS: &[&str] =
    &["agent_create", "agent_status", "agent_cancel", "agent_destroy", "agent_list"];

/// The scopes of a preset: reading, writing, commands, hosts.
type Scopes = (DirectoryScope, DirectoryScope, ListScope, ListScope);

fn preset(name: &str, level: Level, description: &str, scopes: Scopes, base_grant: Grant) -> Preset {
    Preset {
        inheritance: vec![Arc::from(name)],
        level,
        description: Arc::from(description),
        read: scopes.0,
        write: scopes.1,
        commands: scopes.2,
        hosts: scopes.3,
        rules: Vec::new(),
        base_grant,
        restriction: Grant::everything(),
    }
}

/// The bound of all presets that clients can request over the network: no commands outside the sandbox.
fn confined() -> Grant {
    Grant { unsandboxed: false, ..Grant::everything() }
}

/// What trusted agents ask for: leaving the sandbox, and connections.
fn trusted_rules() -> Vec<RuleEntry> {
    let every_command =
        CommandRule { confinement: Confinement::Unsandboxed, words: Vec::new(), directory: None };
    let ask = |rule| RuleEntry::of_creator(RuleAction::Ask, rule);
    vec![ask(Rule::Run(every_command)), ask(Rule::Host(HostPattern::any()))]
}

pub(super) fn yolo() -> Preset {
    let base_grant = Grant::everything();
    preset(
        "yolo",
        Level::Yolo,
        "everything but unlisted hosts; only for a person at the machine",
        (DirectoryScope::Anywhere, DirectoryScope::Anywhere, ListScope::All, ListScope::Requested),
        base_grant,
    )
}

pub(super) fn trusted() -> Preset {
    let base_grant = Grant {
        create: NameSet::only(["sandboxed", "worker"]),
        targets: Targets::parent_and_descendants(),
        ..confined()
    };
    let description = "reads anywhere, writes and runs commands in its cwd, creates sandboxed agents; \
                       asks for hosts and for commands outside the sandbox";
    let scopes = (DirectoryScope::Anywhere, DirectoryScope::Cwd, ListScope::All, ListScope::Requested);
    Preset { rules: trusted_rules(), ..preset("trusted", Level::Trusted, description, scopes, base_grant) }
}

pub(super) fn sandboxed() -> Preset {
    let base_grant = Grant {
        tools: NameSet::all_except(AGENT_TOOLS.iter().copied()),
        create: NameSet::none(),
        targets: Targets::parent(),
        ..confined()
    };
    let description = "reads in its cwd, writes in allowed_write_paths, runs allowed_commands";
    preset(
        "sandboxed",
        Level::Sandboxed,
        description,
        (DirectoryScope::Cwd, DirectoryScope::Requested, ListScope::Requested, ListScope::Requested),
        base_grant,
    )
}

pub(super) fn worker() -> Preset {
    let writing = WRITE_TOOLS.iter().chain(COMMAND_TOOLS).chain(VALUE_WRITE_TOOLS);
    let excluded = AGENT_TOOLS.iter().chain(writing).chain(&["agent_send"]).copied();
    let base_grant = Grant {
        tools: NameSet::all_except(excluded),
        create: NameSet::none(),
        targets: Targets::none(),
        commands: NameSet::none(),
        hosts: HostSet::none(),
        ..confined()
    };
    preset(
        "worker",
        Level::Sandboxed,
        "reads in its cwd, writes and runs nothing",
        (DirectoryScope::Cwd, DirectoryScope::Nowhere, ListScope::Never, ListScope::Never),
        base_grant,
    )
}
