//! Handler of one request: runs the checks before the body is read, then calls the dispatcher.
//! Order: well-formed head (validator) → host and origin → method → token → route → agent → body → dispatcher.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use accept::Activity;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, CONTENT_ENCODING, EXPECT, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use nexus3_protocol::EnvelopeRules;
use rpc::{CallReply, CallResponse, Caller, Dispatcher, ResponseKind, Target, TargetError};
use tokio_util::sync::CancellationToken;

use super::auth::{Auth, Credential, invalid_token};
use super::body::ResponseBody;
use super::events::{self, EventPath};
use super::head::body_too_large;
use super::head_validator::{PLACEHOLDER_PATH, RefusalSlot};
use super::limits::HttpLimits;
use super::refusal::{Refusal, json_response, no_content_response};
use super::stream_permits::StreamPermits;

/// State shared by all connections.
pub(super) struct Shared {
    pub(super) dispatcher: Dispatcher,
    pub(super) auth: Auth,
    pub(super) limits: Arc<HttpLimits>,
    pub(super) activity: Arc<Activity>,
    /// Permits for event streams.
    pub(super) stream_permits: Arc<StreamPermits>,
    /// Ends all event streams.
    pub(super) streams_stop: CancellationToken,
}

static AGENT_HEADER: HeaderName = HeaderName::from_static("x-nexus-agent");

const NO_ROUTE: &str = "Not found. Use /, /rpc, or /agent/{agent_id}.";

/// Handles one request.
pub(super) async fn serve(
    shared: &Shared,
    slot: &RefusalSlot,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    let _activity = shared.activity.start();
    let (mut parts, mut body) = request.into_parts();
    // A chunked body ends its connection: the validator does not look for another head after it.
    let mut closes = body.size_hint().exact().is_none();
    let mut response = match handle(shared, slot, &mut parts, &mut body).await {
        Ok(response) => response,
        Err(refusal) => {
            closes |= !discard_received_body(&parts.headers, &mut body).await;
            refusal.into_response()
        }
    };
    if closes {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn handle(
    shared: &Shared,
    slot: &RefusalSlot,
    parts: &mut Parts,
    body: &mut Incoming,
) -> Result<Response<ResponseBody>, Refusal> {
    if parts.uri.path() == PLACEHOLDER_PATH
        && let Some(refusal) = slot.get()
    {
        return Err(refusal.clone());
    }
    shared.auth.check_host(&parts.uri, &parts.headers)?;
    shared.auth.check_origin(&parts.headers)?;
    let event_path = EventPath::parse(&parts.method, parts.uri.path());
    if parts.method != Method::POST && event_path.is_none() {
        return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed. Use POST."));
    }
    let authenticated = authenticate(shared, &parts.headers)?;
    let narrowed = narrow_caller(authenticated.clone(), &parts.headers);
    // What a route reveals depends on the caller; a fault of the header is reported after one of the route.
    let caller = narrowed.as_ref().unwrap_or(&authenticated);
    let target = match event_path {
        None => route(&shared.dispatcher, &parts.uri, caller)?,
        Some(path) => event_route(&shared.dispatcher, &parts.uri, path, caller)?,
    };
    let caller = narrowed?;
    if event_path.is_some() {
        return events::stream_events(shared, parts, &target, &caller).await;
    }
    if parts.headers.contains_key(CONTENT_ENCODING) {
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Content-Encoding is not supported"));
    }
    let body = read_body(body, shared.limits.body_bytes_max, slot).await?;
    let response = if events::accepts_event_stream(&parts.headers) {
        match shared.dispatcher.respond_streaming(target, &caller, &body, EnvelopeRules::HTTP).await {
            CallReply::Stream(events) => return Ok(events::stream_response(shared, events)),
            CallReply::Complete(response) => response,
        }
    } else {
        shared.dispatcher.respond(&target, &caller, &body, EnvelopeRules::HTTP).await
    };
    Ok(http_response(parts, response))
}

/// Builds the HTTP response of a call.
fn http_response(parts: &mut Parts, response: CallResponse) -> Response<ResponseBody> {
    // Hyper reuses the response's header map for the next request: reusing this one saves an allocation.
    let mut headers = std::mem::take(&mut parts.headers);
    headers.clear();
    match response.kind {
        ResponseKind::Completed => json_response(StatusCode::OK, headers, response.body),
        ResponseKind::Unavailable => {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            json_response(StatusCode::SERVICE_UNAVAILABLE, headers, response.body)
        }
        ResponseKind::Refused => json_response(StatusCode::BAD_REQUEST, headers, response.body),
        ResponseKind::Notification => no_content_response(),
    }
}

/// Discards the received part of a refused request's body; returns whether the whole body has arrived. If not, hyper
/// closes the connection without waiting for it, and the response must announce that, so that the client does not reuse
/// the connection.
async fn discard_received_body(headers: &HeaderMap, body: &mut Incoming) -> bool {
    // Reading the body would make hyper send the `100 Continue` that the client expects.
    let expects_continue = headers.contains_key(EXPECT);
    std::future::poll_fn(|cx| {
        while !expects_continue && let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
            match frame {
                Some(Ok(_)) => {}
                Some(Err(_)) => break,
                None => return Poll::Ready(true),
            }
        }
        Poll::Ready(body.is_end_stream())
    })
    .await
}

/// Resolves the target of a call. Paths must match exactly: a query or a trailing slash makes another path.
fn route(dispatcher: &Dispatcher, uri: &hyper::Uri, caller: &Caller) -> Result<Target, Refusal> {
    if uri.authority().is_some() || uri.query().is_some() {
        return Err(no_route());
    }
    match uri.path() {
        "/" | "/rpc" => Ok(dispatcher.daemon_target()),
        path => agent_route(dispatcher, path.strip_prefix("/agent/").ok_or_else(no_route)?, caller),
    }
}

/// Resolves the target of an event stream; here a query is allowed.
fn event_route(
    dispatcher: &Dispatcher,
    uri: &hyper::Uri,
    path: EventPath<'_>,
    caller: &Caller,
) -> Result<Target, Refusal> {
    match path {
        _ if uri.authority().is_some() => Err(no_route()),
        EventPath::All => Ok(dispatcher.daemon_target()),
        EventPath::Agent(id) => agent_route(dispatcher, id, caller),
    }
}

fn agent_route(dispatcher: &Dispatcher, id: &str, caller: &Caller) -> Result<Target, Refusal> {
    dispatcher.agent_target(id, caller).map_err(|fault| match fault {
        TargetError::InvalidName => no_route(),
        TargetError::AgentNotFound => Refusal::new(StatusCode::NOT_FOUND, format!("Agent not found: {id}")),
    })
}

fn no_route() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, NO_ROUTE)
}

