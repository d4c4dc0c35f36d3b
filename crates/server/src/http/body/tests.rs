//! A stream's body by the clock: what it says when there is nothing to say, and how it ends.

use std::future::poll_fn;

use futures_util::{StreamExt, stream};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;

const HEARTBEAT: Duration = Duration::from_secs(15);

struct StreamFixture {
    body: ResponseBody,
    events: UnboundedSender<Vec<u8>>,
    stop: CancellationToken,
    activity: Arc<Activity>,
    permits: Arc<Semaphore>,
}

fn event_stream(events: UnboundedReceiver<Vec<u8>>) -> EventBytes {
    EventBytes::new(stream::unfold(events, |mut events| async move {
        events.recv().await.map(|piece| (piece, events))
    }))
}

fn stream_fixture(opening: &str) -> StreamFixture {
    let (events, told) = unbounded_channel();
    let (stop, activity) = (CancellationToken::new(), Arc::new(Activity::new()));
    let places = Arc::new(Semaphore::new(1));
    let terms = StreamContext {
        heartbeat_interval: HEARTBEAT,
        stop: stop.clone(),
        activity: Arc::clone(&activity),
        permit: Arc::clone(&places).try_acquire_owned().ok(),
    };
    let body = StreamBody::new(event_stream(told), opening.as_bytes().to_vec(), terms);
    StreamFixture { body: ResponseBody::Stream(Box::new(body)), events, stop, activity, permits: places }
}

impl StreamFixture {
    async fn next(&mut self) -> Option<String> {
        let frame = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await?;
        let Ok(frame) = frame;
        Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
    }

    fn send_event(&self, piece: &str) {
        self.events.send(piece.as_bytes().to_vec()).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_opening_comes_first_and_what_is_ready_comes_together() {
    let mut stage = stream_fixture("retry: 1000\n\n");
    stage.send_event("one\n\n");
    stage.send_event("two\n\n");
    assert_eq!(stage.next().await.as_deref(), Some("retry: 1000\n\n"));
    assert_eq!(stage.next().await.as_deref(), Some("one\n\ntwo\n\n"));
    assert!(!stage.body.is_end_stream());
    assert_eq!(stage.body.size_hint().exact(), None, "it is sent in chunks");
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_says_that_it_is_still_there() {
    let mut stage = stream_fixture("");
    let start = Instant::now();
    for beat in 1..=3 {
        assert_eq!(stage.next().await.as_deref(), Some(": still here\n\n"));
        assert_eq!(start.elapsed(), HEARTBEAT * beat);
    }
    tokio::time::advance(Duration::from_secs(10)).await;
    stage.send_event("one\n\n");
    assert_eq!(stage.next().await.as_deref(), Some("one\n\n"));
    let told = Instant::now();
    stage.next().await;
    assert_eq!(told.elapsed(), HEARTBEAT, "an event puts the next comment off");
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_what_is_ready_out_and_then_says_why_it_ends() {
    let mut stage = stream_fixture("");
    stage.send_event("last\n\n");
    stage.stop.cancel();
    assert_eq!(stage.next().await.as_deref(), Some("last\n\n"));
    assert_eq!(stage.next().await.as_deref(), Some(": the daemon stops\n\n"));
    assert!(stage.body.is_end_stream());
    assert_eq!(stage.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_stop_wakes_a_stream_that_waits() {
    let mut stage = stream_fixture("");
    let stop = stage.stop.clone();
    let start = Instant::now();
    let (ended, ()) = tokio::join!(stage.next(), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        stop.cancel();
    });
    assert_eq!(ended.as_deref(), Some(": the daemon stops\n\n"));
    assert_eq!(start.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_its_events_and_gives_its_place_back() {
    let mut stage = stream_fixture("");
    stage.send_event("one\n\n");
    let (events, _) = unbounded_channel();
    drop(std::mem::replace(&mut stage.events, events));
    assert_eq!(stage.next().await.as_deref(), Some("one\n\n"));
    assert_eq!(stage.next().await, None);
    assert!(stage.body.is_end_stream());
    assert_eq!(stage.permits.available_permits(), 0);
    let start = Instant::now();
    tokio::time::advance(Duration::from_secs(60)).await;
    drop(stage.body);
    assert_eq!(stage.permits.available_permits(), 1);
    stage.activity.wait_idle(Duration::from_secs(10), || false).await;
    assert_eq!(start.elapsed(), Duration::from_secs(70), "it was in use until then");
}

#[tokio::test(start_paused = true)]
async fn many_events_are_not_gathered_without_end() {
    let events = stream::iter((0..100).map(|_| vec![b'x'; 1024])).boxed();
    let mut events = EventBytes::new(events);
    let mut sizes = Vec::new();
    while let Some(bytes) = poll_fn(|cx| events.poll_next(cx)).await {
        sizes.push(bytes.len());
    }
    assert_eq!(sizes.iter().sum::<usize>(), 100 * 1024);
    assert!(sizes.iter().all(|size| *size <= 17 * 1024), "{sizes:?}");
}

#[test]
fn a_whole_body_is_as_long_as_it_says() {
    let body = ResponseBody::from(b"{}".to_vec());
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(2), false));
    assert!(ResponseBody::from(Vec::new()).is_end_stream());
}
