//! The scripted model's door: accepts connections, reads requests, sends planned answers.
//! Everything runs on the one thread that owns the server and ends with it.

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
        obedient: bool,
        tls: Option<TlsAcceptor>,
        observed: Arc<SharedState>,
    ) -> Self {
        Self { key, follow_injections: obedient, tls, shared: observed }
    }

    /// Serves until the other end of `stopped` is gone; then every connection is dropped.
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
                    // Out of file descriptors: others have to close some, and asking at once would starve them.
                    Err(_) => tokio::time::sleep(ACCEPT_RETRY_DELAY).await,
                },
                Some(_) = connections.join_next() => {}
                _ = &mut stopped => return,
            }
        }
    }

    async fn serve(self: Arc<Self>, stream: TcpStream) {
        // Only latency is lost where this fails, and then the connection is already gone.
        let _ = stream.set_nodelay(true);
        match &self.tls {
            None => self.serve_http(stream).await,
            // A peer that does not trust us goes away, and sees why itself.
            Some(tls) => {
                if let Ok(stream) = tls.accept(stream).await {
                    self.serve_http(stream).await;
                }
            }
        }
    }

    async fn serve_http(&self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let answer = service_fn(|request| self.respond(request));
        // Without half-close hyper reads on while an answer is under way, and so sees the peer go at once. Its
        // faults are peers that went away and answers that were cut; both are counted elsewhere.
        let _ = http1::Builder::new().half_close(false).serve_connection(TokioIo::new(stream), answer).await;
    }

    async fn respond(&self, request: Request<Incoming>) -> Result<Response<ScriptedBody>, hyper::Error> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let chat = self.authorize(&head).map(|api| (api, ParsedRequest::parse(api, &body)));
        let question =
            chat.as_ref().ok().and_then(|(_, chat)| chat.as_ref().ok()).map(ParsedRequest::round_key);
        let (number, attendance) = self.shared.record_request(head, body, question);
        let answer = match chat {
            Ok((_, Ok(request))) => self.plan_response(&request, number),
            Ok((api, Err(fault))) => PlannedResponse::bad_request(api, &fault),
            Err(refusal) => refusal,
        };
        for wait in answer.waits_before_head {
            wait.run(&self.shared).await;
        }
        let mut response = Response::new(ScriptedBody::new(answer.body, attendance));
        *response.status_mut() =
            StatusCode::from_u16(answer.status).expect("the script's status was checked");
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
        if let Some(seconds) = answer.retry_after_s {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        Ok(response)
    }

    /// Which API a request is for, or why it is not answered.
    fn authorize(&self, head: &request::Parts) -> Result<Api, PlannedResponse> {
        let is_whole =
            !is_azure(head) || head.uri.query().is_some_and(|query| query.contains("api-version="));
        let found = Api::from_path(head.uri.path()).filter(|_| head.method == Method::POST && is_whole);
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
        let registered = |prompt: &str| self.shared.response_for(prompt);
        PlannedResponse::for_request(request, number, self.follow_injections, registered, |prompt| {
            self.shared.mark_deferred(prompt)
        })
    }
}

/// Azure has a deployment in its paths, a version in its queries, and a header of its own for the key.
fn is_azure(head: &request::Parts) -> bool {
    head.uri.path().starts_with("/openai/deployments/")
}
