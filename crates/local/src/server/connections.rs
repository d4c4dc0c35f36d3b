//! HTTP/1 serving of each accepted connection.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use accept::{AcceptLoop, Listen};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::http::{self, Shared};
use super::listener::{Connection, ModelListener};

const CONNECTIONS_MAX: usize = 512;

/// Time limit for receiving a request head, which also closes idle connections; longer than clients' own keep-alive.
const HEADER_TIMEOUT: Duration = Duration::from_secs(120);

/// The listener of an accept loop.
struct Connections(ModelListener);

impl Listen for Connections {
    type Connection = Connection;

    async fn accept(&self) -> io::Result<Connection> {
        self.0.accept().await
    }
}

/// Accepts connections and serves each as a task.
pub(super) fn start(listener: ModelListener, shared: Arc<Shared>) -> AcceptLoop {
    let last_number = AtomicU64::new(0);
    AcceptLoop::start(Connections(listener), CONNECTIONS_MAX, move |connection, stop| {
        let (shared, number) = (Arc::clone(&shared), last_number.fetch_add(1, Ordering::Relaxed) + 1);
        async move {
            match connection {
                Connection::Unix(stream) => serve_connection(stream, shared, number, stop).await,
                Connection::Tcp(stream) => serve_connection(stream, shared, number, stop).await,
            }
        }
    })
}

async fn serve_connection<S>(stream: S, shared: Arc<Shared>, number: u64, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(http::handle(&shared, number, request).await) }
    });
    let mut builder = http1::Builder::new();
    // A half-closed connection counts as closed; otherwise a job would run on after its client has disconnected.
    builder.half_close(false).timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let result = tokio::select! {
        biased;
        result = connection.as_mut() => result,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(fault) = result {
        tracing::debug!(%fault, "connection failed");
    }
}
