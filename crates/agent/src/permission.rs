//! What an agent may do and may grant. Tools declare effects, grants say what is allowed, [`judge`] decides; nothing
//! here knows a tool's name. Missing policy means no.

mod budget;
mod directory_set;
mod effect;
mod explain;
mod grant;
mod judge;
mod name_set;
mod permissions;
mod preset;
mod targets;
#[cfg(test)]
mod tests;

pub use budget::{Budget, Resource};
pub use directory_set::{DirectorySet, FilePath, PathFault, RootedPath};
pub use effect::{Effect, Relation};
pub use explain::{GrantKind, Limit, explain};
pub use grant::Grant;
pub use judge::{Denial, Permit, Verdict, judge};
pub use name_set::NameSet;
pub use permissions::{Dimension, LineageLink, Permissions, Reasons, ceiling, effective};
pub use preset::{GrantRequest, Level, Narrowing, Preset, PresetFault, Presets, ResolvedPreset};
pub use targets::Targets;

/// How deep a tree of agents may be: an agent without a parent is at 0.
pub const DEPTH_MAX: u32 = 5;
