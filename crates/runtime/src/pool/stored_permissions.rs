//! Conversion between granted and stored permissions. Paths and tool names are stored as resolved at the time of the
//! grant; presets are resolved again on load, and a missing preset allows nothing.

use std::sync::Arc;

use agent::journal::{StoredGrantRequest, StoredPermissions};
use agent::permission::{
    Budget, DirectoryIdentity, FilePath, Grant, GrantRequest, HostPattern, Level, Permissions, Preset,
    Reasons,
};

use super::Pool;
use super::permission_spec::{MayGrantSpec, PermissionSpec};
use crate::lineage::GrantedPermissions;

pub(super) fn to_stored_permissions(preset: &Preset, request: &GrantRequest) -> StoredPermissions {
    StoredPermissions {
        preset: preset.name().to_string(),
        level: preset.level,
        budget: request.budget,
        may: to_stored_request(request),
        may_grant: None,
        rules: request.rules.clone(),
    }
}

pub(super) fn to_stored_request(request: &GrantRequest) -> StoredGrantRequest {
    let strings = |names: &[Arc<str>]| names.iter().map(ToString::to_string).collect();
    StoredGrantRequest {
        tools: request.tools.as_deref().map(strings),
        disable_tools: strings(&request.disable_tools),
        write_paths: request.write_paths.clone(),
        commands: request.commands.as_deref().map(strings),
        hosts: request.hosts.clone(),
        denied_hosts: request.denied_hosts.clone(),
        may_create: request.may_create.as_deref().map(strings),
    }
}

impl Pool {
    /// Restores the permissions of an agent. Its ancestors bound them on use, as always.
    pub(super) fn restore_permissions(
        &self,
        stored: &StoredPermissions,
        cwd: &FilePath,
        identities: &[DirectoryIdentity],
    ) -> GrantedPermissions {
        let found = self.options.presets.find(&stored.preset).ok();
        let permissions = found.and_then(|preset| self.resolve_stored(preset, stored, cwd));
        let level = found.map_or(Level::Sandboxed, |preset| preset.level.min(stored.level));
        let mut permissions = permissions.unwrap_or_else(|| {
            tracing::warn!(
                preset = stored.preset,
                "preset is missing or no longer resolves: the agent may do nothing"
            );
            let reason = format!("preset '{}', which is missing or no longer resolves", stored.preset);
            Permissions::uniform(Grant::nothing(), Reasons::uniform(reason))
        });
        permissions.add_identities(identities);
        GrantedPermissions {
            preset: Arc::from(stored.preset.as_str()),
            level,
            permissions: Arc::new(permissions),
            spec: Arc::new(spec_from_stored(stored)),
            stored: Arc::new(stored.clone()),
        }
    }

    fn resolve_stored(
        &self,
        preset: &Preset,
        stored: &StoredPermissions,
        cwd: &FilePath,
    ) -> Option<Permissions> {
        let own = GrantRequest {
            rules: stored.rules.clone(),
            ..from_stored_request(&stored.may, cwd, stored.budget)
        };
        let may = preset.resolve(&own).ok()?.into_permissions();
        let Some((name, may_grant)) = &stored.may_grant else { return Some(may) };
        let preset = match name {
            None => preset,
            Some(name) => self.options.presets.find(name).ok()?,
        };
        let grant = preset.resolve(&from_stored_request(may_grant, cwd, stored.budget)).ok()?.grant;
        Some(Permissions { may_grant: Arc::new(grant), ..may })
    }
}

fn from_stored_request(stored: &StoredGrantRequest, cwd: &FilePath, budget: Budget) -> GrantRequest {
    let names = |names: &[String]| names.iter().map(|name| Arc::from(name.as_str())).collect();
    GrantRequest {
        cwd: cwd.clone(),
        write_paths: stored.write_paths.clone(),
        tools: stored.tools.as_deref().map(names),
        disable_tools: names(&stored.disable_tools),
        commands: stored.commands.as_deref().map(names),
        hosts: stored.hosts.clone(),
        denied_hosts: stored.denied_hosts.clone(),
        may_create: stored.may_create.as_deref().map(names),
        rules: Vec::new(),
        budget,
    }
}

fn host_strings(hosts: &[HostPattern]) -> Vec<String> {
    hosts.iter().map(ToString::to_string).collect()
}

/// Rebuilds the request from its stored form.
pub(super) fn spec_from_stored(stored: &StoredPermissions) -> PermissionSpec {
    let strings = |paths: &Vec<FilePath>| paths.iter().map(ToString::to_string).collect();
    PermissionSpec {
        preset: Some(stored.preset.clone()),
        tools: stored.may.tools.clone(),
        disable_tools: stored.may.disable_tools.clone(),
        write_paths: stored.may.write_paths.as_ref().map(strings),
        commands: stored.may.commands.clone(),
        hosts: stored.may.hosts.as_deref().map(host_strings),
        denied_hosts: host_strings(&stored.may.denied_hosts),
        may_create: stored.may.may_create.clone(),
        may_grant: stored.may_grant.as_ref().map(|(preset, may_grant)| MayGrantSpec {
            preset: preset.clone(),
            tools: may_grant.tools.clone(),
            disable_tools: may_grant.disable_tools.clone(),
            write_paths: may_grant.write_paths.as_ref().map(strings),
            commands: may_grant.commands.clone(),
            hosts: may_grant.hosts.as_deref().map(host_strings),
            denied_hosts: host_strings(&may_grant.denied_hosts),
            may_create: may_grant.may_create.clone(),
        }),
        rules: stored.rules.clone(),
        budget: stored.budget,
    }
}
