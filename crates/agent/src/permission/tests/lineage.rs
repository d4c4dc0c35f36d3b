//! Lineages: the effective permissions of an agent, and the ancestors that limit them.

use super::*;

fn link(name: &str, permissions: Permissions) -> LineageLink {
    LineageLink { agent: agent(name), serial: 0, permissions: Arc::new(permissions) }
}

fn explained(lineage: &[LineageLink], kind: GrantKind) -> Vec<(Dimension, String, String, String)> {
    let limits = explain(lineage, kind).into_iter();
    limits
        .map(|limit| (limit.dimension, limit.allows, limit.set_by.to_string(), limit.reason.to_string()))
        .collect()
}

fn expected(rows: &[(Dimension, &str, &str, &str)]) -> Vec<(Dimension, String, String, String)> {
    rows.iter()
        .map(|(dimension, allows, author, reason)| {
            (*dimension, (*allows).to_owned(), (*author).to_owned(), (*reason).to_owned())
        })
        .collect()
}

/// A root without access to hosts, a parent bound to directories, a child with one disabled tool.
fn three_generations() -> [LineageLink; 3] {
    let root = Grant {
        hosts: HostSet::none(),
        blocked: paths(&["/w/.git"]),
        budget: Budget::unlimited().with_limit(Resource::Turns, Some(100)),
        ..Grant::everything()
    };
    let mut root_reasons = Reasons::uniform("the admin");
    root_reasons.set(Dimension::Budget(Resource::Turns), "budget");
    let parent = Grant {
        read: directories(&["/w"]),
        write: directories(&["/w/out", "/tmp"]),
        hosts: hosts(&["example.com"]),
        budget: Budget::unlimited()
            .with_limit(Resource::Turns, Some(500))
            .with_limit(Resource::Tokens, Some(9)),
        ..Grant::everything()
    };
    let mut parent_reasons = Reasons::uniform("preset 'p'");
    parent_reasons.set(Dimension::Write, "allowed_write_paths");
    let child = Grant {
        tools: NameSet::all_except(["x"]),
        read: directories(&["/w", "/elsewhere"]),
        write: directories(&["/w"]),
        budget: Budget::unlimited().with_limit(Resource::Tokens, Some(4)),
        ..Grant::everything()
    };
    [
        link("child", Permissions::uniform(child, Reasons::uniform("disable_tools"))),
        link("parent", Permissions::uniform(parent, parent_reasons)),
        link("root", Permissions::uniform(root, root_reasons)),
    ]
}

#[test]
fn explain_lists_each_limit_with_its_author_and_reason() {
    let turns = Dimension::Budget(Resource::Turns);
    let tokens = Dimension::Budget(Resource::Tokens);
    let rows = expected(&[
        (Dimension::Blocked, "nothing in /w/.git", "root", "the admin"),
        (Dimension::Hosts, "none", "root", "the admin"),
        (turns, "100", "root", "budget"),
        (Dimension::Read, "/w", "parent", "preset 'p'"),
        (Dimension::Write, "/tmp, /w/out", "parent", "allowed_write_paths"),
        (tokens, "9", "parent", "preset 'p'"),
        (Dimension::Tools, "all but x", "child", "disable_tools"),
        (Dimension::Write, "/w/out", "child", "disable_tools"),
        (tokens, "4", "child", "disable_tools"),
    ]);
    assert_eq!(explained(&three_generations(), GrantKind::May), rows);
    assert_eq!(explained(&three_generations(), GrantKind::MayGrant), rows, "both sets are the same");
}

#[test]
fn last_limit_of_a_dimension_is_the_effective_one() {
    let lineage = three_generations();
    let left = effective(&lineage);
    for dimension in Dimension::ALL {
        let limits = explain(&lineage, GrantKind::May);
        let last = limits.iter().rev().find(|limit| limit.dimension == dimension);
        let text = explain::describe(&left, dimension);
        let free = explain::describe(&Grant::everything(), dimension);
        assert_eq!(last.map_or(free, |limit| limit.allows.clone()), text, "{}", dimension.name());
    }
}

#[test]
fn agent_without_limits_explains_none() {
    let free = || Permissions::uniform(Grant::everything(), Reasons::uniform("preset 'yolo'"));
    assert_eq!(explain(&[link("child", free()), link("root", free())], GrantKind::May), []);
    assert_eq!(explain(&[], GrantKind::May), []);
}

/// May read but not write, and may grant writing in one directory.
fn coordinator() -> Permissions {
    let may = Grant { read: directories(&["/w"]), write: DirectorySet::none(), ..Grant::everything() };
    let may_grant =
        Grant { read: directories(&["/w"]), write: directories(&["/w/out"]), ..Grant::everything() };
    Permissions {
        may_grant: Arc::new(may_grant),
        ..Permissions::uniform(may, Reasons::uniform("the coordinator"))
    }
}

#[test]
fn coordinator_may_grant_writing_that_it_may_not_do() {
    let worker = Permissions::uniform(
        Grant { write: directories(&["/w"]), ..Grant::everything() },
        Reasons::uniform("the worker"),
    );
    let lineage = [link("worker", worker), link("boss", coordinator())];
    let write = [Effect::Write(path("/w/out/x"))];
    assert!(matches!(judge(&write, &effective(&lineage[1..])), Verdict::Denied(_)));
    assert!(matches!(judge(&write, &effective(&lineage)), Verdict::Allowed(_)));
    let beyond = [Effect::Write(path("/w/x"))];
    assert!(
        matches!(judge(&beyond, &effective(&lineage)), Verdict::Denied(_)),
        "beyond what the coordinator may grant"
    );

    let written = |lineage: &[LineageLink], kind| {
        let limits = explained(lineage, kind).into_iter();
        limits.filter(|limit| limit.0 == Dimension::Write).map(|limit| (limit.1, limit.2)).collect::<Vec<_>>()
    };
    let row = |allows: &str, author: &str| vec![(allows.to_owned(), author.to_owned())];
    assert_eq!(written(&lineage[1..], GrantKind::May), row("nowhere", "boss"));
    assert_eq!(written(&lineage[1..], GrantKind::MayGrant), row("/w/out", "boss"));
    assert_eq!(written(&lineage, GrantKind::May), row("/w/out", "boss"));
}

#[test]
fn ceiling_is_what_ancestors_may_grant_not_do() {
    let both = [coordinator(), coordinator()];
    assert_eq!(ceiling(both.iter()).write, directories(&["/w/out"]));
    assert_eq!(ceiling([]), Grant::everything(), "without ancestors there is no ceiling");
    let root = link("root", coordinator());
    assert_eq!(effective(std::slice::from_ref(&root)), *root.permissions.may);
}

#[test]
fn narrowing_a_parent_narrows_its_children_at_once() {
    let [child, _, root] = three_generations();
    let narrowed = link("parent", Permissions::uniform(Grant::nothing(), Reasons::uniform("the admin")));
    assert_eq!(effective(&[child, narrowed, root]).tools, NameSet::none());
}

#[test]
fn dimensions_have_distinct_names() {
    let mut names: Vec<_> = Dimension::ALL.map(Dimension::name).to_vec();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Dimension::ALL.len());
}
