//! The accept loop and the life of a connection.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;

use super::http::{self, Shared};
use super::listener::{Connection, ModelListener};

const CONNECTIONS_MAX: usize = 512;

/// How long a connection may go without a request; longer than clients keep theirs.
const HEADER_TIMEOUT: Duration = Duration::from_secs(120);

/// How long to wait before trying again when the process has no file descriptor left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Takes connections; each runs in `tasks`.
pub(super) async fn accept_all(listener: &ModelListener, shared: &Arc<Shared>, tasks: &TaskTracker) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut number = 0;
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        number += 1;
        match listener.accept().await {
            Ok(Connection::Unix(stream)) => {
                drop(tasks.spawn(serve_connection(stream, Arc::clone(shared), number, place)))
            }
            Ok(Connection::Tcp(stream)) => {
                drop(tasks.spawn(serve_connection(stream, Arc::clone(shared), number, place)))
            }
            Err(fault) if is_peer_reset(&fault) => {
                tracing::debug!(%fault, "a connection ended before it began")
            }
            Err(fault) => {
                tracing::warn!(%fault, "cannot accept connections; trying again");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

/// A connection that was gone before it was taken is nobody's fault.
fn is_peer_reset(fault: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, InvalidInput, NotConnected};
    matches!(fault.kind(), ConnectionAborted | ConnectionReset | InvalidInput | NotConnected)
}

async fn serve_connection<S>(stream: S, shared: Arc<Shared>, number: u64, _place: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stop = shared.stop_token();
    let answer = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(http::handle(&shared, number, request).await) }
    });
    let mut settings = http1::Builder::new();
    // A client that closes its half is gone: only so is a job ended whose answer nobody waits for.
    settings.half_close(false).timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    let mut connection = pin!(settings.serve_connection(TokioIo::new(stream), answer));
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(fault) = ended {
        tracing::debug!(%fault, "a connection broke off");
    }
}
