//! Models over TLS, with an authority of the user's own; and Azure, whose addresses are its own.

use std::fs;

use serde_json::json;
use testkit::{ScriptedModel, TLS_CA_PEM, TestDaemon, TestDaemonBuilder};

use crate::support::{BIN, ExpectError as _};

fn over_tls(model: &ScriptedModel) -> TestDaemonBuilder {
    TestDaemon::builder(BIN)
        .arg("--model")
        .arg("company/scripted")
        .env("COMPANY_KEY", model.key().unwrap_or("k"))
}

fn config(model: &ScriptedModel, more: &str) -> String {
    let base_url = model.base_url();
    format!(
        "[providers.company]\nkind = \"openai\"\nbase_url = \"{base_url}\"\nkey_env = \"COMPANY_KEY\"\n{more}"
    )
}

#[test]
fn a_model_behind_a_companys_own_certificate_answers_when_its_authority_is_named() {
    let (folder, model) = (tempfile::tempdir().unwrap(), ScriptedModel::with_tls());
    let certificate = folder.path().join("authority.pem");
    fs::write(&certificate, TLS_CA_PEM).unwrap();
    let trust = format!("ca_file = \"{}\"\n", certificate.display());
    let daemon = over_tls(&model).config(&config(&model, &trust)).start();
    for word in ["one", "two"] {
        let answer = daemon.call_result("/", "send", json!({ "content": word }));
        assert_eq!(answer["content"], format!("echo: {word}"));
    }
    assert_eq!(model.connections(), 1, "the connection is used again");
}

#[test]
fn a_certificate_that_nobody_trusts_is_told_with_the_server_and_the_setting() {
    let model = ScriptedModel::with_tls();
    let daemon = over_tls(&model).config(&config(&model, "")).start();
    let error = daemon.error("/", "send", json!({ "content": "hi" }));
    assert_eq!(error["code"], -32603);
    let told = error["message"].as_str().unwrap();
    let server = format!("The certificate of 127.0.0.1:{} is not trusted: ", model.port());
    assert!(told.starts_with(&server), "{told}");
    assert!(told.contains("in providers.company.ca_file of config.toml"), "{told}");
    assert!(model.requests().is_empty(), "no key was sent");
    assert_eq!(model.connections(), 1, "nothing is won by asking again");
}

#[test]
fn a_file_of_authorities_that_is_none_is_told() {
    let (folder, model) = (tempfile::tempdir().unwrap(), ScriptedModel::with_tls());
    let certificate = folder.path().join("authority.pem");
    fs::write(&certificate, "no certificate").unwrap();
    let trust = format!("ca_file = \"{}\"\n", certificate.display());
    let daemon = over_tls(&model).config(&config(&model, &trust)).start();
    let told = daemon.error("/", "send", json!({ "content": "hi" }))["message"].to_string();
    assert!(told.contains("authority.pem holds no certificates"), "{told}");
}

#[test]
fn azure_is_asked_below_its_deployment_with_its_version_and_its_key() {
    let model = ScriptedModel::with_key("azure-key-1");
    let azure = |config: &str| {
        TestDaemon::builder(BIN)
            .arg("--model")
            .arg("azure/my-gpt")
            .config(config)
            .env("AZURE_OPENAI_ENDPOINT", format!("http://127.0.0.1:{}", model.port()))
            .env("AZURE_OPENAI_API_KEY", "azure-key-1")
            .start()
    };
    let own = "[providers.azure]\napi_version = \"2025-01-01-preview\"\ndeployment = \"prod gpt\"\n";
    for (config, path) in [
        ("", "/openai/deployments/my-gpt/chat/completions?api-version=2024-10-21"),
        (own, "/openai/deployments/prod%20gpt/chat/completions?api-version=2025-01-01-preview"),
    ] {
        let daemon = azure(config);
        assert_eq!(daemon.call_result("/", "send", json!({ "content": "hi" }))["content"], "echo: hi");
        let request = model.requests().pop().unwrap();
        assert_eq!(request.path, path);
        assert_eq!(request.header("api-key"), Some("azure-key-1"));
        assert_eq!(request.header("authorization"), None, "the key travels once");
    }
}
