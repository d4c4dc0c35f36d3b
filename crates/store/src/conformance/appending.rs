//! `append`: round trips, sequences, atomicity, refusals, and notification of the listener.

use std::collections::BTreeSet;
use std::sync::Arc;

use agent::PrincipalId;
use agent::journal::{DAEMON, Record};
use agent::outside::{JournalEntry, StoreFault};

use super::samples::{
    destroyed, edge_case_texts, entry_range, every_record, kind_count, long_text, renamed, request_id, state,
};
use super::{RecordingListener, StoreUnderTest, accepted, append, begun, created, ended, message};

conformance_tests!(
    appended_records_round_trip,
    long_text_round_trips,
    sequences_have_no_gaps,
    append_is_atomic,
    refused_batch_does_not_affect_other_batches,
    records_of_missing_agents_are_refused,
    denial_of_destroyed_agent_is_recorded,
    daemon_accepts_only_daemon_records,
    listener_gets_each_entry_once_and_in_order,
    empty_append_succeeds,
    empty_append_resolves_after_earlier_ones,
    closed_store_refuses_appends,
    appends_commit_in_order_without_awaiting,
);

/// Every record kind once, in an order that one agent can go through: its turns are accepted before they end.
fn agent_lifecycle(text: &str) -> Vec<Record> {
    let mut records = vec![created("worker-1", None)];
    let needs_order = |record: &Record| {
        matches!(
            record,
            Record::Created(_)
                | Record::Destroyed { .. }
                | Record::TurnAccepted(_)
                | Record::TurnEnded { .. }
                | Record::TurnReopened { .. }
        )
    };
    let every = every_record(text);
    records.extend(every.iter().filter(|record| !needs_order(record)).cloned());
    for (index, record) in every.into_iter().enumerate() {
        let request_id = agent::RequestId::Number(i64::try_from(index).unwrap());
        match record {
            Record::TurnAccepted(mut turn) => {
                turn.request_id = request_id;
                records.push(Record::TurnAccepted(turn));
            }
            Record::TurnEnded { turn, end, .. } => {
                records.push(Record::TurnAccepted(Box::new(agent::journal::AcceptedTurn {
                    turn,
                    request_id: request_id.clone(),
                    message: agent::Message::user(text, agent::MessageSource::default()),
                })));
                records.push(Record::TurnEnded { turn, request_id: request_id.clone(), end });
                records.push(Record::TurnReopened { turn, request_id, messages: index });
            }
            _ => {}
        }
    }
    records.push(destroyed());
    records
}

async fn appended_records_round_trip(fixture: &mut StoreUnderTest) {
    let mut kinds = BTreeSet::new();
    for (serial, text) in (1..).zip(edge_case_texts()) {
        let records = agent_lifecycle(&text);
        kinds.extend(records.iter().map(Record::kind));
        fixture.commit(append(serial, "worker-1", records.clone())).await;
        fixture.reopen().await;
        assert!(fixture.store.history(serial).await.unwrap() == records, "{:?}", &text[..text.len().min(20)]);
        let entries = fixture.store.read(entry_range(Some(serial), 0)).await.unwrap();
        assert!(entries.iter().map(|entry| &entry.record).eq(&records));
        assert!(entries.iter().all(|entry| entry.at == agent::outside::Timestamp(1_700_000_000_000_000)));
        assert!(entries.iter().all(|entry| entry.agent_id.as_ref().unwrap().as_str() == "worker-1"));
    }
    assert_eq!(kinds.len(), kind_count(&Record::DaemonStopped), "every kind has a sample");
}

async fn long_text_round_trips(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    let records = vec![message(&long_text()), accepted(1, &long_text()), ended(1, &long_text())];
    fixture.commit(append(1, "one", records.clone())).await;
    fixture.reopen().await;
    assert!(fixture.store.history(1).await.unwrap()[1..] == records);
    let turn = fixture.store.turn(1, request_id(&long_text())).await.unwrap().unwrap();
    assert_eq!(turn.end.unwrap().content.len(), long_text().len() + "answer to ".len());
}

async fn sequences_have_no_gaps(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    fixture.create(2, "two", None).await;
    for round in 0..5 {
        fixture.commit(append(1, "one", [begun(round), message("a")])).await;
        fixture.append_fault(vec![append(3, "three", [begun(1)])]).await;
        fixture.commit(append(2, "two", [begun(round)])).await;
        fixture.commit(append(DAEMON, "", [Record::DaemonStopped])).await;
        fixture.reopen().await;
    }
    let entries = fixture.store.read(entry_range(None, 0)).await.unwrap();
    assert!(entries.iter().map(|entry| entry.sequence).eq(1..=22));
    for (serial, count) in [(1, 11), (2, 6), (DAEMON, 5)] {
        let own = entries.iter().filter(|entry| entry.agent == serial).map(|entry| entry.agent_sequence);
        assert!(own.eq(1..=count), "{serial}");
    }
    assert!(entries.iter().filter(|entry| entry.agent == DAEMON).all(|entry| entry.agent_id.is_none()));
}

