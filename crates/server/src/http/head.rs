//! Strict incremental parser of request heads. Hyper would accept bare line feeds, two `Host` headers, and a length
//! together with a transfer coding. Does no I/O: bytes in, a verdict out.

#[cfg(test)]
mod tests;

use hyper::StatusCode;

use super::limits::HttpLimits;
use super::refusal::Refusal;

/// How the length of the body is determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// This many bytes.
    Length(u64),
    /// Chunked. No further request may follow on the connection, so that only hyper has to find the body's end.
    Chunked,
}

/// Result of parsing the bytes so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeadVerdict {
    /// More bytes are needed.
    Incomplete,
    /// A complete, valid head.
    Complete { head_bytes: usize, framing: Framing },
    /// An invalid head.
    Refused(Refusal),
}

/// Incremental parser of a head. It scans each byte once: a peer that sends byte by byte costs no more than one that
/// sends the head at once, and gets the same verdict.
pub(super) struct HeadParser {
    /// Set once the request line is parsed.
    version: Option<Version>,
    headers_start: usize,
    line_start: usize,
    /// Offset up to which the current line has no line end.
    scanned_bytes: usize,
    /// Whether the line is printable ASCII up to `scanned_bytes`.
    is_plain: bool,
    headers: FramingHeaders,
}

/// A line without its end.
#[derive(Clone, Copy)]
struct HeadLine<'a> {
    text: &'a [u8],
    /// Whether it is printable ASCII only; then its characters need no further checks.
    is_plain: bool,
}

impl Default for HeadParser {
    fn default() -> Self {
        Self {
            version: None,
            headers_start: 0,
            line_start: 0,
            scanned_bytes: 0,
            is_plain: true,
            headers: FramingHeaders::default(),
        }
    }
}

impl HeadParser {
    /// Parses the bytes received since the end of the last request: those of the previous call, followed by new ones.
    /// After a final verdict the parser is ready for the next head.
    pub(super) fn parse(&mut self, bytes: &[u8], limits: &HttpLimits) -> HeadVerdict {
        let verdict = match self.parse_lines(bytes, limits) {
            Ok(Some((head_bytes, framing))) => HeadVerdict::Complete { head_bytes, framing },
            Ok(None) => return HeadVerdict::Incomplete,
            Err(refusal) => HeadVerdict::Refused(refusal),
        };
        *self = Self::default();
        verdict
    }

    fn parse_lines(
        &mut self,
        bytes: &[u8],
        limits: &HttpLimits,
    ) -> Result<Option<(usize, Framing)>, Refusal> {
        check_first_byte(bytes)?;
        loop {
            let line_end = self.line_end(bytes);
            let end = line_end.unwrap_or(bytes.len());
            self.check_size(bytes, end, limits)?;
            if line_end.is_none() {
                return Ok(None);
            }
            let Some(text) = bytes[self.line_start..end].strip_suffix(b"\r\n") else {
                return Err(Refusal::malformed("Invalid line ending: lines end with CR LF"));
            };
            let line = HeadLine { text, is_plain: self.is_plain };
            match self.version {
                None => {
                    self.version = Some(check_request_line(line)?);
                    self.headers_start = end;
                }
                Some(version) if text.is_empty() => {
                    return self.headers.framing(version, limits).map(|framing| Some((end, framing)));
                }
                Some(_) => self.headers.add_line(line, limits)?,
            }
            self.line_start = end;
            self.scanned_bytes = end;
            self.is_plain = true;
        }
    }

    /// Returns the offset after the line's line feed. Also records whether the line is plain, which saves a second scan
    /// of nearly every line.
    fn line_end(&mut self, bytes: &[u8]) -> Option<usize> {
        if self.is_plain {
            self.scanned_bytes += plain_bytes(&bytes[self.scanned_bytes..]);
            match &bytes[self.scanned_bytes..] {
                [] | [b'\r'] => return None,
                [b'\r', b'\n', ..] => return Some(self.scanned_bytes + 2),
                _ => self.is_plain = false,
            }
        }
        let line_feed = bytes[self.scanned_bytes..].iter().position(|byte| *byte == b'\n');
        self.scanned_bytes = line_feed.map_or(bytes.len(), |offset| self.scanned_bytes + offset + 1);
        line_feed.map(|_| self.scanned_bytes)
    }

