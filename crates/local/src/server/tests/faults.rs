//! Tests: error responses to faults of the request, the model or the caller.

use bytes::Bytes;
use hyper::Method;

use super::client::read;
use super::*;

#[tokio::test]
async fn model_panic_fails_one_request_only() {
    let server = TestServer::start();
    let mut client = server.connect().await;
    let reply = client.chat(&chat_request("panic")).await;
    assert_eq!((reply.status.as_u16(), &reply.json()["error"]["type"]), (500, &json!("server_error")));
    assert_eq!(client.get("/health").await.json()["loaded"], false);
    assert_eq!(client.chat(&stream_request("panic")).await.status, 500);
    assert_eq!(client.chat(&chat_request("hello")).await.status, 200);
    assert_eq!(server.script.load_count(), 3);
}

#[tokio::test]
async fn embedder_panic_fails_one_request_only() {
    let server = TestServer::start();
    let mut client = server.connect().await;
    assert_eq!(client.post("/v1/embeddings", &json!({"input": "panic"})).await.status, 500);
    assert_eq!(client.post("/v1/embeddings", &json!({"input": "fine"})).await.status, 200);
}

#[tokio::test]
async fn model_faults_set_the_status_of_streams_too() {
    let server = TestServer::start();
    let mut client = server.connect().await;
    for (text, status, code) in [
        ("long", 400, json!("context_length_exceeded")),
        ("refuse", 400, Value::Null),
        ("fail", 500, Value::Null),
    ] {
        for request in [chat_request(text), stream_request(text)] {
            let reply = client.chat(&request).await;
            assert_eq!((reply.status.as_u16(), reply.code()), (status, code.clone()), "{text}");
            assert_eq!(reply.headers["content-type"], "application/json");
        }
    }
}

#[tokio::test]
async fn failed_load_is_retried_by_the_next_request() {
    let server = TestServer::start();
    server.script.fail_loads(1);
    let mut client = server.connect().await;
    let reply = client.chat(&chat_request("hello")).await;
    assert_eq!(reply.status, 500);
    assert!(reply.text.contains("m.gguf"), "{}", reply.text);
    assert_eq!(client.chat(&chat_request("hello")).await.status, 200);
}

#[tokio::test]
async fn unknown_paths_methods_and_models_are_rejected() {
    let server = TestServer::start();
    let mut client = server.connect().await;
    let reply = client.get("/v2/chat").await;
    assert_eq!((reply.status.as_u16(), reply.code()), (404, json!("unknown_url")));
    let replies = [client.get("/v1/chat/completions").await, client.post("/health", &json!({})).await];
    assert_eq!(replies.each_ref().map(|reply| reply.status.as_u16()), [405, 405]);
    assert_eq!(replies.each_ref().map(|reply| &reply.headers["allow"]), ["POST", "GET"]);
    let mut request = chat_request("hello");
    request["model"] = json!("gpt");
    let reply = client.chat(&request).await;
    assert_eq!((reply.status.as_u16(), reply.code()), (404, json!("model_not_found")));
    let reply = client.post("/v1/embeddings", &json!({"input": "a", "model": "ada"})).await;
    assert_eq!((reply.status.as_u16(), reply.code()), (404, json!("model_not_found")));
    let options = ServeOptions { embedder: Some("/x/minilm.onnx".into()), ..ServeOptions::default() };
    let mut client = TestServer::start_with(options).connect().await;
    for name in ["minilm", "all-MiniLM-L6-v2"] {
        let reply = client.post("/v1/embeddings", &json!({"input": "a", "model": name})).await;
        assert_eq!(
            (reply.status.as_u16(), &reply.json()["model"]),
            (200, &json!("all-MiniLM-L6-v2")),
            "{name}"
        );
    }
}

#[tokio::test]
async fn missing_kind_of_model_is_not_found() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.sock");
    let listener = ModelListener::unix(&path).unwrap();
    let loaders = BackendLoaders { chat: None, embedder: Some(Box::new(|| Ok(Box::new(LengthEmbedder)))) };
    let stop = CancellationToken::new();
    let task = tokio::spawn(serve_backends(listener, ServeOptions::default(), loaders, stop.clone()));
    let mut client = TestClient::unix(&path).await;
    assert_eq!(client.chat(&json!({"messages": []})).await.status, 404);
    assert!(client.get("/health").await.json()["model"].is_null());
    stop.cancel();
    task.await.unwrap().unwrap();

    let listener = ModelListener::unix(&path).unwrap();
    let no_loaders = BackendLoaders { chat: None, embedder: None };
    let fault = serve_backends(listener, ServeOptions::default(), no_loaders, stop).await;
    assert!(matches!(fault, Err(ServeFault::NothingToServe)));
}

