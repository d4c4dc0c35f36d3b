//! Agents: their records, ids, states and ledgers, and the removal of destroyed ones.

use agent::PrincipalId;
use agent::journal::{AgentState, Record, Serial, StoredLedger};
use agent::outside::{IndexRow, StoreFault};

use super::samples::{agent_record, destroyed, id, ledger, permissions, renamed, state};
use super::{StoreUnderTest, accepted, append, begun, created};

conformance_tests!(
    created_agent_round_trips,
    agent_has_current_permissions_and_id,
    agent_id_is_unique_among_live_agents,
    last_written_state_wins,
    ledger_with_highest_version_wins,
    destroyed_agent_is_removed,
    destroyed_agent_stays_while_it_has_descendants,
    tree_can_be_destroyed_in_any_order,
    serial_is_never_reused,
    parent_has_a_lower_serial_than_its_child,
    index_is_sorted_and_agents_come_in_requested_order,
);

async fn serials(fixture: &StoreUnderTest) -> Vec<(Serial, bool)> {
    fixture.store.index().await.unwrap().iter().map(|row| (row.serial, row.is_destroyed)).collect()
}

async fn created_agent_round_trips(fixture: &mut StoreUnderTest) {
    let record = agent_record("prompt \0 \u{1f980}");
    fixture.commit(append(7, "worker-1", [Record::Created(Box::new(record.clone()))])).await;
    fixture.reopen().await;
    let agents = fixture.store.agents(vec![7]).await.unwrap();
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
    assert_eq!(fixture.store.index().await.unwrap(), [row]);
}

async fn agent_has_current_permissions_and_id(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    let new = permissions("other");
    let changed = Record::PermissionsChanged { by: PrincipalId::Admin, permissions: Box::new(new.clone()) };
    fixture.commit(append(1, "one", [changed, renamed("two")])).await;
    fixture.reopen().await;
    let agent = fixture.store.agents(vec![1]).await.unwrap().remove(0);
    assert_eq!((agent.record.permissions, agent.record.id), (new, id("two")));
    assert_eq!(fixture.store.index().await.unwrap()[0].id, id("two"));
    assert_eq!(fixture.store.history(1).await.unwrap()[0], created("one", None), "the journal is unchanged");
}

async fn agent_id_is_unique_among_live_agents(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    fixture.create(2, "two", None).await;
    let assert_duplicate =
        |append| async { assert_eq!(fixture.append_fault(vec![append]).await, StoreFault::DuplicateAgentId) };
    assert_duplicate(append(3, "one", [created("one", None)])).await;
    assert_duplicate(append(2, "two", [renamed("one")])).await;
    fixture.commit(append(1, "one", [renamed("one")])).await;
    fixture.commit(append(1, "one", [renamed("three")])).await;
    fixture.commit(append(2, "two", [renamed("one")])).await;
    assert_duplicate(append(3, "three", [created("three", None)])).await;
    fixture.create(3, "two", Some(1)).await;
    fixture.commit(append(1, "three", [destroyed()])).await;
    fixture.create(4, "three", None).await;
    fixture.reopen().await;
    let ids: Vec<_> = fixture
        .store
        .index()
        .await
        .unwrap()
        .into_iter()
        .map(|row| (row.serial, row.id, row.is_destroyed))
        .collect();
    assert_eq!(
        ids,
        [(1, id("three"), true), (2, id("one"), false), (3, id("two"), false), (4, id("three"), false)]
    );
    let swap = vec![append(2, "one", [destroyed()]), append(5, "one", [created("one", None)])];
    fixture.store.append(swap).await.unwrap();
}

async fn last_written_state_wins(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    for turns in [3, 2] {
        let mut append = append(1, "one", [begun(turns)]);
        append.state = Some(state(turns));
        fixture.commit(append).await;
        assert_eq!(fixture.store.agents(vec![1]).await.unwrap()[0].state, state(turns));
    }
    let finished = AgentState { is_finished: true, halted: None, last_action_at: None, ..state(4) };
    let mut append = append(1, "one", [Record::Finished { by: PrincipalId::Admin }]);
    append.state = Some(finished.clone());
    fixture.commit(append).await;
    fixture.reopen().await;
    assert_eq!(fixture.store.agents(vec![1]).await.unwrap()[0].state, finished);
    assert!(fixture.store.index().await.unwrap()[0].is_finished);
}

async fn ledger_with_highest_version_wins(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    fixture.create(2, "two", Some(1)).await;
    let version = |fixture: &StoreUnderTest, serial| {
        let store = std::sync::Arc::clone(&fixture.store);
        async move { store.agents(vec![serial]).await.unwrap().remove(0).ledger.version }
    };
    for (written, expected) in [(5, 5), (4, 5), (5, 5), (6, 6)] {
        let mut append = append(2, "two", []);
        append.ledgers = vec![(1, ledger(written)), (2, ledger(written + 10)), (99, ledger(1))];
        fixture.commit(append).await;
        assert_eq!((version(fixture, 1).await, version(fixture, 2).await), (expected, expected + 10));
    }
    fixture.commit(append(1, "one", [destroyed()])).await;
    let mut append = append(2, "two", []);
    append.ledgers = vec![(1, ledger(7))];
    fixture.commit(append).await;
    fixture.reopen().await;
    assert_eq!(
        fixture.store.agents(vec![1]).await.unwrap()[0].ledger,
        ledger(7),
        "also of a destroyed agent"
    );
}

