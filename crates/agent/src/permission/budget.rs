//! How much an agent may use up over its life. What is left of it is kept by whoever runs agents.

use std::fmt;

/// Something that is used up, or held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    /// Turns begun.
    Turns,
    /// Tool calls run.
    ToolCalls,
    /// Tokens that models reported, read and written.
    Tokens,
    /// Milliseconds of running turns.
    WallMs,
    /// Children alive at once, and theirs.
    Children,
}

impl Resource {
    /// All of them.
    pub const ALL: [Resource; 5] =
        [Resource::Turns, Resource::ToolCalls, Resource::Tokens, Resource::WallMs, Resource::Children];

    /// What is used up; children are only held.
    pub const CONSUMED: [Resource; 4] =
        [Resource::Turns, Resource::ToolCalls, Resource::Tokens, Resource::WallMs];

    /// The name clients know.
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

/// A limit for each resource; none means no limit.
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

    /// Nothing of anything.
    #[must_use]
    pub fn zero() -> Self {
        Self { limits: [Some(0); 5] }
    }

    /// The limit of one resource.
    #[must_use]
    pub fn limit(&self, resource: Resource) -> Option<u64> {
        self.limits[resource.index()]
    }

    /// The same budget with another limit.
    #[must_use]
    pub fn with_limit(mut self, resource: Resource, limit: Option<u64>) -> Self {
        self.limits[resource.index()] = limit;
        self
    }

    /// The tighter limit of each resource.
    #[must_use]
    pub fn intersection(&self, other: &Budget) -> Budget {
        Resource::ALL.into_iter().fold(Budget::default(), |both, resource| {
            let tighter = match (self.limit(resource), other.limit(resource)) {
                (Some(one), Some(two)) => Some(one.min(two)),
                (one, two) => one.or(two),
            };
            both.with_limit(resource, tighter)
        })
    }

    /// Whether no limit is looser than the other's.
    #[must_use]
    pub fn is_within(&self, other: &Budget) -> bool {
        Resource::ALL.into_iter().all(|resource| match (self.limit(resource), other.limit(resource)) {
            (_, None) => true,
            (Some(own), Some(outer)) => own <= outer,
            (None, Some(_)) => false,
        })
    }
}
