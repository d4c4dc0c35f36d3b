//! Test daemon: real HTTP, scripted responses by method. An event subscription counts as the method `events`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

#[derive(Clone)]
pub(super) enum Reply {
    /// A result.
    Result(Value),
    /// A rejection by the HTTP transport: status and message.
    HttpRefusal(u16, &'static str),
    /// This result, after a successful cancel.
    UntilCancel(Value),
    /// An event stream with this text; `ID` is replaced by the request's id.
    Stream(&'static str),
    /// The same, but the stream stays open.
    OpenStream(&'static str),
    /// No response.
    Hang,
}

/// A received request.
#[derive(Clone)]
pub(super) struct ReceivedRequest {
    pub(super) path: String,
    pub(super) head: String,
    pub(super) method: String,
    pub(super) params: Value,
}

#[derive(Default)]
struct State {
    replies: Mutex<HashMap<&'static str, Vec<Reply>>>,
    received: Mutex<Vec<ReceivedRequest>>,
    connections: Mutex<usize>,
    request_arrived: Notify,
    send_arrived: Notify,
    subscription_arrived: Notify,
    cancelled: Notify,
}

pub(super) struct ScriptedDaemon {
    pub(super) port: u16,
    state: Arc<State>,
}

impl ScriptedDaemon {
    /// Serves each method with its replies in order; the last one repeats.
    pub(super) async fn start(replies: &[(&'static str, Reply)]) -> Self {
        let state = Arc::new(State::default());
        for (method, reply) in replies {
            state.replies.lock().unwrap().entry(method).or_default().push(reply.clone());
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = state.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *served.connections.lock().unwrap() += 1;
                tokio::spawn(serve(stream, served.clone()));
            }
        });
        Self { port, state }
    }

    pub(super) fn received(&self) -> Vec<ReceivedRequest> {
        self.state.received.lock().unwrap().clone()
    }

    pub(super) fn methods(&self) -> Vec<String> {
        self.received().into_iter().map(|request| request.method).collect()
    }

    pub(super) fn connections(&self) -> usize {
        *self.state.connections.lock().unwrap()
    }

    /// Resolves when a send has arrived.
    pub(super) fn send_arrived(&self) -> impl Future<Output = ()> + use<> {
        let state = self.state.clone();
        async move { state.send_arrived.notified().await }
    }

    /// Resolves when a request of this method has arrived.
    pub(super) fn request_arrived(&self, method: &'static str) -> impl Future<Output = ()> + use<> {
        let state = self.state.clone();
        async move {
            let is_method = |request: &ReceivedRequest| request.method == method;
            while !state.received.lock().unwrap().iter().any(is_method) {
                state.request_arrived.notified().await;
            }
        }
    }

    /// Resolves when this number of subscriptions has arrived.
    pub(super) fn subscription_arrived(&self, times: usize) -> impl Future<Output = ()> + use<> {
        let state = self.state.clone();
        async move {
            while state.received.lock().unwrap().iter().filter(|request| request.method == "events").count()
                < times
            {
                state.subscription_arrived.notified().await;
            }
        }
    }
}

async fn serve(mut connection: TcpStream, state: Arc<State>) {
    while let Some((head, body)) = read_request(&mut connection).await {
        let is_subscription = head.starts_with("GET ");
        let request = if is_subscription {
            json!({ "method": "events" })
        } else {
            serde_json::from_str(&body).unwrap()
        };
        let method = request["method"].as_str().unwrap().to_owned();
        let path = head.split(' ').nth(1).unwrap().to_owned();
        let params = request["params"].clone();
        state.received.lock().unwrap().push(ReceivedRequest { path, head, method: method.clone(), params });
        state.request_arrived.notify_one();
        if method == "send" {
            state.send_arrived.notify_one();
        }
        if is_subscription {
            state.subscription_arrived.notify_one();
        }
        let response = match state.next_reply(&method) {
            Reply::Result(result) => {
                let ends_a_turn = method == "cancel" && result["cancelled"] == true;
                if ends_a_turn {
                    state.cancelled.notify_one();
                }
                http_response(200, &json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }))
            }
            Reply::HttpRefusal(status, message) => http_response(
                status,
                &json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32600, "message": message } }),
            ),
            Reply::UntilCancel(result) => {
                state.cancelled.notified().await;
                http_response(200, &json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }))
            }
            Reply::Stream(text) => event_stream_response(text, &request["id"]),
            Reply::OpenStream(text) => {
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
                let _ = connection.write_all(format!("{head}{text}").as_bytes()).await;
                std::future::pending().await
            }
            Reply::Hang => std::future::pending().await,
        };
        if connection.write_all(response.as_bytes()).await.is_err() {
            return;
        }
    }
}

impl State {
    fn next_reply(&self, method: &str) -> Reply {
        let mut replies = self.replies.lock().unwrap();
        let list = replies.get_mut(method).unwrap_or_else(|| panic!("no reply for {method}"));
        if list.len() > 1 { list.remove(0) } else { list[0].clone() }
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut bytes = Vec::new();
    loop {
        if let Some((head, body)) = String::from_utf8_lossy(&bytes).split_once("\r\n\r\n") {
            let lower = head.to_ascii_lowercase();
            let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
            if body.len() >= length.parse().unwrap() {
                return Some((head.to_owned(), body.to_owned()));
            }
        }
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return None;
        }
    }
}

fn http_response(status: u16, body: &Value) -> String {
    let body = body.to_string();
    format!(
        "HTTP/1.1 {status} Status\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn event_stream_response(text: &str, id: &Value) -> String {
    let text = text.replace("ID", &id.to_string());
    let length = text.len();
    format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {length}\r\n\r\n{text}")
}
