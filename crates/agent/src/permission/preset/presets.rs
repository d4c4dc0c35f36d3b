//! The presets of a daemon, by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::builtin::{sandboxed, trusted, worker, yolo};
use super::{Level, Narrowing, Preset, PresetFault};
use crate::permission::{FilePath, NameSet};

/// All presets of a daemon.
#[derive(Debug, Clone)]
pub struct Presets {
    by_name: BTreeMap<Arc<str>, Preset>,
}

impl Presets {
    /// The preset of agents that do not name one.
    pub const DEFAULT: &'static str = "sandboxed";

    /// The four built-in presets; the paths in `blocked` are denied to all of them.
    #[must_use]
    pub fn builtin(blocked: &[FilePath]) -> Self {
        let presets = [yolo(), trusted(), sandboxed(), worker()].map(|mut preset| {
            preset.base_grant.blocked = blocked.to_vec();
            (Arc::clone(preset.name()), preset)
        });
        Self { by_name: BTreeMap::from(presets) }
    }

    /// Adds a preset that narrows the preset `extends`.
    ///
    /// # Errors
    /// When the name is taken, `extends` does not exist, or the preset would widen it.
    pub fn add(&mut self, name: &str, extends: &str, narrowing: Narrowing) -> Result<(), PresetFault> {
        if self.by_name.contains_key(name) {
            return Err(PresetFault::DuplicateName(name.to_owned()));
        }
        let preset = self.find(extends)?.extend(name, narrowing)?;
        // The permission to create from a preset includes narrower presets.
        for other in self.by_name.values_mut() {
            for create in [&mut other.base_grant.create, &mut other.restriction.create] {
                if let NameSet::Only(names) = create
                    && names.contains(extends)
                {
                    names.insert(Arc::clone(preset.name()));
                }
            }
        }
        self.by_name.insert(Arc::clone(preset.name()), preset);
        Ok(())
    }

    /// Looks up a preset.
    ///
    /// # Errors
    /// When there is no preset of that name.
    pub fn find(&self, name: &str) -> Result<&Preset, PresetFault> {
        self.by_name.get(name).ok_or_else(|| PresetFault::Unknown {
            name: name.chars().take(64).collect(),
            choices: self.choices(Level::Yolo),
        })
    }

    /// The names of the presets up to a trust level, for messages.
    #[must_use]
    pub fn choices(&self, level: Level) -> String {
        let names = self.by_name.values().filter(|preset| preset.level <= level);
        names.map(|preset| &**preset.name()).collect::<Vec<_>>().join(", ")
    }
}
