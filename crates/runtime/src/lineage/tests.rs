//! The algebra of kin and ledgers: what is left, who pays, what is set aside, and that nothing is made or lost on the
//! way. Trees of random shape and history are held against a count of everything that was ever used.

mod persistence;

use std::sync::Arc;

use agent::AgentId;
use agent::journal::{StoredGrantRequest, StoredPermissions};
use agent::permission::{Budget, FilePath, Grant, NameSet, Presets, Reasons, Relation, Resource};

use super::*;

const TURNS: Resource = Resource::Turns;

fn granted(budget: Budget) -> GrantedPermissions {
    let permissions = Permissions::uniform(Grant { budget, ..Grant::everything() }, Reasons::uniform("test"));
    GrantedPermissions {
        preset: Arc::from(Presets::DEFAULT),
        level: Level::Sandboxed,
        permissions: Arc::new(permissions),
        spec: Arc::new(PermissionSpec { budget, ..PermissionSpec::default() }),
        stored: Arc::new(StoredPermissions {
            preset: Presets::DEFAULT.to_owned(),
            level: Level::Sandboxed,
            budget,
            may: StoredGrantRequest::default(),
            may_grant: None,
        }),
    }
}

fn turns(limit: impl Into<Option<u64>>) -> Budget {
    Budget::unlimited().with_limit(TURNS, limit.into())
}

fn try_node(
    serial: u64,
    parent: Option<&Arc<LineageNode>>,
    budget: Budget,
) -> Result<Arc<LineageNode>, InsufficientBudget> {
    let kin = LineageNode::new(NewLineageNode {
        id: AgentId::parse(&format!("a{serial}")).expect("a name"),
        serial,
        parent: parent.cloned(),
        cwd: FilePath::root(),
        granted: granted(budget),
    })?;
    kin.count_descendant()?;
    kin.mark_committed();
    Ok(kin)
}

fn node(serial: u64, parent: Option<&Arc<LineageNode>>, budget: Budget) -> Arc<LineageNode> {
    try_node(serial, parent, budget).expect("there is so much")
}

#[test]
fn a_tool_may_be_used_where_the_whole_grant_says_so() {
    let sets = [NameSet::all(), NameSet::none(), NameSet::only(["a", "b"]), NameSet::all_except(["b", "c"])];
    let given = |tools: &NameSet| Grant { tools: tools.clone(), ..Grant::everything() };
    for own in &sets {
        for (may, may_grant) in sets.iter().flat_map(|may| sets.iter().map(move |granted| (may, granted))) {
            let top = node(1, None, Budget::unlimited());
            let below = node(2, Some(&top), Budget::unlimited());
            let reasons = Reasons::uniform("test");
            let both =
                Permissions { may: Arc::new(given(may)), may_grant: Arc::new(given(may_grant)), reasons };
            top.set_granted(GrantedPermissions { permissions: Arc::new(both), ..top.granted() })
                .expect("no budget changes");
            let same = Permissions::uniform(given(own), Reasons::uniform("test"));
            below
                .set_granted(GrantedPermissions { permissions: Arc::new(same), ..below.granted() })
                .expect("no budget changes");
            for (kin, tool) in
                [&top, &below].into_iter().flat_map(|kin| ["a", "b", "c", "d"].map(|tool| (kin, tool)))
            {
                assert_eq!(
                    kin.tool_filter()(tool),
                    kin.may().tools.contains(tool),
                    "{own} {may} {may_grant} {tool}"
                );
            }
        }
    }
}

/// Used, reserved, left.
fn account(kin: &LineageNode) -> (u64, u64, Option<u64>) {
    let account = kin.account(TURNS);
    (account.used, account.reserved, kin.remaining(TURNS))
}

fn set_limit(kin: &LineageNode, limit: impl Into<Option<u64>>) -> Result<(), InsufficientBudget> {
    kin.set_granted(granted(turns(limit)))
}

