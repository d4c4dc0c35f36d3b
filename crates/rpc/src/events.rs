//! Conversion of journal records and streaming deltas to protocol events. A record without an event does not compile.
//! Secrets in records are omitted.

#[cfg(test)]
mod tests;

use agent::journal::{
    AgentRecord, ApprovalAnswer, ApprovalRequest, CompactionRecord, Record, Serial, StoredGrantRequest,
    StoredPermissions,
};
use agent::outside::{JournalEntry, ToolOutputStream};
use agent::permission::{Budget, FilePath, HostPattern, Resource};
use agent::{Message, PrincipalId, RequestId, ToolClass, TurnEnd, TurnOutcome};
use nexus3_protocol::events::{
    self, Event, EventKind, JournalEvent, JournalRecord, LiveEvent, NotJournalled,
};
use nexus3_protocol::methods::{BudgetParams, MayGrantParams};
use runtime::{BusEvent, Delta, DeltaKind};

use crate::fault::rpc_error;
use crate::images::image_views;
use crate::local_time::format_utc;
use crate::methods::agents::restart_policy_to_wire;
use crate::methods::approvals::{approval_arguments, decision_to_wire, rule_view};
use crate::methods::conversation::{message_meta, request_id_to_wire, tool_call_view, usage_output};

/// Converts an event of the bus to a protocol event.
pub(crate) fn event(item: &BusEvent) -> Event {
    let journalled = NotJournalled;
    match item {
        BusEvent::Entry(entry) => journal_event(entry),
        BusEvent::Delta(delta) => Event::Live(delta_event(delta)),
        BusEvent::Gap { first, last } => {
            Event::Live(LiveEvent::Gap(events::Gap { journalled, first: *first, last: *last }))
        }
        BusEvent::Lagged => Event::Live(LiveEvent::Lagged(events::Lagged { journalled })),
    }
}

/// Returns the kind of an event, without converting it.
pub(crate) fn event_kind(item: &BusEvent) -> EventKind {
    match item {
        BusEvent::Entry(entry) => record_kind(&entry.record),
        BusEvent::Delta(delta) => match &delta.kind {
            DeltaKind::Text => EventKind::TextDelta,
            DeltaKind::Reasoning => EventKind::ReasoningDelta,
            DeltaKind::ToolOutput { .. } => EventKind::ToolOutputDelta,
        },
        BusEvent::Gap { .. } => EventKind::Gap,
        BusEvent::Lagged => EventKind::Lagged,
    }
}

fn record_kind(record: &Record) -> EventKind {
    match record {
        Record::Created(_) => EventKind::AgentCreated,
        Record::PermissionsChanged { .. } => EventKind::PermissionsChanged,
        Record::Renamed { .. } => EventKind::AgentRenamed,
        Record::Finished { .. } => EventKind::AgentFinished,
        Record::Destroyed { .. } => EventKind::AgentDestroyed,
        Record::TurnAccepted(_) => EventKind::TurnAccepted,
        Record::TurnBegun { .. } => EventKind::TurnBegun,
        Record::MessageAdded(_) => EventKind::MessageEvent,
        Record::Steered { .. } => EventKind::Steered,
        Record::CallBegun { .. } => EventKind::ToolBegun,
        Record::CallDone { .. } => EventKind::ToolDone,
        Record::ApprovalRequested(_) => EventKind::ApprovalRequested,
        Record::ApprovalAnswered(_) => EventKind::ApprovalAnswered,
        Record::TurnEnded { .. } => EventKind::TurnEnded,
        Record::TurnReopened { .. } => EventKind::TurnReopened,
        Record::TurnUndone { .. } => EventKind::TurnUndone,
        Record::RolledBack { .. } => EventKind::RolledBack,
        Record::Compacted(_) => EventKind::ContextCompacted,
        Record::Denied { .. } => EventKind::Denied,
        Record::DaemonStarted { .. } => EventKind::DaemonStarted,
        Record::DaemonStopped => EventKind::DaemonStopped,
    }
}

/// Converts a journal entry to a protocol event.
pub(crate) fn journal_event(entry: &JournalEntry) -> Event {
    Event::Journalled(Box::new(JournalEvent {
        sequence: entry.sequence,
        agent_id: entry.agent_id.as_ref().map(ToString::to_string),
        number: entry.agent_sequence,
        at: format_utc(entry.at),
        record: journal_record(entry.agent, &entry.record),
    }))
}