/// Identifies the caller by its token.
fn authenticate(shared: &Shared, headers: &HeaderMap) -> Result<Caller, Refusal> {
    match shared.auth.check_token(headers)? {
        Credential::Admin => Ok(Caller::admin()),
        Credential::Capability(token) => shared.dispatcher.capability_caller(token).ok_or_else(invalid_token),
    }
}

/// Restricts the caller to the agent that `X-Nexus-Agent` names, if the request has this header.
fn narrow_caller(caller: Caller, headers: &HeaderMap) -> Result<Caller, Refusal> {
    let mut ids = headers.get_all(&AGENT_HEADER).iter();
    match (ids.next(), ids.next()) {
        (None, _) => Ok(caller),
        (Some(id), None) => Ok(caller.acting_as(&String::from_utf8_lossy(id.as_bytes()))),
        (Some(_), Some(_)) => Err(Refusal::new(StatusCode::BAD_REQUEST, "Duplicate X-Nexus-Agent header")),
    }
}

async fn read_body(body: &mut Incoming, bytes_max: u64, slot: &RefusalSlot) -> Result<Bytes, Refusal> {
    let expected = body.size_hint().exact();
    let mut received = Bytes::new();
    while !body.is_end_stream()
        && let Some(frame) = body.frame().await
    {
        // After a body timeout, the validator has put the refusal into the slot.
        let frame = frame
            .map_err(|_| slot.get().cloned().unwrap_or_else(|| incomplete_body(expected, received.len())))?;
        let Ok(data) = frame.into_data() else { continue };
        let length = (received.len() + data.len()) as u64;
        if length > bytes_max {
            return Err(body_too_large(length, bytes_max));
        }
        if received.is_empty() {
            received = data;
        } else {
            let mut joined = BytesMut::from(received);
            joined.extend_from_slice(&data);
            received = joined.freeze();
        }
    }
    Ok(received)
}

fn incomplete_body(expected: Option<u64>, got: usize) -> Refusal {
    match expected {
        Some(expected) => Refusal::malformed(format!("Incomplete body: expected {expected}, got {got}")),
        None => Refusal::malformed("Invalid chunked body"),
    }
}
