//! An independent implementation of what a grant allows: compares paths by components and sets by linear search.

use agent::permission::{
    Budget, CommandEffect, Confinement, DirectorySet, Effect, FilePath, Grant, NameSet, Relation, Resource,
    Targets,
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
        Effect::Connect(host) => contains_name(&grant.hosts, host),
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

fn reaches(targets: &Targets, name: &str, relation: Relation) -> bool {
    match relation {
        Relation::Itself => false,
        Relation::Parent => targets.parent || contains_name(&targets.named, name),
        Relation::Descendant => targets.descendants || contains_name(&targets.named, name),
        Relation::Other => contains_name(&targets.named, name),
    }
}
