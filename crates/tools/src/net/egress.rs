//! Outgoing HTTP: checks a URL and every address it resolves to, dials exactly these addresses, and judges each redirect
//! like a new call. The only module of the room that opens sockets. Uses no proxy, no cookie store and no credentials
//! but those of the call.

mod body;
mod checked_url;
mod connection;
mod metered;
mod outgoing;
mod redirect;
mod resolver;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agent::permission::ConnectPermit;
use agent::{AgentId, PrincipalId, ToolOutcome};
use hyper::HeaderMap;
use rustls::ClientConfig;
use tokio::sync::Semaphore;

use self::checked_url::CheckedUrl;
pub(crate) use self::checked_url::RequestedUrl;
use self::connection::RawResponse;
pub(crate) use self::outgoing::OutgoingRequest;
pub use self::resolver::{Resolve, ResolvedAddresses, SystemResolver};
use crate::definition::execution_failed;

/// Limits of each request.
#[derive(Debug, Clone, Copy)]
pub struct NetworkLimits {
    /// For the whole call, with all redirects.
    pub total_timeout: Duration,
    /// For resolving a name, and for connecting to one address.
    pub connect_timeout: Duration,
    /// Between two parts of a response.
    pub idle_timeout: Duration,
    /// Bytes of a response on the wire.
    pub wire_bytes_max: usize,
    /// Bytes of a response's body after decompression.
    pub body_bytes_max: usize,
    /// Requests that run at the same time.
    pub concurrent_max: usize,
}

impl Default for NetworkLimits {
    fn default() -> Self {
        Self {
            total_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(15),
            wire_bytes_max: 10 << 20,
            body_bytes_max: 10 << 20,
            concurrent_max: 16,
        }
    }
}

/// How hosts are reached.
pub struct NetworkOptions {
    /// Limits of each request.
    pub limits: NetworkLimits,
    /// Resolves names.
    pub resolver: Arc<dyn Resolve>,
    /// Certificates that are trusted besides those of the system, as PEM; empty for none.
    pub extra_certificates: String,
}

impl Default for NetworkOptions {
    fn default() -> Self {
        Self {
            limits: NetworkLimits::default(),
            resolver: Arc::new(SystemResolver),
            extra_certificates: String::new(),
        }
    }
}

/// The HTTP client of all tools.
pub struct NetworkClient {
    limits: NetworkLimits,
    resolver: Arc<dyn Resolve>,
    extra_certificates: String,
    /// Created at the first request: loading the trusted roots would cost an idle daemon time and memory.
    tls: OnceLock<Arc<ClientConfig>>,
    /// The port on which this daemon listens. It is never dialled on this machine.
    own_port: OnceLock<u16>,
    permits: Semaphore,
}

impl Default for NetworkClient {
    fn default() -> Self {
        Self::new(NetworkOptions::default())
    }
}

impl NetworkClient {
    /// A client that has opened nothing yet.
    #[must_use]
    pub fn new(options: NetworkOptions) -> Self {
        let NetworkOptions { limits, resolver, extra_certificates } = options;
        let permits = Semaphore::new(limits.concurrent_max);
        Self {
            limits,
            resolver,
            extra_certificates,
            tls: OnceLock::new(),
            own_port: OnceLock::new(),
            permits,
        }
    }

    /// Forbids the daemon's own port on this machine, whatever a grant says. The first call counts.
    pub fn set_own_port(&self, port: u16) {
        // An error means that it is set already.
        let _ = self.own_port.set(port);
    }
}

/// A complete response.
pub(crate) struct FetchedResponse {
    /// The URL that answered, after redirects.
    pub(crate) url: String,
    pub(crate) status: u16,
    pub(crate) status_text: &'static str,
    pub(crate) headers: HeaderMap,
    /// The body, decompressed.
    pub(crate) body: Vec<u8>,
}

impl FetchedResponse {
    /// The value of a header; empty if it is absent or not text.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// A connection that the judge has permitted.
pub(crate) struct PermittedConnection {
    url: RequestedUrl,
    permit: ConnectPermit,
    principal: PrincipalId,
}

/// The largest number of redirects that are followed.
const REDIRECTS_MAX: usize = 5;

impl PermittedConnection {
    /// The connection of a permit to the URL of the same call.
    pub(crate) fn from_permit(
        permit: Option<ConnectPermit>,
        url: RequestedUrl,
        agent: AgentId,
    ) -> Result<Self, ToolOutcome> {
        match permit {
            Some(permit) if permit.destination() == url.destination() => {
                Ok(Self { url, permit, principal: PrincipalId::Agent(agent) })
            }
            _ => Err(ToolOutcome::Denied("Permission denied: no connection is permitted".to_owned())),
        }
    }

    /// Sends a request, follows redirects and reads the response.
    pub(crate) async fn fetch(
        self,
        client: &NetworkClient,
        request: OutgoingRequest,
    ) -> Result<FetchedResponse, ToolOutcome> {
        let total = client.limits.total_timeout;
        let fetching = Box::pin(self.follow(client, request));
        tokio::time::timeout(total, fetching).await.unwrap_or_else(|_| {
            Err(execution_failed(format!("no complete response within {} seconds", total.as_secs_f64())))
        })
    }

    async fn follow(
        self,
        client: &NetworkClient,
        mut request: OutgoingRequest,
    ) -> Result<FetchedResponse, ToolOutcome> {
        let _permit = client.permits.acquire().await.map_err(execution_failed)?;
        let mut url = self.url;
        for hop in 0..=REDIRECTS_MAX {
            let checked = client.check(url, &self.permit).await?;
            let response = client.exchange(&checked, &request, &self.principal).await?;
            let Some(target) = redirect::target(&checked, &response)? else {
                return complete(client, checked, response).await;
            };
            if hop == REDIRECTS_MAX {
                break;
            }
            request.redirect(response.status, &checked, &target)?;
            url = target;
        }
        Err(execution_failed(format!("more than {REDIRECTS_MAX} redirects")))
    }
}

async fn complete(
    client: &NetworkClient,
    url: CheckedUrl,
    response: RawResponse,
) -> Result<FetchedResponse, ToolOutcome> {
    let encoding = response.content_encoding()?;
    let body_bytes_max = client.limits.body_bytes_max;
    let body = body::decode(encoding, response.body, body_bytes_max).await?;
    Ok(FetchedResponse {
        url: url.into_string(),
        status: response.status.as_u16(),
        status_text: response.status.canonical_reason().unwrap_or_default(),
        headers: response.headers,
        body,
    })
}
