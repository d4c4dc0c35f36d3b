//! Claims about `append`: what is kept, in which places, and all or nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use agent::journal::{DAEMON, Record};
use agent::outside::{JournalEntry, StoreFault};

use super::samples::{
    destroyed, edge_case_texts, entry_range, every_record, kind_count, long_text, renamed, request_id, state,
};
use super::{
    RecordingListener, StoreUnderTest, accepted, append, begun, conformance_tests, created, ended, message,
};

conformance_tests!(
    what_is_appended_is_read_back,
    a_long_text_is_read_back,
    sequences_and_numbers_have_no_holes,
    a_call_is_kept_as_a_whole_or_not_at_all,
    a_refused_call_leaves_its_neighbours_alone,
    an_agent_that_is_not_there_is_refused,
    a_denial_is_kept_although_its_agent_is_gone,
    the_daemon_has_only_records_of_its_own,
    watchers_hear_of_everything_once_and_in_order,
    an_empty_call_is_kept,
    a_closed_store_takes_nothing,
    what_is_in_line_is_in_order_without_waiting,
);

/// An agent that lives through every record once: those that change it need something to change.
fn agent_lifecycle(text: &str) -> Vec<Record> {
    let mut records = vec![created("worker-1", None)];
    let turn = |record: &Record| matches!(record, Record::TurnEnded { .. } | Record::TurnReopened { .. });
    let outline = |record: &Record| {
        matches!(record, Record::Created(_) | Record::Destroyed { .. } | Record::TurnAccepted(_))
            || turn(record)
    };
    let every = every_record(text);
    records.extend(every.iter().filter(|record| !outline(record)).cloned());
    for (place, record) in every.into_iter().enumerate() {
        let number = agent::RequestId::Number(i64::try_from(place).unwrap());
        match record {
            Record::TurnAccepted(mut turn) => {
                turn.request_id = number;
                records.push(Record::TurnAccepted(turn));
            }
            Record::TurnEnded { turn, end, .. } => {
                records.push(Record::TurnAccepted(Box::new(agent::journal::AcceptedTurn {
                    turn,
                    request_id: number.clone(),
                    message: agent::Message::user(text, agent::MessageSource::default()),
                })));
                records.push(Record::TurnEnded { turn, request_id: number.clone(), end });
                records.push(Record::TurnReopened { turn, request_id: number, messages: place });
            }
            _ => {}
        }
    }
    records.push(destroyed());
    records
}

async fn what_is_appended_is_read_back(bench: &mut StoreUnderTest) {
    let mut kept = BTreeSet::new();
    for (serial, text) in (1..).zip(edge_case_texts()) {
        let records = agent_lifecycle(&text);
        kept.extend(records.iter().map(Record::kind));
        bench.commit(append(serial, "worker-1", records.clone())).await;
        bench.reopen().await;
        assert!(bench.store.history(serial).await.unwrap() == records, "{:?}", &text[..text.len().min(20)]);
        let entries = bench.store.read(entry_range(Some(serial), 0)).await.unwrap();
        assert!(entries.iter().map(|entry| &entry.record).eq(&records));
        assert!(entries.iter().all(|entry| entry.at == agent::outside::Timestamp(1_700_000_000_000_000)));
        assert!(entries.iter().all(|entry| entry.agent_id.as_ref().unwrap().as_str() == "worker-1"));
    }
    assert_eq!(kept.len(), kind_count(&Record::DaemonStopped), "every kind has a sample");
}

async fn a_long_text_is_read_back(bench: &mut StoreUnderTest) {
    bench.create(1, "one", None).await;
    let records = vec![message(&long_text()), accepted(1, &long_text()), ended(1, &long_text())];
    bench.commit(append(1, "one", records.clone())).await;
    bench.reopen().await;
    assert!(bench.store.history(1).await.unwrap()[1..] == records);
    let turn = bench.store.turn(1, request_id(&long_text())).await.unwrap().unwrap();
    assert_eq!(turn.end.unwrap().content.len(), long_text().len() + "answer to ".len());
}

