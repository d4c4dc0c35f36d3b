//! The parts of a model request that the scripted model needs, parsed from any of its APIs.

mod anthropic;
mod responses;

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use super::ledger::RoundKey;

/// The API of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    Chat,
    Anthropic,
    Responses,
}

impl Api {
    /// The API served at a path.
    pub(crate) fn from_path(path: &str) -> Option<Self> {
        match path {
            "/v1/chat/completions" => Some(Self::Chat),
            "/v1/messages" => Some(Self::Anthropic),
            "/v1/responses" => Some(Self::Responses),
            _ => {
                let deployment =
                    path.strip_prefix("/openai/deployments/")?.strip_suffix("/chat/completions")?;
                (!deployment.is_empty() && !deployment.contains('/')).then_some(Self::Chat)
            }
        }
    }
}

/// A valid request.
#[derive(Debug)]
pub(crate) struct ParsedRequest {
    pub(crate) api: Api,
    pub(crate) model: String,
    pub(crate) response_mode: ResponseMode,
    /// The JSON Schema that the response must fit.
    pub(crate) schema: Option<Value>,
    messages: Vec<Message>,
}

/// How the response is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseMode {
    Complete,
    Streamed,
    StreamedWithUsage,
}

/// The cause of a 400 response: the message, and the invalid parameter.
#[derive(Debug)]
pub(crate) struct BadRequest {
    pub(crate) message: String,
    pub(crate) param: Option<&'static str>,
}

#[derive(Debug, Deserialize)]
struct Message {
    role: String,
    #[serde(default)]
    content: Value,
}

#[derive(Debug, Deserialize)]
struct Fields {
    model: Option<String>,
    messages: Option<Vec<Message>>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    response_format: Value,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

impl ParsedRequest {
    pub(crate) fn parse(api: Api, body: &[u8]) -> Result<Self, BadRequest> {
        let mut request = match api {
            Api::Chat => Self::parse_chat(body)?,
            Api::Anthropic => anthropic::parse(body)?,
            Api::Responses => responses::parse(body)?,
        };
        request.strip_session_context();
        Ok(request)
    }

    fn parse_chat(body: &[u8]) -> Result<Self, BadRequest> {
        let fields: Fields = parse_json(body)?;
        let model = require_model(fields.model)?;
        let messages = fields
            .messages
            .filter(|messages| !messages.is_empty())
            .ok_or_else(|| missing_parameter("messages"))?;
        let include_usage = fields.stream_options.and_then(|options| options.include_usage);
        let response_mode = match (fields.stream, include_usage) {
            (Some(true), Some(true)) => ResponseMode::StreamedWithUsage,
            (Some(true), _) => ResponseMode::Streamed,
            _ => ResponseMode::Complete,
        };
        let schema = fields.response_format.pointer("/json_schema/schema").cloned();
        Ok(Self { api: Api::Chat, model, response_mode, schema, messages })
    }

    /// Removes the session context that the daemon appends to the last message: it would hide the script command.
    fn strip_session_context(&mut self) {
        let before = self.messages.len().checked_sub(2).map(|before| &self.messages[before].role);
        let follows_tool = before.is_some_and(|role| role == "tool");
        let Some(last) = self.messages.last_mut().filter(|last| last.role != "system") else { return };
        let text = last.text();
        let context_start =
            text.strip_suffix(SESSION_CONTEXT_END).and_then(|text| text.rfind(SESSION_CONTEXT_START));
        let Some(start) = context_start else { return };
        let content = text[..start].strip_suffix("\n\n").unwrap_or(&text[..start]).to_owned();
        if content.is_empty() && last.role == "user" && follows_tool {
            self.messages.pop();
        } else {
            last.content = Value::String(content);
        }
    }

    /// The tool results at the end of the conversation, if it ends with any.
    pub(crate) fn trailing_tool_results(&self) -> Option<String> {
        let first_result =
            self.messages.iter().rposition(|message| message.role != "tool").map_or(0, |last| last + 1);
        let results: Vec<_> = self.messages[first_result..].iter().map(Message::text).collect();
        (!results.is_empty()).then(|| results.join(", "))
    }

    /// The messages since the model's last response; before its first one, all messages with the system prompt.
    pub(crate) fn messages_since_response(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let last_response = self.messages.iter().rposition(|message| message.role == "assistant");
        self.messages[last_response.map_or(0, |last| last + 1)..].iter().map(Message::text)
    }

    /// The last user message; empty if there is none.
    pub(crate) fn last_user_message(&self) -> Cow<'_, str> {
        self.user_messages().next_back().unwrap_or_default()
    }

    /// All user messages, oldest first.
    pub(crate) fn user_messages(&self) -> impl DoubleEndedIterator<Item = Cow<'_, str>> {
        self.messages.iter().filter(|message| message.role == "user").map(Message::text)
    }

    /// The round of this request.
    pub(crate) fn round_key(&self) -> RoundKey {
        let last = self.messages.iter().rposition(|message| message.role == "user");
        let since = &self.messages[last.map_or(0, |last| last + 1)..];
        let round = since.iter().filter(|message| message.role == "assistant").count();
        RoundKey { user: self.last_user_message().into_owned(), round }
    }

    /// The total size of all message contents.
    pub(crate) fn content_bytes(&self) -> usize {
        self.messages.iter().map(|message| message.text().len()).sum()
    }
}

const SESSION_CONTEXT_START: &str = "<session-context>";
const SESSION_CONTEXT_END: &str = "</session-context>";

impl Message {
    fn new(role: &str, text: impl Into<String>) -> Self {
        Self { role: role.to_owned(), content: Value::String(text.into()) }
    }

    fn text(&self) -> Cow<'_, str> {
        content_text(&self.content)
    }
}

/// The text of a message content, which is a string or a list of parts; parts without text are skipped.
fn content_text(content: &Value) -> Cow<'_, str> {
    if let Some(text) = content.as_str() {
        return Cow::Borrowed(text);
    }
    let parts = content.as_array().into_iter().flatten();
    Cow::Owned(parts.filter_map(|part| part.get("text")?.as_str()).collect())
}

fn parse_json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, BadRequest> {
    let bad_request =
        |cause| BadRequest { message: format!("cannot parse the request: {cause}"), param: None };
    serde_json::from_slice(body).map_err(bad_request)
}

fn require_model(model: Option<String>) -> Result<String, BadRequest> {
    model.filter(|model| !model.trim().is_empty()).ok_or_else(|| missing_parameter("model"))
}

/// The response mode for APIs that report usage in every stream.
fn response_mode(stream: Option<bool>) -> ResponseMode {
    if stream == Some(true) { ResponseMode::StreamedWithUsage } else { ResponseMode::Complete }
}

fn missing_parameter(param: &'static str) -> BadRequest {
    BadRequest { message: format!("you must provide a {param} parameter"), param: Some(param) }
}
