//! Handle to one live agent: reads come from its published state, commands go to its actor task.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};

use agent::journal::{AgentRecord, AgentState, Record, RestartPolicy, Serial, StoredPermissions};
use agent::outside::{Append, BoxFuture, Clock, Provider, Store, StoreFault, Timestamp};
use agent::permission::{Denial, Effect};
use agent::{
    AgentId, Fault, FaultKind, Image, KnownSecrets, Message, MessageSource, PrincipalId, RequestId, TurnEnd,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::actor::{Command, CompactionCondition, CompactionOutcome, CompactionRequest};
use crate::admission::{Admission, AdmissionPermit, busy};
use crate::capability::CapabilityDigest;
use crate::event_bus::EventBus;
use crate::limits::Limits;
use crate::lineage::LineageNode;
use crate::pool::{Initiator, Pool};
use crate::published::{AgentContext, AgentLiveness, AgentStatus, AgentTokens, MessagePage, Published};

/// A message to an agent.
#[derive(Debug, Clone)]
pub struct NewMessage {
    /// Text of the message.
    pub text: String,
    /// Images for the model.
    pub images: Vec<Image>,
    /// Idempotency key: a request with equal id, text and images joins the open turn, or gets the stored response.
    pub request_id: RequestId,
    /// Origin of the message.
    pub source: MessageSource,
}

impl NewMessage {
    /// Converts to a message of the context.
    pub(crate) fn to_message(&self) -> Message {
        Message { images: self.images.clone(), ..Message::user(self.text.clone(), self.source.clone()) }
    }

    /// Whether text and images are equal.
    pub(crate) fn has_same_content(&self, other: &NewMessage) -> bool {
        self.text == other.text && self.images == other.images
    }
}

/// Reference to an agent, live or asleep; cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRef {
    pub(crate) serial: Serial,
    pub(crate) id: AgentId,
}

impl AgentRef {
    /// Returns the agent id.
    #[must_use]
    pub fn id(&self) -> &AgentId {
        &self.id
    }

    /// Returns the agent's serial, which is never reused.
    #[must_use]
    pub fn serial(&self) -> Serial {
        self.serial
    }
}

/// Handle to a live agent; cheap to clone. An agent with a handle does not go to sleep.
#[derive(Clone)]
pub struct AgentHandle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) inbox: mpsc::Sender<Box<Command>>,
}

/// State shared by an agent's handles and its actor task.
pub(crate) struct Shared {
    pub(crate) id: AgentId,
    pub(crate) node: Arc<LineageNode>,
    pub(crate) capability: CapabilityDigest,
    pub(crate) created_at: Timestamp,
    pub(crate) created_by: PrincipalId,
    pub(crate) origin: Option<String>,
    pub(crate) on_restart: RestartPolicy,
    /// Model named at creation.
    pub(crate) model_requested: Option<String>,
    pub(crate) model: Option<Arc<str>>,
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) published: Published,
    /// Newest state enqueued at the store. Locked while enqueueing, so that the last append has the newest state.
    pub(crate) enqueued_state: Mutex<AgentState>,
    /// Number of the last accepted turn.
    pub(crate) turns: AtomicU64,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) known_secrets: Arc<KnownSecrets>,
    pub(crate) event_bus: Arc<EventBus>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) open_turns: Arc<AtomicUsize>,
    pub(crate) limits: Arc<Limits>,
    /// Weak: the pool owns its agents.
    pub(crate) pool: Weak<Pool>,
    /// Time of last use, in milliseconds since the pool was opened.
    pub(crate) last_used_ms: AtomicU64,
    /// Cancelled to end the agent.
    pub(crate) end_requested: CancellationToken,
    /// Cancelled when the store has an open request that the actor no longer has, so that it reloads.
    pub(crate) needs_reload: CancellationToken,
    /// Cancelled when the actor task has ended.
    pub(crate) ended: CancellationToken,
}

/// Future of an accepted message's turn. Dropping it does not cancel the turn.
pub struct TurnFuture {
    reply: oneshot::Receiver<Result<TurnEnd, Fault>>,
    shared: Arc<Shared>,
}

impl Future for TurnFuture {
    type Output = Result<TurnEnd, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = Pin::new(&mut self.reply).poll(cx);
        result.map(|result| result.unwrap_or_else(|_| Err(self.shared.unavailable())))
    }
}

impl AgentHandle {
    /// Returns the agent id.
    #[must_use]
    pub fn id(&self) -> &AgentId {
        &self.shared.id
    }

