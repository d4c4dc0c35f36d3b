//! Event streams of the HTTP transport: recognizes their requests, parses the cursor and builds the SSE response.

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
use super::stream_permits::StreamsFull;

/// Reconnect delay sent to the client.
const RETRY_MS: u64 = 1000;

const STREAMS_FULL: &str =
    "busy: too many event streams are open; close one or raise limits.event_streams_max";

const SHARE_FULL: &str = "busy: this agent has too many event streams open; close one";

static LAST_EVENT_ID_HEADER: HeaderName = HeaderName::from_static(LAST_EVENT_ID);

/// Path of an event stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventPath<'a> {
    /// `/events`
    All,
    /// `/agent/{agent_id}/events`; the id is not validated yet.
    Agent(&'a str),
}

impl<'a> EventPath<'a> {
    /// Parses method and path; `None` for requests that are not for an event stream.
    pub(super) fn parse(method: &Method, path: &'a str) -> Option<Self> {
        if method != Method::GET {
            return None;
        }
        if path == "/events" {
            return Some(EventPath::All);
        }
        let id = path.strip_prefix("/agent/")?.strip_suffix("/events")?;
        (!id.is_empty() && !id.contains('/')).then_some(EventPath::Agent(id))
    }
}

/// Whether the client accepts an event stream as the response to a `send`.
pub(super) fn accepts_event_stream(headers: &HeaderMap) -> bool {
    let is_stream =
        |item: &str| item.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(MEDIA_TYPE);
    headers
        .get_all(ACCEPT)
        .iter()
        .any(|value| value.to_str().is_ok_and(|value| value.split(',').any(is_stream)))
}

/// Responds to a subscription request with an event stream.
pub(super) async fn stream_events(
    shared: &Shared,
    parts: &Parts,
    target: &Target,
    caller: &Caller,
) -> Result<Response<ResponseBody>, Refusal> {
    let query =
        parse_query(parts).map_err(|fault| Refusal::new(StatusCode::BAD_REQUEST, fault.to_string()))?;
    let agent = shared.dispatcher.acting_agent(caller);
    let permit = shared.stream_permits.try_acquire(agent).map_err(streams_full)?;
    let events = shared.dispatcher.watch(target, caller, query).await.map_err(stream_refusal)?;
    let mut preamble = Vec::new();
    sse::write_retry(&mut preamble, RETRY_MS);
    if let Some(sequence) = events.starts_after() {
        sse::write_id(&mut preamble, sequence);
    }
    let context = StreamContext { permit: Some(permit), ..stream_context(shared) };
    Ok(event_stream_response(StreamBody::new(events, preamble, context)))
}

/// Builds the streaming response to a `send`. It needs no permit for event streams: turns have their own limits.
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

/// Parses cursor and event kinds. `Last-Event-ID` overrides `after`: a reconnecting browser sends both.
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

fn streams_full(full: StreamsFull) -> Refusal {
    let text = match full {
        StreamsFull::All => STREAMS_FULL,
        StreamsFull::Share => SHARE_FULL,
    };
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, text)
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
