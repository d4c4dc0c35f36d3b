//! One request over one connection: dials a checked address, verifies the peer, speaks TLS and HTTP/1.1. Connections are
//! not reused, so that none outlives the check of its address.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use agent::permission::RemoteHost;
use agent::{PrincipalId, ToolOutcome};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, HOST, HeaderMap, HeaderValue, USER_AGENT,
};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use super::NetworkClient;
use super::body::ContentEncoding;
use super::checked_url::{CheckedUrl, RequestedUrl};
use super::metered::{ByteCounts, Metered};
use super::outgoing::OutgoingRequest;
use crate::definition::execution_failed;

/// A response whose body is not decompressed.
pub(super) struct RawResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl RawResponse {
    pub(super) fn content_encoding(&self) -> Result<ContentEncoding, ToolOutcome> {
        let mut values = self.headers.get_all(CONTENT_ENCODING).iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(ContentEncoding::Identity),
            (Some(value), None) => ContentEncoding::parse(value.to_str().unwrap_or_default()),
            (Some(_), Some(_)) => ContentEncoding::parse("several encodings"),
        }
    }
}

/// Addresses that are tried for one name.
const ATTEMPTS_MAX: usize = 4;

/// The most headers of a response, and the bytes of its head.
const HEADERS_MAX: usize = 128;
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Bytes of TLS and of the head, besides those of the body.
const OVERHEAD_BYTES_MAX: usize = 256 << 10;

const USER_AGENT_DEFAULT: &str = concat!("nexus3/", env!("CARGO_PKG_VERSION"));

impl NetworkClient {
    /// Sends a request to a checked URL and reads the response. Records the connection for the audit.
    pub(super) async fn exchange(
        &self,
        url: &CheckedUrl,
        request: &OutgoingRequest,
        principal: &PrincipalId,
    ) -> Result<RawResponse, ToolOutcome> {
        let stream = self.dial(url.addresses()).await?;
        let address = stream.peer_addr().map_err(execution_failed)?;
        let (stream, counts) = Metered::new(stream, self.limits.wire_bytes_max + OVERHEAD_BYTES_MAX);
        let mut egress = EgressRecord { url: url.requested(), address, principal, counts, status: None };
        if !url.requested().is_https() {
            return self.converse(stream, url, request).await.inspect(|response| egress.set_status(response));
        }
        let connecting = TlsConnector::from(self.tls()?).connect(server_name(url.requested())?, stream);
        let stream = within(self.limits.connect_timeout, "TLS", connecting).await?;
        self.converse(stream, url, request).await.inspect(|response| egress.set_status(response))
    }

    /// Connects to the first address that accepts. Only checked addresses get here.
    async fn dial(&self, addresses: &[SocketAddr]) -> Result<TcpStream, ToolOutcome> {
        let mut last = execution_failed("the host has no address");
        for address in addresses.iter().take(ATTEMPTS_MAX) {
            let what = format!("connecting to {address}");
            match within(self.limits.connect_timeout, &what, TcpStream::connect(address)).await {
                Ok(stream) if stream.peer_addr().is_ok_and(|peer| peer == *address) => {
                    // An error means that the connection has ended already, which reading it shows.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(_) => last = execution_failed(format!("{what}: the peer has another address")),
                Err(outcome) => last = outcome,
            }
        }
        Err(last)
    }

    async fn converse(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        url: &CheckedUrl,
        request: &OutgoingRequest,
    ) -> Result<RawResponse, ToolOutcome> {
        let mut builder = http1::Builder::new();
        builder.max_headers(HEADERS_MAX).max_buf_size(HEAD_BYTES_MAX);
        let (mut sender, connection) =
            builder.handshake(TokioIo::new(stream)).await.map_err(|fault| failed(&fault))?;
        // Ends with this call, also when the call is cancelled.
        let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
        let request = encode(url.requested(), request)?;
        let response = sender.send_request(request).await.map_err(|fault| failed(&fault))?;
        self.read(response).await
    }

    async fn read(&self, response: Response<Incoming>) -> Result<RawResponse, ToolOutcome> {
        let (head, mut incoming) = response.into_parts();
        let (idle, bytes_max) = (self.limits.idle_timeout, self.limits.wire_bytes_max);
        let mut body = Vec::new();
        loop {
            let frame = tokio::time::timeout(idle, incoming.frame()).await.map_err(|_| {
                execution_failed(format!("the response stalled for {} seconds", idle.as_secs_f64()))
            })?;
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|fault| failed(&fault))?;
            let Ok(bytes) = frame.into_data() else { continue };
            if body.len() + bytes.len() > bytes_max {
                return Err(execution_failed(format!("the response is larger than {bytes_max} bytes")));
            }
            body.extend_from_slice(&bytes);
        }
        Ok(RawResponse { status: head.status, headers: head.headers, body })
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, ToolOutcome> {
        if let Some(tls) = self.tls.get() {
            return Ok(Arc::clone(tls));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let extra = CertificateDer::pem_slice_iter(self.extra_certificates.as_bytes());
        let extra: Vec<_> = extra.collect::<Result<_, _>>().map_err(execution_failed)?;
        let fail = |fault: rustls::Error| execution_failed(format!("cannot prepare TLS: {fault}"));
        let verifier = rustls_platform_verifier::Verifier::new_with_extra_roots(extra, Arc::clone(&provider));
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(fail)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier.map_err(fail)?))
            .with_no_client_auth();
        Ok(Arc::clone(self.tls.get_or_init(|| Arc::new(config))))
    }
}

