//! Tests: which texts are detected as calls, however they are split, and that other text is not held back for long.

use super::*;
use serde_json::json;

fn tools() -> Vec<ChatTool> {
    let tool = |name: &str| ChatTool {
        name: name.to_owned(),
        description: String::new(),
        parameters: json!({"type": "object"}),
    };
    vec![tool("read"), tool("count")]
}

/// Feeds `parts`; returns the emitted text and the length of the detected call, if any.
fn detect<'a>(parts: impl IntoIterator<Item = &'a str>) -> (String, Option<usize>) {
    let tools = tools();
    let (mut detector, mut emitted) = (CallDetector::new(&tools), String::new());
    for part in parts {
        match detector.push(part) {
            DetectorOutput::Text(text) => emitted.push_str(&text),
            DetectorOutput::Call(text, bytes) => return (emitted + &text, Some(bytes)),
        }
    }
    (emitted + &detector.flush(), None)
}

/// Returns the text before the call, if one is detected. Asserts that the result is the same for single characters and
/// for every split of `text` in two.
fn text_before_call(text: &str) -> Option<String> {
    let mut characters = text.char_indices().map(|(at, character)| &text[at..at + character.len_utf8()]);
    let (emitted, call) = detect(&mut characters);
    for split in (0..text.len()).filter(|split| text.is_char_boundary(*split)) {
        let (split_emitted, split_call) = detect([&text[..split], &text[split..]]);
        assert_eq!((&split_emitted, split_call.is_some()), (&emitted, call.is_some()), "split at {split}");
    }
    if call.is_none() {
        assert_eq!(emitted, text);
    }
    call.map(|_| emitted)
}

#[test]
fn bare_and_fenced_calls_are_detected_in_any_split() {
    for text in [
        "{\"name\": \"read\", \"arguments\": {}}",
        "{\"name\" :\n \"count\"",
        "  \n{ \"name\":\"read\"",
        "```json\n{\"name\": \"read\", ",
        "```\n{\n  \"name\": \"count\",",
        "```json {\"name\": \"read\"",
        "```tool_call\n{\"name\": \"read\"",
        "[{\"name\": \"read\"",
        "```json\n[\n  {\"name\": \"read\"",
        "{{\"name\": \"read\"",
    ] {
        assert_eq!(text_before_call(text).as_deref(), Some(""), "{text}");
    }
}

#[test]
fn unknown_tool_with_arguments_is_a_call() {
    for text in [
        "{\"name\": \"fly\", \"arguments\": {\"to\": \"the moon\"}}",
        "```json\n{\"name\": \"fly\",\n \"parameters\"",
        "{\"name\": \"fly\", \"args\"",
    ] {
        assert_eq!(text_before_call(text).as_deref(), Some(""), "{text}");
    }
}

#[test]
fn call_on_its_own_line_after_text_is_detected() {
    let words = "I read it.\n";
    assert_eq!(text_before_call(&format!("{words}```json\n{{\"name\": \"read\"")).as_deref(), Some(words));
    assert_eq!(text_before_call(&format!("{words}\n{{\"name\": \"read\"")).as_deref(), Some(words));
}

#[test]
fn call_after_a_code_block_is_detected() {
    let code = "```sh\nls\n```\n";
    assert_eq!(text_before_call(&format!("{code}{{\"name\": \"read\"")).as_deref(), Some(code));
}

#[test]
fn other_text_is_not_a_call() {
    for text in [
        "Hello.",
        "{\"name\": \"Bob\"}",
        "{\"name\": \"Bob\", \"age\": 3}",
        "{\"name\": \"Bob\", \"arrives\": 3}",
        "{\"names\": [\"read\"]}",
        "{\"path\": \"read\"}",
        "{}",
        "```rust\nfn main() {}\n```\nDone.",
        "```json\n{\"name\": \"my-app\", \"version\": \"1.0.0\"}\n```",
        "```json\n{\"a\": 1}\n```\n",
        "Use `{\"name\": \"read\"}` for that.",
        "The call {\"name\": \"read\"} is inside a line.",
        "`read` is a tool.",
        "[1, 2]",
        "{\"name\": \"a name\nof two lines\", \"arguments\": {}}",
        "``` an info of several words\n{\"name\": \"Bob\"}",
        "😀 ```",
    ] {
        assert_eq!(text_before_call(text), None, "{text}");
    }
}

#[test]
fn call_inside_a_code_block_stays_text() {
    let text = "```python\nask(\n{\"name\": \"read\", \"arguments\": {}}\n)\n```\n";
    assert_eq!(text_before_call(text), None);
}

#[test]
fn only_a_possible_call_is_held_back() {
    let tools = tools();
    let mut detector = CallDetector::new(&tools);
    let emitted = |text: &str| DetectorOutput::Text(text.to_owned());
    assert_eq!(detector.push("Hel"), emitted("Hel"));
    assert_eq!(detector.push("lo {"), emitted("lo {"));
    assert_eq!(detector.push("\"name\": \"read\"}\nNow"), emitted("\"name\": \"read\"}\nNow"));
    assert_eq!(detector.push("\n``"), emitted("\n"));
    assert_eq!(detector.push("`ru"), emitted(""));
    assert_eq!(detector.push("st\nf"), emitted("```rust\nf"));
    assert_eq!(detector.push("n main"), emitted("n main"));
    let long = format!("\n```\n{{\"name\": \"{}", "x".repeat(200));
    assert_eq!(detector.push(&long), emitted(&long));
}

#[test]
fn without_tools_nothing_is_held_back() {
    let mut detector = CallDetector::new(&[]);
    assert_eq!(detector.push("{\"name\": \"read\""), DetectorOutput::Text("{\"name\": \"read\"".to_owned()));
}

#[test]
fn length_of_the_call_start_is_reported() {
    let start = "{\"name\": \"read\"";
    assert_eq!(detect(["Yes.\n", start]), ("Yes.\n".to_owned(), Some(start.len())));
}
