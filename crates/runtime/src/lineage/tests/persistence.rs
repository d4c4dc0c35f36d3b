//! Persistence of lineage trees: no budget is gained or lost between store and restore.

use std::collections::BTreeMap;

use agent::journal::{Serial, StoredLedger};

use super::*;

/// Test store that holds the newest version of each ledger.
#[derive(Default)]
struct LedgerStore {
    ledgers: BTreeMap<Serial, StoredLedger>,
}

impl LedgerStore {
    fn persist(&mut self, node: &LineageNode) {
        for (serial, ledger) in node.take_changed_ledgers() {
            let newest = self.ledgers.entry(serial).or_default();
            if ledger.version > newest.version {
                *newest = ledger;
            }
        }
    }

    fn restore(&self, old: &Arc<LineageNode>, parent: Option<&Arc<LineageNode>>) -> Arc<LineageNode> {
        let is_destroyed = old.is_destroyed.load(Ordering::Acquire);
        LineageNode::restore(StoredLineageNode {
            new: NewLineageNode {
                id: old.id(),
                serial: old.serial,
                parent: parent.cloned(),
                cwd: old.cwd.clone(),
                granted: old.granted(),
            },
            ledger: self.ledgers.get(&old.serial).cloned().unwrap_or_default(),
            descendant_count: old.descendant_count(),
            is_destroyed,
        })
    }
}

/// All observable figures of an account.
fn account_view(node: &LineageNode) -> (Option<u64>, u64, u64, u64, u64, Option<u64>, Option<u64>) {
    let Account { limit, used, reserved, paid_elsewhere, share } = node.account(TURNS);
    (limit, used, reserved, paid_elsewhere, share, node.remaining(TURNS), node.remaining_children())
}

#[test]
fn only_changed_ledgers_of_the_lineage_are_enqueued() {
    let top = node(1, None, turns(10));
    let middle = node(2, Some(&top), turns(6));
    let bottom = node(3, Some(&middle), turns(None));
    let serials = |node: &LineageNode| {
        node.take_changed_ledgers().iter().map(|(serial, _)| *serial).collect::<Vec<_>>()
    };
    assert_eq!(serials(&bottom), [2, 1], "the lowest has no change");
    assert_eq!(serials(&bottom), Vec::<Serial>::new());
    assert!(bottom.try_consume(TURNS, 1));
    assert_eq!(serials(&bottom), [3, 2, 1]);
    top.record_usage(TURNS, 1);
    assert_eq!((serials(&top), serials(&bottom)), (vec![1], Vec::new()));
}

#[test]
fn rejected_usage_leaves_stored_accounts_unchanged() {
    let top = node(1, None, turns(1));
    let mut store = LedgerStore::default();
    store.persist(&top);
    let before = store.ledgers.clone();
    assert!(!top.try_consume(TURNS, 2));
    store.persist(&top);
    let accounts = |ledgers: &BTreeMap<Serial, StoredLedger>| ledgers[&1].accounts;
    assert_eq!(accounts(&store.ledgers), accounts(&before));
}

#[test]
fn restored_agent_keeps_accounts_and_reserves_nothing_anew() {
    let top = node(1, None, turns(10));
    let child = node(2, Some(&top), turns(6));
    assert!(child.try_consume(TURNS, 2) && top.try_consume(TURNS, 1));
    let mut store = LedgerStore::default();
    store.persist(&child);
    let restored = store.restore(&top, None);
    let child_restored = store.restore(&child, Some(&restored));
    assert_eq!(
        (account_view(&restored), account_view(&child_restored)),
        (account_view(&top), account_view(&child))
    );
    assert!(child_restored.try_consume(TURNS, 4) && !child_restored.try_consume(TURNS, 1));
    child_restored.release().confirm();
    assert_eq!(account(&restored), (7, 0, Some(3)), "its reservation returns to the budget source");
}

#[test]
fn restored_ledger_is_enqueued_only_after_a_change() {
    let top = node(1, None, turns(10));
    let mut store = LedgerStore::default();
    store.persist(&top);
    let restored = store.restore(&top, None);
    assert!(restored.take_changed_ledgers().is_empty());
    assert!(restored.try_consume(TURNS, 1));
    let (_, ledger) = restored.take_changed_ledgers().remove(0);
    assert!(ledger.version > store.ledgers[&1].version, "a newer ledger has a higher version");
}

#[test]
fn restore_finds_a_budget_source_above_the_parent() {
    let top = node(1, None, turns(10));
    let middle = node(2, Some(&top), turns(None));
    let bottom = node(3, Some(&middle), turns(4));
    let mut store = LedgerStore::default();
    store.persist(&bottom);
    let top_restored = store.restore(&top, None);
    let middle_restored = store.restore(&middle, Some(&top_restored));
    let bottom_restored = store.restore(&bottom, Some(&middle_restored));
    set_limit(&bottom_restored, 9).expect("six remain");
    assert_eq!(account(&top_restored), (0, 9, Some(1)));
    bottom_restored.release().confirm();
    assert_eq!(account(&top_restored), (0, 0, Some(10)));
}

#[test]
fn restored_orphan_refunds_its_destroyed_parents_share() {
    let top = node(1, None, turns(10));
    let middle = node(2, Some(&top), turns(5));
    let orphan = node(3, Some(&middle), turns(2));
    middle.release().confirm();
    assert!(orphan.try_consume(TURNS, 1));
    let mut store = LedgerStore::default();
    store.persist(&orphan);
    let top_restored = store.restore(&top, None);
    let middle_restored = store.restore(&middle, Some(&top_restored));
    let orphan_restored = store.restore(&orphan, Some(&middle_restored));
    assert_eq!(account(&top_restored), (0, 5, Some(5)));
    orphan_restored.release().confirm();
    assert_eq!((account(&top_restored), top_restored.descendant_count()), ((1, 0, Some(9)), 0));
}

#[test]
fn tree_restored_at_any_time_behaves_unchanged() {
    for seed in 0..300 {
        let mut rng = TestRng::new(seed);
        let mut store = LedgerStore::default();
        let mut members = vec![root_with_20_turns()];
        for _ in 0..80 {
            random_step(&mut rng, &mut members);
            members.iter().for_each(|member| store.persist(&member.node));
            if rng.below(8) == 0 {
                restore_all(&store, &mut members, seed);
            }
            check_tree(&members, seed);
        }
        for member in members.iter_mut().skip(1).filter(|member| !member.is_destroyed) {
            member.is_destroyed = true;
            member.node.release().confirm();
        }
        let total = members.iter().map(|member| member.used).sum::<u64>();
        assert_eq!(members[0].node.account(TURNS).used, total, "seed {seed}: no usage was lost");
    }
}

fn restore_all(store: &LedgerStore, members: &mut [TreeNode], seed: u64) {
    let mut restored_nodes: BTreeMap<Serial, Arc<LineageNode>> = BTreeMap::new();
    for member in members {
        let parent = member.node.parent.as_ref().map(|parent| Arc::clone(&restored_nodes[&parent.serial]));
        let restored = store.restore(&member.node, parent.as_ref());
        assert_eq!(account_view(&restored), account_view(&member.node), "seed {seed}: {}", restored.id());
        restored_nodes.insert(restored.serial, Arc::clone(&restored));
        member.node = restored;
    }
}
