//! The event stream: every sequence once, in order, from any cursor, and no writer waits for a reader.

use std::sync::Arc;

use agent::Role;
use agent::journal::Record;
use agent::outside::{JournalEntry, Store, ToolOutputStream};
use futures_util::FutureExt;
use runtime::{BusEvent, Delta, DeltaKind, EventScope, Subscription};

use crate::world::{World, expect_end, new_message, run_until_idle, spec_named, start_send};

async fn subscribe_all(world: &World, after: Option<u64>) -> Subscription {
    world.pool.subscribe(EventScope::All, after).await.expect("the journal is readable")
}

async fn subscribe_to_agent(world: &World, name: &str, after: Option<u64>) -> Subscription {
    let scope = EventScope::Agent(world.find(name).await);
    world.pool.subscribe(scope, after).await.expect("the journal is readable")
}

/// Every event up to the time when all tasks wait.
async fn drain(subscription: &mut Subscription) -> Vec<BusEvent> {
    let mut items = Vec::new();
    // The paused clock advances only when no task can run.
    while let Ok(item) = tokio::time::timeout(std::time::Duration::from_nanos(1), subscription.next()).await {
        items.push(item.expect("the journal is readable"));
    }
    items
}

fn entries(items: &[BusEvent]) -> Vec<Arc<JournalEntry>> {
    let entry = |item: &BusEvent| match item {
        BusEvent::Entry(entry) => Some(Arc::clone(entry)),
        BusEvent::Delta(_) | BusEvent::Gap { .. } | BusEvent::Lagged => None,
    };
    items.iter().filter_map(entry).collect()
}

fn sequences(items: &[BusEvent]) -> Vec<u64> {
    entries(items).iter().map(|entry| entry.sequence).collect()
}

fn deltas(items: &[BusEvent]) -> Vec<Arc<Delta>> {
    let delta = |item: &BusEvent| match item {
        BusEvent::Delta(delta) => Some(Arc::clone(delta)),
        BusEvent::Entry(_) | BusEvent::Gap { .. } | BusEvent::Lagged => None,
    };
    items.iter().filter_map(delta).collect()
}

async fn last_sequence(world: &World) -> u64 {
    world.store.memory().bounds().await.expect("the memory store is readable").last
}

