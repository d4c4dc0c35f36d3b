//! A chat as the text that a model reads. Tools go through the template where it has a place for them;
//! elsewhere the system message gets a short list of them, and calls and results become plain text.

use serde_json::{Value, json};

use super::template::{CALL_BEGINS, CALL_ENDS, Template, TemplateMessage, spaced_json};
use super::tokens::Vocabulary;
use crate::generation::{Chat, ChatMessage, ChatRole, MadeCall, OfferedTool, ToolChoice};

/// What the list of tools may take in the prompt, per tool and at least.
const TOKENS_PER_TOOL: usize = 50;
const TOOLS_AT_LEAST: usize = 6;

/// The prompt of `chat`, up to where the answer begins.
pub(crate) fn render(chat: &Chat, template: &Template, vocabulary: &Vocabulary) -> Result<String, String> {
    let tools: &[OfferedTool] = if chat.choice == ToolChoice::None { &[] } else { &chat.tools };
    let inside = template.offers_tools();
    let mut messages: Vec<TemplateMessage> =
        chat.messages.iter().map(|message| told(message, inside, vocabulary)).collect::<Result<_, _>>()?;
    let mut offered = Vec::new();
    if inside {
        offered = tools.iter().map(|tool| described(tool, vocabulary)).collect();
    } else if !tools.is_empty() {
        let list = vocabulary.guard(&short_list(tools, vocabulary));
        match messages.first_mut().filter(|message| message.role == "system") {
            Some(system) => system.content = format!("{}\n\n{list}", system.content),
            None => {
                messages.insert(0, TemplateMessage { role: "system", content: list, tool_calls: Vec::new() });
            }
        }
    }
    template.render(&messages, &offered, vocabulary.edge_names())
}

fn told(message: &ChatMessage, inside: bool, vocabulary: &Vocabulary) -> Result<TemplateMessage, String> {
    let mut content = vocabulary.guard(&message.text);
    let mut tool_calls = Vec::new();
    let mut role = match message.role {
        ChatRole::System => "system",
        ChatRole::User => "user",
        ChatRole::Assistant => "assistant",
        ChatRole::Tool => "tool",
    };
    if inside {
        for call in &message.calls {
            let function = call_value(call, vocabulary)?;
            tool_calls.push(json!({"type": "function", "function": function}));
        }
    } else if message.role == ChatRole::Tool {
        role = "user";
        content = format!("<tool_response>\n{content}\n</tool_response>");
    } else {
        for call in &message.calls {
            let value = call_value(call, vocabulary)?;
            let written = spaced_json(&value).map_err(|fault| fault.to_string())?;
            let gap = if content.is_empty() { "" } else { "\n" };
            content = format!("{content}{gap}{CALL_BEGINS}\n{written}\n{CALL_ENDS}");
        }
    }
    Ok(TemplateMessage { role, content, tool_calls })
}

fn call_value(call: &MadeCall, vocabulary: &Vocabulary) -> Result<Value, String> {
    let arguments: Value = serde_json::from_str(&call.arguments)
        .map_err(|fault| format!("the arguments of call {} are not JSON: {fault}", call.id))?;
    Ok(guarded(&json!({"name": call.name, "arguments": arguments}), vocabulary))
}

fn described(tool: &OfferedTool, vocabulary: &Vocabulary) -> Value {
    let function = json!({"name": tool.name, "description": tool.description, "parameters": tool.parameters});
    guarded(&json!({"type": "function", "function": function}), vocabulary)
}

/// A value whose texts hold no control tokens. Its JSON is not guarded as it stands: an escape in it may stand for what has
/// to be, and its brackets begin the names of some models' control tokens.
fn guarded(value: &Value, vocabulary: &Vocabulary) -> Value {
    match value {
        Value::String(text) => Value::String(vocabulary.guard(text)),
        Value::Array(list) => list.iter().map(|value| guarded(value, vocabulary)).collect(),
        Value::Object(fields) => {
            let fields = fields.iter();
            fields.map(|(name, value)| (vocabulary.guard(name), guarded(value, vocabulary))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// The tools in few words: as much of their descriptions as the allowance holds.
fn short_list(tools: &[OfferedTool], vocabulary: &Vocabulary) -> String {
    let allowance = TOKENS_PER_TOOL * tools.len().max(TOOLS_AT_LEAST);
    let mut list = String::new();
    for detail in
        [Detail { said: 160, all: true }, Detail { said: 60, all: true }, Detail { said: 40, all: false }]
    {
        list = list_with(tools, detail);
        if vocabulary.plain(&list).len() <= allowance {
            return list;
        }
    }
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    let bare = format!("You have these tools: {}.{}", names.join(", "), HOW_TO_CALL);
    if vocabulary.plain(&bare).len() < vocabulary.plain(&list).len() { bare } else { list }
}

const HOW_TO_CALL: &str =
    "\nTo use one, answer only:\n<tool_call>\n{\"name\": \"tool\", \"arguments\": {}}\n</tool_call>";

/// How much is said of each tool.
#[derive(Clone, Copy)]
struct Detail {
    /// Characters of the description.
    said: usize,
    /// Whether parameters that may be left out are named.
    all: bool,
}

fn list_with(tools: &[OfferedTool], detail: Detail) -> String {
    let lines: Vec<String> = tools
        .iter()
        .map(|tool| {
            let said = first_sentence(&tool.description, detail.said);
            format!("- {}({}): {said}", tool.name, parameters(&tool.parameters, detail))
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
    let named = properties.iter().filter_map(|(name, schema)| {
        let needed = required.contains(&name.as_str());
        let kind = schema["type"].as_str().unwrap_or("any");
        (needed || detail.all).then(|| format!("{name}{}: {kind}", if needed { "" } else { "?" }))
    });
    named.collect::<Vec<_>>().join(", ")
}

fn first_sentence(text: &str, characters: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    let sentence = line.split_inclusive(". ").next().unwrap_or_default().trim_end();
    sentence.chars().take(characters).collect()
}

#[cfg(test)]
mod tests;
