//! Tests of base URLs, request URLs and bodies, aliases and model properties.

use std::sync::Arc;

use agent::outside::{ModelRequest, Models};
use agent::{FaultKind, Message, ToolCall, ToolOutcome};
use provider::{
    DiscoverOptions, MACHINE_WINDOW_TOKENS_DEFAULT, ModelRegistry, ModelSettings, ProviderSettings,
    RegistryOptions, Secret,
};
use testkit::HttpPeer;

use crate::harness::{KEY, call, client, collect, default_model, options, request, response_with_status};

fn check_address(base_url: &str) -> Result<(), String> {
    match default_model(options(base_url, ProviderSettings::default())) {
        Ok(_) => Ok(()),
        Err(fault) => {
            assert_eq!(fault.kind, FaultKind::Invalid);
            assert!(fault.public.starts_with("model \"openai/m\": OPENAI_BASE_URL "), "{fault}");
            Err(fault.public.into_owned())
        }
    }
}

#[test]
fn plain_http_is_accepted_only_for_loopback() {
    for base_url in [
        "http://127.0.0.1:8000/v1",
        "http://localhost/v1",
        "HTTP://LOCALHOST:1/v1",
        "http://[::1]:8000",
        "http://0x7f.1/v1",
        "https://api.openai.com/v1",
        "https://10.0.0.1",
        "https://example.org:8443/deep/path/",
        "https://example.org/v1?api-version=3",
    ] {
        assert_eq!(check_address(base_url), Ok(()), "{base_url}");
    }
    for base_url in [
        "http://example.org/v1",
        "http://10.0.0.1/v1",
        "http://127.0.0.1.example.org/v1",
        "http://localhost.example.org/v1",
        "http://example.org#@127.0.0.1/",
        "http://127.0.0.1@example.org/v1",
        "http://[::2]/v1",
        "http://0.0.0.0/v1",
        "http:\\\\example.org/v1",
        "http:///example.org/v1",
        "ftp://127.0.0.1/v1",
        "ws://127.0.0.1/v1",
        "file:///etc",
        "javascript:1",
        "data:text/plain,1",
    ] {
        assert!(check_address(base_url).is_err(), "{base_url} was accepted");
    }
}

#[test]
fn invalid_base_url_is_rejected() {
    for base_url in [
        "",
        " ",
        "v1",
        "/v1",
        "//example.org/v1",
        "localhost:8000/v1",
        "https",
        "https:",
        "https://",
        "https:///",
        "https://:443/v1",
        "https://exa mple.org",
        "https://example.org:99999/v1",
    ] {
        assert!(check_address(base_url).is_err(), "{base_url:?} was accepted");
    }
}

#[test]
fn base_url_with_a_password_is_rejected_without_echoing_it() {
    for base_url in ["https://user:hunter22@example.org/v1", "http://hunter22@127.0.0.1/v1"] {
        let fault = check_address(base_url).expect_err("passwords in URLs are rejected");
        assert!(!fault.contains("hunter22"), "{fault}");
    }
}

#[tokio::test]
async fn request_path_is_below_the_base_url() {
    let server = HttpPeer::with_actions(response_with_status("500 No", b""));
    let root = format!("http://127.0.0.1:{}", server.port());
    for (path, expected) in [
        ("/v1", "/v1/chat/completions"),
        ("/v1/", "/v1/chat/completions"),
        ("/v1//", "/v1/chat/completions"),
        ("", "/chat/completions"),
        ("/a/b%20c/", "/a/b%20c/chat/completions"),
        ("/v1?api-version=3", "/v1/chat/completions?api-version=3"),
        ("/v1#part", "/v1/chat/completions"),
    ] {
        call(&client(&format!("{root}{path}"))).await;
        let request = server.last_request();
        assert!(request.starts_with(&format!("POST {expected} HTTP/1.1\r\n")), "{path}: {request}");
    }
}

