//! Intersection and containment of names, targets, budgets and grants.

use super::*;

fn only(names: &[&str]) -> NameSet {
    NameSet::only(names.iter().copied())
}

fn all_except(names: &[&str]) -> NameSet {
    NameSet::all_except(names.iter().copied())
}

#[test]
fn name_sets_intersect_exactly() {
    let cases = [
        (only(&["a", "b"]), only(&["b", "c"]), only(&["b"])),
        (only(&["a"]), only(&["b"]), NameSet::none()),
        (only(&["a", "b"]), all_except(&["a"]), only(&["b"])),
        (all_except(&["a"]), all_except(&["b"]), all_except(&["a", "b"])),
        (NameSet::all(), only(&["a"]), only(&["a"])),
        (NameSet::all(), all_except(&["a"]), all_except(&["a"])),
        (NameSet::none(), NameSet::all(), NameSet::none()),
        (NameSet::none(), all_except(&["a"]), NameSet::none()),
    ];
    for (a, b, common) in cases {
        assert_eq!(a.intersection(&b), common, "{a} and {b}");
        assert_eq!(b.intersection(&a), common, "{b} and {a}");
        for name in ["a", "b", "c", "never named"] {
            let expected = a.contains(name) && b.contains(name);
            assert_eq!(common.contains(name), expected, "{name} in {a} and {b}");
        }
    }
}

#[test]
fn name_set_containment() {
    let cases = [
        (only(&["a"]), only(&["a", "b"]), true),
        (only(&["a", "b"]), only(&["a"]), false),
        (only(&["a"]), all_except(&["b"]), true),
        (only(&["a", "b"]), all_except(&["b"]), false),
        (all_except(&["a", "b"]), all_except(&["a"]), true),
        (all_except(&["a"]), all_except(&["a", "b"]), false),
        (all_except(&["a"]), only(&["b", "c"]), false),
        (NameSet::none(), NameSet::none(), true),
        (NameSet::none(), only(&["a"]), true),
        (NameSet::all(), NameSet::all(), true),
        (NameSet::all(), all_except(&["a"]), false),
    ];
    for (inner, outer, expected) in cases {
        assert_eq!(inner.is_within(&outer), expected, "{inner} within {outer}");
    }
}

#[test]
fn name_sets_display_as_text() {
    let cases = [
        (NameSet::all(), "all"),
        (NameSet::none(), "none"),
        (only(&["b", "a"]), "only a, b"),
        (all_except(&["a"]), "all but a"),
        (all_except(&["a", "b"]).without(&arcs(&["c"])), "all but a, b, c"),
        (only(&["a", "b"]).without(&arcs(&["a"])), "only b"),
        (only(&["a"]).without(&arcs(&["a", "z"])), "none"),
    ];
    for (names, text) in cases {
        assert_eq!(names.to_string(), text);
        assert_eq!(names.is_empty(), text == "none");
    }
}

#[test]
fn targets_match_relation_or_name_but_never_oneself() {
    let named = Targets::named(only(&["bob"]));
    // For each: itself, parent, descendant, other, and an unrelated agent named bob.
    let cases = [
        (Targets::none(), [false, false, false, false, false]),
        (Targets::all(), [false, true, true, true, true]),
        (Targets::parent(), [false, true, false, false, false]),
        (Targets::descendants(), [false, false, true, false, false]),
        (Targets::parent_and_descendants(), [false, true, true, false, false]),
        (named, [false, false, false, false, true]),
        (Targets::named(NameSet::all()), [false, true, true, true, true]),
    ];
    for (targets, expected) in cases {
        let relations = [Relation::Itself, Relation::Parent, Relation::Descendant, Relation::Other];
        let mut found: Vec<bool> = relations.map(|relation| targets.contains(&agent("x"), relation)).to_vec();
        found.push(targets.contains(&agent("bob"), Relation::Other));
        assert_eq!(found, expected, "{targets}");
        assert!(!targets.contains(&agent("bob"), Relation::Itself), "{targets}");
    }
}

#[test]
fn targets_intersect_by_relation_and_by_name() {
    let bob = || Targets::named(only(&["bob"]));
    let cases = [
        (Targets::all(), bob(), bob()),
        (Targets::all(), Targets::parent(), Targets::parent()),
        (Targets::parent_and_descendants(), Targets::parent(), Targets::parent()),
        (Targets::descendants(), Targets::parent(), Targets::none()),
        (bob(), Targets::named(only(&["bob", "eve"])), bob()),
        // Bob may be the parent of one agent, but not of another.
        (bob(), Targets::parent(), Targets::none()),
        (Targets::none(), Targets::all(), Targets::none()),
    ];
    for (a, b, common) in cases {
        assert_eq!(a.intersection(&b), common, "{a} and {b}");
        assert_eq!(b.intersection(&a), common, "{b} and {a}");
        assert!(common.is_within(&a) && common.is_within(&b), "{common} within {a} and {b}");
        assert_eq!(a.is_within(&b), common == a, "{a} within {b}");
    }
}

