//! Claims about turns: a name is taken once, open turns are known, ends are found, and names are forgotten in time.

use agent::journal::Record;
use agent::outside::{Append, StoreFault};
use agent::{RequestId, TurnEnd, TurnOutcome};

use super::samples::{destroyed, reopened, request_id};
use super::{StoreUnderTest, accepted, append, conformance_tests, ended, timestamp};

conformance_tests!(
    a_name_is_taken_once_for_each_agent,
    a_text_and_a_number_are_two_names,
    a_turn_is_open_until_it_ends,
    a_turn_ends_once_and_opens_again,
    names_are_forgotten_when_they_ended_before,
    many_names_are_forgotten,
    a_destroyed_agent_with_many_turns_leaves_none,
);

async fn a_name_is_taken_once_for_each_agent(bench: &mut StoreUnderTest) {
    bench.create(1, "one", None).await;
    bench.create(2, "two", None).await;
    bench.commit(append(1, "one", [accepted(1, "send")])).await;
    bench.commit(append(2, "two", [accepted(1, "send")])).await;
    bench.reopen().await;
    let again = || vec![append(1, "one", [accepted(2, "send")])];
    assert_eq!(bench.append_fault(again()).await, StoreFault::DuplicateRequestId);
    bench.commit(append(1, "one", [ended(1, "send")])).await;
    assert_eq!(bench.append_fault(again()).await, StoreFault::DuplicateRequestId, "also when it has ended");
    let inside = vec![append(1, "one", [accepted(2, "other"), accepted(3, "other")])];
    assert_eq!(bench.append_fault(inside).await, StoreFault::DuplicateRequestId);
    bench.commit(append(1, "one", [accepted(2, "other")])).await;
}

async fn a_text_and_a_number_are_two_names(bench: &mut StoreUnderTest) {
    bench.create(1, "one", None).await;
    let turn = |turn, request_id| {
        let message = agent::Message::user("same", agent::MessageSource::default());
        Record::TurnAccepted(Box::new(agent::journal::AcceptedTurn { turn, request_id, message }))
    };
    let names = [
        RequestId::Number(5),
        RequestId::Text("5".into()),
        RequestId::Text(String::new()),
        RequestId::Number(-5),
    ];
    for (number, name) in (1..).zip(&names) {
        bench.commit(append(1, "one", [turn(number, name.clone())])).await;
    }
    for (number, name) in (1..).zip(names) {
        assert_eq!(bench.store.turn(1, name).await.unwrap().unwrap().turn, number);
    }
}

async fn a_turn_is_open_until_it_ends(bench: &mut StoreUnderTest) {
    for serial in [3, 1, 2] {
        bench.create(serial, &format!("agent-{serial}"), None).await;
    }
    for (serial, turn, request) in [(3, 1, "a"), (1, 1, "a"), (1, 2, "b"), (2, 1, "a")] {
        bench.commit(append(serial, "x", [accepted(turn, request)])).await;
    }
    bench.commit(append(2, "x", [ended(1, "a")])).await;
    bench.commit(append(1, "x", [ended(1, "a")])).await;
    bench.reopen().await;
    assert_eq!(bench.store.agents_with_open_turns().await.unwrap(), [1, 3]);
    let open = bench.store.turn(1, request_id("b")).await.unwrap().unwrap();
    assert_eq!((open.turn, open.end), (2, None));
    assert_eq!(
        crate::digest::hex(&open.content_digest),
        crate::digest::hex(&crate::digest::digest_text("content of b"))
    );
    let done = bench.store.turn(1, request_id("a")).await.unwrap().unwrap();
    let end = TurnEnd { content: "answer to a".into(), ..TurnEnd::without_content(TurnOutcome::Completed) };
    assert_eq!(done.end, Some(end));
    assert_eq!(bench.store.turn(1, request_id("c")).await.unwrap(), None);
    assert_eq!(bench.store.turn(9, request_id("a")).await.unwrap(), None);
}

