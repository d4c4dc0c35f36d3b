//! A set of names: only some, or all but some. Closed under intersection, so ceilings stay exact.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// A set of names.
#[derive(Clone, PartialEq, Eq)]
pub enum NameSet {
    /// These and no others.
    Only(BTreeSet<Arc<str>>),
    /// Every name, also of things that are not there yet, but these.
    AllExcept(BTreeSet<Arc<str>>),
}

impl NameSet {
    /// No name at all.
    #[must_use]
    pub fn none() -> Self {
        NameSet::Only(BTreeSet::new())
    }

    /// Every name.
    #[must_use]
    pub fn all() -> Self {
        NameSet::AllExcept(BTreeSet::new())
    }

    /// These names.
    #[must_use]
    pub fn only<T: Into<Arc<str>>>(names: impl IntoIterator<Item = T>) -> Self {
        NameSet::Only(names.into_iter().map(Into::into).collect())
    }

    /// Every name but these.
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

    /// Whether no name is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, NameSet::Only(names) if names.is_empty())
    }

    /// What is in both sets.
    #[must_use]
    pub fn intersection(&self, other: &NameSet) -> NameSet {
        match (self, other) {
            (NameSet::Only(one), NameSet::Only(two)) => {
                NameSet::Only(one.intersection(two).cloned().collect())
            }
            (NameSet::Only(only), NameSet::AllExcept(but))
            | (NameSet::AllExcept(but), NameSet::Only(only)) => {
                NameSet::Only(only.difference(but).cloned().collect())
            }
            (NameSet::AllExcept(one), NameSet::AllExcept(two)) => {
                NameSet::AllExcept(one.union(two).cloned().collect())
            }
        }
    }

    /// The set without these names.
    #[must_use]
    pub fn without(&self, names: &[Arc<str>]) -> NameSet {
        self.intersection(&NameSet::all_except(names.iter().cloned()))
    }

    /// Whether everything in this set is in the other too.
    #[must_use]
    pub fn is_within(&self, other: &NameSet) -> bool {
        match (self, other) {
            (NameSet::Only(one), _) => one.iter().all(|name| other.contains(name)),
            (NameSet::AllExcept(one), NameSet::AllExcept(two)) => two.is_subset(one),
            (NameSet::AllExcept(_), NameSet::Only(_)) => false,
        }
    }
}

impl fmt::Display for NameSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, names) = match self {
            NameSet::Only(names) if names.is_empty() => return out.write_str("none"),
            NameSet::AllExcept(names) if names.is_empty() => return out.write_str("all"),
            NameSet::Only(names) => ("only ", names),
            NameSet::AllExcept(names) => ("all but ", names),
        };
        out.write_str(word)?;
        for (place, name) in names.iter().enumerate() {
            let separator = if place == 0 { "" } else { ", " };
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
