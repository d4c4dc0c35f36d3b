//! Pure tools, each by a table of arguments and outcomes.

use agent::ToolOutcome;
use serde_json::{Value, json};

use crate::fixture::{Fixture, done, failed};

async fn check(tool: &str, table: &[(Value, ToolOutcome)]) {
    let fixture = Fixture::confined_to("/nowhere");
    for (arguments, expected) in table {
        assert_eq!(fixture.call(tool, arguments).await, *expected, "{tool} {arguments}");
    }
}

#[tokio::test]
async fn echo_returns_its_text() {
    let long = "ä".repeat(100_000);
    check(
        "echo",
        &[
            (json!({"text": "hi"}), done("hi")),
            (json!({"text": ""}), done("")),
            (json!({"text": "a\0\n\"ü😀"}), done("a\0\n\"ü😀")),
            (json!({"text": long}), done(long)),
            (json!({}), failed("Invalid input: missing field `text`")),
            (
                json!({"text": 1}),
                failed("Invalid input: field `text`: invalid type: integer `1`, expected a string"),
            ),
            (json!({"text": "a", "b": 1}), failed("Invalid input: unknown field `b`, expected `text`")),
        ],
    )
    .await;
}

#[tokio::test]
async fn arguments_are_limited_to_one_mebibyte() {
    let fixture = Fixture::confined_to("/nowhere");
    let overhead = r#"{"text":""}"#.len();
    let fits = "x".repeat((1 << 20) - overhead);
    assert_eq!(fixture.call("echo", &json!({ "text": fits })).await, done(&*fits));
    let outcome = fixture.call("echo", &json!({ "text": format!("{fits}x") })).await;
    assert_eq!(outcome, failed("Invalid input: the arguments are longer than 1048576 bytes"));
}

#[tokio::test]
async fn time_has_nanosecond_digits() {
    let expected =
        r#"{"time":"2023-11-14T22:13:20.123456000+00:00","timestamp":1700000000,"timezone":"UTC"}"#;
    check("get_time", &[(json!({}), done(expected)), (Value::Null, done(expected))]).await;
    let fixture = Fixture::confined_to("/nowhere");
    assert_eq!(fixture.call_text("get_time", "").await, done(expected));
    let outcome = fixture.call("get_time", &json!({"zone": "x"})).await;
    assert_eq!(outcome, failed("Invalid input: unknown field `zone`, there are no fields"));
}

#[tokio::test]
async fn base64_round_trips() {
    let pairs =
        [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("ü?>", "w7w/Pg=="), ("\0", "AA==")];
    for (text, encoded) in pairs {
        check("base64.encode", &[(json!({ "text": text }), done(encoded))]).await;
        check("base64.decode", &[(json!({ "encoded": encoded }), done(text))]).await;
    }
    for (bad, expected) in [
        ("Zg", "Execution failed: Invalid base64: "),
        ("Zg=", "Execution failed: Invalid base64: "),
        ("Zh==", "Execution failed: Invalid base64: "),
        ("w7w_Pg==", "Execution failed: Invalid base64: "),
        ("Zm9v\n", "Execution failed: Invalid base64: "),
        ("/w==", "Execution failed: the decoded bytes are not UTF-8 text"),
    ] {
        let outcome =
            Fixture::confined_to("/nowhere").call("base64.decode", &json!({ "encoded": bad })).await;
        assert!(
            matches!(&outcome, ToolOutcome::Failed(text) if text.starts_with(expected)),
            "{bad:?}: {outcome:?}"
        );
    }
}

