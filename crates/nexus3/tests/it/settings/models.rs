//! Which model, where it is, and which of them are refused at the start.

use std::fs;

use serde_json::json;
use testkit::{ScriptedModel, TestDaemon, run};

use crate::support::BIN;

fn refused(model: &str, env: &[(&str, &str)]) -> String {
    let home = tempfile::tempdir().unwrap();
    let finished = run(BIN, &["serve", "0", "--model", model], env, home.path());
    assert_eq!((finished.code, finished.stdout.as_str()), (2, ""), "{model}: {}", finished.stderr);
    let names = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!names.into_iter().any(|name| name.to_string_lossy().ends_with(".token")));
    finished.stderr
}

#[test]
fn a_model_without_a_provider_or_a_name_is_refused() {
    for model in ["openai/", "/gpt", "", "/", "openai/a\nb"] {
        let told = refused(model, &[("OPENAI_API_KEY", "sk-x")]);
        assert!(told.contains("--model must be \"provider/name\" or an alias, got "), "{model:?}: {told}");
    }
    let told = refused("gpt", &[("OPENAI_API_KEY", "sk-x")]);
    assert!(
        told.contains("model \"gpt\": the name must be PROVIDER/NAME, as in openai/gpt-4o-mini"),
        "{told}"
    );
}

#[test]
fn a_provider_that_is_not_there_is_refused() {
    for model in ["nobody/claude", "OpenAI/gpt", "open ai/gpt"] {
        let told = refused(model, &[("OPENAI_API_KEY", "sk-x")]);
        assert!(told.contains("the known ones are anthropic, openai, "), "{told}");
    }
}

#[test]
fn a_fallback_that_names_no_model_is_refused() {
    let home = tempfile::tempdir().unwrap();
    for (fallback, told) in [
        ("zzz", "fallback \"zzz\": the name must be PROVIDER/NAME"),
        ("nobody/x", "fallback \"nobody/x\": there is no provider \"nobody\""),
    ] {
        fs::write(home.path().join("config.toml"), format!("fallback = [{fallback:?}]\n")).unwrap();
        let finished = run(BIN, &["serve", "0"], &[], home.path());
        assert_eq!((finished.code, finished.stdout.as_str()), (2, ""), "{fallback}: {}", finished.stderr);
        assert!(finished.stderr.contains(told), "{fallback}: {}", finished.stderr);
    }
    for fallback in ["local", "ollama", "local/not-yet-here", "openai/without-a-key"] {
        let config = format!("fallback = [{fallback:?}]\n");
        let daemon = TestDaemon::builder(BIN).config(&config).start();
        daemon.call_result("/", "create_agent", json!({ "agent_id": "a" }));
    }
}

#[test]
fn a_key_is_needed_where_nobody_says_which_server() {
    let told = refused("openai/gpt", &[]);
    assert!(
        told.contains("model \"openai/gpt\": start the daemon with OPENAI_API_KEY in its environment"),
        "{told}"
    );
    let told = refused("openai/gpt", &[("OPENAI_API_KEY", "")]);
    assert!(told.contains("OPENAI_API_KEY in its environment"), "{told}");
    let told = refused("anthropic/claude", &[("OPENAI_API_KEY", "sk-x")]);
    assert!(told.contains("ANTHROPIC_API_KEY in its environment"), "{told}");
}

#[test]
fn a_key_that_cannot_be_one_is_refused_without_showing_it() {
    for key in ["sk-top secret", "sk-top\nsecret", "sk-töp"] {
        let told = refused("openai/gpt", &[("OPENAI_API_KEY", key)]);
        assert!(told.contains("OPENAI_API_KEY holds a blank or a character that no key has"), "{told}");
        assert!(!told.contains("sk-t"), "{told}");
    }
}

#[test]
fn a_key_is_never_sent_in_the_clear_to_another_machine() {
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
        let told = refused("openai/gpt", &[("OPENAI_API_KEY", "sk-x"), ("OPENAI_BASE_URL", url)]);
        assert!(
            told.contains("OPENAI_BASE_URL must be https; plain http is only taken for loopback"),
            "{url}: {told}"
        );
    }
    for url in ["nonsense", "://", "http://", "https://[::1"] {
        let told = refused("openai/gpt", &[("OPENAI_API_KEY", "sk-x"), ("OPENAI_BASE_URL", url)]);
        assert!(told.contains("OPENAI_BASE_URL "), "{url}: {told}");
    }
}

#[test]
fn a_local_server_needs_no_key() {
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
fn a_proxy_in_the_environment_is_not_asked() {
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
