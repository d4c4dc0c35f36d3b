//! The event stream: every sequence once, in order, from wherever somebody begins, and nobody waits for a reader.

use std::sync::Arc;

use agent::Role;
use agent::journal::Record;
use agent::outside::{JournalEntry, Store};
use futures_util::FutureExt;
use runtime::{BusEvent, Delta, DeltaKind, EventScope, Subscription};

use crate::world::{World, expect_end, new_message, run_until_idle, spec_named, start_send};

async fn subscribe_all(world: &World, after: Option<u64>) -> Subscription {
    world.pool.subscribe(EventScope::All, after).await.expect("the journal can be read")
}

async fn subscribe_to_agent(world: &World, name: &str, after: Option<u64>) -> Subscription {
    let scope = EventScope::Agent(world.find(name).await);
    world.pool.subscribe(scope, after).await.expect("the journal can be read")
}

/// Everything that is there to be read now.
fn drain(subscription: &mut Subscription) -> Vec<BusEvent> {
    let mut items = Vec::new();
    while let Some(item) = tokio::task::unconstrained(subscription.next()).now_or_never() {
        items.push(item.expect("the journal can be read"));
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
    world.store.memory().bounds().await.expect("memory can be read").last
}

async fn run_turns(world: &World, name: &str, turns: i64) {
    let agent = world.find(name).await;
    for place in 0..turns {
        expect_end(start_send(
            &agent,
            place,
            &format!("#{name}{place} say a; call note x; done | say b; done"),
        ))
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn from_the_beginning_every_sequence_comes_once_and_in_order_while_turns_run() {
    let world = World::new().await;
    world.store.set_commit_yields(2);
    for name in ["a", "b", "c"] {
        world.agent(name).await;
    }
    let mut early = subscribe_all(&world, Some(0)).await;
    let mut seen = Vec::new();
    let sendings: Vec<_> = {
        let mut sendings = Vec::new();
        for place in 0..30 {
            let agent = world.find(["a", "b", "c"][usize::try_from(place % 3).expect("small")]).await;
            let script =
                format!("#{place} say a; yield; call note x; call slow 3; done | yield; say b; done");
            sendings.push(start_send(&agent, place, &script));
        }
        sendings
    };
    for sending in sendings {
        while !sending.is_finished() {
            tokio::task::yield_now().await;
            seen.extend(drain(&mut early));
            tokio::time::sleep(std::time::Duration::from_micros(100)).await;
        }
    }
    seen.extend(drain(&mut early));
    let all: Vec<_> = (1..=last_sequence(&world).await).collect();
    assert_eq!(sequences(&seen), all, "no hole and no repeat");
    assert_eq!(early.cursor(), last_sequence(&world).await);
    let mut late = subscribe_all(&world, Some(0)).await;
    assert_eq!(entries(&drain(&mut late)), entries(&seen), "whoever comes late reads the same");
}

#[tokio::test(start_paused = true)]
async fn resumed_at_any_cursor_there_is_no_hole_and_no_repeat() {
    let world = World::new().await;
    world.agent("a").await;
    world.agent("b").await;
    run_turns(&world, "a", 3).await;
    run_turns(&world, "b", 2).await;
    let all = entries(&drain(&mut subscribe_all(&world, Some(0)).await));
    let own = entries(&drain(&mut subscribe_to_agent(&world, "a", Some(0)).await));
    assert!(own.iter().all(|entry| entry.agent_id.as_ref().is_some_and(|name| name.as_str() == "a")));
    let numbers: Vec<_> = own.iter().map(|entry| entry.agent_sequence).collect();
    assert_eq!(numbers, (1..=own.len() as u64).collect::<Vec<_>>(), "an agent's own are numbered too");
    for cursor in 0..=last_sequence(&world).await {
        let rest = entries(&drain(&mut subscribe_all(&world, Some(cursor)).await));
        assert_eq!(rest, all[usize::try_from(cursor).expect("small")..], "behind {cursor}");
        let rest = entries(&drain(&mut subscribe_to_agent(&world, "a", Some(cursor)).await));
        let expected: Vec<_> = own.iter().filter(|entry| entry.sequence > cursor).cloned().collect();
        assert_eq!(rest, expected, "behind {cursor} of one agent");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_goes_away_at_any_entry_goes_on_where_it_was() {
    let world = World::new().await;
    world.agent("a").await;
    let mut read = Vec::new();
    let mut cursor = 0;
    for turn in 0..10 {
        let sending =
            start_send(&world.find("a").await, turn, &format!("#{turn} call note x; done | say b; done"));
        let mut subscription = subscribe_all(&world, Some(cursor)).await;
        // It reads three entries of what comes, and is gone.
        for _ in 0..3 {
            let BusEvent::Entry(entry) = next_entry(&mut subscription).await else { unreachable!() };
            cursor = entry.sequence;
            read.push(cursor);
        }
        expect_end(sending).await;
    }
    let rest = sequences(&drain(&mut subscribe_all(&world, Some(cursor)).await));
    read.extend(rest);
    assert_eq!(read, (1..=last_sequence(&world).await).collect::<Vec<_>>());
}

async fn next_entry(subscription: &mut Subscription) -> BusEvent {
    loop {
        let item = subscription.next().await.expect("the journal can be read");
        if matches!(item, BusEvent::Entry(_)) {
            return item;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_goes_on_in_the_same_sequence() {
    let world = World::new().await;
    world.agent("a").await;
    run_turns(&world, "a", 1).await;
    let before = last_sequence(&world).await;
    let world = world.restart().await;
    run_turns(&world, "a", 3).await;
    let rest = drain(&mut subscribe_all(&world, Some(before)).await);
    assert_eq!(sequences(&rest), (before + 1..=last_sequence(&world).await).collect::<Vec<_>>());
    assert_eq!(entries(&rest)[0].record.kind(), "daemon_started");
}

#[tokio::test(start_paused = true)]
async fn from_now_on_is_what_comes_from_now_on() {
    let world = World::new().await;
    world.agent("a").await;
    run_turns(&world, "a", 1).await;
    let (mut all, mut own) = (subscribe_all(&world, None).await, subscribe_to_agent(&world, "a", None).await);
    let before = last_sequence(&world).await;
    assert_eq!(drain(&mut all).len(), 0);
    world.agent("b").await;
    run_turns(&world, "b", 1).await;
    assert_eq!(drain(&mut own).len(), 0, "others are not its business");
    let told = sequences(&drain(&mut all));
    assert_eq!(told, (before + 1..=last_sequence(&world).await).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn deltas_come_before_the_entry_of_their_message_and_are_whole() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.agent("b").await;
    let (mut all, mut own) =
        (subscribe_all(&world, None).await, subscribe_to_agent(&world, "a", Some(0)).await);
    let mut other = subscribe_to_agent(&world, "b", None).await;
    drain(&mut own);
    let script = "#1 think hm; say hel; yield; say lo; call note x; done | say more; done";
    expect_end(start_send(&agent, 1, script)).await;
    for items in [drain(&mut all), drain(&mut own)] {
        let pieces: Vec<_> = deltas(&items);
        let said = |kind| {
            let of_kind = pieces.iter().filter(|delta| delta.kind == kind);
            of_kind.map(|delta| delta.text.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(
            (said(DeltaKind::Reasoning), said(DeltaKind::Text)),
            (vec!["hm"], vec!["hel", "lo", "more"])
        );
        assert!(pieces.iter().all(|delta| delta.name.as_str() == "a" && delta.turn == 1));
        assert_eq!(
            text_deltas_per_response(&items),
            ["hello", "more"],
            "each answer comes behind its pieces"
        );
    }
    assert_eq!(drain(&mut other).len(), 0);
}

/// The pieces of text before each of the model's messages; they must be what it says.
fn text_deltas_per_response(items: &[BusEvent]) -> Vec<String> {
    let (mut said, mut answers) = (String::new(), Vec::new());
    for item in items {
        match item {
            BusEvent::Delta(delta) if delta.kind == DeltaKind::Text => said.push_str(&delta.text),
            BusEvent::Entry(entry) => {
                if let Record::MessageAdded(message) = &entry.record
                    && message.role == Role::Assistant
                {
                    assert_eq!(message.text, said);
                    answers.push(std::mem::take(&mut said));
                }
            }
            BusEvent::Delta(_) | BusEvent::Gap { .. } | BusEvent::Lagged => {}
        }
    }
    assert_eq!(said, "", "a piece came behind its message");
    answers
}

#[tokio::test(start_paused = true)]
async fn no_piece_comes_behind_its_message_whenever_somebody_begins_to_read() {
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
        let mut items = drain(&mut subscription);
        expect_end(sending).await;
        items.extend(drain(&mut subscription));
        let mut answered = false;
        for item in &items {
            match item {
                BusEvent::Entry(entry) => answered |= entry.record.kind() == "turn_ended",
                BusEvent::Delta(delta) => assert!(!answered, "{delta:?} after the end, delay {delay}"),
                BusEvent::Gap { .. } | BusEvent::Lagged => {}
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_said_to_nobody_and_dropped_listeners_are_forgotten() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    for round in 0..50 {
        let mut subscription = subscribe_to_agent(&world, "a", None).await;
        expect_end(start_send(&agent, round, &format!("#{round} say a; done"))).await;
        assert_eq!(deltas(&drain(&mut subscription)).len(), 1);
    }
    expect_end(start_send(&agent, 100, "#100 flood 10000; done")).await;
}

#[tokio::test(start_paused = true)]
async fn a_stalled_reader_keeps_nobody_waiting_and_catches_up_without_a_hole() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let (mut all, mut own) =
        (subscribe_all(&world, Some(0)).await, subscribe_to_agent(&world, "a", Some(0)).await);
    for subscription in [&mut all, &mut own] {
        let first = subscription.next().await.expect("the journal can be read");
        assert!(matches!(first, BusEvent::Entry(_)));
    }
    let before = tokio::time::Instant::now();
    // More of it than anybody may be behind.
    for place in 0..1500 {
        expect_end(start_send(&agent, place, &format!("#{place} flood 5; done"))).await;
    }
    assert_eq!(before.elapsed(), std::time::Duration::ZERO, "nobody waited for the readers");
    for (mut subscription, first) in [(all, 2), (own, 3)] {
        let items = drain(&mut subscription);
        assert!(items.iter().any(|item| matches!(item, BusEvent::Lagged)), "it is told");
        let expected: Vec<_> = (first..=last_sequence(&world).await).collect();
        assert_eq!(sequences(&items), expected, "none of the entries is lost");
        expect_end(start_send(&agent, 10_000 + first as i64, "#x say again; done")).await;
        let now = drain(&mut subscription);
        assert!(!deltas(&now).is_empty() && !entries(&now).is_empty(), "and it hears again what is said");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cursor_beyond_the_end_is_a_gap_and_reading_begins_anew() {
    let world = World::new().await;
    world.agent("a").await;
    run_turns(&world, "a", 1).await;
    let end = last_sequence(&world).await;
    for cursor in [end + 1, u64::MAX] {
        let mut subscription = subscribe_all(&world, Some(cursor)).await;
        let items = drain(&mut subscription);
        let BusEvent::Gap { first, last } = items[0] else { panic!("{:?}", items[0]) };
        assert_eq!((first, last), (1, end));
        assert_eq!(sequences(&items), (1..=end).collect::<Vec<_>>());
    }
    assert!(
        !drain(&mut subscribe_all(&world, Some(end)).await)
            .iter()
            .any(|item| matches!(item, BusEvent::Gap { .. }))
    );
}

#[tokio::test(start_paused = true)]
async fn a_cursor_before_the_beginning_is_a_gap_and_reading_begins_with_what_there_is() {
    let world = World::new().await;
    world.agent("a").await;
    run_turns(&world, "a", 2).await;
    let (begin, end) = (4, last_sequence(&world).await);
    world.store.prune_before(begin);
    for cursor in [0, 1, begin - 2] {
        let items = drain(&mut subscribe_all(&world, Some(cursor)).await);
        assert!(matches!(items[0], BusEvent::Gap { first, last } if (first, last) == (begin, end)));
        assert_eq!(sequences(&items), (begin..=end).collect::<Vec<_>>());
    }
    let items = drain(&mut subscribe_all(&world, Some(begin - 1)).await);
    assert!(!items.iter().any(|item| matches!(item, BusEvent::Gap { .. })), "nothing is missing");
    assert_eq!(sequences(&items), (begin..=end).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_wait_loses_nothing() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let mut subscription = subscribe_all(&world, Some(0)).await;
    let sending = start_send(&agent, 1, "#1 say a; pass 5; say b; call slow 7; done | say c; done");
    let mut seen = Vec::new();
    while !sending.is_finished() {
        let wait = std::time::Duration::from_millis(1);
        if let Ok(item) = tokio::time::timeout(wait, subscription.next()).await {
            seen.push(item.expect("the journal can be read"));
        }
    }
    seen.extend(drain(&mut subscription));
    assert_eq!(sequences(&seen), (1..=last_sequence(&world).await).collect::<Vec<_>>());
    assert_eq!(deltas(&seen).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_ends_with_nobody_but_its_reader() {
    let world = World::new().await;
    world.agent("a").await;
    let mut subscription = subscribe_to_agent(&world, "a", None).await;
    world.pool.stop(std::time::Duration::ZERO).await;
    drain(&mut subscription);
    assert!(subscription.next().now_or_never().is_none());
    drop(world);
    run_until_idle().await;
    drain(&mut subscription);
    assert!(subscription.next().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn everything_that_happens_to_an_agent_is_told_in_its_order() {
    let world = World::new().await;
    let mut all = subscribe_all(&world, Some(0)).await;
    let agent = world.create_handle(crate::world::with_preset(spec_named("a"), "trusted")).await;
    agent
        .submit_committed(new_message(1, "#1 call note x; call slow 5; done | say b; done"))
        .await
        .expect("it is kept");
    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    world.finish(&agent).await;
    assert_eq!(agent.rollback(0, runtime::Initiator::Admin).await, Ok(5));
    assert!(world.destroy(&agent).await);
    let kinds: Vec<_> = entries(&drain(&mut all)).iter().map(|entry| entry.record.kind()).collect();
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
