//! Access control of requests by `Host`, `Origin` and bearer token, before the body is read.

use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderValue, ORIGIN};
use hyper::{StatusCode, Uri};
use rpc::CAPABILITY_PREFIX;
use subtle::{Choice, ConstantTimeEq};

use super::refusal::Refusal;

/// Names of this machine in `Host`, as `Host` writes them.
const LOOPBACK_NAMES: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// Allowed origins, and the required token.
pub(super) struct Auth {
    origins: Vec<String>,
    token: Option<Vec<u8>>,
}

impl Auth {
    /// Creates the checks. Without a token, only `Host` and `Origin` are checked.
    pub(super) fn new(origins: Vec<String>, token: Option<String>) -> Self {
        Self { origins, token: token.map(String::into_bytes) }
    }

    /// Checks `Host`. This stops DNS rebinding: a website whose name resolves to this machine sends its own name. The
    /// port does not matter: behind a forwarded port, clients send the one they connected to.
    pub(super) fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = headers.get(HOST).and_then(|value| value.to_str().ok());
        if let Some(authority) = uri.authority()
            && Some(authority.as_str()) != host
        {
            return Err(Refusal::closing(StatusCode::BAD_REQUEST, "Request target and Host header disagree"));
        }
        if host.is_some_and(is_loopback) {
            Ok(())
        } else {
            Err(Refusal::new(StatusCode::FORBIDDEN, "Host not allowed"))
        }
    }

    /// Checks `Origin`, which browsers send to identify the calling page. Other programs usually do not send it.
    pub(super) fn check_origin(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let mut origins = headers.get_all(ORIGIN).iter();
        let is_allowed =
            |origin: &HeaderValue| self.origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes());
        if origins.all(is_allowed) {
            Ok(())
        } else {
            Err(Refusal::new(StatusCode::FORBIDDEN, "Origin not allowed"))
        }
    }

    /// Returns the caller's credential. A capability is used even when no token is required, since it narrows the
    /// caller's permissions.
    pub(super) fn check_token<'h>(&self, headers: &'h HeaderMap) -> Result<Credential<'h>, Refusal> {
        let presented = bearer_token(headers);
        if let Some(token) = presented.filter(|token| token.starts_with(CAPABILITY_PREFIX.as_bytes())) {
            return Ok(Credential::Capability(token));
        }
        let Some(token) = &self.token else { return Ok(Credential::Admin) };
        let presented =
            presented.ok_or(Refusal::new(StatusCode::UNAUTHORIZED, "Authorization header required"))?;
        if is_equal_constant_time(presented, token) { Ok(Credential::Admin) } else { Err(invalid_token()) }
    }
}

/// Whether a `Host` is a loopback name, with any port or none.
fn is_loopback(host: &str) -> bool {
    LOOPBACK_NAMES.iter().any(|name| {
        let Some((found, port)) = host.split_at_checked(name.len()) else { return false };
        found.eq_ignore_ascii_case(name) && (port.is_empty() || is_port(port))
    })
}

fn is_port(text: &str) -> bool {
    let is_digits = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    text.strip_prefix(':').is_some_and(|port| is_digits(port) && port.parse::<u16>().is_ok())
}

/// A caller's credential.
pub(super) enum Credential<'h> {
    /// The daemon's token, or no token where none is required.
    Admin,
    /// A possible agent capability; the dispatcher validates it.
    Capability(&'h [u8]),
}

pub(super) fn invalid_token() -> Refusal {
    Refusal::new(StatusCode::FORBIDDEN, "Invalid API key")
}

/// Compares two tokens in constant time for their length. Compares eight bytes at a time: a bytewise comparison costs
/// as much as all other checks together.
fn is_equal_constant_time(presented: &[u8], token: &[u8]) -> bool {
    let ((presented_words, presented_rest), (token_words, token_rest)) =
        (presented.as_chunks::<8>(), token.as_chunks::<8>());
    let words = presented_words.iter().zip(token_words);
    let same_words = words.fold(Choice::from(1), |same, (presented, token)| {
        same & u64::from_ne_bytes(*presented).ct_eq(&u64::from_ne_bytes(*token))
    });
    presented.len() == token.len() && bool::from(same_words & presented_rest.ct_eq(token_rest))
}