    pub(crate) fn node(&self) -> &Arc<LineageNode> {
        &self.shared.node
    }

    /// Returns a reference to the agent.
    #[must_use]
    pub fn agent_ref(&self) -> AgentRef {
        AgentRef { serial: self.node().serial, id: self.shared.id.clone() }
    }

    /// Whether the directory holds the only handle and no turn is open.
    pub(crate) fn is_evictable(&self) -> bool {
        self.inbox.strong_count() == 1 && self.shared.open_turns.load(Ordering::Acquire) == 0
    }

    pub(crate) fn last_used_ms(&self) -> u64 {
        self.shared.last_used_ms.load(Ordering::Relaxed)
    }

    /// Returns the agent's creation record.
    #[must_use]
    pub fn record(&self) -> AgentRecord {
        let permissions = StoredPermissions::clone(&self.node().granted().stored);
        let shared = &self.shared;
        AgentRecord {
            id: shared.id.clone(),
            parent: shared.node.parent.as_ref().map(|parent| parent.serial),
            created_at: shared.created_at,
            by: shared.created_by.clone(),
            system_prompt: shared.published.read().window.system().map(ToString::to_string),
            cwd: shared.node.cwd.clone(),
            model: shared.model_requested.clone(),
            capability_digest: shared.capability.bytes(),
            on_restart: shared.on_restart,
            permissions,
            origin: shared.origin.clone(),
        }
    }

    /// Whether this agent is a descendant of `other`.
    #[must_use]
    pub fn is_descendant_of(&self, other: &AgentHandle) -> bool {
        self.node().is_descendant_of(other.node())
    }

    /// Whether both handles are to the same agent. A new agent that reuses an id is another one.
    #[must_use]
    pub fn is_same_agent(&self, other: &AgentHandle) -> bool {
        self.node().serial == other.node().serial
    }

    /// Checks whether this agent may use `tool` on `other` now.
    ///
    /// # Errors
    /// The denial, if it may not.
    pub fn authorize_reach(&self, tool: &str, other: &AgentHandle) -> Result<(), Denial> {
        let reach = Effect::Reach(other.id().clone(), self.node().relation_to(other.node()));
        self.node().authorize(&[Effect::Use(tool.into()), reach]).map(drop)
    }

    /// Returns the names of the tools visible to the model.
    #[must_use]
    pub fn tool_names(&self) -> Vec<Arc<str>> {
        self.shared.visible_tools().iter().map(|tool| Arc::clone(&tool.name)).collect()
    }

    /// Sends a message and waits for the end of its turn. Dropping the future does not cancel the turn.
    ///
    /// # Errors
    /// When the agent is busy or destroyed, or the request id was used with other content.
    pub async fn send(&self, message: NewMessage) -> Result<TurnEnd, Fault> {
        self.submit(message)?.await
    }

    /// Submits a message without waiting for its commit.
    ///
    /// # Errors
    /// When the agent is busy or destroyed, or the message has images that the model does not accept.
    pub fn submit(&self, message: NewMessage) -> Result<TurnFuture, Fault> {
        self.check_image_support(&message.images)?;
        let permit = self.admit()?;
        self.submit_with_permit(permit, message, None)
    }

    /// Submits a message and waits until it is committed.
    ///
    /// # Errors
    /// When the agent is busy or destroyed, or the commit failed.
    pub async fn submit_committed(&self, message: NewMessage) -> Result<TurnFuture, Fault> {
        let (commit_waiter, committed) = oneshot::channel();
        let permit = self.admit()?;
        let turn = self.submit_with_permit(permit, message, Some(commit_waiter))?;
        committed.await.unwrap_or_else(|_| Err(self.shared.unavailable()))?;
        Ok(turn)
    }

    /// Rejects images that the model does not accept: in the context they would break every later request.
    fn check_image_support(&self, images: &[Image]) -> Result<(), Fault> {
        if images.is_empty() || self.shared.provider.spec().accepts_images {
            return Ok(());
        }
        let model = self.shared.model.as_deref().unwrap_or("of this agent");
        let text = format!(
            "the model {model} takes no images: use a model that does, or set `images = true` for it in config.toml"
        );
        Err(Fault::new(FaultKind::Invalid, text))
    }

    pub(crate) fn admit(&self) -> Result<AdmissionPermit, Fault> {
        self.shared.admission.admit(&self.shared.open_turns, self.shared.limits.agent_turns_open_max)
    }