#[tokio::test]
async fn json_parse_indents_with_sorted_keys() {
    check(
        "json.parse",
        &[
            (
                json!({"text": r#"{"b":1,"a":[true,null]}"#}),
                done("{\n  \"a\": [\n    true,\n    null\n  ],\n  \"b\": 1\n}"),
            ),
            (json!({"text": "\"x\""}), done("\"x\"")),
            (json!({"text": " 1.5 "}), done("1.5")),
            (json!({"text": "{}"}), done("{}")),
            (
                json!({"text": ""}),
                failed("Execution failed: Invalid JSON: EOF while parsing a value at line 1 column 0"),
            ),
            (
                json!({"text": "{a}"}),
                failed("Execution failed: Invalid JSON: key must be a string at line 1 column 2"),
            ),
            (
                json!({"text": "1 2"}),
                failed("Execution failed: Invalid JSON: trailing characters at line 1 column 3"),
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn json_query_selects_by_path() {
    let value = json!({"a": {"b": [10, {"c": "x"}]}, "m": [[1, 2], [3, 4]], "": {"k": 5}, "n": null});
    let query = |path: &str| json!({ "json": value, "path": path });
    check(
        "json.query",
        &[
            (query("a.b[0]"), done("10")),
            (query("a.b[1].c"), done("\"x\"")),
            (query("m[1][0]"), done("3")),
            (query("m.[1][1]"), done("4")),
            (query("m[0]"), done("[\n  1,\n  2\n]")),
            (query("n"), done("null")),
            (query(".k"), done("5")),
            (json!({"json": value.to_string(), "path": "m[1][1]"}), done("4")),
            (json!({"json": [[7]], "path": "[0][0]"}), done("7")),
            (json!({"json": [1], "path": ""}), done("[\n  1\n]")),
            (json!({"json": "\"s\"", "path": ""}), done("\"s\"")),
            (json!({"json": 3, "path": ""}), done("3")),
            (query("a.x"), failed("Execution failed: Key not found: x")),
            (query("a.b.c"), failed("Execution failed: Key not found: c")),
            (query("a..b"), failed("Execution failed: Key not found: ")),
            (query("m[2]"), failed("Execution failed: Index 2 out of bounds")),
            (query("a[0]"), failed("Execution failed: Index 0 out of bounds")),
            (
                query("m[99999999999999999999999]"),
                failed("Execution failed: Index 99999999999999999999999 out of bounds"),
            ),
            (
                query("m[x]"),
                failed("Invalid input: field `path`: expected indexes such as [0], found \"[x]\""),
            ),
            (query("m[0"), failed("Invalid input: field `path`: expected indexes such as [0], found \"[0\"")),
            (
                query("m[-1]"),
                failed("Invalid input: field `path`: expected indexes such as [0], found \"[-1]\""),
            ),
            (
                query("m[0]x"),
                failed("Invalid input: field `path`: expected indexes such as [0], found \"x\""),
            ),
            (
                json!({"json": "{a", "path": ""}),
                failed("Execution failed: Invalid JSON: key must be a string at line 1 column 2"),
            ),
            (json!({"json": 1}), failed("Invalid input: missing field `path`")),
            (json!({"path": ""}), failed("Invalid input: missing field `json`")),
        ],
    )
    .await;
}

#[tokio::test]
async fn uuids_are_random_version_four() {
    let fixture = Fixture::confined_to("/nowhere");
    let count = async |arguments: Value| {
        let outcome = fixture.call("uuid.generate", &arguments).await;
        let text = outcome.text().to_owned();
        match serde_json::from_str::<Vec<String>>(&text) {
            Ok(many) => many,
            Err(_) => vec![text],
        }
    };
    let cases =
        [(json!({}), 1), (json!({"count": 1}), 1), (json!({"count": -5}), 1), (json!({"count": 0}), 0)];
    let more = [(json!({"count": 2}), 2), (json!({"count": 100}), 100), (json!({"count": 101}), 100)];
    for (arguments, expected) in cases.into_iter().chain(more) {
        let uuids = count(arguments.clone()).await;
        assert_eq!(uuids.len(), expected, "{arguments}");
        for uuid in uuids {
            let dependencies: Vec<_> = uuid.split('-').map(str::len).collect();
            assert_eq!(dependencies, [8, 4, 4, 4, 12], "{uuid}");
            assert!(uuid.as_bytes()[14] == b'4' && b"89ab".contains(&uuid.as_bytes()[19]), "{uuid}");
        }
    }
    assert_eq!(fixture.call("uuid.generate", &json!({"count": 0})).await, done("[]"));
    assert!(fixture.call("uuid.generate", &json!({"count": 2})).await.text().starts_with("[\n  \""));
    let outcome = fixture.call("uuid.generate", &json!({"count": "2"})).await;
    assert_eq!(outcome, failed("Invalid input: field `count`: invalid type: string \"2\", expected i64"));
}

#[tokio::test]
async fn sha256_is_lowercase_hex() {
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    check("hash.sha256", &[(json!({"text": ""}), done(empty)), (json!({"text": "abc"}), done(abc))]).await;
}

#[tokio::test]
async fn indented_json_is_limited_in_size() {
    // Deep nesting, many times: each level adds its indentation to every line.
    let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    let text = format!("[{}]", vec![deep; 5_000].join(","));
    let outcome = Fixture::confined_to("/nowhere").call("json.parse", &json!({ "text": text })).await;
    assert_eq!(outcome, failed("Execution failed: the result is longer than 10485760 bytes"));
}
