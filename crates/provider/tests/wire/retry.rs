//! Tests of retries, timeouts, cool-downs and fallbacks.

use std::time::Duration;

use agent::FaultKind;
use agent::outside::{ModelEvent, Models};
use futures_util::StreamExt;
use provider::{ModelRegistry, ModelSettings, ProviderSettings, RegistryOptions, Secret};
use testkit::{HttpPeer, PeerAction};
use tokio::time::Instant;

use crate::harness::{
    CHUNKED, CHUNKED_END, CollectedResponse, KEY, RESPONSE, call, chunk, client_with, collect, head, request,
    response_with_status, whole_response,
};

fn with_header(status: &str, header: &str) -> Vec<PeerAction> {
    let head = format!("HTTP/1.1 {status}\r\n{header}\r\ncontent-length: 0\r\n\r\n");
    vec![PeerAction::Write(head.into_bytes())]
}

/// Returns a response that contains only an error event.
fn error_event(error: &str) -> Vec<PeerAction> {
    let event = format!("data: {{\"error\":{error}}}\n\n");
    vec![
        PeerAction::Write(head(CHUNKED)),
        PeerAction::Write(chunk(event.as_bytes())),
        PeerAction::Write(CHUNKED_END.to_vec()),
    ]
}

fn retrying_client(server: &HttpPeer) -> std::sync::Arc<dyn agent::outside::Provider> {
    client_with(&server.base_url(), ProviderSettings::default())
}

/// Calls a server that fails so often with these actions, then responds.
async fn call_after_failures(
    failures: usize,
    actions: Vec<PeerAction>,
) -> (CollectedResponse, usize, Duration) {
    let server =
        HttpPeer::by_number(move |number| if number < failures { actions.clone() } else { whole_response() });
    let started_at = Instant::now();
    let response = call(&retrying_client(&server)).await;
    let requests = server.log().requests.len();
    (response, requests, started_at.elapsed())
}

