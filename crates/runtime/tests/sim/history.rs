//! What a history may look like: a user speaks, the model answers, every tool call has its result.

use std::sync::Arc;

use agent::{Message, Role};
use runtime::AgentHandle;

/// All messages of an agent.
pub(crate) fn messages(agent: &AgentHandle) -> Vec<Arc<Message>> {
    agent.messages(0, usize::MAX).messages
}

pub(crate) fn roles(agent: &AgentHandle) -> Vec<Role> {
    messages(agent).iter().map(|message| message.role).collect()
}

pub(crate) fn texts(agent: &AgentHandle) -> Vec<String> {
    messages(agent).iter().map(|message| message.text.clone()).collect()
}

/// What the users said.
pub(crate) fn questions(agent: &AgentHandle) -> Vec<String> {
    let all = messages(agent);
    all.iter().filter(|message| message.role == Role::User).map(|message| message.text.clone()).collect()
}

/// Why the messages are no history that a model would take; nothing when they are one. A turn may be under way.
pub(crate) fn objection(messages: &[Arc<Message>]) -> Option<String> {
    let mut unanswered: Vec<&str> = Vec::new();
    let mut before = None;
    for (place, message) in messages.iter().enumerate() {
        let expected = match message.role {
            Role::User => matches!(before, None | Some(Role::Assistant)) && unanswered.is_empty(),
            Role::Assistant => matches!(before, Some(Role::User | Role::Tool)) && unanswered.is_empty(),
            Role::Tool => {
                let answered = message.tool_call_id.as_deref().unwrap_or_default();
                let call = unanswered.iter().position(|call| *call == answered);
                call.map(|call| unanswered.remove(call)).is_some()
            }
        };
        if !expected {
            return Some(format!("message {place} does not belong there: {message:?} after {before:?}"));
        }
        unanswered.extend(message.tool_calls.iter().map(|call| call.id.as_str()));
        before = Some(message.role);
    }
    None
}

/// The same for an agent without a turn: its history also ends on an answer.
pub(crate) fn objection_when_idle(messages: &[Arc<Message>]) -> Option<String> {
    let last = messages.last();
    let open = last.is_some_and(|message| message.role != Role::Assistant || !message.tool_calls.is_empty());
    objection(messages).or_else(|| open.then(|| format!("the history ends on {last:?}")))
}
