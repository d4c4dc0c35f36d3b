//! A server for tests that plays a script: what each connection, one after the other, is answered. It reports what
//! happens as events, so that tests wait for these and never for time.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::Endpoint;

/// One thing a connection does. At the end of its steps it is closed.
pub(crate) enum Step {
    /// Reads a request, then writes these bytes.
    Respond(Vec<u8>),
    /// Reads a request and never answers.
    Hang,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ServerEvent {
    Opened,
    Requested(String),
    Closed,
}

pub(crate) struct ScriptedServer {
    pub(crate) endpoint: Endpoint,
    events: UnboundedReceiver<ServerEvent>,
}

impl ScriptedServer {
    /// Plays one list of steps per connection; further connections are refused.
    pub(crate) async fn start(connections: Vec<Vec<Step>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint::local(listener.local_addr().unwrap().port());
        let (report, events) = unbounded_channel();
        tokio::spawn(async move {
            for steps in connections {
                let (stream, _) = listener.accept().await.unwrap();
                let _ = report.send(ServerEvent::Opened);
                tokio::spawn(serve_connection(stream, steps, report.clone()));
            }
        });
        Self { endpoint, events }
    }

    /// One connection that gives one answer.
    pub(crate) async fn respond_once(answer: Vec<u8>) -> Self {
        Self::start(vec![vec![Step::Respond(answer)]]).await
    }

    pub(crate) async fn next_event(&mut self) -> ServerEvent {
        self.events.recv().await.expect("the script goes on")
    }

    /// The next request, as its text.
    pub(crate) async fn next_request(&mut self) -> String {
        loop {
            if let ServerEvent::Requested(text) = self.next_event().await {
                return text;
            }
        }
    }

    pub(crate) async fn wait_closed(&mut self) {
        while self.next_event().await != ServerEvent::Closed {}
    }

    /// How many connections were opened among the events that nobody has taken yet.
    pub(crate) fn drain_opened_count(&mut self) -> usize {
        let mut opened = 0;
        while let Ok(event) = self.events.try_recv() {
            opened += usize::from(event == ServerEvent::Opened);
        }
        opened
    }
}

async fn serve_connection(mut stream: TcpStream, steps: Vec<Step>, report: UnboundedSender<ServerEvent>) {
    for step in steps {
        let Some(request) = read_request(&mut stream).await else { break };
        let _ = report.send(ServerEvent::Requested(request));
        match step {
            // A peer that has read enough may be gone before the end.
            Step::Respond(bytes) => drop(stream.write_all(&bytes).await),
            Step::Hang => drop(stream.read(&mut [0; 1]).await),
        }
    }
    drop(stream);
    let _ = report.send(ServerEvent::Closed);
}

async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase()
                    .strip_prefix("content-length:")
                    .map(|value| value.trim().parse().unwrap())
            });
            if body.len() >= length.unwrap_or(0) {
                return Some(text.into_owned());
            }
        }
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return None;
        }
    }
}

/// An HTTP answer with a JSON body.
pub(crate) fn http_response(status: u16, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} Said\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// A JSON-RPC result.
pub(crate) fn result_response(id: u64, result: &str) -> Vec<u8> {
    http_response(200, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#))
}

/// A JSON-RPC error as the door sends it.
pub(crate) fn error_response(status: u16, message: &str) -> Vec<u8> {
    http_response(
        status,
        &format!(r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":-32600,"message":"{message}"}}}}"#),
    )
}