fn journal_record(agent: Serial, record: &Record) -> JournalRecord {
    match record {
        Record::Created(record) => JournalRecord::AgentCreated(agent_created(agent, record)),
        Record::PermissionsChanged { by, permissions } => {
            JournalRecord::PermissionsChanged(events::PermissionsChanged {
                by: by.to_string(),
                permissions: permissions_view(permissions),
            })
        }
        Record::Renamed { by, id } => JournalRecord::AgentRenamed(events::AgentRenamed {
            by: by.to_string(),
            new_agent_id: id.to_string(),
        }),
        Record::Finished { by } => JournalRecord::AgentFinished(events::AgentFinished { by: by.to_string() }),
        Record::Destroyed { by } => {
            JournalRecord::AgentDestroyed(events::AgentDestroyed { by: by.to_string() })
        }
        Record::TurnAccepted(accepted) => JournalRecord::TurnAccepted(events::TurnAccepted {
            turn: accepted.turn,
            request_id: request_id_to_wire(accepted.request_id.clone()),
            message: message_event(&accepted.message),
        }),
        Record::TurnBegun { turn } => JournalRecord::TurnBegun(events::TurnBegun { turn: *turn }),
        Record::MessageAdded(message) => JournalRecord::MessageEvent(message_event(message)),
        Record::Steered { turn, message } => {
            JournalRecord::Steered(events::Steered { turn: *turn, message: message_event(message) })
        }
        Record::CallBegun { turn, index, call_id, tool, class } => {
            JournalRecord::ToolBegun(events::ToolBegun {
                turn: *turn,
                index: *index as u64,
                call_id: call_id.clone(),
                tool: tool.clone(),
                class: class_name(*class).to_owned(),
            })
        }
        Record::CallDone { turn, index, outcome } => JournalRecord::ToolDone(events::ToolDone {
            turn: *turn,
            index: *index as u64,
            outcome: outcome.name().to_owned(),
            text: outcome.text().to_owned(),
        }),
        Record::ApprovalRequested(request) => JournalRecord::ApprovalRequested(approval_requested(request)),
        Record::ApprovalAnswered(answer) => JournalRecord::ApprovalAnswered(approval_answered(answer)),
        Record::TurnEnded { turn, request_id, end } => {
            JournalRecord::TurnEnded(turn_ended(*turn, request_id, end))
        }
        Record::TurnReopened { turn, request_id, messages } => {
            let request_id = request_id_to_wire(request_id.clone());
            let messages = *messages as u64;
            JournalRecord::TurnReopened(events::TurnReopened { turn: *turn, request_id, messages })
        }
        Record::TurnUndone { turn, by, paths } => turn_undone(*turn, by, paths),
        Record::RolledBack { by, messages } => {
            JournalRecord::RolledBack(events::RolledBack { by: by.to_string(), messages: *messages as u64 })
        }
        Record::Compacted(compaction) => JournalRecord::ContextCompacted(context_compacted(compaction)),
        Record::Denied { principal, action, rule, text } => JournalRecord::Denied(events::Denied {
            principal: principal.to_string(),
            action: action.clone(),
            rule: rule.clone(),
            text: text.clone(),
        }),
        Record::DaemonStarted { version } => {
            JournalRecord::DaemonStarted(events::DaemonStarted { version: version.clone() })
        }
        Record::DaemonStopped => JournalRecord::DaemonStopped(events::DaemonStopped {}),
    }
}

fn context_compacted(compaction: &CompactionRecord) -> events::ContextCompacted {
    events::ContextCompacted {
        turn: compaction.turn,
        by: compaction.by.to_string(),
        method: compaction.method.name().to_owned(),
        messages_before: compaction.messages_before as u64,
        messages_after: compaction.messages_after() as u64,
        tokens_before: compaction.tokens_before,
        tokens_after: compaction.tokens_after,
        note: compaction.replacement_text().map(str::to_owned),
    }
}

/// Converts an agent's record, without the digest of its capability token.
fn agent_created(serial: Serial, record: &AgentRecord) -> events::AgentCreated {
    events::AgentCreated {
        by: record.by.to_string(),
        serial,
        parent_serial: record.parent,
        created_at: format_utc(record.created_at),
        system_prompt: record.system_prompt.clone(),
        cwd: record.cwd.to_string(),
        model: record.model.clone(),
        on_restart: restart_policy_to_wire(record.on_restart),
        origin: record.origin.clone(),
        permissions: permissions_view(&record.permissions),
    }
}

fn permissions_view(permissions: &StoredPermissions) -> events::PermissionsView {
    events::PermissionsView {
        preset: permissions.preset.clone(),
        permission_level: permissions.level.name().to_owned(),
        tools: permissions.may.tools.clone(),
        disable_tools: permissions.may.disable_tools.clone(),
        allowed_write_paths: write_paths(&permissions.may),
        allowed_commands: permissions.may.commands.clone(),
        allowed_hosts: permissions.may.hosts.as_deref().map(host_texts),
        denied_hosts: host_texts(&permissions.may.denied_hosts),
        may_create: permissions.may.may_create.clone(),
        may_grant: may_grant_params(permissions),
        rules: permissions.rules.iter().map(rule_view).collect(),
        budget: budget_params(&permissions.budget),
    }
}

fn turn_undone(turn: u64, by: &PrincipalId, paths: &[FilePath]) -> JournalRecord {
    let paths = paths.iter().map(ToString::to_string).collect();
    JournalRecord::TurnUndone(events::TurnUndone { turn, by: by.to_string(), paths })
}

