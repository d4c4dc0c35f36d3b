//! A request's head, byte by byte: stricter than hyper, which takes bare line feeds, two hosts, and a length beside
//! a transfer coding. Pure: bytes in, a verdict out.

#[cfg(test)]
mod tests;

use hyper::StatusCode;

use super::limits::HttpLimits;
use super::refusal::Refusal;

/// How the body that follows a head is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// This many bytes.
    Length(u64),
    /// In chunks. Nothing may follow it on the connection, so nobody has to find its end twice.
    Chunked,
}

/// What is known about the bytes so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// More bytes are needed.
    Unfinished,
    /// A whole head that may pass.
    Whole { head_bytes: usize, framing: Framing },
    /// A head that may not.
    Refused(Refusal),
}

/// Judges a head while it arrives. What was read once is not read again: a peer that sends byte by byte costs no more
/// than one that sends all at once, and gets the same verdict.
#[derive(Default)]
pub(super) struct Judge {
    /// Known once the request line was read.
    version: Option<Version>,
    headers_start: usize,
    line_start: usize,
    /// Up to here the line has no end.
    searched: usize,
    facts: Facts,
}

impl Judge {
    /// Judges the bytes that have arrived since the end of the last request: those it was given before, and more. With
    /// a verdict it is ready for the next head.
    pub(super) fn judge(&mut self, bytes: &[u8], limits: &HttpLimits) -> Verdict {
        let verdict = match self.examine(bytes, limits) {
            Ok(Some((head_bytes, framing))) => Verdict::Whole { head_bytes, framing },
            Ok(None) => return Verdict::Unfinished,
            Err(refusal) => Verdict::Refused(refusal),
        };
        *self = Self::default();
        verdict
    }

    fn examine(&mut self, bytes: &[u8], limits: &HttpLimits) -> Result<Option<(usize, Framing)>, Refusal> {
        check_first_byte(bytes)?;
        loop {
            let feed = bytes[self.searched..].iter().position(|byte| *byte == b'\n');
            let end = feed.map_or(bytes.len(), |feed| self.searched + feed + 1);
            self.check_size(bytes, end, limits)?;
            self.searched = end;
            if feed.is_none() {
                return Ok(None);
            }
            let Some(line) = bytes[self.line_start..end].strip_suffix(b"\r\n") else {
                return Err(Refusal::malformed("Invalid line ending: lines end with CR LF"));
            };
            match self.version {
                None => {
                    self.version = Some(check_request_line(line)?);
                    self.headers_start = end;
                }
                Some(version) if line.is_empty() => {
                    return self.facts.framing(version, limits).map(|framing| Some((end, framing)));
                }
                Some(_) => self.facts.add(line, limits)?,
            }
            self.line_start = end;
        }
    }

    /// The sizes in the texts stop one past the limit: how much more has arrived is chance.
    fn check_size(&self, bytes: &[u8], end: usize, limits: &HttpLimits) -> Result<(), Refusal> {
        if self.version.is_none() {
            let max = limits.request_line_bytes_max;
            if end > max {
                return Err(Refusal::malformed(format!("Request line too long: {} > {max}", max + 1)));
            }
            return Ok(());
        }
        // The empty line that ends the head, or its first half, is no header.
        let is_end = b"\r\n".starts_with(&bytes[self.line_start..end]);
        let counted = if is_end { self.line_start } else { end };
        let max = limits.head_bytes_max;
        if counted - self.headers_start > max {
            return Err(too_large(format!("Total headers size exceeds limit: {} > {max}", max + 1)));
        }
        Ok(())
    }
}

