//! What a grant allows, said a second time and without the code under test: paths are compared part by part, sets are
//! looked through one by one.

use agent::permission::{Budget, Effect, FilePath, DirectorySet, Grant, Relation, NameSet, Resource, Targets};

pub(crate) fn allows(grant: &Grant, effect: &Effect) -> bool {
    match effect {
        Effect::Use(tool) => named(&grant.tools, tool),
        Effect::Read(path) => somewhere(&grant.read, path) && !blocked(grant, path),
        Effect::Write(path) => somewhere(&grant.write, path) && !blocked(grant, path),
        Effect::Run(program) => named(&grant.commands, program),
        Effect::Connect(host) => named(&grant.hosts, host),
        Effect::Create(lineage) => lineage.iter().any(|preset| named(&grant.create, preset)),
        Effect::Reach(agent, kinship) => reaches(&grant.targets, agent.as_str(), *kinship),
    }
}

/// Whether an intersection allows exactly what both sides do. By kinship and by name is not the same thing, and a
/// preset is allowed through any of those it extends: there the intersection may be smaller.
pub(crate) fn is_exact(effect: &Effect) -> bool {
    !matches!(effect, Effect::Create(_) | Effect::Reach(..))
}

/// Whether a path is a folder or lies in it.
pub(crate) fn lies_in(path: &str, folder: &str) -> bool {
    let mut parts = parts(path);
    self::parts(folder).all(|part| parts.next() == Some(part))
}

pub(crate) fn blocked(grant: &Grant, path: &FilePath) -> bool {
    grant.blocked.iter().any(|folder| lies_in(path.as_str(), folder.as_str()))
}

pub(crate) fn tightest<'a>(budgets: impl Iterator<Item = &'a Budget>, resource: Resource) -> Option<u64> {
    budgets.filter_map(|budget| budget.limit(resource)).min()
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

fn somewhere(folders: &DirectorySet, path: &FilePath) -> bool {
    folders.roots().iter().any(|root| lies_in(path.as_str(), root.as_str()))
}

fn named(names: &NameSet, name: &str) -> bool {
    match names {
        NameSet::Only(names) => names.iter().any(|other| &**other == name),
        NameSet::AllExcept(names) => !names.iter().any(|other| &**other == name),
    }
}

fn reaches(targets: &Targets, name: &str, kinship: Relation) -> bool {
    match kinship {
        Relation::Itself => false,
        Relation::Parent => targets.parent || named(&targets.named, name),
        Relation::Descendant => targets.descendants || named(&targets.named, name),
        Relation::Other => named(&targets.named, name),
    }
}
