//! One agent's place in the tree and its permissions: shown, explained and changed.

use agent::permission::{FilePath, Grant, Limit, Names, Resource};
use agent::{AgentId, Fault};
use nexus3_protocol::methods::{
    AgentOutput, ChildrenOutput, GrantView, HoldingView, LimitView, NamesView, NoParams, PermissionsOutput,
    SetPermissionsParams, spec,
};
use runtime::{AgentHandle, AgentRights, Change, Holding};

use super::agents::{invalid, limits_of, may_grant, tool_list};
use crate::caller::Caller;
use crate::desk::Desk;
use crate::dispatch::AgentHandler;

impl AgentHandler<spec::GetAgent> for Desk {
    async fn handle(&self, _: &Caller, agent: &AgentHandle, _: NoParams) -> Result<AgentOutput, Fault> {
        let summary = self.pool.summary(agent);
        let rights = self.pool.rights(agent);
        let children = self.pool.children(agent).await?;
        Ok(AgentOutput {
            depth: summary.depth.into(),
            ancestors: names(&rights.ancestors),
            children: children.iter().map(|child| child.id.to_string()).collect(),
            tools: agent.tool_names().iter().map(ToString::to_string).collect(),
            working: summary.is_working,
            queued: summary.open_turns.saturating_sub(usize::from(summary.is_working)) as u64,
            halted: summary.halted.map(|halt| halt.name().to_owned()),
            budget: rights.holdings.iter().map(holding).collect(),
            agent: self.summary(summary),
        })
    }
}

impl AgentHandler<spec::ListChildren> for Desk {
    async fn handle(&self, _: &Caller, agent: &AgentHandle, _: NoParams) -> Result<ChildrenOutput, Fault> {
        let children = self.pool.children(agent).await?;
        let children = children.into_iter().map(|child| self.summary(child)).collect();
        Ok(ChildrenOutput { agent_id: agent.id().to_string(), children })
    }
}

impl AgentHandler<spec::GetPermissions> for Desk {
    async fn handle(&self, _: &Caller, agent: &AgentHandle, _: NoParams) -> Result<PermissionsOutput, Fault> {
        Ok(permissions(&self.pool.rights(agent)))
    }
}

impl AgentHandler<spec::SetPermissions> for Desk {
    async fn handle(
        &self,
        caller: &Caller,
        agent: &AgentHandle,
        params: SetPermissionsParams,
    ) -> Result<PermissionsOutput, Fault> {
        let change = change(params)?;
        let author = caller.author(&self.pool).await?;
        self.pool.change_rights(agent, &change, author.by()).await?;
        Ok(permissions(&self.pool.rights(agent)))
    }
}

fn change(params: SetPermissionsParams) -> Result<Change, Fault> {
    let limits: Vec<_> =
        params.budget.iter().flat_map(limits_of).filter(|(_, limit)| limit.is_some()).collect();
    let mut budget = limits.clone();
    for name in params.unlimited.unwrap_or_default() {
        let resource = Resource::ALL.into_iter().find(|resource| resource.name() == name);
        let resource = resource.ok_or_else(|| {
            let known = Resource::ALL.map(Resource::name).join(", ");
            invalid(&format!("unlimited must hold names of {known}, got: '{}'", short(&name)))
        })?;
        if limits.iter().any(|(limited, _)| *limited == resource) {
            return Err(invalid(&format!("unlimited and budget both name {resource}")));
        }
        budget.push((resource, None));
    }
    let disable_tools =
        params.disable_tools.map(|names| tool_list("disable_tools", Some(names))).transpose()?;
    let write_paths = params.allowed_write_paths;
    let may_grant = params.may_grant.map(may_grant).transpose()?;
    let (preset, may_create) = (params.preset, params.may_create);
    Ok(Change { preset, disable_tools, write_paths, may_create, may_grant, budget })
}

fn short(text: &str) -> String {
    text.chars().take(64).collect()
}

fn permissions(rights: &AgentRights) -> PermissionsOutput {
    PermissionsOutput {
        agent_id: rights.id.to_string(),
        preset: rights.preset.to_string(),
        permission_level: rights.level.name().to_owned(),
        ancestors: names(&rights.ancestors),
        may: grant(&rights.may),
        may_grant: grant(&rights.may_grant),
        limits: rights.limits.iter().map(limit).collect(),
        grant_limits: rights.grant_limits.iter().map(limit).collect(),
        budget: rights.holdings.iter().map(holding).collect(),
    }
}

fn grant(grant: &Grant) -> GrantView {
    let paths = |paths: &[FilePath]| paths.iter().map(ToString::to_string).collect();
    GrantView {
        tools: set(&grant.tools),
        read: paths(grant.read.roots()),
        write: paths(grant.write.roots()),
        blocked: paths(&grant.blocked),
        commands: set(&grant.commands),
        hosts: set(&grant.hosts),
        create: set(&grant.create),
        targets: grant.targets.to_string(),
    }
}

fn set(names: &Names) -> NamesView {
    let list = |names: &std::collections::BTreeSet<std::sync::Arc<str>>| {
        Some(names.iter().map(ToString::to_string).collect())
    };
    match names {
        Names::Only(names) => NamesView { only: list(names), all_but: None },
        Names::AllBut(names) => NamesView { only: None, all_but: list(names) },
    }
}

fn limit(limit: &Limit) -> LimitView {
    LimitView {
        limit: limit.dimension.name().to_owned(),
        allows: limit.allows.clone(),
        set_by: limit.set_by.to_string(),
        reason: limit.reason.to_string(),
    }
}

fn holding(holding: &Holding) -> HoldingView {
    HoldingView {
        resource: holding.resource.name().to_owned(),
        limit: holding.limit,
        used: holding.used,
        reserved: holding.reserved,
        left: holding.left,
    }
}

fn names(ids: &[AgentId]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}
