//! Requests and pages that the grant allows: arguments, results, TLS.

use agent::ToolOutcome;
use serde_json::{Value, json};
use testkit::{HttpPeer, PeerAction, ScriptedModel, TLS_CA_PEM, http_response};
use tools::NetworkOptions;

use super::{Client, grant};
use crate::fixture::Fixture;

fn responding(status: &'static str, headers: &'static str, body: &[u8]) -> HttpPeer {
    HttpPeer::with_actions(vec![PeerAction::Write(http_response(status, headers, body))])
}

#[tokio::test]
async fn result_text_is_that_of_the_original() {
    let peer = responding(
        "200 OK",
        "Content-Type: application/json\r\nX-A: 1\r\nX-A: 2\r\n",
        br#"{"b":[1],"a":"x"}"#,
    );
    let client = Client::new(&["127.0.0.1"]);
    let outcome = client.get(&format!("http://127.0.0.1:{}/", peer.port())).await;
    let expected = r#"{
  "body": {
    "a": "x",
    "b": [
      1
    ]
  },
  "headers": {
    "content-length": "17",
    "content-type": "application/json",
    "x-a": "1, 2"
  },
  "size": 17,
  "status": 200,
  "statusText": "OK"
}"#;
    assert_eq!(outcome, ToolOutcome::Done(expected.to_owned()));
}

#[tokio::test]
async fn bodies_are_json_text_or_named_as_binary() {
    let cases: [(&str, &[u8], Value); 6] = [
        ("Content-Type: text/plain\r\n", b"plain", json!("plain")),
        ("Content-Type: text/plain\r\n", b"[1, 2]", json!([1, 2])),
        ("", b"", json!("")),
        ("Content-Type: text/plain; charset=latin1\r\n", b"caf\xe9", json!("caf\u{e9}")),
        ("Content-Type: image/png\r\n", b"\x89PNG\r\n\0", json!("[binary: image/png, 7 bytes; not shown]")),
        ("Content-Type: text/html\r\n", b"<p>as it is", json!("<p>as it is")),
    ];
    for (headers, body, expected) in cases {
        let peer = responding("404 Not Found", headers, body);
        let client = Client::new(&["one.test"]);
        let response = client.response(json!({ "url": format!("http://one.test:{}/", peer.port()) })).await;
        assert_eq!(response["body"], expected);
        let rest = (&response["status"], &response["statusText"], &response["size"]);
        assert_eq!(rest, (&json!(404), &json!("Not Found"), &json!(body.len())), "a status is no error");
    }
}

#[tokio::test]
async fn methods_headers_and_bodies_are_sent() {
    let peer = responding("200 OK", "", b"ok");
    let client = Client::new(&["one.test"]);
    let url = format!("http://one.test:{}/path?q=1#fragment", peer.port());
    let sent = async |mut arguments: Value| {
        arguments["url"] = url.clone().into();
        client.response(arguments).await;
        peer.last_request().to_lowercase()
    };
    let get = sent(json!({})).await;
    let host = format!("host: one.test:{}\r\n", peer.port());
    assert!(get.starts_with("get /path?q=1 http/1.1\r\n") && get.contains(&host), "{get}");
    assert!(get.contains("user-agent: nexus3/") && get.contains("accept-encoding: gzip, deflate"), "{get}");
    let text =
        sent(json!({ "method": "pUt", "body": "a body", "headers": { "X-A": "b", "User-Agent": "me" } }))
            .await;
    assert!(text.starts_with("put /path") && text.ends_with("\r\n\r\na body"), "{text}");
    assert!(
        text.contains("x-a: b\r\n") && text.contains("user-agent: me") && !text.contains("nexus3/"),
        "{text}"
    );
    assert!(text.contains("content-length: 6") && !text.contains("content-type"), "{text}");
    let both = sent(
        json!({ "method": "POST", "json": { "a": 1 }, "body": "ignored", "headers": { "content-type": "x" } }),
    );
    let both = both.await;
    assert!(both.contains("content-type: application/json") && both.ends_with("\r\n\r\n{\"a\":1}"), "{both}");
    let head = sent(json!({ "method": "head" })).await;
    assert!(head.starts_with("head /path"), "{head}");
}

#[tokio::test]
async fn name_is_resolved_once_for_each_request() {
    let peer = responding("200 OK", "", b"ok");
    let client = Client::new(&["one.test", "localhost"]);
    for host in ["one.test", "ONE.test.", "localhost"] {
        client.response(json!({ "url": format!("http://{host}:{}/", peer.port()) })).await;
    }
    assert_eq!(*client.lookups.lock().unwrap(), ["one.test", "one.test", "localhost"]);
}

