//! Tests of key secrecy: the key is sent as a bearer token and appears nowhere else.

use std::sync::Arc;

use provider::{KeySource, ProviderSettings, Secret};
use testkit::{HttpPeer, PeerAction};

use crate::harness::{
    KEY, call, call_events, call_with, client, default_model, options, response_with_status,
};

#[tokio::test]
async fn key_is_sent_as_a_bearer_token() {
    let server = HttpPeer::with_actions(response_with_status("500 No", b""));
    call(&client(&server.base_url())).await;
    let request = server.log().requests[0].text();
    assert!(request.contains(&format!("authorization: Bearer {KEY}\r\n")), "{request}");
    assert_eq!(request.matches(KEY).count(), 1);
}

#[tokio::test]
async fn without_a_key_no_authorization_is_sent() {
    let server = HttpPeer::with_actions(response_with_status("500 No", b""));
    let settings = ProviderSettings { tries_max: Some(1), ..ProviderSettings::default() };
    let mut options = options(&server.base_url(), settings);
    options.variables.remove("OPENAI_API_KEY");
    call(&default_model(options).expect("a valid base URL")).await;
    assert!(!server.log().requests[0].text().contains("authorization"));
}

#[tokio::test]
async fn echoed_key_is_redacted_from_faults() {
    let echo = format!("your header was: Bearer {KEY}!");
    let padded = format!("{}{KEY}{}", "x".repeat(9_970), "y".repeat(10_000));
    let chunk = format!("data: {{\"error\":{{\"message\":\"{KEY} is no key\"}}}}\n\n");
    let responses = [
        call_with(response_with_status("500 No", echo.as_bytes())).await,
        call_with(response_with_status("400 No", padded.as_bytes())).await,
        call_with(response_with_status("401 No", echo.as_bytes())).await,
        call_events(&chunk).await,
        call_with(vec![PeerAction::Write(format!("HTTP/1.1 {KEY}\r\n\r\n").into_bytes()), PeerAction::Close])
            .await,
    ];
    for response in responses {
        let shown = format!("{:?} {}", response.fault(), response.fault());
        assert!(!shown.contains(&KEY[..10]), "{shown}");
    }
}

#[test]
fn key_is_not_in_debug_output() {
    let settings = ProviderSettings {
        base_url: Some("https://api.openai.com/v1".into()),
        ..ProviderSettings::default()
    };
    let options = options("https://api.openai.com/v1", settings);
    let shown = format!("{options:?} {options:#?}");
    assert!(!shown.contains(KEY), "{shown}");
    assert!(shown.contains("https://api.openai.com/v1"));
}

#[tokio::test]
async fn keys_are_known_secrets_from_every_source() {
    let server = HttpPeer::with_actions(response_with_status("500 No", b""));
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "key-in-a-file\n").expect("written");
    let header = |name: &str, value: &str| (name.to_owned(), Secret::new(value.to_owned()));
    let by_file = ProviderSettings {
        key: Some(KeySource::File(file.path().to_owned())),
        headers: vec![
            header("Authorization", "Bearer key-in-a-header"),
            header("X-Title", "an ordinary title"),
        ],
        ..ProviderSettings::default()
    };
    let command = ["printf", "%s", "key-of-a-command"].map(ToOwned::to_owned).to_vec();
    let by_command = ProviderSettings {
        key: Some(KeySource::Command(command)),
        tries_max: Some(1),
        ..ProviderSettings::default()
    };
    let mut options = options(&server.base_url(), by_command);
    options.providers.insert("other".to_owned(), by_file);
    let known = Arc::clone(&options.known_secrets);
    let client = default_model(options).expect("valid options");
    let text = format!("{KEY} key-in-a-file key-in-a-header an ordinary title {}", server.base_url());
    let clean = format!("[redacted] [redacted] [redacted] an ordinary title {}", server.base_url());
    assert_eq!(known.redact(&text), clean);
    assert_eq!(known.redact("key-of-a-command"), "key-of-a-command", "it has not been run");
    call(&client).await;
    assert_eq!(known.redact("key-of-a-command"), "[redacted]");
}