#[tokio::test]
async fn request_body_is_json_with_the_model_and_messages() {
    let server = HttpPeer::with_actions(response_with_status("500 No", b""));
    let client = client(&server.base_url());
    call(&client).await;
    let request = server.last_request();
    assert!(request.contains("content-type: application/json\r\n"), "{request}");
    let body = request.split_once("\r\n\r\n").map(|(_, body)| body).expect("the head ends");
    let body: serde_json::Value = serde_json::from_str(body).expect("the body is JSON");
    let expected = serde_json::json!({
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    assert_eq!(body, expected);
    assert_eq!(client.model(), Some("openai/m"));
}

/// Returns the body of a request to Anthropic's API.
async fn anthropic_body(model: &str, settings: ModelSettings) -> serde_json::Value {
    let server = HttpPeer::with_actions(response_with_status("400 No", b""));
    let variables = [("ANTHROPIC_BASE_URL", server.base_url()), ("ANTHROPIC_API_KEY", KEY.to_owned())];
    let settings = ModelSettings { model: format!("anthropic/{model}"), ..settings };
    let options = RegistryOptions {
        default_model: Some("mine".to_owned()),
        models: [("mine".to_owned(), settings)].into(),
        variables: variables.map(|(name, value)| (name.to_owned(), Secret::new(value))).into(),
        ..RegistryOptions::default()
    };
    call(&default_model(options).expect("the model is known")).await;
    last_body(&server)
}

#[tokio::test]
async fn alias_overrides_the_settings_of_the_alias_it_refers_to() {
    let server = HttpPeer::with_actions(response_with_status("400 No", b""));
    let variables = [("OPENAI_BASE_URL", server.base_url()), ("OPENAI_API_KEY", KEY.to_owned())];
    let extra = |text: &str| serde_json::from_str(text).expect("an object");
    let settings = [
        ("brief", "deep", Some(7), extra(r#"{"seed":2}"#)),
        ("deep", "openai/m", Some(70), extra(r#"{"seed":1,"top_p":0.5}"#)),
        ("one", "two", None, extra("{}")),
        ("two", "one", None, extra("{}")),
        ("dangling", "missing", None, extra("{}")),
    ];
    let models = settings.map(|(name, model, answer_tokens_max, extra)| {
        let model = model.to_owned();
        (name.to_owned(), ModelSettings { model, answer_tokens_max, extra, ..ModelSettings::default() })
    });
    let options = |default_model_name: &str| RegistryOptions {
        default_model: Some(default_model_name.to_owned()),
        models: models.clone().into(),
        variables: variables.clone().map(|(name, value)| (name.to_owned(), Secret::new(value))).into(),
        ..RegistryOptions::default()
    };
    call(&default_model(options("brief")).expect("the model is known")).await;
    let body = last_body(&server);
    let fields = serde_json::json!([body["model"], body["seed"], body["top_p"]]);
    assert_eq!(fields.to_string(), r#"["m",2,0.5]"#);
    assert!(body.to_string().contains("tokens\":7"), "{body}");
    for (name, expected_text) in [
        ("one", "model \"one\": its alias refers to itself: one -> two -> one"),
        ("dangling", "model \"dangling\": it is an alias of \"missing\": the name must be PROVIDER/NAME"),
    ] {
        let fault = default_model(options(name)).err().expect("the alias is invalid");
        assert!(fault.public.starts_with(expected_text), "{fault}");
    }
}

/// Returns the body of the last request.
fn last_body(server: &HttpPeer) -> serde_json::Value {
    let request = server.last_request();
    let body = request.split_once("\r\n\r\n").map(|(_, body)| body).expect("the head ends");
    serde_json::from_str(body).expect("the body is JSON")
}

#[tokio::test]
async fn custom_provider_behaves_like_its_kind() {
    let long_id = "call_of_more_than_nine";
    for (kind, model, expected_reasoning, takes_long_ids) in [
        ("deepseek", "m", Some(""), true),
        ("openai", "kimi-k2-thinking", Some(""), true),
        ("openai", "m", None, true),
        ("vllm", "kimi-k2-thinking", None, true),
        ("mistral", "m", None, false),
    ] {
        let server = HttpPeer::with_actions(response_with_status("400 Bad Request", b"{}"));
        let settings = ProviderSettings {
            kind: Some(kind.to_owned()),
            base_url: Some(server.base_url()),
            ..ProviderSettings::default()
        };
        let options = RegistryOptions {
            default_model: Some(format!("mine/{model}")),
            providers: [("mine".to_owned(), settings)].into(),
            ..RegistryOptions::default()
        };
        let call = ToolCall { id: long_id.to_owned(), name: "clock".to_owned(), arguments: "{}".to_owned() };
        let result = Message::tool_result(&call.id, &ToolOutcome::Done("noon".into()));
        let more = [Message::assistant("", vec![call]), result].map(Arc::new);
        let messages = request().messages.iter().cloned().chain(more).collect();
        let model_request = ModelRequest { messages: Arc::new(messages), ..request() };
        collect(default_model(options).expect("the model is known").call(model_request)).await;
        let message = last_body(&server)["messages"][2].clone();
        let reasoning = message.get("reasoning_content").and_then(|text| text.as_str());
        assert_eq!(reasoning, expected_reasoning, "{kind}/{model}: {message:#}");
        let is_unchanged = message["tool_calls"][0]["id"] == long_id;
        assert_eq!(is_unchanged, takes_long_ids, "{kind}/{model}: {message:#}");
    }
}

#[tokio::test]
async fn max_tokens_depends_on_model_settings_and_thinking() {
    for (model, expected_tokens) in [
        ("claude-sonnet-4-5", 32_000),
        ("claude-opus-4-1", 32_000),
        ("claude-3-5-haiku-latest", 8_192),
        ("claude-3-haiku-20240307", 4_096),
        ("unknown-model", 8_192),
    ] {
        let body = anthropic_body(model, ModelSettings::default()).await;
        assert_eq!(body["max_tokens"], expected_tokens, "{model}");
    }
    let settings = ModelSettings { answer_tokens_max: Some(64_000), ..ModelSettings::default() };
    let body = anthropic_body("claude-sonnet-4-5", settings).await;
    assert_eq!(body["max_tokens"], 64_000, "the user's setting wins");
    for (budget, expected_tokens) in [(20_000, 52_000), (40_000, 64_000)] {
        let thinking = serde_json::json!({ "type": "enabled", "budget_tokens": budget });
        let extra = [("thinking".to_owned(), thinking)].into_iter().collect();
        let settings = ModelSettings { extra, ..ModelSettings::default() };
        let body = anthropic_body("claude-sonnet-4-5", settings).await;
        assert_eq!(body["max_tokens"], expected_tokens, "the thinking budget is added");
    }
}

#[tokio::test]
async fn machine_server_window_is_reported_or_a_small_default() {
    let list =
        br#"{"object":"list","data":[{"id":"gpt-oss:20b","max_model_len":65536},{"id":"gpt-oss:120b"}]}"#;
    let server = HttpPeer::with_actions(response_with_status("200 OK", list));
    let discover = DiscoverOptions { providers: vec!["vllm"], ..DiscoverOptions::default() };
    let variables = [("VLLM_BASE_URL".to_owned(), Secret::new(server.base_url()))].into();
    let options = RegistryOptions { discover, variables, ..RegistryOptions::default() };
    let registry = ModelRegistry::open(options).expect("the options are valid");
    assert!(registry.resolve_default().await);
    for (name, window_tokens) in [
        ("vllm/gpt-oss:20b", 65_536),
        ("vllm/gpt-oss:120b", MACHINE_WINDOW_TOKENS_DEFAULT),
        ("ollama/gpt-oss:20b", MACHINE_WINDOW_TOKENS_DEFAULT),
        ("ollama/unknown-model", MACHINE_WINDOW_TOKENS_DEFAULT),
    ] {
        let model = registry.find(name).expect("no key is needed");
        assert_eq!(model.spec().window_tokens, window_tokens, "{name}");
    }
}

#[tokio::test]
async fn request_without_a_model_fails_with_advice() {
    let discover = DiscoverOptions { providers: Vec::new(), ..DiscoverOptions::default() };
    let registry = ModelRegistry::open(RegistryOptions { discover, ..RegistryOptions::default() });
    let model = registry.expect("empty options are valid").default_model();
    let response = collect(model.call(request())).await;
    assert_eq!(response.items.len(), 1);
    for help in ["--model openai/NAME", "OPENAI_API_KEY", "Ollama", "nexus3 models pull smollm2-135m --yes"] {
        assert!(response.fault().public.contains(help), "{help}");
    }
    assert_eq!(model.model(), None);
}
