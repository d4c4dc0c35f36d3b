//! Budgets: limits on an agent's lifetime consumption. The runtime's ledgers track what is left.

use std::fmt;

/// A limited resource, consumed or held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    /// Turns started.
    Turns,
    /// Tool calls run.
    ToolCalls,
    /// Tokens reported by models, input and output.
    Tokens,
    /// Milliseconds of running turns.
    WallMs,
    /// Live descendants.
    Children,
}

impl Resource {
    /// All resources.
    pub const ALL: [Resource; 5] =
        [Resource::Turns, Resource::ToolCalls, Resource::Tokens, Resource::WallMs, Resource::Children];

    /// The resources that are consumed; children are only held.
    pub const CONSUMED: [Resource; 4] =
        [Resource::Turns, Resource::ToolCalls, Resource::Tokens, Resource::WallMs];

    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Resource::Turns => "turns",
            Resource::ToolCalls => "tool_calls",
            Resource::Tokens => "tokens",
            Resource::WallMs => "wall_ms",
            Resource::Children => "children",
        }
    }

    fn index(self) -> usize {
        match self {
            Resource::Turns => 0,
            Resource::ToolCalls => 1,
            Resource::Tokens => 2,
            Resource::WallMs => 3,
            Resource::Children => 4,
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A limit for each resource; none means unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    limits: [Option<u64>; 5],
}

impl Budget {
    /// No limits.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::default()
    }

    /// A limit of zero for every resource.
    #[must_use]
    pub fn zero() -> Self {
        Self { limits: [Some(0); 5] }
    }

    /// The limit of one resource.
    #[must_use]
    pub fn limit(&self, resource: Resource) -> Option<u64> {
        self.limits[resource.index()]
    }

    /// Replaces the limit of one resource.
    #[must_use]
    pub fn with_limit(mut self, resource: Resource, limit: Option<u64>) -> Self {
        self.limits[resource.index()] = limit;
        self
    }

    /// The tighter limit of each resource.
    #[must_use]
    pub fn intersection(&self, other: &Budget) -> Budget {
        Resource::ALL.into_iter().fold(Budget::default(), |tightest, resource| {
            let tighter = match (self.limit(resource), other.limit(resource)) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            tightest.with_limit(resource, tighter)
        })
    }

    /// Whether no limit is looser than in `other`.
    #[must_use]
    pub fn is_within(&self, other: &Budget) -> bool {
        Resource::ALL.into_iter().all(|resource| match (self.limit(resource), other.limit(resource)) {
            (_, None) => true,
            (Some(own), Some(outer)) => own <= outer,
            (None, Some(_)) => false,
        })
    }
}
