//! Memory of subscriptions that are not polled, with the bus alone: what the caches hold, and what a late reader gets.

use std::time::Duration;

use agent::journal::Record;
use agent::outside::{Append, Store, Timestamp};
use tokio_util::task::TaskTracker;

use super::delta_window::{DELTA_TEXT_BYTES_MAX, DELTA_WINDOW_BYTES_MAX};
use super::entry_cache::ENTRY_CACHE_BYTES_MAX;
use super::*;

const MEGABYTE: usize = 1 << 20;

struct Fixture {
    bus: Arc<EventBus>,
    store: Arc<dyn Store>,
}

/// Records which entries are alive, and passes them on to the bus.
struct Observer {
    bus: Arc<EventBus>,
    entries: Arc<std::sync::Mutex<Vec<Weak<JournalEntry>>>>,
}

impl CommitListener for Observer {
    fn committed(&self, entries: &[Arc<JournalEntry>]) {
        self.entries.lock().unwrap().extend(entries.iter().map(Arc::downgrade));
        self.bus.committed(entries);
    }

    fn store_failed(&self, _: &str) {}
}

impl Fixture {
    fn new() -> Self {
        let (bus, store) = (Arc::new(EventBus::new()), store::memory());
        store.set_listener(Arc::clone(&bus) as Arc<_>);
        Self { bus, store }
    }

    async fn subscribe(&self, after: Option<u64>) -> Subscription {
        let (bus, store) = (Arc::clone(&self.bus), Arc::clone(&self.store));
        let journal = JournalReader { bus, store, tasks: TaskTracker::new() };
        Subscription::begin(journal, EventScope::All, after).await.unwrap()
    }

    async fn commit(&self, text: String) {
        let [action, rule] = ["send", "identity"].map(str::to_owned);
        let record = Record::Denied { principal: agent::PrincipalId::Admin, action, rule, text };
        let append = Append {
            agent: agent::journal::DAEMON,
            agent_id: None,
            at: Timestamp(0),
            records: vec![record],
            state: None,
            ledgers: Vec::new(),
        };
        self.store.append(vec![append]).await.unwrap();
    }
}

fn delta(text: String) -> Delta {
    Delta {
        agent: 1,
        agent_id: AgentId::parse("a").unwrap(),
        request_id: RequestId::Number(1.into()),
        turn: 1,
        kind: DeltaKind::Text,
        text,
    }
}

async fn drain(subscription: &mut Subscription) -> Vec<BusEvent> {
    let mut items = Vec::new();
    while let Ok(item) = tokio::time::timeout(Duration::from_nanos(1), subscription.next()).await {
        items.push(item.unwrap());
    }
    items
}

#[tokio::test(start_paused = true)]
async fn stalled_subscribers_share_one_bounded_cache() {
    let fixture = Fixture::new();
    let mut stalled = Vec::new();
    for _ in 0..100 {
        let mut subscription = fixture.subscribe(Some(0)).await;
        assert!(tokio::time::timeout(Duration::from_nanos(1), subscription.next()).await.is_err());
        stalled.push(subscription);
    }
    let entries = Arc::new(std::sync::Mutex::new(Vec::new()));
    let observer = Observer { bus: Arc::clone(&fixture.bus), entries: Arc::clone(&entries) };
    fixture.store.set_listener(Arc::new(observer));
    let committed = 4 * ENTRY_CACHE_BYTES_MAX / MEGABYTE;
    for _ in 0..committed {
        fixture.commit("x".repeat(MEGABYTE)).await;
    }
    // The store in memory holds each entry once. Every other reference is a cache's or a subscription's.
    let held = || entries.lock().unwrap().iter().map(|entry| entry.strong_count() - 1).sum::<usize>();
    assert!(held() > 0 && held() * MEGABYTE <= ENTRY_CACHE_BYTES_MAX, "{} entries", held());
    assert!(matches!(stalled[0].next().await.unwrap(), BusEvent::Lagged));
    for subscription in &mut stalled {
        let first = subscription.next().await.unwrap();
        assert_eq!(entry_sequence(&first), 1, "it continues where it stopped");
    }
    assert!(held() * MEGABYTE <= ENTRY_CACHE_BYTES_MAX, "{} entries", held());
    let items = drain(&mut stalled[0]).await;
    let sequences: Vec<_> = items.iter().map(entry_sequence).collect();
    assert_eq!(sequences, (2..=committed as u64).collect::<Vec<_>>(), "every entry once");
    drop((stalled, items));
    assert_eq!(held(), 0, "the caches are empty without a subscriber");
}

fn entry_sequence(item: &BusEvent) -> u64 {
    match item {
        BusEvent::Entry(entry) => entry.sequence,
        BusEvent::Delta(_) | BusEvent::Gap { .. } | BusEvent::Lagged => panic!("no entry"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_entry_larger_than_the_cache_is_delivered() {
    let fixture = Fixture::new();
    let mut live = fixture.subscribe(None).await;
    for length in [ENTRY_CACHE_BYTES_MAX + 1, 5, ENTRY_CACHE_BYTES_MAX + 1] {
        fixture.commit("x".repeat(length)).await;
        let BusEvent::Entry(entry) = live.next().await.unwrap() else { panic!("no entry") };
        assert!(entry.record.content_bytes() > length);
    }
    let mut replay = fixture.subscribe(Some(0)).await;
    assert_eq!(drain(&mut replay).await.iter().map(entry_sequence).collect::<Vec<_>>(), [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn deltas_of_stalled_subscribers_are_bounded() {
    let fixture = Fixture::new();
    let mut stalled = fixture.subscribe(None).await;
    let weak = {
        let mut watching = fixture.subscribe(None).await;
        fixture.bus.publish_delta(delta("x".to_owned()));
        let BusEvent::Delta(delta) = watching.next().await.unwrap() else { panic!("no delta") };
        Arc::downgrade(&delta)
    };
    fixture.bus.publish_delta(delta("y".repeat(DELTA_WINDOW_BYTES_MAX)));
    assert!(weak.upgrade().is_none(), "a subscriber that is not polled holds no delta");
    assert!(matches!(stalled.next().await.unwrap(), BusEvent::Lagged));
}

#[tokio::test(start_paused = true)]
async fn long_output_is_split_between_characters() {
    let fixture = Fixture::new();
    let mut live = fixture.subscribe(None).await;
    let text = format!("a{}", "\u{1f980}".repeat(DELTA_TEXT_BYTES_MAX));
    fixture.bus.publish_delta(delta(text.clone()));
    let mut received = String::new();
    for item in drain(&mut live).await {
        let BusEvent::Delta(delta) = item else { panic!("{item:?}") };
        assert!((1..=DELTA_TEXT_BYTES_MAX).contains(&delta.text.len()));
        received.push_str(&delta.text);
    }
    assert_eq!(received, text);
}
