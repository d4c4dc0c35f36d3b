//! What an agent may do and may grant. Tools declare effects, grants say what is allowed, [`judge`] decides; nothing
//! here knows a tool's name. Missing policy means no.

mod permissions;
mod budget;
mod effect;
mod explain;
mod directory_set;
mod grant;
mod judge;
mod name_set;
mod preset;
mod targets;
#[cfg(test)]
mod tests;

pub use permissions::{Permissions, Dimension, LineageLink, Reasons, ceiling, effective};
pub use budget::{Budget, Resource};
pub use effect::{Effect, Relation};
pub use explain::{Limit, GrantKind, explain};
pub use directory_set::{FilePath, DirectorySet, PathFault, RootedPath};
pub use grant::Grant;
pub use judge::{Denial, Permit, Verdict, judge};
pub use name_set::NameSet;
pub use preset::{GrantRequest, Level, Narrowing, Preset, PresetFault, Presets, ResolvedPreset};
pub use targets::Targets;

/// How deep a tree of agents may be: an agent without a parent is at 0.
pub const DEPTH_MAX: u32 = 5;
