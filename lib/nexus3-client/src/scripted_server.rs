//! Test server that follows a script of responses per connection.

use testkit::{HttpPeer, PeerAction};

use crate::Endpoint;

/// A step of a connection, which closes after its last step.
#[derive(Clone)]
pub(crate) enum Step {
    /// Reads a request, then writes these bytes.
    Respond(Vec<u8>),
    /// Reads a request and never responds.
    Hang,
}

pub(crate) struct ScriptedServer {
    pub(crate) endpoint: Endpoint,
    peer: HttpPeer,
    /// Number of requests that [`Self::next_request`] has returned.
    returned: usize,
}

impl ScriptedServer {
    /// Runs one list of steps per connection; further connections are refused.
    pub(crate) fn start(connections: Vec<Vec<Step>>) -> Self {
        let peer = HttpPeer::start_limited(connections.len(), move |request| {
            let steps = &connections[request.connection];
            let mut actions = match steps.get(request.number_on_connection) {
                Some(Step::Respond(bytes)) => vec![PeerAction::Write(bytes.clone())],
                Some(Step::Hang) => vec![PeerAction::Hold],
                None => Vec::new(),
            };
            if request.number_on_connection + 1 >= steps.len() {
                actions.push(PeerAction::Close);
            }
            actions
        });
        Self { endpoint: Endpoint::local(peer.port()), peer, returned: 0 }
    }

    /// Serves one connection with one response.
    pub(crate) fn respond_once(response: Vec<u8>) -> Self {
        Self::start(vec![vec![Step::Respond(response)]])
    }

    /// Returns the text of the next request.
    pub(crate) async fn next_request(&mut self) -> String {
        let number = self.returned;
        self.peer.wait(|log| log.requests.len() > number).await;
        self.returned += 1;
        self.peer.log().requests[number].text()
    }

    /// Waits until a connection was closed.
    pub(crate) async fn wait_closed(&self) {
        self.peer.wait(|log| log.closed > 0).await;
    }

    /// Returns the number of connections so far.
    pub(crate) fn connection_count(&self) -> usize {
        self.peer.log().connections
    }
}

/// Returns an HTTP response with a JSON body.
pub(crate) fn http_response(status: u16, body: &str) -> Vec<u8> {
    testkit::http_response(&format!("{status} Status"), "Content-Type: application/json\r\n", body)
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
