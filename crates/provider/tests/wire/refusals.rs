//! Servers that say no, send elsewhere, speak nonsense or are not there.

use std::sync::Arc;

use agent::outside::ModelRequest;
use agent::{FaultKind, Message, MessageSource};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::harness::{call, call_with, chunk, client, client_with, collect, refusal, request};
use crate::server::{Action, Server};

#[tokio::test]
async fn each_status_has_its_words() {
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
        let answer = call_with(refusal(status, b"{\"error\":\"why\"}")).await;
        assert_eq!(answer.items.len(), 1, "{status}");
        assert_eq!((answer.fault().kind, answer.fault().public.as_ref()), (FaultKind::Model, text));
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = Server::start(refusal("200 OK", b"")).await;
    let target = format!("{}/chat/completions", elsewhere.base_url());
    for status in ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"] {
        let head = format!("HTTP/1.1 {status}\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n");
        let answer = call_with(vec![Action::Write(head.into_bytes())]).await;
        let code = &status[..3];
        assert_eq!(answer.fault().public, format!("API request failed ({code}): "));
    }
    assert_eq!(elsewhere.log().connections, 0, "the key would have gone elsewhere");
}

#[tokio::test]
async fn a_huge_error_is_told_in_ten_kilobytes() {
    let bodies: [Vec<u8>; 3] = [vec![b'x'; 1 << 20], vec![0xff; 1 << 20], "é".repeat(1 << 19).into_bytes()];
    for body in bodies {
        let answer = call_with(refusal("500 Internal Server Error", &body)).await;
        let text = &answer.fault().public;
        assert!(text.len() <= 10_000 && text.len() > 9_000, "{} bytes", text.len());
    }
    let event = format!("data: {{\"error\":{{\"message\":\"{}\"}}}}\n\n", "x".repeat(1 << 20));
    let answer = crate::harness::call_events(&event).await;
    assert!(answer.fault().public.len() <= 10_000, "{} bytes", answer.fault().public.len());
}

#[tokio::test]
async fn an_error_that_never_ends_is_told_all_the_same() {
    let head = b"HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let mut acts = vec![Action::Write(head)];
    acts.extend((0..30).map(|_| Action::Write(chunk(&[b'x'; 1000]))));
    acts.push(Action::Hold);
    let answer = call_with(acts).await;
    assert!(answer.fault().public.starts_with("API request failed (500): xxx"));
}

#[tokio::test]
async fn an_error_cut_short_is_told_as_far_as_it_came() {
    let acts =
        vec![Action::Write(b"HTTP/1.1 500 No\r\ncontent-length: 100\r\n\r\nsorry".to_vec()), Action::Close];
    assert_eq!(call_with(acts).await.fault().public, "API request failed (500): sorry");
}

#[tokio::test]
async fn a_server_that_speaks_nonsense_is_a_fault() {
    for nonsense in
        ["SSH-2.0-OpenSSH_9.9\r\n", "\0\0\0\0", "HTTP/1.1 999999 x\r\n\r\n", "HTTP/1.1 200 OK\r\nbad\r\n\r\n"]
    {
        let answer = call_with(vec![Action::Write(nonsense.into()), Action::Close]).await;
        assert_eq!(answer.fault().kind, FaultKind::Model, "{nonsense:?}");
        assert_eq!(answer.items.len(), 1);
    }
}

#[tokio::test]
async fn a_server_that_speaks_no_tls_is_named_with_what_may_help() {
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
        assert!(fault.public.starts_with(&format!("No TLS with 127.0.0.1:{port}: ")), "{fault}");
        assert!(fault.public.contains("say http:// in providers.openai.base_url"), "{fault}");
    }
    server.await.expect("each question was one connection: it is not asked again");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_fault() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let port = listener.local_addr().expect("a bound socket has an address").port();
    drop(listener);
    let answer = call(&client(&format!("http://127.0.0.1:{port}/v1"))).await;
    let text =
        format!("Failed to connect to API after 1 attempts: openai cannot be reached at 127.0.0.1:{port}");
    assert_eq!(answer.fault().public, text);
    assert!(answer.fault().cause.is_some(), "the log is told more");
}

#[tokio::test]
async fn a_refusal_of_a_question_with_pictures_says_how_to_take_them_out() {
    let image = agent::Image { media_type: "image/png".to_owned(), data: [1].into() };
    for (status, images, advised) in
        [("400 No", vec![image.clone()], true), ("400 No", Vec::new(), false), ("401 No", vec![image], false)]
    {
        let server = Server::start(refusal(status, b"invalid")).await;
        let message = Message { images, ..Message::user("look", MessageSource::default()) };
        let question = ModelRequest { messages: Arc::new(vec![Arc::new(message)]), ..request() };
        let answer = collect(client(&server.base_url()).call(question)).await;
        assert_eq!(answer.fault().public.contains("rollback_agent"), advised, "{status}: {answer:?}");
    }
}
