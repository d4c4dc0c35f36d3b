//! Event streams at the HTTP door: which requests want one, where they begin, and how the answer looks.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use hyper::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use nexus3_protocol::events::{EventQuery, QueryFault, parse_cursor};
use nexus3_protocol::sse::{self, LAST_EVENT_ID, MEDIA_TYPE};
use rpc::{Caller, EventBytes, StreamError, Target};

use super::body::{ResponseBody, StreamBody, StreamContext};
use super::refusal::Refusal;
use super::service::Shared;

/// How long a browser is told to wait before it comes back.
const RETRY_MS: u64 = 1000;

const STREAMS_FULL: &str = "busy: too many event streams are open; close one or raise event_streams_max";

static LAST_EVENT_ID_HEADER: HeaderName = HeaderName::from_static(LAST_EVENT_ID);

/// A place whose events can be watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventPath<'a> {
    /// `/events`
    All,
    /// `/agent/{agent_id}/events`; whether that is a name is not said.
    Agent(&'a str),
}

impl<'a> EventPath<'a> {
    /// What a request watches; none when it does not.
    pub(super) fn parse(method: &Method, path: &'a str) -> Option<Self> {
        if method != Method::GET {
            return None;
        }
        if path == "/events" {
            return Some(EventPath::All);
        }
        let name = path.strip_prefix("/agent/")?.strip_suffix("/events")?;
        (!name.is_empty() && !name.contains('/')).then_some(EventPath::Agent(name))
    }
}

/// Whether the caller takes an event stream as the answer to a `send`.
pub(super) fn accepts_event_stream(headers: &HeaderMap) -> bool {
    let is_stream =
        |item: &str| item.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(MEDIA_TYPE);
    headers
        .get_all(ACCEPT)
        .iter()
        .any(|value| value.to_str().is_ok_and(|value| value.split(',').any(is_stream)))
}

/// Answers a request that watches.
pub(super) async fn stream_events(
    shared: &Shared,
    parts: &Parts,
    entrance: &Target,
    caller: &Caller,
) -> Result<Response<ResponseBody>, Refusal> {
    let query =
        parse_query(parts).map_err(|fault| Refusal::new(StatusCode::BAD_REQUEST, fault.to_string()))?;
    let place = Arc::clone(&shared.event_stream_permits)
        .try_acquire_owned()
        .map_err(|_| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, STREAMS_FULL))?;
    let events = shared.dispatcher.watch(entrance, caller, query).await.map_err(stream_refusal)?;
    let mut opening = Vec::new();
    sse::write_retry(&mut opening, RETRY_MS);
    if let Some(sequence) = events.starts_after() {
        sse::write_id(&mut opening, sequence);
    }
    let terms = StreamContext { permit: Some(place), ..stream_context(shared) };
    Ok(event_stream_response(StreamBody::new(events, opening, terms)))
}

/// The answer to a `send` that is told as it goes. It needs no place among the streams: turns have their own limits.
pub(super) fn stream_response(shared: &Shared, events: EventBytes) -> Response<ResponseBody> {
    event_stream_response(StreamBody::new(events, Vec::new(), stream_context(shared)))
}

fn stream_context(shared: &Shared) -> StreamContext {
    StreamContext {
        heartbeat_interval: shared.limits.heartbeat_interval,
        stop: shared.streams_stop.clone(),
        activity: Arc::clone(&shared.activity),
        permit: None,
    }
}

/// Where to begin and which kinds. The header counts before the query: a browser that comes back sends both.
fn parse_query(parts: &Parts) -> Result<EventQuery, QueryFault> {
    let mut query = EventQuery::parse(parts.uri.query().unwrap_or_default())?;
    let mut ids = parts.headers.get_all(&LAST_EVENT_ID_HEADER).iter();
    if let Some(id) = ids.next() {
        if ids.next().is_some() {
            return Err(QueryFault::Duplicate("Last-Event-ID"));
        }
        let id = String::from_utf8_lossy(id.as_bytes());
        query.after = Some(parse_cursor("Last-Event-ID", &id)?);
    }
    Ok(query)
}

fn stream_refusal(fault: StreamError) -> Refusal {
    let (status, text) = match fault {
        StreamError::Denied(text) => (StatusCode::FORBIDDEN, text),
        StreamError::AgentNotFound(text) => (StatusCode::NOT_FOUND, text),
        StreamError::Busy(text) => (StatusCode::SERVICE_UNAVAILABLE, text),
        StreamError::Failed(text) => (StatusCode::INTERNAL_SERVER_ERROR, text),
    };
    Refusal::new(status, text)
}

fn event_stream_response(body: StreamBody) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Stream(Box::new(body)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
