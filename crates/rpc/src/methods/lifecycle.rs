//! Lifecycle methods: list, fork, roll back, rename, export and import agents.

use std::sync::Arc;

use agent::{Fault, Message};
use nexus3_protocol::methods::{
    ExportAgentOutput, ExportAgentParams, ForkAgentOutput, ForkAgentParams, ImportAgentOutput,
    ImportAgentParams, ListSessionsOutput, ListSessionsParams, PageSize, RenameAgentOutput,
    RenameAgentParams, RollbackAgentOutput, RollbackAgentParams, SessionSummary, UndoTurnOutput,
    UndoTurnParams, spec,
};
use runtime::{AgentHandle, AgentRef, AgentStatus, Fork};

use super::agents::{damaged_summaries, invalid, listing_scope, parse_id, restart_policy_to_wire};
use super::conversation::to_usize;
use crate::caller::Principal;
use crate::dispatcher::Dispatcher;
use crate::local_time::format_local;
use crate::operation::Handler;
use crate::snapshot::{ImportContext, ParsedSnapshot, Snapshot};

/// Maximum text size of one export: the largest response a client reads, less the overhead of JSON.
const EXPORT_BYTES_MAX: usize = 32 * 1024 * 1024;

impl Handler<spec::ListSessions> for Dispatcher {
    async fn handle(
        &self,
        principal: &Principal,
        _: &(),
        params: ListSessionsParams,
    ) -> Result<ListSessionsOutput, Fault> {
        let offset = params.offset.map_or(0, |offset| to_usize(offset.0));
        let limit = to_usize(params.limit.unwrap_or_default().0);
        let page = self.pool.list_page(listing_scope(principal), offset, limit).await?;
        Ok(ListSessionsOutput {
            sessions: page.agents.into_iter().map(|agent| self.session_summary(agent)).collect(),
            total: page.total as u64,
            damaged: damaged_summaries(page.damaged),
        })
    }
}

impl Handler<spec::ForkAgent> for Dispatcher {
    async fn handle(
        &self,
        principal: &Principal,
        source: &AgentRef,
        params: ForkAgentParams,
    ) -> Result<ForkAgentOutput, Fault> {
        let new_id = params.new_agent_id.as_deref().map(|id| parse_id("new_agent_id", id)).transpose()?;
        let principal = principal.wake(&self.pool).await?;
        let source = self.pool.wake(source).await?;
        let fork = Fork { id: new_id, messages: params.messages.map(to_usize) };
        let created = self.pool.fork(&source, fork, principal.initiator()).await?;
        let id = created.handle.id();
        tracing::info!(agent = %id, source = %source.id(), "agent forked");
        Ok(ForkAgentOutput {
            agent_id: id.to_string(),
            url: format!("/agent/{id}"),
            token: created.capability.reveal().to_owned(),
            message_count: created.handle.context().message_count as u64,
        })
    }
}

impl Handler<spec::RollbackAgent> for Dispatcher {
    async fn handle(
        &self,
        principal: &Principal,
        agent: &AgentRef,
        params: RollbackAgentParams,
    ) -> Result<RollbackAgentOutput, Fault> {
        let principal = principal.wake(&self.pool).await?;
        let agent = self.pool.wake(agent).await?;
        let removed = agent.rollback(to_usize(params.messages), principal.initiator()).await?;
        Ok(RollbackAgentOutput {
            agent_id: agent.id().to_string(),
            message_count: params.messages,
            removed: removed as u64,
        })
    }
}

impl Handler<spec::UndoTurn> for Dispatcher {
    async fn handle(
        &self,
        principal: &Principal,
        agent: &AgentRef,
        params: UndoTurnParams,
    ) -> Result<UndoTurnOutput, Fault> {
        let principal = principal.wake(&self.pool).await?;
        let agent = self.pool.wake(agent).await?;
        let undone = agent.undo_turn(params.turn, principal.initiator()).await?;
        Ok(UndoTurnOutput {
            agent_id: agent.id().to_string(),
            turn: undone.turn,
            restored: undone.restored.iter().map(ToString::to_string).collect(),
        })
    }
}

