//! Redirects: each is judged like a call, and credentials stay with their origin.

use agent::ToolOutcome;
use serde_json::{Value, json};
use testkit::{HttpPeer, PeerAction, PeerRequest, http_response};

use super::{Canary, Client, addresses};

fn redirect(status: &str, location: &str) -> Vec<PeerAction> {
    vec![PeerAction::Write(http_response(status, &format!("Location: {location}\r\n"), "moved"))]
}

fn respond(body: &str) -> Vec<PeerAction> {
    vec![PeerAction::Write(http_response("200 OK", "", body))]
}

/// A server that redirects `/go` to a location and answers other paths.
fn redirecting(status: &'static str, location: String) -> HttpPeer {
    HttpPeer::start(move |request: &PeerRequest| match request.path() {
        "/go" => redirect(status, &location),
        path => respond(path),
    })
}

async fn follow(client: &Client, peer: &HttpPeer) -> ToolOutcome {
    client.get(&format!("http://one.test:{}/go", peer.port())).await
}

#[tokio::test]
async fn threat_98_redirects_to_closed_places_are_refused() {
    let canary = Canary::start();
    let port = canary.port();
    let targets = [
        format!("http://127.0.0.1:{port}/"),
        format!("http://localhost:{port}/"),
        format!("http://[::1]:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://0.0.0.0:{port}/"),
        format!("//127.0.0.1:{port}/"),
        format!("http://user:secret@one.test:{port}/"),
        format!("http://rebound.example:{port}/"),
        format!("\\\\127.0.0.1:{port}\\"),
        format!("http://169.254.169.254:{port}/latest/meta-data/"),
        "http://one.test:22/".to_owned(),
        "http://other.example.evil/".to_owned(),
        "file:///etc/passwd".to_owned(),
        "gopher://one.test:70/".to_owned(),
        "data:text/html,x".to_owned(),
        "javascript:alert(1)".to_owned(),
        "http://".to_owned(),
    ];
    for target in targets {
        let client = Client::with_resolver(&["one.test", "*"], Default::default(), |name, _| {
            addresses(if name == "other.example.evil" { &["10.0.0.1"] } else { &["127.0.0.1"] })
        });
        let peer = redirecting("302 Found", target.clone());
        let outcome = follow(&client, &peer).await;
        let is_refused = match &outcome {
            ToolOutcome::Denied(text) => text.contains("is not allowed: "),
            ToolOutcome::Failed(text) => text.contains("the redirect is refused: "),
            _ => false,
        };
        assert!(is_refused, "{target}: {outcome:?}");
        assert_eq!(peer.log().requests.len(), 1, "{target}");
    }
    canary.assert_untouched();
}

#[tokio::test]
async fn threat_98_chains_and_loops_end_after_five_redirects() {
    let endless = HttpPeer::start(|request| {
        let number: usize = request.path().trim_start_matches('/').parse().unwrap_or(0);
        redirect("302 Found", &format!("/{}", number + 1))
    });
    let same = HttpPeer::start(|_| redirect("307 Temporary Redirect", "/go"));
    for peer in [endless, same] {
        let client = Client::new(&["one.test"]);
        let outcome = follow(&client, &peer).await;
        assert_eq!(outcome, ToolOutcome::Failed("Execution failed: more than 5 redirects".to_owned()));
        assert_eq!(peer.log().requests.len(), 6);
        assert_eq!(client.lookups.lock().unwrap().len(), 6, "each hop is resolved again");
    }
}

#[tokio::test]
async fn redirects_within_the_grant_are_followed() {
    for (location, path) in [("/a", "/a"), ("?q=1", "/go?q=1"), ("x/../b", "/b"), ("#top", "/go")] {
        let peer = HttpPeer::start(move |request| {
            let is_first = request.number == 0;
            if is_first { redirect("301 Moved Permanently", location) } else { respond(request.path()) }
        });
        let client = Client::new(&["one.test"]);
        let ToolOutcome::Done(text) = follow(&client, &peer).await else { panic!("{location}") };
        let response: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&response["status"], &response["body"]), (&json!(200), &json!(path)), "{location}");
    }
}

