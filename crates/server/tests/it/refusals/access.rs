//! Cases: hosts, origins, methods, tokens, routes and agents. The `origins`, `tokens` and `route_matrix` tests cover all
//! spellings.

use testkit::http::{NO_ROUTE, RequestBuilder};

use super::Case;

pub(super) const CASES: &[Case] = &[
    Case::refused(
        "foreign host",
        |request| request.replace_header("Host: evil.example").bytes(),
        403,
        "Host not allowed",
    ),
    Case::refused("empty host", |request| request.replace_header("Host:").bytes(), 403, "Host not allowed"),
    Case::refused(
        "HTTP/1.0 without Host",
        |request| request.version("HTTP/1.0").without_header("Host").bytes(),
        403,
        "Host not allowed",
    )
    .then_closed_silently(),
    Case::refused(
        "origin of a web page",
        |request| request.header("Origin: http://a").bytes(),
        403,
        "Origin not allowed",
    ),
    Case::refused("GET", |request| request.method("GET").bytes(), 405, "Method not allowed. Use POST."),
    Case::refused("post", |request| request.method("post").bytes(), 405, "Method not allowed. Use POST."),
    Case::refused("no token", |request| request.without_header("Authorization").bytes(), 401, NO_TOKEN),
    Case::refused(
        "other authentication scheme",
        |request| request.replace_header("Authorization: Basic YTpi").bytes(),
        401,
        NO_TOKEN,
    ),
    Case::refused(
        "wrong token",
        |request| request.replace_header("Authorization: Bearer nxk_x").bytes(),
        403,
        WRONG,
    ),
    Case::refused(
        "non-ASCII token",
        |request| request.replace_header("Authorization: Bearer nxk_\u{e9}\u{fc}").bytes(),
        403,
        WRONG,
    ),
    Case::accepted("second path of the daemon", |request| request.target("/rpc").bytes()),
    Case::refused("unknown path", |request| request.target("/nope").bytes(), 404, NO_ROUTE),
    Case::refused("query", |request| request.target("/?x=1").bytes(), 404, NO_ROUTE),
    Case::refused("empty query", |request| request.target("/rpc?").bytes(), 404, NO_ROUTE),
    Case::refused("trailing slash", |request| request.target("/rpc/").bytes(), 404, NO_ROUTE),
    Case::refused("double slash", |request| request.target("//rpc").bytes(), 404, NO_ROUTE),
    Case::refused("uppercase path", |request| request.target("/RPC").bytes(), 404, NO_ROUTE),
    Case::refused("percent-encoded path", |request| request.target("/%72pc").bytes(), 404, NO_ROUTE),
    Case::refused("dot segments", |request| request.target("/agent/../rpc").bytes(), 404, NO_ROUTE),
    Case::refused("asterisk", |request| request.target("*").bytes(), 404, NO_ROUTE),
    Case::refused(
        "placeholder path of the head validator",
        |request| request.target("/.refused").bytes(),
        404,
        NO_ROUTE,
    ),
    Case::refused("absolute URL", absolute_url, 404, NO_ROUTE),
    Case::refused("empty agent id", |request| request.target("/agent/").bytes(), 404, NO_ROUTE),
    Case::refused("invalid agent id", |request| request.target("/agent/a..b").bytes(), 404, NO_ROUTE),
    Case::refused("agent id with a path", |request| request.target("/agent/main/x").bytes(), 404, NO_ROUTE),
    Case::refused(
        "agent id of 64 letters",
        |request| request.target(format!("/agent/{}", "a".repeat(64))).bytes(),
        404,
        NO_ROUTE,
    ),
    Case::refused(
        "unknown agent",
        |request| request.target("/agent/nope").bytes(),
        404,
        "Agent not found: nope",
    ),
    Case::refused(
        "unknown agent, id of 63 letters",
        |request| request.target(format!("/agent/{}", "a".repeat(63))).bytes(),
        404,
        "Agent not found: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    ),
    Case::refused(
        "id of a temporary agent",
        |request| request.target("/agent/.t").bytes(),
        404,
        "Agent not found: .t",
    ),
    Case::refused(
        "two X-Nexus-Agent headers",
        |request| request.header("X-Nexus-Agent: a").header("X-Nexus-Agent: main").bytes(),
        400,
        "Duplicate X-Nexus-Agent header",
    ),
    Case::refused(
        "compressed body",
        |request| request.header("Content-Encoding: gzip").bytes(),
        415,
        "Content-Encoding is not supported",
    ),
];

const NO_TOKEN: &str = "Authorization header required";
const WRONG: &str = "Invalid API key";

fn absolute_url(request: RequestBuilder) -> Vec<u8> {
    let head = String::from_utf8(request.head()).expect("a valid head is UTF-8");
    let host = head.lines().find_map(|line| line.strip_prefix("Host: ")).expect("a valid head has a Host");
    request.target(format!("http://{host}/rpc")).bytes()
}