async fn sequences_and_numbers_have_no_holes(bench: &mut StoreUnderTest) {
    bench.create(1, "one", None).await;
    bench.create(2, "two", None).await;
    for round in 0..5 {
        bench.commit(append(1, "one", [begun(round), message("a")])).await;
        bench.append_fault(vec![append(3, "three", [begun(1)])]).await;
        bench.commit(append(2, "two", [begun(round)])).await;
        bench.commit(append(DAEMON, "", [Record::DaemonStopped])).await;
        bench.reopen().await;
    }
    let entries = bench.store.read(entry_range(None, 0)).await.unwrap();
    assert!(entries.iter().map(|entry| entry.sequence).eq(1..=22));
    for (serial, count) in [(1, 11), (2, 6), (DAEMON, 5)] {
        let own = entries.iter().filter(|entry| entry.agent == serial).map(|entry| entry.agent_sequence);
        assert!(own.eq(1..=count), "{serial}");
    }
    assert!(entries.iter().filter(|entry| entry.agent == DAEMON).all(|entry| entry.agent_id.is_none()));
}

async fn a_call_is_kept_as_a_whole_or_not_at_all(bench: &mut StoreUnderTest) {
    bench.create(1, "one", None).await;
    bench.commit(append(1, "one", [accepted(1, "first")])).await;
    let before = bench.dump().await;
    let stated = |serial, records: Vec<Record>| agent::outside::Append {
        state: Some(state(5)),
        ledgers: vec![(1, super::samples::ledger(9))],
        ..append(serial, "one", records)
    };
    for call in [
        vec![stated(1, vec![begun(1)]), append(1, "one", [accepted(2, "first")])],
        vec![stated(1, vec![begun(1), renamed("other"), accepted(2, "first")])],
        vec![append(2, "two", [created("two", None)]), append(3, "three", [created("two", None)])],
        vec![append(2, "two", [created("two", Some(1)), accepted(1, "a"), accepted(2, "a")])],
        vec![stated(1, vec![destroyed()]), append(9, "nine", [begun(1)])],
        vec![append(1, "one", [ended(1, "first"), ended(1, "first")])],
        vec![append(1, "one", [ended(1, "first"), super::samples::reopened(1, "second")])],
        vec![append(1, "one", [message("kept?"), destroyed()]), append(1, "one", [begun(3)])],
    ] {
        bench.append_fault(call).await;
        assert_eq!(bench.dump().await, before);
    }
    bench.reopen().await;
    assert_eq!(bench.dump().await, before);
    bench.commit(append(1, "one", [accepted(2, "second")])).await;
    assert_eq!(bench.store.bounds().await.unwrap().last, 3, "what was refused has used no place");
}

async fn a_refused_call_leaves_its_neighbours_alone(bench: &mut StoreUnderTest) {
    bench.create(1, "one", None).await;
    let calls: Vec<_> = (0..200)
        .map(|number| match number % 4 {
            0 => bench.store.append(vec![append(1, "one", [accepted(number, &format!("send {number}"))])]),
            1 => bench.store.append(vec![append(1, "one", [message("kept"), accepted(number, "send 0")])]),
            2 => bench.store.append(vec![append(7, "seven", [begun(1)])]),
            _ => bench.store.append(vec![append(1, "one", [begun(number)])]),
        })
        .collect();
    for (number, call) in calls.into_iter().enumerate() {
        let answer = call.await;
        match number % 4 {
            1 => assert_eq!(answer, Err(StoreFault::DuplicateRequestId), "{number}"),
            2 => assert_eq!(answer, Err(StoreFault::NotFound), "{number}"),
            _ => assert_eq!(answer, Ok(()), "{number}"),
        }
    }
    assert_eq!(bench.store.bounds().await.unwrap().last, 101);
}

async fn an_agent_that_is_not_there_is_refused(bench: &mut StoreUnderTest) {
    assert_eq!(bench.append_fault(vec![append(1, "one", [begun(1)])]).await, StoreFault::NotFound);
    let mut only_state = append(1, "one", []);
    only_state.state = Some(state(1));
    assert_eq!(bench.append_fault(vec![only_state]).await, StoreFault::NotFound);
    bench.create(1, "one", None).await;
    bench.commit(append(1, "one", [destroyed()])).await;
    assert_eq!(bench.append_fault(vec![append(1, "one", [begun(1)])]).await, StoreFault::NotFound);
    bench.create(2, "two", None).await;
    bench.create(3, "three", Some(2)).await;
    bench.commit(append(2, "two", [destroyed()])).await;
    assert_eq!(
        bench.append_fault(vec![append(2, "two", [begun(1)])]).await,
        StoreFault::NotFound,
        "it is gone"
    );
    for after in [begun(1), accepted(1, "a"), renamed("four"), destroyed()] {
        let call = append(3, "three", [message("a"), destroyed(), after]);
        assert_eq!(
            bench.append_fault(vec![call]).await,
            StoreFault::NotFound,
            "nothing happens to it afterwards"
        );
    }
    let given_before = StoreFault::Corrupt("the serial 1 was given before".to_owned());
    assert_eq!(bench.append_fault(vec![append(1, "new", [created("new", None)])]).await, given_before);
    let no_parent = StoreFault::Corrupt("there is no parent 8".to_owned());
    assert_eq!(bench.append_fault(vec![append(4, "new", [created("new", Some(8))])]).await, no_parent);
}

