//! Who may come in: the host a request names, the page it comes from, the token it carries. Looked at before the
//! body is read.

use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderValue, ORIGIN};
use hyper::{StatusCode, Uri};
use rpc::CAPABILITY_PREFIX;
use subtle::{Choice, ConstantTimeEq};

use super::refusal::Refusal;

/// What a request must show.
pub(super) struct Auth {
    hosts: Vec<String>,
    origins: Vec<String>,
    token: Option<Vec<u8>>,
}

impl Auth {
    /// A guard for a port. Without a token everybody on this machine may come in; hosts and origins still count.
    pub(super) fn new(port: u16, origins: Vec<String>, token: Option<String>) -> Self {
        let names = ["127.0.0.1", "localhost", "[::1]"];
        let mut hosts: Vec<String> = names.iter().map(|name| format!("{name}:{port}")).collect();
        if port == 80 {
            hosts.extend(names.iter().map(|&name| name.to_owned()));
        }
        Self { hosts, origins, token: token.map(String::into_bytes) }
    }

    /// The name in `Host` must be ours: a page whose name was pointed at this machine carries its own.
    pub(super) fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = headers.get(HOST).and_then(|value| value.to_str().ok());
        if let Some(authority) = uri.authority()
            && Some(authority.as_str()) != host
        {
            return Err(Refusal::closing(StatusCode::BAD_REQUEST, "Request target and Host header disagree"));
        }
        match host {
            // As nearly every client spells it: whole words are compared quicker than letters of either case.
            Some(host) if self.hosts.iter().any(|ours| ours == host) => Ok(()),
            Some(host) if self.hosts.iter().any(|ours| ours.eq_ignore_ascii_case(host)) => Ok(()),
            _ => Err(Refusal::new(StatusCode::FORBIDDEN, "Host not allowed")),
        }
    }

    /// A browser says which page a request comes from; programs have no reason to.
    pub(super) fn check_origin(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let mut origins = headers.get_all(ORIGIN).iter();
        let allowed =
            |origin: &HeaderValue| self.origins.iter().any(|ours| ours.as_bytes() == origin.as_bytes());
        if origins.all(allowed) {
            Ok(())
        } else {
            Err(Refusal::new(StatusCode::FORBIDDEN, "Origin not allowed"))
        }
    }

    /// What the caller has shown. A capability counts also where no token is needed: it narrows.
    pub(super) fn check_token<'h>(&self, headers: &'h HeaderMap) -> Result<Credential<'h>, Refusal> {
        let shown = bearer_token(headers);
        if let Some(token) = shown.filter(|token| token.starts_with(CAPABILITY_PREFIX.as_bytes())) {
            return Ok(Credential::Capability(token));
        }
        let Some(token) = &self.token else { return Ok(Credential::Admin) };
        let shown = shown.ok_or(Refusal::new(StatusCode::UNAUTHORIZED, "Authorization header required"))?;
        if is_equal_constant_time(shown, token) { Ok(Credential::Admin) } else { Err(invalid_token()) }
    }
}

/// What a caller has shown.
pub(super) enum Credential<'h> {
    /// The daemon's token, or nothing where none is needed.
    Admin,
    /// Something that may be an agent's capability; the desk knows.
    Capability(&'h [u8]),
}

pub(super) fn invalid_token() -> Refusal {
    Refusal::new(StatusCode::FORBIDDEN, "Invalid API key")
}

/// Takes as long for a token that is nearly right as for any other of its length. Eight bytes at a time: one by one
/// they cost as much as all other checks together.
fn is_equal_constant_time(shown: &[u8], token: &[u8]) -> bool {
    let ((shown_words, shown_rest), (token_words, token_rest)) =
        (shown.as_chunks::<8>(), token.as_chunks::<8>());
    let words = shown_words.iter().zip(token_words);
    let same_words = words.fold(Choice::from(1), |same, (shown, token)| {
        same & u64::from_ne_bytes(*shown).ct_eq(&u64::from_ne_bytes(*token))
    });
    shown.len() == token.len() && bool::from(same_words & shown_rest.ct_eq(token_rest))
}

