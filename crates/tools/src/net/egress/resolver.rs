//! Resolves host names to addresses, once for each connection.

use std::net::IpAddr;

use agent::outside::BoxFuture;

/// All addresses of a name, or why there are none.
pub type ResolvedAddresses = Result<Vec<IpAddr>, String>;

/// Resolves host names.
pub trait Resolve: Send + Sync {
    /// Looks up all addresses of a name.
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, ResolvedAddresses>;
}

/// The resolver of the system, which also reads the hosts file.
#[derive(Debug, Clone, Copy)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, ResolvedAddresses> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await.map_err(|fault| fault.to_string())?;
            let mut addresses: Vec<IpAddr> = Vec::new();
            for address in found.map(|address| address.ip()) {
                if !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
            Ok(addresses)
        })
    }
}
