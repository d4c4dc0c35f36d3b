//! Tokens: every wrong shape at every path gets the same answer, whatever stands around it.

use testkit::TestDaemon;

use crate::http::request_builder::RequestBuilder;
use crate::http::support::{agents, assert_refused, assert_result, daemon};

const PATHS: [&str; 5] = ["/", "/rpc", "/agent/main", "/agent/nope", "/nope"];

const REQUIRED: (u16, &str) = (401, "Authorization header required");
const INVALID: (u16, &str) = (403, "Invalid API key");

/// What can stand behind `Authorization:` that is no token at all; TOKEN is the right one.
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

/// And what is one, but not ours.
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

fn start() -> (TestDaemon, String) {
    let daemon = daemon().start();
    daemon.call_result("/", "create_agent", serde_json::json!({ "agent_id": "main" }));
    let token = daemon.token().expect("a daemon has a token").to_owned();
    (daemon, token)
}

#[test]
fn every_path_refuses_every_wrong_token_in_the_same_words() {
    let (daemon, token) = start();
    let upper = token.to_uppercase();
    let (short, end) = (&token[..token.len() - 1], &token[1..]);
    for path in PATHS {
        let good = RequestBuilder::create_agent(&daemon, "stranger").target(path);
        let check = |name: &str, ask: RequestBuilder, (status, message): (u16, &'static str)| {
            assert_refused(&format!("{name:?} at {path}"), &daemon.send_raw(&ask.bytes()), status, message);
        };
        check("nothing", good.clone().without_header("Authorization"), REQUIRED);
        check("twice", good.clone().header(format!("Authorization: Bearer {token}")), REQUIRED);
        for shape in MISSING {
            let line = format!("Authorization: {}", shape.replace("TOKEN", &token));
            check(shape, good.clone().replace_header(line), REQUIRED);
        }
        let wrong = WRONG.map(|shape| shape.replace("TOKEN", &token));
        for shape in wrong.iter().map(String::as_str).chain([short, end, &upper]) {
            check(shape, good.clone().replace_header(format!("Authorization: Bearer {shape}")), INVALID);
        }
    }
    assert_eq!(agents(&daemon), ["main"]);
}

#[test]
fn the_right_token_passes_in_every_case_of_its_scheme() {
    let (daemon, token) = start();
    let lines = [
        "Authorization: bearer TOKEN",
        "authorization:BEARER TOKEN",
        "AUTHORIZATION:  Bearer   TOKEN  ",
        "Authorization: Bearer\tTOKEN",
    ];
    for line in lines {
        let ask = RequestBuilder::valid(&daemon)
            .without_header("Authorization")
            .header(line.replace("TOKEN", &token));
        assert_result(line, &daemon.send_raw(&ask.bytes()));
    }
}

#[test]
fn a_token_anywhere_else_is_none() {
    let (daemon, token) = start();
    let headers = [
        "Proxy-Authorization: Bearer",
        "X-Authorization: Bearer",
        "X-Api-Key:",
        "Cookie: token=",
        "Referer: http://a/?t=",
    ];
    for header in headers {
        let ask = RequestBuilder::valid(&daemon)
            .without_header("Authorization")
            .header(format!("{header} {token}"));
        assert_refused(header, &daemon.send_raw(&ask.bytes()), REQUIRED.0, REQUIRED.1);
    }
    for target in ["/?token=TOKEN", "/rpc?api_key=TOKEN", "/?Authorization=Bearer%20TOKEN"] {
        let ask = RequestBuilder::valid(&daemon)
            .without_header("Authorization")
            .target(target.replace("TOKEN", &token));
        assert_refused(target, &daemon.send_raw(&ask.bytes()), REQUIRED.0, REQUIRED.1);
    }
    let user = format!("http://{token}@127.0.0.1:{}/", daemon.port());
    let ask = RequestBuilder::valid(&daemon).without_header("Authorization").target(user);
    assert_refused(
        "in the URL",
        &daemon.send_raw(&ask.bytes()),
        400,
        "Request target and Host header disagree",
    );
}

#[test]
fn a_claim_to_come_from_this_machine_changes_nothing() {
    let (daemon, _) = start();
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
    let good = RequestBuilder::valid(&daemon);
    let asks = [
        good.clone(),
        good.clone().without_header("Authorization"),
        good.clone().replace_header("Host: evil.example"),
        good.clone().header("Origin: http://evil.example"),
        good.clone().target("/nope"),
        good.method("GET"),
    ];
    for ask in asks {
        let plain = daemon.send_raw(&ask.bytes());
        for claim in claims {
            let claimed = daemon.send_raw(&ask.clone().header(claim).bytes());
            assert_eq!(claimed.raw, plain.raw, "{claim}");
        }
    }
}
