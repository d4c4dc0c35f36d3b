//! The other agents, as the agent that calls a tool sees them. What it may do to them was judged before; that it still
//! may is judged again where it is done.

use std::sync::Arc;

use super::BoxFuture;
use crate::{AgentId, Fault, RequestId};

/// An agent to be created, as a model asks for it. Its parent is the agent that asks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewPeer {
    /// Its name; made up when there is none.
    pub id: Option<AgentId>,
    /// Its preset.
    pub preset: Option<String>,
    /// Its prompt.
    pub system_prompt: Option<String>,
    /// Tools it may not call.
    pub disable_tools: Vec<String>,
    /// Its working directory; its parent's when there is none.
    pub cwd: Option<String>,
    /// Where it may write.
    pub write_paths: Option<Vec<String>>,
    /// Its model.
    pub model: Option<String>,
    /// Its first message.
    pub initial_message: Option<String>,
    /// Whether to wait for the answer to it.
    pub wait: bool,
}

/// An agent that was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedPeer {
    /// Its name.
    pub id: AgentId,
    /// The name of the first send, when there was a first message.
    pub initial_request_id: Option<RequestId>,
    /// The answer to the first message, when it was waited for.
    pub response: Option<Result<PeerResponse, Fault>>,
}

/// What came of a message to another agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerResponse {
    /// All that it said; nothing when nobody waited.
    pub content: String,
    /// The name of the send.
    pub request_id: RequestId,
    /// Whether somebody cancelled it.
    pub cancelled: bool,
    /// Why it stopped before its end, when it did.
    pub halted: Option<&'static str>,
    /// Whether the message was left without waiting.
    pub queued: bool,
}

/// Another agent in numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerStatus {
    /// Its name.
    pub id: AgentId,
    /// Its parent.
    pub parent: Option<AgentId>,
    /// Its preset.
    pub preset: Arc<str>,
    /// Messages in its context.
    pub message_count: usize,
    /// Whether a turn is running.
    pub is_working: bool,
    /// Turns that wait.
    pub queued: usize,
    /// Why its last turn stopped before its end, when it did.
    pub halted: Option<&'static str>,
}

/// The other agents.
pub trait Peers: Send + Sync {
    /// Creates a child.
    fn create(&self, new: NewPeer) -> BoxFuture<'_, Result<CreatedPeer, Fault>>;

    /// Gives another agent a message. A wait that would never end is refused at once.
    fn send(&self, to: AgentId, content: String, wait: bool) -> BoxFuture<'_, Result<PeerResponse, Fault>>;

    /// Looks at another agent.
    fn status(&self, of: AgentId) -> BoxFuture<'_, Result<PeerStatus, Fault>>;

    /// Ends a send of another agent. False when there is none of that name.
    fn cancel(&self, at: AgentId, request_id: RequestId) -> BoxFuture<'_, Result<bool, Fault>>;

    /// Ends another agent and its children. False when there is none of that name.
    fn destroy(&self, agent: AgentId) -> BoxFuture<'_, Result<bool, Fault>>;

    /// The agent itself and those below it, oldest first.
    fn list(&self) -> BoxFuture<'_, Result<Vec<PeerStatus>, Fault>>;
}