async fn a_denial_is_kept_although_its_agent_is_gone(bench: &mut StoreUnderTest) {
    bench.create(1, "one", None).await;
    bench.commit(append(1, "one", [destroyed()])).await;
    let text = || "x".to_owned();
    let denial = Record::Denied { principal: text(), action: text(), rule: text(), text: text() };
    bench.commit(append(1, "one", [denial.clone()])).await;
    bench.commit(append(DAEMON, "", [denial])).await;
    assert_eq!(bench.store.history(1).await.unwrap().len(), 3);
    assert_eq!(bench.store.read(entry_range(Some(1), 0)).await.unwrap()[2].agent_sequence, 3);
}

async fn the_daemon_has_only_records_of_its_own(bench: &mut StoreUnderTest) {
    for record in [created("main", None), accepted(1, "a"), destroyed(), begun(1), message("a")] {
        let fault = StoreFault::Corrupt(format!("the daemon itself has no {}", record.kind()));
        assert_eq!(bench.append_fault(vec![append(DAEMON, "", [record])]).await, fault);
    }
    let mut stated = append(DAEMON, "", []);
    stated.state = Some(state(1));
    bench.append_fault(vec![stated]).await;
    bench
        .commit(append(
            DAEMON,
            "",
            [Record::DaemonStarted { version: "1".to_owned() }, Record::DaemonStopped],
        ))
        .await;
}

async fn watchers_hear_of_everything_once_and_in_order(bench: &mut StoreUnderTest) {
    bench.create(1, "one", None).await;
    let (first, second) = (Arc::new(RecordingListener::default()), Arc::new(RecordingListener::default()));
    bench.store.set_listener(Arc::clone(&first) as _);
    let waiting: Vec<_> = (0..300)
        .map(|number| match number % 3 {
            0 => bench.store.append(vec![append(9, "nine", [begun(1)])]),
            _ => bench.store.append(vec![append(1, "one", [begun(number), message("a")])]),
        })
        .collect();
    for answer in waiting {
        let _ = answer.await;
    }
    assert!(first.sequences().into_iter().eq(2..=401));
    let read: Vec<Arc<JournalEntry>> = bench.store.read(entry_range(None, 1)).await.unwrap();
    assert_eq!(*first.entries.lock().unwrap(), read, "what is told is what is read");
    bench.store.set_listener(Arc::clone(&second) as _);
    bench.commit(append(1, "one", [begun(1)])).await;
    assert_eq!((first.sequences().len(), second.sequences()), (400, vec![402]));
    assert!(second.failures.lock().unwrap().is_empty());
}

async fn an_empty_call_is_kept(bench: &mut StoreUnderTest) {
    bench.store.append(Vec::new()).await.unwrap();
    bench.commit(append(5, "five", [])).await;
    assert_eq!(bench.store.bounds().await.unwrap().last, 0);
}

async fn a_closed_store_takes_nothing(bench: &mut StoreUnderTest) {
    let store = Arc::clone(&bench.store);
    bench.create(1, "one", None).await;
    let waiting: Vec<_> = (0..100).map(|turn| store.append(vec![append(1, "one", [begun(turn)])])).collect();
    store.close().await;
    for answer in waiting {
        assert_eq!(answer.await, Ok(()), "what was in line is kept");
    }
    let closed = StoreFault::Failed("the store is closed".to_owned());
    assert_eq!(store.append(vec![append(1, "one", [begun(1)])]).await, Err(closed.clone()));
    assert_eq!(store.prune_turns(super::timestamp(0)).await, Err(closed));
    store.close().await;
    bench.reopen().await;
    assert_eq!(bench.store.bounds().await.unwrap().last, 101);
}

async fn what_is_in_line_is_in_order_without_waiting(bench: &mut StoreUnderTest) {
    bench.create(1, "one", None).await;
    for turn in 0..50 {
        // Nobody waits for this one; it is kept all the same, and before the next.
        drop(bench.store.append(vec![append(1, "one", [begun(turn)])]));
    }
    bench.commit(append(1, "one", [begun(50)])).await;
    let turns: Vec<_> = bench.store.history(1).await.unwrap().into_iter().skip(1).collect();
    assert_eq!(turns, (0..=50).map(begun).collect::<Vec<_>>());
}
