//! URLs that tools request, and URLs whose every address is checked. A URL is parsed once, by one parser: that result is
//! judged, resolved and dialled.

use std::net::{IpAddr, SocketAddr};

use agent::ToolOutcome;
use agent::permission::{ConnectPermit, Destination, RemoteHost};
use url::Url;

use super::NetworkClient;
use crate::definition::execution_failed;

/// The length of the longest URL.
const URL_BYTES_MAX: usize = 8 << 10;

/// The most addresses of one name. A name with more is refused, not truncated: each address is checked.
const ADDRESSES_MAX: usize = 64;

/// A valid URL of a web server, which may not be permitted.
#[derive(Debug, Clone)]
pub(crate) struct RequestedUrl {
    url: Url,
    destination: Destination,
}

impl RequestedUrl {
    /// Parses a URL as a model wrote it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        check_text(text)?;
        let has_authority = ["http://", "https://"]
            .iter()
            .any(|prefix| text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix)));
        let url = Url::parse(text).map_err(|fault| format!("not a URL: {fault}"))?;
        if !has_authority {
            let start: String = text.chars().take(16).collect();
            return Err(format!("only http:// and https:// URLs can be requested, got '{start}'"));
        }
        Self::from_url(url)
    }

    /// The URL that a redirect names, relative to this one.
    pub(super) fn join(&self, location: &str) -> Result<Self, String> {
        check_text(location)?;
        let url = self.url.join(location).map_err(|fault| format!("not a URL: {fault}"))?;
        Self::from_url(url)
    }

    fn from_url(mut url: Url) -> Result<Self, String> {
        if !["http", "https"].contains(&url.scheme()) {
            return Err(format!("only http and https URLs can be requested, got '{}'", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("a URL must not contain a user or password: use headers".to_owned());
        }
        let host = match url.host() {
            Some(url::Host::Domain(name)) => RemoteHost::parse(name),
            Some(url::Host::Ipv4(address)) => Some(RemoteHost::Address(address.into())),
            Some(url::Host::Ipv6(address)) => Some(RemoteHost::Address(address.into())),
            None => None,
        };
        let host = host.ok_or_else(|| "the URL has no valid host".to_owned())?;
        let port = url.port_or_known_default().filter(|port| *port != 0);
        let port = port.ok_or_else(|| "the URL has no valid port".to_owned())?;
        url.set_fragment(None);
        Ok(Self { url, destination: Destination { host, port } })
    }

    /// Where a connection for the URL goes.
    pub(crate) fn destination(&self) -> &Destination {
        &self.destination
    }

    /// Whether both have the same scheme, host and port.
    pub(super) fn is_same_origin(&self, other: &Self) -> bool {
        self.is_https() == other.is_https() && self.destination == other.destination
    }

    pub(super) fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// The path and query, for the request line.
    pub(super) fn path_and_query(&self) -> &str {
        &self.url[url::Position::BeforePath..url::Position::AfterQuery]
    }

    /// The value of the `Host` header.
    pub(super) fn host_header(&self) -> String {
        let Destination { host, port } = &self.destination;
        self.url.port().map_or_else(|| host.to_string(), |_| format!("{host}:{port}"))
    }

    pub(super) fn as_str(&self) -> &str {
        self.url.as_str()
    }
}

/// Refuses what URL parsers repair in different ways, and what could end a line of the request.
fn check_text(text: &str) -> Result<(), String> {
    if text.len() > URL_BYTES_MAX {
        return Err(format!("a URL has at most {URL_BYTES_MAX} bytes"));
    }
    let is_unsafe = |char: char| char.is_control() || char.is_whitespace() || char == '\\';
    match text.chars().find(|char| is_unsafe(*char)) {
        None => Ok(()),
        Some(char) => Err(format!("a URL must not contain {char:?}")),
    }
}

/// A URL with the addresses that will be dialled for it. Each is permitted.
pub(super) struct CheckedUrl {
    requested: RequestedUrl,
    /// At least one.
    addresses: Vec<SocketAddr>,
}

impl CheckedUrl {
    pub(super) fn requested(&self) -> &RequestedUrl {
        &self.requested
    }

    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub(super) fn into_string(self) -> String {
        self.requested.url.into()
    }
}

impl NetworkClient {
    /// Judges a URL, resolves its host once and checks every address. One address that is not permitted refuses the
    /// name: which of its addresses a later connection gets is up to its owner.
    pub(super) async fn check(
        &self,
        url: RequestedUrl,
        permit: &ConnectPermit,
    ) -> Result<CheckedUrl, ToolOutcome> {
        let to = &url.destination;
        let denied = |why: String| {
            ToolOutcome::Denied(format!("Permission denied: connecting to '{to}' is not allowed: {why}"))
        };
        permit.hosts().check(to).map_err(|why| denied(why.to_string()))?;
        let addresses = self.resolve(&to.host).await?;
        for address in &addresses {
            permit.hosts().check_address(to, *address).map_err(|why| denied(why.to_string()))?;
            if address.is_loopback() && self.own_port.get() == Some(&to.port) {
                return Err(denied("it is this daemon's own port, which no setting allows".to_owned()));
            }
        }
        let port = to.port;
        let addresses = addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect();
        Ok(CheckedUrl { requested: url, addresses })
    }

    async fn resolve(&self, host: &RemoteHost) -> Result<Vec<IpAddr>, ToolOutcome> {
        let name = match host {
            RemoteHost::Address(address) => return Ok(vec![*address]),
            RemoteHost::Name(name) => name,
        };
        let timeout = self.limits.connect_timeout;
        let fail = |why: &str| execution_failed(format!("cannot resolve '{name}': {why}"));
        let resolved = tokio::time::timeout(timeout, self.resolver.resolve(name)).await;
        let addresses = resolved.map_err(|_| fail("timeout"))?.map_err(|why| fail(&why))?;
        match addresses.len() {
            0 => Err(fail("it has no address")),
            count if count > ADDRESSES_MAX => Err(fail(&format!("it has {count} addresses"))),
            _ => Ok(addresses),
        }
    }
}
