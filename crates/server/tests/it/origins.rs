//! Host and Origin checks: requests that a web page can send, and hosts that resemble the daemon's.

use testkit::http::{RequestBuilder, agents, assert_refused, assert_result};

use crate::fixture::{TestDoor, door};

/// Hosts to refuse; P stands for the daemon's port.
const HOSTS: [&str; 27] = [
    "",
    "evil.example",
    "evil.example:P",
    "127.0.0.1:",
    "127.0.0.1:PP",
    "localhost:+P",
    "localhost:P:P",
    "localhost:P.",
    "localhost:P/",
    "localhost:P,evil.example",
    "localhost:P, localhost:P",
    "localhost.:P",
    "localhost.evil.example:P",
    "127.0.0.1.nip.io:P",
    "127.0.0.1.evil.example:P",
    "a@localhost:P",
    "localhost P",
    "127.1:P",
    "127.0.0.2:P",
    "127.000.000.001:P",
    "0x7f000001:P",
    "2130706433:P",
    "0.0.0.0:P",
    "::1:P",
    "[::]:P",
    "[::ffff:127.0.0.1]:P",
    "http://localhost:P",
];

/// Origins that are not configured; P stands for the daemon's port.
const ORIGINS: [&str; 20] = [
    "",
    "null",
    "*",
    "http://localhost",
    "http://localhost:3000",
    "http://localhost:P",
    "http://127.0.0.1:P",
    "http://[::1]:P",
    "https://localhost:P",
    "https://evil.example",
    "http://evil.example:P",
    "file://",
    "file:///etc/passwd",
    "chrome-extension://abcdefghijklmnop",
    "vscode-webview://abc",
    "about:blank",
    "https://app.example",
    "HTTPS://page.example",
    "https://page.example/",
    "https://page.example https://page.example",
];

const LISTED: &str = "https://page.example";

#[test]
fn host_must_be_a_loopback_name_with_any_port() {
    let door = door().open();
    for name in ["127.0.0.1", "localhost", "LocalHost", "[::1]"] {
        // Behind a forwarded port, clients send the port they connected to.
        for port in [format!(":{}", door.port()), ":9000".to_owned(), String::new()] {
            let request = RequestBuilder::valid(&door).replace_header(format!("Host: {name}{port}"));
            assert_result(name, &door.send_raw(&request.bytes()));
        }
    }
    check_hosts(&door);
}

#[test]
fn origin_is_refused_unless_it_is_listed_exactly() {
    let door = door().allowed_origin(LISTED).open();
    let listed = RequestBuilder::valid(&door).header("Origin: https://page.example");
    let response = door.send_raw(&listed.bytes());
    assert_result("listed origin", &response);
    check_origins(&door);
    let two_origins = listed.header("Origin: https://evil.example");
    assert_refused(
        "a listed origin and another",
        &door.send_raw(&two_origins.bytes()),
        403,
        "Origin not allowed",
    );
}

#[test]
fn hosts_and_origins_are_checked_without_auth_too() {
    let door = door().without_token().allowed_origin(LISTED).open();
    assert_eq!(door.token(), None);
    assert_result("no token needed", &door.send_raw(&RequestBuilder::valid(&door).bytes()));
    let wrong = RequestBuilder::valid(&door).header("Authorization: Bearer nxk_wrong");
    assert_result("token not checked", &door.send_raw(&wrong.bytes()));
    check_hosts(&door);
    check_origins(&door);
}

#[test]
fn web_page_request_without_preflight_has_no_effect() {
    let door = door().without_token().open();
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a"] {
        let request = RequestBuilder::create_agent(&door, "page").header(format!("Content-Type: {kind}"));
        let with_origin = request.clone().header("Origin: http://rebound.example");
        assert_refused(kind, &door.send_raw(&with_origin.bytes()), 403, "Origin not allowed");
        let with_host = request.replace_header(format!("Host: rebound.example:{}", door.port()));
        assert_refused(kind, &door.send_raw(&with_host.bytes()), 403, "Host not allowed");
    }
    assert!(agents(&door).is_empty());
}

#[test]
fn preflight_is_refused() {
    let door = door().allowed_origin(LISTED).open();
    for origin in ["https://page.example", "https://evil.example"] {
        let request = RequestBuilder::valid(&door)
            .method("OPTIONS")
            .header(format!("Origin: {origin}"))
            .header("Access-Control-Request-Method: POST")
            .header("Access-Control-Request-Headers: authorization")
            .header("Access-Control-Request-Private-Network: true");
        let response = door.send_raw(&request.bytes());
        assert!([403, 405].contains(&response.status), "{origin}: {}", response.status);
        testkit::http::assert_well_formed(origin, &response);
    }
}

fn check_hosts(door: &TestDoor) {
    let port = door.port().to_string();
    for host in HOSTS {
        let host = host.replace('P', &port);
        let request = RequestBuilder::valid(door).replace_header(format!("Host: {host}"));
        assert_refused(&host, &door.send_raw(&request.bytes()), 403, "Host not allowed");
    }
}

fn check_origins(door: &TestDoor) {
    let port = door.port().to_string();
    for origin in ORIGINS {
        let origin = origin.replace('P', &port);
        let request = RequestBuilder::valid(door).header(format!("Origin: {origin}"));
        assert_refused(&origin, &door.send_raw(&request.bytes()), 403, "Origin not allowed");
    }
}