/// Returns the bearer token of a request; `None` for several headers, another scheme or an empty token.
fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().filter(|_| values.next().is_none())?.as_bytes();
    let (scheme, credentials) = value.split_at_checked(b"Bearer".len())?;
    let token = credentials.trim_ascii();
    let is_separated = credentials.first().is_some_and(u8::is_ascii_whitespace);
    // No early exit: the compiler vectorizes the loop.
    let has_space = token.iter().fold(false, |found, byte| found | byte.is_ascii_whitespace());
    let is_valid = !token.is_empty() && !has_space;
    (scheme.eq_ignore_ascii_case(b"Bearer") && is_separated && is_valid).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        map
    }

    fn test_auth() -> Auth {
        Auth::new(vec!["http://localhost:3000".to_owned()], Some("nxk_secret".to_owned()))
    }

    #[test]
    fn only_loopback_names_are_allowed_with_any_port() {
        let passes =
            |host: &str| test_auth().check_host(&Uri::from_static("/"), &headers(&[("host", host)])).is_ok();
        for valid in [
            "127.0.0.1:8765",
            "localhost:8765",
            "[::1]:8765",
            "LocalHost:8765",
            "localhost:9000",
            "127.0.0.1",
            "localhost",
            "[::1]",
        ] {
            assert!(passes(valid), "{valid}");
        }
        for invalid in [
            "",
            "evil.com",
            "evil.com:8765",
            "127.0.0.1:87650",
            "127.0.0.1.nip.io:8765",
            "localhost.evil:8765",
            "localhost.:8765",
            "localhost:",
            "localhost:+80",
            "localhost8765",
            "[::1",
            "::1:8765",
            "127.1:8765",
            "0.0.0.0:8765",
            "2130706433:8765",
            "user@localhost:8765",
            "localhost:8765:8765",
            " localhost:8765",
            "localhost:8765/",
            "localhost:8765,localhost:8765",
            "127.0.0.2:8765",
            "[::ffff:127.0.0.1]:8765",
            "localhost\u{e9}:8765",
        ] {
            assert!(!passes(invalid), "{invalid}");
        }
        assert!(test_auth().check_host(&Uri::from_static("/"), &HeaderMap::new()).is_err());
    }

    #[test]
    fn an_absolute_target_must_match_the_host() {
        let uri = Uri::from_static("http://evil.com/");
        let refusal = test_auth().check_host(&uri, &headers(&[("host", "localhost:8765")])).unwrap_err();
        assert_eq!(refusal.status, StatusCode::BAD_REQUEST);
    }

    #[test]
    fn an_origin_must_match_an_allowed_one_exactly() {
        let passes = |origins: &[&str]| {
            let pairs: Vec<_> = origins.iter().map(|origin| ("origin", *origin)).collect();
            test_auth().check_origin(&headers(&pairs)).is_ok()
        };
        assert!(passes(&[]));
        assert!(passes(&["http://localhost:3000"]));
        for invalid in [
            "",
            "null",
            "http://localhost:3001",
            "http://localhost",
            "https://localhost:3000",
            "file://",
            "http://localhost:3000/",
            "HTTP://localhost:3000",
            "http://localhost:3000.evil",
            "*",
        ] {
            assert!(!passes(&[invalid]), "{invalid}");
        }
        assert!(!passes(&["http://localhost:3000", "https://evil"]), "every Origin header must be allowed");
    }

    #[test]
    fn a_missing_token_is_401_and_a_wrong_one_403() {
        let status = |values: &[&str]| {
            let pairs: Vec<_> = values.iter().map(|value| ("authorization", *value)).collect();
            test_auth().check_token(&headers(&pairs)).err().map(|refusal| refusal.status.as_u16())
        };
        for valid in ["Bearer nxk_secret", "bearer nxk_secret", "BEARER   nxk_secret  "] {
            assert_eq!(status(&[valid]), None, "{valid}");
        }
        for missing in
            ["", "Bearer", "Bearer ", "Basic nxk_secret", "nxk_secret", "Bearernxk_secret", "Bearer a b"]
        {
            assert_eq!(status(&[missing]), Some(401), "{missing}");
        }
        assert_eq!(status(&[]), Some(401));
        assert_eq!(status(&["Bearer nxk_secret", "Bearer nxk_secret"]), Some(401));
        for wrong in [
            "Bearer x",
            "Bearer Nxk_secret",
            "Bearer nxk_secreT",
            "Bearer nxk_secre",
            "Bearer nxk_secrett",
            "Bearer nxk_secret\u{e9}",
            "Bearer \u{fc}",
        ] {
            assert_eq!(status(&[wrong]), Some(403), "{wrong}");
        }
        assert!(Auth::new(Vec::new(), None).check_token(&HeaderMap::new()).is_ok());
    }
}
