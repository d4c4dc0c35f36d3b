//! Requests of tools: method, headers and body, validated.

use bytes::Bytes;
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

/// A valid request without its URL.
#[derive(Debug, Clone)]
pub(crate) struct OutgoingRequest {
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

const METHODS: [Method; 6] =
    [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::PATCH, Method::HEAD];

/// Headers that frame the message or belong to the connection: the client sets them, or there are none.
const REFUSED_HEADERS: &[&str] = &[
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

const HEADERS_MAX: usize = 64;
const HEADER_BYTES_MAX: usize = 16 << 10;

impl OutgoingRequest {
    /// A GET request without headers of a caller.
    pub(crate) fn get() -> Self {
        Self { method: Method::GET, headers: HeaderMap::new(), body: Bytes::new() }
    }

    /// Validates a request as a model wrote it. The error names the field.
    pub(crate) fn new<'a>(
        method: &str,
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
        body: Bytes,
    ) -> Result<Self, String> {
        let found = METHODS.into_iter().find(|known| known.as_str().eq_ignore_ascii_case(method));
        let names = METHODS.map(|method| method.to_string()).join(", ");
        let method = found.ok_or_else(|| format!("field `method`: it must be one of {names}"))?;
        let mut request = Self { method, headers: HeaderMap::new(), body };
        let mut bytes = 0;
        for (name, value) in headers {
            bytes += name.len() + value.len();
            request.add_header(name, value).map_err(|why| format!("field `headers`: {why}"))?;
        }
        if request.headers.len() > HEADERS_MAX || bytes > HEADER_BYTES_MAX {
            return Err(format!(
                "field `headers`: at most {HEADERS_MAX} of {HEADER_BYTES_MAX} bytes together"
            ));
        }
        Ok(request)
    }

    fn add_header(&mut self, name: &str, value: &str) -> Result<(), String> {
        let shown = name.chars().take(64).collect::<String>();
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("'{}' is not the name of a header", shown.escape_debug()))?;
        if REFUSED_HEADERS.contains(&name.as_str()) {
            return Err(format!("'{name}' is set by the client; leave it out"));
        }
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| format!("the value of '{name}' has characters that a header must not contain"))?;
        // It may be a credential.
        value.set_sensitive(true);
        self.headers.append(name, value);
        Ok(())
    }

    /// Sets the content type, replacing the caller's.
    pub(crate) fn set_content_type(&mut self, value: &'static str) {
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static(value));
    }

    /// Sets a header unless the caller has.
    pub(crate) fn set_default_header(&mut self, name: &'static str, value: &'static str) {
        self.headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}
