//! Turns: unique request ids, open turns, turn ends, and pruning.

use agent::journal::Record;
use agent::outside::{Append, StoreFault};
use agent::{RequestId, TurnEnd, TurnOutcome};

use super::samples::{destroyed, reopened, request_id};
use super::{StoreUnderTest, accepted, append, ended, timestamp};

conformance_tests!(
    request_id_is_unique_per_agent,
    text_and_number_request_ids_are_distinct,
    turn_is_open_until_it_ends,
    turn_ends_once_and_can_be_reopened,
    prune_removes_turns_that_ended_before,
    pruning_many_turns_does_not_block_appends,
    destroyed_agent_with_many_turns_leaves_none,
);

async fn request_id_is_unique_per_agent(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    fixture.create(2, "two", None).await;
    fixture.commit(append(1, "one", [accepted(1, "send")])).await;
    fixture.commit(append(2, "two", [accepted(1, "send")])).await;
    fixture.reopen().await;
    let again = || vec![append(1, "one", [accepted(2, "send")])];
    assert_eq!(fixture.append_fault(again()).await, StoreFault::DuplicateRequestId);
    fixture.commit(append(1, "one", [ended(1, "send")])).await;
    assert_eq!(fixture.append_fault(again()).await, StoreFault::DuplicateRequestId, "also when it has ended");
    let same_append = vec![append(1, "one", [accepted(2, "other"), accepted(3, "other")])];
    assert_eq!(fixture.append_fault(same_append).await, StoreFault::DuplicateRequestId);
    fixture.commit(append(1, "one", [accepted(2, "other")])).await;
}

async fn text_and_number_request_ids_are_distinct(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    let turn = |turn, request_id| {
        let message = agent::Message::user("same", agent::MessageSource::default());
        Record::TurnAccepted(Box::new(agent::journal::AcceptedTurn { turn, request_id, message }))
    };
    let request_ids = [
        RequestId::Number(5),
        RequestId::Text("5".into()),
        RequestId::Text(String::new()),
        RequestId::Number(-5),
    ];
    for (number, request_id) in (1..).zip(&request_ids) {
        fixture.commit(append(1, "one", [turn(number, request_id.clone())])).await;
    }
    for (number, request_id) in (1..).zip(request_ids) {
        assert_eq!(fixture.store.turn(1, request_id).await.unwrap().unwrap().turn, number);
    }
}

async fn turn_is_open_until_it_ends(fixture: &mut StoreUnderTest) {
    for serial in [3, 1, 2] {
        fixture.create(serial, &format!("agent-{serial}"), None).await;
    }
    for (serial, turn, request) in [(3, 1, "a"), (1, 1, "a"), (1, 2, "b"), (2, 1, "a")] {
        fixture.commit(append(serial, "x", [accepted(turn, request)])).await;
    }
    fixture.commit(append(2, "x", [ended(1, "a")])).await;
    fixture.commit(append(1, "x", [ended(1, "a")])).await;
    fixture.reopen().await;
    assert_eq!(fixture.store.agents_with_open_turns().await.unwrap(), [1, 3]);
    let open = fixture.store.turn(1, request_id("b")).await.unwrap().unwrap();
    assert_eq!((open.turn, open.end), (2, None));
    assert_eq!(
        crate::digest::hex(&open.content_digest),
        crate::digest::hex(&crate::digest::digest_text("content of b"))
    );
    let done = fixture.store.turn(1, request_id("a")).await.unwrap().unwrap();
    let end = TurnEnd { content: "answer to a".into(), ..TurnEnd::without_content(TurnOutcome::Completed) };
    assert_eq!(done.end, Some(end));
    assert_eq!(fixture.store.turn(1, request_id("c")).await.unwrap(), None);
    assert_eq!(fixture.store.turn(9, request_id("a")).await.unwrap(), None);
}

