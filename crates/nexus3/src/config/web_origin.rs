//! Validation of web origins as browsers send them. An entry that can never match a request is rejected with the
//! reason, since it would silently have no effect.

/// Result of checking one entry of `allowed_origins`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WebOriginCheck {
    Valid,
    /// Not of the form `scheme://host[:port]`.
    Malformed,
    /// Well-formed, but unsafe or unable to match; holds the reason.
    Disallowed(&'static str),
}

pub(crate) fn check_web_origin(text: &str) -> WebOriginCheck {
    match text {
        "*" => return WebOriginCheck::Disallowed("it would admit every website"),
        "null" => {
            return WebOriginCheck::Disallowed(
                "every sandboxed page and local file sends it, so it identifies none",
            );
        }
        _ => {}
    }
    let Some((scheme, host, port)) = split_origin(text) else { return WebOriginCheck::Malformed };
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return WebOriginCheck::Disallowed("browsers send origins in lowercase");
    }
    match (scheme, port) {
        _ if !is_host(host) => WebOriginCheck::Malformed,
        ("http", Some("80")) | ("https", Some("443")) => {
            WebOriginCheck::Disallowed("browsers omit the scheme's default port")
        }
        (_, Some(port)) if !is_port(port) => WebOriginCheck::Malformed,
        _ => WebOriginCheck::Valid,
    }
}

fn split_origin(text: &str) -> Option<(&str, &str, Option<&str>)> {
    let (scheme, authority) = text.split_once("://")?;
    let starts_with_letter = scheme.starts_with(|first: char| first.is_ascii_alphabetic());
    let is_scheme_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    if !starts_with_letter || !scheme.bytes().all(is_scheme_byte) {
        return None;
    }
    // The colons of an IPv6 host are inside its brackets.
    let host_end = if authority.starts_with('[') {
        authority.find(']')? + 1
    } else {
        authority.find(':').unwrap_or(authority.len())
    };
    let (host, port) = authority.split_at(host_end);
    match port.strip_prefix(':') {
        Some(port) => Some((scheme, host, Some(port))),
        None if port.is_empty() => Some((scheme, host, None)),
        None => None,
    }
}

fn is_host(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[').and_then(|tail| tail.strip_suffix(']')) {
        return address.parse::<std::net::Ipv6Addr>().is_ok();
    }
    !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

fn is_port(port: &str) -> bool {
    !port.starts_with('0') && !port.starts_with('+') && port.parse::<u16>().is_ok()
}
