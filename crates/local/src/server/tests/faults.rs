//! What is answered when something is wrong: with the request, with the model, or with whoever asks.

use bytes::Bytes;
use hyper::Method;

use super::client::read;
use super::*;

#[tokio::test]
async fn a_model_that_panics_costs_one_answer() {
    let server = TestServer::start();
    let mut caller = server.connect().await;
    let reply = caller.chat(&chat_request("panic")).await;
    assert_eq!((reply.status.as_u16(), &reply.json()["error"]["type"]), (500, &json!("server_error")));
    assert_eq!(caller.get("/health").await.json()["loaded"], false);
    assert_eq!(caller.chat(&stream_request("panic")).await.status, 500);
    assert_eq!(caller.chat(&chat_request("hello")).await.status, 200);
    assert_eq!(server.script.load_count(), 3);
}

#[tokio::test]
async fn an_embedder_that_panics_costs_one_answer() {
    let server = TestServer::start();
    let mut caller = server.connect().await;
    assert_eq!(caller.post("/v1/embeddings", &json!({"input": "panic"})).await.status, 500);
    assert_eq!(caller.post("/v1/embeddings", &json!({"input": "fine"})).await.status, 200);
}

#[tokio::test]
async fn faults_of_the_model_get_their_status_also_when_a_stream_was_wanted() {
    let server = TestServer::start();
    let mut caller = server.connect().await;
    for (text, status, code) in [
        ("long", 400, json!("context_length_exceeded")),
        ("refuse", 400, Value::Null),
        ("fail", 500, Value::Null),
    ] {
        for request in [chat_request(text), stream_request(text)] {
            let reply = caller.chat(&request).await;
            assert_eq!((reply.status.as_u16(), reply.code()), (status, code.clone()), "{text}");
            assert_eq!(reply.headers["content-type"], "application/json");
        }
    }
}

