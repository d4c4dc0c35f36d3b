//! What a connection buffers for a client that does not read.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use hyper::Response;
use rpc::EventBytes;
use tokio::io::AsyncWriteExt;

use super::*;
use crate::http::body::{ResponseBody, StreamBody, StreamContext};

/// An endless event stream that counts the bytes it has handed out.
fn endless_stream(taken: &Arc<AtomicUsize>) -> ResponseBody {
    let taken = Arc::clone(taken);
    let pieces = stream::repeat_with(move || {
        taken.fetch_add(8 * 1024, Ordering::Relaxed);
        Bytes::from_static(&[b'x'; 8 * 1024])
    });
    let context = StreamContext {
        heartbeat_interval: Duration::from_secs(15),
        stop: CancellationToken::new(),
        activity: Arc::default(),
        permit: None,
    };
    ResponseBody::Stream(Box::new(StreamBody::new(EventBytes::new(pieces), Vec::new(), context)))
}

#[tokio::test(start_paused = true)]
async fn a_silent_reader_costs_a_bounded_buffer() {
    let (mut client, server) = tokio::io::duplex(1024);
    let taken = Arc::new(AtomicUsize::new(0));
    let limits = Arc::new(HttpLimits::default());
    let settings = connection_settings(&limits);
    let validator = HeadValidator::new(server, limits, Arc::new(OnceLock::new()));
    let counter = Arc::clone(&taken);
    let service = service_fn(move |_| {
        let body = endless_stream(&counter);
        async move { Ok::<_, Infallible>(Response::new(body)) }
    });
    client.write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let serving = settings.serve_connection(TokioIo::new(validator), service);
    // The paused clock advances when the connection waits for its client.
    assert!(tokio::time::timeout(Duration::from_secs(1), serving).await.is_err(), "it waits for the client");
    let taken = taken.load(Ordering::Relaxed);
    assert!((8 * 1024..=64 * 1024).contains(&taken), "{taken} bytes");
}
