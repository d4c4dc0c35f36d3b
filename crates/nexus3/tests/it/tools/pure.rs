//! Tools without effects, each with its exact result.

use serde_json::{Value, json};

use super::{fixture_with, tool_result};
use crate::support::folder::TestDirectory;

#[test]
fn each_tool_returns_its_exact_result() {
    let fixture = fixture_with("worker", &TestDirectory::new());
    let cases = [
        ("echo", json!({ "text": "line\n\"two\" \u{1F980}" }), "line\n\"two\" \u{1F980}"),
        ("base64_encode", json!({ "text": "Hello, World!" }), "SGVsbG8sIFdvcmxkIQ=="),
        ("base64.encode", json!({ "text": "" }), ""),
        ("base64_decode", json!({ "encoded": "SGVsbG8sIFdvcmxkIQ==" }), "Hello, World!"),
        (
            "base64_decode",
            json!({ "encoded": "/w==" }),
            "Execution failed: the decoded bytes are not UTF-8 text: ",
        ),
        ("base64_decode", json!({ "encoded": "%" }), "Execution failed: Invalid base64: "),
        (
            "json_parse",
            json!({ "text": "{\"b\":[1,true],\"a\":null}" }),
            "{\n  \"a\": null,\n  \"b\": [\n    1,\n    true\n  ]\n}",
        ),
        (
            "json_parse",
            json!({ "text": "{" }),
            "Execution failed: Invalid JSON: EOF while parsing an object at line 1 column 1",
        ),
        (
            "json_query",
            json!({ "json": "{\"users\":[{\"name\":\"Ann\"}]}", "path": "users[0].name" }),
            "\"Ann\"",
        ),
        ("json.query", json!({ "json": { "a": [[1, 2]] }, "path": "a[0][1]" }), "2"),
        ("json_query", json!({ "json": {}, "path": "a" }), "Execution failed: Key not found: a"),
        ("json_query", json!({ "json": [1], "path": "[3]" }), "Execution failed: Index 3 out of bounds"),
        (
            "hash_sha256",
            json!({ "text": "abc" }),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        ),
        (
            "regex_match",
            json!({ "text": "key=value", "pattern": "(\\w+)=(\\w+)" }),
            "{\n  \"found\": true,\n  \"groups\": [\n    \"key=value\",\n    \"key\",\n    \"value\"\n  ],\n  \"match\": \"key=value\"\n}",
        ),
        (
            "regex_match",
            json!({ "text": "a1b2", "pattern": "\\d", "global": true }),
            "{\n  \"count\": 2,\n  \"found\": true,\n  \"matches\": [\n    {\n      \"end\": 2,\n      \"match\": \"1\",\n      \"start\": 1\n    },\n    {\n      \"end\": 4,\n      \"match\": \"2\",\n      \"start\": 3\n    }\n  ]\n}",
        ),
        (
            "regex_match",
            json!({ "text": "a", "pattern": "b" }),
            "{\n  \"found\": false,\n  \"groups\": [],\n  \"match\": null\n}",
        ),
        (
            "regex_match",
            json!({ "text": "a", "pattern": "(" }),
            "Invalid input: field `pattern`: unclosed group",
        ),
        ("regex_replace", json!({ "text": "a1b2", "pattern": "(\\d)", "replacement": "<$1>" }), "a<1>b<2>"),
        (
            "regex.replace",
            json!({ "text": "aa", "pattern": "a", "replacement": "$$", "global": false }),
            "$a",
        ),
    ];
    for (tool, arguments, result) in cases {
        let actual = tool_result(&fixture, &format!("!tool {tool} {arguments}"));
        let matches = if result.ends_with(": ") { actual.starts_with(result) } else { actual == result };
        assert!(matches, "{tool} {arguments}: {actual:?}, expected {result:?}");
    }
}

#[test]
fn get_time_returns_text_timestamp_and_time_zone() {
    let fixture = fixture_with("worker", &TestDirectory::new());
    let before = unix_seconds();
    let time: Value = serde_json::from_str(&tool_result(&fixture, "!tool get_time {}")).unwrap();
    let after = unix_seconds();
    assert_eq!(time["timezone"], "UTC");
    let second = time["timestamp"].as_u64().unwrap();
    assert!((before..=after).contains(&second), "{time}");
    let text = time["time"].as_str().unwrap();
    assert!(text.ends_with("+00:00") && text.len() == "2026-01-01T00:00:00.000000000+00:00".len(), "{time}");
}

fn unix_seconds() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("it is after 1970").as_secs()
}

#[test]
fn uuids_are_random_and_as_many_as_requested() {
    let fixture = fixture_with("worker", &TestDirectory::new());
    let is_uuid = |text: &str| {
        text.len() == 36 && text.as_bytes()[14] == b'4' && b"89ab".contains(&text.as_bytes()[19])
    };
    let (one, two) = (
        tool_result(&fixture, "!tool uuid_generate {}"),
        tool_result(&fixture, "!tool uuid.generate {\"count\":1}"),
    );
    assert!(is_uuid(&one) && is_uuid(&two) && one != two, "{one} {two}");
    let many: Vec<String> =
        serde_json::from_str(&tool_result(&fixture, "!tool uuid_generate {\"count\":3}")).unwrap();
    assert!(many.len() == 3 && many.iter().all(|text| is_uuid(text)), "{many:?}");
    let capped: Vec<String> =
        serde_json::from_str(&tool_result(&fixture, "!tool uuid_generate {\"count\":5000}")).unwrap();
    assert_eq!(capped.len(), 100);
}

#[test]
fn long_result_is_truncated_at_the_configured_size() {
    let fixture = crate::support::Fixture::with_config("limits.tool_result_bytes_max = 1024");
    fixture.create("worker");
    let actual = tool_result(&fixture, &format!("!tool echo {}", json!({ "text": "\u{fc}".repeat(2000) })));
    let expected = format!(
        "{}\n[truncated: 1024 of 4000 bytes shown; call the tool for a smaller part]",
        "\u{fc}".repeat(512)
    );
    assert_eq!(actual, expected);
}
