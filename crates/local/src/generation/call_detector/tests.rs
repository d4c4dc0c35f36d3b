//! Tests: which texts become calls, however they are cut, and that nothing else is held back for long.

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

/// What is said of `parts`, and how many bytes before their end a call begins.
fn detect<'a>(parts: impl IntoIterator<Item = &'a str>) -> (String, Option<usize>) {
    let tools = tools();
    let (mut opening, mut said) = (CallDetector::new(&tools), String::new());
    for part in parts {
        match opening.push(part) {
            DetectorOutput::Text(text) => said.push_str(&text),
            DetectorOutput::Call(text, bytes) => return (said + &text, Some(bytes)),
        }
    }
    (said + &opening.drain_pending(), None)
}

/// The same for every way to cut `text` in two, and for one character at a time: what is said before the call.
fn text_before_call(text: &str) -> Option<String> {
    let mut characters = text.char_indices().map(|(at, character)| &text[at..at + character.len_utf8()]);
    let (said, call) = detect(&mut characters);
    for cut in (0..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
        let (other, also) = detect([&text[..cut], &text[cut..]]);
        assert_eq!((&other, also.is_some()), (&said, call.is_some()), "cut at {cut}");
    }
    if call.is_none() {
        assert_eq!(said, text);
    }
    call.map(|_| said)
}

#[test]
fn a_call_is_seen_bare_and_in_a_fence_however_it_is_cut() {
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
fn a_tool_that_nobody_offered_is_a_call_when_it_has_arguments() {
    for text in [
        "{\"name\": \"fly\", \"arguments\": {\"to\": \"the moon\"}}",
        "```json\n{\"name\": \"fly\",\n \"parameters\"",
        "{\"name\": \"fly\", \"args\"",
    ] {
        assert_eq!(text_before_call(text).as_deref(), Some(""), "{text}");
    }
}

#[test]
fn a_call_behind_some_words_is_seen_on_its_own_line() {
    let words = "I read it.\n";
    assert_eq!(text_before_call(&format!("{words}```json\n{{\"name\": \"read\"")).as_deref(), Some(words));
    assert_eq!(text_before_call(&format!("{words}\n{{\"name\": \"read\"")).as_deref(), Some(words));
}

#[test]
fn a_call_behind_a_block_of_code_is_seen() {
    let code = "```sh\nls\n```\n";
    assert_eq!(text_before_call(&format!("{code}{{\"name\": \"read\"")).as_deref(), Some(code));
}

#[test]
fn what_is_no_call_stays_text() {
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
fn a_call_shown_inside_a_block_of_code_stays_text() {
    let text = "```python\nask(\n{\"name\": \"read\", \"arguments\": {}}\n)\n```\n";
    assert_eq!(text_before_call(text), None);
}

#[test]
fn only_what_may_begin_a_call_is_held_back() {
    let tools = tools();
    let mut opening = CallDetector::new(&tools);
    let said = |text: &str| DetectorOutput::Text(text.to_owned());
    assert_eq!(opening.push("Hel"), said("Hel"));
    assert_eq!(opening.push("lo {"), said("lo {"));
    assert_eq!(opening.push("\"name\": \"read\"}\nNow"), said("\"name\": \"read\"}\nNow"));
    assert_eq!(opening.push("\n``"), said("\n"));
    assert_eq!(opening.push("`ru"), said(""));
    assert_eq!(opening.push("st\nf"), said("```rust\nf"));
    assert_eq!(opening.push("n main"), said("n main"));
    let long = format!("\n```\n{{\"name\": \"{}", "x".repeat(200));
    assert_eq!(opening.push(&long), said(&long));
}

#[test]
fn without_tools_nothing_is_held_back() {
    let mut opening = CallDetector::new(&[]);
    assert_eq!(opening.push("{\"name\": \"read\""), DetectorOutput::Text("{\"name\": \"read\"".to_owned()));
}

#[test]
fn the_bytes_of_what_begins_a_call_are_told() {
    let begin = "{\"name\": \"read\"";
    assert_eq!(detect(["Yes.\n", begin]), ("Yes.\n".to_owned(), Some(begin.len())));
}
