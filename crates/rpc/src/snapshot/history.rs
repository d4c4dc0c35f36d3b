//! The messages of a session, written down and read again. What is read can be shown to a model: every call has its
//! result right behind it, and every result its call.

use agent::{Ending, Fault, Message, MessageSource, RequestId, ToolCall, ToolOutcome};
use nexus3_protocol::methods::{SnapshotMessage, SnapshotToolCall};
use serde_json::{Map, Value};

use super::excerpt;
use crate::images::{decode_images, encode_images};
use crate::methods::agents::invalid;
use crate::methods::conversation::message_meta;

/// Arguments nested deeper stay text: a document is only read to a certain depth.
const DEPTH_MAX: usize = 32;

/// What a model is told of a call whose result the session does not have.
const NO_RESULT: &str = "Outcome unknown: the session has no result of this call.";

pub(super) fn encode_message(message: &Message) -> SnapshotMessage {
    let call = |call: &ToolCall| SnapshotToolCall {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: encode_arguments(&call.arguments),
    };
    SnapshotMessage {
        role: message.role.as_str().to_owned(),
        content: message.text.clone(),
        images: encode_images(message),
        tool_calls: message.tool_calls.iter().map(call).collect(),
        tool_call_id: message.tool_call_id.clone(),
        meta: message_meta(message),
    }
}

/// As an object, as the original has them; a text that is none stays a text.
fn encode_arguments(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) if depth(&value) <= DEPTH_MAX => value,
        _ => Value::from(text),
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Reads the messages of a document; `notes` gets what was left out or added.
pub(super) fn decode_messages(
    messages: &[SnapshotMessage],
    notes: &mut Vec<String>,
) -> Result<Vec<Message>, Fault> {
    let mut history = HistoryBuilder::default();
    for (place, message) in messages.iter().enumerate() {
        history
            .push_message(message)
            .map_err(|wrong| invalid(&format!("session.messages[{place}]{wrong}")))?;
    }
    history.close_open_calls();
    let mut note = |count: usize, text: &str| {
        if count > 0 {
            notes.push(format!("{count} {text}"));
        }
    };
    note(history.system_skipped, "system messages were left out: the prompt is system_prompt");
    note(history.empty_skipped, "empty answers were left out");
    note(history.calls_without_result, "tool calls had no result; their outcome is told as unknown");
    Ok(history.messages)
}

#[derive(Default)]
struct HistoryBuilder {
    messages: Vec<Message>,
    /// Calls of the last answer that wait for their results.
    open_calls: Vec<String>,
    system_skipped: usize,
    empty_skipped: usize,
    calls_without_result: usize,
}

impl HistoryBuilder {
    /// Takes one message; what is wrong with it follows its place in the document.
    fn push_message(&mut self, message: &SnapshotMessage) -> Result<(), String> {
        if message.role != "assistant" && !message.tool_calls.is_empty() {
            return Err(".tool_calls are only made by an assistant".to_owned());
        }
        if message.role != "user" && !message.images.is_empty() {
            return Err(".images are only shown by a user".to_owned());
        }
        if message.role != "tool" && message.tool_call_id.is_some() {
            return Err(".tool_call_id belongs to a tool".to_owned());
        }
        let meta = MessageMeta(message.meta.as_ref());
        match message.role.as_str() {
            "tool" => self.push_tool_result(message, meta),
            "system" => {
                self.system_skipped += 1;
                Ok(())
            }
            "user" => {
                self.close_open_calls();
                let images = decode_images(&message.images)?;
                let said = Message::user(message.content.clone(), meta.source()?);
                self.messages.push(Message { images, ..said });
                Ok(())
            }
            "assistant" => self.push_assistant_message(message, meta),
            other => {
                let choices = "user, assistant, tool, system";
                Err(format!(".role must be one of {choices}, got: '{}'", excerpt(other)))
            }
        }
    }

    fn push_assistant_message(
        &mut self,
        message: &SnapshotMessage,
        meta: MessageMeta<'_>,
    ) -> Result<(), String> {
        self.close_open_calls();
        let ending = meta.ending()?;
        if message.content.is_empty() && message.tool_calls.is_empty() && ending.is_none() {
            self.empty_skipped += 1;
            return Ok(());
        }
        for (place, call) in message.tool_calls.iter().enumerate() {
            if self.open_calls.contains(&call.id) {
                return Err(format!(".tool_calls[{place}].id stands twice: '{}'", excerpt(&call.id)));
            }
            self.open_calls.push(call.id.clone());
        }
        let calls = message.tool_calls.iter().map(|call| ToolCall {
            id: call.id.clone(),
            name: call.name.clone(),
            arguments: match &call.arguments {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            },
        });
        let answer = Message::assistant(message.content.clone(), calls.collect());
        self.messages.push(Message { ending, ..answer });
        Ok(())
    }

    fn push_tool_result(&mut self, message: &SnapshotMessage, meta: MessageMeta<'_>) -> Result<(), String> {
        let id =
            message.tool_call_id.as_ref().ok_or(".tool_call_id is missing: which call does it answer?")?;
        let place = self.open_calls.iter().position(|waiting| waiting == id);
        let place = place.ok_or_else(|| format!(".tool_call_id answers no call: '{}'", excerpt(id)))?;
        self.open_calls.remove(place);
        let result = Message::tool_result(id.as_str(), &ToolOutcome::Done(message.content.clone()));
        self.messages.push(Message { ending: meta.ending()?, ..result });
        Ok(())
    }

    /// Models refuse a call without a result.
    fn close_open_calls(&mut self) {
        self.calls_without_result += self.open_calls.len();
        for id in self.open_calls.drain(..) {
            let result = Message::tool_result(id, &ToolOutcome::Failed(NO_RESULT.to_owned()));
            self.messages.push(Message { ending: Some(Ending::Interrupted), ..result });
        }
    }
}

/// What stands beside a message.
#[derive(Clone, Copy)]
struct MessageMeta<'a>(Option<&'a Map<String, Value>>);

impl MessageMeta<'_> {
    fn get(&self, name: &str) -> Option<&Value> {
        self.0?.get(name).filter(|value| !value.is_null())
    }

    fn source(&self) -> Result<MessageSource, String> {
        let kind = match self.get("source") {
            None => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(_) => return Err(".meta.source must be string".to_owned()),
        };
        let agent = match self.get("source_agent_id") {
            None => None,
            Some(Value::String(text)) => Some(RequestId::Text(text.clone())),
            Some(value) => {
                let number = value.as_i64().ok_or(".meta.source_agent_id must be string or integer")?;
                Some(RequestId::Number(number))
            }
        };
        Ok(MessageSource { kind, agent })
    }

    fn ending(&self) -> Result<Option<Ending>, String> {
        let endings = [
            ("cancelled", Ending::Cancelled),
            ("failed", Ending::Failed),
            ("denied", Ending::Denied),
            ("interrupted", Ending::Interrupted),
        ];
        for (name, ending) in endings {
            match self.get(name) {
                Some(Value::Bool(true)) => return Ok(Some(ending)),
                None | Some(Value::Bool(false)) => {}
                Some(_) => return Err(format!(".meta.{name} must be boolean")),
            }
        }
        Ok(None)
    }
}
