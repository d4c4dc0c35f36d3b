//! Test server that follows a script of responses per connection. It reports events, so that tests wait for these
//! instead of sleeping.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::Endpoint;

/// A step of a connection, which closes after its last step.
pub(crate) enum Step {
    /// Reads a request, then writes these bytes.
    Respond(Vec<u8>),
    /// Reads a request and never responds.
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
    /// Runs one list of steps per connection; further connections are refused.
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

    /// Serves one connection with one response.
    pub(crate) async fn respond_once(response: Vec<u8>) -> Self {
        Self::start(vec![vec![Step::Respond(response)]]).await
    }

    pub(crate) async fn next_event(&mut self) -> ServerEvent {
        self.events.recv().await.expect("another event")
    }

    /// Returns the text of the next request.
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

    /// Drains the pending events and returns the number of opened connections among them.
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
            // The client may close before it has read everything.
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

/// Returns an HTTP response with a JSON body.
pub(crate) fn http_response(status: u16, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} Status\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Returns a JSON-RPC result.
pub(crate) fn result_response(id: u64, result: &str) -> Vec<u8> {
    http_response(200, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#))
}

/// Returns a JSON-RPC error as the HTTP door sends it.
pub(crate) fn error_response(status: u16, message: &str) -> Vec<u8> {
    http_response(
        status,
        &format!(r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":-32600,"message":"{message}"}}}}"#),
    )
}
