//! Lines of ancestors: what is left for the last of them, and who took the rest away.

use super::*;

fn link(name: &str, permissions: Permissions) -> LineageLink {
    LineageLink { agent: agent(name), permissions: Arc::new(permissions) }
}

fn explained(line: &[LineageLink], whose: GrantKind) -> Vec<(Dimension, String, String, String)> {
    let limits = explain(line, whose).into_iter();
    limits
        .map(|limit| (limit.dimension, limit.allows, limit.set_by.to_string(), limit.reason.to_string()))
        .collect()
}

fn expected(rows: &[(Dimension, &str, &str, &str)]) -> Vec<(Dimension, String, String, String)> {
    rows.iter()
        .map(|(dimension, allows, who, why)| {
            (*dimension, (*allows).to_owned(), (*who).to_owned(), (*why).to_owned())
        })
        .collect()
}

/// A root that may all but talk to hosts, a parent bound to a folder, a child that may not use one tool.
fn three_generations() -> [LineageLink; 3] {
    let root = Grant {
        hosts: NameSet::none(),
        blocked: paths(&["/w/.git"]),
        budget: Budget::unlimited().with_limit(Resource::Turns, Some(100)),
        ..Grant::everything()
    };
    let mut root_reasons = Reasons::uniform("the admin");
    root_reasons.set(Dimension::Budget(Resource::Turns), "budget");
    let parent = Grant {
        read: folders(&["/w"]),
        write: folders(&["/w/out", "/tmp"]),
        hosts: NameSet::only(["example.com"]),
        budget: Budget::unlimited()
            .with_limit(Resource::Turns, Some(500))
            .with_limit(Resource::Tokens, Some(9)),
        ..Grant::everything()
    };
    let mut parent_reasons = Reasons::uniform("preset 'p'");
    parent_reasons.set(Dimension::Write, "allowed_write_paths");
    let child = Grant {
        tools: NameSet::all_except(["x"]),
        read: folders(&["/w", "/elsewhere"]),
        write: folders(&["/w"]),
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
fn every_limit_is_told_with_the_one_who_set_it_and_why() {
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
fn the_last_words_on_each_dimension_are_what_is_left() {
    let line = three_generations();
    let left = effective(&line);
    for dimension in Dimension::ALL {
        let limits = explain(&line, GrantKind::May);
        let last = limits.iter().rev().find(|limit| limit.dimension == dimension);
        let words = explain::describe(&left, dimension);
        let free = explain::describe(&Grant::everything(), dimension);
        assert_eq!(last.map_or(free, |limit| limit.allows.clone()), words, "{}", dimension.name());
    }
}

#[test]
fn an_agent_without_limits_has_none_to_tell() {
    let free = || Permissions::uniform(Grant::everything(), Reasons::uniform("preset 'yolo'"));
    assert_eq!(explain(&[link("child", free()), link("root", free())], GrantKind::May), []);
    assert_eq!(explain(&[], GrantKind::May), []);
}

/// May read and not write, but hand out writing in one folder.
fn coordinator() -> Permissions {
    let may = Grant { read: folders(&["/w"]), write: DirectorySet::none(), ..Grant::everything() };
    let may_grant = Grant { read: folders(&["/w"]), write: folders(&["/w/out"]), ..Grant::everything() };
    Permissions {
        may: Arc::new(may),
        may_grant: Arc::new(may_grant),
        reasons: Reasons::uniform("the coordinator"),
    }
}

#[test]
fn a_coordinator_may_grant_writing_that_it_may_not_do() {
    let worker = Permissions::uniform(
        Grant { write: folders(&["/w"]), ..Grant::everything() },
        Reasons::uniform("the worker"),
    );
    let line = [link("worker", worker), link("boss", coordinator())];
    let write = [Effect::Write(path("/w/out/x"))];
    assert!(matches!(judge(&write, &effective(&line[1..])), Verdict::Denied(_)));
    assert!(matches!(judge(&write, &effective(&line)), Verdict::Allowed(_)));
    let beyond = [Effect::Write(path("/w/x"))];
    assert!(matches!(judge(&beyond, &effective(&line)), Verdict::Denied(_)), "not beyond what it may grant");

    let written = |line: &[LineageLink], whose| {
        let limits = explained(line, whose).into_iter();
        limits.filter(|limit| limit.0 == Dimension::Write).map(|limit| (limit.1, limit.2)).collect::<Vec<_>>()
    };
    let row = |allows: &str, who: &str| vec![(allows.to_owned(), who.to_owned())];
    assert_eq!(written(&line[1..], GrantKind::May), row("nowhere", "boss"));
    assert_eq!(written(&line[1..], GrantKind::MayGrant), row("/w/out", "boss"));
    assert_eq!(written(&line, GrantKind::May), row("/w/out", "boss"));
}

#[test]
fn a_ceiling_is_made_of_what_ancestors_may_grant_and_not_of_what_they_may_do() {
    let both = [coordinator(), coordinator()];
    assert_eq!(ceiling(both.iter()).write, folders(&["/w/out"]));
    assert_eq!(ceiling([]), Grant::everything(), "without ancestors there is no ceiling");
    let root = link("root", coordinator());
    assert_eq!(effective(std::slice::from_ref(&root)), *root.permissions.may);
}

#[test]
fn a_parent_that_is_narrowed_later_narrows_its_children_at_once() {
    let [child, _, root] = three_generations();
    let narrowed = link("parent", Permissions::uniform(Grant::nothing(), Reasons::uniform("the admin")));
    assert_eq!(effective(&[child, narrowed, root]).tools, NameSet::none());
}

#[test]
fn every_dimension_has_its_own_name() {
    let mut names: Vec<_> = Dimension::ALL.map(Dimension::name).to_vec();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Dimension::ALL.len());
}
