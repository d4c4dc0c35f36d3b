//! The shape of a web origin as a browser sends it. What can never match a request is refused with the reason,
//! since an entry that silently admits nobody is a setting that does not work.

/// The judgement on one entry of `allowed_origins`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WebOriginCheck {
    Valid,
    /// Not of the shape `scheme://host[:port]`.
    Malformed,
    /// Of a shape that must not or cannot be allowed; why.
    Disallowed(&'static str),
}

pub(crate) fn check_web_origin(text: &str) -> WebOriginCheck {
    match text {
        "*" => return WebOriginCheck::Disallowed("it would admit every website"),
        "null" => {
            return WebOriginCheck::Disallowed(
                "sandboxed pages and local files all send it, so it names nobody",
            );
        }
        _ => {}
    }
    let Some((scheme, host, port)) = split_origin(text) else { return WebOriginCheck::Malformed };
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return WebOriginCheck::Disallowed("browsers send origins in lower case");
    }
    match (scheme, port) {
        _ if !is_host(host) => WebOriginCheck::Malformed,
        ("http", Some("80")) | ("https", Some("443")) => {
            WebOriginCheck::Disallowed("browsers leave the scheme's own port out")
        }
        (_, Some(port)) if !is_port(port) => WebOriginCheck::Malformed,
        _ => WebOriginCheck::Valid,
    }
}

fn split_origin(text: &str) -> Option<(&str, &str, Option<&str>)> {
    let (scheme, rest) = text.split_once("://")?;
    let starts_well = scheme.starts_with(|first: char| first.is_ascii_alphabetic());
    if !starts_well || !scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)) {
        return None;
    }
    // The colons of an IPv6 host stand inside its brackets.
    let host_end =
        if rest.starts_with('[') { rest.find(']')? + 1 } else { rest.find(':').unwrap_or(rest.len()) };
    let (host, port) = rest.split_at(host_end);
    match port.strip_prefix(':') {
        Some(port) => Some((scheme, host, Some(port))),
        None if port.is_empty() => Some((scheme, host, None)),
        None => None,
    }
}

fn is_host(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return address.parse::<std::net::Ipv6Addr>().is_ok();
    }
    !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

fn is_port(port: &str) -> bool {
    !port.starts_with('0') && !port.starts_with('+') && port.parse::<u16>().is_ok()
}
