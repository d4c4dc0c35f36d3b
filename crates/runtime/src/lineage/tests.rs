//! Invariants of lineage nodes and ledgers: remaining budget, debited account, reservations, and conservation of
//! usage. Random trees with random histories are checked against a plain count of usage.

mod persistence;

use std::sync::Arc;

use agent::journal::{StoredGrantRequest, StoredPermissions};
use agent::permission::{
    Budget, Effect, FilePath, Grant, NameSet, Presets, Reasons, Relation, Resource, Verdict, judge,
};
use agent::{AgentId, Concurrency, ToolClass, ToolSpec};
use testkit::TestRng;

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
            rules: Vec::new(),
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
    let node = LineageNode::new(NewLineageNode {
        id: AgentId::parse(&format!("a{serial}")).expect("valid id"),
        serial,
        parent: parent.cloned(),
        cwd: FilePath::root(),
        granted: granted(budget),
    })?;
    node.count_descendant()?;
    node.mark_creation_enqueued();
    Ok(node)
}

fn node(serial: u64, parent: Option<&Arc<LineageNode>>, budget: Budget) -> Arc<LineageNode> {
    try_node(serial, parent, budget).expect("within budget")
}

#[test]
fn tool_filter_agrees_with_the_effective_grant() {
    let sets = [NameSet::all(), NameSet::none(), NameSet::only(["a", "b"]), NameSet::all_except(["b", "c"])];
    // A set without `b` also disables the alias of `a`.
    let grant = |tools: &NameSet| Grant {
        tools: tools.clone(),
        disabled_tools: ["alias-of-a".into()].into_iter().filter(|_| !tools.contains("b")).collect(),
        ..Grant::everything()
    };
    for own in &sets {
        for (may, may_grant) in sets.iter().flat_map(|may| sets.iter().map(move |granted| (may, granted))) {
            let top = node(1, None, Budget::unlimited());
            let bottom = node(2, Some(&top), Budget::unlimited());
            let both = Permissions::uniform(grant(may), Reasons::uniform("test"));
            let both = Permissions { may_grant: Arc::new(grant(may_grant)), ..both };
            top.set_granted(GrantedPermissions { permissions: Arc::new(both), ..top.granted() })
                .expect("no budget changes");
            let same = Permissions::uniform(grant(own), Reasons::uniform("test"));
            bottom
                .set_granted(GrantedPermissions { permissions: Arc::new(same), ..bottom.granted() })
                .expect("no budget changes");
            for (node, tool) in
                [&top, &bottom].into_iter().flat_map(|node| ["a", "b", "c", "d"].map(|tool| (node, tool)))
            {
                assert_eq!(
                    node.tool_filter()(&tool_spec(tool)),
                    matches!(
                        judge(&Effect::of_tool(&tool_spec(tool)).collect::<Vec<_>>(), &node.may()),
                        Verdict::Allowed(_)
                    ),
                    "{own} {may} {may_grant} {tool}"
                );
            }
        }
    }
}

fn tool_spec(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.into(),
        model_name: name.into(),
        aliases: vec![format!("alias-of-{name}").into()],
        description: "a tool".into(),
        input_schema: "{}".into(),
        is_offered_by_default: true,
        program: None,
        concurrency: Concurrency::Parallel,
        class: ToolClass::Pure,
        time_ms_max: 1,
        tokens: 1,
        brief: None,
    }
}

/// Used, reserved, remaining.
fn account(node: &LineageNode) -> (u64, u64, Option<u64>) {
    let account = node.account(TURNS);
    (account.used, account.reserved, node.remaining(TURNS))
}

fn set_limit(node: &LineageNode, limit: impl Into<Option<u64>>) -> Result<(), InsufficientBudget> {
    node.set_granted(granted(turns(limit)))
}

