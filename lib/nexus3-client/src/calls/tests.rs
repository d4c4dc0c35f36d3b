//! The scenario shared with the in-process API, over HTTP: the requests and responses of its transcript.

#[path = "../../../nexus3-protocol/tests/shared/transcript.rs"]
mod transcript;

use nexus3_protocol::methods::{NoParams, SendParams};
use nexus3_protocol::{AgentApi, OPENRPC, RpcError};

use super::*;
use crate::Endpoint;
use crate::scripted_server::{ScriptedServer, Step, http_response};

/// Returns the daemon's response to one call of the transcript.
fn response(line: &transcript::Exchange, id: usize) -> Vec<u8> {
    let response = match line.response {
        "404" => {
            let name = line.door.trim_start_matches("/agent/");
            let error = format!(r#"{{"code":-32602,"message":"Agent not found: {name}"}}"#);
            return http_response(404, &format!(r#"{{"jsonrpc":"2.0","id":null,"error":{error}}}"#));
        }
        "OPENRPC" => format!(r#""result":{OPENRPC}"#),
        response => response.to_owned(),
    };
    http_response(200, &format!(r#"{{"jsonrpc":"2.0","id":{id},{response}}}"#))
}

fn rpc_error(fault: ClientFault) -> RpcError {
    match fault {
        ClientFault::Rpc { error, .. } => error,
        other => panic!("not an error of the daemon: {other}"),
    }
}

#[tokio::test]
async fn scenario_matches_the_transcript_over_http() {
    let lines = transcript::exchanges();
    let steps =
        lines.iter().enumerate().map(|(index, line)| Step::Respond(response(line, index + 1))).collect();
    let mut server = ScriptedServer::start(vec![steps]);
    transcript::run(&Client::new(server.endpoint.clone(), None), rpc_error).await;
    for (index, line) in lines.iter().enumerate() {
        let request = server.next_request().await;
        let body = format!(r#"{{"jsonrpc":"2.0",{},"id":{}}}"#, line.request, index + 1);
        assert!(request.starts_with(&format!("POST {} HTTP/1.1\r\n", line.door)), "{request}");
        assert_eq!(request.split_once("\r\n\r\n").unwrap().1, body);
    }
    server.wait_closed().await;
    assert_eq!(server.connection_count(), 1, "one connection for all calls");
}

#[test]
fn trait_calls_are_send() {
    fn spawnable<T: Send>(_: &T) {}
    let client = Client::new(Endpoint::default(), None);
    let message = SendParams::default();
    spawnable(&AgentApi::send(&client, "a", &message));
    spawnable(&client.for_agent("a").get_tokens(&NoParams {}));
}