#[test]
fn whoever_has_no_limit_draws_on_the_nearest_above_that_has_one() {
    let top = node(1, None, turns(10));
    let middle = node(2, Some(&top), turns(None));
    let bottom = node(3, Some(&middle), turns(None));
    assert!(bottom.try_consume(TURNS, 4) && middle.try_consume(TURNS, 5));
    assert_eq!(
        (account(&top), account(&middle), account(&bottom)),
        ((9, 0, Some(1)), (9, 0, Some(1)), (4, 0, Some(1)))
    );
    assert!(!bottom.try_consume(TURNS, 2), "one is left");
    assert_eq!(account(&bottom), (4, 0, Some(1)), "what is refused is not counted");
    bottom.record_usage(TURNS, 3);
    assert_eq!(account(&top), (12, 0, Some(0)), "what has happened is counted");
}

#[test]
fn what_is_given_back_was_never_used() {
    let top = node(1, None, turns(10));
    let middle = node(2, Some(&top), turns(None));
    let bottom = node(3, Some(&middle), turns(3));
    let before = (account(&top), account(&middle), account(&bottom));
    for taker in [&middle, &bottom] {
        assert!(taker.try_consume(TURNS, 2));
        taker.reverse_consumption(TURNS, 2);
        assert_eq!((account(&top), account(&middle), account(&bottom)), before);
    }
    assert!(bottom.try_consume(TURNS, 3) && middle.try_consume(TURNS, 7), "all of it can still be used");
}

#[test]
fn nobody_above_with_a_limit_is_no_limit() {
    let top = node(1, None, turns(None));
    let bottom = node(2, Some(&top), turns(None));
    assert!(
        bottom.try_consume(TURNS, u64::MAX) && bottom.try_consume(TURNS, 1),
        "counts stay at the top instead of wrapping"
    );
    assert_eq!(account(&top), (u64::MAX, 0, None));
}

#[test]
fn a_share_is_taken_whole_or_not_at_all() {
    let top = node(1, None, turns(10).with_limit(Resource::Tokens, Some(5)));
    let _first = node(2, Some(&top), turns(6));
    let wanted = Budget::unlimited().with_limit(Resource::Tokens, Some(6)).with_limit(TURNS, Some(4));
    let short = try_node(3, Some(&top), wanted).expect_err("there are not so many tokens");
    assert_eq!(short, InsufficientBudget { resource: Resource::Tokens, remaining: 5 });
    assert_eq!(account(&top), (0, 6, Some(4)), "the turns went back");
    assert_eq!(top.descendant_count(), 1);
    assert!(try_node(4, Some(&top), turns(5)).is_err());
    node(5, Some(&top), turns(4));
}

#[test]
fn a_share_comes_back_less_what_was_used() {
    let top = node(1, None, turns(10));
    let child = node(2, Some(&top), turns(6));
    assert!(child.try_consume(TURNS, 2));
    child.release().confirm();
    assert_eq!((account(&top), top.descendant_count()), ((2, 0, Some(8)), 0));
    drop(child);
    assert_eq!(account(&top), (2, 0, Some(8)), "and only once");
}

#[test]
fn what_a_dead_agent_still_uses_is_paid_above() {
    let top = node(1, None, turns(10));
    let child = node(2, Some(&top), turns(6));
    child.release().confirm();
    child.record_usage(TURNS, 3);
    assert_eq!(account(&top), (3, 0, Some(7)));
}

#[test]
fn a_dead_parent_keeps_its_share_for_its_orphans_and_no_longer() {
    let top = node(1, None, turns(10));
    let middle = node(2, Some(&top), turns(5));
    let orphans = [node(3, Some(&middle), turns(2)), node(4, Some(&middle), turns(None))];
    middle.release().confirm();
    assert_eq!(account(&top), (0, 5, Some(5)));
    assert!(
        orphans[1].try_consume(TURNS, 3) && !orphans[1].try_consume(TURNS, 1),
        "two of five are set aside"
    );
    assert!(orphans[0].try_consume(TURNS, 2) && !orphans[0].try_consume(TURNS, 1));
    orphans[0].release().confirm();
    assert_eq!(account(&top), (0, 5, Some(5)));
    orphans[1].release().confirm();
    assert_eq!((account(&top), top.descendant_count()), ((5, 0, Some(5)), 0));
}

