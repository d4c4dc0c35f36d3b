//! Test harness: model clients, collected responses, and HTTP responses for the scripted server.

use std::sync::Arc;

use agent::outside::{ModelEvent, ModelRequest, ModelStream, Models, Provider};
use agent::{Fault, Message, MessageSource};
use futures_util::StreamExt;
use provider::{ModelRegistry, ProviderSettings, RegistryOptions, Secret};
use testkit::{HttpPeer, PeerAction, http_response};

pub(crate) const KEY: &str = "sk-very-secret-0123456789";

/// Returns a client without retries.
pub(crate) fn client(base_url: &str) -> Arc<dyn Provider> {
    client_with(base_url, ProviderSettings { tries_max: Some(1), ..ProviderSettings::default() })
}

/// Returns a client with these provider settings.
pub(crate) fn client_with(base_url: &str, settings: ProviderSettings) -> Arc<dyn Provider> {
    default_model(options(base_url, settings)).expect("a valid base URL")
}

pub(crate) fn options(base_url: &str, settings: ProviderSettings) -> RegistryOptions {
    let variables = [("OPENAI_BASE_URL", base_url), ("OPENAI_API_KEY", KEY)];
    let variables = variables.map(|(name, value)| (name.to_owned(), Secret::new(value.to_owned())));
    RegistryOptions {
        default_model: Some("openai/m".to_owned()),
        providers: [("openai".to_owned(), settings)].into(),
        variables: variables.into(),
        ..RegistryOptions::default()
    }
}

/// Returns the default model of these options.
pub(crate) fn default_model(options: RegistryOptions) -> Result<Arc<dyn Provider>, Fault> {
    ModelRegistry::open(options).map(|registry| registry.default_model())
}

pub(crate) fn request() -> ModelRequest {
    let message = Message::user("hi", MessageSource::default());
    ModelRequest {
        system: Some(Arc::from("Be brief.")),
        messages: Arc::new(vec![Arc::new(message)]),
        ..ModelRequest::default()
    }
}

/// Sends one request and collects its stream.
pub(crate) async fn call(client: &Arc<dyn Provider>) -> CollectedResponse {
    collect(client.call(request())).await
}

/// Collects a stream without its progress events.
pub(crate) async fn collect(stream: ModelStream) -> CollectedResponse {
    let is_content = |item: &Result<ModelEvent, Fault>| {
        std::future::ready(!matches!(
            item,
            Ok(ModelEvent::Waiting | ModelEvent::Heartbeat | ModelEvent::Buffered(_))
        ))
    };
    CollectedResponse { items: stream.filter(is_content).collect().await }
}

/// Sends a request to a server with these actions.
pub(crate) async fn call_with(actions: Vec<PeerAction>) -> CollectedResponse {
    let server = HttpPeer::with_actions(actions);
    call(&client(&server.base_url())).await
}

/// Sends a request to a server that responds with these events.
pub(crate) async fn call_events(events: &str) -> CollectedResponse {
    call_with(vec![
        PeerAction::Write(head("connection: close\r\n")),
        PeerAction::Write(events.into()),
        PeerAction::Close,
    ])
    .await
}

/// All events of one response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CollectedResponse {
    pub(crate) items: Vec<Result<ModelEvent, Fault>>,
}

impl CollectedResponse {
    /// Returns the concatenated text.
    pub(crate) fn text(&self) -> String {
        let texts = self.items.iter().filter_map(|item| match item {
            Ok(ModelEvent::Text(text)) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    pub(crate) fn calls(&self) -> Vec<&agent::ToolCall> {
        let calls = self.items.iter().filter_map(|item| match item {
            Ok(ModelEvent::ToolCall(call)) => Some(call),
            _ => None,
        });
        calls.collect()
    }

    /// Whether the response ended with `Done`; asserts that it ended exactly once.
    pub(crate) fn is_done(&self) -> bool {
        let ends = self.items.iter().filter(|item| matches!(item, Ok(ModelEvent::Done) | Err(_))).count();
        assert_eq!(ends, 1, "the stream must end once: {self:?}");
        match self.items.last() {
            Some(Ok(ModelEvent::Done)) => true,
            Some(Err(_)) => false,
            other => panic!("the last event must be an end: {other:?}"),
        }
    }

    /// Returns the fault that ended the stream.
    pub(crate) fn fault(&self) -> &Fault {
        match self.items.last() {
            Some(Err(fault)) => fault,
            other => panic!("expected a fault: {other:?}"),
        }
    }
}

/// Returns a successful response head.
pub(crate) fn head(more: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{more}\r\n").into_bytes()
}

/// Returns the actions of a complete response with this status.
pub(crate) fn response_with_status(status: &str, body: &[u8]) -> Vec<PeerAction> {
    vec![PeerAction::Write(http_response(status, "", body))]
}

/// Encodes bytes as one chunk of a chunked body.
pub(crate) fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

pub(crate) const CHUNKED: &str = "transfer-encoding: chunked\r\n";
pub(crate) const CHUNKED_END: &[u8] = b"0\r\n\r\n";

/// The events of a short response.
pub(crate) const RESPONSE: &[u8] =
    b"data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// Returns the actions of a complete chunked response.
pub(crate) fn whole_response() -> Vec<PeerAction> {
    vec![
        PeerAction::Write(head(CHUNKED)),
        PeerAction::Write(chunk(RESPONSE)),
        PeerAction::Pause,
        PeerAction::Write(CHUNKED_END.to_vec()),
    ]
}
