//! The way to one agent: a cheap clone. Reads come from what the agent has published; work goes to its task.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use agent::outside::{Moment, Provider};
use agent::{AgentId, Fault, FaultKind, RequestId, Source, TurnEnd};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::actor::Command;
use crate::limits::Limits;
use crate::published::{AgentContext, AgentPage, AgentSummary, AgentTokens, Published};
use crate::turnstile::{Turnstile, busy};

/// A message for an agent.
#[derive(Debug, Clone)]
pub struct NewMessage {
    /// Its text.
    pub text: String,
    /// The name of this send, for `cancel`.
    pub request_id: RequestId,
    /// Where it comes from.
    pub source: Source,
}

/// A handle to one agent.
#[derive(Clone)]
pub struct AgentHandle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) inbox: mpsc::Sender<Box<Command>>,
}

/// What an agent's handles and its task have in common.
pub(crate) struct Shared {
    pub(crate) id: AgentId,
    pub(crate) created_at: Moment,
    pub(crate) model: Option<Arc<str>>,
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) published: Published,
    pub(crate) turnstile: Arc<Turnstile>,
    pub(crate) open_turns: Arc<AtomicUsize>,
    pub(crate) limits: Arc<Limits>,
    /// Cancelled when the agent has to end.
    pub(crate) ending: CancellationToken,
    /// Cancelled when its task has ended.
    pub(crate) ended: CancellationToken,
}

impl AgentHandle {
    /// The agent's name.
    #[must_use]
    pub fn id(&self) -> &AgentId {
        &self.shared.id
    }

    /// Gives the agent a message and waits for the turn's end. Dropping the future does not end the turn.
    ///
    /// # Errors
    /// When there is no room, the agent is gone, or a send of that name is still open.
    pub async fn send(&self, message: NewMessage) -> Result<TurnEnd, Fault> {
        let shared = &self.shared;
        let place = shared.turnstile.enter(&shared.open_turns, shared.limits.agent_turns_open_max)?;
        let (reply, answer) = oneshot::channel();
        let command = Box::new(Command::Send { message, reply, place });
        self.inbox.try_send(command).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => Fault::new(busy(), "busy: the agent's inbox is full"),
            mpsc::error::TrySendError::Closed(_) => self.gone(),
        })?;
        answer.await.unwrap_or_else(|_| Err(self.gone()))
    }

    /// Ends a running or waiting send now. False when there is none of that name.
    pub async fn cancel(&self, request_id: RequestId) -> bool {
        let (reply, answer) = oneshot::channel();
        let sent = self.inbox.send(Box::new(Command::Cancel { request_id, reply })).await;
        sent.is_ok() && answer.await.unwrap_or(false)
    }

    /// Has the agent's task end: open sends are answered as cancelled. A signal and not a command, because a command
    /// could find the inbox full, and a caller that then goes away would leave an agent that nobody can reach.
    pub(crate) fn begin_end(&self) {
        self.shared.ending.cancel();
    }

    /// Returns when the agent's task has ended.
    pub(crate) async fn ended(&self) {
        self.shared.ended.cancelled().await;
    }

    /// Marks the agent as finished.
    pub(crate) fn mark_finished(&self) {
        self.shared.published.write().should_shutdown = true;
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.shared.published.read().should_shutdown
    }

    /// The agent in a list.
    #[must_use]
    pub fn summary(&self) -> AgentSummary {
        let state = self.shared.published.read();
        AgentSummary {
            id: self.shared.id.clone(),
            created_at: self.shared.created_at,
            message_count: state.window.messages().len(),
            should_shutdown: state.should_shutdown,
            halted: state.halted,
            model: self.shared.model.clone(),
            last_action_at: state.last_action_at,
        }
    }

    /// The context in numbers.
    #[must_use]
    pub fn context(&self) -> AgentContext {
        let state = self.shared.published.read();
        AgentContext {
            message_count: state.window.messages().len(),
            has_system_prompt: state.window.system().is_some(),
            halted: state.halted,
            last_rounds: state.last_rounds,
            rounds_max: self.shared.limits.tool_iterations_max,
        }
    }

    /// The context in tokens.
    #[must_use]
    pub fn tokens(&self) -> AgentTokens {
        // Asked before the lock is taken: nothing foreign runs under it.
        let budget = self.shared.provider.window_tokens();
        self.shared.published.read().tokens(budget)
    }

    /// Some of the messages.
    #[must_use]
    pub fn messages(&self, offset: usize, limit: usize) -> AgentPage {
        self.shared.published.read().page(offset, limit)
    }

    fn gone(&self) -> Fault {
        Fault::new(FaultKind::NotFound, format!("Agent not found: {}", self.shared.id))
    }
}
