//! Accept loop, and HTTP/1 serving of each connection.

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

/// Time limit for receiving a request head, which also closes idle connections; longer than clients' own keep-alive.
const HEADER_TIMEOUT: Duration = Duration::from_secs(120);

/// Pause before the next `accept` after a failure, for example when the process is out of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Accepts connections and serves each as a task of `tasks`.
pub(super) async fn accept_all(listener: &ModelListener, shared: &Arc<Shared>, tasks: &TaskTracker) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut number = 0;
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
            return;
        };
        number += 1;
        match listener.accept().await {
            Ok(Connection::Unix(stream)) => {
                drop(tasks.spawn(serve_connection(stream, Arc::clone(shared), number, permit)));
            }
            Ok(Connection::Tcp(stream)) => {
                drop(tasks.spawn(serve_connection(stream, Arc::clone(shared), number, permit)));
            }
            Err(fault) if is_peer_reset(&fault) => {
                tracing::debug!(%fault, "connection aborted before accept");
            }
            Err(fault) => {
                tracing::warn!(%fault, "accept failed; retrying");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

/// Whether `accept` failed because of the peer: it closed the connection early, or `ModelListener` rejected its user.
/// That is not a failure of the server.
fn is_peer_reset(fault: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, InvalidInput, NotConnected};
    matches!(fault.kind(), ConnectionAborted | ConnectionReset | InvalidInput | NotConnected)
}

async fn serve_connection<S>(stream: S, shared: Arc<Shared>, number: u64, _permit: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stop = shared.stop_token();
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