#[test]
fn a_limit_that_comes_late_does_not_pay_for_what_was_paid_before() {
    let top = node(1, None, turns(10));
    let child = node(2, Some(&top), turns(None));
    assert!(child.try_consume(TURNS, 3));
    set_limit(&child, 5).expect("seven are left");
    assert_eq!((account(&top), account(&child)), ((3, 2, Some(5)), (3, 0, Some(2))));
    set_limit(&child, None).expect("nobody holds a share of it");
    assert_eq!((account(&top), account(&child)), ((3, 0, Some(7)), (3, 0, Some(7))));
    assert_eq!(set_limit(&child, 11), Err(InsufficientBudget { resource: TURNS, remaining: 7 }));
}

#[test]
fn a_lowered_limit_keeps_what_is_used_and_what_is_set_aside() {
    let top = node(1, None, turns(10));
    let child = node(2, Some(&top), turns(8));
    let _grandchild = node(3, Some(&child), turns(4));
    assert!(child.try_consume(TURNS, 2));
    set_limit(&child, 1).expect("less is always possible");
    assert_eq!((account(&top), account(&child)), ((0, 6, Some(4)), (2, 4, Some(0))));
    set_limit(&child, 9).expect("three more than it holds");
    assert_eq!((account(&top), account(&child)), ((0, 9, Some(1)), (2, 4, Some(3))));
}

#[test]
fn a_limit_with_shares_below_it_cannot_be_lifted() {
    let top = node(1, None, turns(10));
    let child = node(2, Some(&top), turns(2));
    assert_eq!(set_limit(&top, None), Err(InsufficientBudget { resource: TURNS, remaining: 2 }));
    child.release().confirm();
    set_limit(&top, None).expect("nobody holds a share any more");
}

#[test]
fn a_lender_that_comes_late_is_told_of_the_whole_share() {
    let top = node(1, None, turns(None));
    let first = node(2, Some(&top), turns(5));
    set_limit(&top, 20).expect("nobody is above");
    let second = node(3, Some(&top), turns(10));
    set_limit(&first, 8).expect("ten are left");
    assert_eq!(account(&top), (0, 18, Some(2)));
    first.release().confirm();
    assert_eq!(account(&top), (0, 10, Some(10)));
    second.release().confirm();
    assert_eq!(account(&top), (0, 0, Some(20)));
}

#[test]
fn a_change_that_fails_in_its_middle_changes_nothing() {
    let top = node(1, None, turns(10).with_limit(Resource::Tokens, Some(10)));
    let child = node(2, Some(&top), turns(2).with_limit(Resource::Tokens, Some(2)));
    let wanted = turns(9).with_limit(Resource::Tokens, Some(11));
    assert_eq!(
        child.set_granted(granted(wanted)),
        Err(InsufficientBudget { resource: Resource::Tokens, remaining: 8 })
    );
    assert_eq!(account(&top), (0, 2, Some(8)));
    assert_eq!(child.permissions().may.budget, turns(2).with_limit(Resource::Tokens, Some(2)));
}

#[test]
fn nobody_uses_more_than_anybody_above_may() {
    let top = node(1, None, turns(None));
    let child = node(2, Some(&top), turns(100));
    set_limit(&top, 3).expect("nobody is above");
    assert!(child.try_consume(TURNS, 3) && !child.try_consume(TURNS, 1));
    assert_eq!(child.remaining(TURNS), Some(0));
}

