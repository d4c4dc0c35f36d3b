//! Intersection and containment of names, targets, budgets and whole grants.

use super::*;

fn only(names: &[&str]) -> Names {
    Names::only(names.iter().copied())
}

fn but(names: &[&str]) -> Names {
    Names::all_but(names.iter().copied())
}

#[test]
fn names_intersect_exactly() {
    let cases = [
        (only(&["a", "b"]), only(&["b", "c"]), only(&["b"])),
        (only(&["a"]), only(&["b"]), Names::none()),
        (only(&["a", "b"]), but(&["a"]), only(&["b"])),
        (but(&["a"]), but(&["b"]), but(&["a", "b"])),
        (Names::any(), only(&["a"]), only(&["a"])),
        (Names::any(), but(&["a"]), but(&["a"])),
        (Names::none(), Names::any(), Names::none()),
        (Names::none(), but(&["a"]), Names::none()),
    ];
    for (one, two, both) in cases {
        assert_eq!(one.and(&two), both, "{one} and {two}");
        assert_eq!(two.and(&one), both, "{two} and {one}");
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
        (only(&["a"]), but(&["b"]), true),
        (only(&["a", "b"]), but(&["b"]), false),
        (but(&["a", "b"]), but(&["a"]), true),
        (but(&["a"]), but(&["a", "b"]), false),
        (but(&["a"]), only(&["b", "c"]), false),
        (Names::none(), Names::none(), true),
        (Names::none(), only(&["a"]), true),
        (Names::any(), Names::any(), true),
        (Names::any(), but(&["a"]), false),
    ];
    for (inner, outer, expected) in cases {
        assert_eq!(inner.within(&outer), expected, "{inner} within {outer}");
    }
}