fn approval_requested(request: &ApprovalRequest) -> events::ApprovalRequested {
    events::ApprovalRequested {
        approval_id: request.id.clone(),
        turn: request.turn,
        call_id: request.call_id.clone(),
        tool: request.tool.clone(),
        arguments: approval_arguments(request),
        effects: request.effects.clone(),
        reason: request.reason.clone(),
        expires_at: format_utc(request.expires_at),
    }
}

fn approval_answered(answer: &ApprovalAnswer) -> events::ApprovalAnswered {
    events::ApprovalAnswered {
        approval_id: answer.id.clone(),
        turn: answer.turn,
        answer: decision_to_wire(answer.is_allowed),
        by: answer.by.to_string(),
        rule: answer.rule.as_ref().map(rule_view),
        note: answer.note.clone(),
    }
}

/// Returns the `may_grant` parameter an agent was created or changed with.
pub(crate) fn may_grant_params(permissions: &StoredPermissions) -> Option<MayGrantParams> {
    let (preset, request) = permissions.may_grant.as_ref()?;
    Some(MayGrantParams {
        preset: preset.clone(),
        tools: request.tools.clone(),
        disable_tools: (!request.disable_tools.is_empty()).then(|| request.disable_tools.clone()),
        allowed_write_paths: write_paths(request),
        allowed_commands: request.commands.clone(),
        allowed_hosts: request.hosts.as_deref().map(host_texts),
        denied_hosts: (!request.denied_hosts.is_empty()).then(|| host_texts(&request.denied_hosts)),
        may_create: request.may_create.clone(),
    })
}

pub(crate) fn host_texts(hosts: &[HostPattern]) -> Vec<String> {
    hosts.iter().map(ToString::to_string).collect()
}

pub(crate) fn write_paths(request: &StoredGrantRequest) -> Option<Vec<String>> {
    let texts = |paths: &Vec<FilePath>| paths.iter().map(ToString::to_string).collect();
    request.write_paths.as_ref().map(texts)
}

pub(crate) fn budget_params(budget: &Budget) -> BudgetParams {
    BudgetParams {
        turns: budget.limit(Resource::Turns),
        tool_calls: budget.limit(Resource::ToolCalls),
        tokens: budget.limit(Resource::Tokens),
        wall_ms: budget.limit(Resource::WallMs),
        children: budget.limit(Resource::Children),
    }
}

pub(crate) fn message_event(message: &Message) -> events::MessageEvent {
    events::MessageEvent {
        role: message.role.as_str().to_owned(),
        content: message.text.clone(),
        images: image_views(message),
        tool_calls: message.tool_calls.iter().map(tool_call_view).collect(),
        tool_call_id: message.tool_call_id.clone(),
        meta: message_meta(message),
    }
}

fn class_name(class: ToolClass) -> &'static str {
    match class {
        ToolClass::Pure => "pure",
        ToolClass::Keyed => "keyed",
        ToolClass::Once => "once",
    }
}

fn stream_name(stream: ToolOutputStream) -> &'static str {
    match stream {
        ToolOutputStream::Stdout => "stdout",
        ToolOutputStream::Stderr => "stderr",
    }
}

fn turn_ended(turn: u64, request_id: &RequestId, end: &TurnEnd) -> events::TurnEnded {
    let (outcome, error, reason) = match &end.outcome {
        TurnOutcome::Completed => ("completed", None, None),
        TurnOutcome::Cancelled => ("cancelled", None, None),
        TurnOutcome::Failed(fault) => {
            let error = rpc_error(fault);
            ("failed", Some(events::TurnError { code: error.code, message: error.message }), None)
        }
        TurnOutcome::Interrupted(why) => ("interrupted", None, Some(why.clone())),
    };
    events::TurnEnded {
        turn,
        request_id: request_id_to_wire(request_id.clone()),
        outcome: outcome.to_owned(),
        content: end.content.clone(),
        rounds: end.rounds,
        halted: end.halted.map(|halt| halt.name().to_owned()),
        usage: end.usage.map(usage_output),
        error,
        reason,
    }
}

fn delta_event(delta: &Delta) -> LiveEvent {
    let journalled = NotJournalled;
    let (agent_id, request_id) = (delta.agent_id.to_string(), request_id_to_wire(delta.request_id.clone()));
    let (turn, text) = (delta.turn, delta.text.clone());
    match &delta.kind {
        DeltaKind::Text => {
            LiveEvent::TextDelta(events::TextDelta { journalled, agent_id, request_id, turn, text })
        }
        DeltaKind::Reasoning => {
            LiveEvent::ReasoningDelta(events::ReasoningDelta { journalled, agent_id, request_id, turn, text })
        }
        DeltaKind::ToolOutput { call_id, stream } => {
            let (call_id, stream) = (call_id.to_string(), stream_name(*stream).to_owned());
            LiveEvent::ToolOutputDelta(events::ToolOutputDelta {
                journalled,
                agent_id,
                request_id,
                turn,
                call_id,
                stream,
                text,
            })
        }
    }
}
