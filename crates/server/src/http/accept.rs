//! The accept loop and the life of a connection, up to a stop that lets answers under way be written.

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

/// How the door is set up.
#[derive(Debug, Clone, Default)]
pub struct HttpOptions {
    /// Pages that may call from a browser, spelled as the browser spells them.
    pub allowed_origins: Vec<String>,
    /// The token every request must carry; none lets everybody on this machine in.
    pub token: Option<String>,
    /// Sizes, counts and times.
    pub limits: HttpLimits,
}

/// An open HTTP door.
pub struct HttpDoor {
    shared: Arc<Shared>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// How long to wait before trying again when the process has no file descriptor left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Room for the largest head we take, beside what hyper adds.
const BUFFER_BYTES_MAX: usize = 128 * 1024;

impl HttpDoor {
    /// Starts accepting.
    ///
    /// # Errors
    /// When the socket cannot be watched.
    pub fn open(listener: Listener, desk: Dispatcher, options: HttpOptions) -> io::Result<Self> {
        let port = listener.address().port();
        let listener = TcpListener::from_std(listener.socket)?;
        let limits = Arc::new(options.limits);
        let shared = Arc::new(Shared {
            dispatcher: desk,
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

    /// Returns when no request has been under way for `time` and `in_use` says no.
    pub async fn wait_idle(&self, time: Duration, in_use: impl Fn() -> bool) {
        self.shared.activity.wait_idle(time, in_use).await;
    }

    /// How many requests have come so far.
    #[must_use]
    pub fn request_count(&self) -> u64 {
        self.shared.activity.request_count()
    }

    /// Stops accepting and closes idle connections; requests under way go on, event streams too.
    pub fn close(&self) {
        self.stop.cancel();
        self.tasks.close();
    }

    /// Ends event streams behind what there is to tell, and waits for the answers under way, at most `time`. Returns
    /// whether all were written. Only after [`HttpDoor::close`].
    pub async fn wait_closed(&self, time: Duration) -> bool {
        self.shared.streams_stop.cancel();
        tokio::time::timeout(time, self.tasks.wait()).await.is_ok()
    }
}

async fn accept_all(listener: TcpListener, shared: Arc<Shared>, stop: CancellationToken, tasks: TaskTracker) {
    let places = Arc::new(Semaphore::new(shared.limits.connections_max.min(Semaphore::MAX_PERMITS)));
    let mut connection = connection_settings(&shared.limits);
    connection.half_close(true);
    let mut failing = false;
    loop {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            () = stop.cancelled() => return,
            next = next => next,
        };
        match (accepted, place) {
            (Ok((socket, _)), Ok(place)) => {
                failing = false;
                // A token of its own: all connections waiting on one would meet at its lock at every request.
                let stop = stop.child_token();
                let run = serve_connection(socket, connection.clone(), Arc::clone(&shared), stop, place);
                tasks.spawn(run);
            }
            (Err(fault), _) if is_peer_reset(&fault) => {}
            (Err(fault), _) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(%fault, "cannot accept connections; trying again until it works");
                }
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
            (_, Err(_)) => return,
        }
    }
}

/// The settings the benchmark's bare server shares.
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

/// A connection that was gone before it was taken is nobody's fault.
fn is_peer_reset(fault: &io::Error) -> bool {
    matches!(fault.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
}

async fn serve_connection(
    socket: TcpStream,
    settings: http1::Builder,
    shared: Arc<Shared>,
    stop: CancellationToken,
    _place: OwnedSemaphorePermit,
) {
    if let Err(fault) = socket.set_nodelay(true) {
        tracing::debug!(%fault, "a connection ended before it began");
        return;
    }
    let slot = Arc::new(OnceLock::new());
    let gate = HeadValidator::new(socket, Arc::clone(&shared.limits), Arc::clone(&slot));
    // One count of its own for each connection: all cores counting requests on `shared` would wait for each other.
    let behind = Arc::new((shared, slot));
    let answer = service_fn(move |request| {
        let behind = Arc::clone(&behind);
        async move { Ok::<_, Infallible>(service::serve(&behind.0, &behind.1, request).await) }
    });
    let mut connection = pin!(settings.serve_connection(TokioIo::new(gate), answer));
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
