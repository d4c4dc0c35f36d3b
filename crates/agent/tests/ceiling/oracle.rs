//! What a grant allows, said a second time and without the code under test: paths are compared part by part, sets are
//! looked through one by one.

use agent::permission::{
    Budget, DirectorySet, Effect, FilePath, Grant, NameSet, Relation, Resource, Targets,
};

pub(crate) fn allows(grant: &Grant, effect: &Effect) -> bool {
    match effect {
        Effect::Use(tool) => contains_name(&grant.tools, tool),
        Effect::Read(path) => is_in_any_directory(&grant.read, path) && !is_blocked(grant, path),
        Effect::Write(path) => is_in_any_directory(&grant.write, path) && !is_blocked(grant, path),
        Effect::Run(program) => contains_name(&grant.commands, program),
        Effect::Connect(host) => contains_name(&grant.hosts, host),
        Effect::Create(lineage) => lineage.iter().any(|preset| contains_name(&grant.create, preset)),
        Effect::Reach(agent, kinship) => reaches(&grant.targets, agent.as_str(), *kinship),
    }
}

/// Whether an intersection allows exactly what both sides do. By kinship and by name is not the same thing, and a
/// preset is allowed through any of those it extends: there the intersection may be smaller.
pub(crate) fn is_exact(effect: &Effect) -> bool {
    !matches!(effect, Effect::Create(_) | Effect::Reach(..))
}

/// Whether a path is a folder or lies in it.
pub(crate) fn is_in_directory(path: &str, folder: &str) -> bool {
    let mut parts = path_components(path);
    path_components(folder).all(|part| parts.next() == Some(part))
}

pub(crate) fn is_blocked(grant: &Grant, path: &FilePath) -> bool {
    grant.blocked.iter().any(|folder| is_in_directory(path.as_str(), folder.as_str()))
}

pub(crate) fn tightest<'a>(budgets: impl Iterator<Item = &'a Budget>, resource: Resource) -> Option<u64> {
    budgets.filter_map(|budget| budget.limit(resource)).min()
}

fn path_components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

fn is_in_any_directory(folders: &DirectorySet, path: &FilePath) -> bool {
    folders.roots().iter().any(|root| is_in_directory(path.as_str(), root.as_str()))
}

fn contains_name(names: &NameSet, name: &str) -> bool {
    match names {
        NameSet::Only(names) => names.iter().any(|other| &**other == name),
        NameSet::AllExcept(names) => !names.iter().any(|other| &**other == name),
    }
}

fn reaches(targets: &Targets, name: &str, kinship: Relation) -> bool {
    match kinship {
        Relation::Itself => false,
        Relation::Parent => targets.parent || contains_name(&targets.named, name),
        Relation::Descendant => targets.descendants || contains_name(&targets.named, name),
        Relation::Other => contains_name(&targets.named, name),
    }
}
