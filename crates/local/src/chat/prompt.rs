//! Prompt rendering: a chat as the text that the model reads. Tools go through the template if it supports them;
//! otherwise the system message gets a short list of tools, and calls and results become plain text.

use serde_json::{Value, json};

use super::template::{CALL_END_TAG, CALL_START_TAG, Template, TemplateMessage, python_json};
use super::vocabulary::Vocabulary;
use crate::generation::{Chat, ChatMessage, ChatRole, ChatTool, ChatToolCall, ToolChoice};

/// Token budget of the tool list, per tool.
const TOKENS_PER_TOOL: usize = 50;
/// Lower bound of the budget: it is at least that of this many tools.
const TOOLS_MIN: usize = 6;

/// Renders the prompt of `chat`, up to where the response begins.
pub(crate) fn render(chat: &Chat, template: &Template, vocabulary: &Vocabulary) -> Result<String, String> {
    let tools: &[ChatTool] = if chat.tool_choice == ToolChoice::None { &[] } else { &chat.tools };
    let supports_tools = template.supports_tools();
    let mut messages: Vec<TemplateMessage> = chat
        .messages
        .iter()
        .map(|message| template_message(message, supports_tools, vocabulary))
        .collect::<Result<_, _>>()?;
    let mut offered = Vec::new();
    if supports_tools {
        offered = tools.iter().map(|tool| tool_value(tool, vocabulary)).collect();
    } else if !tools.is_empty() {
        let list = vocabulary.escape_control_tokens(&tool_summary(tools, vocabulary));
        match messages.first_mut().filter(|message| message.role == "system") {
            Some(system) => system.content = format!("{}\n\n{list}", system.content),
            None => {
                messages.insert(0, TemplateMessage { role: "system", content: list, tool_calls: Vec::new() });
            }
        }
    }
    template.render(&messages, &offered, vocabulary.bos_eos_names())
}

fn template_message(
    message: &ChatMessage,
    supports_tools: bool,
    vocabulary: &Vocabulary,
) -> Result<TemplateMessage, String> {
    let mut content = vocabulary.escape_control_tokens(&message.text);
    let mut tool_calls = Vec::new();
    let mut role = match message.role {
        ChatRole::System => "system",
        ChatRole::User => "user",
        ChatRole::Assistant => "assistant",
        ChatRole::Tool => "tool",
    };
    if supports_tools {
        for call in &message.tool_calls {
            let function = call_value(call, vocabulary)?;
            tool_calls.push(json!({"type": "function", "function": function}));
        }
    } else if message.role == ChatRole::Tool {
        role = "user";
        content = format!("<tool_response>\n{content}\n</tool_response>");
    } else {
        for call in &message.tool_calls {
            let value = call_value(call, vocabulary)?;
            let json = python_json(&value).map_err(|fault| fault.to_string())?;
            let separator = if content.is_empty() { "" } else { "\n" };
            content = format!("{content}{separator}{CALL_START_TAG}\n{json}\n{CALL_END_TAG}");
        }
    }
    Ok(TemplateMessage { role, content, tool_calls })
}

fn call_value(call: &ChatToolCall, vocabulary: &Vocabulary) -> Result<Value, String> {
    let arguments: Value = serde_json::from_str(&call.arguments)
        .map_err(|fault| format!("the arguments of call {} are not JSON: {fault}", call.id))?;
    Ok(escape_value(&json!({"name": call.name, "arguments": arguments}), vocabulary))
}

fn tool_value(tool: &ChatTool, vocabulary: &Vocabulary) -> Value {
    let function = json!({"name": tool.name, "description": tool.description, "parameters": tool.parameters});
    escape_value(&json!({"type": "function", "function": function}), vocabulary)
}

/// Escapes control tokens in all strings of a value. Escaping its serialized JSON instead would be wrong: a `\u` escape
/// may hide a control token, and brackets of the JSON begin the control tokens of some models.
fn escape_value(value: &Value, vocabulary: &Vocabulary) -> Value {
    match value {
        Value::String(text) => Value::String(vocabulary.escape_control_tokens(text)),
        Value::Array(list) => list.iter().map(|value| escape_value(value, vocabulary)).collect(),
        Value::Object(fields) => {
            let fields = fields.iter();
            fields
                .map(|(name, value)| {
                    (vocabulary.escape_control_tokens(name), escape_value(value, vocabulary))
                })
                .collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// Lists the tools with as much of their descriptions as the token budget allows.
fn tool_summary(tools: &[ChatTool], vocabulary: &Vocabulary) -> String {
    let budget = TOKENS_PER_TOOL * tools.len().max(TOOLS_MIN);
    let mut list = String::new();
    for detail in [
        Detail { description_characters_max: 160, includes_optional: true },
        Detail { description_characters_max: 60, includes_optional: true },
        Detail { description_characters_max: 40, includes_optional: false },
    ] {
        list = format_tool_list(tools, detail);
        if vocabulary.encode_plain(&list).len() <= budget {
            return list;
        }
    }
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    let bare = format!("You have these tools: {}.{}", names.join(", "), HOW_TO_CALL);
    if vocabulary.encode_plain(&bare).len() < vocabulary.encode_plain(&list).len() { bare } else { list }
}

const HOW_TO_CALL: &str =
    "\nTo use one, answer only:\n<tool_call>\n{\"name\": \"tool\", \"arguments\": {}}\n</tool_call>";

/// Level of detail of the tool list.
#[derive(Clone, Copy)]
struct Detail {
    /// Longest description.
    description_characters_max: usize,
    /// Whether optional parameters are listed.
    includes_optional: bool,
}

fn format_tool_list(tools: &[ChatTool], detail: Detail) -> String {
    let lines: Vec<String> = tools
        .iter()
        .map(|tool| {
            let description = first_sentence(&tool.description, detail.description_characters_max);
            format!("- {}({}): {description}", tool.name, parameters(&tool.parameters, detail))
        })
        .collect();
    format!("You have these tools:\n{}{HOW_TO_CALL}", lines.join("\n"))
}

fn parameters(schema: &Value, detail: Detail) -> String {
    let required: Vec<&str> = schema["required"]
        .as_array()
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let Some(properties) = schema["properties"].as_object() else { return String::new() };
    let listed = properties.iter().filter_map(|(name, schema)| {
        let is_required = required.contains(&name.as_str());
        let kind = schema["type"].as_str().unwrap_or("any");
        (is_required || detail.includes_optional)
            .then(|| format!("{name}{}: {kind}", if is_required { "" } else { "?" }))
    });
    listed.collect::<Vec<_>>().join(", ")
}

fn first_sentence(text: &str, characters_max: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    let sentence = line.split_inclusive(". ").next().unwrap_or_default().trim_end();
    sentence.chars().take(characters_max).collect()
}

#[cfg(test)]
mod tests;
