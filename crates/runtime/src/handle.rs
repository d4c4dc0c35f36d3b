//! The way to one agent: a cheap clone. Reads come from what the agent has published; work goes to its task.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use agent::outside::{Moment, Provider};
use agent::permission::{Denial, Effect, Verdict, judge};
use agent::{AgentId, Fault, FaultKind, RequestId, Source, TurnEnd};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::actor::Command;
use crate::capability::CapabilityDigest;
use crate::kin::Kin;
use crate::limits::Limits;
use crate::pool::{By, Pool};
use crate::published::{AgentContext, AgentPage, AgentSummary, AgentTokens, Published};
use crate::turnstile::{Place, Turnstile, busy};

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
    pub(crate) kin: Arc<Kin>,
    pub(crate) capability: CapabilityDigest,
    pub(crate) created_at: Moment,
    pub(crate) model: Option<Arc<str>>,
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) published: Published,
    pub(crate) turnstile: Arc<Turnstile>,
    pub(crate) open_turns: Arc<AtomicUsize>,
    pub(crate) limits: Arc<Limits>,
    /// The pool holds its agents, so they must not hold it.
    pub(crate) pool: Weak<Pool>,
    /// Cancelled when the agent has to end.
    pub(crate) ending: CancellationToken,
    /// Cancelled when its task has ended.
    pub(crate) ended: CancellationToken,
}

/// An accepted message's answer. Dropping it does not end the turn.
pub struct Answering {
    reply: oneshot::Receiver<Result<TurnEnd, Fault>>,
    id: AgentId,
}

impl Future for Answering {
    type Output = Result<TurnEnd, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.reply).poll(cx).map(|answer| answer.unwrap_or_else(|_| Err(gone(&self.id))))
    }
}

impl AgentHandle {
    /// The agent's name.
    #[must_use]
    pub fn id(&self) -> &AgentId {
        &self.shared.id
    }

    pub(crate) fn kin(&self) -> &Arc<Kin> {
        &self.shared.kin
    }

    /// Whether this agent is below another in the tree.
    #[must_use]
    pub fn is_below(&self, other: &AgentHandle) -> bool {
        self.kin().is_below(other.kin())
    }

    /// Whether both are handles to one agent. Two agents of one name, one after the other, are two.
    #[must_use]
    pub fn is_same(&self, other: &AgentHandle) -> bool {
        self.kin().serial == other.kin().serial
    }

    /// Whether this agent may use this tool on another now.
    ///
    /// # Errors
    /// When it may not: why.
    pub fn may_reach(&self, tool: &str, other: &AgentHandle) -> Result<(), Denial> {
        let reach = Effect::Reach(other.id().clone(), self.kin().kinship_to(other.kin()));
        match judge(&[Effect::Use(tool.into()), reach], &self.kin().may()) {
            Verdict::Allowed(_) => Ok(()),
            Verdict::Denied(denial) => Err(denial),
        }
    }

    /// The names of the tools its model is shown now.
    #[must_use]
    pub fn tool_names(&self) -> Vec<Arc<str>> {
        self.shared.visible_tools().iter().map(|tool| Arc::clone(&tool.name)).collect()
    }

    /// Gives the agent a message and waits for the turn's end. Dropping the future does not end the turn.
    ///
    /// # Errors
    /// When there is no room, the agent is gone, or a send of that name is still open.
    pub async fn send(&self, message: NewMessage) -> Result<TurnEnd, Fault> {
        self.submit(message)?.await
    }

    /// Gives the agent a message; what is accepted will be worked on, whether the answer is waited for or not.
    ///
    /// # Errors
    /// When there is no room or the agent is gone.
    pub fn submit(&self, message: NewMessage) -> Result<Answering, Fault> {
        let place = self.enter()?;
        self.submit_at(place, message)
    }

    pub(crate) fn enter(&self) -> Result<Place, Fault> {
        self.shared.turnstile.enter(&self.shared.open_turns, self.shared.limits.agent_turns_open_max)
    }

    pub(crate) fn submit_at(&self, place: Place, message: NewMessage) -> Result<Answering, Fault> {
        let (reply, answer) = oneshot::channel();
        let command = Box::new(Command::Send { message, reply, place });
        self.inbox.try_send(command).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => Fault::new(busy(), "busy: the agent's inbox is full"),
            mpsc::error::TrySendError::Closed(_) => gone(self.id()),
        })?;
        Ok(Answering { reply: answer, id: self.id().clone() })
    }

    /// Ends a running or waiting send now. False when there is none of that name.
    pub async fn cancel(&self, request_id: RequestId) -> bool {
        let (reply, answer) = oneshot::channel();
        let sent = self.inbox.send(Box::new(Command::Cancel { request_id, reply })).await;
        sent.is_ok() && answer.await.unwrap_or(false)
    }

    /// Adds a word to the turn under way. None when there is no such turn, or it has enough of them; otherwise the name
    /// of the send that it went to.
    pub async fn steer(&self, text: String, source: Source) -> Option<RequestId> {
        let (reply, answer) = oneshot::channel();
        let sent = self.inbox.send(Box::new(Command::Steer { text, source, reply })).await;
        if sent.is_err() {
            return None;
        }
        answer.await.ok().flatten()
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

    /// Marks the agent as finished. An agent may say so of itself; only an admin's word lets the daemon stop.
    pub(crate) fn mark_finished(&self, by: By<'_>) {
        let mut state = self.shared.published.write();
        state.should_shutdown = true;
        state.is_finished |= matches!(by, By::Admin);
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.shared.published.read().is_finished
    }

    /// The agent in a list; whoever lists knows how many children it has.
    pub(crate) fn summary(&self, child_count: usize) -> AgentSummary {
        let kin = self.kin();
        let (standing, write_folders) = (kin.standing(), kin.write_folders().roots().to_vec());
        let state = self.shared.published.read();
        AgentSummary {
            id: self.shared.id.clone(),
            created_at: self.shared.created_at,
            message_count: state.window.messages().len(),
            should_shutdown: state.should_shutdown,
            halted: state.halted,
            is_working: state.is_working,
            open_turns: self.shared.open_turns.load(Ordering::Acquire),
            model: self.shared.model.clone(),
            last_action_at: state.last_action_at,
            parent: kin.parent.as_ref().map(|parent| parent.id.clone()),
            child_count,
            depth: kin.depth,
            preset: standing.preset,
            level: standing.level,
            cwd: kin.cwd.clone(),
            write_folders,
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
        let tools = self.shared.visible_tools().iter().map(|tool| tool.tokens).sum();
        self.shared.published.read().tokens(budget, tools)
    }

    /// Some of the messages.
    #[must_use]
    pub fn messages(&self, offset: usize, limit: usize) -> AgentPage {
        self.shared.published.read().page(offset, limit)
    }
}

impl Shared {
    /// The tools a model is shown: those it may use now.
    pub(crate) fn visible_tools(&self) -> Vec<Arc<agent::ToolSpec>> {
        let Some(pool) = self.pool.upgrade() else { return Vec::new() };
        let may = self.kin.may();
        let specs = pool.outside.tools.all().iter().map(|tool| tool.spec());
        specs.filter(|spec| may.tools.contains(&spec.name)).map(Arc::clone).collect()
    }
}

pub(crate) fn gone(id: &AgentId) -> Fault {
    Fault::new(FaultKind::NotFound, format!("Agent not found: {id}"))
}
