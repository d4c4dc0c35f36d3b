//! Permissions: what an agent may do, and what it may grant to children. Tools declare effects, grants say what is
//! allowed, [`judge`] decides without knowing any tool. Default deny: without a policy nothing is allowed.

mod address_class;
mod approval;
mod budget;
mod directory_identity;
mod directory_set;
mod effect;
mod explain;
mod grant;
mod host;
mod host_pattern;
mod host_set;
mod judge;
mod name_set;
mod permissions;
mod permit;
mod preset;
mod rule;
mod targets;
#[cfg(test)]
mod tests;

pub use address_class::AddressClass;
pub use approval::{
    ApprovalRules, CallReview, Decision, Grantor, Question, RULES_MAX, RuleAction, RuleEntry, RuleScope,
    may_approve, review,
};
pub use budget::{Budget, Resource};
pub use directory_identity::DirectoryIdentity;
pub use directory_set::{DirectorySet, FilePath, PathFault, RootedPath};
pub use effect::{CommandEffect, Confinement, Effect, PROGRAM_NAME_RULE, Relation, is_program_name};
pub use explain::{GrantKind, Limit, explain};
pub use grant::Grant;
pub use host::{Destination, RemoteHost};
pub use host_pattern::{HOST_PATTERN_RULE, HostPattern};
pub use host_set::{HostDenial, HostSet};
pub use judge::{Denial, Verdict, judge};
pub use name_set::NameSet;
pub use permissions::{Dimension, LineageLink, Permissions, Reasons, ceiling, effective};
pub use permit::{ConnectPermit, FilePermit, Permit, ReadPermit, RunPermit, WritePermit};
pub use preset::{
    GrantRequest, Level, Narrowing, Preset, PresetFault, Presets, ResolvedPreset, connects_to_hosts,
};
pub use rule::{CallText, CommandRule, RULE_FORMS, Rule, RuleFault};
pub use targets::Targets;

/// Maximum depth of a tree of agents; a root agent has depth 0.
pub const DEPTH_MAX: u32 = 5;
