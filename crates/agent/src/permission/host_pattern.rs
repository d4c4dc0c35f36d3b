//! Patterns of hosts in `allowed_hosts` and `denied_hosts`. Any two patterns are nested or disjoint, so that their
//! intersection is a pattern.

use core::net::{IpAddr, Ipv6Addr};
use std::fmt;
use std::sync::Arc;

use super::host::{is_local_name, is_name};
use super::{AddressClass, Destination, RemoteHost};

/// A pattern of hosts: `example.com`, `*.example.com`, `*`, `10.1.2.3`, `[::1]`, each also with `:port`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPattern {
    host: HostMatch,
    /// Without one, an allowed host has the default ports, a denied host all ports.
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum HostMatch {
    /// All public hosts; among denied hosts all hosts.
    Any,
    /// All names below this one, but not the name itself.
    Subdomains(Arc<str>),
    Name(Arc<str>),
    Address(IpAddr),
}

/// The rule of [`HostPattern::parse`]; completes the sentence "it must be …".
pub const HOST_PATTERN_RULE: &str =
    "a host like 'example.com', '*.example.com', '*' or '10.1.2.3', optionally with ':port'";

/// The ports of web servers below 1024. Ports from 1024 on are default ports, except those of other services.
const WEB_PORTS: &[u16] = &[80, 443];

/// The ports from 1024 on of services that take a request over HTTP for a command, or are not meant for agents:
/// databases, caches, queues, remote control, and those that browsers block.
const SERVICE_PORTS: &[u16] = &[
    1080, 1433, 1434, 1521, 1719, 1720, 1723, 2049, 2181, 2375, 2376, 2377, 2379, 2380, 3128, 3260, 3306,
    3389, 3659, 4045, 4190, 4369, 5060, 5061, 5432, 5671, 5672, 5900, 5901, 5984, 5985, 5986, 6000, 6379,
    6380, 6443, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 7000, 7001, 8500, 9042, 9092, 9100, 9200,
    9300, 10080, 10250, 10255, 11211, 11434, 15672, 16379, 26379, 27017, 27018, 27019, 50000, 61616,
];

/// Whether a pattern without a port allows this port.
#[must_use]
pub(super) fn is_default_port(port: u16) -> bool {
    WEB_PORTS.contains(&port) || (port >= 1024 && SERVICE_PORTS.binary_search(&port).is_err())
}

impl HostPattern {
    /// All public hosts.
    #[must_use]
    pub fn any() -> Self {
        Self { host: HostMatch::Any, port: None }
    }

    /// This destination only.
    #[must_use]
    pub fn exactly(to: &Destination) -> Self {
        let host = match &to.host {
            RemoteHost::Name(name) => HostMatch::Name(Arc::clone(name)),
            RemoteHost::Address(address) => HostMatch::Address(*address),
        };
        Self { host, port: Some(to.port) }
    }