async fn turn_ends_once_and_can_be_reopened(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    fixture.commit(append(1, "one", [accepted(1, "a")])).await;
    let refusal = |records: Vec<Record>| fixture.append_fault(vec![append(1, "one", records)]);
    let no_turn = StoreFault::Corrupt("no turn with this request id".to_owned());
    let not_open = StoreFault::Corrupt("no open turn with this request id".to_owned());
    assert_eq!(refusal(vec![reopened(1, "b")]).await, no_turn);
    fixture.commit(append(1, "one", [reopened(1, "a")])).await;
    assert_eq!(refusal(vec![ended(1, "b")]).await, not_open);
    fixture.commit(append(1, "one", [ended(1, "a")])).await;
    assert_eq!(refusal(vec![ended(1, "a")]).await, not_open);
    fixture.commit(append(1, "one", [reopened(1, "a")])).await;
    assert_eq!(fixture.store.agents_with_open_turns().await.unwrap(), [1]);
    assert_eq!(fixture.store.turn(1, request_id("a")).await.unwrap().unwrap().end, None);
    let end = TurnEnd { content: "another".into(), ..TurnEnd::without_content(TurnOutcome::Cancelled) };
    let again = Record::TurnEnded { turn: 1, request_id: request_id("a"), end: Box::new(end.clone()) };
    fixture.commit(append(1, "one", [again])).await;
    fixture.reopen().await;
    assert!(fixture.store.agents_with_open_turns().await.unwrap().is_empty());
    assert_eq!(fixture.store.turn(1, request_id("a")).await.unwrap().unwrap().end, Some(end));
}

async fn prune_removes_turns_that_ended_before(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    let append_at =
        |seconds, records: Vec<Record>| Append { at: timestamp(seconds), ..append(1, "one", records) };
    // The clock may go back: the time of a turn's end counts, not its sequence.
    for (turn, request, seconds) in
        [(1, "late", 30), (2, "early", 10), (3, "edge", 20), (4, "open", 5), (5, "again", 10)]
    {
        fixture.commit(append_at(1, vec![accepted(turn, request)])).await;
        if request != "open" {
            fixture.commit(append_at(seconds, vec![ended(turn, request)])).await;
        }
    }
    fixture.commit(append_at(40, vec![reopened(5, "again")])).await;
    assert_eq!(fixture.store.prune_turns(timestamp(20)).await, Ok(1));
    assert_eq!(fixture.store.prune_turns(timestamp(20)).await, Ok(0));
    fixture.reopen().await;
    for (request, is_stored) in
        [("late", true), ("early", false), ("edge", true), ("open", true), ("again", true)]
    {
        assert_eq!(
            fixture.store.turn(1, request_id(request)).await.unwrap().is_some(),
            is_stored,
            "{request}"
        );
    }
    fixture.commit(append(1, "one", [accepted(6, "early")])).await;
    assert_eq!(fixture.store.history(1).await.unwrap().len(), 12, "journal entries remain");
}

async fn pruning_many_turns_does_not_block_appends(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    let both = |turn| {
        let request = format!("send {turn}");
        [accepted(turn, &request), ended(turn, &request)]
    };
    for chunk in 0..6 {
        let records: Vec<_> = (chunk * 200..(chunk + 1) * 200).flat_map(both).collect();
        fixture
            .commit(Append { at: timestamp(i64::try_from(chunk).unwrap()), ..append(1, "one", records) })
            .await;
    }
    let pruned = fixture.store.prune_turns(timestamp(5));
    // Pruning runs in small transactions, so that other appends come in between.
    let concurrent = fixture.store.append(vec![append(1, "one", [accepted(9999, "concurrent")])]);
    assert_eq!(concurrent.await, Ok(()));
    assert_eq!(pruned.await, Ok(1000));
    assert!(fixture.store.turn(1, request_id("send 999")).await.unwrap().is_none());
    assert!(fixture.store.turn(1, request_id("send 1000")).await.unwrap().is_some());
}

async fn destroyed_agent_with_many_turns_leaves_none(fixture: &mut StoreUnderTest) {
    fixture.create(1, "one", None).await;
    let both = |turn| [accepted(turn, &format!("send {turn}")), ended(turn, &format!("send {turn}"))];
    let records: Vec<_> = (0..2500).flat_map(both).chain([accepted(9999, "open")]).collect();
    fixture.commit(append(1, "one", records)).await;
    fixture.commit(append(1, "one", [destroyed()])).await;
    fixture.reopen().await;
    assert!(fixture.store.agents_with_open_turns().await.unwrap().is_empty());
    for request in ["send 0", "send 2499", "open"] {
        assert_eq!(fixture.store.turn(1, request_id(request)).await.unwrap(), None, "{request}");
    }
}
