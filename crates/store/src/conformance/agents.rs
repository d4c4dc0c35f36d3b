//! Claims about agents: what they are made from, their names, and what is left of those that are gone.

use agent::journal::{AgentState, Record, Serial, StoredLedger};
use agent::outside::{IndexRow, StoreFault};

use super::samples::{agent_record, destroyed, id, ledger, permissions, renamed, state};
use super::{StoreUnderTest, accepted, append, begun, conformance_tests, created};

conformance_tests!(
    an_agent_is_what_it_was_made_from,
    rights_and_names_are_those_of_now,
    a_name_is_given_once_at_a_time,
    a_state_is_the_last_one,
    the_ledger_of_the_highest_version_counts,
    a_destroyed_agent_is_forgotten,
    a_destroyed_agent_stays_while_somebody_below_it_lives,
    a_whole_tree_can_be_destroyed_in_any_order,
    a_serial_is_never_given_again,
    the_index_is_sorted_and_agents_come_as_asked_for,
);

async fn serials(bench: &StoreUnderTest) -> Vec<(Serial, bool)> {
    bench.store.index().await.unwrap().iter().map(|row| (row.serial, row.is_destroyed)).collect()
}

async fn an_agent_is_what_it_was_made_from(bench: &mut StoreUnderTest) {
    let record = agent_record("prompt \0 \u{1f980}");
    bench.commit(append(7, "worker-1", [Record::Created(Box::new(record.clone()))])).await;
    bench.reopen().await;
    let agents = bench.store.agents(vec![7]).await.unwrap();
    assert_eq!(agents[0].record, record);
    assert_eq!((&agents[0].state, &agents[0].ledger), (&AgentState::default(), &StoredLedger::default()));
    let row = IndexRow {
        serial: 7,
        id: id("worker-1"),
        parent: None,
        capability_digest: record.capability_digest,
        is_destroyed: false,
        is_finished: false,
    };
    assert_eq!(bench.store.index().await.unwrap(), [row]);
}

async fn rights_and_names_are_those_of_now(bench: &mut StoreUnderTest) {
    bench.create(1, "one", None).await;
    let new = permissions("other");
    let changed = Record::PermissionsChanged { by: "admin".to_owned(), permissions: Box::new(new.clone()) };
    bench.commit(append(1, "one", [changed, renamed("two")])).await;
    bench.reopen().await;
    let agent = bench.store.agents(vec![1]).await.unwrap().remove(0);
    assert_eq!((agent.record.permissions, agent.record.id), (new, id("two")));
    assert_eq!(bench.store.index().await.unwrap()[0].id, id("two"));
    assert_eq!(bench.store.history(1).await.unwrap()[0], created("one", None), "history stays");
}

async fn a_name_is_given_once_at_a_time(bench: &mut StoreUnderTest) {
    bench.create(1, "one", None).await;
    bench.create(2, "two", None).await;
    let taken =
        |call| async { assert_eq!(bench.append_fault(vec![call]).await, StoreFault::DuplicateAgentId) };
    taken(append(3, "one", [created("one", None)])).await;
    taken(append(2, "two", [renamed("one")])).await;
    bench.commit(append(1, "one", [renamed("one")])).await;
    bench.commit(append(1, "one", [renamed("three")])).await;
    bench.commit(append(2, "two", [renamed("one")])).await;
    taken(append(3, "three", [created("three", None)])).await;
    bench.create(3, "two", Some(1)).await;
    bench.commit(append(1, "three", [destroyed()])).await;
    bench.create(4, "three", None).await;
    bench.reopen().await;
    let names: Vec<_> = bench
        .store
        .index()
        .await
        .unwrap()
        .into_iter()
        .map(|row| (row.serial, row.id, row.is_destroyed))
        .collect();
    assert_eq!(
        names,
        [(1, id("three"), true), (2, id("one"), false), (3, id("two"), false), (4, id("three"), false)]
    );
    let swap = vec![append(2, "one", [destroyed()]), append(5, "one", [created("one", None)])];
    bench.store.append(swap).await.unwrap();
}

async fn a_state_is_the_last_one(bench: &mut StoreUnderTest) {
    bench.create(1, "one", None).await;
    for turns in [3, 2] {
        let mut call = append(1, "one", [begun(turns)]);
        call.state = Some(state(turns));
        bench.commit(call).await;
        assert_eq!(bench.store.agents(vec![1]).await.unwrap()[0].state, state(turns));
    }
    let finished = AgentState { is_finished: true, halted: None, last_action_at: None, ..state(4) };
    let mut call = append(1, "one", [Record::Finished { by: "admin".to_owned() }]);
    call.state = Some(finished.clone());
    bench.commit(call).await;
    bench.reopen().await;
    assert_eq!(bench.store.agents(vec![1]).await.unwrap()[0].state, finished);
    assert!(bench.store.index().await.unwrap()[0].is_finished);
}

