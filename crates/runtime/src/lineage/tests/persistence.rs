//! Trees that are kept and made again: nothing is gained or lost on the way to the store and back.

use std::collections::BTreeMap;

use agent::journal::{Serial, StoredLedger};

use super::*;

/// What a store has of ledgers: of each the newest.
#[derive(Default)]
struct LedgerStore {
    ledgers: BTreeMap<Serial, StoredLedger>,
}

impl LedgerStore {
    fn persist(&mut self, kin: &LineageNode) {
        for (serial, ledger) in kin.take_changed_ledgers() {
            let newest = self.ledgers.entry(serial).or_default();
            if ledger.version > newest.version {
                *newest = ledger;
            }
        }
    }

    fn restore(&self, old: &Arc<LineageNode>, parent: Option<&Arc<LineageNode>>) -> Arc<LineageNode> {
        let gone = old.is_destroyed.load(Ordering::Acquire);
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
            is_destroyed: gone,
        })
    }
}

/// All that can be seen of an account.
fn account_view(kin: &LineageNode) -> (Option<u64>, u64, u64, u64, u64, Option<u64>, Option<u64>) {
    let Account { limit, used, reserved, paid_elsewhere, share } = kin.account(TURNS);
    (limit, used, reserved, paid_elsewhere, share, kin.remaining(TURNS), kin.remaining_children())
}

#[test]
fn only_what_has_changed_is_put_in_line_for_the_agent_and_everybody_above() {
    let top = node(1, None, turns(10));
    let middle = node(2, Some(&top), turns(6));
    let bottom = node(3, Some(&middle), turns(None));
    let serials =
        |kin: &LineageNode| kin.take_changed_ledgers().iter().map(|(serial, _)| *serial).collect::<Vec<_>>();
    assert_eq!(serials(&bottom), [2, 1], "nothing has happened to the lowest");
    assert_eq!(serials(&bottom), Vec::<Serial>::new());
    assert!(bottom.try_consume(TURNS, 1));
    assert_eq!(serials(&bottom), [3, 2, 1]);
    top.record_usage(TURNS, 1);
    assert_eq!((serials(&top), serials(&bottom)), (vec![1], Vec::new()));
}

#[test]
fn a_refused_use_leaves_what_is_kept_as_it_was() {
    let top = node(1, None, turns(1));
    let mut shelf = LedgerStore::default();
    shelf.persist(&top);
    let before = shelf.ledgers.clone();
    assert!(!top.try_consume(TURNS, 2));
    shelf.persist(&top);
    let accounts = |ledgers: &BTreeMap<Serial, StoredLedger>| ledgers[&1].accounts;
    assert_eq!(accounts(&shelf.ledgers), accounts(&before));
}

#[test]
fn a_restored_agent_has_what_it_had_and_takes_nothing_a_second_time() {
    let top = node(1, None, turns(10));
    let child = node(2, Some(&top), turns(6));
    assert!(child.try_consume(TURNS, 2) && top.try_consume(TURNS, 1));
    let mut shelf = LedgerStore::default();
    shelf.persist(&child);
    let again = shelf.restore(&top, None);
    let child_again = shelf.restore(&child, Some(&again));
    assert_eq!(
        (account_view(&again), account_view(&child_again)),
        (account_view(&top), account_view(&child))
    );
    assert!(child_again.try_consume(TURNS, 4) && !child_again.try_consume(TURNS, 1));
    child_again.release().confirm();
    assert_eq!(account(&again), (7, 0, Some(3)), "its share goes back to whoever had lent it");
}

#[test]
fn a_restored_agent_is_put_in_line_only_when_something_has_changed() {
    let top = node(1, None, turns(10));
    let mut shelf = LedgerStore::default();
    shelf.persist(&top);
    let again = shelf.restore(&top, None);
    assert!(again.take_changed_ledgers().is_empty());
    assert!(again.try_consume(TURNS, 1));
    let (_, ledger) = again.take_changed_ledgers().remove(0);
    assert!(ledger.version > shelf.ledgers[&1].version, "what is newer says so");
}

#[test]
fn a_lender_further_up_is_found_again() {
    let top = node(1, None, turns(10));
    let middle = node(2, Some(&top), turns(None));
    let bottom = node(3, Some(&middle), turns(4));
    let mut shelf = LedgerStore::default();
    shelf.persist(&bottom);
    let top_again = shelf.restore(&top, None);
    let middle_again = shelf.restore(&middle, Some(&top_again));
    let bottom_again = shelf.restore(&bottom, Some(&middle_again));
    set_limit(&bottom_again, 9).expect("six are left");
    assert_eq!(account(&top_again), (0, 9, Some(1)));
    bottom_again.release().confirm();
    assert_eq!(account(&top_again), (0, 0, Some(10)));
}

#[test]
fn an_orphan_finds_its_dead_parents_share_again_and_gives_it_back_with_its_own() {
    let top = node(1, None, turns(10));
    let middle = node(2, Some(&top), turns(5));
    let orphan = node(3, Some(&middle), turns(2));
    middle.release().confirm();
    assert!(orphan.try_consume(TURNS, 1));
    let mut shelf = LedgerStore::default();
    shelf.persist(&orphan);
    let top_again = shelf.restore(&top, None);
    let middle_again = shelf.restore(&middle, Some(&top_again));
    let orphan_again = shelf.restore(&orphan, Some(&middle_again));
    assert_eq!(account(&top_again), (0, 5, Some(5)));
    orphan_again.release().confirm();
    assert_eq!((account(&top_again), top_again.descendant_count()), ((1, 0, Some(9)), 0));
}

#[test]
fn a_tree_that_is_made_again_at_any_time_goes_on_as_it_was() {
    for seed in 0..300 {
        let mut state = seed;
        let mut shelf = LedgerStore::default();
        let mut members = vec![TreeNode {
            node: node(1, None, turns(20)),
            used: 0,
            limit_max: Some(20),
            is_destroyed: false,
        }];
        for _ in 0..80 {
            random_step(&mut state, &mut members);
            members.iter().for_each(|member| shelf.persist(&member.node));
            if random_below(&mut state, 8) == 0 {
                restore_all(&shelf, &mut members, seed);
            }
            check_tree(&members, seed);
        }
        for member in members.iter_mut().skip(1).filter(|one| !one.is_destroyed) {
            member.is_destroyed = true;
            member.node.release().confirm();
        }
        let total = members.iter().map(|one| one.used).sum::<u64>();
        assert_eq!(members[0].node.account(TURNS).used, total, "seed {seed}: nothing was lost");
    }
}

fn restore_all(shelf: &LedgerStore, members: &mut [TreeNode], seed: u64) {
    let mut made: BTreeMap<Serial, Arc<LineageNode>> = BTreeMap::new();
    for member in members {
        let parent = member.node.parent.as_ref().map(|parent| Arc::clone(&made[&parent.serial]));
        let again = shelf.restore(&member.node, parent.as_ref());
        assert_eq!(account_view(&again), account_view(&member.node), "seed {seed}: {}", again.id());
        made.insert(again.serial, Arc::clone(&again));
        member.node = again;
    }
}
