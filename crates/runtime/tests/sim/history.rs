//! What a history may look like: a user speaks, the model answers, every tool call has its result, in order.

use std::collections::VecDeque;
use std::sync::Arc;

use agent::{Message, Role};
use runtime::AgentHandle;

/// What a word begins with that was added to a turn under way.
pub(crate) const STEER_PREFIX: &str = "#s";

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
pub(crate) fn user_texts(agent: &AgentHandle) -> Vec<String> {
    texts_by_role(agent, Role::User)
}

/// What the tools said.
pub(crate) fn tool_texts(agent: &AgentHandle) -> Vec<String> {
    texts_by_role(agent, Role::Tool)
}

fn texts_by_role(agent: &AgentHandle, role: Role) -> Vec<String> {
    let all = messages(agent);
    all.iter().filter(|message| message.role == role).map(|message| message.text.clone()).collect()
}

/// Why the messages are no history that a model would take; nothing when they are one. A turn may be under way.
pub(crate) fn history_violation(messages: &[Arc<Message>]) -> Option<String> {
    let mut unanswered: VecDeque<&str> = VecDeque::new();
    let mut before: Option<&Message> = None;
    for (place, message) in messages.iter().enumerate() {
        let expected = match message.role {
            Role::User => may_follow(before, message) && unanswered.is_empty(),
            Role::Assistant => {
                before.is_some_and(|before| before.role != Role::Assistant) && unanswered.is_empty()
            }
            // Each call has one result, and they come in the order of the calls.
            Role::Tool => unanswered.pop_front() == Some(message.tool_call_id.as_deref().unwrap_or_default()),
        };
        if !expected {
            return Some(format!("message {place} does not belong there: {message:?} after {before:?}"));
        }
        unanswered.extend(message.tool_calls.iter().map(|call| call.id.as_str()));
        before = Some(message);
    }
    None
}

/// A turn begins after the last one has ended; a word that is added comes anywhere but first.
fn may_follow(before: Option<&Message>, message: &Message) -> bool {
    if message.text.starts_with(STEER_PREFIX) {
        return before.is_some();
    }
    before.is_none_or(|before| before.role == Role::Assistant && before.tool_calls.is_empty())
}

/// The same for an agent without a turn: its history also ends on an answer.
pub(crate) fn idle_history_violation(messages: &[Arc<Message>]) -> Option<String> {
    let last = messages.last();
    let open = last.is_some_and(|message| message.role != Role::Assistant || !message.tool_calls.is_empty());
    history_violation(messages).or_else(|| open.then(|| format!("the history ends on {last:?}")))
}