    fn submit_with_permit(
        &self,
        permit: AdmissionPermit,
        message: NewMessage,
        commit_waiter: Option<oneshot::Sender<Result<(), Fault>>>,
    ) -> Result<TurnFuture, Fault> {
        let (reply, receiver) = oneshot::channel();
        let command = Box::new(Command::Send { message, reply, permit, commit_waiter });
        self.inbox.try_send(command).map_err(|error| self.inbox_fault(&error))?;
        Ok(self.turn_future(receiver))
    }

    pub(crate) fn turn_future(&self, reply: oneshot::Receiver<Result<TurnEnd, Fault>>) -> TurnFuture {
        TurnFuture { reply, shared: Arc::clone(&self.shared) }
    }

    /// Truncates the context to its first messages; returns how many were removed. The journal keeps them.
    ///
    /// # Errors
    /// When a turn is open, a tool call would lose its result, or the commit failed.
    pub async fn rollback(&self, messages: usize, initiator: Initiator<'_>) -> Result<usize, Fault> {
        let (reply, receiver) = oneshot::channel();
        let initiator = initiator.principal_id();
        let sent = self.inbox.send(Box::new(Command::Rollback { messages, initiator, reply })).await;
        sent.map_err(|_| self.shared.unavailable())?;
        receiver.await.unwrap_or_else(|_| Err(self.shared.unavailable()))
    }

    /// Compacts the context: the model summarizes older messages, or they are dropped if it cannot. Queued with the
    /// requests. Dropping the future does not cancel it.
    ///
    /// # Errors
    /// When the agent is busy, destroyed or ending, or the commit failed.
    pub async fn compact(
        &self,
        condition: CompactionCondition,
        initiator: Initiator<'_>,
    ) -> Result<CompactionOutcome, Fault> {
        let (reply, receiver) = oneshot::channel();
        let compaction = CompactionRequest {
            initiator: initiator.principal_id(),
            condition,
            reply,
            permit: self.admit()?,
        };
        self.inbox
            .try_send(Box::new(Command::Compact(compaction)))
            .map_err(|error| self.inbox_fault(&error))?;
        receiver.await.unwrap_or_else(|_| Err(self.shared.unavailable()))
    }

    fn inbox_fault(&self, error: &mpsc::error::TrySendError<Box<Command>>) -> Fault {
        match error {
            mpsc::error::TrySendError::Full(_) => Fault::new(busy(), "busy: the agent's inbox is full"),
            mpsc::error::TrySendError::Closed(_) => self.shared.unavailable(),
        }
    }

    /// Cancels a running or queued request. Returns false when none has this id.
    pub async fn cancel(&self, request_id: RequestId) -> bool {
        let (reply, receiver) = oneshot::channel();
        let sent = self.inbox.send(Box::new(Command::Cancel { request_id, reply })).await;
        sent.is_ok() && receiver.await.unwrap_or(false)
    }

    /// Adds an instruction to the running turn. Returns the turn's request id, or `None` when no turn is running or it
    /// accepts no more instructions.
    pub async fn steer(&self, text: String, source: MessageSource) -> Option<RequestId> {
        let (reply, receiver) = oneshot::channel();
        let sent = self.inbox.send(Box::new(Command::Steer { text, source, reply })).await;
        if sent.is_err() {
            return None;
        }
        receiver.await.ok().flatten()
    }

    /// Ends the actor task; open requests are answered as cancelled. A signal and not a command: a command could find
    /// the inbox full, and a caller that then leaves would orphan an unreachable agent.
    pub(crate) fn request_end(&self) {
        self.shared.end_requested.cancel();
    }

    /// Waits until the actor task has ended.
    pub(crate) async fn wait_ended(&self) {
        self.shared.ended.cancelled().await;
    }

    /// Marks the agent as finished. An agent may mark itself, but only an admin's mark counts towards stopping the
    /// daemon.
    pub(crate) async fn mark_finished(&self, initiator: Initiator<'_>) -> Result<(), Fault> {
        let is_admin = matches!(initiator, Initiator::Admin);
        let record = Record::Finished { by: initiator.principal_id() };
        let commit = self.shared.append(vec![record], |state| {
            state.should_shutdown = true;
            state.is_finished |= is_admin;
        });
        commit.await?;
        self.shared.published.write().should_shutdown = true;
        Ok(())
    }

    /// Returns figures of the context.
    #[must_use]
    pub fn context(&self) -> AgentContext {
        let state = self.shared.published.read();
        AgentContext {
            message_count: state.window.messages().len(),
            has_system_prompt: state.window.system().is_some(),
            halted: state.halted,
            last_rounds: state.last_rounds,
            rounds_max: self.shared.limits.tool_iterations_max,
            todo: state.todo.clone(),
        }
    }

