//! HTTP endpoint of one provider: base URL, key, headers and connections. Sends one request and returns the response
//! head or a classified error. Retries are left to `remote`, decoding to the dialects.

mod base_url;
mod body;
mod connect_error;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use agent::{Fault, FaultKind, KnownSecrets};
use bytes::Bytes;
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

pub(crate) use self::base_url::{BaseUrl, is_loopback};
use self::body::SharedBody;
use self::connect_error::ConnectFailure;
use crate::error_class::{ErrorClass, ModelError};
use crate::fair_queue::{FairQueue, QueueLimits};
use crate::retry_policy::{RetryPolicy, retry_after};
use crate::secret::{KeySource, Secret};

/// Longest part of an error body that is passed on.
const ERROR_BYTES_MAX: usize = 10_000;

/// How the key is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AuthScheme {
    /// `Authorization: Bearer KEY`.
    #[default]
    Bearer,
    /// `api-key: KEY`.
    ApiKey,
    /// `x-api-key: KEY`.
    XApiKey,
    /// The key is not sent.
    None,
}

/// Options of an endpoint.
#[derive(Debug, Clone, Default)]
pub(crate) struct EndpointOptions {
    /// Provider name.
    pub(crate) name: String,
    /// Base URL of the API.
    pub(crate) base_url: String,
    /// Setting or variable that the base URL comes from, for errors.
    pub(crate) base_url_name: String,
    /// Source of the key.
    pub(crate) key: KeySource,
    /// Gets the key when it is read.
    pub(crate) known_secrets: Arc<KnownSecrets>,
    /// How the key is sent.
    pub(crate) auth: AuthScheme,
    /// Additional request headers.
    pub(crate) headers: Vec<(String, Secret)>,
    /// Query parameters of every URL.
    pub(crate) query: Vec<(String, String)>,
    /// PEM certificates to trust in addition to the system's.
    pub(crate) ca_file: Option<PathBuf>,
    /// Whether plain http to other machines is allowed.
    pub(crate) allow_insecure_http: bool,
    /// Unix socket to use instead of the URL's host.
    pub(crate) socket: Option<PathBuf>,
    /// Timeouts and retry limit.
    pub(crate) retry_policy: RetryPolicy,
    /// Limits of the request queue.
    pub(crate) queue_limits: QueueLimits,
}

/// HTTP endpoint of one provider.
#[derive(Debug)]
pub(crate) struct Endpoint {
    name: String,
    pub(crate) base_url: BaseUrl,
    pub(crate) retry_policy: RetryPolicy,
    pub(crate) queue: Arc<FairQueue>,
    key_source: KeySource,
    known_secrets: Arc<KnownSecrets>,
    /// The key as last read; none before the first request.
    cached_key: RwLock<Option<Arc<Secret>>>,
    /// Serializes reads of the key and holds the last failure, which waiting requests share.
    key_read_lock: tokio::sync::Mutex<Option<Fault>>,
    /// Number of reads of the key.
    key_reads: AtomicU64,
    auth: AuthScheme,
    headers: HeaderMap,
    /// Values of the additional headers, redacted like keys.
    header_values: Vec<Secret>,
    ca_file: Option<PathBuf>,
    socket: Option<PathBuf>,
    /// Created at the first request: loading the trusted roots would cost an idle daemon time and memory.
    http: OnceLock<reqwest::Client>,
}

/// Parts of one HTTP request.
pub(crate) struct OutgoingRequest<'s> {
    pub(crate) url: &'s reqwest::Url,
    pub(crate) body: &'s [Bytes],
    /// Headers that the API requires.
    pub(crate) headers: &'static [(&'static str, &'static str)],
    /// Headers of this request only.
    pub(crate) request_headers: &'s [(&'static str, String)],
}

impl Endpoint {
    /// Creates an endpoint after validating the options; sends nothing.
    pub(crate) fn new(options: EndpointOptions) -> Result<Arc<Self>, Fault> {
        let base_url = BaseUrl::parse(&options)?;
        let mut headers = HeaderMap::new();
        for (name, value) in &options.headers {
            let (name, value) = parse_header(&options.name, name, value.expose())?;
            headers.insert(name, value);
        }
        Ok(Arc::new(Self {
            base_url,
            headers,
            queue: FairQueue::new(&options.name, options.queue_limits),
            name: options.name,
            retry_policy: options.retry_policy,
            key_source: options.key,
            known_secrets: options.known_secrets,
            cached_key: RwLock::default(),
            key_read_lock: tokio::sync::Mutex::default(),
            key_reads: AtomicU64::new(0),
            header_values: options.headers.into_iter().map(|(_, value)| value).collect(),
            auth: options.auth,
            ca_file: options.ca_file,
            socket: options.socket,
            http: OnceLock::new(),
        }))
    }