#[tokio::test(start_paused = true)]
async fn transient_errors_are_retried() {
    for status in ["408 a", "409 a", "429 a", "500 a", "502 a", "503 a", "504 a", "529 a"] {
        let (response, requests, _) = call_after_failures(3, response_with_status(status, b"")).await;
        assert_eq!((response.text().as_str(), requests), ("Hello", 4), "{status}: {response:?}");
    }
    let endings = [
        vec![PeerAction::Close],
        vec![PeerAction::Write(b"HTTP/1.1 200 OK\r\ncontent-le".to_vec()), PeerAction::Close],
        vec![PeerAction::Write(head("connection: close\r\n")), PeerAction::Close],
        vec![
            PeerAction::Write(head("connection: close\r\n")),
            PeerAction::Write(b"<html>busy</html>".to_vec()),
            PeerAction::Close,
        ],
    ];
    let events = [r#"{"message":"Sorry.","type":"server_error"}"#, r#"{"message":"Sorry.","code":502}"#]
        .map(error_event);
    for actions in endings.into_iter().chain(events) {
        let (response, requests, _) = call_after_failures(2, actions.clone()).await;
        assert_eq!((response.text().as_str(), requests), ("Hello", 3), "{actions:?}: {response:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_tried_at_most_four_times() {
    let (response, requests, elapsed) =
        call_after_failures(100, response_with_status("503 a", b"down")).await;
    assert_eq!((response.fault().public.as_ref(), requests), ("API request failed (503): down", 4));
    assert!(elapsed < Duration::from_secs(10), "{elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn permanent_errors_are_not_retried() {
    for status in ["400 a", "401 a", "402 a", "403 a", "404 a", "413 a", "422 a", "302 a"] {
        let (response, requests, elapsed) =
            call_after_failures(100, response_with_status(status, b"no")).await;
        assert_eq!((requests, elapsed), (1, Duration::ZERO), "{status}: {response:?}");
    }
    let long = br#"{"error":{"message":"This model's maximum context length is 10.","code":"context_length_exceeded"}}"#;
    let (response, requests, _) = call_after_failures(100, response_with_status("400 a", long)).await;
    assert_eq!((response.fault().kind, requests), (FaultKind::ContextFull, 1));
    let long = r#"{"message":"Shorten the conversation.","code":"context_length_exceeded"}"#;
    let (response, requests, _) = call_after_failures(100, error_event(long)).await;
    assert_eq!((response.fault().kind, requests), (FaultKind::ContextFull, 1));
}

#[tokio::test(start_paused = true)]
async fn retry_after_in_seconds_or_milliseconds_is_honoured() {
    for (header, wait_ms) in [("retry-after: 20", 20_000), ("retry-after-ms: 7000", 7_000)] {
        let (response, requests, elapsed) = call_after_failures(1, with_header("429 a", header)).await;
        assert_eq!((response.text().as_str(), requests), ("Hello", 2), "{header}");
        assert!(elapsed >= Duration::from_millis(wait_ms), "{header}: {elapsed:?}");
        assert!(elapsed <= Duration::from_millis(wait_ms + 2_000), "{header}: {elapsed:?}");
    }
    for header in ["retry-after: soon", "retry-after: -1", "x: y"] {
        let (response, _, elapsed) = call_after_failures(1, with_header("429 a", header)).await;
        assert_eq!(response.text(), "Hello");
        assert!(elapsed <= Duration::from_secs(1), "{header}: {elapsed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_as_a_date_is_honoured() {
    let date = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(30);
    let date = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&date);
    let date = date.expect("a valid date");
    let (response, requests, elapsed) =
        call_after_failures(1, with_header("503 a", &format!("retry-after: {date}"))).await;
    assert_eq!((response.text().as_str(), requests), ("Hello", 2), "{date}");
    // The date has whole seconds, and the wall clock is not paused.
    assert!(elapsed >= Duration::from_secs(25) && elapsed <= Duration::from_secs(32), "{date}: {elapsed:?}");
}

/// Collects the stream's events with their times in seconds.
async fn timed(mut stream: agent::outside::ModelStream) -> Vec<(u64, Result<ModelEvent, agent::Fault>)> {
    let (started_at, mut items) = (Instant::now(), Vec::new());
    while let Some(item) = stream.next().await {
        items.push((started_at.elapsed().as_secs(), item));
    }
    items
}

#[tokio::test(start_paused = true)]
async fn start_and_end_of_a_retry_wait_are_reported() {
    let actions =
        |number| if number == 0 { with_header("429 a", "retry-after: 100") } else { whole_response() };
    let server = HttpPeer::by_number(actions);
    let items = timed(retrying_client(&server).call(request())).await;
    assert_eq!(items[0], (0, Ok(ModelEvent::Waiting)));
    let (resumed_at, event) = &items[1];
    assert_eq!(*event, Ok(ModelEvent::Heartbeat), "{items:?}");
    assert!((100..=101).contains(resumed_at), "{items:?}");
    assert_eq!(items[2].1, Ok(ModelEvent::Text("Hello".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn wait_for_an_open_circuit_is_reported() {
    let server =
        HttpPeer::by_number(|number| if number < 5 { vec![PeerAction::Close] } else { whole_response() });
    let settings = ProviderSettings { tries_max: Some(1), ..ProviderSettings::default() };
    let client = client_with(&server.base_url(), settings);
    for _ in 0..5 {
        call(&client).await.fault();
    }
    let items = timed(client.call(request())).await;
    let events: Vec<_> = items.iter().map(|(_, item)| item.clone()).take(3).collect();
    let text = ModelEvent::Text("Hello".to_owned());
    assert_eq!(events, [Ok(ModelEvent::Waiting), Ok(ModelEvent::Heartbeat), Ok(text)]);
}

#[tokio::test(start_paused = true)]
async fn keep_alive_comments_reset_the_idle_timeout() {
    let mut actions = vec![PeerAction::Write(head(CHUNKED))];
    for _ in 0..4 {
        actions.extend([
            PeerAction::Wait(Duration::from_secs(50)),
            PeerAction::Write(chunk(b": still queued\n\n")),
        ]);
    }
    actions.extend([PeerAction::Write(chunk(RESPONSE)), PeerAction::Write(CHUNKED_END.to_vec())]);
    let server = HttpPeer::with_actions(actions);
    let items = timed(retrying_client(&server).call(request())).await;
    let alive = items.iter().filter(|(_, item)| *item == Ok(ModelEvent::Heartbeat)).count();
    assert!((3..=4).contains(&alive), "{items:?}");
    assert_eq!(items.last().expect("it ends").1, Ok(ModelEvent::Done), "{items:?}");
    assert_eq!(server.log().requests.len(), 1);
}

/// Returns a response that sends one byte every ten seconds.
fn dripping(prefix: &[u8]) -> Vec<PeerAction> {
    let mut actions = vec![PeerAction::Write(head(CHUNKED)), PeerAction::Write(chunk(prefix))];
    actions.extend(
        (0..1_000).flat_map(|_| [PeerAction::Wait(Duration::from_secs(10)), PeerAction::Write(chunk(b"x"))]),
    );
    actions
}

#[tokio::test(start_paused = true)]
async fn dripping_response_without_complete_events_times_out() {
    let settings = ProviderSettings { tries_max: Some(1), ..ProviderSettings::default() };
    let partial = b"data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\ndata: ";
    let texts = [
        "Streaming response failed before any data was received: the model sent no complete event for 300 s.",
        "Streaming response was interrupted before completion: the model sent no complete event for 300 s. Partial output may have been displayed; retry the request.",
    ];
    for (prefix, text) in [&b"data: "[..], partial].into_iter().zip(texts) {
        let server = HttpPeer::with_actions(dripping(prefix));
        let started_at = Instant::now();
        let response = call(&client_with(&server.base_url(), settings.clone())).await;
        assert_eq!(response.fault().public, text);
        let elapsed = started_at.elapsed().as_secs();
        assert!((300..=301).contains(&elapsed), "expected five idle timeouts, not {elapsed} s");
    }
}

#[tokio::test(start_paused = true)]
async fn response_head_has_its_own_timeout() {
    let late = |seconds| {
        let mut actions = vec![PeerAction::Wait(Duration::from_secs(seconds))];
        actions.extend(whole_response());
        actions
    };
    let settings =
        ProviderSettings { first_byte_ms: Some(5_000), tries_max: Some(2), ..ProviderSettings::default() };
    let server = HttpPeer::with_actions(late(4));
    assert_eq!(call(&client_with(&server.base_url(), settings.clone())).await.text(), "Hello");
    let server = HttpPeer::with_actions(late(6));
    let started_at = Instant::now();
    let response = call(&client_with(&server.base_url(), settings)).await;
    assert_eq!(response.fault().public, "API request timed out after 2 attempts: no response in 5 s");
    let elapsed = started_at.elapsed().as_secs();
    assert!((10..=11).contains(&elapsed), "{elapsed} s");
}

#[tokio::test(start_paused = true)]
async fn too_long_retry_after_fails_all_requests_at_once() {
    let server = HttpPeer::with_actions(with_header("429 a", "retry-after: 86400"));
    let client = retrying_client(&server);
    let started_at = Instant::now();
    assert_eq!(call(&client).await.fault().public, "API request failed (429): ");
    let second = call(&client).await;
    assert!(matches!(second.fault().kind, FaultKind::Busy { retry_after_ms } if retry_after_ms >= 299_000));
    assert_eq!((server.log().requests.len(), started_at.elapsed()), (1, Duration::ZERO));
    tokio::time::advance(Duration::from_secs(302)).await;
    call(&client).await;
    assert_eq!(server.log().requests.len(), 2, "at most five minutes are honoured");
}

#[tokio::test(start_paused = true)]
async fn silent_server_times_out() {
    let settings = ProviderSettings { tries_max: Some(2), ..ProviderSettings::default() };
    let server = HttpPeer::with_actions(vec![PeerAction::Hold]);
    let started_at = Instant::now();
    let response = call(&client_with(&server.base_url(), settings.clone())).await;
    assert_eq!(response.fault().public, "API request timed out after 2 attempts: no response in 60 s");
    assert!(started_at.elapsed() >= Duration::from_secs(119), "{:?}", started_at.elapsed());
    let head_only = HttpPeer::with_actions(vec![PeerAction::Write(head(CHUNKED)), PeerAction::Hold]);
    let response = call(&client_with(&head_only.base_url(), settings)).await;
    let text = "Streaming response failed before any data was received: the model was silent for 60 s.";
    assert_eq!(response.fault().public, text);
}

#[tokio::test(start_paused = true)]
async fn started_response_is_never_retried() {
    let partial = b"data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\n";
    for end in [PeerAction::Close, PeerAction::Hold] {
        let server = HttpPeer::with_actions(vec![
            PeerAction::Write(head(CHUNKED)),
            PeerAction::Write(chunk(partial)),
            end,
        ]);
        let response = call(&retrying_client(&server)).await;
        assert_eq!(response.text(), "Hel");
        assert!(response.fault().public.starts_with("Streaming response was interrupted"), "{response:?}");
        assert_eq!(server.log().requests.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn unreachable_server_is_reported_with_the_attempts() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let port = listener.local_addr().expect("a bound socket has an address").port();
    drop(listener);
    let client = client_with(&format!("http://127.0.0.1:{port}/v1"), ProviderSettings::default());
    let text =
        format!("Failed to connect to API after 4 attempts: openai cannot be reached at 127.0.0.1:{port}");
    assert_eq!(call(&client).await.fault().public, text);
}

/// Returns a registry with the first server as OpenAI, and the second as Anthropic and fallback.
fn registry_with_fallback(first: &HttpPeer, second: &HttpPeer) -> ModelRegistry {
    let variables = [
        ("OPENAI_BASE_URL", first.base_url()),
        ("OPENAI_API_KEY", KEY.to_owned()),
        ("ANTHROPIC_BASE_URL", second.base_url()),
        ("ANTHROPIC_API_KEY", KEY.to_owned()),
    ];
    let model = ModelSettings {
        model: "openai/m".to_owned(),
        fallback: Some(vec!["anthropic/claude".to_owned()]),
        ..ModelSettings::default()
    };
    let options = RegistryOptions {
        default_model: Some("mine".to_owned()),
        models: [("mine".to_owned(), model)].into(),
        variables: variables.map(|(name, value)| (name.to_owned(), Secret::new(value))).into(),
        ..RegistryOptions::default()
    };
    ModelRegistry::open(options).expect("both models are valid")
}

const ANTHROPIC_RESPONSE: &[u8] = b"event: message_start\n\
data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"role\":\"assistant\",\"content\":[],\"usage\":{\"input_tokens\":3,\"output_tokens\":1}}}\n\n\
data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n\
data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Bonjour\"}}\n\n\
data: {\"type\":\"content_block_stop\",\"index\":0}\n\n\
data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":2}}\n\n\
data: {\"type\":\"message_stop\"}\n\n";

#[tokio::test(start_paused = true)]
async fn fallback_gets_the_request_in_its_own_dialect() {
    let claude = || {
        vec![
            PeerAction::Write(head(CHUNKED)),
            PeerAction::Write(chunk(ANTHROPIC_RESPONSE)),
            PeerAction::Write(CHUNKED_END.to_vec()),
        ]
    };
    for (status, tries) in [("500 a", 1..=4), ("401 a", 1..=1), ("404 a", 1..=1)] {
        let (first, second) =
            (HttpPeer::with_actions(response_with_status(status, b"")), HttpPeer::with_actions(claude()));
        let response = collect(registry_with_fallback(&first, &second).default_model().call(request())).await;
        assert_eq!(response.text(), "Bonjour", "{status}: {response:?}");
        let is_fallback_usage =
            |item: &Result<ModelEvent, _>| matches!(item, Ok(ModelEvent::FallbackUsage(..)));
        assert_eq!(response.items.iter().filter(|item| is_fallback_usage(item)).count(), 1, "{response:?}");
        assert!(tries.contains(&first.log().requests.len()), "{status}");
        let request = second.log().requests[0].text();
        assert!(request.starts_with("POST /v1/messages HTTP/1.1\r\n"), "{request}");
        assert!(
            request.contains(&format!("x-api-key: {KEY}\r\n")) && !request.contains("Bearer"),
            "{request}"
        );
        assert!(request.contains("anthropic-version: 2023-06-01\r\n"), "{request}");
    }
    let (first, second) =
        (HttpPeer::with_actions(response_with_status("400 a", b"wrong")), HttpPeer::with_actions(claude()));
    let response = collect(registry_with_fallback(&first, &second).default_model().call(request())).await;
    assert_eq!(
        response.fault().public,
        "API request failed (400): wrong",
        "an invalid request does not fall back"
    );
    assert!(second.log().requests.is_empty());
}

#[tokio::test(start_paused = true)]
async fn with_a_fallback_an_unavailable_model_is_not_awaited() {
    let claude = || {
        vec![
            PeerAction::Write(head(CHUNKED)),
            PeerAction::Write(chunk(ANTHROPIC_RESPONSE)),
            PeerAction::Write(CHUNKED_END.to_vec()),
        ]
    };
    for status in ["503 a", "429 a\r\nRetry-After: 30", "503 a\r\nRetry-After: 100"] {
        let (first, second) =
            (HttpPeer::with_actions(response_with_status(status, b"")), HttpPeer::with_actions(claude()));
        let registry = registry_with_fallback(&first, &second);
        for turn in 0..8 {
            let started_at = Instant::now();
            let calls = (0..4).map(|_| collect(registry.default_model().call(request())));
            for response in futures_util::future::join_all(calls).await {
                assert_eq!(response.text(), "Bonjour", "{status}: {response:?}");
            }
            let waited = started_at.elapsed();
            assert!(waited < Duration::from_secs(10), "{status}, turn {turn}: {waited:?}");
        }
        assert!(!first.log().requests.is_empty(), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn full_window_of_a_fallback_is_not_reported() {
    let full = || response_with_status("400 a", b"prompt is too long");
    let (first, second) =
        (HttpPeer::with_actions(response_with_status("401 a", b"")), HttpPeer::with_actions(full()));
    let response = collect(registry_with_fallback(&first, &second).default_model().call(request())).await;
    assert_eq!(second.log().requests.len(), 1);
    assert_eq!(response.fault().public, "Authentication failed. Check your API key.");
    assert_eq!(response.fault().kind, FaultKind::Model);
    // The full window of the first model is reported.
    let (first, second) = (HttpPeer::with_actions(full()), HttpPeer::with_actions(full()));
    let response = collect(registry_with_fallback(&first, &second).default_model().call(request())).await;
    assert_eq!((response.fault().kind, second.log().requests.len()), (FaultKind::ContextFull, 0));
}

#[tokio::test(start_paused = true)]
async fn dropped_stream_releases_its_permit() {
    let server = HttpPeer::by_number(|number| {
        if number == 0 {
            vec![
                PeerAction::Write(head(CHUNKED)),
                PeerAction::Write(chunk(b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n")),
                PeerAction::Hold,
            ]
        } else {
            whole_response()
        }
    });
    let settings = ProviderSettings { concurrency: Some(1), ..ProviderSettings::default() };
    let client = client_with(&server.base_url(), settings);
    let mut first = client.call(request());
    assert_eq!(first.next().await, Some(Ok(ModelEvent::Text("a".to_owned()))));
    let mut second = client.call(request());
    assert_eq!(second.next().await, Some(Ok(ModelEvent::Waiting)), "waiting for a permit is reported");
    tokio::select! {
        biased;
        item = second.next() => panic!("the only permit is taken: {item:?}"),
        () = testkit::yield_many() => {}
    }
    drop(first);
    assert_eq!(second.next().await, Some(Ok(ModelEvent::Heartbeat)), "now the request is sent");
    assert_eq!(second.next().await, Some(Ok(ModelEvent::Text("Hello".to_owned()))));
}
