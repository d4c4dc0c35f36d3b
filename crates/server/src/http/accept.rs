//! The accept loop and the lifecycle of a connection, up to a graceful shutdown that lets pending responses be written.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rpc::Dispatcher;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::activity::Activity;
use super::auth::Auth;
use super::head_validator::HeadValidator;
use super::limits::HttpLimits;
use super::service::{self, Shared};
use crate::listen::Listener;

/// Options of the HTTP door.
#[derive(Debug, Clone, Default)]
pub struct HttpOptions {
    /// Web origins that may call from a browser, exactly as browsers send them.
    pub allowed_origins: Vec<String>,
    /// Token that every request must carry; `None` accepts every program on this machine.
    pub token: Option<String>,
    /// Limits on sizes, counts and times.
    pub limits: HttpLimits,
}

/// An open HTTP door.
pub struct HttpDoor {
    shared: Arc<Shared>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// Delay before accepting again after an error, such as no free file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Limit of hyper's read buffer. Larger limits on heads raise it: the buffer must hold the largest accepted head.
const BUFFER_BYTES_MAX: usize = 128 * 1024;

impl HttpDoor {
    /// Starts accepting connections.
    ///
    /// # Errors
    /// When the socket cannot be registered with the async runtime.
    pub fn open(listener: Listener, dispatcher: Dispatcher, options: HttpOptions) -> io::Result<Self> {
        let port = listener.address().port();
        let listener = TcpListener::from_std(listener.socket)?;
        let limits = Arc::new(options.limits);
        let shared = Arc::new(Shared {
            dispatcher,
            auth: Auth::new(port, options.allowed_origins, options.token),
            event_stream_permits: Arc::new(Semaphore::new(
                limits.event_streams_max.min(Semaphore::MAX_PERMITS),
            )),
            streams_stop: CancellationToken::new(),
            limits,
            activity: Arc::new(Activity::new()),
        });
        let door = Self { shared, stop: CancellationToken::new(), tasks: TaskTracker::new() };
        door.tasks.spawn(accept_all(
            listener,
            Arc::clone(&door.shared),
            door.stop.clone(),
            door.tasks.clone(),
        ));
        Ok(door)
    }

    /// Returns when no request has been in flight for `time` and `in_use` is false.
    pub async fn wait_idle(&self, time: Duration, in_use: impl Fn() -> bool) {
        self.shared.activity.wait_idle(time, in_use).await;
    }

    /// Stops accepting and closes idle connections; requests in flight and event streams continue.
    pub fn close(&self) {
        self.stop.cancel();
        self.tasks.close();
    }

    /// Ends event streams after their ready events and waits at most `time` for pending responses. Returns whether all
    /// were written. Call [`HttpDoor::close`] first.
    pub async fn wait_closed(&self, time: Duration) -> bool {
        self.shared.streams_stop.cancel();
        tokio::time::timeout(time, self.tasks.wait()).await.is_ok()
    }
}

async fn accept_all(listener: TcpListener, shared: Arc<Shared>, stop: CancellationToken, tasks: TaskTracker) {
    let permits = Arc::new(Semaphore::new(shared.limits.connections_max.min(Semaphore::MAX_PERMITS)));
    let mut settings = connection_settings(&shared.limits);
    settings.half_close(true);
    let mut is_failing = false;
    loop {
        let next = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            () = stop.cancelled() => return,
            next = next => next,
        };
        match (accepted, permit) {
            (Ok((socket, _)), Ok(permit)) => {
                is_failing = false;
                // A child token per connection: a shared one would be a contended lock at every request.
                let stop = stop.child_token();
                tasks.spawn(serve_connection(socket, settings.clone(), Arc::clone(&shared), stop, permit));
            }
            (Err(fault), _) if is_peer_reset(&fault) => {}
            (Err(fault), _) => {
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::warn!(%fault, "cannot accept connections; retrying");
                }
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
            (_, Err(_)) => return,
        }
    }
}

/// Connection settings of hyper. The benchmark baseline `examples/floor.rs` uses the same.
fn connection_settings(limits: &HttpLimits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .keep_alive(true)
        .title_case_headers(true)
        .auto_date_header(false)
        .max_buf_size(BUFFER_BYTES_MAX.max(limits.head_bytes_max + limits.request_line_bytes_max + 1024))
        .max_headers(limits.headers_max);
    builder
}

/// Whether the peer closed the connection before it was accepted, which is not an error.
fn is_peer_reset(fault: &io::Error) -> bool {
    matches!(fault.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
}

async fn serve_connection(
    socket: TcpStream,
    settings: http1::Builder,
    shared: Arc<Shared>,
    stop: CancellationToken,
    _permit: OwnedSemaphorePermit,
) {
    if let Err(fault) = socket.set_nodelay(true) {
        tracing::debug!(%fault, "cannot configure a connection");
        return;
    }
    let slot = Arc::new(OnceLock::new());
    let validator = HeadValidator::new(socket, Arc::clone(&shared.limits), Arc::clone(&slot));
    // An Arc per connection: cloning `shared` for every request would contend for its reference count.
    let context = Arc::new((shared, slot));
    let service = service_fn(move |request| {
        let context = Arc::clone(&context);
        async move { Ok::<_, Infallible>(service::serve(&context.0, &context.1, request).await) }
    });
    let mut connection = pin!(settings.serve_connection(TokioIo::new(validator), service));
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(fault) = ended {
        tracing::debug!(%fault, "connection failed");
    }
}