/// A TLS hello, or a frame of another protocol, may hold no line end at all; its sender must not wait for the clock.
fn check_first_byte(bytes: &[u8]) -> Result<(), Refusal> {
    match bytes.first() {
        Some(first) if !is_token(*first) && !b"\r\n".contains(first) => {
            check_request_line(&bytes[..1]).map(|_| ())
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

fn check_request_line(line: &[u8]) -> Result<Version, Refusal> {
    let text = std::str::from_utf8(line).map_err(|fault| {
        Refusal::malformed(format!("Invalid request encoding: invalid UTF-8 at byte {}", fault.valid_up_to()))
    })?;
    let invalid = || {
        let shown: String = text.chars().take(100).flat_map(char::escape_default).collect();
        Refusal::malformed(format!("Invalid request line: {shown}"))
    };
    let mut parts = text.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(invalid());
    };
    let version = match version {
        "HTTP/1.1" => Version::Http11,
        "HTTP/1.0" => Version::Http10,
        _ => return Err(invalid()),
    };
    if method.is_empty() || !method.bytes().all(is_token) || !is_target(target) {
        return Err(invalid());
    }
    Ok(version)
}

/// Hyper takes no longer target, whatever the limits say, and would refuse it in its own words.
const TARGET_BYTES_MAX: usize = u16::MAX as usize - 1;

/// Origin form, absolute form, or the asterisk; the rest has no meaning here.
fn is_target(target: &str) -> bool {
    if target.len() > TARGET_BYTES_MAX {
        return false;
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    if target.starts_with('/') && target.bytes().all(plain) {
        return true;
    }
    let formed = target == "*" || target.starts_with('/') || target.starts_with("http://");
    let spelled = target.bytes().all(|byte| byte.is_ascii_graphic() && !b"#\"<>\\^`{|}".contains(&byte));
    formed && spelled && hyper::Uri::try_from(target).is_ok()
}

/// Which bytes may stand in a method or a header's name; a table, because every byte of every name is looked up.
static TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut rest: &[u8] = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    while let [byte, others @ ..] = rest {
        table[*byte as usize] = true;
        rest = others;
    }
    table
};

fn is_token(byte: u8) -> bool {
    TOKEN[usize::from(byte)]
}

/// What the headers say about the message as such; what they say about the request is the service's affair.
#[derive(Default)]
struct Facts {
    count: usize,
    hosts: usize,
    length: Option<u64>,
    chunked: bool,
}

impl Facts {
    fn add(&mut self, line: &[u8], limits: &HttpLimits) -> Result<(), Refusal> {
        self.count += 1;
        if self.count > limits.headers_max {
            return Err(too_large(format!("Too many headers: exceeds limit of {}", limits.headers_max)));
        }
        let text = std::str::from_utf8(line).map_err(|fault| {
            Refusal::malformed(format!(
                "Invalid header encoding: invalid UTF-8 at byte {}",
                fault.valid_up_to()
            ))
        })?;
        let Some((name, value)) = text.split_once(':') else {
            return Err(Refusal::malformed("Invalid header line: no colon"));
        };
        within("Header name", name.len(), limits.header_name_bytes_max)?;
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(Refusal::malformed("Invalid header line: the name is not a token"));
        }
        let value = value.trim_matches([' ', '\t']);
        within("Header value", value.len(), limits.header_value_bytes_max)?;
        if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
            return Err(Refusal::malformed("Invalid header line: control character in the value"));
        }
        self.note(name, value)
    }

    fn note(&mut self, name: &str, value: &str) -> Result<(), Refusal> {
        if name.eq_ignore_ascii_case("host") {
            self.hosts += 1;
        } else if name.eq_ignore_ascii_case("content-length") {
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let length = value.parse().ok().filter(|_| digits && self.length.is_none());
            self.length = Some(length.ok_or_else(|| {
                let shown: String = value.chars().take(32).flat_map(char::escape_default).collect();
                Refusal::malformed(format!("Invalid Content-Length: {shown}"))
            })?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            if self.chunked || !value.eq_ignore_ascii_case("chunked") {
                return Err(Refusal::malformed("Invalid Transfer-Encoding: only chunked is understood"));
            }
            self.chunked = true;
        } else if name.eq_ignore_ascii_case("expect") && !value.eq_ignore_ascii_case("100-continue") {
            return Err(Refusal::closing(
                StatusCode::EXPECTATION_FAILED,
                "Invalid Expect: only 100-continue is understood",
            ));
        }
        Ok(())
    }

    fn framing(&self, version: Version, limits: &HttpLimits) -> Result<Framing, Refusal> {
        if self.hosts > 1 {
            return Err(Refusal::malformed("Duplicate Host header"));
        }
        if self.hosts == 0 && version == Version::Http11 {
            return Err(Refusal::malformed("Missing Host header"));
        }
        if self.chunked {
            if self.length.is_some() {
                return Err(Refusal::malformed("Content-Length and Transfer-Encoding in one request"));
            }
            if version == Version::Http10 {
                return Err(Refusal::malformed("Transfer-Encoding in an HTTP/1.0 request"));
            }
            return Ok(Framing::Chunked);
        }
        let length = self.length.unwrap_or(0);
        let max = limits.body_bytes_max;
        if length > max {
            return Err(body_too_large(length, max));
        }
        Ok(Framing::Length(length))
    }
}

fn within(what: &str, bytes: usize, max: usize) -> Result<(), Refusal> {
    if bytes > max {
        return Err(too_large(format!("{what} too long: {bytes} > {max}")));
    }
    Ok(())
}

pub(super) fn body_too_large(bytes: u64, max: u64) -> Refusal {
    Refusal::closing(StatusCode::PAYLOAD_TOO_LARGE, format!("Request body too large: {bytes} > {max}"))
}