    /// Returns the key, read at the first request, and again if the cached one was refused.
    async fn current_key(&self, refused: Option<&Secret>) -> Result<Option<Arc<Secret>>, Fault> {
        let is_usable = |key: &Arc<Secret>| Some(&**key) != refused;
        if let Some(key) = self.cached_key().filter(is_usable) {
            return Ok(Some(key));
        }
        let reads = self.key_reads.load(Ordering::Acquire);
        let mut last_failure = self.key_read_lock.lock().await;
        if let Some(key) = self.cached_key().filter(is_usable) {
            return Ok(Some(key));
        }
        // Requests that waited share its failure, so that a hanging `key_command` is not run again for each of them.
        if let Some(fault) = last_failure.clone().filter(|_| self.key_reads.load(Ordering::Acquire) != reads)
        {
            return Err(fault);
        }
        let read = self.key_source.read().await;
        *last_failure = read.as_ref().err().cloned();
        self.key_reads.fetch_add(1, Ordering::AcqRel);
        let key = read?.map(Arc::new);
        if let Some(key) = &key {
            self.known_secrets.add(key.expose());
        }
        self.cached_key.write().unwrap_or_else(PoisonError::into_inner).clone_from(&key);
        Ok(key)
    }

    fn http(&self) -> Result<&reqwest::Client, Fault> {
        if let Some(http) = self.http.get() {
            return Ok(http);
        }
        // An error means that a crypto provider is already installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .connect_timeout(self.retry_policy.connect_timeout)
            .tcp_nodelay(true)
            .redirect(reqwest::redirect::Policy::none())
            // `remote` decides about retries and counts them.
            .retry(reqwest::retry::never())
            .no_proxy();
        if let Some(path) = &self.ca_file {
            builder = builder.tls_certs_merge(read_certificates(path)?);
        }
        if let Some(path) = &self.socket {
            // A pooled connection to an exited child would fail the request; a new one is cheap.
            builder = builder.unix_socket(path.as_path()).pool_max_idle_per_host(0);
        }
        let client = builder.build();
        let http = client.map_err(|fault| {
            Fault::new(FaultKind::Internal, "cannot create an HTTP client").caused_by(error_chain(&fault))
        })?;
        Ok(self.http.get_or_init(|| http))
    }

    /// Sends a request once and returns its successful response head. After a 401, a key from a file or a command is
    /// read again, and the request is repeated if the key has changed.
    pub(crate) async fn send(&self, request: OutgoingRequest<'_>) -> Result<reqwest::Response, ModelError> {
        let refused_error = |fault| ModelError::new(ErrorClass::Refused, fault);
        let key = self.current_key(None).await.map_err(refused_error)?;
        let mut response = self.post(&request, key.as_deref()).await?;
        if response.status() == StatusCode::UNAUTHORIZED && self.key_source.may_change() {
            let new_key = self.current_key(key.as_deref()).await.map_err(refused_error)?;
            if new_key != key {
                response = self.post(&request, new_key.as_deref()).await?;
            }
        }
        if response.status().is_success() { Ok(response) } else { Err(self.status_error(response).await) }
    }

    async fn post(
        &self,
        request: &OutgoingRequest<'_>,
        key: Option<&Secret>,
    ) -> Result<reqwest::Response, ModelError> {
        let refused_error = |fault| ModelError::new(ErrorClass::Refused, fault);
        let mut post = self.http().map_err(refused_error)?.post(request.url.clone());
        post = post.header("Content-Type", "application/json").headers(self.headers.clone());
        for (name, value) in request.headers {
            post = post.header(*name, *value);
        }
        for (name, value) in request.request_headers {
            post = post.header(*name, value);
        }
        post = match (self.auth, key) {
            (_, None) | (AuthScheme::None, _) => post,
            (AuthScheme::Bearer, Some(key)) => post.bearer_auth(key.expose()),
            (AuthScheme::ApiKey, Some(key)) => post.header("api-key", sensitive_header(key)),
            (AuthScheme::XApiKey, Some(key)) => post.header("x-api-key", sensitive_header(key)),
        };
        let sent = post.body(SharedBody::wrap(request.body)).send();
        match tokio::time::timeout(self.retry_policy.first_byte_timeout, sent).await {
            Err(_) => Err(self.timeout_error()),
            // The query of the URL may contain a key.
            Ok(Err(fault)) => Err(self.connect_error(&fault.without_url())),
            Ok(Ok(response)) => Ok(response),
        }
    }