#[test]
fn unlimited_agent_draws_on_nearest_limited_ancestor() {
    let top = node(1, None, turns(10));
    let middle = node(2, Some(&top), turns(None));
    let bottom = node(3, Some(&middle), turns(None));
    assert!(bottom.try_consume(TURNS, 4) && middle.try_consume(TURNS, 5));
    assert_eq!(
        (account(&top), account(&middle), account(&bottom)),
        ((9, 0, Some(1)), (9, 0, Some(1)), (4, 0, Some(1)))
    );
    assert!(!bottom.try_consume(TURNS, 2), "one turn remains");
    assert_eq!(account(&bottom), (4, 0, Some(1)), "rejected usage is not counted");
    bottom.record_usage(TURNS, 3);
    assert_eq!(account(&top), (12, 0, Some(0)), "recorded usage is counted");
}

#[test]
fn reversed_consumption_restores_all_accounts() {
    let top = node(1, None, turns(10));
    let middle = node(2, Some(&top), turns(None));
    let bottom = node(3, Some(&middle), turns(3));
    let before = (account(&top), account(&middle), account(&bottom));
    for consumer in [&middle, &bottom] {
        assert!(consumer.try_consume(TURNS, 2));
        consumer.reverse_consumption(TURNS, 2);
        assert_eq!((account(&top), account(&middle), account(&bottom)), before);
    }
    assert!(bottom.try_consume(TURNS, 3) && middle.try_consume(TURNS, 7), "the whole budget is available");
}

#[test]
fn no_limit_in_the_lineage_means_unlimited() {
    let top = node(1, None, turns(None));
    let bottom = node(2, Some(&top), turns(None));
    assert!(
        bottom.try_consume(TURNS, u64::MAX) && bottom.try_consume(TURNS, 1),
        "counters saturate instead of wrapping"
    );
    assert_eq!(account(&top), (u64::MAX, 0, None));
}

#[test]
fn reservation_is_all_or_nothing() {
    let top = node(1, None, turns(10).with_limit(Resource::Tokens, Some(5)));
    let _first = node(2, Some(&top), turns(6));
    let wanted = Budget::unlimited().with_limit(Resource::Tokens, Some(6)).with_limit(TURNS, Some(4));
    let shortfall = try_node(3, Some(&top), wanted).expect_err("too few tokens");
    assert_eq!(shortfall, InsufficientBudget { resource: Resource::Tokens, remaining: 5 });
    assert_eq!(account(&top), (0, 6, Some(4)), "the turns were released");
    assert_eq!(top.descendant_count(), 1);
    assert!(try_node(4, Some(&top), turns(5)).is_err());
    node(5, Some(&top), turns(4));
}

#[test]
fn release_refunds_the_unused_reservation() {
    let top = node(1, None, turns(10));
    let child = node(2, Some(&top), turns(6));
    assert!(child.try_consume(TURNS, 2));
    child.release().confirm();
    assert_eq!((account(&top), top.descendant_count()), ((2, 0, Some(8)), 0));
    drop(child);
    assert_eq!(account(&top), (2, 0, Some(8)), "refunded once");
}

#[test]
fn usage_after_release_is_debited_to_the_ancestor() {
    let top = node(1, None, turns(10));
    let child = node(2, Some(&top), turns(6));
    child.release().confirm();
    child.record_usage(TURNS, 3);
    assert_eq!(account(&top), (3, 0, Some(7)));
}

#[test]
fn destroyed_parent_holds_its_reservation_for_orphans() {
    let top = node(1, None, turns(10));
    let middle = node(2, Some(&top), turns(5));
    let orphans = [node(3, Some(&middle), turns(2)), node(4, Some(&middle), turns(None))];
    middle.release().confirm();
    assert_eq!(account(&top), (0, 5, Some(5)));
    assert!(
        orphans[1].try_consume(TURNS, 3) && !orphans[1].try_consume(TURNS, 1),
        "two of five are reserved"
    );
    assert!(orphans[0].try_consume(TURNS, 2) && !orphans[0].try_consume(TURNS, 1));
    orphans[0].release().confirm();
    assert_eq!(account(&top), (0, 5, Some(5)));
    orphans[1].release().confirm();
    assert_eq!((account(&top), top.descendant_count()), ((5, 0, Some(5)), 0));
}

