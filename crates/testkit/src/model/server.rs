//! The HTTP server of the scripted model: accepts connections, parses requests, sends planned responses.
//! It runs on one thread and ends with it.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::http::request;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::request::{Api, BadRequest, ParsedRequest};
use super::response::PlannedResponse;
use super::response_body::ScriptedBody;
use super::shared_state::SharedState;

const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(10);

pub(crate) struct Server {
    key: Option<String>,
    follow_injections: bool,
    tls: Option<TlsAcceptor>,
    shared: Arc<SharedState>,
}

impl Server {
    pub(crate) fn new(
        key: Option<String>,
        follow_injections: bool,
        tls: Option<TlsAcceptor>,
        shared: Arc<SharedState>,
    ) -> Self {
        Self { key, follow_injections, tls, shared }
    }

    /// Serves until the sender of `stopped` is dropped; then drops every connection.
    pub(crate) async fn run(self, listener: TcpListener, mut stopped: oneshot::Receiver<()>) {
        let server = Arc::new(self);
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        server.shared.count_connection();
                        connections.spawn(Arc::clone(&server).serve(stream));
                    }
                    // Out of file descriptors: retrying at once would starve the tasks that have to close some.
                    Err(_) => tokio::time::sleep(ACCEPT_RETRY_DELAY).await,
                },
                Some(_) = connections.join_next() => {}
                _ = &mut stopped => return,
            }
        }
    }

    async fn serve(self: Arc<Self>, stream: TcpStream) {
        // A failure costs only latency, and means that the connection is closed already.
        let _ = stream.set_nodelay(true);
        match &self.tls {
            None => self.serve_http(stream).await,
            // A peer that rejects the certificate closes and reports the reason itself.
            Some(tls) => {
                if let Ok(stream) = tls.accept(stream).await {
                    self.serve_http(stream).await;
                }
            }
        }
    }

    async fn serve_http(&self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let service = service_fn(|request| self.respond(request));
        // Without half-close hyper keeps reading while a response is in flight, and so sees a disconnect at once. Its
        // errors are disconnects and cut responses; both are counted elsewhere.
        let _ = http1::Builder::new().half_close(false).serve_connection(TokioIo::new(stream), service).await;
    }

    async fn respond(&self, request: Request<Incoming>) -> Result<Response<ScriptedBody>, hyper::Error> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let parsed = self.authorize(&head).map(|api| (api, ParsedRequest::parse(api, &body)));
        let round_key =
            parsed.as_ref().ok().and_then(|(_, parsed)| parsed.as_ref().ok()).map(ParsedRequest::round_key);
        let (number, tracker) = self.shared.record_request(head, body, round_key);
        let planned = match parsed {
            Ok((_, Ok(request))) => self.plan_response(&request, number),
            Ok((api, Err(fault))) => PlannedResponse::bad_request(api, &fault),
            Err(refusal) => refusal,
        };
        for wait in planned.waits_before_head {
            wait.run(&self.shared).await;
        }
        let mut response = Response::new(ScriptedBody::new(planned.body, tracker));
        *response.status_mut() =
            StatusCode::from_u16(planned.status).expect("the script parser validated the status");
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(planned.content_type));
        if let Some(seconds) = planned.retry_after_s {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        Ok(response)
    }

    /// The API that a request is for; an error response if its path, key or version is missing or wrong.
    fn authorize(&self, head: &request::Parts) -> Result<Api, PlannedResponse> {
        let is_complete =
            !is_azure(head) || head.uri.query().is_some_and(|query| query.contains("api-version="));
        let found = Api::from_path(head.uri.path()).filter(|_| head.method == Method::POST && is_complete);
        let api = found.ok_or_else(|| PlannedResponse::not_found(head.method.as_str(), head.uri.path()))?;
        if !self.has_valid_key(api, head) {
            return Err(PlannedResponse::unauthorized(api));
        }
        if api == Api::Anthropic && !head.headers.contains_key("anthropic-version") {
            let message = "anthropic-version: header is required".to_owned();
            return Err(PlannedResponse::bad_request(api, &BadRequest { message, param: None }));
        }
        Ok(api)
    }

    fn has_valid_key(&self, api: Api, head: &request::Parts) -> bool {
        let Some(key) = &self.key else { return true };
        let (name, expected) = match api {
            Api::Chat if is_azure(head) => (HeaderName::from_static("api-key"), key.clone()),
            Api::Chat | Api::Responses => (AUTHORIZATION, format!("Bearer {key}")),
            Api::Anthropic => (HeaderName::from_static("x-api-key"), key.clone()),
        };
        head.headers.get(name).is_some_and(|given| given.as_bytes() == expected.as_bytes())
    }

    fn plan_response(&self, request: &ParsedRequest, number: usize) -> PlannedResponse {
        let response_for = |prompt: &str| self.shared.response_for(prompt);
        let mark_deferred = |prompt: &str| self.shared.mark_deferred(prompt);
        PlannedResponse::for_request(request, number, self.follow_injections, response_for, mark_deferred)
    }
}

/// Azure has the deployment in the path, the API version in the query, and its own header for the key.
fn is_azure(head: &request::Parts) -> bool {
    head.uri.path().starts_with("/openai/deployments/")
}
