//! The words by which a value is named in messages.

use super::super::parse;

#[test]
fn a_value_is_named_in_the_originals_words() {
    let cases = [
        ("null", "NoneType", "None"),
        ("true", "bool", "True"),
        ("false", "bool", "False"),
        ("0", "int", "0"),
        ("-0", "int", "-0"),
        ("2.0", "float", "2.0"),
        ("1e2", "float", "1e2"),
        ("1E2", "float", "1E2"),
        (r#""""#, "str", "''"),
        (r#""1.0""#, "str", "'1.0'"),
        (r#""it's""#, "str", r"'it\'s'"),
        (r#""a\\b""#, "str", r"'a\\b'"),
        (r#""a\nb""#, "str", r"'a\nb'"),
        ("[1,2]", "list", "[...]"),
        (r#"{"a":1}"#, "dict", "{...}"),
    ];
    for (text, kind, sketch) in cases {
        let value = parse(text.as_bytes()).unwrap().value;
        assert_eq!((value.type_name(), value.preview().as_str()), (kind, sketch), "{text}");
    }
}

#[test]
fn a_long_value_is_cut_and_says_so() {
    let exact = format!("\"{}\"", "é".repeat(64));
    assert_eq!(parse(exact.as_bytes()).unwrap().value.preview(), format!("'{}'", "é".repeat(64)));
    let longer = format!("\"{}\"", "é".repeat(65));
    assert_eq!(parse(longer.as_bytes()).unwrap().value.preview(), format!("'{}...'", "é".repeat(64)));
    let digits = "9".repeat(100_000);
    assert_eq!(parse(digits.as_bytes()).unwrap().value.preview(), "9".repeat(64));
}

#[test]
fn no_control_character_survives_in_a_sketch() {
    let text = (0..0x20_u8).map(|control| format!("\\u{control:04x}")).collect::<String>();
    for text in [format!("\"{text}\""), "\"\u{7f}\u{85}\u{9b}31m\"".to_owned()] {
        let sketch = parse(text.as_bytes()).unwrap().value.preview();
        assert!(!sketch.chars().any(char::is_control), "{sketch:?}");
        assert!(sketch.len() < 500, "{sketch:?}");
    }
}
