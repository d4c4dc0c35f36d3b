//! A set of names: only some, or all but some. Closed under intersection, so ceilings stay exact.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// A set of names.
#[derive(Clone, PartialEq, Eq)]
pub enum Names {
    /// These and no others.
    Only(BTreeSet<Arc<str>>),
    /// Every name, also of things that are not there yet, but these.
    AllBut(BTreeSet<Arc<str>>),
}

impl Names {
    /// No name at all.
    #[must_use]
    pub fn none() -> Self {
        Names::Only(BTreeSet::new())
    }

    /// Every name.
    #[must_use]
    pub fn any() -> Self {
        Names::AllBut(BTreeSet::new())
    }

    /// These names.
    #[must_use]
    pub fn only<T: Into<Arc<str>>>(names: impl IntoIterator<Item = T>) -> Self {
        Names::Only(names.into_iter().map(Into::into).collect())
    }

    /// Every name but these.
    #[must_use]
    pub fn all_but<T: Into<Arc<str>>>(names: impl IntoIterator<Item = T>) -> Self {
        Names::AllBut(names.into_iter().map(Into::into).collect())
    }

    /// Whether a name is in the set.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        match self {
            Names::Only(names) => names.contains(name),
            Names::AllBut(names) => !names.contains(name),
        }
    }

    /// Whether no name is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Names::Only(names) if names.is_empty())
    }

    /// What is in both sets.
    #[must_use]
    pub fn and(&self, other: &Names) -> Names {
        match (self, other) {
            (Names::Only(one), Names::Only(two)) => Names::Only(one.intersection(two).cloned().collect()),
            (Names::Only(only), Names::AllBut(but)) | (Names::AllBut(but), Names::Only(only)) => {
                Names::Only(only.difference(but).cloned().collect())
            }
            (Names::AllBut(one), Names::AllBut(two)) => Names::AllBut(one.union(two).cloned().collect()),
        }
    }

    /// The set without these names.
    #[must_use]
    pub fn without(&self, names: &[Arc<str>]) -> Names {
        self.and(&Names::all_but(names.iter().cloned()))
    }

    /// Whether everything in this set is in the other too.
    #[must_use]
    pub fn within(&self, other: &Names) -> bool {
        match (self, other) {
            (Names::Only(one), _) => one.iter().all(|name| other.contains(name)),
            (Names::AllBut(one), Names::AllBut(two)) => two.is_subset(one),
            (Names::AllBut(_), Names::Only(_)) => false,
        }
    }
}

impl fmt::Display for Names {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, names) = match self {
            Names::Only(names) if names.is_empty() => return out.write_str("none"),
            Names::AllBut(names) if names.is_empty() => return out.write_str("all"),
            Names::Only(names) => ("only ", names),
            Names::AllBut(names) => ("all but ", names),
        };
        out.write_str(word)?;
        for (place, name) in names.iter().enumerate() {
            let separator = if place == 0 { "" } else { ", " };
            write!(out, "{separator}{name}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}
