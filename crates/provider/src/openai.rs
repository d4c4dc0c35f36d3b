//! The OpenAI chat-completions stream, over HTTP. One connection pool per model; a dropped stream ends its request.

mod answer;
mod question;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agent::outside::{ModelEvent, ModelRequest, ModelStream, ModelTraits, Provider};
use agent::{Fault, FaultKind, TokenCount};
use futures_util::StreamExt;
use futures_util::stream;
use tokio::time::Instant;

use self::answer::AnswerReader;
use crate::sse::EventReader;

/// What a model is taken to hold when nobody said otherwise.
pub const WINDOW_TOKENS_DEFAULT: TokenCount = 131_072;

/// Where the model is when nobody said otherwise.
pub const BASE_URL_DEFAULT: &str = "https://api.openai.com/v1";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The most of an error's text that is passed on.
const ERROR_BYTES_MAX: usize = 10_000;

/// The most bytes one answer may have, with all its events around it.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How long the end of a body may take once the answer in it is whole.
const TAIL_TIMEOUT: Duration = Duration::from_secs(1);

/// A shorter key is a word that other texts may hold too, such as the `none` for a server that wants no key.
const SECRET_BYTES_MIN: usize = 8;

/// How to reach a model.
#[derive(Clone)]
pub struct OpenAiOptions {
    /// The name to ask the server for.
    pub model: String,
    /// The start of the server's URLs, up to and with its version.
    pub base_url: String,
    /// The key, when the server wants one.
    pub api_key: Option<String>,
}

impl std::fmt::Debug for OpenAiOptions {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("OpenAiOptions")
            .field("model", &self.model)
            .field("base_url", &self.base_url)
            .finish()
    }
}

/// A model behind the OpenAI API.
#[derive(Clone)]
pub struct OpenAi {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    model: String,
    url: reqwest::Url,
    api_key: Option<String>,
    /// Made at the first question: reading the trusted roots costs time and memory that an idle daemon should not pay.
    http: Arc<OnceLock<reqwest::Client>>,
}

impl OpenAi {
    /// Checks the options; nothing is sent.
    ///
    /// # Errors
    /// When the URL is not one, or would send the key in the clear to another machine.
    pub fn new(options: OpenAiOptions) -> Result<Self, Fault> {
        let inner = Inner {
            name: format!("openai/{}", options.model),
            model: options.model,
            url: address(&options.base_url)?,
            api_key: options.api_key,
            http: Arc::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Another model of the same server, over the same connections.
    #[must_use]
    pub fn sibling(&self, model: &str) -> Self {
        let inner = Inner {
            name: format!("openai/{model}"),
            model: model.to_owned(),
            url: self.inner.url.clone(),
            api_key: self.inner.api_key.clone(),
            http: Arc::clone(&self.inner.http),
        };
        Self { inner: Arc::new(inner) }
    }
}

impl Inner {
    fn http(&self) -> Result<&reqwest::Client, Fault> {
        if let Some(http) = self.http.get() {
            return Ok(http);
        }
        // An error means that a provider is installed already, which is all that is wanted.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(|fault| {
                Fault::new(FaultKind::Internal, "no HTTP client could be made").caused_by(fault)
            })?;
        Ok(self.http.get_or_init(|| http))
    }

    async fn open(&self, request: &ModelRequest) -> Result<reqwest::Response, Fault> {
        let body = question::write(&self.model, request)?;
        tracing::debug!(target: "nexus3::raw", direction = "request", body = %String::from_utf8_lossy(&body));
        let mut post =
            self.http()?.post(self.url.clone()).header("Content-Type", "application/json").body(body);
        if let Some(key) = &self.api_key {
            post = post.bearer_auth(key);
        }
        let response = post.send().await.map_err(|fault| unreachable_model(&fault))?;
        if response.status().is_success() { Ok(response) } else { Err(self.refused(response).await) }
    }

    async fn refused(&self, mut response: reqwest::Response) -> Fault {
        let status = response.status().as_u16();
        let mut body = Vec::new();
        // A key that begins within the limit has to be seen whole to be taken out.
        let enough = ERROR_BYTES_MAX + self.api_key.as_ref().map_or(0, String::len);
        while body.len() < enough {
            match response.chunk().await {
                Ok(Some(bytes)) => body.extend_from_slice(&bytes),
                Ok(None) | Err(_) => break,
            }
        }
        let body = self.presentable(&String::from_utf8_lossy(&body));
        tracing::debug!(target: "nexus3::raw", direction = "response", status, body = %body);
        let text = match status {
            401 => "Authentication failed. Check your API key.".into(),
            403 => "Access forbidden. Check your API permissions.".into(),
            404 => "API endpoint not found. Check your configuration.".into(),
            other => format!("API request failed ({other}): {body}"),
        };
        Fault::new(FaultKind::Model, text).caused_by(format!("status {status}"))
    }

    /// A fault as it may leave.
    fn guarded(&self, fault: Fault) -> Fault {
        let cause = fault.cause.map(|cause| self.presentable(&cause));
        Fault { kind: fault.kind, public: self.presentable(&fault.public).into(), cause }
    }

    /// A server's text as it may be passed on: bounded, and without the key, which some servers repeat.
    fn presentable(&self, text: &str) -> String {
        let secret = self.api_key.as_deref().filter(|key| key.len() >= SECRET_BYTES_MIN);
        let mut text = secret.map_or_else(|| text.to_owned(), |key| text.replace(key, "[key]"));
        text.truncate(text.floor_char_boundary(ERROR_BYTES_MAX));
        text
    }
}