async fn the_ledger_of_the_highest_version_counts(bench: &mut StoreUnderTest) {
    bench.create(1, "one", None).await;
    bench.create(2, "two", Some(1)).await;
    let version = |bench: &StoreUnderTest, serial| {
        let store = std::sync::Arc::clone(&bench.store);
        async move { store.agents(vec![serial]).await.unwrap().remove(0).ledger.version }
    };
    for (given, expected) in [(5, 5), (4, 5), (5, 5), (6, 6)] {
        let mut call = append(2, "two", []);
        call.ledgers = vec![(1, ledger(given)), (2, ledger(given + 10)), (99, ledger(1))];
        bench.commit(call).await;
        assert_eq!((version(bench, 1).await, version(bench, 2).await), (expected, expected + 10));
    }
    bench.commit(append(1, "one", [destroyed()])).await;
    let mut call = append(2, "two", []);
    call.ledgers = vec![(1, ledger(7))];
    bench.commit(call).await;
    bench.reopen().await;
    assert_eq!(bench.store.agents(vec![1]).await.unwrap()[0].ledger, ledger(7), "of one that is gone, too");
}

async fn a_destroyed_agent_is_forgotten(bench: &mut StoreUnderTest) {
    bench.create(1, "one", None).await;
    bench.commit(append(1, "one", [accepted(1, "send")])).await;
    bench.commit(append(1, "one", [destroyed()])).await;
    bench.reopen().await;
    assert_eq!(serials(bench).await, []);
    assert_eq!(bench.store.agents(vec![1]).await.unwrap(), []);
    assert!(bench.store.agents_with_open_turns().await.unwrap().is_empty());
    assert_eq!(bench.store.turn(1, super::samples::request_id("send")).await.unwrap(), None);
    assert_eq!(bench.store.history(1).await.unwrap().len(), 3, "the journal forgets nothing");
}

async fn a_destroyed_agent_stays_while_somebody_below_it_lives(bench: &mut StoreUnderTest) {
    bench.create(1, "top", None).await;
    bench.create(2, "middle", Some(1)).await;
    bench.create(3, "low", Some(2)).await;
    bench.create(4, "beside", Some(1)).await;
    bench.commit(append(2, "middle", [accepted(1, "a")])).await;
    bench.commit(append(2, "middle", [destroyed()])).await;
    assert_eq!(serials(bench).await, [(1, false), (2, true), (3, false), (4, false)]);
    assert!(bench.store.agents_with_open_turns().await.unwrap().is_empty(), "its turns are gone");
    bench.commit(append(1, "top", [destroyed()])).await;
    bench.reopen().await;
    assert_eq!(serials(bench).await, [(1, true), (2, true), (3, false), (4, false)]);
    assert!(bench.store.agents(vec![1]).await.unwrap()[0].is_destroyed);
    bench.create(5, "orphan-of-two", Some(2)).await;
    bench.commit(append(3, "low", [destroyed()])).await;
    assert_eq!(serials(bench).await, [(1, true), (2, true), (4, false), (5, false)]);
    bench.commit(append(5, "orphan-of-two", [destroyed()])).await;
    assert_eq!(serials(bench).await, [(1, true), (4, false)], "the gone one above is not needed any more");
    bench.commit(append(4, "beside", [destroyed()])).await;
    assert_eq!(serials(bench).await, []);
}

async fn a_whole_tree_can_be_destroyed_in_any_order(bench: &mut StoreUnderTest) {
    let mut next: Serial = 1;
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0], [0, 2, 1], [2, 0, 1]] {
        let tree = [next, next + 1, next + 2];
        next += 3;
        let name = |serial: Serial| format!("agent-{serial}");
        bench.create(tree[0], &name(tree[0]), None).await;
        bench.create(tree[1], &name(tree[1]), Some(tree[0])).await;
        bench.create(tree[2], &name(tree[2]), Some(tree[1])).await;
        let call = order.map(|place: usize| append(tree[place], &name(tree[place]), [destroyed()]));
        bench.store.append(call.to_vec()).await.unwrap();
        assert_eq!(serials(bench).await, [], "{order:?}");
    }
}

async fn a_serial_is_never_given_again(bench: &mut StoreUnderTest) {
    assert_eq!(bench.store.last_serial().await.unwrap(), 0);
    bench.create(1, "one", None).await;
    bench.create(9, "nine", None).await;
    bench.commit(append(9, "nine", [destroyed()])).await;
    bench.reopen().await;
    assert_eq!(bench.store.last_serial().await.unwrap(), 9);
    bench.append_fault(vec![append(9, "nine", [created("nine", None)])]).await;
}

async fn the_index_is_sorted_and_agents_come_as_asked_for(bench: &mut StoreUnderTest) {
    for serial in [5, 2, 9, 3] {
        bench.create(serial, &format!("agent-{serial}"), None).await;
    }
    let index: Vec<_> = bench.store.index().await.unwrap().into_iter().map(|row| row.serial).collect();
    assert_eq!(index, [2, 3, 5, 9]);
    let agents = bench.store.agents(vec![9, 4, 2, 9]).await.unwrap();
    assert_eq!(agents.iter().map(|agent| agent.serial).collect::<Vec<_>>(), [9, 2, 9]);
}
