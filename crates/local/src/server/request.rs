//! Parses and validates chat requests in OpenAI's format. Unknown fields are ignored; known but unsupported features
//! are rejected with the parameter's name.

mod wire;

#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, RandomState};

use hyper::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::refusal::Refusal;
use crate::generation::{Chat, ChatMessage, ChatRole, ChatTool, ChatToolCall, ToolChoice};
use wire::{ChatIn, ContentIn, MessageIn, ResponseFormatIn, StopIn, ToolChoiceIn, ToolIn};

const TOOLS_MAX: usize = 128;
const STOPS_MAX: usize = 16;
const STOP_BYTES_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 128;

/// A valid chat request.
#[derive(Debug)]
pub(super) struct ChatRequest {
    /// Requested model; `None` selects the one that is served.
    pub(super) model: Option<String>,
    pub(super) chat: Chat,
    pub(super) response_mode: ResponseMode,
}

/// Delivery of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseMode {
    Complete,
    Stream,
    /// A stream that ends with a usage chunk.
    StreamWithUsage,
}

impl ChatRequest {
    /// Parses and validates a request body.
    pub(super) fn from_body(body: &[u8]) -> Result<Self, Refusal> {
        let request: ChatIn = parse_json(body)?;
        if request.n.is_some_and(|count| count != 1) {
            return Err(Refusal::invalid("only `n` = 1 is supported; omit it").param("n"));
        }
        let response_mode = parse_response_mode(&request);
        let tools = parse_tools(request.tools.unwrap_or_default())?;
        let choice = parse_tool_choice(request.tool_choice, &tools)?;
        let chat = Chat {
            messages: parse_messages(request.messages)?,
            tool_choice: choice,
            tools,
            schema: parse_response_format(request.response_format)?,
            answer_tokens_max: parse_tokens_max(request.max_completion_tokens.or(request.max_tokens))?,
            temperature: check_range("temperature", request.temperature.unwrap_or(0.0), 0.0, 2.0)?,
            top_p: check_range("top_p", request.top_p.unwrap_or(1.0), 0.0, 1.0)?,
            seed: request.seed.map_or_else(random_seed, i64::cast_unsigned),
            stop: parse_stops(request.stop)?,
        };
        Ok(Self { model: request.model.filter(|model| !model.is_empty()), chat, response_mode })
    }
}

/// Parses JSON; an error names the path of the invalid parameter.
pub(super) fn parse_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|fault| {
        let path = fault.path().to_string();
        let refusal = Refusal::invalid(format!("the request body cannot be parsed: {}", fault.inner()));
        if path == "." { refusal } else { refusal.param(path) }
    })?;
    reader
        .end()
        .map_err(|fault| Refusal::invalid(format!("the request body has text after its JSON: {fault}")))?;
    Ok(value)
}

fn parse_response_mode(request: &ChatIn) -> ResponseMode {
    let wants_usage = request.stream_options.as_ref().and_then(|options| options.include_usage);
    match (request.stream, wants_usage) {
        (Some(true), Some(true)) => ResponseMode::StreamWithUsage,
        (Some(true), _) => ResponseMode::Stream,
        _ => ResponseMode::Complete,
    }
}

fn parse_messages(messages: Vec<MessageIn>) -> Result<Vec<ChatMessage>, Refusal> {
    if messages.is_empty() {
        return Err(Refusal::invalid("`messages` is empty; send at least one").param("messages"));
    }
    let parse = |(index, message)| {
        parse_message(message).map_err(|refusal: Refusal| refusal.param(format!("messages[{index}]")))
    };
    messages.into_iter().enumerate().map(parse).collect()
}

