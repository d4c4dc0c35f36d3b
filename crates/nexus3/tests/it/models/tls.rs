//! Models over TLS with a private certificate authority; and Azure, which has its own URLs and key header.

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
fn ca_file_makes_a_private_authority_trusted() {
    let (folder, model) = (tempfile::tempdir().unwrap(), ScriptedModel::with_tls());
    let certificate = folder.path().join("authority.pem");
    fs::write(&certificate, TLS_CA_PEM).unwrap();
    let trust = format!("ca_file = \"{}\"\n", certificate.display());
    let daemon = over_tls(&model).config(&config(&model, &trust)).start();
    for word in ["one", "two"] {
        let response = daemon.call_result("/", "send", json!({ "content": word }));
        assert_eq!(response["content"], format!("echo: {word}"));
    }
    assert_eq!(model.connections(), 1, "the connection is reused");
}

#[test]
fn untrusted_certificate_error_names_server_and_setting() {
    let model = ScriptedModel::with_tls();
    let daemon = over_tls(&model).config(&config(&model, "")).start();
    let error = daemon.error("/", "send", json!({ "content": "hi" }));
    assert_eq!(error["code"], -32603);
    let message = error["message"].as_str().unwrap();
    let server = format!("The certificate of 127.0.0.1:{} is not trusted: ", model.port());
    assert!(message.starts_with(&server), "{message}");
    assert!(message.contains("in providers.company.ca_file of config.toml"), "{message}");
    assert!(model.requests().is_empty(), "no key was sent");
    assert_eq!(model.connections(), 1, "a certificate error is not retried");
}

#[test]
fn ca_file_without_certificates_is_reported() {
    let (folder, model) = (tempfile::tempdir().unwrap(), ScriptedModel::with_tls());
    let certificate = folder.path().join("authority.pem");
    fs::write(&certificate, "no certificate").unwrap();
    let trust = format!("ca_file = \"{}\"\n", certificate.display());
    let daemon = over_tls(&model).config(&config(&model, &trust)).start();
    let message = daemon.error("/", "send", json!({ "content": "hi" }))["message"].to_string();
    assert!(message.contains("authority.pem holds no certificates"), "{message}");
}

#[test]
fn azure_requests_have_deployment_version_and_key() {
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
        assert_eq!(request.header("authorization"), None, "the key is sent in one header only");
    }
}
