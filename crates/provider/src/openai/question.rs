//! Writes a request in the words of the chat-completions API.

use std::borrow::Cow;

use agent::outside::ModelRequest;
use agent::{Fault, FaultKind, Message, Role, ToolCall, ToolSpec};
use serde::Serialize;
use serde_json::value::RawValue;

#[derive(Serialize)]
struct Question<'a> {
    model: &'a str,
    messages: Vec<Line<'a>>,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Offer<'a>>,
}

/// A tool the model may call.
#[derive(Serialize)]
struct Offer<'a> {
    r#type: &'static str,
    function: Description<'a>,
}

#[derive(Serialize)]
struct Description<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a RawValue,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct Line<'a> {
    role: &'a str,
    content: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

#[derive(Serialize)]
struct Call<'a> {
    id: &'a str,
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: Cow<'a, str>,
    arguments: &'a str,
}

pub(super) fn write(model: &str, request: &ModelRequest) -> Result<Vec<u8>, Fault> {
    let system = request.system.as_deref().map(|text| line("system", text));
    let messages = system.into_iter().chain(request.messages.iter().map(|message| spoken(message))).collect();
    let tools = request.tools.iter().map(|tool| offer(tool)).collect::<Result<_, _>>().map_err(unwritten)?;
    let stream_options = StreamOptions { include_usage: true };
    let question = Question { model, messages, stream: true, stream_options, tools };
    serde_json::to_vec(&question).map_err(unwritten)
}

fn unwritten(fault: serde_json::Error) -> Fault {
    Fault::new(FaultKind::Internal, "the request could not be written").caused_by(fault)
}

fn offer(tool: &ToolSpec) -> Result<Offer<'_>, serde_json::Error> {
    let parameters = serde_json::from_str(&tool.input_schema)?;
    let function = Description { name: &tool.model_name, description: &tool.description, parameters };
    Ok(Offer { r#type: "function", function })
}

fn line<'a>(role: &'a str, content: &'a str) -> Line<'a> {
    Line { role, content, tool_calls: Vec::new(), tool_call_id: None }
}

fn spoken(message: &Message) -> Line<'_> {
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    Line {
        tool_calls: message.tool_calls.iter().map(call).collect(),
        tool_call_id: message.tool_call_id.as_deref(),
        ..line(role, &message.text)
    }
}

fn call(call: &ToolCall) -> Call<'_> {
    Call {
        id: &call.id,
        r#type: "function",
        function: Function { name: function_name(&call.name), arguments: arguments(&call.arguments) },
    }
}

/// The longest name that servers take.
const NAME_CHARS_MAX: usize = 64;

/// A name that no server takes would have every later question refused; its result has told the model already.
fn function_name(name: &str) -> Cow<'_, str> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    if (1..=NAME_CHARS_MAX).contains(&name.len()) && name.bytes().all(fits) {
        return Cow::Borrowed(name);
    }
    let fitted = |letter: char| if u8::try_from(letter).is_ok_and(fits) { letter } else { '_' };
    let name: String = name.chars().take(NAME_CHARS_MAX).map(fitted).collect();
    Cow::Owned(if name.is_empty() { "_".to_owned() } else { name })
}

/// Many servers read the arguments again; what is no object would have every later question refused.
fn arguments(text: &str) -> &str {
    let is_object = text.trim_ascii_start().starts_with('{');
    if is_object && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() { text } else { "{}" }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agent::{Pace, Source, ToolClass, ToolOutcome};

    use super::*;

    #[test]
    fn a_conversation_is_written_in_the_apis_words() {
        let call = ToolCall { id: "c1".into(), name: "echo".into(), arguments: "{\"a\":1}".into() };
        let request = ModelRequest {
            system: Some(Arc::from("Be brief.")),
            messages: Arc::new(vec![
                Arc::new(Message::user("hi", Source::default())),
                Arc::new(Message::assistant("", vec![call])),
                Arc::new(Message::result("c1", &ToolOutcome::Done("one".into()))),
            ]),
            tools: vec![Arc::new(ToolSpec {
                name: "text.echo".into(),
                model_name: "text_echo".into(),
                aliases: &[],
                description: "Says it again.".into(),
                input_schema: r#"{"type":"object"}"#.into(),
                pace: Pace::Parallel,
                class: ToolClass::Pure,
                time_ms_max: 1,
                tokens: 1,
            })],
            ..ModelRequest::default()
        };
        let body: serde_json::Value = serde_json::from_slice(&write("m", &request).unwrap()).unwrap();
        let expected = serde_json::json!({
            "model": "m",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": "", "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "echo", "arguments": "{\"a\":1}"}}
                ]},
                {"role": "tool", "content": "one", "tool_call_id": "c1"}
            ],
            "stream": true,
            "stream_options": {"include_usage": true},
            "tools": [{"type": "function", "function": {
                "name": "text_echo", "description": "Says it again.", "parameters": {"type": "object"}
            }}]
        });
        assert_eq!(body, expected);
    }

    #[test]
    fn what_a_server_would_refuse_in_an_old_call_is_not_sent_again() {
        let long = "n".repeat(80);
        for (name, arguments, sent_name, sent_arguments) in [
            ("echo", "{\"a\":1}", "echo", "{\"a\":1}"),
            ("fs.read_file", "{}", "fs_read_file", "{}"),
            ("b\u{e4}d name", "{\"a\":", "b_d_name", "{}"),
            ("", "[1]", "_", "{}"),
            (long.as_str(), "", &long[..64], "{}"),
        ] {
            let call = ToolCall { id: "c".into(), name: name.into(), arguments: arguments.into() };
            let messages = Arc::new(vec![Arc::new(Message::assistant("", vec![call]))]);
            let request = ModelRequest { messages, ..ModelRequest::default() };
            let body: serde_json::Value = serde_json::from_slice(&write("m", &request).unwrap()).unwrap();
            let function = &body["messages"][0]["tool_calls"][0]["function"];
            let expected = serde_json::json!({ "name": sent_name, "arguments": sent_arguments });
            assert_eq!(*function, expected, "{name:?}");
        }
    }
}
