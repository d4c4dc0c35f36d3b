//! A set of hosts that may be connected to: patterns, less denied patterns. Closed under intersection, so ceilings stay
//! exact. Two questions: may a connection to a name be tried, and may it go to an address the name resolved to.

use core::net::IpAddr;
use std::collections::BTreeSet;
use std::fmt;

use super::host_pattern::is_default_port;
use super::{AddressClass, Destination, HostPattern, RemoteHost};

/// A set of hosts.
#[derive(Clone, PartialEq, Eq)]
pub struct HostSet {
    /// All hosts, ports and address classes that exist, if `None`: the set of a ceiling without a limit.
    allowed: Option<BTreeSet<HostPattern>>,
    denied: BTreeSet<HostPattern>,
}

/// Why a connection is not allowed; completes the sentence "connecting to 'x' is not allowed: …".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostDenial(String);

impl HostSet {
    /// The empty set.
    #[must_use]
    pub fn none() -> Self {
        Self::new([], [])
    }

    /// The set without a limit. Unlike `*` it contains the hosts of this machine and the local network.
    #[must_use]
    pub fn everything() -> Self {
        Self { allowed: None, denied: BTreeSet::new() }
    }

    /// The hosts of the allowed patterns that no denied pattern contains.
    #[must_use]
    pub fn new(
        allowed: impl IntoIterator<Item = HostPattern>,
        denied: impl IntoIterator<Item = HostPattern>,
    ) -> Self {
        Self { allowed: Some(allowed.into_iter().collect()), denied: denied.into_iter().collect() }
            .normalized()
    }

    /// All hosts except these.
    #[must_use]
    pub fn all_except(denied: impl IntoIterator<Item = HostPattern>) -> Self {
        Self { allowed: None, denied: denied.into_iter().collect() }.normalized()
    }

    /// The set with this destination too, unless it is denied.
    #[must_use]
    pub(super) fn with(&self, to: &Destination) -> Self {
        let mut set = self.clone();
        if let Some(allowed) = &mut set.allowed {
            allowed.insert(HostPattern::exactly(to));
        }
        set.normalized()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.allowed.as_ref().is_some_and(BTreeSet::is_empty)
    }

    /// The allowed patterns; none if the set has no limit but its denied patterns.
    #[must_use]
    pub fn allowed(&self) -> Option<&BTreeSet<HostPattern>> {
        self.allowed.as_ref()
    }

    /// The denied patterns.
    #[must_use]
    pub fn denied(&self) -> &BTreeSet<HostPattern> {
        &self.denied
    }

    /// Whether a connection to a destination may be tried.
    #[must_use]
    pub fn contains(&self, to: &Destination) -> bool {
        self.find_denial(to).is_none()
    }

    /// Checks whether a connection to a destination may be tried. For a name, `check_address` has the last word.
    ///
    /// # Errors
    /// When it may not.
    pub fn check(&self, to: &Destination) -> Result<(), HostDenial> {
        self.find_denial(to).map_or(Ok(()), Err)
    }

    fn find_denial(&self, to: &Destination) -> Option<HostDenial> {
        if let Some(denial) = self.find_address_denial(to) {
            return Some(denial);
        }
        if let Some(pattern) = self.denied.iter().find(|pattern| pattern.denies(to)) {
            let text = format!("denied_hosts contains '{pattern}'");
            return Some(HostDenial(text));
        }
        let allowed = self.allowed.as_ref()?;
        if allowed.iter().any(|pattern| pattern.allows(to)) {
            return None;
        }
        let any_port = Destination { port: 80, ..to.clone() };
        let is_port = !is_default_port(to.port) && self.contains(&any_port);
        let what = if is_port { to.to_string() } else { to.host.to_string() };
        Some(HostDenial(format!(
            "it is not among the allowed hosts ({self}); add '{what}' to allowed_hosts of the agent or its preset"
        )))
    }