/// The one bearer token of a request. Two headers, another scheme, or nothing after it are none.
fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().filter(|_| values.next().is_none())?.as_bytes();
    let (scheme, rest) = value.split_at_checked(b"Bearer".len())?;
    let token = rest.trim_ascii();
    let separated = rest.first().is_some_and(u8::is_ascii_whitespace);
    // Without stopping at the first: so the compiler looks at sixteen bytes at once.
    let broken = token.iter().fold(false, |found, byte| found | byte.is_ascii_whitespace());
    let whole = !token.is_empty() && !broken;
    (scheme.eq_ignore_ascii_case(b"Bearer") && separated && whole).then_some(token)
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
        Auth::new(8765, vec!["http://localhost:3000".to_owned()], Some("nxk_secret".to_owned()))
    }

    #[test]
    fn only_loopback_names_with_our_port_are_our_host() {
        let passes =
            |host: &str| test_auth().check_host(&Uri::from_static("/"), &headers(&[("host", host)])).is_ok();
        for good in ["127.0.0.1:8765", "localhost:8765", "[::1]:8765", "LocalHost:8765"] {
            assert!(passes(good), "{good}");
        }
        for bad in [
            "",
            "evil.com",
            "evil.com:8765",
            "127.0.0.1",
            "localhost",
            "localhost:80",
            "127.0.0.1:87650",
            "127.0.0.1.nip.io:8765",
            "localhost.evil:8765",
            "localhost.:8765",
            "[::1]",
            "::1:8765",
            "127.1:8765",
            "0.0.0.0:8765",
            "2130706433:8765",
            "user@localhost:8765",
            "localhost:8765:8765",
            "localhost:08765",
            " localhost:8765",
            "localhost:8765/",
            "localhost:8765,localhost:8765",
            "127.0.0.2:8765",
            "[::ffff:127.0.0.1]:8765",
            "localhost\u{e9}:8765",
        ] {
            assert!(!passes(bad), "{bad}");
        }
        assert!(test_auth().check_host(&Uri::from_static("/"), &HeaderMap::new()).is_err());
    }

    #[test]
    fn port_80_may_be_left_out() {
        let guard = Auth::new(80, Vec::new(), None);
        assert!(guard.check_host(&Uri::from_static("/"), &headers(&[("host", "localhost")])).is_ok());
    }

    #[test]
    fn an_absolute_target_must_agree_with_the_host() {
        let uri = Uri::from_static("http://evil.com/");
        let refusal = test_auth().check_host(&uri, &headers(&[("host", "localhost:8765")])).unwrap_err();
        assert_eq!(refusal.status, StatusCode::BAD_REQUEST);
    }

    #[test]
    fn an_origin_passes_only_when_it_is_listed_exactly() {
        let passes = |origins: &[&str]| {
            let pairs: Vec<_> = origins.iter().map(|origin| ("origin", *origin)).collect();
            test_auth().check_origin(&headers(&pairs)).is_ok()
        };
        assert!(passes(&[]));
        assert!(passes(&["http://localhost:3000"]));
        for bad in [
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
            assert!(!passes(&[bad]), "{bad}");
        }
        assert!(!passes(&["http://localhost:3000", "https://evil"]), "one of two is not enough");
    }

    #[test]
    fn a_token_is_right_wrong_or_not_there() {
        let status = |values: &[&str]| {
            let pairs: Vec<_> = values.iter().map(|value| ("authorization", *value)).collect();
            test_auth().check_token(&headers(&pairs)).err().map(|refusal| refusal.status.as_u16())
        };
        for good in ["Bearer nxk_secret", "bearer nxk_secret", "BEARER   nxk_secret  "] {
            assert_eq!(status(&[good]), None, "{good}");
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
        assert!(Auth::new(1, Vec::new(), None).check_token(&HeaderMap::new()).is_ok());
    }
}