#[tokio::test]
async fn redirect_without_a_location_is_the_response() {
    let peer = HttpPeer::with_actions(vec![PeerAction::Write(http_response("302 Found", "", "nowhere"))]);
    let client = Client::new(&["one.test"]);
    let response = client.response(json!({ "url": format!("http://one.test:{}/", peer.port()) })).await;
    assert_eq!((&response["status"], &response["statusText"]), (&json!(302), &json!("Found")));
}

/// The request that arrives after a redirect to `host`, from a call with credentials.
async fn redirected(status: &'static str, host: &str, call: Value) -> String {
    let other = HttpPeer::with_actions(respond("there"));
    let target = match host {
        "" => "/there".to_owned(),
        host => format!("http://{host}:{}/there", other.port()),
    };
    let peer = redirecting(status, target);
    let client = Client::new(&["one.test", "two.test"]);
    let mut arguments = json!({
        "url": format!("http://one.test:{}/go", peer.port()),
        "headers": {
            "Authorization": "Bearer canary", "Cookie": "session=canary", "X-Api-Key": "canary",
            "Accept": "text/html",
        },
    });
    arguments.as_object_mut().unwrap().extend(call.as_object().unwrap().clone());
    client.response(arguments).await;
    let text = if host.is_empty() { peer.last_request() } else { other.last_request() };
    text.to_lowercase()
}

#[tokio::test]
async fn threat_99_credentials_are_not_sent_to_another_origin() {
    for host in ["two.test", "one.test"] {
        // Another port of the same host is another origin.
        for status in ["302 Found", "307 Temporary Redirect"] {
            let request = redirected(status, host, json!({})).await;
            assert!(!request.contains("canary"), "{host} {status}: {request}");
            assert!(request.contains("accept: text/html"), "{request}");
        }
    }
    let request = redirected("302 Found", "", json!({})).await;
    for header in ["authorization: bearer canary", "cookie: session=canary", "x-api-key: canary"] {
        assert!(request.contains(header), "the same origin gets them: {request}");
    }
}

#[tokio::test]
async fn credentials_do_not_return_with_a_redirect_back() {
    let peer = HttpPeer::start(|request| match request.path() {
        "/end" => respond("end"),
        path => redirect(
            "302 Found",
            &path[1..].replace("PORT", request.header("host").unwrap().split(':').nth(1).unwrap()),
        ),
    });
    let client = Client::new(&["one.test", "two.test"]);
    let url = format!("http://one.test:{}/http://two.test:PORT/http://one.test:PORT/end", peer.port());
    client.response(json!({ "url": url, "headers": { "Authorization": "canary" } })).await;
    let log = peer.log();
    let has_header: Vec<bool> = log.requests.iter().map(|request| request.head.contains("canary")).collect();
    assert_eq!(has_header, [true, false, false]);
}

#[tokio::test]
async fn redirects_change_the_method_as_browsers_do() {
    let cases = [
        ("301 Moved Permanently", "POST", "get /there", false),
        ("302 Found", "POST", "get /there", false),
        ("302 Found", "PUT", "put /there", true),
        ("303 See Other", "PUT", "get /there", false),
        ("303 See Other", "HEAD", "head /there", false),
        ("307 Temporary Redirect", "POST", "post /there", true),
        ("308 Permanent Redirect", "PATCH", "patch /there", true),
    ];
    for (status, method, expected, has_body) in cases {
        let body = if method == "HEAD" { json!(null) } else { json!({ "a": "payload" }) };
        let request = redirected(status, "", json!({ "method": method, "json": body })).await;
        assert!(request.starts_with(expected), "{status} {method}: {request}");
        assert_eq!(request.contains("payload"), has_body, "{status} {method}: {request}");
        assert_eq!(request.contains("content-type"), has_body, "{status} {method}: {request}");
    }
}
