//! Daemon methods: create, destroy and list agents, shut down, discover.

use agent::journal::RestartPolicy;
use agent::permission::{Budget, FilePath, Level, Resource};
use agent::{AgentId, Fault, FaultKind, Halt, MessageSource};
use nexus3_protocol::methods::{
    self, AgentSummary, BudgetParams, CreateAgentOutput, CreateAgentParams, DamagedAgentSummary,
    DestroyAgentOutput, DestroyAgentParams, DiscoverOutput, InitialError, InitialResponse, ListAgentsOutput,
    ListAgentsParams, MayGrantParams, NoParams, ShutdownServerOutput, spec,
};
use runtime::{
    AgentRef, AgentSpec, ChildPolicy, DamagedAgent, FirstMessage, ListScope, MayGrantSpec, NameSpec,
    PermissionSpec,
};

use super::approvals::parse_rules;
use super::conversation::{SOURCE_DEFAULT, request_id_to_wire, send_output, to_usize};
use crate::caller::Principal;
use crate::dispatcher::Dispatcher;
use crate::fault::rpc_error_logged;
use crate::local_time::format_local;
use crate::operation::Handler;

impl Handler<spec::CreateAgent> for Dispatcher {
    async fn handle(
        &self,
        principal: &Principal,
        _: &(),
        params: CreateAgentParams,
    ) -> Result<CreateAgentOutput, Fault> {
        let principal = principal.wake(&self.pool).await?;
        let wait = params.wait_for_initial_response.unwrap_or(false);
        let spec = agent_spec(params)?;
        let created = self.pool.create(spec, principal.initiator()).await?;
        let id = created.handle.id();
        tracing::info!(agent = %id, "agent created");
        let mut output = CreateAgentOutput {
            agent_id: id.to_string(),
            url: format!("/agent/{id}"),
            token: created.capability.reveal().to_owned(),
            initial_request_id: None,
            initial_status: None,
            response: None,
        };
        if let Some((request_id, turn)) = created.initial {
            output.initial_request_id = Some(request_id_to_wire(request_id.clone()));
            if wait {
                output.response = Some(match turn.await {
                    Ok(end) => InitialResponse::Answered(send_output(request_id, end)),
                    Err(fault) => initial_failure(&fault),
                });
            } else {
                output.initial_status = Some("queued".to_owned());
            }
        }
        Ok(output)
    }
}

impl Handler<spec::DestroyAgent> for Dispatcher {
    async fn handle(
        &self,
        principal: &Principal,
        agent: &Option<AgentRef>,
        params: DestroyAgentParams,
    ) -> Result<DestroyAgentOutput, Fault> {
        let principal = principal.wake(&self.pool).await?;
        let children =
            if params.orphan.unwrap_or(false) { ChildPolicy::Orphan } else { ChildPolicy::Cascade };
        let success = match agent {
            Some(agent) => self.pool.destroy(agent, children, principal.initiator()).await?,
            None => false,
        };
        if success {
            tracing::info!(agent = params.agent_id, "agent destroyed");
        }
        Ok(DestroyAgentOutput { success, agent_id: params.agent_id })
    }
}

impl Handler<spec::ListAgents> for Dispatcher {
    async fn handle(
        &self,
        principal: &Principal,
        _: &(),
        params: ListAgentsParams,
    ) -> Result<ListAgentsOutput, Fault> {
        let offset = params.offset.map_or(0, |offset| to_usize(offset.0));
        let limit = params.limit.map_or(usize::MAX, |limit| to_usize(limit.0));
        let page = self.pool.list_page(listing_scope(principal), offset, limit).await?;
        Ok(ListAgentsOutput {
            agents: page.agents.into_iter().map(|agent| self.agent_summary(agent)).collect(),
            total: page.total as u64,
            damaged: damaged_summaries(page.damaged),
        })
    }
}