#[test]
fn targets_display_as_text() {
    let common = Targets { named: only(&["bob"]), ..Targets::parent_and_descendants() };
    let cases = [
        (Targets::none(), "none"),
        (Targets::all(), "any agent"),
        (Targets::parent(), "parent agent"),
        (Targets::descendants(), "child agents"),
        (Targets::parent_and_descendants(), "parent and child agents"),
        (Targets::named(only(&["bob"])), "only bob"),
        (common, "parent and child agents, and only bob"),
    ];
    for (targets, text) in cases {
        assert_eq!(targets.to_string(), text);
        assert_eq!(targets.is_empty(), text == "none");
    }
}

#[test]
fn budget_intersection_takes_the_tighter_limits() {
    let budget = |limit| Budget::unlimited().with_limit(Resource::Turns, limit);
    let cases = [
        (None, None, None, true),
        (Some(3), None, Some(3), true),
        (None, Some(3), Some(3), false),
        (Some(3), Some(5), Some(3), true),
        (Some(5), Some(3), Some(3), false),
        (Some(0), Some(0), Some(0), true),
    ];
    for (a, b, common, within) in cases {
        assert_eq!(budget(a).intersection(&budget(b)), budget(common), "{a:?} and {b:?}");
        assert_eq!(budget(a).is_within(&budget(b)), within, "{a:?} within {b:?}");
    }
    for resource in Resource::ALL {
        let tight = Budget::unlimited().with_limit(resource, Some(1));
        assert_eq!(tight.limit(resource), Some(1));
        let others = Resource::ALL.into_iter().filter(|other| *other != resource);
        assert!(others.clone().all(|other| tight.limit(other).is_none()), "{resource}");
        assert!(
            tight.is_within(&Budget::unlimited()) && !Budget::unlimited().is_within(&tight),
            "{resource}"
        );
    }
}

/// A grant that is limited in one dimension only.
fn narrower(dimension: Dimension) -> Grant {
    let mut grant = Grant::everything();
    match dimension {
        Dimension::Tools => grant.tools = all_except(&["x"]),
        Dimension::Read => grant.read = directories(&["/a"]),
        Dimension::Write => grant.write = directories(&["/a"]),
        Dimension::Blocked => grant.blocked = paths(&["/a"]),
        Dimension::Commands => grant.commands = all_except(&["x"]),
        // Not part of a grant.
        Dimension::Rules => {}
        Dimension::Hosts => grant.hosts = HostSet::all_except(patterns(&["x"])),
        Dimension::Create => grant.create = all_except(&["x"]),
        Dimension::Targets => grant.targets = Targets::parent_and_descendants(),
        Dimension::Budget(resource) => grant.budget = grant.budget.with_limit(resource, Some(1)),
    }
    grant
}

#[test]
fn grant_intersection_limits_every_dimension() {
    let everything = Grant::everything();
    for a in Dimension::ALL {
        let narrow = narrower(a);
        assert!(narrow.is_within(&everything) && !everything.is_within(&narrow), "{}", a.name());
        assert_eq!(narrow.intersection(&everything), narrow, "{}", a.name());
        assert_eq!(everything.intersection(&narrow), narrow, "{}", a.name());
        for b in Dimension::ALL {
            let (other, common) = (narrower(b), narrow.intersection(&narrower(b)));
            assert!(common.is_within(&narrow) && common.is_within(&other), "{} and {}", a.name(), b.name());
            assert_eq!(narrow.is_within(&other), a == b, "{} within {}", a.name(), b.name());
        }
    }
}

#[test]
fn nothing_is_within_every_grant() {
    let nothing = Grant::nothing();
    for dimension in Dimension::ALL {
        assert!(nothing.is_within(&narrower(dimension)), "{}", dimension.name());
        assert!(!narrower(dimension).is_within(&nothing), "{}", dimension.name());
    }
    assert!(nothing.is_within(&nothing));
    assert_eq!(nothing.budget, Budget::zero());
    assert_eq!(effective(&[]), nothing, "an empty lineage allows nothing");
}

#[test]
fn blocked_path_matters_only_within_granted_directories() {
    let grant = |read: &[&str], write: &[&str], blocked: &[&str]| Grant {
        read: directories(read),
        write: directories(write),
        blocked: paths(blocked),
        ..Grant::everything()
    };
    let outer = grant(&["/"], &["/"], &["/a/secret"]);
    let cases = [
        (grant(&["/b"], &[], &[]), true),
        (grant(&["/a"], &[], &[]), false),
        (grant(&[], &["/a"], &[]), false),
        (grant(&["/a/secret/deep"], &[], &[]), false),
        (grant(&["/a"], &["/a"], &["/a/secret"]), true),
        (grant(&["/a"], &[], &["/a"]), true),
        (grant(&["/a"], &[], &["/a/secret/deep"]), false),
        (grant(&["/a/secret/deep"], &[], &["/a/secret/deep"]), true),
        (grant(&["/a/secrets"], &[], &[]), true),
    ];
    for (inner, expected) in cases {
        assert_eq!(inner.is_within(&outer), expected, "{inner:?}");
    }
}
