//! Requested commands and hosts: validates each item and checks it against what the parent may grant.

use std::sync::Arc;

use agent::permission::{
    Dimension, Grant, HOST_PATTERN_RULE, HostPattern, HostSet, NameSet, PROGRAM_NAME_RULE, is_program_name,
};
use agent::{Fault, FaultKind};

use super::permissions::echoed;

/// Checks requested commands against what the parent may grant.
pub(super) fn resolve_commands(
    commands: Option<&[String]>,
    ceiling: Option<&Grant>,
) -> Result<Option<Vec<Arc<str>>>, Fault> {
    let Some(commands) = commands else { return Ok(None) };
    let resolve = |text: &String| {
        if !is_program_name(text) {
            let got = echoed(text);
            let text =
                format!("allowed_command '{}' invalid: it must be {PROGRAM_NAME_RULE}", got.escape_debug());
            return Err(Fault::new(FaultKind::Invalid, text));
        }
        let command = Arc::from(text.as_str());
        let is_within = |ceiling: &Grant| NameSet::with_wildcard([&command]).is_within(&ceiling.commands);
        if !ceiling.is_none_or(is_within) {
            let text = format!("allowed_command '{command}' is not among the commands the parent may grant");
            return Err(Fault::denied(Dimension::Commands.name(), text));
        }
        Ok(command)
    };
    commands.iter().map(resolve).collect::<Result<_, _>>().map(Some)
}

/// Checks requested hosts against what the parent may grant.
pub(super) fn resolve_hosts(
    hosts: Option<&[String]>,
    ceiling: Option<&Grant>,
) -> Result<Option<Vec<HostPattern>>, Fault> {
    let Some(hosts) = hosts else { return Ok(None) };
    let resolve = |text: &String| {
        let host = parse_host("allowed_host", text)?;
        let is_within = |ceiling: &Grant| {
            let denied = ceiling.hosts.denied().iter().cloned();
            HostSet::new([host.clone()], denied).is_within(&ceiling.hosts)
        };
        if !ceiling.is_none_or(is_within) {
            let text = format!("allowed_host '{host}' is not among the hosts the parent may grant");
            return Err(Fault::denied(Dimension::Hosts.name(), text));
        }
        Ok(host)
    };
    hosts.iter().map(resolve).collect::<Result<_, _>>().map(Some)
}

/// Validates denied hosts. A parent may deny any.
pub(super) fn resolve_denied_hosts(hosts: &[String]) -> Result<Vec<HostPattern>, Fault> {
    hosts.iter().map(|text| parse_host("denied_host", text)).collect()
}

fn parse_host(parameter: &str, text: &str) -> Result<HostPattern, Fault> {
    HostPattern::parse(text).ok_or_else(|| {
        let got = echoed(text);
        let text = format!("{parameter} '{}' invalid: it must be {HOST_PATTERN_RULE}", got.escape_debug());
        Fault::new(FaultKind::Invalid, text)
    })
}
