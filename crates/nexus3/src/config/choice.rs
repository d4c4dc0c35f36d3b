//! Settings whose values are names: the names, and the values that they stand for.

use agent::journal::RestartPolicy;
use runtime::DefaultAnswer;
use store::Durability;
use tracing::Level;

use super::value_kind::{SettingField, SettingValue};

/// An enum type whose values have names in the configuration.
pub(crate) trait Choice: Copy + PartialEq + 'static {
    /// The names.
    const NAMES: &'static [&'static str];
    /// The values, in the order of the names.
    const VALUES: &'static [Self];
}

impl Choice for Level {
    const NAMES: &'static [&'static str] = &["error", "warn", "info", "debug", "trace"];
    const VALUES: &'static [Self] = &[Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
}

impl Choice for Durability {
    const NAMES: &'static [&'static str] = &["full", "normal"];
    const VALUES: &'static [Self] = &[Durability::Full, Durability::Normal];
}

impl Choice for DefaultAnswer {
    const NAMES: &'static [&'static str] = &["deny", "allow"];
    const VALUES: &'static [Self] = &[DefaultAnswer::Deny, DefaultAnswer::Allow];
}

impl Choice for RestartPolicy {
    const NAMES: &'static [&'static str] = &["resume", "mark"];
    const VALUES: &'static [Self] = &[RestartPolicy::Resume, RestartPolicy::Mark];
}

impl<W: Choice> SettingField for W {
    fn set(&mut self, value: SettingValue) -> bool {
        let SettingValue::Text(text) = value else { return false };
        let index = W::NAMES.iter().position(|name| *name == text);
        let Some(value) = index.and_then(|index| W::VALUES.get(index)) else { return false };
        *self = *value;
        true
    }

    fn get(&self) -> SettingValue {
        let index = W::VALUES.iter().position(|value| value == self);
        index.map_or(SettingValue::Unset, |index| SettingValue::Text(W::NAMES[index].to_owned()))
    }
}
