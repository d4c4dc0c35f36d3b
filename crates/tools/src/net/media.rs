//! Media types and character sets of responses.

use encoding_rs::{Encoding, UTF_8};

/// Whether a body of this media type is text.
pub(super) fn is_text(media_type: &str) -> bool {
    let essence = essence(media_type);
    let is_named = matches!(
        essence.as_str(),
        "" | "application/json"
            | "application/javascript"
            | "application/xml"
            | "application/x-www-form-urlencoded"
            | "application/yaml"
            | "application/toml"
            | "application/graphql"
            | "image/svg+xml"
    );
    is_named || essence.starts_with("text/") || essence.ends_with("+json") || essence.ends_with("+xml")
}

/// Whether a body of this media type is HTML; a body without one is sniffed.
pub(super) fn is_html(media_type: &str, body: &[u8]) -> bool {
    match essence(media_type).as_str() {
        "text/html" | "application/xhtml+xml" => true,
        "" => {
            let start = body.trim_ascii_start();
            let start = start.get(..start.len().min(16)).unwrap_or_default().to_ascii_lowercase();
            start.starts_with(b"<!doctype html") || start.starts_with(b"<html")
        }
        _ => false,
    }
}

/// The type and subtype in lower case, without parameters.
pub(super) fn essence(media_type: &str) -> String {
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Decodes a body of text: by its byte order mark, the `charset` of its media type, that of its HTML, or as UTF-8.
/// None if it is not text: bytes of no character, or NUL.
pub(super) fn decode_text(media_type: &str, body: &[u8]) -> Option<String> {
    let named = charset(media_type).or_else(|| is_html(media_type, body).then(|| meta_charset(body))?);
    let encoding = named.unwrap_or(UTF_8);
    let (text, _, has_errors) = encoding.decode(body);
    let is_binary = text.contains('\0') || (has_errors && !is_text(media_type));
    (!is_binary).then(|| text.into_owned())
}

fn charset(media_type: &str) -> Option<&'static Encoding> {
    let parameters = media_type.split(';').skip(1);
    let label = parameters.filter_map(|part| part.split_once('=')).find_map(|(name, value)| {
        name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"'))
    })?;
    Encoding::for_label(label.as_bytes())
}

/// The bytes of HTML that are searched for a character set, as browsers do.
const META_BYTES_MAX: usize = 1024;

fn meta_charset(body: &[u8]) -> Option<&'static Encoding> {
    let start = body.get(..body.len().min(META_BYTES_MAX))?.to_ascii_lowercase();
    let start = String::from_utf8_lossy(&start);
    let (_, rest) = start.split_once("charset=")?;
    let label = rest.trim_start_matches(['"', '\'', ' ']);
    let end = label.find(['"', '\'', ' ', '>', ';', '/']).unwrap_or(label.len());
    Encoding::for_label(label.get(..end)?.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_decoded_by_its_character_set() {
        let cases: [(&str, &[u8], Option<&str>); 10] = [
            ("text/plain", "é".as_bytes(), Some("é")),
            ("text/plain; charset=ISO-8859-1", b"\xe9", Some("é")),
            ("text/plain; Charset=\"windows-1251\"", b"\xe4\xe0", Some("да")),
            (
                "text/html",
                b"<meta charset=\"shift_jis\"><p>\x93\xfa",
                Some("<meta charset=\"shift_jis\"><p>日"),
            ),
            ("text/plain", b"\xef\xbb\xbfx", Some("x")),
            ("text/plain", b"a\xffb", Some("a\u{fffd}b")),
            ("application/octet-stream", b"plain", Some("plain")),
            ("application/octet-stream", b"\xff\xd8", None),
            ("image/png", b"\x89PNG\0", None),
            ("text/plain", b"a\0b", None),
        ];
        for (media_type, body, expected) in cases {
            assert_eq!(decode_text(media_type, body).as_deref(), expected, "{media_type} {body:?}");
        }
    }

    #[test]
    fn html_is_recognized_by_type_or_content() {
        assert!(is_html("Text/HTML; charset=utf-8", b""));
        assert!(is_html("", b"  <!DOCTYPE html><p>"));
        assert!(!is_html("text/plain", b"<html>") && !is_html("", b"{}"));
        assert!(is_text("application/problem+json") && !is_text("application/pdf"));
    }
}