async fn append_is_atomic(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    fixture.commit(append(1, "one", [accepted(1, "first")])).await;
    let before = fixture.dump().await;
    let with_state = |serial, records: Vec<Record>| agent::outside::Append {
        state: Some(state(5)),
        ledgers: vec![(1, super::samples::ledger(9))],
        ..append(serial, "one", records)
    };
    for batch in [
        vec![with_state(1, vec![begun(1)]), append(1, "one", [accepted(2, "first")])],
        vec![with_state(1, vec![begun(1), renamed("other"), accepted(2, "first")])],
        vec![append(2, "two", [created("two", None)]), append(3, "three", [created("two", None)])],
        vec![append(2, "two", [created("two", Some(1)), accepted(1, "a"), accepted(2, "a")])],
        vec![with_state(1, vec![destroyed()]), append(9, "nine", [begun(1)])],
        vec![append(1, "one", [ended(1, "first"), ended(1, "first")])],
        vec![append(1, "one", [ended(1, "first"), super::samples::reopened(1, "second")])],
        vec![append(1, "one", [message("rolled back"), destroyed()]), append(1, "one", [begun(3)])],
    ] {
        fixture.append_fault(batch).await;
        assert_eq!(fixture.dump().await, before);
    }
    fixture.reopen().await;
    assert_eq!(fixture.dump().await, before);
    fixture.commit(append(1, "one", [accepted(2, "second")])).await;
    assert_eq!(fixture.store.bounds().await.unwrap().last, 3, "a refused batch uses no sequence");
}

async fn refused_batch_does_not_affect_other_batches(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    let results: Vec<_> = (0..200)
        .map(|number| match number % 4 {
            0 => fixture.store.append(vec![append(1, "one", [accepted(number, &format!("send {number}"))])]),
            1 => fixture.store.append(vec![append(
                1,
                "one",
                [message("rolled back"), accepted(number, "send 0")],
            )]),
            2 => fixture.store.append(vec![append(7, "seven", [begun(1)])]),
            _ => fixture.store.append(vec![append(1, "one", [begun(number)])]),
        })
        .collect();
    for (number, result) in results.into_iter().enumerate() {
        let result = result.await;
        match number % 4 {
            1 => assert_eq!(result, Err(StoreFault::DuplicateRequestId), "{number}"),
            2 => assert_eq!(result, Err(StoreFault::NotFound), "{number}"),
            _ => assert_eq!(result, Ok(()), "{number}"),
        }
    }
    assert_eq!(fixture.store.bounds().await.unwrap().last, 101);
}

async fn records_of_missing_agents_are_refused(fixture: &mut StoreUnderTest) {
    assert_eq!(fixture.append_fault(vec![append(1, "one", [begun(1)])]).await, StoreFault::NotFound);
    let mut only_state = append(1, "one", []);
    only_state.state = Some(state(1));
    assert_eq!(fixture.append_fault(vec![only_state]).await, StoreFault::NotFound);
    fixture.create(1, "one", None).await;
    fixture.commit(append(1, "one", [destroyed()])).await;
    assert_eq!(fixture.append_fault(vec![append(1, "one", [begun(1)])]).await, StoreFault::NotFound);
    fixture.create(2, "two", None).await;
    fixture.create(3, "three", Some(2)).await;
    fixture.commit(append(2, "two", [destroyed()])).await;
    assert_eq!(
        fixture.append_fault(vec![append(2, "two", [begun(1)])]).await,
        StoreFault::NotFound,
        "destroyed, but retained"
    );
    for after in [begun(1), accepted(1, "a"), renamed("four"), destroyed()] {
        let append = append(3, "three", [message("a"), destroyed(), after]);
        assert_eq!(
            fixture.append_fault(vec![append]).await,
            StoreFault::NotFound,
            "destroyed earlier in the same append"
        );
    }
    let serial_reused = StoreFault::Corrupt("agent serial 1 was used before".to_owned());
    assert_eq!(fixture.append_fault(vec![append(1, "new", [created("new", None)])]).await, serial_reused);
    let no_parent = StoreFault::Corrupt("parent agent 8 does not exist".to_owned());
    assert_eq!(fixture.append_fault(vec![append(9, "new", [created("new", Some(8))])]).await, no_parent);
}

