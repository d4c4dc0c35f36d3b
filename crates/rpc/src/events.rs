//! Records of the journal and pieces of answers in the words of the wire. A record without a word does not compile. No
//! secret is told: of a record that holds one, only the rest is.

#[cfg(test)]
mod tests;

use agent::journal::{AgentRecord, CompactionRecord, StoredGrantRequest, StoredPermissions, Record, Serial};
use agent::outside::JournalEntry;
use agent::permission::{Budget, FilePath, Resource};
use agent::{Message, RequestId, ToolClass, TurnEnd, TurnOutcome};
use nexus3_protocol::events::{self, Event, KeptEvent, KeptRecord, LiveEvent, NotJournalled};
use nexus3_protocol::methods::{BudgetParams, MayGrantParams};
use runtime::{Delta, DeltaKind, FeedItem};

use crate::fault::as_error;
use crate::images::image_views;
use crate::local_time::utc;
use crate::methods::agents::on_restart_outward;
use crate::methods::calls::{call_view, meta, outward, usage};

/// What the feed tells, as clients see it.
pub(crate) fn event(item: &FeedItem) -> Event {
    let journalled = NotJournalled;
    match item {
        FeedItem::Entry(entry) => kept(entry),
        FeedItem::Delta(delta) => Event::Live(said(delta)),
        FeedItem::Gap { first, last } => {
            Event::Live(LiveEvent::Gap(events::Gap { journalled, first: *first, last: *last }))
        }
        FeedItem::Lagged => Event::Live(LiveEvent::Lagged(events::Lagged { journalled })),
    }
}

fn kept(entry: &JournalEntry) -> Event {
    Event::Kept(Box::new(KeptEvent {
        sequence: entry.sequence,
        agent_id: entry.agent_id.as_ref().map(ToString::to_string),
        number: entry.agent_sequence,
        at: utc(entry.at),
        record: record(entry.agent, &entry.record),
    }))
}

fn record(agent: Serial, record: &Record) -> KeptRecord {
    let said = |text: &String| text.clone();
    match record {
        Record::Created(made) => KeptRecord::AgentCreated(created(agent, made)),
        Record::PermissionsChanged { by, permissions } => {
            KeptRecord::PermissionsChanged(events::PermissionsChanged { by: said(by), permissions: given(permissions) })
        }
        Record::Renamed { by, id } => {
            KeptRecord::AgentRenamed(events::AgentRenamed { by: said(by), new_agent_id: id.to_string() })
        }
        Record::Finished { by } => KeptRecord::AgentFinished(events::AgentFinished { by: said(by) }),
        Record::Destroyed { by } => KeptRecord::AgentDestroyed(events::AgentDestroyed { by: said(by) }),
        Record::TurnAccepted(accepted) => KeptRecord::TurnAccepted(events::TurnAccepted {
            turn: accepted.turn,
            request_id: outward(accepted.request_id.clone()),
            message: message(&accepted.message),
        }),
        Record::TurnBegun { turn } => KeptRecord::TurnBegun(events::TurnBegun { turn: *turn }),
        Record::MessageAdded(kept) => KeptRecord::Message(message(kept)),
        Record::Steered { turn, message: word } => {
            KeptRecord::Steered(events::Steered { turn: *turn, message: message(word) })
        }
        Record::CallBegun { turn, index: place, call_id, tool, class } => KeptRecord::ToolBegun(events::ToolBegun {
            turn: *turn,
            index: *place as u64,
            call_id: said(call_id),
            tool: said(tool),
            class: class_name(*class).to_owned(),
        }),
        Record::CallDone { turn, index: place, outcome } => KeptRecord::ToolDone(events::ToolDone {
            turn: *turn,
            index: *place as u64,
            outcome: outcome.name().to_owned(),
            text: outcome.text().to_owned(),
        }),
        Record::TurnEnded { turn, request_id, end } => KeptRecord::TurnEnded(ended(*turn, request_id, end)),
        Record::TurnReopened { turn, request_id, messages } => {
            let request_id = outward(request_id.clone());
            let messages = *messages as u64;
            KeptRecord::TurnReopened(events::TurnReopened { turn: *turn, request_id, messages })
        }
        Record::RolledBack { by, messages } => {
            KeptRecord::RolledBack(events::RolledBack { by: said(by), messages: *messages as u64 })
        }
        Record::Compacted(folded) => KeptRecord::ContextCompacted(compacted(folded)),
        Record::Denied { principal, action, rule, text } => KeptRecord::Denied(events::Denied {
            principal: said(principal),
            action: said(action),
            rule: said(rule),
            text: said(text),
        }),
        Record::DaemonStarted { version } => {
            KeptRecord::DaemonStarted(events::DaemonStarted { version: said(version) })
        }
        Record::DaemonStopped => KeptRecord::DaemonStopped(events::DaemonStopped {}),
    }
}