#[tokio::test]
async fn denial_names_the_setting() {
    let client = Client::new(&["one.test"]);
    let denied = "connecting to 'two.test:80' is not allowed: it is not among the allowed hosts (only one.test); add \
                  'two.test' to allowed_hosts of the agent or its preset";
    for tool in ["http.request", "web.fetch"] {
        let outcome = client.fixture.call(tool, &json!({ "url": "http://two.test/" })).await;
        assert_eq!(outcome, ToolOutcome::Denied(denied.to_owned()));
    }
}

#[tokio::test]
async fn unreachable_servers_are_failures() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let client = Client::new(&["127.0.0.1"]);
    let outcome = client.get(&format!("http://127.0.0.1:{closed}/")).await;
    let text = format!("Execution failed: connecting to 127.0.0.1:{closed} failed: ");
    assert!(matches!(&outcome, ToolOutcome::Failed(found) if found.starts_with(&text)), "{outcome:?}");
    let peer = HttpPeer::with_actions(vec![PeerAction::Close]);
    let outcome = client.get(&format!("http://127.0.0.1:{}/", peer.port())).await;
    assert!(
        matches!(&outcome, ToolOutcome::Failed(text) if text.contains("the request failed")),
        "{outcome:?}"
    );
}

#[test]
fn tls_servers_need_a_trusted_certificate() {
    let model = ScriptedModel::with_tls();
    let url = format!("https://127.0.0.1:{}/", model.port());
    let get = async |extra_certificates: &str, url: &str| {
        let options =
            NetworkOptions { extra_certificates: extra_certificates.to_owned(), ..NetworkOptions::default() };
        let fixture = Fixture::with_network("/nowhere", grant(&["127.0.0.1", "localhost"]), options);
        fixture.call("http.request", &json!({ "url": url })).await
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let trusted = runtime.block_on(get(TLS_CA_PEM, &url));
    assert!(matches!(&trusted, ToolOutcome::Done(text) if text.contains("\"status\"")), "{trusted:?}");
    let untrusted = runtime.block_on(get("", &url));
    assert!(
        matches!(&untrusted, ToolOutcome::Failed(text) if text.contains("TLS failed: ")),
        "{untrusted:?}"
    );
}

async fn fetch(peer: &HttpPeer, mut arguments: Value) -> ToolOutcome {
    arguments["url"] = format!("http://one.test:{}/page", peer.port()).into();
    Client::new(&["one.test"]).fixture.call("web.fetch", &arguments).await
}

#[tokio::test]
async fn pages_are_markdown_and_other_text_is_as_it_is() {
    let cases: [(&str, &[u8], &str); 4] = [
        (
            "Content-Type: text/html\r\n",
            b"<title>T</title><h1>Head</h1><script>x</script><p>See <a href=/b>b</a>.",
            "T\nURL\n\n# Head\n\nSee [b](ROOT/b).",
        ),
        ("Content-Type: text/plain\r\n", b"<p>text", "URL\n\n<p>text"),
        ("Content-Type: application/json\r\n", b"{\"a\": 1}", "URL\n\n{\"a\": 1}"),
        (
            "Content-Type: application/pdf\r\n",
            b"%PDF\x80\0",
            "URL\n[binary: application/pdf, 6 bytes; not shown]",
        ),
    ];
    for (headers, body, expected) in cases {
        let peer = responding("200 OK", headers, body);
        let root = format!("http://one.test:{}", peer.port());
        let expected = expected.replace("URL", &format!("{root}/page")).replace("ROOT", &root);
        assert_eq!(fetch(&peer, json!({})).await, ToolOutcome::Done(expected));
    }
    let missing = responding("404 Not Found", "", b"gone");
    let text = format!("Execution failed: http://one.test:{}/page responded 404 Not Found", missing.port());
    assert_eq!(fetch(&missing, json!({})).await, ToolOutcome::Failed(text));
}

#[tokio::test]
async fn long_pages_are_read_in_parts() {
    let body = "\u{e9}".repeat(2_000);
    let peer = responding("200 OK", "Content-Type: text/plain\r\n", body.as_bytes());
    let (mut text, mut offset, mut parts) = (String::new(), 0, 0);
    loop {
        let ToolOutcome::Done(part) = fetch(&peer, json!({ "offset": offset, "max_bytes": 1_501 })).await
        else {
            panic!("offset {offset}");
        };
        parts += 1;
        let (_, part) = part.split_once("\n\n").unwrap();
        let Some((part, note)) = part.split_once("\n\n[") else {
            text.push_str(part);
            break;
        };
        text.push_str(part);
        let next = note.rsplit(' ').next().unwrap().trim_end_matches(']').parse().unwrap();
        assert_eq!(note, format!("bytes {offset} to {next} of 4000; continue with offset {next}]"));
        offset = next;
    }
    assert_eq!((text, parts), (body, 3));
    let beyond = fetch(&peer, json!({ "offset": 4000 })).await;
    let expected = "Execution failed: offset 4000 is beyond the end: the page has 4000 bytes";
    assert_eq!(beyond, ToolOutcome::Failed(expected.to_owned()));
}