/// Where questions go: below the base URL, whose query stays a query.
fn address(base_url: &str) -> Result<reqwest::Url, Fault> {
    let invalid = |why: &str| Fault::new(FaultKind::Invalid, format!("OPENAI_BASE_URL {why}"));
    let mut url =
        reqwest::Url::parse(base_url).map_err(|fault| invalid(&format!("is not a URL: {fault}")))?;
    let loopback = matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
    match url.scheme() {
        "https" => {}
        "http" if loopback => {}
        _ => return Err(invalid("must be https; plain http is only taken for loopback")),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid("must not hold a user name or password; the key is given by OPENAI_API_KEY"));
    }
    url.set_fragment(None);
    // However many slashes the base ends with.
    let base_path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&base_path);
    match url.path_segments_mut() {
        Ok(mut path) => drop(path.pop_if_empty().extend(["chat", "completions"])),
        Err(()) => return Err(invalid("is not a URL with a path")),
    }
    Ok(url)
}

impl Provider for OpenAi {
    fn ask(&self, request: ModelRequest) -> ModelStream {
        let inner = Arc::clone(&self.inner);
        let opening = async move {
            let answer = match inner.open(&request).await {
                Ok(response) => read(response).boxed(),
                Err(fault) => stream::once(std::future::ready(Err(fault))).boxed(),
            };
            answer.map(move |item| item.map_err(|fault| inner.guarded(fault)))
        };
        Box::pin(stream::once(opening).flatten())
    }

    fn model(&self) -> Option<&str> {
        Some(&self.inner.name)
    }

    fn traits(&self) -> &ModelTraits {
        const TRAITS: ModelTraits = ModelTraits::of_window(WINDOW_TOKENS_DEFAULT);
        &TRAITS
    }
}

/// An answer being read. Bytes are read to the end of the body, also past `[DONE]`, so that the connection can be
/// used again.
struct Reading {
    response: reqwest::Response,
    events: EventReader,
    answer: AnswerReader,
    ready: std::collections::VecDeque<Result<ModelEvent, Fault>>,
    bytes_read: usize,
    /// Until when the end of the body is waited for; set when the answer is whole.
    tail_until: Option<Instant>,
    over: bool,
}

fn read(response: reqwest::Response) -> impl futures_util::Stream<Item = Result<ModelEvent, Fault>> + Send {
    let reading = Reading {
        response,
        events: EventReader::default(),
        answer: AnswerReader::default(),
        ready: std::collections::VecDeque::new(),
        bytes_read: 0,
        tail_until: None,
        over: false,
    };
    stream::unfold(reading, |mut reading| async move { reading.next().await.map(|item| (item, reading)) })
}

impl Reading {
    async fn next(&mut self) -> Option<Result<ModelEvent, Fault>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                if item.is_err() {
                    self.over = true;
                    self.ready.clear();
                }
                return Some(item);
            }
            if self.over {
                return None;
            }
            self.read_on().await;
        }
    }

    /// Takes more of the body. Behind a whole answer it may neither fail nor take long: all that is left to win is
    /// the connection.
    async fn read_on(&mut self) {
        let chunk = match self.tail_until {
            None => self.response.chunk().await,
            Some(until) => {
                tokio::time::timeout_at(until, self.response.chunk()).await.unwrap_or(Ok(None)).or(Ok(None))
            }
        };
        match chunk {
            Ok(Some(bytes)) => self.take(&bytes),
            Ok(None) => self.end(),
            Err(fault) => self.ready.push_back(Err(self.answer.interrupted(&fault))),
        }
    }

    fn end(&mut self) {
        self.over = true;
        self.ready.extend(self.answer.take_usage().map(|usage| Ok(ModelEvent::Usage(usage))));
        self.ready.push_back(self.answer.finish());
    }

    fn take(&mut self, bytes: &[u8]) {
        if self.tail_until.is_some() {
            return;
        }
        self.bytes_read += bytes.len();
        if self.bytes_read > ANSWER_BYTES_MAX {
            self.ready.push_back(Err(Fault::new(FaultKind::Model, "The model's answer is too long.")));
            return;
        }
        let Self { events, answer, ready, .. } = self;
        let fed = events.feed(bytes, |data| {
            tracing::debug!(target: "nexus3::raw", direction = "chunk", body = %String::from_utf8_lossy(data));
            answer.take(data, |event| ready.push_back(event));
        });
        if fed.is_err() {
            ready.push_back(Err(Fault::new(FaultKind::Model, "The model sent an event that is too long.")));
        }
        self.tail_until = self.answer.is_whole().then(|| Instant::now() + TAIL_TIMEOUT);
    }
}

fn unreachable_model(fault: &reqwest::Error) -> Fault {
    let text = if fault.is_timeout() {
        "API request timed out after 1 attempts: no connection"
    } else if fault.is_connect() {
        "Failed to connect to API after 1 attempts: the model's server cannot be reached"
    } else {
        "HTTP error occurred: the request to the model failed"
    };
    Fault::new(FaultKind::Model, text).caused_by(causes(fault))
}

fn causes(fault: &dyn std::error::Error) -> String {
    let mut text = fault.to_string();
    let mut next = fault.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