    /// Checks the limits on sizes. Messages report limit + 1: the number of bytes received so far is random.
    fn check_size(&self, bytes: &[u8], end: usize, limits: &HttpLimits) -> Result<(), Refusal> {
        if self.version.is_none() {
            let max = limits.request_line_bytes_max;
            if end > max {
                return Err(Refusal::malformed(format!("Request line too long: {} > {max}", max + 1)));
            }
            return Ok(());
        }
        // The empty line that ends the head, or its CR, does not count as a header.
        let is_end = b"\r\n".starts_with(&bytes[self.line_start..end]);
        let counted = if is_end { self.line_start } else { end };
        let max = limits.head_bytes_max;
        if counted - self.headers_start > max {
            return Err(too_large(format!("Total headers size exceeds limit: {} > {max}", max + 1)));
        }
        Ok(())
    }
}

impl HeadLine<'_> {
    fn check_encoding(self, what: &str) -> Result<(), Refusal> {
        if self.is_plain {
            return Ok(());
        }
        std::str::from_utf8(self.text).map(|_| ()).map_err(|fault| {
            let at = fault.valid_up_to();
            Refusal::malformed(format!("Invalid {what} encoding: invalid UTF-8 at byte {at}"))
        })
    }
}

/// Counts the leading bytes that are printable ASCII, in blocks of sixteen, which the compiler vectorizes.
fn plain_bytes(bytes: &[u8]) -> usize {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~');
    let (blocks, _) = bytes.as_chunks::<16>();
    let is_plain_block = |block: &&[u8; 16]| block.iter().fold(true, |plain, byte| plain & is_plain(byte));
    let in_blocks = blocks.iter().take_while(is_plain_block).count() * 16;
    in_blocks + bytes[in_blocks..].iter().take_while(|byte| is_plain(byte)).count()
}

/// Rejects input that cannot be HTTP. A TLS hello may contain no line end; its sender must not wait for a timeout.
fn check_first_byte(bytes: &[u8]) -> Result<(), Refusal> {
    match bytes.first() {
        Some(first) if !is_token_byte(*first) && !b"\r\n".contains(first) => {
            check_request_line(HeadLine { text: &bytes[..1], is_plain: false }).map(|_| ())
        }
        _ => Ok(()),
    }
}

fn too_large(message: String) -> Refusal {
    Refusal::closing(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, message)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Http10,
    Http11,
}

fn check_request_line(line: HeadLine<'_>) -> Result<Version, Refusal> {
    line.check_encoding("request")?;
    parse_request_line(line.text).ok_or_else(|| {
        let shown = excerpt(line.text, 100);
        Refusal::malformed(format!("Invalid request line: {shown}"))
    })
}

fn parse_request_line(line: &[u8]) -> Option<Version> {
    let mut parts = line.split(|byte| *byte == b' ');
    let (method, target, version) = (parts.next()?, parts.next()?, parts.next()?);
    let version = match version {
        b"HTTP/1.1" => Version::Http11,
        b"HTTP/1.0" => Version::Http10,
        _ => return None,
    };
    let is_valid = parts.next().is_none() && !method.is_empty() && is_all_token(method) && is_target(target);
    is_valid.then_some(version)
}

/// Returns the first characters, escaped, for a message.
fn excerpt(bytes: &[u8], characters_max: usize) -> String {
    String::from_utf8_lossy(bytes).chars().take(characters_max).flat_map(char::escape_default).collect()
}

/// Hyper's own limit on targets, regardless of the settings. It would reject longer ones with its own text.
const TARGET_BYTES_MAX: usize = u16::MAX as usize - 1;

/// Whether a target is in origin form, absolute form or `*`.
fn is_target(target: &[u8]) -> bool {
    if target.len() > TARGET_BYTES_MAX {
        return false;
    }
    let is_simple = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-".contains(byte);
    if target.starts_with(b"/") && target.iter().all(is_simple) {
        return true;
    }
    let has_form = target == b"*" || target.starts_with(b"/") || target.starts_with(b"http://");
    let has_valid_bytes =
        target.iter().all(|byte| byte.is_ascii_graphic() && !b"#\"<>\\^`{|}".contains(byte));
    has_form && has_valid_bytes && hyper::Uri::try_from(target).is_ok()
}

/// Bytes allowed in a method or header name (RFC 9110 `tchar`). A table, since every byte of every name is looked up.
static TOKEN_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut remaining: &[u8] =
        b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    while let [byte, tail @ ..] = remaining {
        table[*byte as usize] = true;
        remaining = tail;
    }
    table
};