async fn run_turns(world: &World, name: &str, turns: i64) {
    let agent = world.find(name).await;
    for number in 0..turns {
        expect_end(start_send(
            &agent,
            number,
            &format!("#{name}{number} say a; call note x; done | say b; done"),
        ))
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn subscriber_gets_every_sequence_once_in_order() {
    let world = World::new().await;
    world.store.set_commit_yields(2);
    for name in ["a", "b", "c"] {
        world.agent(name).await;
    }
    let mut early = subscribe_all(&world, Some(0)).await;
    let mut received = Vec::new();
    let sendings: Vec<_> = {
        let mut sendings = Vec::new();
        for number in 0..30 {
            let agent = world.find(["a", "b", "c"][usize::try_from(number % 3).expect("small")]).await;
            let script =
                format!("#{number} say a; yield; call note x; call slow 3; done | yield; say b; done");
            sendings.push(start_send(&agent, number, &script));
        }
        sendings
    };
    for sending in sendings {
        while !sending.is_finished() {
            tokio::task::yield_now().await;
            received.extend(drain(&mut early).await);
            tokio::time::sleep(std::time::Duration::from_micros(100)).await;
        }
        expect_end(sending).await;
    }
    received.extend(drain(&mut early).await);
    let all: Vec<_> = (1..=last_sequence(&world).await).collect();
    assert_eq!(sequences(&received), all, "no gap and no duplicate");
    assert_eq!(early.cursor(), last_sequence(&world).await);
    let mut late = subscribe_all(&world, Some(0)).await;
    assert_eq!(entries(&drain(&mut late).await), entries(&received), "a late subscriber reads the same");
}

#[tokio::test(start_paused = true)]
async fn resuming_at_any_cursor_has_no_gap_or_duplicate() {
    let world = World::new().await;
    world.agent("a").await;
    world.agent("b").await;
    run_turns(&world, "a", 3).await;
    run_turns(&world, "b", 2).await;
    let all = entries(&drain(&mut subscribe_all(&world, Some(0)).await).await);
    let agent_entries = entries(&drain(&mut subscribe_to_agent(&world, "a", Some(0)).await).await);
    assert!(
        agent_entries.iter().all(|entry| entry.agent_id.as_ref().is_some_and(|name| name.as_str() == "a"))
    );
    let numbers: Vec<_> = agent_entries.iter().map(|entry| entry.agent_sequence).collect();
    assert_eq!(
        numbers,
        (1..=agent_entries.len() as u64).collect::<Vec<_>>(),
        "an agent's entries are numbered"
    );
    for cursor in 0..=last_sequence(&world).await {
        let rest = entries(&drain(&mut subscribe_all(&world, Some(cursor)).await).await);
        assert_eq!(rest, all[usize::try_from(cursor).expect("small")..], "after {cursor}");
        let rest = entries(&drain(&mut subscribe_to_agent(&world, "a", Some(cursor)).await).await);
        let expected: Vec<_> =
            agent_entries.iter().filter(|entry| entry.sequence > cursor).cloned().collect();
        assert_eq!(rest, expected, "after {cursor}, one agent");
    }
}

#[tokio::test(start_paused = true)]
async fn reader_that_reconnects_continues_at_its_cursor() {
    let world = World::new().await;
    world.agent("a").await;
    let mut read = Vec::new();
    let mut cursor = 0;
    for turn in 0..10 {
        let sending =
            start_send(&world.find("a").await, turn, &format!("#{turn} call note x; done | say b; done"));
        let mut subscription = subscribe_all(&world, Some(cursor)).await;
        // It reads three entries, then disconnects.
        for _ in 0..3 {
            let BusEvent::Entry(entry) = next_entry(&mut subscription).await else { unreachable!() };
            cursor = entry.sequence;
            read.push(cursor);
        }
        expect_end(sending).await;
    }
    let rest = sequences(&drain(&mut subscribe_all(&world, Some(cursor)).await).await);
    read.extend(rest);
    assert_eq!(read, (1..=last_sequence(&world).await).collect::<Vec<_>>());
}

async fn next_entry(subscription: &mut Subscription) -> BusEvent {
    loop {
        let item = subscription.next().await.expect("the journal is readable");
        if matches!(item, BusEvent::Entry(_)) {
            return item;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn sequence_continues_after_a_restart() {
    let world = World::new().await;
    world.agent("a").await;
    run_turns(&world, "a", 1).await;
    let before = last_sequence(&world).await;
    let world = world.restart().await;
    run_turns(&world, "a", 3).await;
    let rest = drain(&mut subscribe_all(&world, Some(before)).await).await;
    assert_eq!(sequences(&rest), (before + 1..=last_sequence(&world).await).collect::<Vec<_>>());
    assert_eq!(entries(&rest)[0].record.kind(), "daemon_started");
}

#[tokio::test(start_paused = true)]
async fn subscription_without_cursor_gets_only_new_events() {
    let world = World::new().await;
    world.agent("a").await;
    run_turns(&world, "a", 1).await;
    let (mut all, mut agent_events) =
        (subscribe_all(&world, None).await, subscribe_to_agent(&world, "a", None).await);
    let before = last_sequence(&world).await;
    assert_eq!(drain(&mut all).await.len(), 0);
    world.agent("b").await;
    run_turns(&world, "b", 1).await;
    assert_eq!(drain(&mut agent_events).await.len(), 0, "events of other agents are not delivered");
    let delivered = sequences(&drain(&mut all).await);
    assert_eq!(delivered, (before + 1..=last_sequence(&world).await).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn deltas_precede_their_message_and_are_complete() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.agent("b").await;
    let (mut all, mut agent_events) =
        (subscribe_all(&world, None).await, subscribe_to_agent(&world, "a", Some(0)).await);
    let mut other = subscribe_to_agent(&world, "b", None).await;
    drain(&mut agent_events).await;
    let script = "#1 think hm; say hel; yield; say lo; call note x; done | say more; done";
    expect_end(start_send(&agent, 1, script)).await;
    for items in [drain(&mut all).await, drain(&mut agent_events).await] {
        let received: Vec<_> = deltas(&items);
        let texts = |kind| {
            let of_kind = received.iter().filter(|delta| delta.kind == kind);
            of_kind.map(|delta| delta.text.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(
            (texts(DeltaKind::Reasoning), texts(DeltaKind::Text)),
            (vec!["hm"], vec!["hel", "lo", "more"])
        );
        assert!(received.iter().all(|delta| delta.agent_id.as_str() == "a" && delta.turn == 1));
        assert_eq!(text_deltas_per_response(&items), ["hello", "more"], "each message follows its deltas");
    }
    assert_eq!(drain(&mut other).await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn tool_output_is_published_while_the_tool_runs_without_secrets() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.known_secrets().add("key-of-a-provider");
    let mut all = subscribe_all(&world, None).await;
    let sending = start_send(&agent, 1, "call prints is key-of-a-provider here; done | say so; done");
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let items = drain(&mut all).await;
    let output = deltas(&items);
    let text_of = |wanted: ToolOutputStream| -> String {
        let text = |delta: &Arc<Delta>| match &delta.kind {
            DeltaKind::ToolOutput { stream, .. } if *stream == wanted => delta.text.clone(),
            _ => String::new(),
        };
        output.iter().map(text).collect()
    };
    // The call waits: an end that may be the start of a secret is published with what follows, or at the end.
    assert_eq!(text_of(ToolOutputStream::Stdout), "is [redacted] here");
    assert_eq!(text_of(ToolOutputStream::Stderr), "warning");
    assert!(output.len() > 2, "the beginning is published before the end is printed: {output:?}");
    let begun = entries(&items).iter().find_map(|entry| match &entry.record {
        Record::CallBegun { call_id, .. } => Some(call_id.clone()),
        _ => None,
    });
    let is_of_call = |delta: &Arc<Delta>| match &delta.kind {
        DeltaKind::ToolOutput { call_id, .. } => Some(&**call_id) == begun.as_deref() && delta.turn == 1,
        _ => false,
    };
    assert!(output.iter().all(is_of_call), "{output:?}");
    world.tools.release_all();
    expect_end(sending).await;
}

/// The joined text deltas before each model message; checks that they equal its text.
fn text_deltas_per_response(items: &[BusEvent]) -> Vec<String> {
    let (mut text, mut responses) = (String::new(), Vec::new());
    for item in items {
        match item {
            BusEvent::Delta(delta) if delta.kind == DeltaKind::Text => text.push_str(&delta.text),
            BusEvent::Entry(entry) => {
                if let Record::MessageAdded(message) = &entry.record
                    && message.role == Role::Assistant
                {
                    assert_eq!(message.text, text);
                    responses.push(std::mem::take(&mut text));
                }
            }
            BusEvent::Delta(_) | BusEvent::Gap { .. } | BusEvent::Lagged => {}
        }
    }
    assert_eq!(text, "", "a delta after its message");
    responses
}

#[tokio::test(start_paused = true)]
async fn no_delta_follows_its_message_for_a_late_reader() {
    for delay in 0..12 {
        let world = World::new().await;
        world.store.set_commit_yields(2);
        let agent = world.agent("a").await;
        let mut subscription = subscribe_all(&world, Some(0)).await;
        let sending =
            start_send(&agent, 1, "#1 say hel; yield; say lo; call note x; done | say more; yield; done");
        for _ in 0..delay {
            tokio::task::yield_now().await;
        }
        let mut items = drain(&mut subscription).await;
        expect_end(sending).await;
        items.extend(drain(&mut subscription).await);
        let mut ended = false;
        for item in &items {
            match item {
                BusEvent::Entry(entry) => ended |= entry.record.kind() == "turn_ended",
                BusEvent::Delta(delta) => assert!(!ended, "{delta:?} after the end, delay {delay}"),
                BusEvent::Gap { .. } | BusEvent::Lagged => {}
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_subscribers_are_removed() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    for round in 0..50 {
        let mut subscription = subscribe_to_agent(&world, "a", None).await;
        expect_end(start_send(&agent, round, &format!("#{round} say a; done"))).await;
        assert_eq!(deltas(&drain(&mut subscription).await).len(), 1);
    }
    expect_end(start_send(&agent, 100, "#100 flood 10000; done")).await;
}

#[tokio::test(start_paused = true)]
async fn stalled_reader_delays_no_writer_and_catches_up() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let (mut all, mut agent_events) =
        (subscribe_all(&world, Some(0)).await, subscribe_to_agent(&world, "a", Some(0)).await);
    for subscription in [&mut all, &mut agent_events] {
        assert!(!drain(subscription).await.is_empty(), "it has read the journal and waits for events");
    }
    let before = last_sequence(&world).await;
    let started_at = tokio::time::Instant::now();
    // More events than a subscriber's buffer holds.
    for number in 0..1500 {
        expect_end(start_send(&agent, number, &format!("#{number} flood 5; done"))).await;
    }
    assert_eq!(started_at.elapsed(), std::time::Duration::ZERO, "no turn waited for the readers");
    for (mut subscription, number) in [(all, 10_000), (agent_events, 10_001)] {
        let first = subscription.cursor() + 1;
        assert_eq!(first, before + 1);
        let items = drain(&mut subscription).await;
        assert!(items.iter().any(|item| matches!(item, BusEvent::Lagged)), "the reader is notified");
        let expected: Vec<_> = (first..=last_sequence(&world).await).collect();
        assert_eq!(sequences(&items), expected, "no entry is lost");
        expect_end(start_send(&agent, number, "#x say again; done")).await;
        let now = drain(&mut subscription).await;
        assert!(!deltas(&now).is_empty() && !entries(&now).is_empty(), "it gets live events again");
    }
}

#[tokio::test(start_paused = true)]
async fn cursor_beyond_the_end_is_a_gap_and_restarts() {
    let world = World::new().await;
    world.agent("a").await;
    run_turns(&world, "a", 1).await;
    let end = last_sequence(&world).await;
    for cursor in [end + 1, u64::MAX] {
        let mut subscription = subscribe_all(&world, Some(cursor)).await;
        let items = drain(&mut subscription).await;
        let BusEvent::Gap { first, last } = items[0] else { panic!("{:?}", items[0]) };
        assert_eq!((first, last), (1, end));
        assert_eq!(sequences(&items), (1..=end).collect::<Vec<_>>());
    }
    assert!(
        !drain(&mut subscribe_all(&world, Some(end)).await)
            .await
            .iter()
            .any(|item| matches!(item, BusEvent::Gap { .. }))
    );
}

#[tokio::test(start_paused = true)]
async fn pruned_cursor_is_a_gap_and_starts_at_the_first_entry() {
    let world = World::new().await;
    world.agent("a").await;
    run_turns(&world, "a", 2).await;
    let (first, end) = (4, last_sequence(&world).await);
    world.store.prune_before(first);
    for cursor in [0, 1, first - 2] {
        let items = drain(&mut subscribe_all(&world, Some(cursor)).await).await;
        assert!(
            matches!(items[0], BusEvent::Gap { first: gap_first, last } if (gap_first, last) == (first, end))
        );
        assert_eq!(sequences(&items), (first..=end).collect::<Vec<_>>());
    }
    let items = drain(&mut subscribe_all(&world, Some(first - 1)).await).await;
    assert!(!items.iter().any(|item| matches!(item, BusEvent::Gap { .. })), "no gap");
    assert_eq!(sequences(&items), (first..=end).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn dropped_next_call_loses_no_event() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let mut subscription = subscribe_all(&world, Some(0)).await;
    let mut received = drain(&mut subscription).await;
    let sending = start_send(&agent, 1, "#1 say a; pass 5; say b; call slow 7; done | say c; done");
    while !sending.is_finished() {
        let wait = std::time::Duration::from_millis(1);
        if let Ok(item) = tokio::time::timeout(wait, subscription.next()).await {
            received.push(item.expect("the journal is readable"));
        }
    }
    received.extend(drain(&mut subscription).await);
    assert_eq!(sequences(&received), (1..=last_sequence(&world).await).collect::<Vec<_>>());
    assert_eq!(deltas(&received).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn subscription_outlives_the_pool() {
    let world = World::new().await;
    world.agent("a").await;
    let mut subscription = subscribe_to_agent(&world, "a", None).await;
    world.pool.stop(std::time::Duration::ZERO).await;
    drain(&mut subscription).await;
    assert!(subscription.next().now_or_never().is_none());
    drop(world);
    run_until_idle().await;
    drain(&mut subscription).await;
    assert!(subscription.next().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn agent_events_are_delivered_in_order() {
    let world = World::new().await;
    let mut all = subscribe_all(&world, Some(0)).await;
    let agent = world.create_handle(crate::world::with_preset(spec_named("a"), "trusted")).await;
    agent
        .submit_committed(new_message(1, "#1 call note x; call slow 5; done | say b; done"))
        .await
        .expect("it is committed");
    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    world.finish(&agent).await;
    assert_eq!(agent.rollback(0, runtime::Initiator::Admin).await, Ok(5));
    assert!(world.destroy(&agent).await);
    let kinds: Vec<_> = entries(&drain(&mut all).await).iter().map(|entry| entry.record.kind()).collect();
    let expected = [
        "daemon_started",
        "agent_created",
        "turn_accepted",
        "turn_begun",
        "message",
        "tool_begun",
        "tool_begun",
        "tool_done",
        "message",
        "message",
        "message",
        "turn_ended",
        "agent_finished",
        "rolled_back",
        "agent_destroyed",
    ];
    assert_eq!(kinds, expected);
}