async fn destroyed_agent_is_removed(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    fixture.commit(append(1, "one", [accepted(1, "send")])).await;
    fixture.commit(append(1, "one", [destroyed()])).await;
    fixture.reopen().await;
    assert_eq!(serials(fixture).await, []);
    assert_eq!(fixture.store.agents(vec![1]).await.unwrap(), []);
    assert!(fixture.store.agents_with_open_turns().await.unwrap().is_empty());
    assert_eq!(fixture.store.turn(1, super::samples::request_id("send")).await.unwrap(), None);
    assert_eq!(fixture.store.history(1).await.unwrap().len(), 3, "its journal entries remain");
}

async fn destroyed_agent_stays_while_it_has_descendants(fixture: &mut StoreUnderTest) {
    fixture.create(1, "top", None).await;
    fixture.create(2, "middle", Some(1)).await;
    fixture.create(3, "low", Some(2)).await;
    fixture.create(4, "beside", Some(1)).await;
    fixture.commit(append(2, "middle", [accepted(1, "a")])).await;
    fixture.commit(append(2, "middle", [destroyed()])).await;
    assert_eq!(serials(fixture).await, [(1, false), (2, true), (3, false), (4, false)]);
    assert!(fixture.store.agents_with_open_turns().await.unwrap().is_empty(), "its turns are deleted");
    fixture.commit(append(1, "top", [destroyed()])).await;
    fixture.reopen().await;
    assert_eq!(serials(fixture).await, [(1, true), (2, true), (3, false), (4, false)]);
    assert!(fixture.store.agents(vec![1]).await.unwrap()[0].is_destroyed);
    fixture.create(5, "orphan-of-two", Some(2)).await;
    fixture.commit(append(3, "low", [destroyed()])).await;
    assert_eq!(serials(fixture).await, [(1, true), (2, true), (4, false), (5, false)]);
    fixture.commit(append(5, "orphan-of-two", [destroyed()])).await;
    assert_eq!(serials(fixture).await, [(1, true), (4, false)], "its destroyed parent is removed too");
    fixture.commit(append(4, "beside", [destroyed()])).await;
    assert_eq!(serials(fixture).await, []);
}

async fn tree_can_be_destroyed_in_any_order(fixture: &mut StoreUnderTest) {
    let mut next: Serial = 1;
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0], [0, 2, 1], [2, 0, 1]] {
        let tree = [next, next + 1, next + 2];
        next += 3;
        let name = |serial: Serial| format!("agent-{serial}");
        fixture.create(tree[0], &name(tree[0]), None).await;
        fixture.create(tree[1], &name(tree[1]), Some(tree[0])).await;
        fixture.create(tree[2], &name(tree[2]), Some(tree[1])).await;
        let batch = order.map(|index: usize| append(tree[index], &name(tree[index]), [destroyed()]));
        fixture.store.append(batch.to_vec()).await.unwrap();
        assert_eq!(serials(fixture).await, [], "{order:?}");
    }
}

async fn serial_is_never_reused(fixture: &mut StoreUnderTest) {
    assert_eq!(fixture.store.last_serial().await.unwrap(), 0);
    fixture.create(1, "one", None).await;
    fixture.create(9, "nine", None).await;
    fixture.commit(append(9, "nine", [destroyed()])).await;
    fixture.reopen().await;
    assert_eq!(fixture.store.last_serial().await.unwrap(), 9);
    fixture.append_fault(vec![append(9, "nine", [created("nine", None)])]).await;
}

async fn parent_has_a_lower_serial_than_its_child(fixture: &mut StoreUnderTest) {
    fixture.create(5, "five", None).await;
    for serial in [4, 6] {
        let child = append(serial, "child", [created("child", Some(5))]);
        let result = fixture.store.append(vec![child]).await;
        assert_eq!(result.is_ok(), serial == 6, "{serial}: {result:?}");
    }
    let own_parent = append(7, "own", [created("own", Some(7))]);
    assert!(matches!(fixture.store.append(vec![own_parent]).await, Err(StoreFault::Corrupt(_))));
    assert_eq!(serials(fixture).await, [(5, false), (6, false)]);
}

async fn index_is_sorted_and_agents_come_in_requested_order(fixture: &mut StoreUnderTest) {
    for serial in [5, 2, 9, 3] {
        fixture.create(serial, &format!("agent-{serial}"), None).await;
    }
    let index: Vec<_> = fixture.store.index().await.unwrap().into_iter().map(|row| row.serial).collect();
    assert_eq!(index, [2, 3, 5, 9]);
    let agents = fixture.store.agents(vec![9, 4, 2, 9]).await.unwrap();
    assert_eq!(agents.iter().map(|agent| agent.serial).collect::<Vec<_>>(), [9, 2, 9]);
}
