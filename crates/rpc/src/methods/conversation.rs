//! Agent methods: send, steer, cancel, shutdown, compact, and reading messages, context and tokens.

use agent::{
    Ending, Fault, Halt, Message, MessageSource, NanoDollars, RequestId, TodoItem, ToolCall, TurnEnd,
    TurnOutcome,
};
use nexus3_protocol::methods::{self, spec};
use nexus3_protocol::methods::{
    CancelOutput, CancelParams, CompactOutput, CompactParams, ContextOutput, MessageView, MessagesOutput,
    MessagesParams, NoParams, SendOutput, SendParams, ShutdownOutput, SteerOutput, SteerParams, TodoEntry,
    TokensOutput, ToolCallView, UsageOutput, UsedTokens,
};
use runtime::{AgentHandle, CompactionCondition, CompactionOutcome, NewMessage};
use serde_json::{Map, Value};

use crate::caller::Principal;
use crate::dispatcher::Dispatcher;
use crate::events::message_event;
use crate::images::load_images;
use crate::operation::Handler;

/// Source of a message whose sender gives none.
pub(super) const SOURCE_DEFAULT: &str = "rpc";

impl Handler<spec::Send> for Dispatcher {
    async fn handle(
        &self,
        principal: &Principal,
        agent: &AgentHandle,
        params: SendParams,
    ) -> Result<SendOutput, Fault> {
        let message = self.new_message(principal, agent, params).await?;
        let request_id = message.request_id.clone();
        let end = agent.send(message).await?;
        Ok(send_output(request_id, end))
    }
}

impl Dispatcher {
    /// Converts the parameters of `send` to a message for the runtime.
    pub(crate) async fn new_message(
        &self,
        principal: &Principal,
        agent: &AgentHandle,
        params: SendParams,
    ) -> Result<NewMessage, Fault> {
        let request_id = match params.request_id {
            Some(id) => request_id_from_wire(id),
            None => self.pool.generate_request_id()?,
        };
        let source = message_source(principal, params.source, params.source_agent_id);
        let images = load_images(agent, params.images.unwrap_or_default()).await?;
        Ok(NewMessage { text: params.content, images, request_id, source })
    }
}

/// Converts a turn's end to the result of `send`.
pub(crate) fn send_output(request_id: RequestId, end: TurnEnd) -> SendOutput {
    SendOutput {
        cancelled: end.outcome == TurnOutcome::Cancelled,
        content: end.content,
        request_id: request_id_to_wire(request_id),
        halted_at_iteration_limit: end.halted == Some(Halt::IterationLimit),
        halted: end.halted.map(|halt| halt.name().to_owned()),
        usage: end.usage.map(usage_output),
    }
}

pub(crate) fn usage_output(usage: agent::Usage) -> UsageOutput {
    UsageOutput {
        input_tokens: usage.input,
        output_tokens: usage.output,
        cached_tokens: usage.cached,
        estimated_tokens: (usage.estimated > 0).then_some(usage.estimated),
    }
}

impl Handler<spec::Steer> for Dispatcher {
    async fn handle(
        &self,
        principal: &Principal,
        agent: &AgentHandle,
        params: SteerParams,
    ) -> Result<SteerOutput, Fault> {
        let source = message_source(principal, params.source, params.source_agent_id);
        let request_id = agent.steer(params.content, source).await;
        let reason = request_id.is_none().then(|| "no_running_turn_or_full".to_owned());
        let steered = request_id.is_some();
        Ok(SteerOutput { steered, request_id: request_id.map(request_id_to_wire), reason })
    }
}

impl Handler<spec::Cancel> for Dispatcher {
    async fn handle(
        &self,
        _: &Principal,
        agent: &AgentHandle,
        params: CancelParams,
    ) -> Result<CancelOutput, Fault> {
        let cancelled = agent.cancel(request_id_from_wire(params.request_id.clone())).await;
        let reason = (!cancelled).then(|| "not_found_or_completed".to_owned());
        Ok(CancelOutput { cancelled, request_id: params.request_id, reason })
    }
}

impl Handler<spec::Shutdown> for Dispatcher {
    async fn handle(
        &self,
        principal: &Principal,
        agent: &AgentHandle,
        _: NoParams,
    ) -> Result<ShutdownOutput, Fault> {
        let principal = principal.wake(&self.pool).await?;
        self.pool.mark_agent_finished(agent, principal.initiator()).await?;
        Ok(ShutdownOutput { success: true })
    }
}

impl Handler<spec::GetTokens> for Dispatcher {
    async fn handle(&self, _: &Principal, agent: &AgentHandle, _: NoParams) -> Result<TokensOutput, Fault> {
        let tokens = agent.tokens();
        let (size, used) = (tokens.size, tokens.usage_totals);
        Ok(TokensOutput {
            system: size.system,
            dynamic: size.volatile_suffix,
            tools: size.tools,
            messages: size.messages,
            total: size.total,
            budget: size.budget,
            available: size.available,
            remaining: size.remaining,
            used: UsedTokens {
                requests: used.requests,
                input_tokens: used.usage.input,
                output_tokens: used.usage.output,
                cached_tokens: used.usage.cached,
                reasoning_tokens: (used.usage.reasoning > 0).then_some(used.usage.reasoning),
                estimated_tokens: (used.usage.estimated > 0).then_some(used.usage.estimated),
                cost_usd: tokens.cost.map(dollars),
            },
            tree_cost_usd: tokens.tree_cost.map(dollars),
        })
    }
}

