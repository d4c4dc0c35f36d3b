//! An independent implementation of what a grant allows: compares paths by components, sets by linear search and host
//! patterns by their texts.

use std::net::IpAddr;

use agent::permission::{
    Budget, CommandEffect, Confinement, Destination, DirectorySet, Effect, FilePath, Grant, HostSet, NameSet,
    Relation, RemoteHost, Resource, Targets,
};

pub(crate) fn allows(grant: &Grant, effect: &Effect) -> bool {
    match effect {
        Effect::Use(tool) => contains_name(&grant.tools, tool),
        Effect::UseAlias(name) => !grant.disabled_tools.iter().any(|disabled| disabled == name),
        Effect::Read(path) => is_in_any_directory(&grant.read, path) && !is_blocked(grant, path),
        Effect::Write(path) => is_in_any_directory(&grant.write, path) && !is_blocked(grant, path),
        Effect::Run(CommandEffect { program, cwd, confinement, .. }) => {
            contains_name(&grant.commands, program)
                && (*confinement == Confinement::Sandboxed || grant.unsandboxed)
                && is_in_any_directory(&grant.read, cwd)
                && !is_blocked(grant, cwd)
        }
        Effect::Connect(host) => connects(&grant.hosts, host),
        Effect::Create(inheritance) => inheritance.iter().any(|preset| contains_name(&grant.create, preset)),
        Effect::ReadValues | Effect::WriteValues => true,
        Effect::Reach(agent, relation) => reaches(&grant.targets, agent.as_str(), *relation),
    }
}

/// Whether an intersection allows this effect exactly if both sides do. Targets match by relation or by name, and
/// presets through any preset they extend: there the intersection may be smaller.
pub(crate) fn is_exact(effect: &Effect) -> bool {
    !matches!(effect, Effect::Create(_) | Effect::Reach(..))
}

/// Whether a path is a directory or inside it.
pub(crate) fn is_in_directory(path: &str, directory: &str) -> bool {
    let mut parts = path_components(path);
    path_components(directory).all(|part| parts.next() == Some(part))
}

pub(crate) fn is_blocked(grant: &Grant, path: &FilePath) -> bool {
    grant.blocked.iter().any(|directory| is_in_directory(path.as_str(), directory.as_str()))
}

pub(crate) fn tightest<'a>(budgets: impl Iterator<Item = &'a Budget>, resource: Resource) -> Option<u64> {
    budgets.filter_map(|budget| budget.limit(resource)).min()
}

fn path_components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

fn is_in_any_directory(directories: &DirectorySet, path: &FilePath) -> bool {
    directories.roots().iter().any(|root| is_in_directory(path.as_str(), root.as_str()))
}

fn contains_name(names: &NameSet, name: &str) -> bool {
    match names {
        NameSet::Only(names) => names.iter().any(|other| &**other == name),
        NameSet::AllExcept(names) => !names.iter().any(|other| &**other == name),
    }
}

/// Whether a set contains a destination, by the texts of its patterns.
fn connects(hosts: &HostSet, to: &Destination) -> bool {
    let is_allowed = hosts.allowed().is_none_or(|allowed| {
        allowed.iter().any(|pattern| {
            let (host, port) = split_port(pattern.to_string());
            let has_port = port.map_or_else(|| ![22, 6379].contains(&to.port), |port| port == to.port);
            has_port && if host == "*" { is_public(&to.host) } else { matches_host(&host, &to.host) }
        })
    });
    is_allowed && !is_denied(hosts, to) && to.host.to_string() != "0.0.0.0"
}

/// Whether a connection to a destination may go to an address.
pub(crate) fn reaches_address(hosts: &HostSet, to: &Destination, address: IpAddr) -> bool {
    let literal = Destination { host: RemoteHost::Address(address), port: to.port };
    let is_usable = match &to.host {
        RemoteHost::Address(own) => *own == address,
        RemoteHost::Name(name) if &**name == "localhost" => address.is_loopback(),
        RemoteHost::Name(name) if name.ends_with(".lan") => {
            is_public(&literal.host) || address.is_loopback() || address.to_string() == "10.0.0.1"
        }
        RemoteHost::Name(_) => is_public(&literal.host),
    };
    let is_embedded = address.to_string().starts_with("::ffff:");
    let is_reached = (is_usable && !is_denied(hosts, &literal)) || connects(hosts, &literal);
    connects(hosts, to) && is_reached && !is_embedded
}

fn is_denied(hosts: &HostSet, to: &Destination) -> bool {
    hosts.denied().iter().any(|pattern| {
        let (host, port) = split_port(pattern.to_string());
        port.is_none_or(|port| port == to.port) && (host == "*" || matches_host(&host, &to.host))
    })
}

fn split_port(pattern: String) -> (String, Option<u16>) {
    match pattern.rsplit_once(':') {
        Some((host, port)) if !pattern.ends_with(']') => (host.to_owned(), port.parse().ok()),
        _ => (pattern, None),
    }
}

fn matches_host(pattern: &str, host: &RemoteHost) -> bool {
    let (host, is_name) = (host.to_string(), matches!(host, RemoteHost::Name(_)));
    match pattern.strip_prefix('*') {
        Some(suffix) => is_name && host.ends_with(suffix),
        None => host == pattern,
    }
}

/// Whether a host of the vocabulary is public.
fn is_public(host: &RemoteHost) -> bool {
    let host = host.to_string();
    [".com", ".org", "8.8.8.8", "9.9.9.9", "[2600::1]"].iter().any(|end| host.ends_with(end))
        || host == "a.com"
}

fn reaches(targets: &Targets, name: &str, relation: Relation) -> bool {
    match relation {
        Relation::Itself => false,
        Relation::Parent => targets.parent || contains_name(&targets.named, name),
        Relation::Descendant => targets.descendants || contains_name(&targets.named, name),
        Relation::Other => contains_name(&targets.named, name),
    }
}
