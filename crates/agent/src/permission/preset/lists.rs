//! The commands and hosts of a request: lists that a preset has, that a request names, or that the preset excludes.

use std::sync::Arc;

use super::{
    Dimension, GrantRequest, HostPattern, HostSet, ListScope, NameSet, Preset, PresetFault, Reasons,
};

impl Preset {
    pub(super) fn command_set(
        &self,
        request: &GrantRequest,
        reasons: &mut Reasons,
    ) -> Result<NameSet, PresetFault> {
        let most = &self.base_grant.commands;
        let Some(names) = &request.commands else {
            let is_default = self.commands == ListScope::All;
            return Ok(if is_default { most.clone() } else { NameSet::none() });
        };
        if self.commands == ListScope::Never && !names.is_empty() {
            return Err(PresetFault::RunsNoCommands(self.name().to_string()));
        }
        reasons.set(Dimension::Commands, "allowed_commands");
        Ok(NameSet::with_wildcard(names).intersection(most))
    }

    /// Checks that the preset allows every requested command. `resolve` leaves the others out, because the list of a
    /// preset may have become shorter since the request.
    ///
    /// # Errors
    /// When a command is beyond the preset.
    pub fn check_commands(&self, request: &GrantRequest) -> Result<(), PresetFault> {
        let most = &self.base_grant.commands;
        let is_beyond = |name: &&Arc<str>| !NameSet::with_wildcard([*name]).is_within(most);
        match request.commands.iter().flatten().find(is_beyond) {
            None => Ok(()),
            Some(command) => Err(PresetFault::CommandBeyondPreset {
                command: command.to_string(),
                name: self.name().to_string(),
                allowed: most.clone(),
            }),
        }
    }

    /// The hosts of a request. Denied hosts are denied even if the preset or the request lists them.
    pub(super) fn host_set(
        &self,
        request: &GrantRequest,
        reasons: &mut Reasons,
    ) -> Result<HostSet, PresetFault> {
        let most = &self.base_grant.hosts;
        let hosts = match &request.hosts {
            None if self.hosts == ListScope::All => most.clone(),
            None => HostSet::none(),
            Some(patterns) => {
                if self.hosts == ListScope::Never && !patterns.is_empty() {
                    return Err(PresetFault::ConnectsNowhere(self.name().to_string()));
                }
                reasons.set(Dimension::Hosts, "allowed_hosts");
                HostSet::new(patterns.iter().cloned(), []).intersection(most)
            }
        };
        if !request.denied_hosts.is_empty() {
            let reason =
                if request.hosts.is_some() { "allowed_hosts and denied_hosts" } else { "denied_hosts" };
            reasons.set(Dimension::Hosts, reason);
        }
        Ok(hosts.intersection(&HostSet::all_except(request.denied_hosts.iter().cloned())))
    }

    /// Checks that the preset allows every requested host, as `check_commands` does for commands.
    ///
    /// # Errors
    /// When a host is beyond the preset.
    pub fn check_hosts(&self, request: &GrantRequest) -> Result<(), PresetFault> {
        let most = &self.base_grant.hosts;
        match request.hosts.iter().flatten().find(|host| !is_allowed(host, most)) {
            None => Ok(()),
            Some(host) => Err(PresetFault::HostBeyondPreset {
                host: host.clone(),
                name: self.name().to_string(),
                allowed: most.clone(),
            }),
        }
    }
}

/// Whether a set allows what it does not deny of a pattern.
pub(super) fn is_allowed(host: &HostPattern, hosts: &HostSet) -> bool {
    HostSet::new([host.clone()], hosts.denied().iter().cloned()).is_within(hosts)
}