    /// Parses a pattern. Upper case and a final dot are allowed; numbers in other spellings than `10.1.2.3` are not.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse::<Ipv6Addr>() {
            return Some(Self { host: HostMatch::grantable(address.into())?, port: None });
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !text.ends_with(']') => (host, Some(parse_port(port)?)),
            _ => (text, None),
        };
        let host = match host.strip_prefix("*.") {
            _ if host == "*" => HostMatch::Any,
            Some(suffix) => {
                let suffix = suffix.strip_suffix('.').unwrap_or(suffix).to_ascii_lowercase();
                is_name(&suffix).then(|| HostMatch::Subdomains(Arc::from(suffix)))?
            }
            None => match RemoteHost::parse(host)? {
                RemoteHost::Name(name) => HostMatch::Name(name),
                RemoteHost::Address(address) => HostMatch::grantable(address)?,
            },
        };
        Some(Self { host, port })
    }

    /// Whether the pattern allows a destination.
    pub(super) fn allows(&self, to: &Destination) -> bool {
        self.covers(&Self::exactly(to))
    }

    /// Whether the pattern denies a destination.
    pub(super) fn denies(&self, to: &Destination) -> bool {
        self.denies_all_of(&Self::exactly(to))
    }

    /// As allowed hosts: whether this pattern allows all that the other allows.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let has_port = match (self.port, other.port) {
            (None, Some(port)) => is_default_port(port),
            (own, other) => own.is_none() || own == other,
        };
        has_port && self.host.covers(&other.host)
    }

    /// As allowed hosts: what both patterns allow.
    pub(super) fn intersection(&self, other: &Self) -> Option<Self> {
        let port = match (self.port, other.port) {
            (None, None) => None,
            (Some(port), None) | (None, Some(port)) => is_default_port(port).then_some(Some(port))?,
            (Some(a), Some(b)) => (a == b).then_some(Some(a))?,
        };
        let host = self.host.narrower(&other.host)?;
        Some(Self { host: host.clone(), port })
    }

    /// As denied hosts: whether this pattern denies all that the other allows or denies.
    pub(super) fn denies_all_of(&self, other: &Self) -> bool {
        let has_port = self.port.is_none() || self.port == other.port;
        has_port && (self.host == HostMatch::Any || self.host.covers(&other.host))
    }

    /// What this pattern, as a denied host, takes from an allowed one. An address is taken from all names, because any
    /// name may resolve to it.
    pub(super) fn denied_part_of(&self, allowed: &Self) -> Option<Self> {
        let port = match (self.port, allowed.port) {
            (None, port) => port,
            (Some(port), None) => is_default_port(port).then_some(Some(port))?,
            (Some(a), Some(b)) => (a == b).then_some(Some(a))?,
        };
        let host = match (&self.host, &allowed.host) {
            (HostMatch::Any, host) => host,
            (HostMatch::Address(_), HostMatch::Address(_)) => self.host.narrower(&allowed.host)?,
            (HostMatch::Address(_), _) => &self.host,
            (own, host) => own.narrower(host)?,
        };
        Some(Self { host: host.clone(), port })
    }
}

impl HostMatch {
    fn grantable(address: IpAddr) -> Option<Self> {
        AddressClass::of(address).is_grantable().then_some(HostMatch::Address(address))
    }

    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (HostMatch::Any, HostMatch::Any) => true,
            // Never names of the local network, nor addresses that are not public.
            (HostMatch::Any, HostMatch::Subdomains(name) | HostMatch::Name(name)) => {
                !is_local_suffix(other, name)
            }
            (HostMatch::Any, HostMatch::Address(address)) => {
                AddressClass::of(*address) == AddressClass::Public
            }
            (HostMatch::Subdomains(suffix), HostMatch::Subdomains(name)) => {
                name == suffix || is_below(name, suffix)
            }
            (HostMatch::Subdomains(suffix), HostMatch::Name(name)) => is_below(name, suffix),
            (HostMatch::Name(_) | HostMatch::Address(_), other) => self == other,
            (HostMatch::Subdomains(_), _) => false,
        }
    }

    fn narrower<'a>(&'a self, other: &'a Self) -> Option<&'a Self> {
        if self.covers(other) { Some(other) } else { other.covers(self).then_some(self) }
    }
}

/// Whether a pattern with this name contains names of the local network. Names below `com` are not local, though `com`
/// itself has one label.
fn is_local_suffix(pattern: &HostMatch, name: &str) -> bool {
    match pattern {
        HostMatch::Subdomains(_) => is_local_name(&format!("x.{name}")),
        _ => is_local_name(name),
    }
}

fn is_below(name: &str, suffix: &str) -> bool {
    name.strip_suffix(suffix).is_some_and(|rest| rest.ends_with('.'))
}

fn parse_port(text: &str) -> Option<u16> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_plain && *port != 0)
}

impl fmt::Display for HostPattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            HostMatch::Any => out.write_str("*")?,
            HostMatch::Subdomains(suffix) => write!(out, "*.{suffix}")?,
            HostMatch::Name(name) => out.write_str(name)?,
            HostMatch::Address(address) => write!(out, "{}", RemoteHost::Address(*address))?,
        }
        self.port.map_or(Ok(()), |port| write!(out, ":{port}"))
    }
}
