//! Hosts and destinations of connections, in one canonical spelling each: a grant compares values, never spellings.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt;
use std::sync::Arc;

use super::AddressClass;

/// The host of a URL: a name in lower case without a final dot, or an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RemoteHost {
    /// A DNS name, or a name of the hosts file.
    Name(Arc<str>),
    /// An IP address.
    Address(IpAddr),
}

/// A host and a port: where a connection goes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination {
    /// The host.
    pub host: RemoteHost,
    /// The port.
    pub port: u16,
}

const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// The final labels of names that the public DNS does not contain (RFC 6761, RFC 6762 appendix G, RFC 8375). Their
/// addresses are those of the local network's administrator.
const LOCAL_LABELS: &[&str] =
    &["localhost", "local", "localdomain", "internal", "intranet", "private", "corp", "home", "lan", "test"];

const LOCAL_SUFFIX: &str = ".home.arpa";

impl RemoteHost {
    /// Parses a host in its canonical spelling, as URL parsers return it; a final dot and upper case are allowed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bracketed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        if let Some(address) = bracketed {
            return address.parse::<Ipv6Addr>().ok().map(|address| RemoteHost::Address(address.into()));
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Some(RemoteHost::Address(address.into()));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        is_name(&name).then(|| RemoteHost::Name(Arc::from(name)))
    }

    /// Whether the name may resolve to addresses of this class. A name of the public DNS must not: its owner would
    /// choose which machine of the local network an agent reaches.
    pub(super) fn may_resolve_to(&self, class: AddressClass) -> bool {
        match (self, class) {
            (RemoteHost::Name(name), AddressClass::Public) => !is_localhost(name),
            (RemoteHost::Name(name), AddressClass::Loopback) => is_local_name(name),
            (RemoteHost::Name(name), AddressClass::Private) => is_local_name(name) && !is_localhost(name),
            _ => false,
        }
    }
}

/// Whether a name ends in a label that is never public, or has one label only.
pub(super) fn is_local_name(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    !name.contains('.') || LOCAL_LABELS.contains(&last) || name.ends_with(LOCAL_SUFFIX)
}

fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// Whether a text in lower case is a host name. Names whose last label is a number are spellings of addresses.
pub(super) fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte))
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_number = last.starts_with(|first: char| first.is_ascii_digit())
        && (last.starts_with("0x") || last.bytes().all(|byte| byte.is_ascii_digit()));
    name.len() <= NAME_BYTES_MAX && name.split('.').all(is_label) && !is_number
}

impl fmt::Display for RemoteHost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RemoteHost::Name(name) => out.write_str(name),
            RemoteHost::Address(IpAddr::V4(address)) => write!(out, "{address}"),
            RemoteHost::Address(IpAddr::V6(address)) => write!(out, "[{address}]"),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.host, self.port)
    }
}