#[test]
fn late_limit_excludes_usage_debited_to_an_ancestor() {
    let top = node(1, None, turns(10));
    let child = node(2, Some(&top), turns(None));
    assert!(child.try_consume(TURNS, 3));
    set_limit(&child, 5).expect("seven remain");
    assert_eq!((account(&top), account(&child)), ((3, 2, Some(5)), (3, 0, Some(2))));
    set_limit(&child, None).expect("no reservations");
    assert_eq!((account(&top), account(&child)), ((3, 0, Some(7)), (3, 0, Some(7))));
    assert_eq!(set_limit(&child, 11), Err(InsufficientBudget { resource: TURNS, remaining: 7 }));
}

#[test]
fn lowered_limit_still_covers_usage_and_reservations() {
    let top = node(1, None, turns(10));
    let child = node(2, Some(&top), turns(8));
    let _grandchild = node(3, Some(&child), turns(4));
    assert!(child.try_consume(TURNS, 2));
    set_limit(&child, 1).expect("lowering always succeeds");
    assert_eq!((account(&top), account(&child)), ((0, 6, Some(4)), (2, 4, Some(0))));
    set_limit(&child, 9).expect("three more than reserved");
    assert_eq!((account(&top), account(&child)), ((0, 9, Some(1)), (2, 4, Some(3))));
}

#[test]
fn limit_with_child_reservations_cannot_be_removed() {
    let top = node(1, None, turns(10));
    let child = node(2, Some(&top), turns(2));
    assert_eq!(set_limit(&top, None), Err(InsufficientBudget { resource: TURNS, remaining: 2 }));
    child.release().confirm();
    set_limit(&top, None).expect("no reservations any more");
}

#[test]
fn late_budget_source_reserves_the_whole_share() {
    let top = node(1, None, turns(None));
    let first = node(2, Some(&top), turns(5));
    set_limit(&top, 20).expect("no ancestor");
    let second = node(3, Some(&top), turns(10));
    set_limit(&first, 8).expect("ten remain");
    assert_eq!(account(&top), (0, 18, Some(2)));
    first.release().confirm();
    assert_eq!(account(&top), (0, 10, Some(10)));
    second.release().confirm();
    assert_eq!(account(&top), (0, 0, Some(20)));
}

