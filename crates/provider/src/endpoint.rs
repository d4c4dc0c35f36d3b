//! One provider's server: its address, key, headers and connections. Sends one question and hands back the head of the
//! answer, or why there is none. When to ask again and how an answer is read is left to others.

mod base_url;
mod body;
mod connect_error;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use agent::{Fault, FaultKind};
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

/// The most of an error's text that is passed on.
const ERROR_BYTES_MAX: usize = 10_000;

/// How the key travels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AuthScheme {
    /// `Authorization: Bearer KEY`.
    #[default]
    Bearer,
    /// `api-key: KEY`.
    ApiKey,
    /// `x-api-key: KEY`.
    XApiKey,
    /// Not at all.
    None,
}

/// How to reach a provider.
#[derive(Debug, Clone, Default)]
pub(crate) struct EndpointOptions {
    /// The provider's name.
    pub(crate) name: String,
    /// The start of the server's URLs.
    pub(crate) base_url: String,
    /// What the user calls the base URL: a variable or a setting, for faults.
    pub(crate) base_url_name: String,
    /// Where the key comes from.
    pub(crate) key: KeySource,
    /// How it travels.
    pub(crate) auth: AuthScheme,
    /// Headers beside those that the API wants.
    pub(crate) headers: Vec<(String, Secret)>,
    /// What is put behind the `?` of every URL.
    pub(crate) query: Vec<(String, String)>,
    /// Certificates to trust beside the system's, as PEM.
    pub(crate) ca_file: Option<PathBuf>,
    /// Takes plain http to other machines.
    pub(crate) allow_insecure_http: bool,
    /// The Unix socket to use in place of the URL's host.
    pub(crate) socket: Option<PathBuf>,
    /// How long is waited.
    pub(crate) retry_policy: RetryPolicy,
    /// How much is asked at once.
    pub(crate) queue_limits: QueueLimits,
}

/// A provider's server.
#[derive(Debug)]
pub(crate) struct Endpoint {
    name: String,
    pub(crate) base_url: BaseUrl,
    pub(crate) retry_policy: RetryPolicy,
    pub(crate) queue: Arc<FairQueue>,
    key_source: KeySource,
    /// As it was read last; none before the first question.
    cached_key: RwLock<Option<Arc<Secret>>>,
    /// One reads, the others wait for it, and share what came of it.
    key_read_lock: tokio::sync::Mutex<Option<Fault>>,
    /// How often somebody has read it.
    key_reads: AtomicU64,
    auth: AuthScheme,
    headers: HeaderMap,
    /// The values of those headers: they may well be keys.
    header_values: Vec<Secret>,
    ca_file: Option<PathBuf>,
    socket: Option<PathBuf>,
    /// Made at the first question: reading the trusted roots costs time and memory that an idle daemon should not pay.
    http: OnceLock<reqwest::Client>,
}

/// A question on its way.
pub(crate) struct OutgoingRequest<'s> {
    pub(crate) url: &'s reqwest::Url,
    pub(crate) body: &'s [Bytes],
    /// Headers of the API.
    pub(crate) headers: &'static [(&'static str, &'static str)],
    /// Headers of this question alone.
    pub(crate) request_headers: &'s [(&'static str, String)],
}