impl Handler<spec::ShutdownServer> for Dispatcher {
    async fn handle(&self, _: &Principal, _: &(), _: NoParams) -> Result<ShutdownServerOutput, Fault> {
        self.pool.request_stop();
        Ok(ShutdownServerOutput { success: true, message: "Server shutting down".to_owned() })
    }
}

impl Handler<spec::Discover> for Dispatcher {
    async fn handle(&self, _: &Principal, _: &(), _: NoParams) -> Result<DiscoverOutput, Fault> {
        serde_json::from_str(nexus3_protocol::OPENRPC).map(DiscoverOutput).map_err(|fault| {
            Fault::new(FaultKind::Internal, "Internal error: the method list is damaged").caused_by(fault)
        })
    }
}

impl Dispatcher {
    pub(super) fn agent_summary(&self, agent: runtime::AgentStatus) -> AgentSummary {
        let zone = &self.options.zone;
        let is_unrestricted =
            matches!(agent.write_directories.as_slice(), [root] if *root == FilePath::root());
        let write_paths = agent.write_directories.iter().map(ToString::to_string).collect();
        AgentSummary {
            agent_id: agent.id.to_string(),
            is_temp: agent.id.is_temporary(),
            created_at: format_local(agent.created_at, zone),
            message_count: agent.message_count as u64,
            should_shutdown: agent.should_shutdown,
            parent_agent_id: agent.parent.map(|parent| parent.to_string()),
            child_count: agent.child_count as u64,
            halted_at_iteration_limit: agent.halted == Some(Halt::IterationLimit),
            model: agent.model.map(|model| model.to_string()),
            last_action_at: agent.last_action_at.map(|timestamp| format_local(timestamp, zone)),
            permission_level: agent.level.name().to_owned(),
            cwd: agent.cwd.to_string(),
            write_paths: (!is_unrestricted).then_some(write_paths),
            preset: agent.preset.to_string(),
            state: agent.state.name().to_owned(),
        }
    }
}

/// Returns the damaged agents of a listing, without the causes, which are for the log.
pub(super) fn damaged_summaries(damaged: Vec<DamagedAgent>) -> Vec<DamagedAgentSummary> {
    let summary = |agent: DamagedAgent| DamagedAgentSummary {
        agent_id: agent.id.to_string(),
        error: agent.fault.public.into_owned(),
    };
    damaged.into_iter().map(summary).collect()
}

/// Returns which agents a caller may list: all, or itself and its descendants.
pub(super) fn listing_scope(principal: &Principal) -> ListScope<'_> {
    match principal {
        Principal::Admin => ListScope::All,
        Principal::Agent(own) => ListScope::Subtree(own),
    }
}

/// Validates the parameters of `create_agent` and converts them to the runtime's specification.
fn agent_spec(params: CreateAgentParams) -> Result<AgentSpec, Fault> {
    let id = params.agent_id.as_deref().map(|id| parse_id("agent_id", id)).transpose()?;
    let name = match (id, params.temporary.unwrap_or(false)) {
        (Some(_), true) => return Err(invalid("temporary cannot be combined with agent_id")),
        (Some(id), false) => NameSpec::Given(id),
        (None, true) => NameSpec::NextTemporary,
        (None, false) => NameSpec::Generated,
    };
    let parent = params.parent_agent_id.as_deref().map(|id| parse_id("parent_agent_id", id)).transpose()?;
    if params.initial_message.as_ref().is_some_and(|text| text.trim().is_empty()) {
        return Err(invalid("initial_message cannot be empty"));
    }
    let source = MessageSource { kind: Some(SOURCE_DEFAULT.to_owned()), agent: None };
    Ok(AgentSpec {
        name,
        system_prompt: params.system_prompt,
        parent,
        cwd: params.cwd,
        model: params.model,
        permissions: PermissionSpec {
            preset: params.preset,
            tools: params.tools.map(|names| parse_granted_tools("tools", names)).transpose()?,
            disable_tools: parse_tool_names("disable_tools", params.disable_tools.unwrap_or_default())?,
            write_paths: params.allowed_write_paths,
            commands: params.allowed_commands,
            hosts: params.allowed_hosts,
            denied_hosts: params.denied_hosts.unwrap_or_default(),
            may_create: params.may_create,
            may_grant: params.may_grant.map(parse_may_grant).transpose()?,
            rules: parse_rules(params.ask, params.allow, params.deny)?,
            budget: params.budget.map_or_else(Budget::unlimited, |budget| parse_budget(&budget)),
        },
        level_max: Some(Level::Trusted),
        initial: params.initial_message.map(|text| FirstMessage { text, source }),
        on_restart: params.on_restart.map(restart_policy_from_wire),
        origin: None,
    })
}

