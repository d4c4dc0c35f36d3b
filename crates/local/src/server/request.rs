//! Reading a chat request as OpenAI's clients write it. Fields we do not know are left alone; what we know and cannot do is
//! refused by name.

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

/// A chat request that can be answered.
#[derive(Debug)]
pub(super) struct ChatRequest {
    /// The model it asks for; none takes what there is.
    pub(super) model: Option<String>,
    pub(super) chat: Chat,
    pub(super) response_mode: ResponseMode,
}

/// How the answer is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseMode {
    Complete,
    Stream,
    /// As a stream that ends with what it used.
    StreamWithUsage,
}

impl ChatRequest {
    /// Reads a body.
    pub(super) fn from_body(body: &[u8]) -> Result<Self, Refusal> {
        let request: ChatIn = parse_json(body)?;
        if request.n.is_some_and(|count| count != 1) {
            return Err(Refusal::invalid("only one answer can be had: leave `n` out").param("n"));
        }
        let delivery = parse_response_mode(&request);
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
        Ok(Self { model: request.model.filter(|model| !model.is_empty()), chat, response_mode: delivery })
    }
}

/// Reads JSON; what is wrong is said with its place.
pub(super) fn parse_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|fault| {
        let path = fault.path().to_string();
        let refusal = Refusal::invalid(format!("the body cannot be read: {}", fault.inner()));
        if path == "." { refusal } else { refusal.param(path) }
    })?;
    reader.end().map_err(|fault| Refusal::invalid(format!("the body goes on behind its JSON: {fault}")))?;
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
        return Err(Refusal::invalid("there is no message to answer").param("messages"));
    }
    let read = |(place, message)| {
        parse_message(message).map_err(|refusal: Refusal| refusal.param(format!("messages[{place}]")))
    };
    messages.into_iter().enumerate().map(read).collect()
}

fn parse_message(message: MessageIn) -> Result<ChatMessage, Refusal> {
    let role = match message.role.as_str() {
        "system" | "developer" => ChatRole::System,
        "user" => ChatRole::User,
        "assistant" => ChatRole::Assistant,
        "tool" => ChatRole::Tool,
        other => {
            return Err(Refusal::invalid(format!(
                "role {other:?} is unknown: use system, developer, user, assistant or tool"
            )));
        }
    };
    if role == ChatRole::Tool && message.tool_call_id.is_none() {
        return Err(Refusal::invalid("a tool's message needs the `tool_call_id` that it answers"));
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
                    "this model takes no images: leave them out, or ask a model that sees",
                )
                .code("images_not_supported"));
            }
            (other, _) => {
                return Err(Refusal::invalid(format!(
                    "this model reads text only, not parts of type {other:?}"
                )));
            }
        }
    }
    Ok(text)
}

fn parse_tools(tools: Vec<ToolIn>) -> Result<Vec<ChatTool>, Refusal> {
    if tools.len() > TOOLS_MAX {
        return Err(Refusal::invalid(format!("at most {TOOLS_MAX} tools can be offered")).param("tools"));
    }
    let mut offered: Vec<ChatTool> = Vec::with_capacity(tools.len());
    for (place, tool) in tools.into_iter().enumerate() {
        let at = |refusal: Refusal| refusal.param(format!("tools[{place}]"));
        let tool = parse_tool(tool).map_err(at)?;
        if offered.iter().any(|other| other.name == tool.name) {
            return Err(at(Refusal::invalid(format!("tool {:?} is offered twice", tool.name))));
        }
        offered.push(tool);
    }
    Ok(offered)
}

fn parse_tool(tool: ToolIn) -> Result<ChatTool, Refusal> {
    let (kind, Some(function)) = (tool.kind, tool.function) else {
        return Err(Refusal::invalid("a tool needs a `function`"));
    };
    if kind != "function" {
        return Err(Refusal::invalid(format!("tools of type {kind:?} cannot be offered: use \"function\"")));
    }
    let name = function.name;
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(Refusal::invalid(format!("a tool's name has 1 to {NAME_BYTES_MAX} plain characters")));
    }
    let parameters = function.parameters.unwrap_or_else(|| json!({"type": "object", "properties": {}}));
    if !parameters.is_object() {
        return Err(Refusal::invalid("`parameters` has to be a JSON schema, which is an object"));
    }
    let is_object = |kind: &Value| {
        kind == "object" || kind.as_array().is_some_and(|kinds| kinds.contains(&json!("object")))
    };
    if parameters.get("type").is_some_and(|kind| !is_object(kind)) {
        let text = format!("`parameters` of {name:?} has to describe an object: arguments have names");
        return Err(Refusal::invalid(text));
    }
    Ok(ChatTool { name, description: function.description.unwrap_or_default(), parameters })
}