fn is_token_byte(byte: u8) -> bool {
    TOKEN_BYTES[usize::from(byte)]
}

fn is_all_token(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| is_token_byte(*byte))
}

/// Headers that determine the framing of the message. `service` evaluates all other headers.
#[derive(Default)]
struct FramingHeaders {
    header_count: usize,
    host_count: usize,
    content_length: Option<u64>,
    is_chunked: bool,
}

impl FramingHeaders {
    fn add_line(&mut self, line: HeadLine<'_>, limits: &HttpLimits) -> Result<(), Refusal> {
        self.header_count += 1;
        if self.header_count > limits.headers_max {
            return Err(too_large(format!("Too many headers: exceeds limit of {}", limits.headers_max)));
        }
        line.check_encoding("header")?;
        // Tokens contain no colon: the name must end at the first one.
        let name_bytes = line.text.iter().take_while(|byte| is_token_byte(**byte)).count();
        let (name, [b':', value @ ..]) = line.text.split_at(name_bytes) else {
            return Err(invalid_name(line.text, limits));
        };
        check_length("Header name", name.len(), limits.header_name_bytes_max)?;
        if name.is_empty() {
            return Err(not_a_token());
        }
        let value = trim(value);
        check_length("Header value", value.len(), limits.header_value_bytes_max)?;
        if !line.is_plain && value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
            return Err(Refusal::malformed("Invalid header line: control character in the value"));
        }
        self.record_header(name, value)
    }

    fn record_header(&mut self, name: &[u8], value: &[u8]) -> Result<(), Refusal> {
        if name.eq_ignore_ascii_case(b"host") {
            self.host_count += 1;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let length = parse_content_length(value).filter(|_| self.content_length.is_none());
            self.content_length = Some(length.ok_or_else(|| {
                let shown = excerpt(value, 32);
                Refusal::malformed(format!("Invalid Content-Length: {shown}"))
            })?);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Refusal::malformed("Invalid Transfer-Encoding: only chunked is supported"));
            }
            self.is_chunked = true;
        } else if name.eq_ignore_ascii_case(b"expect") && !value.eq_ignore_ascii_case(b"100-continue") {
            return Err(Refusal::closing(
                StatusCode::EXPECTATION_FAILED,
                "Invalid Expect: only 100-continue is supported",
            ));
        }
        Ok(())
    }

    fn framing(&self, version: Version, limits: &HttpLimits) -> Result<Framing, Refusal> {
        if self.host_count > 1 {
            return Err(Refusal::malformed("Duplicate Host header"));
        }
        if self.host_count == 0 && version == Version::Http11 {
            return Err(Refusal::malformed("Missing Host header"));
        }
        if self.is_chunked {
            if self.content_length.is_some() {
                return Err(Refusal::malformed("Content-Length and Transfer-Encoding in one request"));
            }
            if version == Version::Http10 {
                return Err(Refusal::malformed("Transfer-Encoding in an HTTP/1.0 request"));
            }
            return Ok(Framing::Chunked);
        }
        let length = self.content_length.unwrap_or(0);
        let max = limits.body_bytes_max;
        if length > max {
            return Err(body_too_large(length, max));
        }
        Ok(Framing::Length(length))
    }
}

/// Explains why a line does not start with a token and a colon.
fn invalid_name(line: &[u8], limits: &HttpLimits) -> Refusal {
    let Some(name_bytes) = line.iter().position(|byte| *byte == b':') else {
        return Refusal::malformed("Invalid header line: no colon");
    };
    check_length("Header name", name_bytes, limits.header_name_bytes_max).err().unwrap_or_else(not_a_token)
}

fn not_a_token() -> Refusal {
    Refusal::malformed("Invalid header line: the name is not a token")
}

fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', inner @ ..] | [inner @ .., b' ' | b'\t'] = value {
        value = inner;
    }
    value
}

/// Parses digits only: the standard library would also accept a sign.
fn parse_content_length(value: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(value).ok()?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

fn check_length(what: &str, bytes: usize, max: usize) -> Result<(), Refusal> {
    if bytes > max {
        return Err(too_large(format!("{what} too long: {bytes} > {max}")));
    }
    Ok(())
}

pub(super) fn body_too_large(bytes: u64, max: u64) -> Refusal {
    Refusal::closing(StatusCode::PAYLOAD_TOO_LARGE, format!("Request body too large: {bytes} > {max}"))
}
