//! The OpenAI chat-completions stream, over HTTP. One connection pool per model; a dropped stream ends its request.

mod answer;
mod question;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agent::outside::{ModelEvent, ModelRequest, ModelStream, Provider};
use agent::{Fault, FaultKind, TokenCount};
use futures_util::StreamExt;
use futures_util::stream;

use self::answer::AnswerReader;
use crate::sse::EventReader;

/// What a model is taken to hold when nobody said otherwise.
pub const WINDOW_TOKENS_DEFAULT: TokenCount = 131_072;

/// Where the model is when nobody said otherwise.
pub const BASE_URL_DEFAULT: &str = "https://api.openai.com/v1";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The most of an error's body that is passed on.
const ERROR_BYTES_MAX: usize = 10_000;

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
    http: OnceLock<reqwest::Client>,
}

impl OpenAi {
    /// Checks the options; nothing is sent.
    ///
    /// # Errors
    /// When the URL is not one, or would send the key in the clear to another machine.
    pub fn new(options: OpenAiOptions) -> Result<Self, Fault> {
        let invalid = |why: String| Fault::new(FaultKind::Invalid, format!("OPENAI_BASE_URL {why}"));
        let base = options.base_url.trim_end_matches('/');
        let url = reqwest::Url::parse(&format!("{base}/chat/completions"))
            .map_err(|fault| invalid(format!("is not a URL: {fault}")))?;
        let loopback = matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
        match url.scheme() {
            "https" => {}
            "http" if loopback => {}
            _ => return Err(invalid("must be https; plain http is only taken for loopback".to_owned())),
        }
        let inner = Inner {
            name: format!("openai/{}", options.model),
            model: options.model,
            url,
            api_key: options.api_key,
            http: OnceLock::new(),
        };
        Ok(Self { inner: Arc::new(inner) })
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
        if response.status().is_success() { Ok(response) } else { Err(refused(response).await) }
    }
}

impl Provider for OpenAi {
    fn ask(&self, request: ModelRequest) -> ModelStream {
        let inner = Arc::clone(&self.inner);
        let opening = async move {
            match inner.open(&request).await {
                Ok(response) => read(response).boxed(),
                Err(fault) => stream::once(std::future::ready(Err(fault))).boxed(),
            }
        };
        Box::pin(stream::once(opening).flatten())
    }

    fn model(&self) -> Option<&str> {
        Some(&self.inner.name)
    }

    fn window_tokens(&self) -> TokenCount {
        WINDOW_TOKENS_DEFAULT
    }
}

/// An answer being read. Bytes are read to the end of the body, also past `[DONE]`, so that the connection can be
/// used again.
struct Reading {
    response: reqwest::Response,
    events: EventReader,
    answer: AnswerReader,
    ready: std::collections::VecDeque<Result<ModelEvent, Fault>>,
    over: bool,
}

fn read(response: reqwest::Response) -> impl futures_util::Stream<Item = Result<ModelEvent, Fault>> + Send {
    let reading = Reading {
        response,
        events: EventReader::default(),
        answer: AnswerReader::default(),
        ready: std::collections::VecDeque::new(),
        over: false,
    };
    stream::unfold(reading, |mut reading| async move { reading.next().await.map(|item| (item, reading)) })
}

impl Reading {
    async fn next(&mut self) -> Option<Result<ModelEvent, Fault>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                self.over |= item.is_err();
                return Some(item);
            }
            if self.over {
                return None;
            }
            match self.response.chunk().await {
                Ok(Some(bytes)) => self.take(&bytes),
                Ok(None) => self.end(),
                Err(fault) => self.ready.push_back(Err(self.answer.interrupted(&fault))),
            }
        }
    }

    fn end(&mut self) {
        self.over = true;
        self.ready.extend(self.answer.take_usage().map(|usage| Ok(ModelEvent::Usage(usage))));
        self.ready.push_back(self.answer.finish());
    }

    fn take(&mut self, bytes: &[u8]) {
        let Self { events, answer, ready, .. } = self;
        let fed = events.feed(bytes, |data| {
            tracing::debug!(target: "nexus3::raw", direction = "chunk", body = %String::from_utf8_lossy(data));
            answer.take(data, |event| ready.push_back(event));
        });
        if fed.is_err() {
            ready.push_back(Err(Fault::new(FaultKind::Model, "The model sent an event that is too long.")));
        }
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

async fn refused(mut response: reqwest::Response) -> Fault {
    let status = response.status().as_u16();
    let mut body = Vec::new();
    while body.len() < ERROR_BYTES_MAX {
        match response.chunk().await {
            Ok(Some(bytes)) => body.extend_from_slice(&bytes),
            Ok(None) | Err(_) => break,
        }
    }
    body.truncate(ERROR_BYTES_MAX);
    let body = String::from_utf8_lossy(&body);
    tracing::debug!(target: "nexus3::raw", direction = "response", status, body = %body);
    let text = match status {
        401 => "Authentication failed. Check your API key.".into(),
        403 => "Access forbidden. Check your API permissions.".into(),
        404 => "API endpoint not found. Check your configuration.".into(),
        other => format!("API request failed ({other}): {body}"),
    };
    Fault::new(FaultKind::Model, text).caused_by(format!("status {status}"))
}
