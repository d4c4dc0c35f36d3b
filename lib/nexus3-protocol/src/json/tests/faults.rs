//! Texts and positions of syntax errors: lines, columns and offsets in characters.

use super::super::{SyntaxFault, parse, parse_members};

fn check(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        let fault = parse(text.as_bytes()).unwrap_err();
        assert_eq!(fault.to_string(), format!("Invalid JSON: {expected}"), "{text:?}");
        assert_eq!(parse_members(text.as_bytes()).unwrap_err(), fault, "{text:?} as a message");
    }
}

#[test]
fn missing_value_is_reported_at_its_position() {
    check(&[
        ("", "Expecting value: line 1 column 1 (char 0)"),
        ("  ", "Expecting value: line 1 column 3 (char 2)"),
        ("nul", "Expecting value: line 1 column 1 (char 0)"),
        ("-", "Expecting value: line 1 column 1 (char 0)"),
        ("[1,]", "Expecting value: line 1 column 4 (char 3)"),
        ("[,1]", "Expecting value: line 1 column 2 (char 1)"),
        ("[1, -x]", "Expecting value: line 1 column 5 (char 4)"),
        ("{\"a\":}", "Expecting value: line 1 column 6 (char 5)"),
        ("{\"a\": ", "Expecting value: line 1 column 7 (char 6)"),
    ]);
}

#[test]
fn missing_delimiter_is_named() {
    check(&[
        ("[1 2]", "Expecting ',' delimiter: line 1 column 4 (char 3)"),
        ("[1", "Expecting ',' delimiter: line 1 column 3 (char 2)"),
        ("[01]", "Expecting ',' delimiter: line 1 column 3 (char 2)"),
        ("{\"a\":1]", "Expecting ',' delimiter: line 1 column 7 (char 6)"),
        ("{\"a\"}", "Expecting ':' delimiter: line 1 column 5 (char 4)"),
        ("{\"a\" \n 1}", "Expecting ':' delimiter: line 2 column 2 (char 7)"),
        ("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("{a:1}", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("{\"a\":1, }", "Expecting property name enclosed in double quotes: line 1 column 9 (char 8)"),
        ("1.", "Expecting digit: line 1 column 3 (char 2)"),
        ("[1e+]", "Expecting digit: line 1 column 5 (char 4)"),
    ]);
}

#[test]
fn text_after_the_value_is_extra_data() {
    check(&[
        ("{}{}", "Extra data: line 1 column 3 (char 2)"),
        ("01", "Extra data: line 1 column 2 (char 1)"),
        ("{}  x", "Extra data: line 1 column 5 (char 4)"),
        ("[]\n\n]", "Extra data: line 3 column 1 (char 4)"),
        ("nullnull", "Extra data: line 1 column 5 (char 4)"),
    ]);
}

#[test]
fn invalid_string_is_reported_at_its_position() {
    check(&[
        ("\"abc", "Unterminated string starting at: line 1 column 1 (char 0)"),
        ("[\"abc\\", "Unterminated string starting at: line 1 column 2 (char 1)"),
        ("{\"a\": \"b}", "Unterminated string starting at: line 1 column 7 (char 6)"),
        ("\"a\nb\"", "Invalid control character at: line 1 column 3 (char 2)"),
        ("\"a\u{0}\"", "Invalid control character at: line 1 column 3 (char 2)"),
        ("\"a\\qb\"", "Invalid \\escape: line 1 column 3 (char 2)"),
        ("\"\\é\"", "Invalid \\escape: line 1 column 2 (char 1)"),
        ("\"a\\u12\"", "Invalid \\uXXXX escape: line 1 column 4 (char 3)"),
        ("\"a\\u12", "Invalid \\uXXXX escape: line 1 column 4 (char 3)"),
        ("\"\\u123é\"", "Invalid \\uXXXX escape: line 1 column 3 (char 2)"),
        ("\"\\ud83d\\u12\"", "Invalid \\uXXXX escape: line 1 column 9 (char 8)"),
        ("\"a\\ud83d\"", "Lone surrogate at: line 1 column 3 (char 2)"),
        ("\"a\\ud83d\\u0041\"", "Lone surrogate at: line 1 column 3 (char 2)"),
        ("\"a\\ude00\"", "Lone surrogate at: line 1 column 3 (char 2)"),
    ]);
}

#[test]
fn positions_count_characters_not_bytes() {
    check(&[
        ("[\"é\" x]", "Expecting ',' delimiter: line 1 column 6 (char 5)"),
        ("[\"😀\" x]", "Expecting ',' delimiter: line 1 column 6 (char 5)"),
        ("{\"ключ\": x}", "Expecting value: line 1 column 10 (char 9)"),
        ("[\"é\",\n\"é\" x]", "Expecting ',' delimiter: line 2 column 5 (char 10)"),
        ("é", "Expecting value: line 1 column 1 (char 0)"),
    ]);
}

#[test]
fn only_a_line_feed_starts_a_new_line() {
    check(&[
        ("\n\n x", "Expecting value: line 3 column 2 (char 3)"),
        ("\r\n\r\nx", "Expecting value: line 3 column 1 (char 4)"),
        ("\r\rx", "Expecting value: line 1 column 3 (char 2)"),
        ("[\"\u{2028}\" x]", "Expecting ',' delimiter: line 1 column 6 (char 5)"),
        ("[\n", "Expecting value: line 2 column 1 (char 2)"),
    ]);
}

#[test]
fn byte_order_mark_is_rejected_by_name() {
    check(&[
        ("\u{feff}{}", "Unexpected UTF-8 BOM (decode using utf-8-sig): line 1 column 1 (char 0)"),
        ("\u{feff}", "Unexpected UTF-8 BOM (decode using utf-8-sig): line 1 column 1 (char 0)"),
        (" \u{feff}{}", "Expecting value: line 1 column 2 (char 1)"),
        ("{}\u{feff}", "Extra data: line 1 column 3 (char 2)"),
    ]);
}

#[test]
fn invalid_utf8_is_rejected_before_any_syntax_check() {
    let cases: [(&[u8], usize); 6] = [
        (b"\xff", 0),
        (b"{\"a\":\"\xc0\xaf\"}", 6),
        (b"\"\xe2\x82", 1),
        (b"\"\xc3\xa9\xe9\"", 3),
        (b"nonsense \xed\xa0\x80", 9),
        (b"\xff\xfe{\x00}\x00", 0),
    ];
    for (bytes, at) in cases {
        let fault = parse(bytes).unwrap_err();
        assert_eq!(fault, SyntaxFault::Encoding(at));
        assert_eq!(fault.to_string(), format!("Invalid body encoding: invalid UTF-8 at byte {at}"));
    }
}

#[test]
fn first_error_is_reported() {
    check(&[
        ("[1 2,,", "Expecting ',' delimiter: line 1 column 4 (char 3)"),
        ("{\"a\\q\":tru}", "Invalid \\escape: line 1 column 4 (char 3)"),
    ]);
}
