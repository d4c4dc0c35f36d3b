//! A chat-completions request as far as the scripted model reads it: parsed once, then only asked.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use super::ledger::Question;

/// A request that is whole enough to be answered.
#[derive(Debug)]
pub(crate) struct ChatRequest {
    pub(crate) model: String,
    pub(crate) delivery: Delivery,
    messages: Vec<Message>,
}

/// How the answer travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
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
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

impl ChatRequest {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, BadRequest> {
        let fields: Fields = serde_json::from_slice(body).map_err(|cause| BadRequest {
            message: format!("cannot read the request: {cause}"),
            param: None,
        })?;
        let model = fields.model.filter(|model| !model.trim().is_empty()).ok_or_else(|| missing("model"))?;
        let messages =
            fields.messages.filter(|messages| !messages.is_empty()).ok_or_else(|| missing("messages"))?;
        let include_usage = fields.stream_options.and_then(|options| options.include_usage);
        let delivery = match (fields.stream, include_usage) {
            (Some(true), Some(true)) => Delivery::StreamedWithUsage,
            (Some(true), _) => Delivery::Streamed,
            _ => Delivery::Whole,
        };
        Ok(Self { model, delivery, messages })
    }

    /// What the tools said, when the conversation ends with them.
    pub(crate) fn trailing_tools(&self) -> Option<String> {
        let others =
            self.messages.iter().rposition(|message| message.role != "tool").map_or(0, |last| last + 1);
        let said: Vec<_> = self.messages[others..].iter().map(Message::text).collect();
        (!said.is_empty()).then(|| said.join(", "))
    }

    /// What was said since the model spoke last, and before its first answer the system prompt too.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let spoke = self.messages.iter().rposition(|message| message.role == "assistant");
        self.messages[spoke.map_or(0, |last| last + 1)..].iter().map(Message::text)
    }

    /// The last user message, empty where there is none.
    pub(crate) fn last_user(&self) -> Cow<'_, str> {
        self.users().next_back().unwrap_or_default()
    }

    /// All user messages, oldest first.
    pub(crate) fn users(&self) -> impl DoubleEndedIterator<Item = Cow<'_, str>> {
        self.messages.iter().filter(|message| message.role == "user").map(Message::text)
    }

    /// Which question of a conversation it is.
    pub(crate) fn question(&self) -> Question {
        let last = self.messages.iter().rposition(|message| message.role == "user");
        let since = &self.messages[last.map_or(0, |last| last + 1)..];
        let round = since.iter().filter(|message| message.role == "assistant").count();
        Question { user: self.last_user().into_owned(), round }
    }

    /// The size of all contents.
    pub(crate) fn content_bytes(&self) -> usize {
        self.messages.iter().map(|message| message.text().len()).sum()
    }
}

impl Message {
    /// The content, which is a string or a list of parts; parts that are not text say nothing here.
    fn text(&self) -> Cow<'_, str> {
        if let Some(text) = self.content.as_str() {
            return Cow::Borrowed(text);
        }
        let parts = self.content.as_array().into_iter().flatten();
        Cow::Owned(parts.filter_map(|part| part.get("text")?.as_str()).collect())
    }
}

fn missing(param: &'static str) -> BadRequest {
    BadRequest { message: format!("you must provide a {param} parameter"), param: Some(param) }
}
