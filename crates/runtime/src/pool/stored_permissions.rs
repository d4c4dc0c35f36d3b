//! What an agent was given, on its way to the store and back. Paths and names of tools are taken as they were found when
//! they were given; presets mean what they mean now, and a preset that is gone means nothing is allowed.

use std::sync::Arc;

use agent::journal::{StoredGrantRequest, StoredPermissions};
use agent::permission::{Budget, FilePath, Grant, GrantRequest, Level, Permissions, Preset, Reasons};

use super::Pool;
use super::permissions::{MayGrantSpec, PermissionSpec};
use crate::lineage::GrantedPermissions;

pub(super) fn to_stored_permissions(preset: &Preset, ask: &GrantRequest) -> StoredPermissions {
    StoredPermissions {
        preset: preset.name().to_string(),
        level: preset.level,
        budget: ask.budget,
        may: to_stored_request(ask),
        may_grant: None,
    }
}

pub(super) fn to_stored_request(ask: &GrantRequest) -> StoredGrantRequest {
    let texts = |names: &[Arc<str>]| names.iter().map(ToString::to_string).collect();
    StoredGrantRequest {
        disable_tools: texts(&ask.disable_tools),
        write_paths: ask.write_paths.clone(),
        may_create: ask.may_create.as_deref().map(texts),
    }
}

impl Pool {
    /// What an agent has that was given this. Whoever is above it limits it as ever, when it is used.
    pub(super) fn restore_permissions(&self, kept: &StoredPermissions, cwd: &FilePath) -> GrantedPermissions {
        let found = self.options.presets.find(&kept.preset).ok();
        let permissions = found.and_then(|preset| self.resolve_stored(preset, kept, cwd));
        let level = found.map_or(Level::Sandboxed, |preset| preset.level.min(kept.level));
        let permissions = permissions.unwrap_or_else(|| {
            tracing::warn!(preset = kept.preset, "the preset is gone or no longer fits: nothing is allowed");
            let reason = format!("preset '{}', which is gone or no longer fits", kept.preset);
            Permissions::uniform(Grant::nothing(), Reasons::uniform(reason))
        });
        GrantedPermissions {
            preset: Arc::from(kept.preset.as_str()),
            level,
            permissions: Arc::new(permissions),
            spec: Arc::new(spec_from_stored(kept)),
            stored: Arc::new(kept.clone()),
        }
    }

    fn resolve_stored(
        &self,
        preset: &Preset,
        kept: &StoredPermissions,
        cwd: &FilePath,
    ) -> Option<Permissions> {
        let may = preset.resolve(&from_stored_request(&kept.may, cwd, kept.budget)).ok()?.into_permissions();
        let Some((name, second)) = &kept.may_grant else { return Some(may) };
        let preset = match name {
            None => preset,
            Some(name) => self.options.presets.find(name).ok()?,
        };
        let grant = preset.resolve(&from_stored_request(second, cwd, kept.budget)).ok()?.grant;
        Some(Permissions { may_grant: Arc::new(grant), ..may })
    }
}

fn from_stored_request(kept: &StoredGrantRequest, cwd: &FilePath, budget: Budget) -> GrantRequest {
    let names = |names: &[String]| names.iter().map(|name| Arc::from(name.as_str())).collect();
    GrantRequest {
        cwd: cwd.clone(),
        write_paths: kept.write_paths.clone(),
        disable_tools: names(&kept.disable_tools),
        may_create: kept.may_create.as_deref().map(names),
        budget,
    }
}

/// The same as somebody would ask for it.
fn spec_from_stored(kept: &StoredPermissions) -> PermissionSpec {
    let texts = |paths: &Vec<FilePath>| paths.iter().map(ToString::to_string).collect();
    PermissionSpec {
        preset: Some(kept.preset.clone()),
        disable_tools: kept.may.disable_tools.clone(),
        write_paths: kept.may.write_paths.as_ref().map(texts),
        may_create: kept.may.may_create.clone(),
        may_grant: kept.may_grant.as_ref().map(|(preset, second)| MayGrantSpec {
            preset: preset.clone(),
            disable_tools: second.disable_tools.clone(),
            write_paths: second.write_paths.as_ref().map(texts),
            may_create: second.may_create.clone(),
        }),
        budget: kept.budget,
    }
}
