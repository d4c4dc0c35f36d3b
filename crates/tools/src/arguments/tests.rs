//! Accepted arguments, and the error messages of rejected ones.

use serde::Deserialize;
use serde_json::Value;

use super::parse;

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    path: String,
    count: Option<i64>,
    any: Option<Value>,
    list: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoArguments {}

const BYTES_MAX: usize = 1000;

fn parse_error(text: &str) -> String {
    parse::<Input>(text, BYTES_MAX).unwrap_err()
}

#[test]
fn valid_arguments_are_parsed() {
    let input: Input = parse(" {\"path\": \"a\", \"count\": null, \"any\": [1]}\n", BYTES_MAX).unwrap();
    assert_eq!(input, Input { path: "a".into(), count: None, any: Some(Value::from(vec![1])), list: None });
}

#[test]
fn empty_text_and_null_count_as_an_empty_object() {
    for text in ["", " \n", "null", " null ", "{}"] {
        assert!(parse::<NoArguments>(text, BYTES_MAX).is_ok(), "{text:?}");
        assert_eq!(parse_error(text), "Invalid input: missing field `path`", "{text:?}");
    }
}

#[test]
fn errors_name_the_invalid_part() {
    for (text, expected) in [
        (r#"{"path":5}"#, "field `path`: invalid type: integer `5`, expected a string"),
        (r#"{"path":null}"#, "field `path`: invalid type: null, expected a string"),
        (r#"{"path":"a","count":"x"}"#, "field `count`: invalid type: string \"x\", expected i64"),
        (r#"{"path":"a","list":["b",1]}"#, "field `list[1]`: invalid type: integer `1`, expected a string"),
        (r#"{"path":"a","x":1}"#, "unknown field `x`, expected one of `path`, `count`, `any`, `list`"),
        (r#"{"path":"a","path":"b"}"#, "duplicate field `path`"),
        (r#"{"count":1}"#, "missing field `path`"),
        (r#"["a"]"#, "expected an object, found an array"),
        (r#""a""#, "expected an object, found a string"),
        ("7", "expected an object, found a number"),
        ("true", "expected an object, found a boolean"),
        ("nul", "malformed JSON: EOF while parsing a value at line 1 column 3"),
        (r#"{"path":"a"#, "malformed JSON: EOF while parsing a string at line 1 column 10"),
        ("{\n \"path\": }", "malformed JSON: expected value at line 2 column 10"),
        (r#"{"path":"a"} x"#, "malformed JSON: trailing characters at line 1 column 14"),
        (r#"{"path":"a"}{}"#, "malformed JSON: trailing characters at line 1 column 13"),
    ] {
        assert_eq!(parse_error(text), format!("Invalid input: {expected}"), "{text:?}");
    }
    assert_eq!(
        parse::<NoArguments>(r#"{"x":1}"#, BYTES_MAX).unwrap_err(),
        "Invalid input: unknown field `x`, there are no fields"
    );
}

#[test]
fn long_value_is_truncated_in_the_error() {
    let long = format!(r#"{{"path":"a","count":"{}"}}"#, "x".repeat(900));
    let error = parse_error(&long);
    assert!(error.len() < 500 && error.ends_with(", expected i64"), "{error}");
}

#[test]
fn too_long_or_too_deep_arguments_are_rejected() {
    let long = format!(r#"{{"path":"{}"}}"#, "x".repeat(BYTES_MAX));
    assert_eq!(parse_error(&long), "Invalid input: the arguments are longer than 1000 bytes");
    let deep = format!(r#"{{"path":"a","any":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    assert!(
        parse_error(&deep).starts_with("Invalid input: malformed JSON: recursion limit exceeded at line 1")
    );
}
