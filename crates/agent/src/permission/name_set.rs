//! A set of names: a list, or all except a list. Closed under intersection, so ceilings stay exact.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// A set of names.
#[derive(Clone, PartialEq, Eq)]
pub enum NameSet {
    /// Only these names.
    Only(BTreeSet<Arc<str>>),
    /// All names, including future ones, except these.
    AllExcept(BTreeSet<Arc<str>>),
}

impl NameSet {
    /// The empty set.
    #[must_use]
    pub fn none() -> Self {
        NameSet::Only(BTreeSet::new())
    }

    /// The set of all names.
    #[must_use]
    pub fn all() -> Self {
        NameSet::AllExcept(BTreeSet::new())
    }

    /// The set of these names.
    #[must_use]
    pub fn only<T: Into<Arc<str>>>(names: impl IntoIterator<Item = T>) -> Self {
        NameSet::Only(names.into_iter().map(Into::into).collect())
    }

    /// The set of these names; of all names if `*` is among them.
    #[must_use]
    pub fn with_wildcard<'a>(names: impl IntoIterator<Item = &'a Arc<str>>) -> Self {
        let names: BTreeSet<_> = names.into_iter().cloned().collect();
        if names.contains("*") { Self::all() } else { NameSet::Only(names) }
    }

    /// All names except these.
    #[must_use]
    pub fn all_except<T: Into<Arc<str>>>(names: impl IntoIterator<Item = T>) -> Self {
        NameSet::AllExcept(names.into_iter().map(Into::into).collect())
    }

    /// Whether a name is in the set.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        match self {
            NameSet::Only(names) => names.contains(name),
            NameSet::AllExcept(names) => !names.contains(name),
        }
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, NameSet::Only(names) if names.is_empty())
    }

    /// The intersection of both sets.
    #[must_use]
    pub fn intersection(&self, other: &NameSet) -> NameSet {
        match (self, other) {
            (NameSet::Only(a), NameSet::Only(b)) => NameSet::Only(a.intersection(b).cloned().collect()),
            (NameSet::Only(only), NameSet::AllExcept(except))
            | (NameSet::AllExcept(except), NameSet::Only(only)) => {
                NameSet::Only(only.difference(except).cloned().collect())
            }
            (NameSet::AllExcept(a), NameSet::AllExcept(b)) => {
                NameSet::AllExcept(a.union(b).cloned().collect())
            }
        }
    }

    /// The set with this name too.
    #[must_use]
    pub fn with(&self, name: &Arc<str>) -> NameSet {
        let mut set = self.clone();
        match &mut set {
            NameSet::Only(names) => drop(names.insert(Arc::clone(name))),
            NameSet::AllExcept(names) => drop(names.remove(name)),
        }
        set
    }

    /// The set without these names.
    #[must_use]
    pub fn without(&self, names: &[Arc<str>]) -> NameSet {
        self.intersection(&NameSet::all_except(names.iter().cloned()))
    }

    /// Whether this set is a subset of the other.
    #[must_use]
    pub fn is_within(&self, other: &NameSet) -> bool {
        match (self, other) {
            (NameSet::Only(a), _) => a.iter().all(|name| other.contains(name)),
            (NameSet::AllExcept(a), NameSet::AllExcept(b)) => b.is_subset(a),
            (NameSet::AllExcept(_), NameSet::Only(_)) => false,
        }
    }
}

impl fmt::Display for NameSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (prefix, names) = match self {
            NameSet::Only(names) if names.is_empty() => return out.write_str("none"),
            NameSet::AllExcept(names) if names.is_empty() => return out.write_str("all"),
            NameSet::Only(names) => ("only ", names),
            NameSet::AllExcept(names) => ("all but ", names),
        };
        out.write_str(prefix)?;
        for (index, name) in names.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(out, "{separator}{name}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for NameSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}