#[test]
fn children_are_counted_at_everybody_above() {
    let children = |limit| Budget::unlimited().with_limit(Resource::Children, Some(limit));
    let top = node(1, None, children(2));
    let middle = node(2, Some(&top), children(9));
    let bottom = node(3, Some(&middle), Budget::unlimited());
    assert_eq!((top.descendant_count(), middle.descendant_count(), bottom.descendant_count()), (2, 1, 0));
    assert_eq!(bottom.remaining_children(), Some(0));
    assert!(try_node(4, Some(&bottom), Budget::unlimited()).is_err());
    assert_eq!(middle.descendant_count(), 1, "a refused child counts nowhere");
    bottom.release().confirm();
    node(5, Some(&middle), Budget::unlimited());
}

#[test]
fn kinship_is_by_blood_and_not_by_name() {
    let top = node(1, None, Budget::unlimited());
    let child = node(2, Some(&top), Budget::unlimited());
    let grandchild = node(3, Some(&child), Budget::unlimited());
    let namesake = LineageNode::new(NewLineageNode {
        id: top.id(),
        serial: 9,
        parent: None,
        cwd: FilePath::root(),
        granted: granted(Budget::unlimited()),
    });
    let namesake = namesake.expect("nobody is above");
    assert_eq!(child.relation_to(&child), Relation::Itself);
    assert_eq!(child.relation_to(&top), Relation::Parent);
    assert_eq!(grandchild.relation_to(&top), Relation::Other, "only the parent is one");
    assert_eq!(top.relation_to(&grandchild), Relation::Descendant);
    assert_eq!(
        (child.relation_to(&namesake), namesake.relation_to(&child)),
        (Relation::Other, Relation::Other)
    );
    assert!(
        grandchild.is_descendant_of(&top)
            && !grandchild.is_descendant_of(&namesake)
            && !top.is_descendant_of(&top)
    );
}

/// One agent of the random tree, with what it used itself.
struct TreeNode {
    node: Arc<LineageNode>,
    used: u64,
    limit_max: Option<u64>,
    is_destroyed: bool,
}

/// SplitMix64.
fn random_below(state: &mut u64, bound: u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % bound
}

fn random_step(state: &mut u64, members: &mut Vec<TreeNode>) {
    let place = usize::try_from(random_below(state, members.len() as u64)).expect("a small number");
    let limit = Some(random_below(state, 12)).filter(|_| random_below(state, 3) > 0);
    let (kin, gone) = (Arc::clone(&members[place].node), members[place].is_destroyed);
    match random_below(state, 10) {
        0..2 if !gone && kin.depth < 5 => {
            if let Ok(kin) = try_node(members.len() as u64 + 2, Some(&kin), turns(limit)) {
                members.push(TreeNode { node: kin, used: 0, limit_max: limit, is_destroyed: false });
            }
        }
        2 if !gone && place > 0 => {
            members[place].is_destroyed = true;
            kin.release().confirm();
        }
        3 if !gone => {
            // The first keeps a limit, so that there is always somebody to hold the count against.
            let limit = if place == 0 { limit.or(Some(30)) } else { limit };
            if set_limit(&kin, limit).is_ok() {
                let both = members[place].limit_max.zip(limit);
                members[place].limit_max = both.map(|(before, now)| before.max(now));
            }
        }
        _ if !gone => {
            let amount = random_below(state, 3);
            if kin.try_consume(TURNS, amount) {
                members[place].used += amount;
            }
        }
        _ => {}
    }
}

fn check_tree(members: &[TreeNode], seed: u64) {
    for head in members {
        let family = members
            .iter()
            .filter(|one| one.node.is_descendant_of(&head.node) || one.node.serial == head.node.serial);
        let used: u64 = family.clone().map(|one| one.used).sum();
        let fair = head.limit_max.is_none_or(|limit| used <= limit);
        assert!(fair, "seed {seed}: {} used {used} of {:?}", head.node.id(), head.limit_max);
        let alive =
            family.filter(|one| !one.is_destroyed && one.node.serial != head.node.serial).count() as u64;
        assert_eq!(head.node.descendant_count(), alive, "seed {seed}: {}", head.node.id());
        let reserved = head.node.account(TURNS).reserved;
        assert!(
            alive > 0 || reserved == 0,
            "seed {seed}: {} set {reserved} aside for nobody",
            head.node.id()
        );
    }
}

