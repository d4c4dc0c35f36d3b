//! The HTTP transport: its options, and the lifecycle of a connection, up to a graceful shutdown that lets pending
//! responses be written.

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::{Arc, OnceLock};

use accept::{AcceptLoop, Activity};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rpc::Dispatcher;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::auth::Auth;
use super::head_validator::HeadValidator;
use super::limits::HttpLimits;
use super::service::{self, Shared};
use super::stream_permits::StreamPermits;
use crate::doors::{OpenDoor, Transport};
use crate::listen::Listener;

/// Options of the HTTP transport.
#[derive(Debug, Clone, Default)]
pub struct HttpOptions {
    /// Web origins that may call from a browser, exactly as browsers send them.
    pub allowed_origins: Vec<String>,
    /// Token that every request must carry; `None` accepts every program on this machine.
    pub token: Option<String>,
    /// Limits on sizes, counts and times.
    pub limits: HttpLimits,
}

/// The HTTP transport.
pub struct HttpTransport {
    listener: Listener,
    options: HttpOptions,
}

/// The smallest buffer that hyper accepts.
const BUFFER_BYTES_MIN: usize = 8 * 1024;

/// Size of hyper's buffers beyond the largest accepted head.
const BUFFER_HEADROOM_BYTES: usize = 1024;

impl HttpTransport {
    /// Creates the transport for a bound listener.
    #[must_use]
    pub fn new(listener: Listener, options: HttpOptions) -> Self {
        Self { listener, options }
    }
}

impl Transport for HttpTransport {
    fn address(&self) -> String {
        self.listener.address().to_string()
    }

    fn open(self: Box<Self>, dispatcher: Dispatcher, activity: Arc<Activity>) -> io::Result<OpenDoor> {
        let HttpTransport { listener, options } = *self;
        let limits = Arc::new(options.limits);
        let shared = Arc::new(Shared {
            dispatcher,
            auth: Auth::new(options.allowed_origins, options.token),
            stream_permits: StreamPermits::new(limits.event_streams_max),
            streams_stop: CancellationToken::new(),
            limits,
            activity,
        });
        let streams_stop = shared.streams_stop.clone();
        let mut settings = connection_settings(&shared.limits);
        settings.half_close(true);
        let connections_max = shared.limits.connections_max;
        let connections = AcceptLoop::start(listener.into_async()?, connections_max, move |socket, stop| {
            serve_connection(socket, settings.clone(), Arc::clone(&shared), stop)
        });
        Ok(OpenDoor { connections, streams_stop })
    }
}

/// Connection settings of hyper. The buffers hold the largest accepted head and not more: a client that does not read
/// its event stream costs a full write buffer and one piece of an event. The benchmark baseline `examples/floor.rs` uses the same.
fn connection_settings(limits: &HttpLimits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .keep_alive(true)
        .title_case_headers(true)
        .auto_date_header(false)
        .max_buf_size(
            BUFFER_BYTES_MIN
                .max(limits.head_bytes_max + limits.request_line_bytes_max + BUFFER_HEADROOM_BYTES),
        )
        .max_headers(limits.headers_max);
    builder
}

async fn serve_connection(
    socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    settings: http1::Builder,
    shared: Arc<Shared>,
    stop: CancellationToken,
) {
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