async fn a_turn_ends_once_and_opens_again(bench: &mut StoreUnderTest) {
    bench.create(1, "one", None).await;
    bench.commit(append(1, "one", [accepted(1, "a")])).await;
    let refused = |records: Vec<Record>| bench.append_fault(vec![append(1, "one", records)]);
    let none = StoreFault::Corrupt("there is no turn of that name".to_owned());
    let not_open = StoreFault::Corrupt("there is no open turn of that name".to_owned());
    assert_eq!(refused(vec![reopened(1, "b")]).await, none);
    bench.commit(append(1, "one", [reopened(1, "a")])).await;
    assert_eq!(refused(vec![ended(1, "b")]).await, not_open);
    bench.commit(append(1, "one", [ended(1, "a")])).await;
    assert_eq!(refused(vec![ended(1, "a")]).await, not_open);
    bench.commit(append(1, "one", [reopened(1, "a")])).await;
    assert_eq!(bench.store.agents_with_open_turns().await.unwrap(), [1]);
    assert_eq!(bench.store.turn(1, request_id("a")).await.unwrap().unwrap().end, None);
    let end = TurnEnd { content: "another".into(), ..TurnEnd::without_content(TurnOutcome::Cancelled) };
    let again = Record::TurnEnded { turn: 1, request_id: request_id("a"), end: Box::new(end.clone()) };
    bench.commit(append(1, "one", [again])).await;
    bench.reopen().await;
    assert!(bench.store.agents_with_open_turns().await.unwrap().is_empty());
    assert_eq!(bench.store.turn(1, request_id("a")).await.unwrap().unwrap().end, Some(end));
}

async fn names_are_forgotten_when_they_ended_before(bench: &mut StoreUnderTest) {
    bench.create(1, "one", None).await;
    let then = |seconds, records: Vec<Record>| Append { at: timestamp(seconds), ..append(1, "one", records) };
    // The clock may go back: what counts is when a turn ended, not its place.
    for (turn, request, seconds) in
        [(1, "late", 30), (2, "early", 10), (3, "edge", 20), (4, "open", 5), (5, "again", 10)]
    {
        bench.commit(then(1, vec![accepted(turn, request)])).await;
        if request != "open" {
            bench.commit(then(seconds, vec![ended(turn, request)])).await;
        }
    }
    bench.commit(then(40, vec![reopened(5, "again")])).await;
    assert_eq!(bench.store.prune_turns(timestamp(20)).await, Ok(1));
    assert_eq!(bench.store.prune_turns(timestamp(20)).await, Ok(0));
    bench.reopen().await;
    for (request, is_there) in
        [("late", true), ("early", false), ("edge", true), ("open", true), ("again", true)]
    {
        assert_eq!(bench.store.turn(1, request_id(request)).await.unwrap().is_some(), is_there, "{request}");
    }
    bench.commit(append(1, "one", [accepted(6, "early")])).await;
    assert_eq!(bench.store.history(1).await.unwrap().len(), 12, "records stay");
}

async fn many_names_are_forgotten(bench: &mut StoreUnderTest) {
    bench.create(1, "one", None).await;
    let both = |turn| {
        let request = format!("send {turn}");
        [accepted(turn, &request), ended(turn, &request)]
    };
    for chunk in 0..6 {
        let records: Vec<_> = (chunk * 200..(chunk + 1) * 200).flat_map(both).collect();
        bench
            .commit(Append { at: timestamp(i64::try_from(chunk).unwrap()), ..append(1, "one", records) })
            .await;
    }
    let forgetting = bench.store.prune_turns(timestamp(5));
    // Others are not held up by it, and come in between.
    let beside = bench.store.append(vec![append(1, "one", [accepted(9999, "beside")])]);
    assert_eq!(beside.await, Ok(()));
    assert_eq!(forgetting.await, Ok(1000));
    assert!(bench.store.turn(1, request_id("send 999")).await.unwrap().is_none());
    assert!(bench.store.turn(1, request_id("send 1000")).await.unwrap().is_some());
}

async fn a_destroyed_agent_with_many_turns_leaves_none(bench: &mut StoreUnderTest) {
    bench.create(1, "one", None).await;
    let both = |turn| [accepted(turn, &format!("send {turn}")), ended(turn, &format!("send {turn}"))];
    let records: Vec<_> = (0..2500).flat_map(both).chain([accepted(9999, "open")]).collect();
    bench.commit(append(1, "one", records)).await;
    bench.commit(append(1, "one", [destroyed()])).await;
    bench.reopen().await;
    assert!(bench.store.agents_with_open_turns().await.unwrap().is_empty());
    for request in ["send 0", "send 2499", "open"] {
        assert_eq!(bench.store.turn(1, request_id(request)).await.unwrap(), None, "{request}");
    }
}