    /// Returns token usage and cost.
    #[must_use]
    pub fn tokens(&self) -> AgentTokens {
        // Before the lock is taken: no foreign code runs under it.
        let overhead =
            self.shared.fixed_overhead(&self.shared.visible_tools(), self.shared.volatile_suffix_tokens());
        let has_price = self.shared.provider.spec().prices.is_some();
        let tree_cost = self.node().tree_cost();
        let state = self.shared.published.read();
        AgentTokens {
            size: state.window.size(&overhead),
            usage_totals: state.usage_totals,
            tree_cost: (has_price || tree_cost > 0).then_some(tree_cost),
            cost: (has_price || state.usage_totals.cost > 0).then_some(state.usage_totals.cost),
        }
    }

    /// Returns a page of the messages.
    #[must_use]
    pub fn messages(&self, offset: usize, limit: usize) -> MessagePage {
        self.shared.published.read().page(offset, limit)
    }
}

impl Shared {
    /// Builds the agent's status; the caller knows the number of children.
    pub(crate) fn status(&self, child_count: usize) -> AgentStatus {
        let node = &self.node;
        let (granted, write_directories) = (node.granted(), node.write_directories().roots().to_vec());
        let state = self.published.read();
        AgentStatus {
            id: self.id.clone(),
            created_at: self.created_at,
            message_count: state.window.messages().len(),
            should_shutdown: state.should_shutdown,
            halted: state.halted,
            is_working: state.is_working,
            open_turns: self.open_turns.load(Ordering::Acquire),
            model: self.model.clone(),
            last_action_at: state.last_action_at,
            parent: node.parent.as_ref().map(|parent| parent.id()),
            child_count,
            depth: node.depth,
            preset: granted.preset,
            level: granted.level,
            cwd: node.cwd.clone(),
            write_directories,
            state: AgentLiveness::Live,
            on_restart: self.on_restart,
            origin: self.origin.clone(),
        }
    }

    /// Enqueues records with the changed state and the ledgers changed since the last append; the future resolves
    /// after commit.
    pub(crate) fn append(
        &self,
        records: Vec<Record>,
        change: impl FnOnce(&mut AgentState),
    ) -> BoxFuture<'static, Result<(), StoreFault>> {
        let mut state = self.enqueued_state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        let append = Append {
            agent: self.node.serial,
            agent_id: Some(self.id.clone()),
            at: self.clock.now(),
            records,
            state: Some(state.clone()),
            ledgers: self.node.take_changed_ledgers(),
        };
        self.store.append(vec![append])
    }

    /// Changes the enqueued state; the next append persists it.
    pub(crate) fn change_enqueued_state(&self, change: impl FnOnce(&mut AgentState)) {
        change(&mut self.enqueued_state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Resets message count and plan of the enqueued state to the published ones, after a failed commit.
    pub(crate) fn reset_enqueued_state(&self) {
        let published = self.published.read();
        self.change_enqueued_state(|state| {
            state.messages = published.window.messages().len() as u64;
            state.todo.clone_from(&published.todo);
        });
    }

    /// Enqueues a record without state, and does not wait for its commit.
    pub(crate) fn enqueue_record(&self, record: Record) {
        let append = Append {
            agent: self.node.serial,
            agent_id: Some(self.id.clone()),
            at: self.clock.now(),
            records: vec![record],
            state: None,
            ledgers: Vec::new(),
        };
        drop(self.store.append(vec![append]));
    }

    /// Whether the store has the agent as destroyed; the actor is notified slightly later.
    pub(crate) async fn is_destroyed(&self) -> Result<bool, StoreFault> {
        let stored = self.store.agents(vec![self.node.serial]).await?;
        Ok(stored.iter().all(|agent| agent.is_destroyed))
    }

    /// Returns the number of the next turn.
    pub(crate) fn next_turn(&self) -> u64 {
        self.turns.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Returns why the actor does not answer: the agent was destroyed, or it is reloading after a failed commit.
    pub(crate) fn unavailable(&self) -> Fault {
        if self.end_requested.is_cancelled() {
            return agent_not_found(&self.id);
        }
        Fault::new(busy(), format!("busy: agent '{}' is reloading after a failed commit; retry", self.id))
    }
}

pub(crate) fn agent_not_found(id: &AgentId) -> Fault {
    Fault::new(FaultKind::NotFound, format!("Agent not found: {id}"))
}
