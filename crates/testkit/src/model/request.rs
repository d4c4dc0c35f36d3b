//! A request as far as the scripted model reads it, in any of its APIs: parsed once, then only asked.

mod anthropic;
mod responses;

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use super::ledger::RoundKey;

/// Which API a request is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    Chat,
    Anthropic,
    Responses,
}

impl Api {
    /// The API of a path.
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

/// A request that is whole enough to be answered.
#[derive(Debug)]
pub(crate) struct ParsedRequest {
    pub(crate) api: Api,
    pub(crate) model: String,
    pub(crate) response_mode: ResponseMode,
    /// What the answer has to fit.
    pub(crate) schema: Option<Value>,
    messages: Vec<Message>,
}

/// How the answer travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseMode {
    Whole,
    Streamed,
    StreamedWithUsage,
}

/// Why a request is answered 400: the message, and the parameter that is to blame.
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
        let delivery = match (fields.stream, include_usage) {
            (Some(true), Some(true)) => ResponseMode::StreamedWithUsage,
            (Some(true), _) => ResponseMode::Streamed,
            _ => ResponseMode::Whole,
        };
        let schema = fields.response_format.pointer("/json_schema/schema").cloned();
        Ok(Self { api: Api::Chat, model, response_mode: delivery, schema, messages })
    }

    /// What the daemon puts behind the last message is for real models, not for a script.
    fn strip_session_context(&mut self) {
        let before = self.messages.len().checked_sub(2).map(|before| &self.messages[before].role);
        let is_behind_a_tool = before.is_some_and(|role| role == "tool");
        let Some(last) = self.messages.last_mut().filter(|last| last.role != "system") else { return };
        let text = last.text();
        let session =
            text.strip_suffix(SESSION_CONTEXT_END).and_then(|text| text.rfind(SESSION_CONTEXT_START));
        let Some(start) = session else { return };
        let said = text[..start].strip_suffix("\n\n").unwrap_or(&text[..start]).to_owned();
        if said.is_empty() && last.role == "user" && is_behind_a_tool {
            self.messages.pop();
        } else {
            last.content = Value::String(said);
        }
    }

    /// What the tools said, when the conversation ends with them.
    pub(crate) fn trailing_tool_results(&self) -> Option<String> {
        let others =
            self.messages.iter().rposition(|message| message.role != "tool").map_or(0, |last| last + 1);
        let said: Vec<_> = self.messages[others..].iter().map(Message::text).collect();
        (!said.is_empty()).then(|| said.join(", "))
    }

    /// What was said since the model spoke last, and before its first answer the system prompt too.
    pub(crate) fn messages_since_response(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let spoke = self.messages.iter().rposition(|message| message.role == "assistant");
        self.messages[spoke.map_or(0, |last| last + 1)..].iter().map(Message::text)
    }

    /// The last user message, empty where there is none.
    pub(crate) fn last_user_message(&self) -> Cow<'_, str> {
        self.user_messages().next_back().unwrap_or_default()
    }

    /// All user messages, oldest first.
    pub(crate) fn user_messages(&self) -> impl DoubleEndedIterator<Item = Cow<'_, str>> {
        self.messages.iter().filter(|message| message.role == "user").map(Message::text)
    }

    /// Which question of a conversation it is.
    pub(crate) fn round_key(&self) -> RoundKey {
        let last = self.messages.iter().rposition(|message| message.role == "user");
        let since = &self.messages[last.map_or(0, |last| last + 1)..];
        let round = since.iter().filter(|message| message.role == "assistant").count();
        RoundKey { user: self.last_user_message().into_owned(), round }
    }

    /// The size of all contents.
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

/// A content, which is a string or a list of parts; parts that are not text say nothing here.
fn content_text(content: &Value) -> Cow<'_, str> {
    if let Some(text) = content.as_str() {
        return Cow::Borrowed(text);
    }
    let parts = content.as_array().into_iter().flatten();
    Cow::Owned(parts.filter_map(|part| part.get("text")?.as_str()).collect())
}

fn parse_json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, BadRequest> {
    let unreadable = |cause| BadRequest { message: format!("cannot read the request: {cause}"), param: None };
    serde_json::from_slice(body).map_err(unreadable)
}

fn require_model(model: Option<String>) -> Result<String, BadRequest> {
    model.filter(|model| !model.trim().is_empty()).ok_or_else(|| missing_parameter("model"))
}

/// The APIs that tell the usage of every stream.
fn response_mode(stream: Option<bool>) -> ResponseMode {
    if stream == Some(true) { ResponseMode::StreamedWithUsage } else { ResponseMode::Whole }
}

fn missing_parameter(param: &'static str) -> BadRequest {
    BadRequest { message: format!("you must provide a {param} parameter"), param: Some(param) }
}