    /// A reserved address is denied by every set.
    fn find_address_denial(&self, to: &Destination) -> Option<HostDenial> {
        let RemoteHost::Address(address) = to.host else { return None };
        let class = AddressClass::of(address);
        (!class.is_grantable()).then(|| {
            HostDenial(format!("{address} is an address of {}, which no setting allows", class.name()))
        })
    }

    /// Checks whether a connection to a destination may go to this address, to which its name resolved. An address that
    /// is not public has to be allowed itself, unless the name is one of the local network.
    ///
    /// # Errors
    /// When it may not.
    pub fn check_address(&self, to: &Destination, address: IpAddr) -> Result<(), HostDenial> {
        self.check(to)?;
        let class = AddressClass::of(address);
        let literal = Destination { host: RemoteHost::Address(address), port: to.port };
        if to.host == literal.host || (to.host.may_resolve_to(class) && !self.denies(&literal)) {
            return Ok(());
        }
        self.check(&literal).map_err(|HostDenial(why)| {
            HostDenial(format!("it resolves to {address}, an address of {}; {why}", class.name()))
        })
    }

    fn denies(&self, to: &Destination) -> bool {
        self.denied.iter().any(|pattern| pattern.denies(to))
    }

    /// The intersection of both sets.
    #[must_use]
    pub fn intersection(&self, other: &HostSet) -> HostSet {
        let allowed = match (&self.allowed, &other.allowed) {
            (None, allowed) | (allowed, None) => allowed.clone(),
            (Some(a), Some(b)) => {
                Some(a.iter().flat_map(|a| b.iter().filter_map(|b| a.intersection(b))).collect())
            }
        };
        let denied = self.denied.union(&other.denied).cloned().collect();
        HostSet { allowed, denied }.normalized()
    }

    /// Whether this set is a subset of the other.
    #[must_use]
    pub fn is_within(&self, other: &HostSet) -> bool {
        let Some(own) = &self.allowed else {
            let is_denied = |pattern: &HostPattern| self.denied.iter().any(|own| own.denies_all_of(pattern));
            return other.allowed.is_none() && other.denied.iter().all(is_denied);
        };
        own.iter().all(|pattern| {
            let is_allowed = other
                .allowed
                .as_ref()
                .is_none_or(|allowed| allowed.iter().any(|outer| outer.covers(pattern)));
            let mut taken = other.denied.iter().filter_map(|denied| denied.denied_part_of(pattern));
            is_allowed && taken.all(|part| self.denied.iter().any(|own| own.denies_all_of(&part)))
        })
    }

    /// Removes the patterns that change nothing, so that equal sets have equal texts.
    fn normalized(mut self) -> Self {
        let denied = std::mem::take(&mut self.denied);
        let is_implied = |pattern: &HostPattern, all: &BTreeSet<HostPattern>| {
            all.iter().any(|other| other != pattern && other.denies_all_of(pattern))
        };
        let mut denied: BTreeSet<_> =
            denied.iter().filter(|pattern| !is_implied(pattern, &denied)).cloned().collect();
        if denied.contains(&HostPattern::any()) {
            self.allowed = Some(BTreeSet::new());
        }
        if let Some(allowed) = &mut self.allowed {
            allowed.retain(|pattern| !denied.iter().any(|denied| denied.denies_all_of(pattern)));
            let all = allowed.clone();
            allowed.retain(|pattern| !all.iter().any(|other| other != pattern && other.covers(pattern)));
            denied.retain(|denied| allowed.iter().any(|allowed| denied.denied_part_of(allowed).is_some()));
        }
        Self { denied, ..self }
    }
}

impl fmt::Display for HostSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |patterns: &BTreeSet<HostPattern>| {
            patterns.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        match &self.allowed {
            None if self.denied.is_empty() => out.write_str("all"),
            None => write!(out, "all but {}", list(&self.denied)),
            Some(allowed) if allowed.is_empty() => out.write_str("none"),
            Some(allowed) if self.denied.is_empty() => write!(out, "only {}", list(allowed)),
            Some(allowed) => write!(out, "only {}, but not {}", list(allowed), list(&self.denied)),
        }
    }
}

impl fmt::Debug for HostSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl fmt::Display for HostDenial {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}