fn parse_message(message: MessageIn) -> Result<ChatMessage, Refusal> {
    let role = match message.role.as_str() {
        "system" | "developer" => ChatRole::System,
        "user" => ChatRole::User,
        "assistant" => ChatRole::Assistant,
        "tool" => ChatRole::Tool,
        other => {
            return Err(Refusal::invalid(format!(
                "role {other:?} is unknown; use system, developer, user, assistant or tool"
            )));
        }
    };
    if role == ChatRole::Tool && message.tool_call_id.is_none() {
        return Err(Refusal::invalid("a tool message needs the `tool_call_id` of its call"));
    }
    let calls = message.tool_calls.unwrap_or_default().into_iter().map(|call| ChatToolCall {
        id: call.id,
        name: call.function.name,
        arguments: call.function.arguments,
    });
    Ok(ChatMessage {
        role,
        text: parse_content(message.content)?,
        tool_calls: calls.collect(),
        tool_call_id: message.tool_call_id,
    })
}

fn parse_content(content: Option<ContentIn>) -> Result<String, Refusal> {
    let parts = match content {
        None => return Ok(String::new()),
        Some(ContentIn::Text(text)) => return Ok(text),
        Some(ContentIn::Parts(parts)) => parts,
    };
    let mut text = String::new();
    for part in parts {
        match (part.kind.as_str(), part.text) {
            ("text", Some(part)) => text.push_str(&part),
            ("text", None) => return Err(Refusal::invalid("a part of type \"text\" needs a `text`")),
            ("image_url" | "image" | "input_image", _) => {
                return Err(Refusal::invalid(
                    "this model does not support images; remove them or use a vision model",
                )
                .code("images_not_supported"));
            }
            (other, _) => {
                return Err(Refusal::invalid(format!(
                    "content parts of type {other:?} are not supported; use text"
                )));
            }
        }
    }
    Ok(text)
}

fn parse_tools(tools: Vec<ToolIn>) -> Result<Vec<ChatTool>, Refusal> {
    if tools.len() > TOOLS_MAX {
        let text = format!("the request has {} tools; at most {TOOLS_MAX} are allowed", tools.len());
        return Err(Refusal::invalid(text).param("tools"));
    }
    let mut parsed: Vec<ChatTool> = Vec::with_capacity(tools.len());
    for (index, tool) in tools.into_iter().enumerate() {
        let with_param = |refusal: Refusal| refusal.param(format!("tools[{index}]"));
        let tool = parse_tool(tool).map_err(with_param)?;
        if parsed.iter().any(|earlier| earlier.name == tool.name) {
            return Err(with_param(Refusal::invalid(format!("duplicate tool name {:?}", tool.name))));
        }
        parsed.push(tool);
    }
    Ok(parsed)
}

fn parse_tool(tool: ToolIn) -> Result<ChatTool, Refusal> {
    let (kind, Some(function)) = (tool.kind, tool.function) else {
        return Err(Refusal::invalid("a tool needs a `function`"));
    };
    if kind != "function" {
        return Err(Refusal::invalid(format!("tools of type {kind:?} are not supported; use \"function\"")));
    }
    let name = function.name;
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(Refusal::invalid(format!(
            "a tool's name must have 1 to {NAME_BYTES_MAX} bytes and no control characters"
        )));
    }
    let parameters = function.parameters.unwrap_or_else(|| json!({"type": "object", "properties": {}}));
    if !parameters.is_object() {
        return Err(Refusal::invalid("`parameters` must be a JSON schema object"));
    }
    let is_object = |kind: &Value| {
        kind == "object" || kind.as_array().is_some_and(|kinds| kinds.contains(&json!("object")))
    };
    if parameters.get("type").is_some_and(|kind| !is_object(kind)) {
        let text = format!("`parameters` of {name:?} must have the type \"object\"");
        return Err(Refusal::invalid(text));
    }
    Ok(ChatTool { name, description: function.description.unwrap_or_default(), parameters })
}