fn compacted(folded: &CompactionRecord) -> events::ContextCompacted {
    events::ContextCompacted {
        turn: folded.turn,
        by: folded.by.clone(),
        method: folded.method.name().to_owned(),
        messages_before: folded.messages_before as u64,
        messages_after: folded.messages_after() as u64,
        tokens_before: folded.tokens_before,
        tokens_after: folded.tokens_after,
        note: folded.replacement_text().map(str::to_owned),
    }
}

/// Without the digest of the capability.
fn created(serial: Serial, made: &AgentRecord) -> events::AgentCreated {
    events::AgentCreated {
        by: made.by.clone(),
        serial,
        parent_serial: made.parent,
        created_at: utc(made.created_at),
        system_prompt: made.system_prompt.clone(),
        cwd: made.cwd.to_string(),
        model: made.model.clone(),
        on_restart: on_restart_outward(made.on_restart),
        origin: made.origin.clone(),
        permissions: given(&made.permissions),
    }
}

fn given(permissions: &StoredPermissions) -> events::PermissionsView {
    events::PermissionsView {
        preset: permissions.preset.clone(),
        permission_level: permissions.level.name().to_owned(),
        disable_tools: permissions.may.disable_tools.clone(),
        allowed_write_paths: paths(&permissions.may),
        may_create: permissions.may.may_create.clone(),
        may_grant: may_grant(permissions),
        budget: budget(&permissions.budget),
    }
}

/// What an agent may grant, as it was asked for.
pub(crate) fn may_grant(permissions: &StoredPermissions) -> Option<MayGrantParams> {
    let (preset, ask) = permissions.may_grant.as_ref()?;
    Some(MayGrantParams {
        preset: preset.clone(),
        disable_tools: (!ask.disable_tools.is_empty()).then(|| ask.disable_tools.clone()),
        allowed_write_paths: paths(ask),
        may_create: ask.may_create.clone(),
    })
}

pub(crate) fn paths(ask: &StoredGrantRequest) -> Option<Vec<String>> {
    let texts = |paths: &Vec<FilePath>| paths.iter().map(ToString::to_string).collect();
    ask.write_paths.as_ref().map(texts)
}

pub(crate) fn budget(budget: &Budget) -> BudgetParams {
    BudgetParams {
        turns: budget.limit(Resource::Turns),
        tool_calls: budget.limit(Resource::ToolCalls),
        tokens: budget.limit(Resource::Tokens),
        wall_ms: budget.limit(Resource::WallMs),
        children: budget.limit(Resource::Children),
    }
}

fn message(message: &Message) -> events::Message {
    events::Message {
        role: message.role.as_str().to_owned(),
        content: message.text.clone(),
        images: image_views(message),
        tool_calls: message.tool_calls.iter().map(call_view).collect(),
        tool_call_id: message.tool_call_id.clone(),
        meta: meta(message),
    }
}

fn class_name(class: ToolClass) -> &'static str {
    match class {
        ToolClass::Pure => "pure",
        ToolClass::Keyed => "keyed",
        ToolClass::Once => "once",
    }
}

fn ended(turn: u64, request_id: &RequestId, end: &TurnEnd) -> events::TurnEnded {
    let (outcome, error, reason) = match &end.outcome {
        TurnOutcome::Completed => ("completed", None, None),
        TurnOutcome::Cancelled => ("cancelled", None, None),
        TurnOutcome::Failed(fault) => {
            let error = as_error(fault);
            ("failed", Some(events::TurnError { code: error.code, message: error.message }), None)
        }
        TurnOutcome::Interrupted(why) => ("interrupted", None, Some(why.clone())),
    };
    events::TurnEnded {
        turn,
        request_id: outward(request_id.clone()),
        outcome: outcome.to_owned(),
        content: end.content.clone(),
        rounds: end.rounds,
        halted: end.halted.map(|halt| halt.name().to_owned()),
        usage: end.usage.map(usage),
        error,
        reason,
    }
}

fn said(delta: &Delta) -> LiveEvent {
    let journalled = NotJournalled;
    let (agent_id, request_id) = (delta.name.to_string(), outward(delta.request_id.clone()));
    let (turn, text) = (delta.turn, delta.text.clone());
    match delta.kind {
        DeltaKind::Text => {
            LiveEvent::TextDelta(events::TextDelta { journalled, agent_id, request_id, turn, text })
        }
        DeltaKind::Reasoning => {
            LiveEvent::ReasoningDelta(events::ReasoningDelta { journalled, agent_id, request_id, turn, text })
        }
    }
}