/// Converts to dollars for display. An `f64` has 15 digits: below a million dollars, it loses less than a nano-dollar.
#[expect(clippy::cast_precision_loss, reason = "an amount for display")]
fn dollars(cost: NanoDollars) -> f64 {
    cost as f64 / 1e9
}

impl Handler<spec::Compact> for Dispatcher {
    async fn handle(
        &self,
        principal: &Principal,
        agent: &AgentHandle,
        params: CompactParams,
    ) -> Result<CompactOutput, Fault> {
        let principal = principal.wake(&self.pool).await?;
        let condition =
            if params.force.unwrap_or(true) { CompactionCondition::Now } else { CompactionCondition::Full };
        Ok(match agent.compact(condition, principal.initiator()).await? {
            CompactionOutcome::Done { tokens_before, tokens_after } => CompactOutput {
                compacted: true,
                tokens_before: Some(tokens_before),
                tokens_after: Some(tokens_after),
                tokens_saved: Some(tokens_before.saturating_sub(tokens_after)),
                reason: None,
            },
            CompactionOutcome::Nothing => CompactOutput {
                compacted: false,
                tokens_before: None,
                tokens_after: None,
                tokens_saved: None,
                reason: Some("nothing_to_compact".to_owned()),
            },
        })
    }
}

impl Handler<spec::GetContext> for Dispatcher {
    async fn handle(&self, _: &Principal, agent: &AgentHandle, _: NoParams) -> Result<ContextOutput, Fault> {
        let context = agent.context();
        Ok(ContextOutput {
            message_count: context.message_count as u64,
            system_prompt: context.has_system_prompt,
            halted_at_iteration_limit: context.halted == Some(Halt::IterationLimit),
            last_iteration_count: context.last_rounds,
            max_tool_iterations: context.rounds_max,
            todo: context.todo.into_iter().map(todo_entry).collect(),
        })
    }
}

fn todo_entry(item: TodoItem) -> TodoEntry {
    TodoEntry { text: item.text, status: item.status.name().to_owned() }
}

impl Handler<spec::GetMessages> for Dispatcher {
    async fn handle(
        &self,
        _: &Principal,
        agent: &AgentHandle,
        params: MessagesParams,
    ) -> Result<MessagesOutput, Fault> {
        let offset = params.offset.unwrap_or_default().0;
        let limit = params.limit.unwrap_or_default().0;
        let page = agent.messages(to_usize(offset), to_usize(limit));
        let view = |(index, message): (usize, &std::sync::Arc<Message>)| MessageView {
            index: offset + index as u64,
            message: message_event(message),
        };
        Ok(MessagesOutput {
            agent_id: agent.id().to_string(),
            total: page.total as u64,
            offset,
            limit,
            messages: page.messages.iter().enumerate().map(view).collect(),
        })
    }
}

/// Returns the source of a message. An admin may state any source; for an agent it is always the agent itself.
fn message_source(
    principal: &Principal,
    kind: Option<String>,
    agent: Option<methods::RequestIdParam>,
) -> MessageSource {
    let kind = Some(kind.unwrap_or_else(|| SOURCE_DEFAULT.to_owned()));
    let agent = match principal {
        Principal::Admin => agent.map(request_id_from_wire),
        Principal::Agent(own) => Some(RequestId::Text(own.id().to_string())),
    };
    MessageSource { kind, agent }
}

/// Converts an offset or limit, saturating: no list is longer than `usize::MAX`.
pub(super) fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

pub(crate) fn tool_call_view(call: &ToolCall) -> ToolCallView {
    ToolCallView { id: call.id.clone(), name: call.name.clone(), arguments: call.arguments.clone() }
}

/// Returns the `meta` object of a message: its source, and how it ended if not normally.
pub(crate) fn message_meta(message: &Message) -> Option<Map<String, Value>> {
    let mut meta = Map::new();
    let mut put = |key: &str, value: Value| drop(meta.insert(key.to_owned(), value));
    if let Some(kind) = &message.source.kind {
        put("source", Value::from(kind.as_str()));
    }
    match &message.source.agent {
        Some(RequestId::Text(text)) => put("source_agent_id", Value::from(text.as_str())),
        Some(RequestId::Number(number)) => put("source_agent_id", Value::from(*number)),
        None => {}
    }
    match message.ending {
        Some(Ending::Cancelled) => put("cancelled", Value::Bool(true)),
        Some(Ending::Failed) => put("failed", Value::Bool(true)),
        Some(Ending::Denied) => put("denied", Value::Bool(true)),
        Some(Ending::Interrupted) => put("interrupted", Value::Bool(true)),
        None => {}
    }
    (!meta.is_empty()).then_some(meta)
}

fn request_id_from_wire(id: methods::RequestIdParam) -> RequestId {
    match id {
        methods::RequestIdParam::Text(text) => RequestId::Text(text),
        methods::RequestIdParam::Number(number) => RequestId::Number(number),
    }
}

pub(crate) fn request_id_to_wire(id: RequestId) -> methods::RequestIdParam {
    match id {
        RequestId::Text(text) => methods::RequestIdParam::Text(text),
        RequestId::Number(number) => methods::RequestIdParam::Number(number),
    }
}
