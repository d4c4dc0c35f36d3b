//! What is answered when all goes well.

use super::*;

#[tokio::test]
async fn a_chat_is_answered_whole() {
    let server = TestServer::start();
    let reply = server.connect().await.chat(&chat_request("hello")).await;
    let answer = reply.json();
    assert_eq!((reply.status.as_u16(), &answer["model"]), (200, &json!("scripted")));
    assert_eq!(answer["choices"][0]["message"]["content"], "you said: hello");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
}

#[tokio::test]
async fn a_chat_is_answered_as_a_stream() {
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
async fn a_forced_call_comes_as_a_call() {
    let server = TestServer::start();
    let mut request = stream_request("call");
    request["tools"] = json!([{"type": "function", "function": {"name": "read_file"}}]);
    request["tool_choice"] = json!({"type": "function", "function": {"name": "read_file"}});
    let mut caller = server.connect().await;
    let chunks = caller.chat(&request).await.chunks();
    let call = chunks.iter().find_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"].as_array()).unwrap();
    let expected = json!([{"index": 0, "id": "call_1", "type": "function",
                           "function": {"name": "read_file", "arguments": "{}"}}]);
    assert_eq!(json!(call), expected);
    assert!(chunks.iter().any(|chunk| chunk["choices"][0]["finish_reason"] == "tool_calls"));
    request["stream"] = json!(false);
    let answer = caller.chat(&request).await.json();
    assert_eq!(answer["choices"][0]["message"]["tool_calls"][0]["id"], "call_1");
}

#[tokio::test]
async fn an_answer_that_is_too_long_says_so() {
    let server = TestServer::start();
    let mut request = chat_request("hello");
    request["max_tokens"] = json!(3);
    let answer = server.connect().await.chat(&request).await.json();
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn one_connection_serves_many_requests() {
    let server = TestServer::start();
    let mut caller = server.connect().await;
    for number in 0..20 {
        let request = if number % 2 == 0 { chat_request("a") } else { stream_request("a") };
        assert_eq!(caller.chat(&request).await.status, 200);
    }
    assert_eq!(server.script.load_count(), 1);
}

#[tokio::test]
async fn texts_become_points_in_their_order() {
    let server = TestServer::start();
    let mut caller = server.connect().await;
    let texts: Vec<String> = (1..=100).map(|length| "x".repeat(length)).collect();
    let answer = caller.post("/v1/embeddings", &json!({"input": texts})).await.json();
    let data = answer["data"].as_array().unwrap();
    for (place, item) in data.iter().enumerate() {
        assert_eq!((&item["index"], &item["embedding"][0]), (&json!(place), &json!((place + 1) as f64)));
    }
    assert_eq!(answer["usage"], json!({"prompt_tokens": 5050, "total_tokens": 5050, "texts_cut": 92}));
    let one = json!({"input": "abc", "model": "all-MiniLM-L6-v2", "encoding_format": "base64"});
    let answer = caller.post("/v1/embeddings", &one).await.json();
    assert_eq!(answer["data"][0]["embedding"], "AABAQAAAgD8=");
}

#[tokio::test]
async fn health_and_models_are_told_before_anything_is_loaded() {
    let server = TestServer::start();
    let mut caller = server.connect().await;
    let health = caller.get("/health").await.json();
    assert_eq!((&health["status"], &health["model"]), (&json!("ok"), &json!("scripted")));
    assert_eq!((&health["loaded"], &health["embedder_loaded"]), (&json!(false), &json!(false)));
    let models = caller.get("/v1/models").await.json();
    assert_eq!(
        (&models["data"][0]["id"], &models["data"][1]["id"]),
        (&json!("scripted"), &json!("all-MiniLM-L6-v2"))
    );
    assert_eq!(server.script.load_count(), 0);

    caller.chat(&chat_request("hello")).await;
    assert_eq!(caller.get("/health").await.json()["loaded"], true);
    assert_eq!(caller.get("/v1/models/scripted").await.json()["max_model_len"], 64);
    assert_eq!(caller.get("/v1/models/other").await.status, 404);
}

#[tokio::test]
async fn clients_take_turns() {
    let server = TestServer::start();
    let held = server.send("other", "hold").await;
    server.script.wait_held().await;
    let mut waiting = Vec::new();
    for (root, text) in [("noisy", "1"), ("noisy", "2"), ("noisy", "3"), ("quiet", "4")] {
        waiting.push(server.send(root, text).await);
        server.wait_queued(waiting.len()).await;
    }
    server.script.release();
    for answered in waiting.into_iter().chain([held]) {
        assert_eq!(answered.await.unwrap().status, 200);
    }
    assert_eq!(server.script.prompts(), ["hold", "1", "4", "2", "3"]);
}
