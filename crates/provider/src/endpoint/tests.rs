//! Tests of an endpoint over real sockets: key rotation and redaction of echoed secrets.

use std::os::unix::fs::PermissionsExt;

use testkit::{HttpPeer, PeerAction, http_response};
use tokio::net::TcpListener;

use super::*;

/// Starts a server that computes each response from the request text; returns its base URL too.
fn server(respond: fn(&str) -> Vec<u8>) -> (String, HttpPeer) {
    let peer =
        HttpPeer::start(move |request| vec![PeerAction::Write(respond(&request.text())), PeerAction::Close]);
    (format!("{}?key=in-the-query", peer.base_url()), peer)
}

fn closing_response(status: &str, body: &str) -> Vec<u8> {
    http_response(status, "Connection: close\r\n", body)
}

fn endpoint(base_url: &str, key: KeySource) -> Arc<Endpoint> {
    let headers = vec![("X-Gateway".to_owned(), Secret::new("gateway-secret".to_owned()))];
    let base_url = base_url.to_owned();
    Endpoint::new(EndpointOptions { base_url, key, headers, ..EndpointOptions::default() }).unwrap()
}

async fn send_request(endpoint: &Endpoint) -> Result<reqwest::Response, ModelError> {
    let body = [Bytes::from_static(b"{}")];
    let url = endpoint.base_url.join(&[], &["chat"]);
    endpoint.send(OutgoingRequest { url: &url, body: &body, headers: &[], request_headers: &[] }).await
}

#[tokio::test]
async fn refused_key_is_read_again_and_retried_only_if_changed() {
    let accepts_second_key = |request: &str| {
        let is_good = request.to_lowercase().contains("bearer the-second-key");
        if is_good { closing_response("200 OK", "") } else { closing_response("401 Unauthorized", "no") }
    };
    let (url, peer) = server(accepts_second_key);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::set_permissions(file.path(), PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::write(file.path(), "the-first-key").unwrap();
    let endpoint = endpoint(&url, KeySource::File(file.path().to_owned()));
    assert!(send_request(&endpoint).await.is_err());
    assert_eq!(peer.log().requests.len(), 1, "an unchanged key is not retried");
    std::fs::write(file.path(), "the-second-key").unwrap();
    assert!(send_request(&endpoint).await.is_ok());
    assert!(send_request(&endpoint).await.is_ok());
    assert_eq!(peer.log().requests.len(), 4, "once with the old key, then only with the new one");
    let known = endpoint.known_secrets.redact("the-first-key the-second-key").into_owned();
    assert_eq!(known, "[redacted] [redacted]");
}

#[tokio::test]
async fn echoed_secret_header_is_redacted() {
    let echo = |request: &str| closing_response("400 Bad Request", request);
    let (url, _peer) = server(echo);
    let error = send_request(&endpoint(&url, KeySource::None)).await.unwrap_err();
    let text = format!("{error:?}");
    assert!(text.contains("[key]") && !text.contains("gateway-secret"), "{text}");
}

#[tokio::test]
async fn concurrent_requests_share_a_failed_key_read() {
    let directory = tempfile::tempdir().unwrap();
    let runs = directory.path().join("runs");
    let script = format!("echo run >> {}; sleep 0.2; exit 1", runs.display());
    let arguments = ["sh", "-c", &script].map(str::to_owned).to_vec();
    let endpoint = endpoint("http://127.0.0.1:9/v1", KeySource::Command(arguments));
    let all = futures_util::future::join_all((0..5).map(|_| endpoint.current_key(None))).await;
    assert!(all.iter().all(Result::is_err), "{all:?}");
    assert_eq!(std::fs::read_to_string(&runs).unwrap(), "run\n");
    assert!(endpoint.current_key(None).await.is_err());
    assert_eq!(std::fs::read_to_string(&runs).unwrap(), "run\nrun\n", "a later request reads the key again");
}

#[test]
fn framing_headers_cannot_be_overridden() {
    let headers = vec![("Content-Length".to_owned(), Secret::new("3".to_owned()))];
    let base_url = "http://127.0.0.1:9/v1".to_owned();
    let options = EndpointOptions { base_url, headers, ..EndpointOptions::default() };
    let fault = Endpoint::new(options).unwrap_err();
    assert!(fault.public.contains("is set by the HTTP client"), "{fault}");
}

#[tokio::test]
async fn key_in_the_query_is_not_in_the_error_cause() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1?key=in-the-query", listener.local_addr().unwrap());
    drop(listener);
    let error = send_request(&endpoint(&url, KeySource::None)).await.unwrap_err();
    let text = format!("{error:?}");
    assert!(text.contains("cannot be reached") && !text.contains("in-the-query"), "{text}");
}

#[tokio::test]
async fn all_secrets_are_redacted_from_a_long_text() {
    let endpoint = endpoint("http://127.0.0.1:1/v1", KeySource::None);
    let text = endpoint.redact(&"gateway-secret, ".repeat(2_000));
    assert!(text.matches("[key]").count() == 2_000 && !text.contains("gateway-secret"), "{}", text.len());
}
