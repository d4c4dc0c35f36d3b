//! Tests of error statuses, redirects, malformed HTTP and unreachable servers.

use std::sync::Arc;

use agent::outside::ModelRequest;
use agent::{FaultKind, Message, MessageSource};
use testkit::{HttpPeer, PeerAction};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::harness::{call, call_with, chunk, client, client_with, collect, request, response_with_status};

#[tokio::test]
async fn each_error_status_has_its_message() {
    let cases = [
        ("400 Bad Request", "API request failed (400): {\"error\":\"why\"}"),
        ("401 Unauthorized", "Authentication failed. Check your API key."),
        ("403 Forbidden", "Access forbidden. Check your API permissions."),
        ("404 Not Found", "API endpoint not found. Check your configuration."),
        ("429 Too Many Requests", "API request failed (429): {\"error\":\"why\"}"),
        ("500 Internal Server Error", "API request failed (500): {\"error\":\"why\"}"),
        ("503 Service Unavailable", "API request failed (503): {\"error\":\"why\"}"),
    ];
    for (status, text) in cases {
        let response = call_with(response_with_status(status, b"{\"error\":\"why\"}")).await;
        assert_eq!(response.items.len(), 1, "{status}");
        assert_eq!((response.fault().kind, response.fault().public.as_ref()), (FaultKind::Model, text));
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let redirect_target = HttpPeer::with_actions(response_with_status("200 OK", b""));
    let target = format!("{}/chat/completions", redirect_target.base_url());
    for status in ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"] {
        let head = format!("HTTP/1.1 {status}\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n");
        let response = call_with(vec![PeerAction::Write(head.into_bytes())]).await;
        let code = &status[..3];
        assert_eq!(response.fault().public, format!("API request failed ({code}): "));
    }
    assert_eq!(redirect_target.log().connections, 0, "the key was sent to another server");
}

#[tokio::test]
async fn error_body_is_truncated_to_ten_kilobytes() {
    let bodies: [Vec<u8>; 3] = [vec![b'x'; 1 << 20], vec![0xff; 1 << 20], "é".repeat(1 << 19).into_bytes()];
    for body in bodies {
        let response = call_with(response_with_status("500 Internal Server Error", &body)).await;
        let text = &response.fault().public;
        assert!(text.len() <= 10_000 && text.len() > 9_000, "{} bytes", text.len());
    }
    let event = format!("data: {{\"error\":{{\"message\":\"{}\"}}}}\n\n", "x".repeat(1 << 20));
    let response = crate::harness::call_events(&event).await;
    assert!(response.fault().public.len() <= 10_000, "{} bytes", response.fault().public.len());
}

#[tokio::test]
async fn endless_error_body_is_reported() {
    let head = b"HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let mut actions = vec![PeerAction::Write(head)];
    actions.extend((0..30).map(|_| PeerAction::Write(chunk(&[b'x'; 1000]))));
    actions.push(PeerAction::Hold);
    let response = call_with(actions).await;
    assert!(response.fault().public.starts_with("API request failed (500): xxx"));
}

#[tokio::test]
async fn truncated_error_body_is_reported() {
    let actions = vec![
        PeerAction::Write(b"HTTP/1.1 500 No\r\ncontent-length: 100\r\n\r\nsorry".to_vec()),
        PeerAction::Close,
    ];
    assert_eq!(call_with(actions).await.fault().public, "API request failed (500): sorry");
}

#[tokio::test]
async fn malformed_http_is_a_fault() {
    for malformed in
        ["SSH-2.0-OpenSSH_9.9\r\n", "\0\0\0\0", "HTTP/1.1 999999 x\r\n\r\n", "HTTP/1.1 200 OK\r\nbad\r\n\r\n"]
    {
        let response = call_with(vec![PeerAction::Write(malformed.into()), PeerAction::Close]).await;
        assert_eq!(response.fault().kind, FaultKind::Model, "{malformed:?}");
        assert_eq!(response.items.len(), 1);
    }
}

#[tokio::test]
async fn failed_tls_handshake_names_server_and_setting() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let port = listener.local_addr().expect("a bound socket has an address").port();
    let server = tokio::spawn(async move {
        let mut connections = 0;
        while let Ok((mut connection, _)) = listener.accept().await {
            connections += 1;
            let _ = connection.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            let _ = connection.read(&mut [0; 1_000]).await;
            if connections == 2 {
                return;
            }
        }
    });
    let settings = provider::ProviderSettings::default();
    let client = client_with(&format!("https://127.0.0.1:{port}/v1"), settings);
    for _ in 0..2 {
        let fault = call(&client).await.fault().clone();
        assert!(
            fault.public.starts_with(&format!("TLS handshake with 127.0.0.1:{port} failed: ")),
            "{fault}"
        );
        assert!(fault.public.contains("use http:// in providers.openai.base_url"), "{fault}");
    }
    server.await.expect("one connection per request: no retry");
}

#[tokio::test]
async fn unreachable_server_is_a_fault() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let port = listener.local_addr().expect("a bound socket has an address").port();
    drop(listener);
    let response = call(&client(&format!("http://127.0.0.1:{port}/v1"))).await;
    let text =
        format!("Failed to connect to API after 1 attempts: openai cannot be reached at 127.0.0.1:{port}");
    assert_eq!(response.fault().public, text);
    assert!(response.fault().cause.is_some(), "the cause is for the log");
}

#[tokio::test]
async fn rejected_request_with_images_says_how_to_remove_them() {
    let image = agent::Image { media_type: "image/png".to_owned(), data: [1].into() };
    for (status, images, has_advice) in
        [("400 No", vec![image.clone()], true), ("400 No", Vec::new(), false), ("401 No", vec![image], false)]
    {
        let server = HttpPeer::with_actions(response_with_status(status, b"invalid"));
        let message = Message { images, ..Message::user("look", MessageSource::default()) };
        let model_request = ModelRequest { messages: Arc::new(vec![Arc::new(message)]), ..request() };
        let response = collect(client(&server.base_url()).call(model_request)).await;
        assert_eq!(response.fault().public.contains("rollback_agent"), has_advice, "{status}: {response:?}");
    }
}
