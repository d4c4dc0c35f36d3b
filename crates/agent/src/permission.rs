//! What an agent may do and may grant. Tools declare effects, grants say what is allowed, [`judge`] decides; nothing
//! here knows a tool's name. Missing policy means no.

mod authority;
mod budget;
mod effect;
mod explain;
mod folders;
mod grant;
mod judge;
mod names;
mod preset;
mod targets;
#[cfg(test)]
mod tests;

pub use authority::{Authority, Dimension, Link, Reasons, ceiling, effective};
pub use budget::{Budget, Resource};
pub use effect::{Effect, Kinship};
pub use explain::{Limit, Whose, explain};
pub use folders::{FilePath, Folders, PathFault, Rooted};
pub use grant::Grant;
pub use judge::{Denial, Permit, Verdict, judge};
pub use names::Names;
pub use preset::{Ask, Level, Narrowing, Preset, PresetFault, Presets, Resolved};
pub use targets::Targets;

/// How deep a tree of agents may be: an agent without a parent is at 0.
pub const DEPTH_MAX: u32 = 5;
