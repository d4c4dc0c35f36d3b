//! Test daemon: real HTTP, scripted responses by method. An event subscription counts as the method `events`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use testkit::{HttpPeer, PeerAction, PeerLog, PeerRequest, http_response};
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

impl ReceivedRequest {
    fn new(request: &PeerRequest) -> Self {
        let (path, head) = (request.path().to_owned(), request.head.clone());
        Self { path, head, method: method(request), params: json_body(request)["params"].clone() }
    }
}

pub(super) struct ScriptedDaemon {
    pub(super) port: u16,
    peer: HttpPeer,
}

impl ScriptedDaemon {
    /// Serves each method with its replies in order; the last one repeats.
    pub(super) fn start(replies: &[(&'static str, Reply)]) -> Self {
        let mut by_method: HashMap<&'static str, Vec<Reply>> = HashMap::new();
        for (method, reply) in replies {
            by_method.entry(method).or_default().push(reply.clone());
        }
        let (by_method, cancelled) = (Mutex::new(by_method), Arc::new(Notify::new()));
        let peer = HttpPeer::start(move |request| {
            let reply = next_reply(&mut by_method.lock().unwrap(), &method(request));
            actions(reply, request, &cancelled)
        });
        Self { port: peer.port(), peer }
    }

    pub(super) fn received(&self) -> Vec<ReceivedRequest> {
        self.peer.log().requests.iter().map(ReceivedRequest::new).collect()
    }

    pub(super) fn methods(&self) -> Vec<String> {
        self.peer.log().requests.iter().map(method).collect()
    }

    pub(super) fn connections(&self) -> usize {
        self.peer.log().connections
    }

    /// Resolves when a send has arrived.
    pub(super) fn send_arrived(&self) -> impl Future<Output = ()> + use<> {
        self.request_arrived("send")
    }

    /// Resolves when a request of this method has arrived.
    pub(super) fn request_arrived(&self, wanted: &'static str) -> impl Future<Output = ()> + use<> {
        self.peer.wait(move |log| count(log, wanted) > 0)
    }

    /// Resolves when this number of subscriptions has arrived.
    pub(super) fn subscription_arrived(&self, times: usize) -> impl Future<Output = ()> + use<> {
        self.peer.wait(move |log| count(log, "events") >= times)
    }
}

fn count(log: &PeerLog, wanted: &str) -> usize {
    log.requests.iter().filter(|request| method(request) == wanted).count()
}

fn json_body(request: &PeerRequest) -> Value {
    if request.body.is_empty() { Value::Null } else { request.json() }
}

/// The method of a request; `events` for an event subscription.
fn method(request: &PeerRequest) -> String {
    let name = json_body(request)["method"].take();
    name.as_str().unwrap_or("events").to_owned()
}

fn next_reply(replies: &mut HashMap<&'static str, Vec<Reply>>, method: &str) -> Reply {
    let list = replies.get_mut(method).unwrap_or_else(|| panic!("no reply for {method}"));
    if list.len() > 1 { list.remove(0) } else { list[0].clone() }
}

fn actions(reply: Reply, request: &PeerRequest, cancelled: &Arc<Notify>) -> Vec<PeerAction> {
    let id = json_body(request)["id"].take();
    let respond = |status: u16, body: Value| {
        let status = format!("{status} Status");
        PeerAction::Write(http_response(&status, "Content-Type: application/json\r\n", body.to_string()))
    };
    let result = |result: &Value| respond(200, json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    match reply {
        Reply::Result(output) => {
            if method(request) == "cancel" && output["cancelled"] == true {
                cancelled.notify_one();
            }
            vec![result(&output)]
        }
        Reply::HttpRefusal(status, message) => {
            let error = json!({ "code": -32600, "message": message });
            vec![respond(status, json!({ "jsonrpc": "2.0", "id": null, "error": error }))]
        }
        Reply::UntilCancel(output) => vec![PeerAction::WaitFor(Arc::clone(cancelled)), result(&output)],
        Reply::Stream(text) => {
            let text = text.replace("ID", &id.to_string());
            vec![PeerAction::Write(http_response("200 OK", "Content-Type: text/event-stream\r\n", text))]
        }
        Reply::OpenStream(text) => {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
            vec![PeerAction::Write(format!("{head}{text}").into_bytes()), PeerAction::Hold]
        }
        Reply::Hang => vec![PeerAction::Hold],
    }
}
