//! Type names and previews of values in error texts.

use super::super::parse;

#[test]
fn values_have_the_original_type_names_and_previews() {
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
    for (text, kind, preview) in cases {
        let value = parse(text.as_bytes()).unwrap().value;
        assert_eq!((value.type_name(), value.preview().as_str()), (kind, preview), "{text}");
    }
}

#[test]
fn long_value_is_truncated_with_an_ellipsis() {
    let exact = format!("\"{}\"", "é".repeat(64));
    assert_eq!(parse(exact.as_bytes()).unwrap().value.preview(), format!("'{}'", "é".repeat(64)));
    let longer = format!("\"{}\"", "é".repeat(65));
    assert_eq!(parse(longer.as_bytes()).unwrap().value.preview(), format!("'{}...'", "é".repeat(64)));
    let digits = "9".repeat(100_000);
    assert_eq!(parse(digits.as_bytes()).unwrap().value.preview(), "9".repeat(64));
}

#[test]
fn control_characters_are_escaped_in_previews() {
    let text = (0..0x20_u8).map(|control| format!("\\u{control:04x}")).collect::<String>();
    for text in [format!("\"{text}\""), "\"\u{7f}\u{85}\u{9b}31m\"".to_owned()] {
        let preview = parse(text.as_bytes()).unwrap().value.preview();
        assert!(!preview.chars().any(char::is_control), "{preview:?}");
        assert!(preview.len() < 500, "{preview:?}");
    }
}