async fn denial_of_destroyed_agent_is_recorded(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    fixture.commit(append(1, "one", [destroyed()])).await;
    let text = || "x".to_owned();
    let denial = Record::Denied { principal: PrincipalId::Admin, action: text(), rule: text(), text: text() };
    fixture.commit(append(1, "one", [denial.clone()])).await;
    fixture.commit(append(DAEMON, "", [denial])).await;
    assert_eq!(fixture.store.history(1).await.unwrap().len(), 3);
    assert_eq!(fixture.store.read(entry_range(Some(1), 0)).await.unwrap()[2].agent_sequence, 3);
}

async fn daemon_accepts_only_daemon_records(fixture: &mut StoreUnderTest) {
    for record in [created("main", None), accepted(1, "a"), destroyed(), begun(1), message("a")] {
        let fault = StoreFault::Corrupt(format!("{} cannot belong to the daemon", record.kind()));
        assert_eq!(fixture.append_fault(vec![append(DAEMON, "", [record])]).await, fault);
    }
    let mut with_state = append(DAEMON, "", []);
    with_state.state = Some(state(1));
    fixture.append_fault(vec![with_state]).await;
    fixture
        .commit(append(
            DAEMON,
            "",
            [Record::DaemonStarted { version: "1".to_owned() }, Record::DaemonStopped],
        ))
        .await;
}

async fn listener_gets_each_entry_once_and_in_order(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    let (first, second) = (Arc::new(RecordingListener::default()), Arc::new(RecordingListener::default()));
    fixture.store.set_listener(Arc::clone(&first) as _);
    let results: Vec<_> = (0..300)
        .map(|number| match number % 3 {
            0 => fixture.store.append(vec![append(9, "nine", [begun(1)])]),
            _ => fixture.store.append(vec![append(1, "one", [begun(number), message("a")])]),
        })
        .collect();
    for result in results {
        let _ = result.await;
    }
    assert!(first.sequences().into_iter().eq(2..=401));
    let read: Vec<Arc<JournalEntry>> = fixture.store.read(entry_range(None, 1)).await.unwrap();
    assert_eq!(*first.entries.lock().unwrap(), read, "notified entries equal read ones");
    fixture.store.set_listener(Arc::clone(&second) as _);
    fixture.commit(append(1, "one", [begun(1)])).await;
    assert_eq!((first.sequences().len(), second.sequences()), (400, vec![402]));
    assert!(second.failures.lock().unwrap().is_empty());
}

async fn empty_append_succeeds(fixture: &mut StoreUnderTest) {
    fixture.store.append(Vec::new()).await.unwrap();
    fixture.commit(append(5, "five", [])).await;
    assert_eq!(fixture.store.bounds().await.unwrap().last, 0);
}

async fn empty_append_resolves_after_earlier_ones(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    let earlier: Vec<_> =
        (0..50).map(|turn| fixture.store.append(vec![append(1, "one", [begun(turn)])])).collect();
    assert_eq!(fixture.store.append(Vec::new()).await, Ok(()));
    assert_eq!(fixture.store.bounds().await.unwrap().last, 51, "the earlier appends are committed");
    drop(earlier);
}

async fn closed_store_refuses_appends(fixture: &mut StoreUnderTest) {
    let store = Arc::clone(&fixture.store);
    fixture.create(1, "one", None).await;
    let results: Vec<_> = (0..100).map(|turn| store.append(vec![append(1, "one", [begun(turn)])])).collect();
    store.close().await;
    for result in results {
        assert_eq!(result.await, Ok(()), "queued batches are committed");
    }
    let closed = StoreFault::Closed;
    assert_eq!(store.append(vec![append(1, "one", [begun(1)])]).await, Err(closed.clone()));
    assert_eq!(store.prune_turns(super::timestamp(0)).await, Err(closed));
    store.close().await;
    fixture.reopen().await;
    assert_eq!(fixture.store.bounds().await.unwrap().last, 101);
}

async fn appends_commit_in_order_without_awaiting(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    for turn in 0..50 {
        // A dropped future does not cancel the append.
        drop(fixture.store.append(vec![append(1, "one", [begun(turn)])]));
    }
    fixture.commit(append(1, "one", [begun(50)])).await;
    let turns: Vec<_> = fixture.store.history(1).await.unwrap().into_iter().skip(1).collect();
    assert_eq!(turns, (0..=50).map(begun).collect::<Vec<_>>());
}