impl Handler<spec::RenameAgent> for Dispatcher {
    async fn handle(
        &self,
        principal: &Principal,
        agent: &AgentRef,
        params: RenameAgentParams,
    ) -> Result<RenameAgentOutput, Fault> {
        let new_id = parse_id("new_agent_id", &params.new_agent_id)?;
        let principal = principal.wake(&self.pool).await?;
        let renamed = self.pool.rename(agent, new_id, principal.initiator()).await?;
        tracing::info!(agent = params.agent_id, to = %renamed.id(), "agent renamed");
        Ok(RenameAgentOutput { agent_id: renamed.id().to_string(), url: format!("/agent/{}", renamed.id()) })
    }
}

impl Handler<spec::ExportAgent> for Dispatcher {
    async fn handle(
        &self,
        _: &Principal,
        agent: &AgentRef,
        _: ExportAgentParams,
    ) -> Result<ExportAgentOutput, Fault> {
        let agent = self.pool.wake(agent).await?;
        let (record, status, messages) = (agent.record(), self.pool.status(&agent), all_messages(&agent)?);
        let used = agent.tokens().usage_totals;
        let snapshot = Snapshot { record: &record, status: &status, used, messages: &messages };
        Ok(ExportAgentOutput { snapshot: snapshot.to_document(&self.options.zone) })
    }
}

impl Handler<spec::ImportAgent> for Dispatcher {
    async fn handle(
        &self,
        principal: &Principal,
        _: &(),
        params: ImportAgentParams,
    ) -> Result<ImportAgentOutput, Fault> {
        let parsed = self.parse_snapshot(params)?;
        let principal = principal.wake(&self.pool).await?;
        let created =
            self.pool.import(parsed.import, principal.initiator()).await.map_err(rename_cwd_in_fault)?;
        let id = created.handle.id();
        tracing::info!(agent = %id, "agent imported");
        Ok(ImportAgentOutput {
            agent_id: id.to_string(),
            url: format!("/agent/{id}"),
            token: created.capability.reveal().to_owned(),
            message_count: created.handle.context().message_count as u64,
            notes: parsed.notes,
        })
    }
}

impl Dispatcher {
    fn parse_snapshot(&self, params: ImportAgentParams) -> Result<ParsedSnapshot, Fault> {
        let context = ImportContext {
            zone: &self.options.zone,
            presets: self.pool.presets(),
            knows_model: &|model| self.pool.has_model(model),
        };
        context.parse(params)
    }

    fn session_summary(&self, agent: AgentStatus) -> SessionSummary {
        let zone = &self.options.zone;
        SessionSummary {
            agent_id: agent.id.to_string(),
            state: agent.state.name().to_owned(),
            created_at: format_local(agent.created_at, zone),
            modified_at: format_local(agent.last_action_at.unwrap_or(agent.created_at), zone),
            message_count: agent.message_count as u64,
            parent_agent_id: agent.parent.map(|parent| parent.to_string()),
            model: agent.model.map(|model| model.to_string()),
            preset: agent.preset.to_string(),
            on_restart: restart_policy_to_wire(agent.on_restart),
            origin: agent.origin,
        }
    }
}

/// Reads all messages page by page; fails if they do not fit into one response.
fn all_messages(agent: &AgentHandle) -> Result<Vec<Arc<Message>>, Fault> {
    let mut messages: Vec<Arc<Message>> = Vec::new();
    let mut bytes = 0;
    loop {
        let page = agent.messages(messages.len(), to_usize(PageSize::MAX));
        let is_end = page.messages.is_empty();
        bytes += page.messages.iter().map(|message| document_bytes(message)).sum::<usize>();
        messages.extend(page.messages);
        if bytes > EXPORT_BYTES_MAX {
            return Err(invalid(&format!(
                "session too large to export: more than {EXPORT_BYTES_MAX} bytes of text; read it with get_messages, \
                 or fork the agent at an earlier message"
            )));
        }
        if is_end || messages.len() >= page.total {
            return Ok(messages);
        }
    }
}

/// Returns the approximate size of a message in an export, where images are base64.
fn document_bytes(message: &Message) -> usize {
    message.text.len() + message.images.iter().map(|image| image.data.len() / 3 * 4).sum::<usize>()
}

/// Renames `cwd`, as the runtime calls it, to the field of the imported document.
fn rename_cwd_in_fault(mut fault: Fault) -> Fault {
    if let Some(rest) = fault.public.strip_prefix("cwd ") {
        fault.public = format!("session.working_directory {rest}").into();
    }
    fault
}
