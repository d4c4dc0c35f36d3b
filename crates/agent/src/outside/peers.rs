//! The interface through which tools act on other agents on behalf of the calling agent. The judge checks the
//! permission before a tool runs; the runtime checks it again when it applies the operation.

use std::sync::Arc;

use super::BoxFuture;
use crate::journal::{ApprovalAnswer, ApprovalRequest};
use crate::permission::{Rule, RuleScope};
use crate::{AgentId, Fault, RequestId};

/// An agent to create, as requested by a model. Its parent is the calling agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewPeer {
    /// Its id; generated if none.
    pub id: Option<AgentId>,
    /// Its preset.
    pub preset: Option<String>,
    /// Its system prompt.
    pub system_prompt: Option<String>,
    /// The only tools that it may call.
    pub tools: Option<Vec<String>>,
    /// Tools that it may not call.
    pub disable_tools: Vec<String>,
    /// Its working directory; its parent's if none.
    pub cwd: Option<String>,
    /// Directories that it may write to.
    pub write_paths: Option<Vec<String>>,
    /// Commands that it may run; `*` stands for all.
    pub commands: Option<Vec<String>>,
    /// Hosts that it may connect to.
    pub hosts: Option<Vec<String>>,
    /// Hosts that it may not connect to.
    pub denied_hosts: Vec<String>,
    /// Its model.
    pub model: Option<String>,
    /// Its first message.
    pub initial_message: Option<String>,
    /// Whether to wait for the response to `initial_message`.
    pub wait: bool,
}

/// The result of creating an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedPeer {
    /// Its id.
    pub id: AgentId,
    /// The request id of the first message, if there was one.
    pub initial_request_id: Option<RequestId>,
    /// The response to the first message, if the caller waited for it.
    pub response: Option<Result<PeerResponse, Fault>>,
}

/// The result of sending a message to another agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerResponse {
    /// The text of the response; empty if the caller did not wait.
    pub content: String,
    /// The request id of the message.
    pub request_id: RequestId,
    /// Whether the turn was cancelled.
    pub cancelled: bool,
    /// Why the turn was halted early, if it was.
    pub halted: Option<&'static str>,
    /// Whether the message was only enqueued, without waiting for the response.
    pub queued: bool,
}

/// The status of another agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerStatus {
    /// Its id.
    pub id: AgentId,
    /// Its parent.
    pub parent: Option<AgentId>,
    /// Its preset.
    pub preset: Arc<str>,
    /// Messages in its context.
    pub message_count: usize,
    /// Whether a turn is running.
    pub is_working: bool,
    /// Number of queued turns.
    pub queued: usize,
    /// Why its last turn was halted early, if it was.
    pub halted: Option<&'static str>,
}

/// A tool call that waits for an approval.
#[derive(Debug, Clone)]
pub struct PendingApproval {
    /// The asking agent.
    pub agent: AgentId,
    /// Its ancestors, nearest first.
    pub ancestors: Vec<AgentId>,
    /// The request.
    pub request: Arc<ApprovalRequest>,
}

/// An answer to an approval request.
#[derive(Debug, Clone)]
pub struct NewAnswer {
    /// Whether the call may run.
    pub is_allowed: bool,
    /// The agents and calls that the answer applies to.
    pub scope: AnswerScope,
    /// The rule for later calls; by default exactly this call.
    pub rule: Option<Rule>,
    /// A note for the model.
    pub note: Option<String>,
}

/// The agents and calls that an answer applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerScope {
    /// This call.
    Once,
    /// This call, and later ones that the rule matches.
    Rule(RuleScope),
}

/// Operations on other agents.
pub trait Peers: Send + Sync {
    /// Creates a child agent.
    fn create(&self, new: NewPeer) -> BoxFuture<'_, Result<CreatedPeer, Fault>>;

    /// Sends a message to another agent. A wait that would deadlock is rejected at once.
    fn send(&self, to: AgentId, content: String, wait: bool) -> BoxFuture<'_, Result<PeerResponse, Fault>>;

    /// Returns the status of another agent.
    fn status(&self, of: AgentId) -> BoxFuture<'_, Result<PeerStatus, Fault>>;

    /// Cancels a turn of another agent. False if there is no such turn.
    fn cancel(&self, at: AgentId, request_id: RequestId) -> BoxFuture<'_, Result<bool, Fault>>;

    /// Destroys another agent and its descendants. False if there is no such agent.
    fn destroy(&self, agent: AgentId) -> BoxFuture<'_, Result<bool, Fault>>;

    /// The calling agent and its descendants, oldest first.
    fn list(&self) -> BoxFuture<'_, Result<Vec<PeerStatus>, Fault>>;

    /// The approval requests of its descendants, oldest first; waits for one at most this long.
    fn approvals(&self, wait_secs: u64) -> BoxFuture<'_, Result<Vec<PendingApproval>, Fault>>;

    /// Answers an approval request of a descendant.
    fn answer_approval(&self, id: String, answer: NewAnswer) -> BoxFuture<'_, Result<ApprovalAnswer, Fault>>;
}