#[tokio::test]
async fn a_model_that_cannot_be_loaded_is_tried_again_by_the_next_request() {
    let server = TestServer::start();
    server.script.fail_loads(1);
    let mut caller = server.connect().await;
    let reply = caller.chat(&chat_request("hello")).await;
    assert_eq!(reply.status, 500);
    assert!(reply.text.contains("m.gguf"), "{}", reply.text);
    assert_eq!(caller.chat(&chat_request("hello")).await.status, 200);
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let server = TestServer::start();
    let mut caller = server.connect().await;
    let reply = caller.get("/v2/chat").await;
    assert_eq!((reply.status.as_u16(), reply.code()), (404, json!("unknown_url")));
    assert_eq!(caller.get("/v1/chat/completions").await.status, 405);
    assert_eq!(caller.post("/health", &json!({})).await.status, 405);
    let mut request = chat_request("hello");
    request["model"] = json!("gpt");
    let reply = caller.chat(&request).await;
    assert_eq!((reply.status.as_u16(), reply.code()), (404, json!("model_not_found")));
    let reply = caller.post("/v1/embeddings", &json!({"input": "a", "model": "ada"})).await;
    assert_eq!((reply.status.as_u16(), reply.code()), (404, json!("model_not_found")));
    let options = ServeOptions { embedder: Some("/x/minilm.onnx".into()), ..ServeOptions::default() };
    let mut caller = TestServer::start_with(options).connect().await;
    for name in ["minilm", "all-MiniLM-L6-v2"] {
        let reply = caller.post("/v1/embeddings", &json!({"input": "a", "model": name})).await;
        assert_eq!(
            (reply.status.as_u16(), &reply.json()["model"]),
            (200, &json!("all-MiniLM-L6-v2")),
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_kind_of_model_that_is_not_served_is_not_found() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.sock");
    let listener = ModelListener::unix(&path).unwrap();
    let engines = BackendLoaders { chat: None, embedder: Some(Box::new(|| Ok(Box::new(LengthEmbedder)))) };
    let stop = CancellationToken::new();
    let running = tokio::spawn(serve_backends(listener, ServeOptions::default(), engines, stop.clone()));
    let mut caller = TestClient::unix(&path).await;
    assert_eq!(caller.chat(&json!({"messages": []})).await.status, 404);
    assert!(caller.get("/health").await.json()["model"].is_null());
    stop.cancel();
    running.await.unwrap().unwrap();

    let listener = ModelListener::unix(&path).unwrap();
    let nothing = BackendLoaders { chat: None, embedder: None };
    let fault = serve_backends(listener, ServeOptions::default(), nothing, stop).await;
    assert!(matches!(fault, Err(ServeFault::NothingToServe)));
}

#[tokio::test]
async fn a_request_that_cannot_be_read_is_refused_and_the_connection_lives() {
    let server = TestServer::start();
    let mut caller = server.connect().await;
    for body in ["", "{", "[]", "{\"messages\":[]}"] {
        let response = caller.send(Method::POST, "/v1/chat/completions", &[], Bytes::from(body)).await;
        let reply = read(response).await;
        assert_eq!(
            (reply.status.as_u16(), &reply.json()["error"]["type"]),
            (400, &json!("invalid_request_error"))
        );
    }
    let root = "r".repeat(300);
    let response =
        caller.post_unread("/v1/chat/completions", &chat_request("a"), &[("X-Nexus-Root", &root)]).await;
    assert_eq!(read(response).await.status, 400);
    assert!(server.script.prompts().is_empty());
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let server = TestServer::start();
    let body = Bytes::from(vec![b' '; 32 * 1024 * 1024 + 1]);
    let response = server.connect().await.send(Method::POST, "/v1/chat/completions", &[], body).await;
    assert_eq!(response.status(), 413);
    assert_eq!(server.connect().await.chat(&chat_request("hello")).await.status, 200);
}

#[tokio::test]
async fn a_full_queue_says_when_to_come_back() {
    let server = TestServer::start_with(ServeOptions { queue_max: 2, ..ServeOptions::default() });
    let held = server.send("a", "hold").await;
    server.script.wait_held().await;
    let first = server.send("a", "1").await;
    server.wait_queued(1).await;
    let mut caller = server.connect().await;
    let share = caller.chat_from("a", &chat_request("2")).await;
    assert_eq!((share.status.as_u16(), share.code()), (429, json!("queue_full")));
    let second = server.send("b", "3").await;
    server.wait_queued(2).await;
    let full = caller.chat_from("c", &stream_request("4")).await;
    assert_eq!((full.status.as_u16(), &full.headers["retry-after"]), (429, &"2".parse().unwrap()));
    server.script.release();
    for answered in [held, first, second] {
        assert_eq!(answered.await.unwrap().status, 200);
    }
    assert_eq!(server.script.prompts(), ["hold", "1", "3"]);
}

#[tokio::test]
async fn only_a_few_large_requests_are_in_the_house() {
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
        let (mut caller, request) = (server.connect().await, large(name));
        waiting.push(tokio::spawn(async move { caller.chat(&request).await }));
        server.wait_queued(waiting.len()).await;
    }
    assert_eq!(server.connect().await.chat(&large("5")).await.status, 429);
    server.script.release();
    for answered in waiting.into_iter().chain([held]) {
        assert_eq!(answered.await.unwrap().status, 200);
    }
    assert_eq!(server.connect().await.chat(&large("6")).await.status, 200);
}

#[tokio::test]
async fn web_pages_cannot_call_it_on_loopback() {
    let stage = ScriptHandle::default();
    let listener = ModelListener::tcp(0).unwrap();
    let address = listener.address().strip_prefix("http://").unwrap().to_owned();
    let engines = BackendLoaders { chat: Some(stage.loader()), embedder: None };
    let stop = CancellationToken::new();
    let running = tokio::spawn(serve_backends(listener, ServeOptions::default(), engines, stop.clone()));
    let mut caller = TestClient::tcp(&address).await;
    let request = json!({"messages": [{"role": "user", "content": "hello"}]});
    for (headers, status) in [
        (&[("Host", address.as_str())][..], 200),
        (&[("Host", "localhost")][..], 200),
        (&[("Host", "evil.example")][..], 403),
        (&[("Host", "127.0.0.1.evil.example")][..], 403),
        (&[("Host", "localhost"), ("Origin", "http://localhost:3000")][..], 403),
    ] {
        let response = caller.post_unread("/v1/chat/completions", &request, headers).await;
        assert_eq!(read(response).await.status, status, "{headers:?}");
    }
    stop.cancel();
    running.await.unwrap().unwrap();
}
