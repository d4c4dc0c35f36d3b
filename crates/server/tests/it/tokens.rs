//! Tokens: every path refuses every wrong token with the same response, whatever other headers the request has.

use testkit::http::{RequestBuilder, agents, assert_refused, assert_result};

use crate::fixture::{TestDoor, door};

const PATHS: [&str; 5] = ["/", "/rpc", "/agent/main", "/agent/nope", "/nope"];

const REQUIRED: (u16, &str) = (401, "Authorization header required");
const INVALID: (u16, &str) = (403, "Invalid API key");

/// Values of `Authorization` without a bearer token; TOKEN stands for the daemon's token.
const MISSING: [&str; 11] = [
    "",
    "Bearer",
    "Bearer ",
    "TOKEN",
    "BearerTOKEN",
    "Basic TOKEN",
    "Token TOKEN",
    "Bearer TOKEN TOKEN",
    "Bearer TOKEN, Bearer TOKEN",
    "Bearer a b",
    "Bearer=TOKEN",
];

/// Bearer tokens that are wrong.
const WRONG: [&str; 9] = [
    "x",
    "nxk_",
    "TOKENx",
    "xTOKEN",
    "TOKENTOKEN",
    "\"TOKEN\"",
    "TOKEN\u{e9}",
    "nxk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "TOKEN,",
];

fn start() -> (TestDoor, String) {
    let door = door().open();
    door.call_result("/", "create_agent", serde_json::json!({ "agent_id": "main" }));
    let token = door.token().expect("a daemon has a token").to_owned();
    (door, token)
}

#[test]
fn every_path_refuses_every_wrong_token_the_same_way() {
    let (door, token) = start();
    let uppercase = token.to_uppercase();
    let (without_last_byte, without_first_byte) = (&token[..token.len() - 1], &token[1..]);
    for path in PATHS {
        let valid = RequestBuilder::create_agent(&door, "stranger").target(path);
        let check = |name: &str, request: RequestBuilder, (status, message): (u16, &'static str)| {
            assert_refused(&format!("{name:?} at {path}"), &door.send_raw(&request.bytes()), status, message);
        };
        check("no header", valid.clone().without_header("Authorization"), REQUIRED);
        check("two headers", valid.clone().header(format!("Authorization: Bearer {token}")), REQUIRED);
        for shape in MISSING {
            let line = format!("Authorization: {}", shape.replace("TOKEN", &token));
            check(shape, valid.clone().replace_header(line), REQUIRED);
        }
        let wrong = WRONG.map(|shape| shape.replace("TOKEN", &token));
        for shape in
            wrong.iter().map(String::as_str).chain([without_last_byte, without_first_byte, &uppercase])
        {
            check(shape, valid.clone().replace_header(format!("Authorization: Bearer {shape}")), INVALID);
        }
    }
    assert_eq!(agents(&door), ["main"]);
}

#[test]
fn scheme_and_header_name_are_case_insensitive() {
    let (door, token) = start();
    let lines = [
        "Authorization: bearer TOKEN",
        "authorization:BEARER TOKEN",
        "AUTHORIZATION:  Bearer   TOKEN  ",
        "Authorization: Bearer\tTOKEN",
    ];
    for line in lines {
        let request = RequestBuilder::valid(&door)
            .without_header("Authorization")
            .header(line.replace("TOKEN", &token));
        assert_result(line, &door.send_raw(&request.bytes()));
    }
}

#[test]
fn token_outside_the_authorization_header_is_ignored() {
    let (door, token) = start();
    let headers = [
        "Proxy-Authorization: Bearer",
        "X-Authorization: Bearer",
        "X-Api-Key:",
        "Cookie: token=",
        "Referer: http://a/?t=",
    ];
    for header in headers {
        let request =
            RequestBuilder::valid(&door).without_header("Authorization").header(format!("{header} {token}"));
        assert_refused(header, &door.send_raw(&request.bytes()), REQUIRED.0, REQUIRED.1);
    }
    for target in ["/?token=TOKEN", "/rpc?api_key=TOKEN", "/?Authorization=Bearer%20TOKEN"] {
        let request = RequestBuilder::valid(&door)
            .without_header("Authorization")
            .target(target.replace("TOKEN", &token));
        assert_refused(target, &door.send_raw(&request.bytes()), REQUIRED.0, REQUIRED.1);
    }
    let url = format!("http://{token}@127.0.0.1:{}/", door.port());
    let request = RequestBuilder::valid(&door).without_header("Authorization").target(url);
    assert_refused(
        "token in the URL",
        &door.send_raw(&request.bytes()),
        400,
        "Request target and Host header disagree",
    );
}

#[test]
fn forwarding_headers_change_nothing() {
    let (door, _) = start();
    let claims = [
        "X-Forwarded-For: 127.0.0.1",
        "X-Forwarded-Host: 127.0.0.1",
        "X-Forwarded-Proto: https",
        "X-Real-IP: 127.0.0.1",
        "Forwarded: for=127.0.0.1;host=localhost;proto=http",
        "Via: 1.1 localhost",
        "X-HTTP-Method-Override: GET",
        "X-Original-URL: /rpc",
    ];
    let valid = RequestBuilder::valid(&door);
    let requests = [
        valid.clone(),
        valid.clone().without_header("Authorization"),
        valid.clone().replace_header("Host: evil.example"),
        valid.clone().header("Origin: http://evil.example"),
        valid.clone().target("/nope"),
        valid.method("GET"),
    ];
    for request in requests {
        let plain = door.send_raw(&request.bytes());
        for claim in claims {
            let with_claim = door.send_raw(&request.clone().header(claim).bytes());
            assert_eq!(with_claim.raw, plain.raw, "{claim}");
        }
    }
}