fn parse_tool_choice(choice: Option<ToolChoiceIn>, tools: &[ChatTool]) -> Result<ToolChoice, Refusal> {
    let wrong = |text: String| Err(Refusal::invalid(text).param("tool_choice"));
    match choice {
        None if tools.is_empty() => Ok(ToolChoice::None),
        None => Ok(ToolChoice::Auto),
        Some(ToolChoiceIn::Mode(mode)) => match mode.as_str() {
            "none" => Ok(ToolChoice::None),
            "auto" if tools.is_empty() => Ok(ToolChoice::None),
            "auto" => Ok(ToolChoice::Auto),
            "required" if tools.is_empty() => wrong("a call is required, but no tool is offered".to_owned()),
            "required" => Ok(ToolChoice::Required),
            other => wrong(format!("{other:?} is unknown: use auto, none, required or a function")),
        },
        Some(ToolChoiceIn::Named { function }) => {
            if tools.iter().any(|tool| tool.name == function.name) {
                return Ok(ToolChoice::Named(function.name));
            }
            wrong(format!("tool {:?} is not offered", function.name))
        }
    }
}

fn parse_response_format(format: Option<ResponseFormatIn>) -> Result<Option<Value>, Refusal> {
    let Some(format) = format else {
        return Ok(None);
    };
    let wrong = |text: String| Err(Refusal::invalid(text).param("response_format"));
    match (format.kind.as_str(), format.json_schema.and_then(|named| named.schema)) {
        ("text", _) => Ok(None),
        ("json_object", _) => Ok(Some(json!({"type": "object"}))),
        ("json_schema", Some(schema @ (Value::Object(_) | Value::Bool(true)))) => Ok(Some(schema)),
        ("json_schema", _) => wrong("`json_schema.schema` has to be a JSON schema".to_owned()),
        (other, _) => wrong(format!("type {other:?} is unknown: use text, json_object or json_schema")),
    }
}

fn parse_tokens_max(tokens: Option<u64>) -> Result<Option<usize>, Refusal> {
    match tokens {
        Some(0) => Err(Refusal::invalid("an answer has at least one token").param("max_completion_tokens")),
        // What is larger than any window is no limit.
        tokens => Ok(tokens.and_then(|tokens| usize::try_from(tokens).ok())),
    }
}

fn check_range(name: &'static str, value: f64, from: f64, to: f64) -> Result<f32, Refusal> {
    if !(from..=to).contains(&value) {
        return Err(Refusal::invalid(format!("`{name}` is between {from} and {to}, not {value}")).param(name));
    }
    #[expect(clippy::cast_possible_truncation, reason = "a small number, whose last digits do not matter")]
    Ok(value as f32)
}

fn parse_stops(stop: Option<StopIn>) -> Result<Vec<String>, Refusal> {
    let stops = match stop {
        None => Vec::new(),
        Some(StopIn::One(stop)) => vec![stop],
        Some(StopIn::Many(stops)) => stops,
    };
    let is_odd = |stop: &String| stop.is_empty() || stop.len() > STOP_BYTES_MAX;
    if stops.len() > STOPS_MAX || stops.iter().any(is_odd) {
        let text = format!("at most {STOPS_MAX} stop texts of 1 to {STOP_BYTES_MAX} bytes can be given");
        return Err(Refusal::invalid(text).param("stop"));
    }
    Ok(stops)
}

/// A seed that nobody chose: the standard library's own randomness is enough for drawing words.
fn random_seed() -> u64 {
    RandomState::new().hash_one(0)
}

/// Whether the model asked for is the one there is.
pub(super) fn check_model(asked: Option<&str>, there_is: &str) -> Result<(), Refusal> {
    match asked {
        Some(asked) if asked != there_is => {
            let text = format!("model {asked:?} is not served here; there is {there_is:?}");
            Err(Refusal::invalid_with_status(StatusCode::NOT_FOUND, text)
                .param("model")
                .code("model_not_found"))
        }
        _ => Ok(()),
    }
}