#[tokio::test]
async fn invalid_request_does_not_close_the_connection() {
    let server = TestServer::start();
    let mut client = server.connect().await;
    for body in ["", "{", "[]", "{\"messages\":[]}"] {
        let response = client.send(Method::POST, "/v1/chat/completions", &[], Bytes::from(body)).await;
        let reply = read(response).await;
        assert_eq!(
            (reply.status.as_u16(), &reply.json()["error"]["type"]),
            (400, &json!("invalid_request_error"))
        );
    }
    let root = "r".repeat(300);
    let response =
        client.post_unread("/v1/chat/completions", &chat_request("a"), &[("X-Nexus-Root", &root)]).await;
    assert_eq!(read(response).await.status, 400);
    assert!(server.script.prompts().is_empty());
}

#[tokio::test]
async fn oversized_body_is_rejected() {
    let server = TestServer::start();
    let body = Bytes::from(vec![b' '; 32 * 1024 * 1024 + 1]);
    let response = server.connect().await.send(Method::POST, "/v1/chat/completions", &[], body).await;
    assert_eq!(response.status(), 413);
    assert_eq!(server.connect().await.chat(&chat_request("hello")).await.status, 200);
}

#[tokio::test]
async fn full_queue_rejects_with_retry_after() {
    let server = TestServer::start_with(ServeOptions { queue_max: 2, ..ServeOptions::default() });
    let held = server.send("a", "hold").await;
    server.script.wait_held().await;
    let first = server.send("a", "1").await;
    server.wait_queued(1).await;
    let mut client = server.connect().await;
    let share = client.chat_from("a", &chat_request("2")).await;
    assert_eq!((share.status.as_u16(), share.code()), (429, json!("queue_full")));
    let second = server.send("b", "3").await;
    server.wait_queued(2).await;
    let full = client.chat_from("c", &stream_request("4")).await;
    assert_eq!((full.status.as_u16(), &full.headers["retry-after"]), (429, &"2".parse().unwrap()));
    server.script.release();
    for request in [held, first, second] {
        assert_eq!(request.await.unwrap().status, 200);
    }
    assert_eq!(server.script.prompts(), ["hold", "1", "3"]);
}

#[tokio::test]
async fn large_requests_in_flight_are_limited() {
    let server = TestServer::start();
    let held = server.send("a", "hold").await;
    server.script.wait_held().await;
    let large = |name: &str| {
        let mut request = chat_request(name);
        request["padding"] = json!(" ".repeat(1024 * 1024));
        request
    };
    let mut waiting = Vec::new();
    for name in ["1", "2", "3", "4"] {
        let (mut client, request) = (server.connect().await, large(name));
        waiting.push(tokio::spawn(async move { client.chat(&request).await }));
        server.wait_queued(waiting.len()).await;
    }
    assert_eq!(server.connect().await.chat(&large("5")).await.status, 429);
    server.script.release();
    for request in waiting.into_iter().chain([held]) {
        assert_eq!(request.await.unwrap().status, 200);
    }
    assert_eq!(server.connect().await.chat(&large("6")).await.status, 200);
}

#[tokio::test]
async fn web_pages_cannot_call_the_loopback_server() {
    let script = ScriptHandle::default();
    let listener = ModelListener::tcp(0).unwrap();
    let address = listener.address().strip_prefix("http://").unwrap().to_owned();
    let loaders = BackendLoaders { chat: Some(script.loader()), embedder: None };
    let stop = CancellationToken::new();
    let task = tokio::spawn(serve_backends(listener, ServeOptions::default(), loaders, stop.clone()));
    let mut client = TestClient::tcp(&address).await;
    let request = json!({"messages": [{"role": "user", "content": "hello"}]});
    for (headers, status) in [
        (&[("Host", address.as_str())][..], 200),
        (&[("Host", "localhost")][..], 200),
        (&[("Host", "evil.example")][..], 403),
        (&[("Host", "127.0.0.1.evil.example")][..], 403),
        (&[("Host", "localhost"), ("Origin", "http://localhost:3000")][..], 403),
    ] {
        let response = client.post_unread("/v1/chat/completions", &request, headers).await;
        assert_eq!(read(response).await.status, status, "{headers:?}");
    }
    stop.cancel();
    task.await.unwrap().unwrap();
}
