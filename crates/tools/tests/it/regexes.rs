//! Regular expressions: matches, replacements, and limits on their costs.

use agent::ToolOutcome;
use serde_json::{Value, json};

use crate::fixture::{Fixture, done, failed};

async fn call(tool: &str, arguments: Value) -> ToolOutcome {
    Fixture::confined_to("/nowhere").call(tool, &arguments).await
}

async fn match_result(arguments: Value) -> Value {
    let outcome = call("regex.match", arguments).await;
    serde_json::from_str(outcome.text()).expect("a result in JSON")
}

#[tokio::test]
async fn first_match_has_its_groups() {
    let outcome = call("regex.match", json!({"text": "x=1", "pattern": r"(\w)=(\d)(y)?"})).await;
    let expected = [
        "{",
        "  \"found\": true,",
        "  \"groups\": [",
        "    \"x=1\",",
        "    \"x\",",
        "    \"1\",",
        "    null",
        "  ],",
        "  \"match\": \"x=1\"",
        "}",
    ];
    assert_eq!(outcome, done(expected.join("\n")));
    let none = match_result(json!({"text": "x", "pattern": "y"})).await;
    assert_eq!(none, json!({"found": false, "match": null, "groups": []}));
    let empty = match_result(json!({"text": "", "pattern": ""})).await;
    assert_eq!(empty, json!({"found": true, "match": "", "groups": [""]}));
}

#[tokio::test]
async fn global_matches_have_byte_offsets() {
    let all = match_result(json!({"text": "äa a", "pattern": "a", "global": true})).await;
    let spans = json!([{"match": "a", "start": 2, "end": 3}, {"match": "a", "start": 4, "end": 5}]);
    assert_eq!(all, json!({"found": true, "count": 2, "matches": spans}));
    let none = match_result(json!({"text": "x", "pattern": "y", "global": true})).await;
    assert_eq!(none, json!({"found": false, "count": 0, "matches": []}));
}

#[tokio::test]
async fn matches_are_limited_to_ten_thousand() {
    let exact = match_result(json!({"text": "a".repeat(10_000), "pattern": "a", "global": true})).await;
    assert_eq!((&exact["count"], exact.get("truncated")), (&json!(10_000), None));
    let more = match_result(json!({"text": "a".repeat(10_001), "pattern": "a", "global": true})).await;
    assert_eq!((&more["count"], &more["truncated"]), (&json!(10_000), &json!(true)));
}

#[tokio::test]
async fn invalid_and_large_patterns_are_rejected() {
    for (pattern, expected) in [
        ("(", "unclosed group"),
        ("a(?=b)", "look-around, including look-ahead and look-behind, is not supported"),
        (r"(a)\1", "backreferences are not supported"),
        ("a{99999999}", "too large for a text of this length; (?-u:\\w) is smaller than \\w"),
        (r"(\w{1000}){1000}", "too large for a text of this length; (?-u:\\w) is smaller than \\w"),
        (
            &format!("{}{}", "(".repeat(300), ")".repeat(300)),
            "exceed the maximum number of nested parentheses/brackets (250)",
        ),
        (&"a".repeat(16_385), "longer than 16384 bytes"),
    ] {
        for tool in ["regex.match", "regex.replace"] {
            let mut arguments = json!({"text": "a", "pattern": pattern});
            if tool == "regex.replace" {
                arguments["replacement"] = json!("");
            }
            let outcome = call(tool, arguments).await;
            assert_eq!(outcome, failed(format!("Invalid input: field `pattern`: {expected}")), "{tool}");
        }
    }
    let outcome = call("regex.match", json!({"text": "a", "pattern": 5})).await;
    assert_eq!(
        outcome,
        failed("Invalid input: field `pattern`: invalid type: integer `5`, expected a string")
    );
}

#[tokio::test]
async fn replacement_expands_groups() {
    let swap = r"(?<first>\w+) (\w+)";
    for (pattern, replacement, global, expected) in [
        ("a", "b", None, "b b c"),
        ("a", "b", Some(false), "b a c"),
        ("a", "", None, "  c"),
        ("x", "b", None, "a a c"),
        (swap, "$2 $1", None, "a a c"),
        (swap, "${2}_$first", None, "a_a c"),
        (swap, "$$1|$9|${first}x|${", None, "$1||ax|${ c"),
        ("$", "!", None, "a a c!"),
        ("", "-", None, "-a- -a- -c-"),
    ] {
        let arguments =
            json!({"text": "a a c", "pattern": pattern, "replacement": replacement, "global": global});
        assert_eq!(call("regex.replace", arguments.clone()).await, done(expected), "{arguments}");
    }
}

#[tokio::test]
async fn replace_result_is_limited_to_one_mebibyte() {
    let too_long = failed("Execution failed: the result is longer than 1048576 bytes");
    let doubled = json!({"text": "a".repeat(600_000), "pattern": "a", "replacement": "aa"});
    assert_eq!(call("regex.replace", doubled).await, too_long);
    // Without a check between the groups the result would be 50 gigabytes at once.
    let squared = json!({"text": "a".repeat(500_000), "pattern": "a+", "replacement": "$0".repeat(100_000)});
    assert_eq!(call("regex.replace", squared).await, too_long);
}
