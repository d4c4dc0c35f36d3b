//! Intersection and containment of names, targets, budgets and whole grants.

use super::*;

fn only(names: &[&str]) -> NameSet {
    NameSet::only(names.iter().copied())
}

fn all_except(names: &[&str]) -> NameSet {
    NameSet::all_except(names.iter().copied())
}

#[test]
fn names_intersect_exactly() {
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
    for (one, two, both) in cases {
        assert_eq!(one.intersection(&two), both, "{one} and {two}");
        assert_eq!(two.intersection(&one), both, "{two} and {one}");
        for name in ["a", "b", "c", "never named"] {
            let each = one.contains(name) && two.contains(name);
            assert_eq!(both.contains(name), each, "{name} in {one} and {two}");
        }
    }
}

#[test]
fn names_are_within_what_holds_them_all() {
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
fn names_are_told_in_words() {
    let cases = [
        (NameSet::all(), "all"),
        (NameSet::none(), "none"),
        (only(&["b", "a"]), "only a, b"),
        (all_except(&["a"]), "all but a"),
        (all_except(&["a", "b"]).without(&arcs(&["c"])), "all but a, b, c"),
        (only(&["a", "b"]).without(&arcs(&["a"])), "only b"),
        (only(&["a"]).without(&arcs(&["a", "z"])), "none"),
    ];
    for (names, words) in cases {
        assert_eq!(names.to_string(), words);
        assert_eq!(names.is_empty(), words == "none");
    }
}

#[test]
fn targets_hold_kin_and_the_named_but_never_oneself() {
    let named = Targets::named(only(&["bob"]));
    // For each: itself, parent, descendant, other, and one called bob of none of these.
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
        let kin = [Relation::Itself, Relation::Parent, Relation::Descendant, Relation::Other];
        let mut found: Vec<bool> = kin.map(|kin| targets.contains(&agent("x"), kin)).to_vec();
        found.push(targets.contains(&agent("bob"), Relation::Other));
        assert_eq!(found, expected, "{targets}");
        assert!(!targets.contains(&agent("bob"), Relation::Itself), "{targets}");
    }
}

#[test]
fn targets_intersect_by_kinship_and_by_name() {
    let bob = || Targets::named(only(&["bob"]));
    let cases = [
        (Targets::all(), bob(), bob()),
        (Targets::all(), Targets::parent(), Targets::parent()),
        (Targets::parent_and_descendants(), Targets::parent(), Targets::parent()),
        (Targets::descendants(), Targets::parent(), Targets::none()),
        (bob(), Targets::named(only(&["bob", "eve"])), bob()),
        // Bob may be the parent, but seen from another he is not.
        (bob(), Targets::parent(), Targets::none()),
        (Targets::none(), Targets::all(), Targets::none()),
    ];
    for (one, two, both) in cases {
        assert_eq!(one.intersection(&two), both, "{one} and {two}");
        assert_eq!(two.intersection(&one), both, "{two} and {one}");
        assert!(both.is_within(&one) && both.is_within(&two), "{both} within {one} and {two}");
        assert_eq!(one.is_within(&two), both == one, "{one} within {two}");
    }
}

#[test]
fn targets_are_told_in_words() {
    let both = Targets { named: only(&["bob"]), ..Targets::parent_and_descendants() };
    let cases = [
        (Targets::none(), "nobody"),
        (Targets::all(), "anybody"),
        (Targets::parent(), "parent agent"),
        (Targets::descendants(), "child agents"),
        (Targets::parent_and_descendants(), "parent and child agents"),
        (Targets::named(only(&["bob"])), "only bob"),
        (both, "parent and child agents, and only bob"),
    ];
    for (targets, words) in cases {
        assert_eq!(targets.to_string(), words);
        assert_eq!(targets.is_empty(), words == "nobody");
    }
}

#[test]
fn budgets_take_the_tighter_limit_of_each_resource() {
    let budget = |limit| Budget::unlimited().with_limit(Resource::Turns, limit);
    let cases = [
        (None, None, None, true),
        (Some(3), None, Some(3), true),
        (None, Some(3), Some(3), false),
        (Some(3), Some(5), Some(3), true),
        (Some(5), Some(3), Some(3), false),
        (Some(0), Some(0), Some(0), true),
    ];
    for (one, two, both, within) in cases {
        assert_eq!(budget(one).intersection(&budget(two)), budget(both), "{one:?} and {two:?}");
        assert_eq!(budget(one).is_within(&budget(two)), within, "{one:?} within {two:?}");
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

/// A grant that is narrower than everything in one dimension.
fn narrower(dimension: Dimension) -> Grant {
    let mut grant = Grant::everything();
    match dimension {
        Dimension::Tools => grant.tools = all_except(&["x"]),
        Dimension::Read => grant.read = folders(&["/a"]),
        Dimension::Write => grant.write = folders(&["/a"]),
        Dimension::Blocked => grant.blocked = paths(&["/a"]),
        Dimension::Commands => grant.commands = all_except(&["x"]),
        Dimension::Hosts => grant.hosts = all_except(&["x"]),
        Dimension::Create => grant.create = all_except(&["x"]),
        Dimension::Targets => grant.targets = Targets::parent_and_descendants(),
        Dimension::Budget(resource) => grant.budget = grant.budget.with_limit(resource, Some(1)),
    }
    grant
}

#[test]
fn a_grant_is_narrow_in_every_dimension_of_both() {
    let everything = Grant::everything();
    for one in Dimension::ALL {
        let narrow = narrower(one);
        assert!(narrow.is_within(&everything) && !everything.is_within(&narrow), "{}", one.name());
        assert_eq!(narrow.intersection(&everything), narrow, "{}", one.name());
        assert_eq!(everything.intersection(&narrow), narrow, "{}", one.name());
        for two in Dimension::ALL {
            let (other, both) = (narrower(two), narrow.intersection(&narrower(two)));
            assert!(both.is_within(&narrow) && both.is_within(&other), "{} and {}", one.name(), two.name());
            assert_eq!(narrow.is_within(&other), one == two, "{} within {}", one.name(), two.name());
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
    assert_eq!(effective(&[]), nothing, "where nothing is said, nothing is allowed");
}

#[test]
fn a_blocked_folder_counts_only_where_the_other_could_reach_it() {
    let grant = |read: &[&str], write: &[&str], blocked: &[&str]| Grant {
        read: folders(read),
        write: folders(write),
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