#[test]
fn failed_permission_change_changes_nothing() {
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
fn usage_is_bounded_by_every_ancestor_limit() {
    let top = node(1, None, turns(None));
    let child = node(2, Some(&top), turns(100));
    set_limit(&top, 3).expect("no ancestor");
    assert!(child.try_consume(TURNS, 3) && !child.try_consume(TURNS, 1));
    assert_eq!(child.remaining(TURNS), Some(0));
}

#[test]
fn children_count_at_every_ancestor() {
    let children = |limit| Budget::unlimited().with_limit(Resource::Children, Some(limit));
    let top = node(1, None, children(2));
    let middle = node(2, Some(&top), children(9));
    let bottom = node(3, Some(&middle), Budget::unlimited());
    assert_eq!((top.descendant_count(), middle.descendant_count(), bottom.descendant_count()), (2, 1, 0));
    assert_eq!(bottom.remaining_children(), Some(0));
    assert!(try_node(4, Some(&bottom), Budget::unlimited()).is_err());
    assert_eq!(middle.descendant_count(), 1, "a rejected child is not counted");
    bottom.release().confirm();
    node(5, Some(&middle), Budget::unlimited());
}

#[test]
fn relation_is_by_serial_and_not_by_id() {
    let top = node(1, None, Budget::unlimited());
    let child = node(2, Some(&top), Budget::unlimited());
    let grandchild = node(3, Some(&child), Budget::unlimited());
    let same_id = LineageNode::new(NewLineageNode {
        id: top.id(),
        serial: 9,
        parent: None,
        cwd: FilePath::root(),
        granted: granted(Budget::unlimited()),
    });
    let same_id = same_id.expect("no ancestor");
    assert_eq!(child.relation_to(&child), Relation::Itself);
    assert_eq!(child.relation_to(&top), Relation::Parent);
    assert_eq!(grandchild.relation_to(&top), Relation::Other, "a grandparent is not a parent");
    assert_eq!(top.relation_to(&grandchild), Relation::Descendant);
    assert_eq!(
        (child.relation_to(&same_id), same_id.relation_to(&child)),
        (Relation::Other, Relation::Other)
    );
    assert!(
        grandchild.is_descendant_of(&top)
            && !grandchild.is_descendant_of(&same_id)
            && !top.is_descendant_of(&top)
    );
}

/// A node of the random tree, with its own usage.
struct TreeNode {
    node: Arc<LineageNode>,
    used: u64,
    limit_max: Option<u64>,
    is_destroyed: bool,
}

fn root_with_20_turns() -> TreeNode {
    TreeNode { node: node(1, None, turns(20)), used: 0, limit_max: Some(20), is_destroyed: false }
}

fn random_step(rng: &mut TestRng, members: &mut Vec<TreeNode>) {
    let index = rng.below(members.len());
    let limit = Some(rng.below(12) as u64).filter(|_| rng.below(3) > 0);
    let (node, is_destroyed) = (Arc::clone(&members[index].node), members[index].is_destroyed);
    match rng.below(10) {
        0..2 if !is_destroyed && node.depth < 5 => {
            if let Ok(node) = try_node(members.len() as u64 + 2, Some(&node), turns(limit)) {
                members.push(TreeNode { node, used: 0, limit_max: limit, is_destroyed: false });
            }
        }
        2 if !is_destroyed && index > 0 => {
            members[index].is_destroyed = true;
            node.release().confirm();
        }
        3 if !is_destroyed => {
            // The root always has a limit, so that there is one to check usage against.
            let limit = if index == 0 { limit.or(Some(30)) } else { limit };
            if set_limit(&node, limit).is_ok() {
                let both = members[index].limit_max.zip(limit);
                members[index].limit_max = both.map(|(before, now)| before.max(now));
            }
        }
        _ if !is_destroyed => {
            let amount = rng.below(3) as u64;
            if node.try_consume(TURNS, amount) {
                members[index].used += amount;
            }
        }
        _ => {}
    }
}

fn check_tree(members: &[TreeNode], seed: u64) {
    for root in members {
        let subtree = members.iter().filter(|member| {
            member.node.is_descendant_of(&root.node) || member.node.serial == root.node.serial
        });
        let used: u64 = subtree.clone().map(|member| member.used).sum();
        let is_within_limit = root.limit_max.is_none_or(|limit| used <= limit);
        assert!(is_within_limit, "seed {seed}: {} used {used} of {:?}", root.node.id(), root.limit_max);
        let live_count = subtree
            .filter(|member| !member.is_destroyed && member.node.serial != root.node.serial)
            .count() as u64;
        assert_eq!(root.node.descendant_count(), live_count, "seed {seed}: {}", root.node.id());
        let reserved = root.node.account(TURNS).reserved;
        assert!(
            live_count > 0 || reserved == 0,
            "seed {seed}: {} reserves {reserved} without live descendants",
            root.node.id()
        );
    }
}

#[test]
fn no_subtree_uses_more_than_its_root_limit() {
    for seed in 0..500 {
        let mut rng = TestRng::new(seed);
        let mut members = vec![root_with_20_turns()];
        for _ in 0..80 {
            random_step(&mut rng, &mut members);
            check_tree(&members, seed);
        }
        for member in members.iter_mut().skip(1).filter(|member| !member.is_destroyed) {
            member.is_destroyed = true;
            member.node.release().confirm();
        }
        check_tree(&members, seed);
        let (used, total) =
            (members[0].node.account(TURNS).used, members.iter().map(|member| member.used).sum::<u64>());
        assert_eq!(used, total, "seed {seed}: the root accounts for all usage");
    }
}

#[test]
fn subtree_obeys_a_limit_lowered_after_reservation() {
    let top = node(1, None, turns(6));
    let (first, second) = (node(2, Some(&top), turns(3)), node(3, Some(&top), turns(3)));
    assert!(first.try_consume(TURNS, 1));
    set_limit(&top, 3).expect("lowering always succeeds");
    assert_eq!(
        (first.remaining(TURNS), second.remaining(TURNS), top.remaining(TURNS)),
        (Some(2), Some(2), Some(0))
    );
    assert!(second.try_consume(TURNS, 2), "reserved budget can still be used");
    assert!(
        !first.try_consume(TURNS, 1) && !second.try_consume(TURNS, 1),
        "but not beyond the lowered limit"
    );
    set_limit(&top, 6).expect("no ancestor");
    assert!(
        first.try_consume(TURNS, 2) && second.try_consume(TURNS, 1),
        "usable again after the limit is raised"
    );
    assert!(!first.try_consume(TURNS, 1));
}

#[test]
fn ancestor_without_limit_is_no_budget_source() {
    let top = node(1, None, turns(10));
    let middle = node(2, Some(&top), turns(5));
    let child = node(3, Some(&middle), turns(0));
    set_limit(&middle, None).expect("nothing is reserved");
    set_limit(&child, 8).expect("the root has enough");
    assert_eq!(top.account(TURNS).reserved, 8, "reserved at the ancestor that has a limit");
    assert!(try_node(4, Some(&top), turns(3)).is_err(), "not available to another child");
}

#[test]
fn rolled_back_release_restores_all_accounts() {
    let top = node(1, None, turns(10));
    let middle = node(2, Some(&top), turns(6));
    let bottom = node(3, Some(&middle), turns(4));
    assert!(bottom.try_consume(TURNS, 2));
    let before = (account(&top), account(&middle), account(&bottom));
    let releases = [bottom.release(), middle.release()];
    assert_eq!((account(&top), top.descendant_count()), ((2, 0, Some(8)), 0));
    releases.into_iter().rev().for_each(Release::roll_back);
    assert_eq!((account(&top), account(&middle), account(&bottom)), before);
    assert_eq!((top.descendant_count(), middle.descendant_count()), (2, 1));
    middle.release().confirm();
    bottom.release().confirm();
    assert_eq!((account(&top), top.descendant_count()), ((2, 0, Some(8)), 0), "a second release works");
}

#[test]
fn usage_during_a_rolled_back_release_counts_once() {
    let top = node(1, None, turns(10));
    let child = node(2, Some(&top), turns(6));
    assert!(child.try_consume(TURNS, 1));
    let release = child.release();
    child.record_usage(TURNS, 2);
    release.roll_back();
    assert_eq!(account(&top), (2, 6, Some(2)), "two were debited to the parent");
    child.release().confirm();
    assert_eq!(account(&top), (3, 0, Some(7)));
}

#[test]
fn tool_of_a_program_is_for_agents_that_may_run_it() {
    let spec = ToolSpec { program: Some("git".into()), ..tool_spec("a") };
    let commands = |commands: NameSet| Grant { commands, ..Grant::everything() };
    let some = || NameSet::only(["git"]);
    for (own, may_grant, is_allowed) in [
        (NameSet::all(), NameSet::all(), true),
        (some(), NameSet::all(), true),
        (some(), NameSet::only(["cargo"]), false),
        (NameSet::all(), NameSet::none(), false),
        (NameSet::none(), NameSet::all(), false),
    ] {
        let top = node(1, None, Budget::unlimited());
        let bottom = node(2, Some(&top), Budget::unlimited());
        for (node, commands) in [(&top, commands(may_grant)), (&bottom, commands(own))] {
            let same = Permissions::uniform(commands, Reasons::uniform("test"));
            node.set_granted(GrantedPermissions { permissions: Arc::new(same), ..node.granted() })
                .expect("no budget changes");
        }
        assert_eq!(bottom.tool_filter()(&spec), is_allowed);
        assert!(bottom.tool_filter()(&tool_spec("a")));
    }
}
