//! Messages of an exported document. Import yields a history that models accept: every tool call is followed by its
//! result, and every result belongs to a call.

use agent::{Ending, Fault, Message, MessageSource, RequestId, ToolCall, ToolOutcome};
use nexus3_protocol::methods::{SnapshotMessage, SnapshotToolCall};
use serde_json::{Map, Value};

use super::excerpt;
use crate::images::{decode_images, encode_images};
use crate::methods::agents::invalid;
use crate::methods::conversation::message_meta;

/// Arguments nested deeper are exported as text, because the JSON parser limits the depth of a document.
const DEPTH_MAX: usize = 32;

/// Result shown to the model for a tool call without a result in the document.
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

/// Encodes arguments as an object, as the original format does; text that is not an object stays text.
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

/// Decodes the messages of a document; `notes` receives what was skipped or added.
pub(super) fn decode_messages(
    messages: &[SnapshotMessage],
    notes: &mut Vec<String>,
) -> Result<Vec<Message>, Fault> {
    let mut history = HistoryBuilder::default();
    for (index, message) in messages.iter().enumerate() {
        history.push_message(message).map_err(|why| invalid(&format!("session.messages[{index}]{why}")))?;
    }
    history.close_open_calls();
    let mut note = |count: usize, text: &str| {
        if count > 0 {
            notes.push(format!("{count} {text}"));
        }
    };
    note(history.system_skipped, "system messages were skipped: system_prompt is used instead");
    note(history.empty_skipped, "empty assistant messages were skipped");
    note(history.calls_without_result, "tool calls had no result: added with an unknown outcome");
    Ok(history.messages)
}

#[derive(Default)]
struct HistoryBuilder {
    messages: Vec<Message>,
    /// Tool calls of the last assistant message without results so far.
    open_calls: Vec<String>,
    system_skipped: usize,
    empty_skipped: usize,
    calls_without_result: usize,
}

impl HistoryBuilder {
    /// Adds one message. The error text continues after the message's path in the document.
    fn push_message(&mut self, message: &SnapshotMessage) -> Result<(), String> {
        if message.role != "assistant" && !message.tool_calls.is_empty() {
            return Err(".tool_calls are only allowed in assistant messages".to_owned());
        }
        if message.role != "user" && !message.images.is_empty() {
            return Err(".images are only allowed in user messages".to_owned());
        }
        if message.role != "tool" && message.tool_call_id.is_some() {
            return Err(".tool_call_id is only allowed in tool messages".to_owned());
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
                let user = Message::user(message.content.clone(), meta.source()?);
                self.messages.push(Message { images, ..user });
                Ok(())
            }
            "assistant" => self.push_assistant_message(message, meta),
            role => {
                let choices = "user, assistant, tool, system";
                Err(format!(".role must be one of {choices}, got: '{}'", excerpt(role)))
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
        for (index, call) in message.tool_calls.iter().enumerate() {
            if self.open_calls.contains(&call.id) {
                return Err(format!(".tool_calls[{index}].id is a duplicate: '{}'", excerpt(&call.id)));
            }
            self.open_calls.push(call.id.clone());
        }
        let calls = message.tool_calls.iter().map(|call| ToolCall {
            id: call.id.clone(),
            name: call.name.clone(),
            arguments: match &call.arguments {
                Value::String(text) => text.clone(),
                value => value.to_string(),
            },
        });
        let assistant = Message::assistant(message.content.clone(), calls.collect());
        self.messages.push(Message { ending, ..assistant });
        Ok(())
    }

    fn push_tool_result(&mut self, message: &SnapshotMessage, meta: MessageMeta<'_>) -> Result<(), String> {
        let id = message.tool_call_id.as_ref().ok_or(".tool_call_id is missing: name the tool call")?;
        let index = self.open_calls.iter().position(|open| open == id);
        let index = index.ok_or_else(|| format!(".tool_call_id matches no open call: '{}'", excerpt(id)))?;
        self.open_calls.remove(index);
        let result = Message::tool_result(id.as_str(), &ToolOutcome::Done(message.content.clone()));
        self.messages.push(Message { ending: meta.ending()?, ..result });
        Ok(())
    }

    /// Adds results for open tool calls: models reject a call without a result.
    fn close_open_calls(&mut self) {
        self.calls_without_result += self.open_calls.len();
        for id in self.open_calls.drain(..) {
            let result = Message::tool_result(id, &ToolOutcome::Failed(NO_RESULT.to_owned()));
            self.messages.push(Message { ending: Some(Ending::Interrupted), ..result });
        }
    }
}

/// The `meta` object of a message.
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
