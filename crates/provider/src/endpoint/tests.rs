//! An endpoint against real sockets: keys that are replaced, and secrets that servers repeat.

use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// A server that answers each request by its whole text; what it was asked is in the list.
async fn server(answer: fn(&str) -> String) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&asked);
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut text = String::new();
            let mut buffer = [0; 4096];
            while !text.contains("\r\n\r\n{}") {
                let count = socket.read(&mut buffer).await.unwrap();
                text.push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
            socket.write_all(answer(&text).as_bytes()).await.unwrap();
            list.lock().unwrap().push(text);
        }
    });
    (format!("http://{address}/v1?key=in-the-query"), asked)
}

fn http_response(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len())
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
async fn a_key_that_was_replaced_is_read_again_and_one_that_was_not_is_refused_once() {
    let wants_the_second = |asked: &str| {
        let is_good = asked.to_lowercase().contains("bearer the-second-key");
        if is_good { http_response("200 OK", "") } else { http_response("401 Unauthorized", "no") }
    };
    let (url, asked) = server(wants_the_second).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::set_permissions(file.path(), PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::write(file.path(), "the-first-key").unwrap();
    let endpoint = endpoint(&url, KeySource::File(file.path().to_owned()));
    assert!(send_request(&endpoint).await.is_err());
    assert_eq!(asked.lock().unwrap().len(), 1, "the same key is not tried again");
    std::fs::write(file.path(), "the-second-key").unwrap();
    assert!(send_request(&endpoint).await.is_ok());
    assert!(send_request(&endpoint).await.is_ok());
    assert_eq!(asked.lock().unwrap().len(), 4, "once with the old key, then with the new one alone");
}

#[tokio::test]
async fn a_secret_header_that_a_server_repeats_is_not_passed_on() {
    let repeats = |asked: &str| http_response("400 Bad Request", asked);
    let (url, _) = server(repeats).await;
    let failing = send_request(&endpoint(&url, KeySource::None)).await.unwrap_err();
    let told = format!("{failing:?}");
    assert!(told.contains("[key]") && !told.contains("gateway-secret"), "{told}");
}

#[tokio::test]
async fn those_who_wait_for_a_key_share_why_there_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    let script = format!("echo run >> {}; sleep 0.2; exit 1", runs.display());
    let words = ["sh", "-c", &script].map(str::to_owned).to_vec();
    let endpoint = endpoint("http://127.0.0.1:9/v1", KeySource::Command(words));
    let all = futures_util::future::join_all((0..5).map(|_| endpoint.current_key(None))).await;
    assert!(all.iter().all(Result::is_err), "{all:?}");
    assert_eq!(std::fs::read_to_string(&runs).unwrap(), "run\n");
    assert!(endpoint.current_key(None).await.is_err());
    assert_eq!(std::fs::read_to_string(&runs).unwrap(), "run\nrun\n", "who comes later tries again");
}

#[test]
fn a_header_that_says_how_a_question_travels_cannot_be_set() {
    let headers = vec![("Content-Length".to_owned(), Secret::new("3".to_owned()))];
    let base_url = "http://127.0.0.1:9/v1".to_owned();
    let options = EndpointOptions { base_url, headers, ..EndpointOptions::default() };
    let fault = Endpoint::new(options).unwrap_err();
    assert!(fault.public.contains("the connection's own"), "{fault}");
}

#[tokio::test]
async fn a_key_in_the_query_is_not_in_the_cause_of_a_fault() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1?key=in-the-query", gone.local_addr().unwrap());
    drop(gone);
    let failing = send_request(&endpoint(&url, KeySource::None)).await.unwrap_err();
    let told = format!("{failing:?}");
    assert!(told.contains("cannot be reached") && !told.contains("in-the-query"), "{told}");
}

#[tokio::test]
async fn a_servers_text_of_any_length_is_told_without_secrets() {
    let endpoint = endpoint("http://127.0.0.1:1/v1", KeySource::None);
    let told = endpoint.redact(&"gateway-secret, ".repeat(2_000));
    assert!(told.matches("[key]").count() == 2_000 && !told.contains("gateway-secret"), "{}", told.len());
}
