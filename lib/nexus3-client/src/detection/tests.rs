//! Each result of a probe, from scripted servers.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

use super::*;
use crate::scripted_server::{ScriptedServer, Step, error_response, http_response, result_response};

/// Reserves a port without listening on it, so that no other process can bind it.
fn closed_port() -> (TcpSocket, Endpoint) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, Endpoint::local(port))
}

async fn detect_response(response: Vec<u8>) -> Detection {
    let server = ScriptedServer::respond_once(response);
    detect_server(&server.endpoint, DETECT_TIMEOUT).await
}

#[test]
fn detections_have_their_machine_readable_names() {
    let all = [
        Detection::NoServer,
        Detection::NexusServer,
        Detection::OtherService,
        Detection::Timeout,
        Detection::Error,
    ];
    assert_eq!(
        all.map(Detection::as_str),
        ["no_server", "nexus_server", "other_service", "timeout", "error"]
    );
}

#[tokio::test]
async fn probe_is_list_agents_without_a_token() {
    let mut server = ScriptedServer::respond_once(error_response(401, "Authorization header required"));
    detect_server(&server.endpoint, DETECT_TIMEOUT).await;
    let request = server.next_request().await.to_ascii_lowercase();
    assert!(request.starts_with("post / http/1.1\r\n"), "{request}");
    assert!(request.contains(&format!("host: {}\r\n", server.endpoint)), "{request}");
    assert!(!request.contains("authorization"), "{request}");
    assert!(request.ends_with(r#"{"jsonrpc":"2.0","method":"list_agents","id":1}"#), "{request}");
}

#[tokio::test]
async fn rejection_error_or_agent_list_is_a_nexus_server() {
    let ours = [
        error_response(401, "Authorization header required"),
        error_response(403, "Invalid API key"),
        error_response(429, "Too many requests"),
        http_response(
            200,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}"#,
        ),
        result_response(1, r#"{"agents":[]}"#),
        result_response(1, r#"{"agents":[{"agent_id":"a"}],"more":1}"#),
    ];
    for response in ours {
        let text = String::from_utf8_lossy(&response).into_owned();
        assert_eq!(detect_response(response).await, Detection::NexusServer, "{text}");
    }
}

#[tokio::test]
async fn oversized_agent_list_is_recognized_by_its_start() {
    let agents = vec![r#"{"agent_id":"a"}"#; 10_000].join(",");
    assert_eq!(
        detect_response(result_response(1, &format!(r#"{{"agents":[{agents}]}}"#))).await,
        Detection::NexusServer
    );
}

#[tokio::test]
async fn any_other_response_is_another_service() {
    let others = [
        http_response(200, "<html></html>"),
        http_response(401, "{}"),
        http_response(403, "no"),
        http_response(200, r#"{"agents":[]}"#),
        result_response(1, r#"{"agents":{}}"#),
        result_response(1, r#"{"agent":[]}"#),
        result_response(1, "[]"),
        result_response(2, r#"{"agents":[]}"#),
        http_response(200, r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"m"}}"#),
        http_response(200, &"x".repeat(100_000)),
        format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1_000_000)).into_bytes(),
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort".to_vec(),
        b"SSH-2.0-OpenSSH_9.9\r\n".to_vec(),
        b"\x15\x03\x01\x00\x02\x02\x46".to_vec(),
        b"\0\0\0\0".to_vec(),
        Vec::new(),
    ];
    for response in others {
        let text = String::from_utf8_lossy(&response[..response.len().min(80)]).into_owned();
        assert_eq!(detect_response(response).await, Detection::OtherService, "{text}");
    }
}

#[tokio::test]
async fn immediate_close_is_another_service() {
    let server = ScriptedServer::start(vec![Vec::new()]);
    assert_eq!(detect_server(&server.endpoint, DETECT_TIMEOUT).await, Detection::OtherService);
}

#[tokio::test]
async fn refused_connection_is_no_server() {
    let (_reserved, endpoint) = closed_port();
    assert_eq!(detect_server(&endpoint, DETECT_TIMEOUT).await, Detection::NoServer);
}

#[tokio::test(start_paused = true)]
async fn silent_peer_is_a_timeout() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint::local(silent.local_addr().unwrap().port());
    assert_eq!(detect_server(&endpoint, DETECT_TIMEOUT).await, Detection::Timeout);
}

#[tokio::test]
async fn unreachable_or_invalid_host_is_an_error() {
    for host in ["255.255.255.255", "bad\nhost"] {
        assert_eq!(
            detect_server(&Endpoint::new(host, 1), DETECT_TIMEOUT).await,
            Detection::Error,
            "{host:?}"
        );
    }
}

#[tokio::test]
async fn wait_continues_until_a_daemon_answers() {
    let other = vec![Step::Respond(http_response(200, "not yet"))];
    let daemon = vec![Step::Respond(error_response(401, "Authorization header required"))];
    let server = ScriptedServer::start(vec![Vec::new(), other, daemon]);
    assert!(wait_for_server(&server.endpoint, WAIT_TIMEOUT, Duration::from_millis(1)).await);
    assert_eq!(server.connection_count(), 3);
}

#[tokio::test(start_paused = true)]
async fn wait_ends_at_the_timeout() {
    let (_reserved, endpoint) = closed_port();
    let started = Instant::now();
    assert!(!wait_for_server(&endpoint, WAIT_TIMEOUT, WAIT_POLL_INTERVAL).await);
    assert!(started.elapsed() >= WAIT_TIMEOUT);
}
