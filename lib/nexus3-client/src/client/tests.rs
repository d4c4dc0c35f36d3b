//! Calls against a scripted server: the bytes sent, connection reuse, and the error for each kind of response.

use nexus3_protocol::methods::{CancelParams, ListAgentsParams, NoParams, RequestIdParam, SendParams};

use super::*;
use crate::scripted_server::{ScriptedServer, Step, error_response, http_response, result_response};

const NO_AGENTS: &str = r#"{"agents":[]}"#;

const ALL_AGENTS: ListAgentsParams = ListAgentsParams { offset: None, limit: None };

fn empty_list_step(id: u64) -> Step {
    Step::Respond(result_response(id, NO_AGENTS))
}

fn client(server: &ScriptedServer) -> Client {
    Client::new(server.endpoint.clone(), None)
}

fn message(content: &str) -> SendParams {
    SendParams {
        content: content.to_owned(),
        request_id: Some(RequestIdParam::Text("r".to_owned())),
        source: None,
        source_agent_id: None,
        ..SendParams::default()
    }
}

async fn list_fault(response: Vec<u8>) -> ClientFault {
    let server = ScriptedServer::respond_once(response);
    client(&server).list_agents(&ALL_AGENTS).await.unwrap_err()
}

#[tokio::test]
async fn call_is_a_post_with_host_token_and_json_rpc_body() {
    let mut server = ScriptedServer::respond_once(result_response(1, NO_AGENTS));
    let client = Client::new(server.endpoint.clone(), Some(Token::parse("nxk_a").unwrap()));
    assert!(client.list_agents(&ALL_AGENTS).await.unwrap().agents.is_empty());
    let request = server.next_request().await;
    let head = request.to_ascii_lowercase();
    assert!(head.starts_with("post / http/1.1\r\n"), "{request}");
    assert!(head.contains(&format!("\r\nhost: {}\r\n", server.endpoint)), "{request}");
    assert!(head.contains("\r\ncontent-type: application/json\r\n"), "{request}");
    assert!(request.contains(": Bearer nxk_a\r\n"), "{request}");
    assert!(request.ends_with(r#"{"jsonrpc":"2.0","method":"list_agents","id":1}"#), "{request}");
}

#[tokio::test]
async fn agent_methods_are_called_at_the_agent_path() {
    let mut server = ScriptedServer::respond_once(result_response(
        1,
        r#"{"content":"hi","request_id":"r","halted_at_iteration_limit":false}"#,
    ));
    let client = client(&server);
    let output = client.agent(".a-1_b").send(&message("hello")).await.unwrap();
    assert_eq!(output.content, "hi");
    let request = server.next_request().await;
    assert!(request.starts_with("POST /agent/.a-1_b HTTP/1.1\r\n"), "{request}");
    assert!(request.ends_with(r#""params":{"content":"hello","request_id":"r"},"id":1}"#), "{request}");
}

#[tokio::test]
async fn agent_id_that_could_change_the_path_is_never_sent() {
    let client = Client::new(Endpoint::local(1), None);
    for id in ["", "a/b", "a b", "a%2f", "a?b", "a\r\nb", "\u{e4}", "a#"] {
        let fault = client.agent(id).get_tokens(&NoParams {}).await.unwrap_err();
        assert!(matches!(fault, ClientFault::Request(_)), "{id:?}: {fault}");
    }
}

#[tokio::test]
async fn sequential_calls_share_a_connection() {
    let server =
        ScriptedServer::start(vec![vec![empty_list_step(1), empty_list_step(2), empty_list_step(3)]]);
    let client = client(&server);
    for _ in 0..3 {
        client.list_agents(&ALL_AGENTS).await.unwrap();
    }
    assert_eq!(server.connection_count(), 1);
}

#[tokio::test]
async fn call_reconnects_after_the_peer_closed() {
    let server = ScriptedServer::start(vec![vec![empty_list_step(1)], vec![empty_list_step(2)]]);
    let client = client(&server);
    client.list_agents(&ALL_AGENTS).await.unwrap();
    server.wait_closed().await;
    client.list_agents(&ALL_AGENTS).await.unwrap();
    assert_eq!(server.connection_count(), 2);
}

/// The runtime has not polled the socket since the last call, as in a program that blocked meanwhile.
#[tokio::test]
async fn unpolled_close_is_noticed_before_writing() {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::local(listener.local_addr().unwrap().port());
    let (close, closing) = std::sync::mpsc::channel();
    let (closed, closes) = std::sync::mpsc::channel();
    let peer = std::thread::spawn(move || {
        for id in 1..=2 {
            let (mut stream, _) = listener.accept().unwrap();
            // A small request arrives in one read, because the client writes it in one call.
            assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
            stream.write_all(&result_response(id, NO_AGENTS)).unwrap();
            closing.recv().unwrap();
            drop(stream);
            closed.send(()).unwrap();
        }
    });
    let client = Client::new(endpoint, None);
    for _ in 0..2 {
        client.list_agents(&ALL_AGENTS).await.unwrap();
        close.send(()).unwrap();
        closes.recv().unwrap();
    }
    peer.join().unwrap();
}

#[tokio::test]
async fn connection_close_header_prevents_reuse() {
    let closing = String::from_utf8(result_response(1, NO_AGENTS)).unwrap().replacen(
        "\r\n",
        "\r\nConnection: close\r\n",
        1,
    );
    // The first connection would accept a second request: the client must not use it.
    let first = vec![Step::Respond(closing.into_bytes()), Step::Hang];
    let server = ScriptedServer::start(vec![first, vec![empty_list_step(2)]]);
    let client = client(&server);
    client.list_agents(&ALL_AGENTS).await.unwrap();
    assert!(client.take_idle().is_none());
    client.list_agents(&ALL_AGENTS).await.unwrap();
    assert_eq!(server.connection_count(), 2);
}

#[tokio::test]
async fn written_request_is_never_sent_twice() {
    let server = ScriptedServer::start(vec![
        vec![empty_list_step(1), Step::Respond(Vec::new())],
        vec![empty_list_step(2)],
    ]);
    let client = client(&server);
    client.list_agents(&ALL_AGENTS).await.unwrap();
    let fault = client.list_agents(&ALL_AGENTS).await.unwrap_err();
    assert!(matches!(fault, ClientFault::Transport { method: "list_agents", .. }), "{fault}");
    assert!(fault.to_string().contains("the request may have been executed"), "{fault}");
    server.wait_closed().await;
    assert_eq!(server.connection_count(), 1);
}

#[tokio::test]
async fn concurrent_call_has_its_own_connection() {
    let cancelled = result_response(2, r#"{"cancelled":true,"request_id":"r"}"#);
    let mut server = ScriptedServer::start(vec![vec![Step::Hang], vec![Step::Respond(cancelled)]]);
    let client = client(&server);
    let agent = client.agent("a");
    let message = message("hello");
    let mut sending = std::pin::pin!(agent.send(&message));
    tokio::select! {
        _ = &mut sending => panic!("the peer is silent"),
        request = server.next_request() => assert!(request.contains(r#""method":"send""#)),
    }
    let request_id = RequestIdParam::Text("r".to_owned());
    assert!(agent.cancel(&CancelParams { request_id }).await.unwrap().cancelled);
}

#[tokio::test]
async fn dropped_call_closes_its_connection() {
    let mut server = ScriptedServer::start(vec![vec![Step::Hang]]);
    let client = client(&server);
    tokio::select! {
        _ = client.list_agents(&ALL_AGENTS) => panic!("the peer is silent"),
        _ = server.next_request() => {}
    }
    server.wait_closed().await;
    assert!(client.take_idle().is_none());
}

#[tokio::test]
async fn daemon_error_has_its_http_status() {
    let error_body = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no","data":{"kind":"k"}}}"#;
    let cases = [
        (error_response(401, "Authorization header required"), 401, "Authorization header required (-32600)"),
        (error_response(403, "Invalid API key"), 403, "Invalid API key (-32600)"),
        (http_response(200, error_body), 200, "no (-32602)"),
    ];
    for (response, expected, text) in cases {
        let fault = list_fault(response).await;
        assert_eq!(fault.to_string(), text);
        assert!(matches!(fault, ClientFault::Rpc { status, .. } if status == expected), "{fault:?}");
    }
}

#[tokio::test]
async fn invalid_response_is_a_protocol_fault_with_the_cause() {
    let cases = [
        (result_response(2, NO_AGENTS), "a response to request 2 instead of 1"),
        (
            http_response(200, r#"{"jsonrpc":"2.0","id":null,"result":{"agents":[]}}"#),
            "request null instead of 1",
        ),
        (
            http_response(200, r#"{"jsonrpc":"2.0","id":"1","result":{"agents":[]}}"#),
            "request \"1\" instead of 1",
        ),
        (http_response(502, "<html>"), "HTTP 502 and no JSON-RPC response"),
        (http_response(200, ""), "no JSON-RPC response"),
        (http_response(200, r#"{"jsonrpc":"2.0","id":1,"result":{},"extra":1}"#), "unknown member"),
        (result_response(1, r#"{"agents":5}"#), "agents must be"),
    ];
    for (response, expected_text) in cases {
        let fault = list_fault(response).await;
        assert!(matches!(fault, ClientFault::Protocol { .. }), "{fault:?}");
        assert!(fault.to_string().contains(expected_text), "{fault}");
    }
}

#[tokio::test]
async fn oversized_response_is_not_read_to_its_end() {
    let mut response =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", RESPONSE_BYTES_MAX + 1).into_bytes();
    response.resize(response.len() + RESPONSE_BYTES_MAX + 1, b' ');
    let fault = list_fault(response).await;
    assert!(fault.to_string().contains("more than 67108864 bytes"), "{fault}");
}

#[tokio::test]
async fn invalid_http_or_early_close_is_a_transport_fault() {
    let half = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{".to_vec();
    for response in [b"nonsense\r\n\r\n".to_vec(), Vec::new(), half] {
        let fault = list_fault(response).await;
        assert!(matches!(fault, ClientFault::Transport { .. }), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn silent_peer_is_a_timeout_with_method_and_duration() {
    let server = ScriptedServer::start(vec![vec![Step::Hang]]);
    let client = client(&server).with_timeout(Duration::from_secs(5));
    let fault = client.list_agents(&ALL_AGENTS).await.unwrap_err();
    assert!(matches!(fault, ClientFault::Timeout { .. }), "{fault:?}");
    assert!(fault.to_string().contains("did not answer list_agents within 5s"), "{fault}");
}

#[tokio::test]
async fn refused_connection_is_a_connect_fault() {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(std::net::SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let port = socket.local_addr().unwrap().port();
    let fault = Client::new(Endpoint::local(port), None).list_agents(&ALL_AGENTS).await.unwrap_err();
    assert_eq!(
        fault.to_string(),
        format!("no nexus3 daemon at 127.0.0.1:{port}; start one with: nexus3 serve {port}")
    );
}

#[test]
fn client_is_sync_and_its_calls_are_send() {
    fn shared<T: Send + Sync>(_: &T) {}
    fn spawnable<T: Send>(_: &T) {}
    let client = Client::new(Endpoint::default(), None);
    shared(&client);
    spawnable(&client.list_agents(&ALL_AGENTS));
}
