//! Tests: successful responses.

use super::*;

#[tokio::test]
async fn chat_returns_a_completion() {
    let server = TestServer::start();
    let reply = server.connect().await.chat(&chat_request("hello")).await;
    let response = reply.json();
    assert_eq!((reply.status.as_u16(), &response["model"]), (200, &json!("scripted")));
    assert_eq!(response["choices"][0]["message"]["content"], "you said: hello");
    assert_eq!(response["choices"][0]["finish_reason"], "stop");
    assert_eq!(response["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
}

#[tokio::test]
async fn chat_returns_a_stream() {
    let server = TestServer::start();
    let reply = server.connect().await.chat(&stream_request("hello")).await;
    assert_eq!(reply.headers["content-type"], "text/event-stream");
    let chunks = reply.chunks();
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let text = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str());
    assert_eq!(text.collect::<String>(), "you said: hello");
    let [.., end, usage] = &chunks[..] else { panic!("{chunks:?}") };
    assert_eq!(end["choices"][0]["finish_reason"], "stop");
    assert_eq!((&usage["choices"], &usage["usage"]["total_tokens"]), (&json!([]), &json!(8)));
}

#[tokio::test]
async fn named_tool_choice_returns_a_tool_call() {
    let server = TestServer::start();
    let mut request = stream_request("call");
    request["tools"] = json!([{"type": "function", "function": {"name": "read_file"}}]);
    request["tool_choice"] = json!({"type": "function", "function": {"name": "read_file"}});
    let mut client = server.connect().await;
    let chunks = client.chat(&request).await.chunks();
    let call = chunks.iter().find_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"].as_array()).unwrap();
    let expected = json!([{"index": 0, "id": "call_1", "type": "function",
                           "function": {"name": "read_file", "arguments": "{}"}}]);
    assert_eq!(json!(call), expected);
    assert!(chunks.iter().any(|chunk| chunk["choices"][0]["finish_reason"] == "tool_calls"));
    request["stream"] = json!(false);
    let response = client.chat(&request).await.json();
    assert_eq!(response["choices"][0]["message"]["tool_calls"][0]["id"], "call_1");
}

#[tokio::test]
async fn token_limit_finishes_with_length() {
    let server = TestServer::start();
    let mut request = chat_request("hello");
    request["max_tokens"] = json!(3);
    let response = server.connect().await.chat(&request).await.json();
    assert_eq!(response["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn one_connection_serves_many_requests() {
    let server = TestServer::start();
    let mut client = server.connect().await;
    for number in 0..20 {
        let request = if number % 2 == 0 { chat_request("a") } else { stream_request("a") };
        assert_eq!(client.chat(&request).await.status, 200);
    }
    assert_eq!(server.script.load_count(), 1);
}

#[tokio::test]
async fn embeddings_are_in_the_order_of_the_texts() {
    let server = TestServer::start();
    let mut client = server.connect().await;
    let texts: Vec<String> = (1..=100).map(|length| "x".repeat(length)).collect();
    let response = client.post("/v1/embeddings", &json!({"input": texts})).await.json();
    let data = response["data"].as_array().unwrap();
    for (index, item) in data.iter().enumerate() {
        assert_eq!((&item["index"], &item["embedding"][0]), (&json!(index), &json!((index + 1) as f64)));
    }
    assert_eq!(response["usage"], json!({"prompt_tokens": 5050, "total_tokens": 5050, "texts_cut": 92}));
    let base64 = json!({"input": "abc", "model": "all-MiniLM-L6-v2", "encoding_format": "base64"});
    let response = client.post("/v1/embeddings", &base64).await.json();
    assert_eq!(response["data"][0]["embedding"], "AABAQAAAgD8=");
}

#[tokio::test]
async fn health_and_models_work_before_a_model_is_loaded() {
    let server = TestServer::start();
    let mut client = server.connect().await;
    let health = client.get("/health").await.json();
    assert_eq!((&health["status"], &health["model"]), (&json!("ok"), &json!("scripted")));
    assert_eq!((&health["loaded"], &health["embedder_loaded"]), (&json!(false), &json!(false)));
    let models = client.get("/v1/models").await.json();
    assert_eq!(
        (&models["data"][0]["id"], &models["data"][1]["id"]),
        (&json!("scripted"), &json!("all-MiniLM-L6-v2"))
    );
    assert_eq!(server.script.load_count(), 0);

    client.chat(&chat_request("hello")).await;
    assert_eq!(client.get("/health").await.json()["loaded"], true);
    assert_eq!(client.get("/v1/models/scripted").await.json()["max_model_len"], 64);
    assert_eq!(client.get("/v1/models/other").await.status, 404);
}

#[tokio::test]
async fn clients_are_served_round_robin() {
    let server = TestServer::start();
    let held = server.send("other", "hold").await;
    server.script.wait_held().await;
    let mut waiting = Vec::new();
    for (root, text) in [("noisy", "1"), ("noisy", "2"), ("noisy", "3"), ("quiet", "4")] {
        waiting.push(server.send(root, text).await);
        server.wait_queued(waiting.len()).await;
    }
    server.script.release();
    for request in waiting.into_iter().chain([held]) {
        assert_eq!(request.await.unwrap().status, 200);
    }
    assert_eq!(server.script.prompts(), ["hold", "1", "4", "2", "3"]);
}