#[test]
fn no_family_ever_uses_more_than_its_head_was_given() {
    for seed in 0..500 {
        let mut state = seed;
        let mut members = vec![TreeNode {
            node: node(1, None, turns(20)),
            used: 0,
            limit_max: Some(20),
            is_destroyed: false,
        }];
        for _ in 0..80 {
            random_step(&mut state, &mut members);
            check_tree(&members, seed);
        }
        for member in members.iter_mut().skip(1).filter(|one| !one.is_destroyed) {
            member.is_destroyed = true;
            member.node.release().confirm();
        }
        check_tree(&members, seed);
        let (used, total) =
            (members[0].node.account(TURNS).used, members.iter().map(|one| one.used).sum::<u64>());
        assert_eq!(used, total, "seed {seed}: what everybody used ends at the top");
    }
}

#[test]
fn a_tree_uses_no_more_than_a_limit_that_was_lowered_later() {
    let top = node(1, None, turns(6));
    let (one, two) = (node(2, Some(&top), turns(3)), node(3, Some(&top), turns(3)));
    assert!(one.try_consume(TURNS, 1));
    set_limit(&top, 3).expect("less is always had");
    assert_eq!(
        (one.remaining(TURNS), two.remaining(TURNS), top.remaining(TURNS)),
        (Some(2), Some(2), Some(0))
    );
    assert!(two.try_consume(TURNS, 2), "what was set aside can still be used");
    assert!(
        !one.try_consume(TURNS, 1) && !two.try_consume(TURNS, 1),
        "but not more of it than the limit is now"
    );
    set_limit(&top, 6).expect("nobody is above");
    assert!(one.try_consume(TURNS, 2) && two.try_consume(TURNS, 1), "and it goes on when there is more");
    assert!(!one.try_consume(TURNS, 1));
}

#[test]
fn a_lender_whose_limit_was_lifted_is_no_lender() {
    let top = node(1, None, turns(10));
    let middle = node(2, Some(&top), turns(5));
    let child = node(3, Some(&middle), turns(0));
    set_limit(&middle, None).expect("nothing of it is set aside");
    set_limit(&child, 8).expect("the top has so much");
    assert_eq!(top.account(TURNS).reserved, 8, "it is set aside where there is a limit");
    assert!(try_node(4, Some(&top), turns(3)).is_err(), "and so nobody else can have it");
}

#[test]
fn whoever_stays_after_all_has_what_it_had() {
    let top = node(1, None, turns(10));
    let middle = node(2, Some(&top), turns(6));
    let bottom = node(3, Some(&middle), turns(4));
    assert!(bottom.try_consume(TURNS, 2));
    let before = (account(&top), account(&middle), account(&bottom));
    let dismissals = [bottom.release(), middle.release()];
    assert_eq!((account(&top), top.descendant_count()), ((2, 0, Some(8)), 0));
    dismissals.into_iter().rev().for_each(Release::roll_back);
    assert_eq!((account(&top), account(&middle), account(&bottom)), before);
    assert_eq!((top.descendant_count(), middle.descendant_count()), (2, 1));
    middle.release().confirm();
    bottom.release().confirm();
    assert_eq!((account(&top), top.descendant_count()), ((2, 0, Some(8)), 0), "and it can go again");
}

#[test]
fn what_is_used_while_an_agent_goes_and_stays_is_paid_once() {
    let top = node(1, None, turns(10));
    let child = node(2, Some(&top), turns(6));
    assert!(child.try_consume(TURNS, 1));
    let dismissal = child.release();
    child.record_usage(TURNS, 2);
    dismissal.roll_back();
    assert_eq!(account(&top), (2, 6, Some(2)), "two were paid above meanwhile");
    child.release().confirm();
    assert_eq!(account(&top), (3, 0, Some(7)));
}
