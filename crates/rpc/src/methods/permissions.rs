//! Agent methods that show an agent and its children, and show, explain and change its permissions.

use std::collections::BTreeSet;

use agent::permission::{FilePath, Grant, HostPattern, HostSet, Limit, NameSet, Resource};
use agent::{AgentId, Fault};
use nexus3_protocol::methods::{
    AgentOutput, ChildrenOutput, GrantView, HostSetView, LimitView, NameSetView, NoParams, PermissionsOutput,
    ResourceUsageView, SetPermissionsParams, spec,
};
use runtime::{AgentHandle, AgentPermissions, PermissionChange, ResourceUsage};

use super::agents::{
    budget_limits, damaged_summaries, invalid, parse_granted_tools, parse_may_grant, parse_tool_names,
};
use super::approvals::{parse_rule_lists, rule_view};
use crate::caller::Principal;
use crate::dispatcher::Dispatcher;
use crate::operation::Handler;

impl Handler<spec::GetAgent> for Dispatcher {
    async fn handle(&self, _: &Principal, agent: &AgentHandle, _: NoParams) -> Result<AgentOutput, Fault> {
        let status = self.pool.status(agent);
        let permissions = self.pool.permissions(agent);
        Ok(AgentOutput {
            depth: status.depth.into(),
            ancestors: id_strings(&permissions.ancestors),
            children: id_strings(&self.pool.child_ids(agent)),
            tools: agent.tool_names().iter().map(ToString::to_string).collect(),
            working: status.is_working,
            queued: status.open_turns.saturating_sub(usize::from(status.is_working)) as u64,
            halted: status.halted.map(|halt| halt.name().to_owned()),
            budget: permissions.resource_usage.iter().map(resource_usage_view).collect(),
            agent: self.agent_summary(status),
        })
    }
}

impl Handler<spec::ListChildren> for Dispatcher {
    async fn handle(&self, _: &Principal, agent: &AgentHandle, _: NoParams) -> Result<ChildrenOutput, Fault> {
        let page = self.pool.children(agent).await?;
        Ok(ChildrenOutput {
            agent_id: agent.id().to_string(),
            children: page.agents.into_iter().map(|child| self.agent_summary(child)).collect(),
            damaged: damaged_summaries(page.damaged),
        })
    }
}

impl Handler<spec::GetPermissions> for Dispatcher {
    async fn handle(
        &self,
        _: &Principal,
        agent: &AgentHandle,
        _: NoParams,
    ) -> Result<PermissionsOutput, Fault> {
        Ok(permissions_output(&self.pool.permissions(agent)))
    }
}

impl Handler<spec::SetPermissions> for Dispatcher {
    async fn handle(
        &self,
        principal: &Principal,
        agent: &AgentHandle,
        params: SetPermissionsParams,
    ) -> Result<PermissionsOutput, Fault> {
        let change = permission_change(params)?;
        let principal = principal.wake(&self.pool).await?;
        self.pool.change_permissions(agent, &change, principal.initiator()).await?;
        Ok(permissions_output(&self.pool.permissions(agent)))
    }
}

fn permission_change(params: SetPermissionsParams) -> Result<PermissionChange, Fault> {
    let limits: Vec<_> =
        params.budget.iter().flat_map(budget_limits).filter(|(_, limit)| limit.is_some()).collect();
    let mut budget = limits.clone();
    for name in params.unlimited.unwrap_or_default() {
        let resource = Resource::ALL.into_iter().find(|resource| resource.name() == name);
        let resource = resource.ok_or_else(|| {
            let known = Resource::ALL.map(Resource::name).join(", ");
            invalid(&format!("unlimited must hold names of {known}, got: '{}'", excerpt(&name)))
        })?;
        if limits.iter().any(|(limited, _)| *limited == resource) {
            return Err(invalid(&format!("unlimited and budget both name {resource}")));
        }
        budget.push((resource, None));
    }
    let tool_names = |parameter, names: Option<Vec<String>>| {
        names.map(|names| parse_tool_names(parameter, names)).transpose()
    };
    Ok(PermissionChange {
        preset: params.preset,
        tools: params.tools.map(|names| parse_granted_tools("tools", names)).transpose()?,
        disable_tools: tool_names("disable_tools", params.disable_tools)?,
        write_paths: params.allowed_write_paths,
        commands: params.allowed_commands,
        hosts: params.allowed_hosts,
        denied_hosts: params.denied_hosts,
        may_create: params.may_create,
        may_grant: params.may_grant.map(parse_may_grant).transpose()?,
        rules: parse_rule_lists(params.ask, params.allow, params.deny)?,
        budget,
    })
}

fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}

fn permissions_output(permissions: &AgentPermissions) -> PermissionsOutput {
    PermissionsOutput {
        agent_id: permissions.id.to_string(),
        preset: permissions.preset.to_string(),
        permission_level: permissions.level.name().to_owned(),
        ancestors: id_strings(&permissions.ancestors),
        rules: permissions.rules.iter().map(rule_view).collect(),
        may: grant_view(&permissions.may),
        may_grant: grant_view(&permissions.may_grant),
        limits: permissions.limits.iter().map(limit_view).collect(),
        grant_limits: permissions.grant_limits.iter().map(limit_view).collect(),
        budget: permissions.resource_usage.iter().map(resource_usage_view).collect(),
    }
}

fn grant_view(grant: &Grant) -> GrantView {
    let paths = |paths: &[FilePath]| paths.iter().map(ToString::to_string).collect();
    GrantView {
        tools: name_set_view(&grant.tools),
        read: paths(grant.read.roots()),
        write: paths(grant.write.roots()),
        blocked: paths(&grant.blocked),
        commands: name_set_view(&grant.commands),
        unsandboxed: grant.unsandboxed,
        hosts: host_set_view(&grant.hosts),
        create: name_set_view(&grant.create),
        targets: grant.targets.to_string(),
    }
}

fn name_set_view(names: &NameSet) -> NameSetView {
    let list = |names: &BTreeSet<std::sync::Arc<str>>| Some(names.iter().map(ToString::to_string).collect());
    match names {
        NameSet::Only(names) => NameSetView { only: list(names), all_but: None },
        NameSet::AllExcept(names) => NameSetView { only: None, all_but: list(names) },
    }
}

fn host_set_view(hosts: &HostSet) -> HostSetView {
    let list = |hosts: &BTreeSet<HostPattern>| hosts.iter().map(ToString::to_string).collect();
    match hosts.allowed() {
        Some(allowed) => {
            HostSetView { only: Some(list(allowed)), all_but: None, denied: list(hosts.denied()) }
        }
        None => HostSetView { only: None, all_but: Some(list(hosts.denied())), denied: Vec::new() },
    }
}

fn limit_view(limit: &Limit) -> LimitView {
    LimitView {
        limit: limit.dimension.name().to_owned(),
        allows: limit.allows.clone(),
        set_by: limit.set_by.to_string(),
        reason: limit.reason.to_string(),
    }
}

fn resource_usage_view(usage: &ResourceUsage) -> ResourceUsageView {
    ResourceUsageView {
        resource: usage.resource.name().to_owned(),
        limit: usage.limit,
        used: usage.used,
        reserved: usage.reserved,
        left: usage.remaining,
    }
}

fn id_strings(ids: &[AgentId]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}
