//! Tests of stream bodies with a paused clock: heartbeats, shutdown and the end of the events.

use std::future::poll_fn;

use futures_util::{StreamExt, stream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;
use crate::http::stream_permits::StreamPermits;

const HEARTBEAT: Duration = Duration::from_secs(15);

struct StreamFixture {
    body: ResponseBody,
    events: UnboundedSender<Vec<u8>>,
    stop: CancellationToken,
    activity: Arc<Activity>,
    permits: Arc<StreamPermits>,
}

fn event_stream(events: UnboundedReceiver<Vec<u8>>) -> EventBytes {
    EventBytes::new(stream::unfold(events, |mut events| async move {
        events.recv().await.map(|event| (Bytes::from(event), events))
    }))
}

fn stream_fixture(preamble: &str) -> StreamFixture {
    let (events, receiver) = unbounded_channel();
    let (stop, activity) = (CancellationToken::new(), Arc::new(Activity::new()));
    let permits = StreamPermits::new(1);
    let context = StreamContext {
        heartbeat_interval: HEARTBEAT,
        stop: stop.clone(),
        activity: Arc::clone(&activity),
        permit: permits.try_acquire(None).ok(),
    };
    let body = StreamBody::new(event_stream(receiver), preamble.as_bytes().to_vec(), context);
    StreamFixture { body: ResponseBody::Stream(Box::new(body)), events, stop, activity, permits }
}

impl StreamFixture {
    async fn next(&mut self) -> Option<String> {
        let frame = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await?;
        let Ok(frame) = frame;
        Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
    }

    fn send_event(&self, event: &str) {
        self.events.send(event.as_bytes().to_vec()).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn preamble_comes_first_then_ready_events_in_one_chunk() {
    let mut fixture = stream_fixture("retry: 1000\n\n");
    fixture.send_event("one\n\n");
    fixture.send_event("two\n\n");
    assert_eq!(fixture.next().await.as_deref(), Some("retry: 1000\n\n"));
    assert_eq!(fixture.next().await.as_deref(), Some("one\n\ntwo\n\n"));
    assert!(!fixture.body.is_end_stream());
    assert_eq!(fixture.body.size_hint().exact(), None, "the length is unknown");
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_sends_heartbeats() {
    let mut fixture = stream_fixture("");
    let start = Instant::now();
    for beat in 1..=3 {
        assert_eq!(fixture.next().await.as_deref(), Some(": heartbeat\n\n"));
        assert_eq!(start.elapsed(), HEARTBEAT * beat);
    }
    tokio::time::advance(Duration::from_secs(10)).await;
    fixture.send_event("one\n\n");
    assert_eq!(fixture.next().await.as_deref(), Some("one\n\n"));
    let last_event = Instant::now();
    fixture.next().await;
    assert_eq!(last_event.elapsed(), HEARTBEAT, "an event resets the heartbeat timer");
}

#[tokio::test(start_paused = true)]
async fn shutdown_sends_ready_events_then_a_closing_comment() {
    let mut fixture = stream_fixture("");
    fixture.send_event("last\n\n");
    fixture.stop.cancel();
    assert_eq!(fixture.next().await.as_deref(), Some("last\n\n"));
    assert_eq!(fixture.next().await.as_deref(), Some(": daemon shutting down\n\n"));
    assert!(fixture.body.is_end_stream());
    assert_eq!(fixture.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn shutdown_wakes_a_waiting_stream() {
    let mut fixture = stream_fixture("");
    let stop = fixture.stop.clone();
    let start = Instant::now();
    let (ended, ()) = tokio::join!(fixture.next(), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        stop.cancel();
    });
    assert_eq!(ended.as_deref(), Some(": daemon shutting down\n\n"));
    assert_eq!(start.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_its_events_and_returns_its_permit() {
    let mut fixture = stream_fixture("");
    fixture.send_event("one\n\n");
    let (events, _) = unbounded_channel();
    drop(std::mem::replace(&mut fixture.events, events));
    assert_eq!(fixture.next().await.as_deref(), Some("one\n\n"));
    assert_eq!(fixture.next().await, None);
    assert!(fixture.body.is_end_stream());
    assert!(fixture.permits.try_acquire(None).is_err(), "the stream still has its permit");
    let start = Instant::now();
    tokio::time::advance(Duration::from_secs(60)).await;
    drop(fixture.body);
    assert!(fixture.permits.try_acquire(None).is_ok());
    fixture.activity.wait_idle(Duration::from_secs(10), || false).await;
    assert_eq!(start.elapsed(), Duration::from_secs(70), "the stream counted as active");
}

#[tokio::test(start_paused = true)]
async fn the_size_of_a_chunk_of_events_is_bounded() {
    let events = stream::iter((0..100).map(|_| Bytes::from_static(&[b'x'; 1024]))).boxed();
    let mut events = EventBytes::new(events);
    let mut sizes = Vec::new();
    while let Some(bytes) = poll_fn(|cx| events.poll_next(cx)).await {
        sizes.push(bytes.len());
    }
    assert_eq!(sizes.iter().sum::<usize>(), 100 * 1024);
    assert!(sizes.iter().all(|size| *size <= 17 * 1024), "{sizes:?}");
}

#[test]
fn a_complete_body_reports_its_length() {
    let body = ResponseBody::from(b"{}".to_vec());
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(2), false));
    assert!(ResponseBody::from(Vec::new()).is_end_stream());
}