impl Endpoint {
    /// Checks the options; nothing is sent.
    pub(crate) fn new(options: EndpointOptions) -> Result<Arc<Self>, Fault> {
        let address = BaseUrl::parse(&options)?;
        let mut headers = HeaderMap::new();
        for (name, value) in &options.headers {
            let (name, value) = parse_header(&options.name, name, value.expose())?;
            headers.insert(name, value);
        }
        Ok(Arc::new(Self {
            base_url: address,
            headers,
            queue: FairQueue::new(&options.name, options.queue_limits),
            name: options.name,
            retry_policy: options.retry_policy,
            key_source: options.key,
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

    /// The key, read at the first question, and again when another than `refused` is wanted.
    async fn current_key(&self, refused: Option<&Secret>) -> Result<Option<Arc<Secret>>, Fault> {
        let good = |key: &Arc<Secret>| Some(&**key) != refused;
        if let Some(key) = self.cached_key().filter(good) {
            return Ok(Some(key));
        }
        let reads = self.key_reads.load(Ordering::Acquire);
        let mut failed = self.key_read_lock.lock().await;
        if let Some(key) = self.cached_key().filter(good) {
            return Ok(Some(key));
        }
        // A program that hangs is not run once more for each of those who have waited for it.
        if let Some(fault) = failed.clone().filter(|_| self.key_reads.load(Ordering::Acquire) != reads) {
            return Err(fault);
        }
        let read = self.key_source.read().await;
        *failed = read.as_ref().err().cloned();
        self.key_reads.fetch_add(1, Ordering::AcqRel);
        let key = read?.map(Arc::new);
        self.cached_key.write().unwrap_or_else(PoisonError::into_inner).clone_from(&key);
        Ok(key)
    }

    fn http(&self) -> Result<&reqwest::Client, Fault> {
        if let Some(http) = self.http.get() {
            return Ok(http);
        }
        // An error means that a provider is installed already, which is all that is wanted.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .connect_timeout(self.retry_policy.connect_timeout)
            .tcp_nodelay(true)
            .redirect(reqwest::redirect::Policy::none())
            // When to ask again is decided in one place, and counted there.
            .retry(reqwest::retry::never())
            .no_proxy();
        if let Some(path) = &self.ca_file {
            builder = builder.tls_certs_merge(read_certificates(path)?);
        }
        if let Some(path) = &self.socket {
            // A connection to a child that has ended since would be a fault; a new one costs next to nothing.
            builder = builder.unix_socket(path.as_path()).pool_max_idle_per_host(0);
        }
        let made = builder.build();
        let http = made.map_err(|fault| {
            Fault::new(FaultKind::Internal, "no HTTP client could be made").caused_by(error_chain(&fault))
        })?;
        Ok(self.http.get_or_init(|| http))
    }

    /// Asks once: the head of a good answer. A key that comes from a file or a command may have been replaced since it
    /// was read: if it was, a server that refuses it is asked with the new one.
    pub(crate) async fn send(&self, sending: OutgoingRequest<'_>) -> Result<reqwest::Response, ModelError> {
        let wrong = |fault| ModelError::new(ErrorClass::Refused, fault);
        let key = self.current_key(None).await.map_err(wrong)?;
        let mut response = self.post(&sending, key.as_deref()).await?;
        if response.status() == StatusCode::UNAUTHORIZED && self.key_source.may_change() {
            let newer = self.current_key(key.as_deref()).await.map_err(wrong)?;
            if newer != key {
                response = self.post(&sending, newer.as_deref()).await?;
            }
        }
        if response.status().is_success() { Ok(response) } else { Err(self.status_error(response).await) }
    }

    async fn post(
        &self,
        sending: &OutgoingRequest<'_>,
        key: Option<&Secret>,
    ) -> Result<reqwest::Response, ModelError> {
        let wrong = |fault| ModelError::new(ErrorClass::Refused, fault);
        let mut post = self.http().map_err(wrong)?.post(sending.url.clone());
        post = post.header("Content-Type", "application/json").headers(self.headers.clone());
        for (name, value) in sending.headers {
            post = post.header(*name, *value);
        }
        for (name, value) in sending.request_headers {
            post = post.header(*name, value);
        }
        post = match (self.auth, key) {
            (_, None) | (AuthScheme::None, _) => post,
            (AuthScheme::Bearer, Some(key)) => post.bearer_auth(key.expose()),
            (AuthScheme::ApiKey, Some(key)) => post.header("api-key", sensitive_header(key)),
            (AuthScheme::XApiKey, Some(key)) => post.header("x-api-key", sensitive_header(key)),
        };
        let sent = post.body(SharedBody::wrap(sending.body)).send();
        match tokio::time::timeout(self.retry_policy.first_byte_timeout, sent).await {
            Err(_) => Err(self.timeout_error()),
            // The query of its URL may hold a key.
            Ok(Err(fault)) => Err(self.connect_error(&fault.without_url())),
            Ok(Ok(response)) => Ok(response),
        }
    }

    /// Looks at something, without a key.
    pub(crate) fn get(&self, url: reqwest::Url) -> Result<reqwest::RequestBuilder, Fault> {
        Ok(self.http()?.get(url))
    }

    fn connect_error(&self, fault: &reqwest::Error) -> ModelError {
        let (provider, host) = (self.name.as_str(), self.base_url.host());
        ConnectFailure { provider, host: &host }.to_model_error(fault)
    }

    fn timeout_error(&self) -> ModelError {
        let seconds = self.retry_policy.first_byte_timeout.as_secs_f64();
        ModelError::unavailable("API request timed out", format!("no answer in {seconds} s"))
    }

    async fn status_error(&self, mut response: reqwest::Response) -> ModelError {
        let status = response.status().as_u16();
        let wait = retry_after(response.headers(), jiff::Timestamp::now());
        let mut body = Vec::new();
        // A key that begins within the limit has to be seen whole to be taken out.
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

    /// A fault as it may leave.
    pub(crate) fn redact_fault(&self, fault: Fault) -> Fault {
        let cause = fault.cause.map(|cause| self.redact_and_truncate(&cause));
        Fault { kind: fault.kind, public: self.redact_and_truncate(&fault.public).into(), cause }
    }

    /// A server's text without what it was told in secret, which some servers repeat.
    pub(crate) fn redact(&self, text: &str) -> String {
        let key = self.cached_key();
        let secrets = self.header_values.iter().chain(key.as_deref());
        secrets.fold(text.to_owned(), |text, secret| secret.redact_from(&text))
    }

    /// A server's text as it may be passed on: bounded too.
    fn redact_and_truncate(&self, text: &str) -> String {
        let mut text = self.redact(text);
        text.truncate(text.floor_char_boundary(ERROR_BYTES_MAX));
        text
    }
}

/// Headers that say how a question travels; another value would break it.
const FRAMING_HEADERS: &[&str] =
    &["connection", "content-length", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade"];

fn parse_header(provider: &str, name: &str, value: &str) -> Result<(HeaderName, HeaderValue), Fault> {
    let invalid = || {
        let text = format!("provider {provider}: the header {name:?} is none, or its value cannot be sent");
        Fault::new(FaultKind::Invalid, text)
    };
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
    if FRAMING_HEADERS.contains(&name.as_str()) {
        let text =
            format!("provider {provider}: the header {name:?} is the connection's own and cannot be set");
        return Err(Fault::new(FaultKind::Invalid, text));
    }
    let mut value = HeaderValue::from_str(value).map_err(|_| invalid())?;
    // It may well be a key.
    value.set_sensitive(true);
    Ok((name, value))
}

/// A key was held against what a header takes when it was read.
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

pub(crate) fn error_chain(fault: &dyn std::error::Error) -> String {
    let mut text = fault.to_string();
    let mut next = fault.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
