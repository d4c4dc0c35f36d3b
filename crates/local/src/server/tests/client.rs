//! HTTP client for tests.

use std::path::Path;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use testkit::StreamEvent;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;

use super::WAIT_MAX;

/// An HTTP connection; dropping it closes it, even with a request in flight.
pub(super) struct TestClient {
    sender: SendRequest<Full<Bytes>>,
    connection: JoinHandle<()>,
}

/// A response with its whole body.
pub(super) struct TestResponse {
    pub(super) status: StatusCode,
    pub(super) headers: hyper::HeaderMap,
    pub(super) text: String,
}

impl TestClient {
    pub(super) async fn unix(path: &Path) -> Self {
        Self::handshake_on(UnixStream::connect(path).await.unwrap()).await
    }

    pub(super) async fn tcp(address: &str) -> Self {
        Self::handshake_on(TcpStream::connect(address).await.unwrap()).await
    }

    async fn handshake_on(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(async move { drop(connection.await) });
        Self { sender, connection }
    }

    pub(super) async fn get(&mut self, path: &str) -> TestResponse {
        read(self.send(Method::GET, path, &[], Bytes::new()).await).await
    }

    pub(super) async fn post(&mut self, path: &str, body: &Value) -> TestResponse {
        read(self.post_unread(path, body, &[]).await).await
    }

    pub(super) async fn chat(&mut self, body: &Value) -> TestResponse {
        self.post("/v1/chat/completions", body).await
    }

    pub(super) async fn chat_from(&mut self, root: &str, body: &Value) -> TestResponse {
        read(self.post_unread("/v1/chat/completions", body, &[("X-Nexus-Root", root)]).await).await
    }

    /// Returns the response with its body unread.
    pub(super) async fn post_unread(
        &mut self,
        path: &str,
        body: &Value,
        headers: &[(&str, &str)],
    ) -> Response<Incoming> {
        self.send(Method::POST, path, headers, Bytes::from(serde_json::to_vec(body).unwrap())).await
    }

    pub(super) async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Response<Incoming> {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "Host") {
            request = request.header("Host", "localhost");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body)).unwrap();
        let response = async {
            self.sender.ready().await.unwrap();
            self.sender.send_request(request).await.unwrap()
        };
        tokio::time::timeout(WAIT_MAX, response).await.expect("the server responds")
    }
}

impl Drop for TestClient {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

pub(super) async fn read(response: Response<Incoming>) -> TestResponse {
    let (head, body) = response.into_parts();
    let body = tokio::time::timeout(WAIT_MAX, body.collect()).await.expect("the body ends").unwrap();
    let text = String::from_utf8(body.to_bytes().to_vec()).unwrap();
    TestResponse { status: head.status, headers: head.headers, text }
}

impl TestResponse {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|fault| panic!("{fault}: {}", self.text))
    }

    /// Returns the code of the error object.
    pub(super) fn code(&self) -> Value {
        self.json()["error"]["code"].take()
    }

    /// Parses the chunks of a stream, which must end with `[DONE]`.
    pub(super) fn chunks(&self) -> Vec<Value> {
        let mut events = StreamEvent::parse_all(&self.text);
        assert_eq!(events.pop().expect("the stream has events").data, "[DONE]");
        events.iter().map(StreamEvent::json).collect()
    }
}