#[test]
fn names_are_told_in_words() {
    let cases = [
        (Names::any(), "all"),
        (Names::none(), "none"),
        (only(&["b", "a"]), "only a, b"),
        (but(&["a"]), "all but a"),
        (but(&["a", "b"]).without(&arcs(&["c"])), "all but a, b, c"),
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
    let named = Targets::list(only(&["bob"]));
    // For each: itself, parent, descendant, other, and one called bob of none of these.
    let cases = [
        (Targets::nobody(), [false, false, false, false, false]),
        (Targets::anybody(), [false, true, true, true, true]),
        (Targets::parent(), [false, true, false, false, false]),
        (Targets::children(), [false, false, true, false, false]),
        (Targets::family(), [false, true, true, false, false]),
        (named, [false, false, false, false, true]),
        (Targets::list(Names::any()), [false, true, true, true, true]),
    ];
    for (targets, expected) in cases {
        let kin = [Kinship::Itself, Kinship::Parent, Kinship::Descendant, Kinship::Other];
        let mut found: Vec<bool> = kin.map(|kin| targets.contains(&agent("x"), kin)).to_vec();
        found.push(targets.contains(&agent("bob"), Kinship::Other));
        assert_eq!(found, expected, "{targets}");
        assert!(!targets.contains(&agent("bob"), Kinship::Itself), "{targets}");
    }
}

#[test]
fn targets_intersect_by_kinship_and_by_name() {
    let bob = || Targets::list(only(&["bob"]));
    let cases = [
        (Targets::anybody(), bob(), bob()),
        (Targets::anybody(), Targets::parent(), Targets::parent()),
        (Targets::family(), Targets::parent(), Targets::parent()),
        (Targets::children(), Targets::parent(), Targets::nobody()),
        (bob(), Targets::list(only(&["bob", "eve"])), bob()),
        // Bob may be the parent, but seen from another he is not.
        (bob(), Targets::parent(), Targets::nobody()),
        (Targets::nobody(), Targets::anybody(), Targets::nobody()),
    ];
    for (one, two, both) in cases {
        assert_eq!(one.and(&two), both, "{one} and {two}");
        assert_eq!(two.and(&one), both, "{two} and {one}");
        assert!(both.within(&one) && both.within(&two), "{both} within {one} and {two}");
        assert_eq!(one.within(&two), both == one, "{one} within {two}");
    }
}

#[test]
fn targets_are_told_in_words() {
    let both = Targets { named: only(&["bob"]), ..Targets::family() };
    let cases = [
        (Targets::nobody(), "nobody"),
        (Targets::anybody(), "anybody"),
        (Targets::parent(), "parent agent"),
        (Targets::children(), "child agents"),
        (Targets::family(), "parent and child agents"),
        (Targets::list(only(&["bob"])), "only bob"),
        (both, "parent and child agents, and only bob"),
    ];
    for (targets, words) in cases {
        assert_eq!(targets.to_string(), words);
        assert_eq!(targets.is_empty(), words == "nobody");
    }
}

#[test]
fn budgets_take_the_tighter_limit_of_each_resource() {
    let budget = |limit| Budget::unlimited().with(Resource::Turns, limit);
    let cases = [
        (None, None, None, true),
        (Some(3), None, Some(3), true),
        (None, Some(3), Some(3), false),
        (Some(3), Some(5), Some(3), true),
        (Some(5), Some(3), Some(3), false),
        (Some(0), Some(0), Some(0), true),
    ];
    for (one, two, both, within) in cases {
        assert_eq!(budget(one).and(&budget(two)), budget(both), "{one:?} and {two:?}");
        assert_eq!(budget(one).within(&budget(two)), within, "{one:?} within {two:?}");
    }
    for resource in Resource::ALL {
        let tight = Budget::unlimited().with(resource, Some(1));
        assert_eq!(tight.limit(resource), Some(1));
        let others = Resource::ALL.into_iter().filter(|other| *other != resource);
        assert!(others.clone().all(|other| tight.limit(other).is_none()), "{resource}");
        assert!(tight.within(&Budget::unlimited()) && !Budget::unlimited().within(&tight), "{resource}");
    }
}

/// A grant that is narrower than everything in one dimension.
fn narrower(dimension: Dimension) -> Grant {
    let mut grant = Grant::everything();
    match dimension {
        Dimension::Tools => grant.tools = but(&["x"]),
        Dimension::Read => grant.read = folders(&["/a"]),
        Dimension::Write => grant.write = folders(&["/a"]),
        Dimension::Blocked => grant.blocked = paths(&["/a"]),
        Dimension::Commands => grant.commands = but(&["x"]),
        Dimension::Hosts => grant.hosts = but(&["x"]),
        Dimension::Create => grant.create = but(&["x"]),
        Dimension::Targets => grant.targets = Targets::family(),
        Dimension::Budget(resource) => grant.budget = grant.budget.with(resource, Some(1)),
    }
    grant
}

#[test]
fn a_grant_is_narrow_in_every_dimension_of_both() {
    let everything = Grant::everything();
    for one in Dimension::ALL {
        let narrow = narrower(one);
        assert!(narrow.within(&everything) && !everything.within(&narrow), "{}", one.name());
        assert_eq!(narrow.and(&everything), narrow, "{}", one.name());
        assert_eq!(everything.and(&narrow), narrow, "{}", one.name());
        for two in Dimension::ALL {
            let (other, both) = (narrower(two), narrow.and(&narrower(two)));
            assert!(both.within(&narrow) && both.within(&other), "{} and {}", one.name(), two.name());
            assert_eq!(narrow.within(&other), one == two, "{} within {}", one.name(), two.name());
        }
    }
}

#[test]
fn nothing_is_within_every_grant() {
    let nothing = Grant::nothing();
    for dimension in Dimension::ALL {
        assert!(nothing.within(&narrower(dimension)), "{}", dimension.name());
        assert!(!narrower(dimension).within(&nothing), "{}", dimension.name());
    }
    assert!(nothing.within(&nothing));
    assert_eq!(nothing.budget, Budget::none());
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
        assert_eq!(inner.within(&outer), expected, "{inner:?}");
    }
}
