//! Redirects: where a response points, and what of a request goes there.

use agent::ToolOutcome;
use hyper::header::{self, HeaderName};
use hyper::{Method, StatusCode};

use super::checked_url::{CheckedUrl, RequestedUrl};
use super::connection::RawResponse;
use super::outgoing::OutgoingRequest;
use crate::definition::execution_failed;

/// The URL of a redirect; none if the response is not one.
pub(super) fn target(from: &CheckedUrl, response: &RawResponse) -> Result<Option<RequestedUrl>, ToolOutcome> {
    let is_redirect = matches!(response.status.as_u16(), 301 | 302 | 303 | 307 | 308);
    let Some(location) = response.headers.get(header::LOCATION).filter(|_| is_redirect) else {
        return Ok(None);
    };
    let refused = |why: String| execution_failed(format!("the redirect is refused: {why}"));
    let location = std::str::from_utf8(location.as_bytes()).map_err(|_| refused("not a URL".to_owned()))?;
    let target = from.requested().join(location).map_err(refused)?;
    if from.requested().is_https() && !target.is_https() {
        return Err(refused(format!("it leads from https to {}", target.as_str())));
    }
    Ok(Some(target))
}

/// The headers of a caller that go to another origin. All others may be credentials, under whatever name.
const HARMLESS_HEADERS: &[HeaderName] = &[
    header::ACCEPT,
    header::ACCEPT_LANGUAGE,
    header::CACHE_CONTROL,
    header::CONTENT_LANGUAGE,
    header::CONTENT_TYPE,
    header::IF_MODIFIED_SINCE,
    header::IF_NONE_MATCH,
    header::RANGE,
    header::USER_AGENT,
];

impl OutgoingRequest {
    /// Changes the request for a redirect: the method as browsers do, and headers that may be credentials are removed
    /// when the origin changes.
    pub(super) fn redirect(
        &mut self,
        status: StatusCode,
        from: &CheckedUrl,
        to: &RequestedUrl,
    ) -> Result<(), ToolOutcome> {
        let becomes_get = match status.as_u16() {
            301 | 302 => self.method == Method::POST,
            303 => self.method != Method::HEAD,
            _ => false,
        };
        if becomes_get {
            self.method = Method::GET;
            self.body = bytes::Bytes::new();
            for name in [header::CONTENT_TYPE, header::CONTENT_LANGUAGE, header::CONTENT_ENCODING] {
                self.headers.remove(name);
            }
        }
        if !from.requested().is_same_origin(to) {
            let names: Vec<HeaderName> = self.headers.keys().cloned().collect();
            for name in names.iter().filter(|name| !HARMLESS_HEADERS.contains(name)) {
                self.headers.remove(name);
            }
        }
        Ok(())
    }
}
