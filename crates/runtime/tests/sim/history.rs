//! Valid histories: user message, model response, and one result for each tool call, in order.

use std::collections::VecDeque;
use std::sync::Arc;

use agent::{Message, Role};
use runtime::AgentHandle;

/// Prefix of a steering instruction's text.
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

/// The user messages.
pub(crate) fn user_texts(agent: &AgentHandle) -> Vec<String> {
    texts_by_role(agent, Role::User)
}

/// The tool results.
pub(crate) fn tool_texts(agent: &AgentHandle) -> Vec<String> {
    texts_by_role(agent, Role::Tool)
}

fn texts_by_role(agent: &AgentHandle, role: Role) -> Vec<String> {
    let all = messages(agent);
    all.iter().filter(|message| message.role == role).map(|message| message.text.clone()).collect()
}

/// Why a model would reject the messages as a history; none if they are valid. A turn may be running.
pub(crate) fn history_violation(messages: &[Arc<Message>]) -> Option<String> {
    let mut open_calls: VecDeque<&str> = VecDeque::new();
    let mut previous: Option<&Message> = None;
    for (index, message) in messages.iter().enumerate() {
        let expected = match message.role {
            Role::User => may_follow(previous, message) && open_calls.is_empty(),
            Role::Assistant => {
                previous.is_some_and(|previous| previous.role != Role::Assistant) && open_calls.is_empty()
            }
            // Each call has one result, in the order of the calls.
            Role::Tool => open_calls.pop_front() == Some(message.tool_call_id.as_deref().unwrap_or_default()),
        };
        if !expected {
            return Some(format!("message {index} is out of order: {message:?} after {previous:?}"));
        }
        open_calls.extend(message.tool_calls.iter().map(|call| call.id.as_str()));
        previous = Some(message);
    }
    None
}

/// Whether a user message may follow: a turn starts after the last one has ended; a steering instruction may be
/// anywhere but first.
fn may_follow(previous: Option<&Message>, message: &Message) -> bool {
    if message.text.starts_with(STEER_PREFIX) {
        return previous.is_some();
    }
    previous.is_none_or(|previous| previous.role == Role::Assistant && previous.tool_calls.is_empty())
}

/// The same for an agent without a running turn: its history must end with a response.
pub(crate) fn idle_history_violation(messages: &[Arc<Message>]) -> Option<String> {
    let last = messages.last();
    let is_open =
        last.is_some_and(|message| message.role != Role::Assistant || !message.tool_calls.is_empty());
    history_violation(messages).or_else(|| is_open.then(|| format!("the history ends on {last:?}")))
}
