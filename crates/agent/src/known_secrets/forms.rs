//! The forms in which a secret stands in a text: as it is, escaped as in JSON and URLs, in base64 and in hexadecimal
//! digits. Mixed escapes are left to `view.rs`.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use super::view::{self, TerminalStrings};

/// All forms of a secret, without the characters that a view lacks.
pub(super) fn all(value: &str) -> impl Iterator<Item = Vec<u8>> {
    let mut forms = vec![value.to_owned(), escape_json(value, false), escape_json(value, true)];
    // RFC 3986 leaves the first marks as they are; browsers leave the second ones too.
    for unescaped in ["-_.~", "-_.~!*'()"] {
        forms.push(percent_encode(value, unescaped, |byte| format!("%{byte:02X}")));
        forms.push(percent_encode(value, unescaped, |byte| format!("%{byte:02x}")));
    }
    forms.extend((0..3).flat_map(|offset| base64(value, offset)));
    forms.extend(hex(value));
    forms.into_iter().map(|form| view::strip(form.as_bytes(), TerminalStrings::Remove, false).bytes)
}

fn escape_json(value: &str, escapes_slash: bool) -> String {
    let mut escaped = String::new();
    for character in value.chars() {
        if matches!(character, '"' | '\\') || (escapes_slash && character == '/') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

fn percent_encode(value: &str, unescaped: &str, escape: fn(u8) -> String) -> String {
    let encode = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() || unescaped.as_bytes().contains(&byte) => {
            char::from(byte).to_string()
        }
        byte => escape(byte),
    };
    value.bytes().map(encode).collect()
}

/// Hexadecimal digits in both cases.
pub(super) fn hex(value: &str) -> [String; 2] {
    let lower: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
    let upper = lower.to_uppercase();
    [lower, upper]
}

/// The characters of base64 that a secret determines alone, if it begins at this offset of a group of three bytes.
pub(super) fn base64(value: &str, offset: usize) -> impl Iterator<Item = String> + use<> {
    let bytes = [&[0; 2][..offset], value.as_bytes()].concat();
    let (start, end) = base64_range(offset, value.len());
    let encodings = [STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)];
    encodings.into_iter().map(move |encoded| encoded[start..end].to_owned())
}

/// The range of these characters.
pub(super) fn base64_range(offset: usize, length: usize) -> (usize, usize) {
    ((offset * 8).div_ceil(6), (offset + length) * 8 / 6)
}