fn parse_tool_choice(choice: Option<ToolChoiceIn>, tools: &[ChatTool]) -> Result<ToolChoice, Refusal> {
    let invalid = |text: String| Err(Refusal::invalid(text).param("tool_choice"));
    match choice {
        None if tools.is_empty() => Ok(ToolChoice::None),
        None => Ok(ToolChoice::Auto),
        Some(ToolChoiceIn::Mode(mode)) => match mode.as_str() {
            "none" => Ok(ToolChoice::None),
            "auto" if tools.is_empty() => Ok(ToolChoice::None),
            "auto" => Ok(ToolChoice::Auto),
            "required" if tools.is_empty() => {
                invalid("tool_choice requires a call, but the request has no tools".to_owned())
            }
            "required" => Ok(ToolChoice::Required),
            other => {
                invalid(format!("tool_choice {other:?} is unknown; use auto, none, required or a function"))
            }
        },
        Some(ToolChoiceIn::Named { function }) => {
            if tools.iter().any(|tool| tool.name == function.name) {
                return Ok(ToolChoice::Named(function.name));
            }
            invalid(format!("tool_choice names {:?}, which is not one of the request's tools", function.name))
        }
    }
}

fn parse_response_format(format: Option<ResponseFormatIn>) -> Result<Option<Value>, Refusal> {
    let Some(format) = format else {
        return Ok(None);
    };
    let invalid = |text: String| Err(Refusal::invalid(text).param("response_format"));
    match (format.kind.as_str(), format.json_schema.and_then(|named| named.schema)) {
        ("text", _) => Ok(None),
        ("json_object", _) => Ok(Some(json!({"type": "object"}))),
        ("json_schema", Some(schema @ (Value::Object(_) | Value::Bool(true)))) => Ok(Some(schema)),
        ("json_schema", _) => invalid("`json_schema.schema` must be a JSON schema".to_owned()),
        (other, _) => invalid(format!("type {other:?} is unknown; use text, json_object or json_schema")),
    }
}

fn parse_tokens_max(tokens: Option<u64>) -> Result<Option<usize>, Refusal> {
    match tokens {
        Some(0) => {
            let text = "`max_completion_tokens` must be at least 1";
            Err(Refusal::invalid(text).param("max_completion_tokens"))
        }
        // A value beyond usize is larger than any context window, so it is no limit.
        tokens => Ok(tokens.and_then(|tokens| usize::try_from(tokens).ok())),
    }
}

fn check_range(name: &'static str, value: f64, from: f64, to: f64) -> Result<f32, Refusal> {
    if !(from..=to).contains(&value) {
        return Err(Refusal::invalid(format!("`{name}` is {value}; it must be {from} to {to}")).param(name));
    }
    #[expect(clippy::cast_possible_truncation, reason = "a small number; its last digits do not matter")]
    Ok(value as f32)
}

fn parse_stops(stop: Option<StopIn>) -> Result<Vec<String>, Refusal> {
    let stops = match stop {
        None => Vec::new(),
        Some(StopIn::One(stop)) => vec![stop],
        Some(StopIn::Many(stops)) => stops,
    };
    let is_invalid = |stop: &String| stop.is_empty() || stop.len() > STOP_BYTES_MAX;
    if stops.len() > STOPS_MAX || stops.iter().any(is_invalid) {
        let text = format!("`stop` must be at most {STOPS_MAX} strings of 1 to {STOP_BYTES_MAX} bytes");
        return Err(Refusal::invalid(text).param("stop"));
    }
    Ok(stops)
}

/// Returns a random seed from the standard library's hasher keys, which are random enough for sampling.
fn random_seed() -> u64 {
    RandomState::new().hash_one(0)
}

/// Checks that the requested model is the one served.
pub(super) fn check_model(requested: Option<&str>, served: &str) -> Result<(), Refusal> {
    match requested {
        Some(requested) if requested != served => {
            let text = format!("model {requested:?} is not served here; use {served:?}");
            Err(Refusal::invalid_with_status(StatusCode::NOT_FOUND, text)
                .param("model")
                .code("model_not_found"))
        }
        _ => Ok(()),
    }
}