pub(crate) fn parse_may_grant(params: MayGrantParams) -> Result<MayGrantSpec, Fault> {
    Ok(MayGrantSpec {
        preset: params.preset,
        tools: params.tools.map(|names| parse_granted_tools("may_grant.tools", names)).transpose()?,
        disable_tools: parse_tool_names("may_grant.disable_tools", params.disable_tools.unwrap_or_default())?,
        write_paths: params.allowed_write_paths,
        commands: params.allowed_commands,
        hosts: params.allowed_hosts,
        denied_hosts: params.denied_hosts.unwrap_or_default(),
        may_create: params.may_create,
    })
}

/// Maximum length of a tool name.
const TOOL_NAME_CHARS_MAX: usize = 128;

/// Validates a list of granted tools; `*` in it stands for all tools of the preset, beside those that have to be named.
pub(crate) fn parse_granted_tools(parameter: &str, names: Vec<String>) -> Result<Vec<String>, Fault> {
    let (wildcard, names): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| name == "*");
    Ok([parse_tool_names(parameter, names)?, wildcard].concat())
}

/// Validates tool names. An unknown but well-formed name is accepted, since a tool of that name may be added later.
pub(crate) fn parse_tool_names(parameter: &str, names: Vec<String>) -> Result<Vec<String>, Fault> {
    let is_valid = |name: &str| {
        (1..=TOOL_NAME_CHARS_MAX).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    match names.iter().position(|name| !is_valid(name)) {
        None => Ok(names),
        Some(index) => Err(invalid(&format!(
            "{parameter}[{index}] must be a tool's name: 1 to {TOOL_NAME_CHARS_MAX} letters, digits, '.', '_' and '-'"
        ))),
    }
}

pub(crate) fn parse_budget(params: &BudgetParams) -> Budget {
    budget_limits(params).into_iter().fold(Budget::unlimited(), |budget, (resource, limit)| {
        if limit.is_some() { budget.with_limit(resource, limit) } else { budget }
    })
}

pub(super) fn budget_limits(params: &BudgetParams) -> [(Resource, Option<u64>); 5] {
    [
        (Resource::Turns, params.turns),
        (Resource::ToolCalls, params.tool_calls),
        (Resource::Tokens, params.tokens),
        (Resource::WallMs, params.wall_ms),
        (Resource::Children, params.children),
    ]
}

fn initial_failure(fault: &Fault) -> InitialResponse {
    let error = rpc_error_logged(fault);
    InitialResponse::Failed { error: InitialError { code: error.code, message: error.message } }
}

pub(crate) fn invalid(text: &str) -> Fault {
    Fault::new(FaultKind::Invalid, text.to_owned())
}

pub(crate) fn restart_policy_from_wire(policy: methods::OnRestart) -> RestartPolicy {
    match policy {
        methods::OnRestart::Resume => RestartPolicy::Resume,
        methods::OnRestart::Mark => RestartPolicy::Mark,
    }
}

pub(crate) fn restart_policy_to_wire(policy: RestartPolicy) -> methods::OnRestart {
    match policy {
        RestartPolicy::Resume => methods::OnRestart::Resume,
        RestartPolicy::Mark => methods::OnRestart::Mark,
    }
}

pub(crate) fn parse_id(parameter: &str, text: &str) -> Result<AgentId, Fault> {
    AgentId::parse(text).map_err(|fault| invalid(&format!("{parameter} invalid: {fault}")))
}
