//! The daemon's own methods: creating, destroying and listing agents, stopping, describing itself.

use agent::{AgentId, Fault, FaultKind};
use nexus3_protocol::Method;
use nexus3_protocol::methods::{
    AgentSummary, CreateAgentOutput, CreateAgentParams, DestroyAgentOutput, DestroyAgentParams,
    DiscoverOutput, ListAgentsOutput, NoParams, ShutdownServerOutput, spec,
};
use runtime::AgentSpec;

use crate::caller::Caller;
use crate::desk::Desk;
use crate::dispatch::DaemonHandler;
use crate::local_time::local;

impl DaemonHandler<spec::CreateAgent> for Desk {
    async fn handle(&self, caller: &Caller, params: CreateAgentParams) -> Result<CreateAgentOutput, Fault> {
        caller.must_be_admin(&self.pool, Method::CreateAgent)?;
        let id = params.agent_id.as_deref().map(parse_id).transpose()?;
        let agent = self.pool.create(AgentSpec { id, system_prompt: params.system_prompt })?;
        tracing::info!(agent = %agent.id(), "agent created");
        Ok(CreateAgentOutput { agent_id: agent.id().to_string(), url: format!("/agent/{}", agent.id()) })
    }
}

impl DaemonHandler<spec::DestroyAgent> for Desk {
    async fn handle(&self, caller: &Caller, params: DestroyAgentParams) -> Result<DestroyAgentOutput, Fault> {
        let id = parse_id(&params.agent_id)?;
        caller.may_destroy(&self.pool, id.as_str())?;
        let success = self.pool.destroy(&id).await;
        if success {
            tracing::info!(agent = %id, "agent destroyed");
        }
        Ok(DestroyAgentOutput { success, agent_id: params.agent_id })
    }
}

impl DaemonHandler<spec::ListAgents> for Desk {
    async fn handle(&self, caller: &Caller, _: NoParams) -> Result<ListAgentsOutput, Fault> {
        let only = caller.agent(&self.pool)?;
        let agents =
            self.pool.list().into_iter().filter(|agent| only.as_ref().is_none_or(|id| agent.id == *id));
        Ok(ListAgentsOutput { agents: agents.map(|agent| self.summary(agent)).collect() })
    }
}

impl DaemonHandler<spec::ShutdownServer> for Desk {
    async fn handle(&self, caller: &Caller, _: NoParams) -> Result<ShutdownServerOutput, Fault> {
        caller.must_be_admin(&self.pool, Method::ShutdownServer)?;
        self.pool.request_stop();
        Ok(ShutdownServerOutput { success: true, message: "Server shutting down".to_owned() })
    }
}

impl DaemonHandler<spec::Discover> for Desk {
    async fn handle(&self, caller: &Caller, _: NoParams) -> Result<DiscoverOutput, Fault> {
        caller.agent(&self.pool)?;
        serde_json::from_str(nexus3_protocol::OPENRPC).map(DiscoverOutput).map_err(|fault| {
            Fault::new(FaultKind::Internal, "Internal error: the method list is damaged").caused_by(fault)
        })
    }
}

impl Desk {
    fn summary(&self, agent: runtime::AgentSummary) -> AgentSummary {
        let zone = &self.options.zone;
        AgentSummary {
            agent_id: agent.id.to_string(),
            is_temp: agent.id.is_temporary(),
            created_at: local(agent.created_at, zone),
            message_count: agent.message_count as u64,
            should_shutdown: agent.should_shutdown,
            parent_agent_id: None,
            child_count: 0,
            halted_at_iteration_limit: agent.halted,
            model: agent.model.map(|model| model.to_string()),
            last_action_at: agent.last_action_at.map(|moment| local(moment, zone)),
            permission_level: "SANDBOXED".to_owned(),
            cwd: self.options.cwd.clone(),
            write_paths: None,
        }
    }
}

fn parse_id(text: &str) -> Result<AgentId, Fault> {
    AgentId::parse(text).map_err(|fault| Fault::new(FaultKind::Invalid, format!("agent_id invalid: {fault}")))
}
