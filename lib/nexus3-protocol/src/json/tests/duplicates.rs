//! Duplicate keys: reported beside the value, at any depth and in any spelling.

use super::super::{Document, Json, parse, parse_members};

fn duplicate_key(text: &str) -> Option<String> {
    let document = parse(text.as_bytes()).unwrap();
    let alone = document.duplicate.map(|key| key.into_owned());
    let (_, in_message) = parse_members(text.as_bytes()).unwrap();
    assert_eq!(in_message.as_deref(), alone.as_deref(), "alone and as a message: {text}");
    alone
}

/// Returns an object with this many keys and `key` as one more at the end.
fn object_with_key(keys: usize, key: &str) -> String {
    let members: Vec<String> = (0..keys).map(|number| format!("\"k{number}\":{number}")).collect();
    format!("{{{},\"{key}\":null}}", members.join(","))
}

#[test]
fn duplicate_key_is_detected_in_every_form() {
    let shapes = [
        (r#"{"a":1,"a":2}"#, "a"),
        (r#"{"a":1,"b":2,"a":3}"#, "a"),
        (r#"{"a":1,"\u0061":2}"#, "a"),
        (r#"{"\u0061":1,"a":2}"#, "a"),
        (r#"{"é":1,"\u00e9":2}"#, "é"),
        (r#"{"😀":1,"\ud83d\ude00":2}"#, "😀"),
        (r#"{"/":1,"\/":2}"#, "/"),
        (r#"{"":1,"":2}"#, ""),
        (r#"{"params":{"x":1,"x":2}}"#, "x"),
        (r#"[{"a":1},{"a":2,"a":3}]"#, "a"),
        (r#"{"a":[[{"b":{"c":1,"c":1}}]]}"#, "c"),
        (r#"{"a":{"b":1},"a":{"b":1}}"#, "a"),
        (r#"{"a":1,"a":{"b":1,"b":2}}"#, "b"),
        (r#"{"a\u0000":1,"a\u0000":2}"#, "a\0"),
    ];
    for (text, key) in shapes {
        assert_eq!(duplicate_key(text).as_deref(), Some(key), "{text}");
    }
}

#[test]
fn similar_keys_are_not_duplicates() {
    let texts = [
        r#"{"a":1,"A":2}"#,
        r#"{"a":1,"b":{"a":1}}"#,
        r#"[{"a":1},{"a":1}]"#,
        r#"{"a":"a"}"#,
        r#"{"a":1,"a ":2}"#,
        "{\"\u{e9}\":1,\"e\u{301}\":2}",
        r#"{"a":1,"\\u0061":2}"#,
        r#"{"":1," ":2}"#,
        "{\"K\":1,\"\u{212a}\":2}",
    ];
    for text in texts {
        assert_eq!(duplicate_key(text), None, "{text}");
    }
}

#[test]
fn duplicate_key_is_detected_around_the_hash_set_threshold() {
    for keys in 1..=24 {
        assert_eq!(duplicate_key(&object_with_key(keys, "new")), None, "{keys} keys");
        for again in 0..keys {
            let key = format!("k{again}");
            assert_eq!(duplicate_key(&object_with_key(keys, &key)), Some(key), "{keys} keys");
        }
        assert_eq!(duplicate_key(&object_with_key(keys, "\\u006b0")).as_deref(), Some("k0"), "{keys} keys");
    }
}

#[test]
fn first_duplicate_in_text_order_is_reported() {
    assert_eq!(duplicate_key(r#"{"a":{"c":1,"c":2},"b":1,"b":2}"#).as_deref(), Some("c"));
    assert_eq!(duplicate_key(r#"{"b":1,"b":{"c":1},"a":{"c":1,"c":1}}"#).as_deref(), Some("b"));
}

#[test]
fn members_keep_their_order() {
    let Document { value, .. } = parse(br#"{"b":1,"a":2,"b":3}"#).unwrap();
    let member = |key: &'static str, text| (key.into(), Json::Number(text));
    assert_eq!(value, Json::Object(vec![member("b", "1"), member("a", "2"), member("b", "3")]));
}

#[test]
fn duplicate_among_a_million_keys_is_detected() {
    let text = object_with_key(1_000_000, "k0");
    let document = parse(text.as_bytes()).unwrap();
    assert_eq!(document.duplicate.as_deref(), Some("k0"));
    assert!(matches!(document.value, Json::Object(members) if members.len() == 1_000_001));
}