/// Writes the request with the headers that the client sets.
fn encode(url: &RequestedUrl, request: &OutgoingRequest) -> Result<Request<Full<Bytes>>, ToolOutcome> {
    let body = Full::new(request.body.clone());
    let mut encoded = Request::builder()
        .method(request.method.clone())
        .uri(url.path_and_query())
        .body(body)
        .map_err(|fault| execution_failed(format!("the URL cannot be requested: {fault}")))?;
    let headers = encoded.headers_mut();
    headers.insert(HOST, HeaderValue::from_str(&url.host_header()).map_err(execution_failed)?);
    headers.insert(USER_AGENT, HeaderValue::from_static(USER_AGENT_DEFAULT));
    headers.extend(request.headers.clone());
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip, deflate"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(encoded)
}

fn server_name(url: &RequestedUrl) -> Result<ServerName<'static>, ToolOutcome> {
    match &url.destination().host {
        RemoteHost::Address(address) => Ok(ServerName::from(*address)),
        RemoteHost::Name(name) => ServerName::try_from(name.to_string()).map_err(execution_failed),
    }
}

async fn within<T, E: std::fmt::Display>(
    limit: Duration,
    what: &str,
    operation: impl Future<Output = Result<T, E>>,
) -> Result<T, ToolOutcome> {
    match tokio::time::timeout(limit, operation).await {
        Ok(result) => result.map_err(|fault| execution_failed(format!("{what} failed: {fault}"))),
        Err(_) => {
            Err(execution_failed(format!("{what} failed: no answer within {} seconds", limit.as_secs_f64())))
        }
    }
}

/// The fault with its cause, which says more.
fn failed(fault: &hyper::Error) -> ToolOutcome {
    let cause = std::error::Error::source(fault).map(|cause| format!(": {cause}")).unwrap_or_default();
    execution_failed(format!("the request failed: {fault}{cause}"))
}

/// What left this machine and where it went, for the audit: written at the end of the connection, however it ends.
struct EgressRecord<'a> {
    url: &'a RequestedUrl,
    address: SocketAddr,
    principal: &'a PrincipalId,
    counts: Arc<ByteCounts>,
    /// None without a complete response.
    status: Option<u16>,
}

impl EgressRecord<'_> {
    fn set_status(&mut self, response: &RawResponse) {
        self.status = Some(response.status.as_u16());
    }
}

impl Drop for EgressRecord<'_> {
    fn drop(&mut self) {
        tracing::info!(
            target: "nexus3::audit",
            event = "egress",
            principal = %self.principal,
            host = %self.url.destination(),
            address = %self.address,
            status = self.status,
            bytes_sent = self.counts.sent(),
            bytes_received = self.counts.received(),
            "connected"
        );
    }
}
