//! Rows: hosts, origins, methods, tokens, routes and agents. Their every spelling is the affair of other files.

use super::Case;
use crate::http::request_builder::RequestBuilder;
use crate::http::support::NO_ROUTE;

pub(super) const CASES: &[Case] = &[
    Case::refused(
        "another host",
        |good| good.replace_header("Host: evil.example").bytes(),
        403,
        "Host not allowed",
    ),
    Case::refused("an empty host", |good| good.replace_header("Host:").bytes(), 403, "Host not allowed"),
    Case::refused(
        "HTTP/1.0 without a host",
        |good| good.version("HTTP/1.0").without_header("Host").bytes(),
        403,
        "Host not allowed",
    )
    .then_closed_silently(),
    Case::refused(
        "a page's origin",
        |good| good.header("Origin: http://a").bytes(),
        403,
        "Origin not allowed",
    ),
    Case::refused("GET", |good| good.method("GET").bytes(), 405, "Method not allowed. Use POST."),
    Case::refused("post", |good| good.method("post").bytes(), 405, "Method not allowed. Use POST."),
    Case::refused("no token", |good| good.without_header("Authorization").bytes(), 401, NO_TOKEN),
    Case::refused(
        "another scheme",
        |good| good.replace_header("Authorization: Basic YTpi").bytes(),
        401,
        NO_TOKEN,
    ),
    Case::refused(
        "a wrong token",
        |good| good.replace_header("Authorization: Bearer nxk_x").bytes(),
        403,
        WRONG,
    ),
    Case::refused(
        "a token beyond ASCII",
        |good| good.replace_header("Authorization: Bearer nxk_\u{e9}\u{fc}").bytes(),
        403,
        WRONG,
    ),
    Case::accepted("the other path of the daemon", |good| good.target("/rpc").bytes()),
    Case::refused("no such path", |good| good.target("/nope").bytes(), 404, NO_ROUTE),
    Case::refused("a query", |good| good.target("/?x=1").bytes(), 404, NO_ROUTE),
    Case::refused("a bare question mark", |good| good.target("/rpc?").bytes(), 404, NO_ROUTE),
    Case::refused("a slash at the end", |good| good.target("/rpc/").bytes(), 404, NO_ROUTE),
    Case::refused("two slashes", |good| good.target("//rpc").bytes(), 404, NO_ROUTE),
    Case::refused("another case", |good| good.target("/RPC").bytes(), 404, NO_ROUTE),
    Case::refused("an escape", |good| good.target("/%72pc").bytes(), 404, NO_ROUTE),
    Case::refused("a way back", |good| good.target("/agent/../rpc").bytes(), 404, NO_ROUTE),
    Case::refused("an asterisk", |good| good.target("*").bytes(), 404, NO_ROUTE),
    Case::refused("the path of stand-ins", |good| good.target("/.refused").bytes(), 404, NO_ROUTE),
    Case::refused("a whole URL", whole_url, 404, NO_ROUTE),
    Case::refused("an agent without a name", |good| good.target("/agent/").bytes(), 404, NO_ROUTE),
    Case::refused("a name that is none", |good| good.target("/agent/a..b").bytes(), 404, NO_ROUTE),
    Case::refused("a name with a path", |good| good.target("/agent/main/x").bytes(), 404, NO_ROUTE),
    Case::refused(
        "a name of 64 letters",
        |good| good.target(format!("/agent/{}", "a".repeat(64))).bytes(),
        404,
        NO_ROUTE,
    ),
    Case::refused("no such agent", |good| good.target("/agent/nope").bytes(), 404, "Agent not found: nope"),
    Case::refused(
        "no such agent, of 63 letters",
        |good| good.target(format!("/agent/{}", "a".repeat(63))).bytes(),
        404,
        "Agent not found: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    ),
    Case::refused("a temporary agent", |good| good.target("/agent/.t").bytes(), 404, "Agent not found: .t"),
    Case::refused(
        "two callers",
        |good| good.header("X-Nexus-Agent: a").header("X-Nexus-Agent: main").bytes(),
        400,
        "Duplicate X-Nexus-Agent header",
    ),
    Case::refused(
        "a compressed body",
        |good| good.header("Content-Encoding: gzip").bytes(),
        415,
        "Content-Encoding is not supported",
    ),
];

const NO_TOKEN: &str = "Authorization header required";
const WRONG: &str = "Invalid API key";

fn whole_url(good: RequestBuilder) -> Vec<u8> {
    let head = String::from_utf8(good.head()).expect("a good head is text");
    let host = head.lines().find_map(|line| line.strip_prefix("Host: ")).expect("a good head has a host");
    good.target(format!("http://{host}/rpc")).bytes()
}