    /// Returns the builder of a GET request without a key.
    pub(crate) fn get(&self, url: reqwest::Url) -> Result<reqwest::RequestBuilder, Fault> {
        Ok(self.http()?.get(url))
    }

    fn connect_error(&self, fault: &reqwest::Error) -> ModelError {
        let (provider, host) = (self.name.as_str(), self.base_url.host());
        ConnectFailure { provider, host: &host }.to_model_error(fault)
    }

    fn timeout_error(&self) -> ModelError {
        let seconds = self.retry_policy.first_byte_timeout.as_secs_f64();
        ModelError::unavailable("API request timed out", format!("no response in {seconds} s"))
    }

    async fn status_error(&self, mut response: reqwest::Response) -> ModelError {
        let status = response.status().as_u16();
        let wait = retry_after(response.headers(), jiff::Timestamp::now());
        let mut body = Vec::new();
        // Read past the limit, so that a key that straddles it is complete and can be redacted.
        let key = self.cached_key();
        let secrets = self.header_values.iter().chain(key.as_deref());
        let enough = ERROR_BYTES_MAX + secrets.map(|secret| secret.expose().len()).max().unwrap_or_default();
        while body.len() < enough {
            match tokio::time::timeout(self.retry_policy.idle_timeout, response.chunk()).await {
                Ok(Ok(Some(bytes))) => body.extend_from_slice(&bytes),
                Ok(Ok(None) | Err(_)) | Err(_) => break,
            }
        }
        let body = self.redact_and_truncate(&String::from_utf8_lossy(&body));
        tracing::debug!(target: "nexus3::raw", direction = "response", status, body = %body);
        ModelError::from_status(status, &body, wait)
    }

    fn cached_key(&self) -> Option<Arc<Secret>> {
        self.cached_key.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Redacts and truncates the texts of a fault.
    pub(crate) fn redact_fault(&self, fault: Fault) -> Fault {
        let cause = fault.cause.map(|cause| self.redact_and_truncate(&cause));
        Fault { kind: fault.kind, public: self.redact_and_truncate(&fault.public).into(), cause }
    }

    /// Removes the key and header values, which some servers echo, from a server's text.
    pub(crate) fn redact(&self, text: &str) -> String {
        let key = self.cached_key();
        let secrets = self.header_values.iter().chain(key.as_deref());
        secrets.fold(text.to_owned(), |text, secret| secret.redact_from(&text))
    }

    /// Redacts a server's text and bounds its length.
    fn redact_and_truncate(&self, text: &str) -> String {
        let mut text = self.redact(text);
        text.truncate(text.floor_char_boundary(ERROR_BYTES_MAX));
        text
    }
}

/// Headers that control HTTP framing and the connection; overriding them would break requests.
const FRAMING_HEADERS: &[&str] =
    &["connection", "content-length", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade"];

fn parse_header(provider: &str, name: &str, value: &str) -> Result<(HeaderName, HeaderValue), Fault> {
    let invalid = || {
        let text = format!("provider {provider}: the header {name:?} has an invalid name or value");
        Fault::new(FaultKind::Invalid, text)
    };
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
    if FRAMING_HEADERS.contains(&name.as_str()) {
        let text = format!("provider {provider}: the header {name:?} is set by the HTTP client; remove it");
        return Err(Fault::new(FaultKind::Invalid, text));
    }
    let mut value = HeaderValue::from_str(value).map_err(|_| invalid())?;
    // The value may be a key.
    value.set_sensitive(true);
    Ok((name, value))
}

/// Converts the key to a header value. `Secret::check` has already validated its bytes.
fn sensitive_header(key: &Secret) -> HeaderValue {
    let mut value = HeaderValue::from_str(key.expose()).unwrap_or(HeaderValue::from_static(""));
    value.set_sensitive(true);
    value
}

fn read_certificates(path: &std::path::Path) -> Result<Vec<reqwest::Certificate>, Fault> {
    let shown = path.display();
    let invalid = |why: String| Fault::new(FaultKind::Invalid, format!("ca_file {shown} {why}"));
    let text = std::fs::read(path).map_err(|fault| invalid(format!("cannot be read: {fault}")))?;
    let found = reqwest::Certificate::from_pem_bundle(&text);
    let found = found.map_err(|fault| invalid(format!("holds no certificates: {}", error_chain(&fault))))?;
    if found.is_empty() { Err(invalid("holds no certificates".to_owned())) } else { Ok(found) }
}

/// Joins the messages of an error and its sources.
pub(crate) fn error_chain(fault: &dyn std::error::Error) -> String {
    let mut text = fault.to_string();
    let mut next = fault.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
