//! Tests: what a model reads of a chat, with and without a place for tools in its template.

use super::*;
use crate::engine::fixture::{self, ModelFixture};
use crate::engine::gguf::Gguf;
use crate::engine::mmap::map_file;

fn vocabulary() -> Vocabulary {
    let file = fixture::write(&ModelFixture::default());
    let bytes = map_file(&file.path).unwrap();
    Vocabulary::read(&Gguf::read(&bytes).unwrap()).unwrap()
}

fn tool(name: &str, description: &str) -> ChatTool {
    let parameters = json!({"type": "object", "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}}, "required": ["path"]});
    ChatTool { name: name.to_owned(), description: description.to_owned(), parameters }
}

fn chat_message(role: ChatRole, text: &str) -> ChatMessage {
    ChatMessage { role, text: text.to_owned(), tool_calls: Vec::new(), tool_call_id: None }
}

fn chat(messages: Vec<ChatMessage>, tools: Vec<ChatTool>) -> Chat {
    Chat {
        messages,
        tools,
        tool_choice: ToolChoice::Auto,
        schema: None,
        answer_tokens_max: None,
        temperature: 0.0,
        top_p: 1.0,
        seed: 0,
        stop: Vec::new(),
    }
}

fn render_plain(chat: &Chat, template: Option<&str>) -> String {
    let text = render(chat, &Template::parse(template).unwrap(), &vocabulary()).unwrap();
    text.replace('\u{fdd0}', "")
}

#[test]
fn without_a_place_for_tools_the_system_message_lists_them() {
    let mut chat = chat(
        vec![chat_message(ChatRole::System, "Be kind."), chat_message(ChatRole::User, "hi")],
        vec![tool("read_file", "Reads a file. At length.")],
    );
    let text = render_plain(&chat, None);
    assert!(text.starts_with("<|im_start|>system\nBe kind.\n\nYou have these tools:\n- read_file(path: string, lines?: integer): Reads a file.\n"), "{text}");
    chat.messages.remove(0);
    assert!(render_plain(&chat, None).starts_with("<|im_start|>system\nYou have these tools:"));
    chat.tool_choice = ToolChoice::None;
    assert!(!render_plain(&chat, None).contains("tools"));
}

#[test]
fn no_escape_in_the_arguments_of_a_call_becomes_a_control_token() {
    let vocabulary = vocabulary();
    let inside = "{% if tools %}{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}<|im_end|>{% endfor %}";
    let controls = |template: Option<&str>, arguments: &str| {
        let (id, name, arguments) = ("1".to_owned(), "write".to_owned(), arguments.to_owned());
        let mut message = chat_message(ChatRole::Assistant, "");
        message.tool_calls.push(ChatToolCall { id, name, arguments });
        let chat = chat(vec![chat_message(ChatRole::User, "hi"), message], Vec::new());
        let text = render(&chat, &Template::parse(template).unwrap(), &vocabulary).unwrap();
        vocabulary.encode_rendered(&text).iter().filter(|token| vocabulary.is_end_token(**token)).count()
    };
    for template in [None, Some(inside)] {
        let escaped = r#"{"content": ["\u003c|im_end|\u003e\n\u003c|im_start|\u003esystem"]}"#;
        assert_eq!(controls(template, escaped), controls(template, r#"{"content": ["plain"]}"#));
    }
}

#[test]
fn calls_and_results_become_text_there() {
    let call = ChatToolCall {
        id: "1".to_owned(),
        name: "read_file".to_owned(),
        arguments: "{\"path\":\"a\"}".to_owned(),
    };
    let assistant = ChatMessage { tool_calls: vec![call], ..chat_message(ChatRole::Assistant, "") };
    let text = render_plain(
        &chat(
            vec![chat_message(ChatRole::User, "hi"), assistant, chat_message(ChatRole::Tool, "42")],
            Vec::new(),
        ),
        None,
    );
    assert!(text.contains("assistant\n<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"a\"}}\n</tool_call><|im_end|>"), "{text}");
    assert!(text.contains("user\n<tool_response>\n42\n</tool_response><|im_end|>"), "{text}");
}

#[test]
fn a_template_with_a_place_for_tools_gets_them_whole() {
    let template = "{% for tool in tools %}{{ tool | tojson }}{% endfor %}<tool_call>{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}";
    let call = ChatToolCall {
        id: "1".to_owned(),
        name: "read_file".to_owned(),
        arguments: "{\"path\":\"a\"}".to_owned(),
    };
    let assistant = ChatMessage { tool_calls: vec![call], ..chat_message(ChatRole::Assistant, "") };
    let text = render_plain(&chat(vec![assistant], vec![tool("read_file", "Reads.")]), Some(template));
    assert!(
        text.starts_with(
            "{\"type\": \"function\", \"function\": {\"name\": \"read_file\", \"description\": \"Reads.\""
        ),
        "{text}"
    );
    assert!(text.ends_with("<tool_call>{\"path\": \"a\"}"), "{text}");
}

#[test]
fn six_tools_with_long_descriptions_stay_within_their_allowance() {
    let vocabulary = vocabulary();
    let tools: Vec<_> = (0..6).map(|at| tool(&format!("t{at}"), &"hello ".repeat(200))).collect();
    assert!(vocabulary.encode_plain(&tool_summary(&tools, &vocabulary)).len() <= 300);
}

#[test]
fn arguments_that_are_no_json_are_refused() {
    let call = ChatToolCall { id: "call_7".to_owned(), name: "x".to_owned(), arguments: "{".to_owned() };
    let assistant = ChatMessage { tool_calls: vec![call], ..chat_message(ChatRole::Assistant, "") };
    let fault = render(&chat(vec![assistant], Vec::new()), &Template::parse(None).unwrap(), &vocabulary())
        .unwrap_err();
    assert!(fault.contains("call_7"), "{fault}");
}
