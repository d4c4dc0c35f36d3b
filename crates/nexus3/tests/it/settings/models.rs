//! Model names, endpoints and keys, and which of them stop the start.

use std::fs;

use serde_json::json;
use testkit::{ScriptedModel, TestDaemon, run};

use crate::support::BIN;

/// Starts a daemon that must exit with code 2 and returns its stderr.
fn failed_start(model: &str, env: &[(&str, &str)]) -> String {
    let home = tempfile::tempdir().unwrap();
    let finished = run(BIN, &["serve", "0", "--model", model], env, home.path());
    assert_eq!((finished.code, finished.stdout.as_str()), (2, ""), "{model}: {}", finished.stderr);
    let names = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!names.into_iter().any(|name| name.to_string_lossy().ends_with(".token")));
    finished.stderr
}

#[test]
fn model_without_provider_or_name_is_rejected() {
    for model in ["openai/", "/gpt", "", "/", "openai/a\nb"] {
        let stderr = failed_start(model, &[("OPENAI_API_KEY", "sk-x")]);
        assert!(
            stderr.contains("--model must be \"provider/name\" or an alias, got "),
            "{model:?}: {stderr}"
        );
    }
    let stderr = failed_start("gpt", &[("OPENAI_API_KEY", "sk-x")]);
    assert!(
        stderr.contains("model \"gpt\": the name must be PROVIDER/NAME, as in openai/gpt-4o-mini"),
        "{stderr}"
    );
}

#[test]
fn unknown_provider_is_rejected() {
    for model in ["unknown/claude", "OpenAI/gpt", "open ai/gpt"] {
        let stderr = failed_start(model, &[("OPENAI_API_KEY", "sk-x")]);
        assert!(stderr.contains("the known ones are anthropic, openai, "), "{stderr}");
    }
}

#[test]
fn fallback_that_names_no_model_is_rejected() {
    let home = tempfile::tempdir().unwrap();
    for (fallback, expected) in [
        ("zzz", "fallback \"zzz\": the name must be PROVIDER/NAME"),
        ("unknown/x", "fallback \"unknown/x\": there is no provider \"unknown\""),
    ] {
        fs::write(home.path().join("config.toml"), format!("fallback = [{fallback:?}]\n")).unwrap();
        let finished = run(BIN, &["serve", "0"], &[], home.path());
        assert_eq!((finished.code, finished.stdout.as_str()), (2, ""), "{fallback}: {}", finished.stderr);
        assert!(finished.stderr.contains(expected), "{fallback}: {}", finished.stderr);
    }
    for fallback in ["local", "ollama", "local/not-yet-here", "openai/without-a-key"] {
        let config = format!("fallback = [{fallback:?}]\n");
        let daemon = TestDaemon::builder(BIN).config(&config).start();
        daemon.call_result("/", "create_agent", json!({ "agent_id": "a" }));
    }
}

#[test]
fn default_endpoint_needs_a_key() {
    let stderr = failed_start("openai/gpt", &[]);
    assert!(
        stderr.contains("model \"openai/gpt\": start the daemon with OPENAI_API_KEY in its environment"),
        "{stderr}"
    );
    let stderr = failed_start("openai/gpt", &[("OPENAI_API_KEY", "")]);
    assert!(stderr.contains("OPENAI_API_KEY in its environment"), "{stderr}");
    let stderr = failed_start("anthropic/claude", &[("OPENAI_API_KEY", "sk-x")]);
    assert!(stderr.contains("ANTHROPIC_API_KEY in its environment"), "{stderr}");
}

#[test]
fn malformed_key_is_rejected_and_not_shown() {
    for key in ["sk-top secret", "sk-top\nsecret", "sk-töp"] {
        let stderr = failed_start("openai/gpt", &[("OPENAI_API_KEY", key)]);
        assert!(stderr.contains("OPENAI_API_KEY holds a blank or a character that no key has"), "{stderr}");
        assert!(!stderr.contains("sk-t"), "{stderr}");
    }
}

#[test]
fn key_is_never_sent_unencrypted_to_another_host() {
    for url in [
        "http://example.org/v1",
        "http://10.0.0.1:8000/v1",
        "http://127.0.0.1.example.org/v1",
        "http://localhost.example.org/v1",
        "http://user@example.org/v1",
        "http://127.0.0.1@example.org/v1",
        "http://0.0.0.0/v1",
        "HTTP://EXAMPLE.ORG/v1",
        "ftp://localhost/v1",
        "file:///etc/passwd",
    ] {
        let stderr = failed_start("openai/gpt", &[("OPENAI_API_KEY", "sk-x"), ("OPENAI_BASE_URL", url)]);
        assert!(
            stderr.contains("OPENAI_BASE_URL must be https; plain http is only taken for loopback"),
            "{url}: {stderr}"
        );
    }
    for url in ["nonsense", "://", "http://", "https://[::1"] {
        let stderr = failed_start("openai/gpt", &[("OPENAI_API_KEY", "sk-x"), ("OPENAI_BASE_URL", url)]);
        assert!(stderr.contains("OPENAI_BASE_URL "), "{url}: {stderr}");
    }
}

#[test]
fn local_server_needs_no_key() {
    let model = ScriptedModel::start();
    for end in ["", "/", "//"] {
        let daemon = TestDaemon::builder(BIN)
            .arg("--model")
            .arg("openai/maker/name:7b")
            .env("OPENAI_BASE_URL", format!("{}{end}", model.base_url()))
            .start();
        assert_eq!(daemon.call_result("/", "send", json!({ "content": "hi" }))["content"], "echo: hi");
    }
    for request in model.requests() {
        assert_eq!(request.header("authorization"), None);
        assert_eq!(request.path, "/v1/chat/completions");
        assert_eq!(request.body["model"], "maker/name:7b");
    }
}

#[test]
fn proxy_variables_are_ignored() {
    let model = ScriptedModel::start();
    let proxy = ScriptedModel::start();
    let url = format!("http://127.0.0.1:{}", proxy.port());
    let mut builder = crate::support::daemon_builder(&model);
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"] {
        builder = builder.env(name, &url);
    }
    let daemon = builder.start();
    assert_eq!(daemon.call_result("/", "send", json!({ "content": "hi" }))["content"], "echo: hi");
    assert_eq!(proxy.connections(), 0);
}
