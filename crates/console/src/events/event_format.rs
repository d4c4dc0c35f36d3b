//! One-line format of events: truncated text for users, complete JSON for programs.

use nexus3_protocol::events::{Event, JournalEvent, JournalRecord, LiveEvent, MessageEvent, TurnEnded};
use nexus3_protocol::methods::ApprovalDecision;
use nexus3_protocol::sse::SseEvent;
use serde_json::{Value, json};

use crate::terminal_text::is_dangerous;

/// Maximum length of a text line.
const LINE_CHARS_MAX: usize = 160;

/// Formats an event as one line of JSON: the daemon's data, which includes `kind`.
pub(super) fn format_json(event: &SseEvent) -> String {
    match serde_json::from_str::<Value>(&event.data) {
        Ok(data) if data.is_object() => data.to_string(),
        _ => json!({ "kind": event.event, "data": event.data }).to_string(),
    }
}

/// Formats an event as text: sequence, time, agent, kind, summary.
pub(super) fn format_text(event: &SseEvent) -> String {
    let line = match Event::decode(&event.event, &event.data) {
        Ok(Some(Event::Journalled(event))) => format_journal_event(&event),
        Ok(Some(Event::Live(live))) => format_live_event(&live),
        // Unknown kind or data, as a newer daemon may send.
        Ok(None) | Err(_) => format!("{:>6} {} {}", "-", event.event, event.data),
    };
    truncate(&line)
}

fn format_journal_event(event: &JournalEvent) -> String {
    let (sequence, at, kind) = (event.sequence, &event.at, event.record.kind().name());
    let agent = event.agent_id.as_deref().unwrap_or("daemon");
    format!("{sequence:>6} {at} {agent} {kind} {}", describe_record(&event.record))
}

fn format_live_event(event: &LiveEvent) -> String {
    let kind = event.kind().name();
    match event {
        LiveEvent::TextDelta(delta) => format!("{:>6} {} {kind} {:?}", "-", delta.agent_id, delta.text),
        LiveEvent::ReasoningDelta(delta) => format!("{:>6} {} {kind} {:?}", "-", delta.agent_id, delta.text),
        LiveEvent::ToolOutputDelta(delta) => {
            format!("{:>6} {} {kind} {}: {:?}", "-", delta.agent_id, delta.stream, delta.text)
        }
        LiveEvent::Gap(gap) => {
            format!("{:>6} {kind} events may be missing; the journal has {} to {}", "-", gap.first, gap.last)
        }
        LiveEvent::Lagged(_) => format!("{:>6} {kind} reader too slow: some text was dropped", "-"),
    }
}

fn describe_record(record: &JournalRecord) -> String {
    match record {
        JournalRecord::AgentCreated(created) => {
            let origin = created.origin.as_ref().map(|origin| format!(", from {origin}")).unwrap_or_default();
            format!("by {}, preset {}{origin}", created.by, created.permissions.preset)
        }
        JournalRecord::PermissionsChanged(changed) => {
            format!("by {}, preset {}", changed.by, changed.permissions.preset)
        }
        JournalRecord::AgentRenamed(renamed) => format!("by {}, to {}", renamed.by, renamed.new_agent_id),
        JournalRecord::AgentFinished(finished) => format!("by {}", finished.by),
        JournalRecord::AgentDestroyed(destroyed) => format!("by {}", destroyed.by),
        JournalRecord::TurnAccepted(accepted) => {
            format!(
                "turn {} as {}, {}",
                accepted.turn,
                accepted.request_id,
                describe_message(&accepted.message)
            )
        }
        JournalRecord::TurnBegun(begun) => format!("turn {}", begun.turn),
        JournalRecord::MessageEvent(event) => describe_message(event),
        JournalRecord::Steered(steered) => {
            format!("turn {}, {}", steered.turn, describe_message(&steered.message))
        }
        JournalRecord::ToolBegun(begun) => format!("turn {}, {} ({})", begun.turn, begun.tool, begun.class),
        JournalRecord::ToolDone(done) => format!("turn {}, {}: {:?}", done.turn, done.outcome, done.text),
        JournalRecord::ApprovalRequested(request) => {
            format!(
                "{} {}: {}; {}",
                request.approval_id,
                request.tool,
                request.effects.join(", "),
                request.reason
            )
        }
        JournalRecord::ApprovalAnswered(answered) => {
            let answer = match answered.answer {
                ApprovalDecision::Allow => "allowed",
                ApprovalDecision::Deny => "denied",
            };
            format!("{} {answer} by {}", answered.approval_id, answered.by)
        }
        JournalRecord::TurnEnded(ended) => describe_turn_end(ended),
        JournalRecord::TurnReopened(reopened) => {
            format!("turn {} as {}", reopened.turn, reopened.request_id)
        }
        JournalRecord::ContextCompacted(compacted) => {
            let (before, after) = (compacted.tokens_before, compacted.tokens_after);
            format!("{} by {}: {before} tokens reduced to {after}", compacted.method, compacted.by)
        }
        JournalRecord::TurnUndone(undone) => {
            format!("turn {} by {}, restored: {}", undone.turn, undone.by, undone.paths.join(", "))
        }
        JournalRecord::RolledBack(rolled_back) => {
            format!("by {}, {} messages stay", rolled_back.by, rolled_back.messages)
        }
        JournalRecord::Denied(denied) => format!("{}: {} ({})", denied.action, denied.text, denied.rule),
        JournalRecord::DaemonStarted(started) => format!("nexus3 {}", started.version),
        JournalRecord::DaemonStopped(_) => String::new(),
    }
}

fn describe_message(message: &MessageEvent) -> String {
    let calls = message.tool_calls.iter().map(|call| format!(" calls {}", call.name));
    format!("{}: {:?}{}", message.role, message.content, calls.collect::<String>())
}

fn describe_turn_end(ended: &TurnEnded) -> String {
    let reason = ended.error.as_ref().map(|error| &error.message).or(ended.reason.as_ref());
    let reason = reason.or(ended.halted.as_ref()).map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!("turn {} as {}, {}{reason}: {:?}", ended.turn, ended.request_id, ended.outcome, ended.content)
}

/// Truncates a line and replaces characters with which a model could manipulate the terminal.
fn truncate(line: &str) -> String {
    let printable = |character: char| if is_dangerous(character) { ' ' } else { character };
    let mut chars = line.trim_end().chars().map(printable);
    let mut short: String = chars.by_ref().take(LINE_CHARS_MAX).collect();
    if chars.next().is_some() {
        short.push('…');
    }
    short
}
