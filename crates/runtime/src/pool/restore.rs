//! What an agent was given, on its way to the store and back. Paths and names of tools are taken as they were found when
//! they were given; presets mean what they mean now, and a preset that is gone means nothing is allowed.

use std::sync::Arc;

use agent::journal::{KeptAsk, KeptRights};
use agent::permission::{Ask, Authority, Budget, FilePath, Grant, Level, Preset, Reasons};

use super::Pool;
use super::rights::{MayGrant, RightsSpec};
use crate::kin::Standing;

pub(super) fn kept_rights(preset: &Preset, ask: &Ask) -> KeptRights {
    KeptRights {
        preset: preset.name().to_string(),
        level: preset.level,
        budget: ask.budget,
        may: kept_ask(ask),
        may_grant: None,
    }
}

pub(super) fn kept_ask(ask: &Ask) -> KeptAsk {
    let texts = |names: &[Arc<str>]| names.iter().map(ToString::to_string).collect();
    KeptAsk {
        disable_tools: texts(&ask.disable_tools),
        write_paths: ask.write_paths.clone(),
        may_create: ask.may_create.as_deref().map(texts),
    }
}

impl Pool {
    /// What an agent has that was given this. Whoever is above it limits it as ever, when it is used.
    pub(super) fn restored(&self, kept: &KeptRights, cwd: &FilePath) -> Standing {
        let found = self.options.presets.find(&kept.preset).ok();
        let authority = found.and_then(|preset| self.restored_authority(preset, kept, cwd));
        let level = found.map_or(Level::Sandboxed, |preset| preset.level.min(kept.level));
        let authority = authority.unwrap_or_else(|| {
            tracing::warn!(preset = kept.preset, "the preset is gone or no longer fits: nothing is allowed");
            let reason = format!("preset '{}', which is gone or no longer fits", kept.preset);
            Authority::same(Grant::nothing(), Reasons::all(reason))
        });
        Standing {
            preset: Arc::from(kept.preset.as_str()),
            level,
            authority: Arc::new(authority),
            rights: Arc::new(asked(kept)),
            kept: Arc::new(kept.clone()),
        }
    }

    fn restored_authority(&self, preset: &Preset, kept: &KeptRights, cwd: &FilePath) -> Option<Authority> {
        let may = preset.resolve(&ask(&kept.may, cwd, kept.budget)).ok()?.authority();
        let Some((name, second)) = &kept.may_grant else { return Some(may) };
        let preset = match name {
            None => preset,
            Some(name) => self.options.presets.find(name).ok()?,
        };
        let grant = preset.resolve(&ask(second, cwd, kept.budget)).ok()?.grant;
        Some(Authority { may_grant: Arc::new(grant), ..may })
    }
}

fn ask(kept: &KeptAsk, cwd: &FilePath, budget: Budget) -> Ask {
    let names = |names: &[String]| names.iter().map(|name| Arc::from(name.as_str())).collect();
    Ask {
        cwd: cwd.clone(),
        write_paths: kept.write_paths.clone(),
        disable_tools: names(&kept.disable_tools),
        may_create: kept.may_create.as_deref().map(names),
        budget,
    }
}

/// The same as somebody would ask for it.
fn asked(kept: &KeptRights) -> RightsSpec {
    let texts = |paths: &Vec<FilePath>| paths.iter().map(ToString::to_string).collect();
    RightsSpec {
        preset: Some(kept.preset.clone()),
        disable_tools: kept.may.disable_tools.clone(),
        write_paths: kept.may.write_paths.as_ref().map(texts),
        may_create: kept.may.may_create.clone(),
        may_grant: kept.may_grant.as_ref().map(|(preset, second)| MayGrant {
            preset: preset.clone(),
            disable_tools: second.disable_tools.clone(),
            write_paths: second.write_paths.as_ref().map(texts),
            may_create: second.may_create.clone(),
        }),
        budget: kept.budget,
    }
}
