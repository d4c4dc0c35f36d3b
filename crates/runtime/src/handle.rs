//! The way to one agent: a cheap clone. Reads come from what the agent has published; work goes to its task.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};

use agent::journal::{AgentRecord, AgentState, Record, RestartPolicy, Serial, StoredPermissions};
use agent::outside::{Append, BoxFuture, Clock, Provider, Store, StoreFault, Timestamp};
use agent::permission::{Denial, Effect, FilePath, Verdict, judge};
use agent::{AgentId, Fault, FaultKind, Image, Message, MessageSource, RequestId, TurnEnd};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::actor::{Command, CompactionCondition, CompactionOutcome, CompactionRequest};
use crate::admission::{Admission, AdmissionPermit, busy, shutting_down};
use crate::capability::CapabilityDigest;
use crate::event_bus::EventBus;
use crate::limits::Limits;
use crate::lineage::LineageNode;
use crate::pool::{Initiator, Pool};
use crate::published::{AgentContext, AgentLiveness, AgentStatus, AgentTokens, MessagePage, Published};

/// A message for an agent.
#[derive(Debug, Clone)]
pub struct NewMessage {
    /// Its text.
    pub text: String,
    /// Pictures that the model is to look at.
    pub images: Vec<Image>,
    /// The name of this send. The same name with the same text and pictures is the same send: it is answered with what is running, or
    /// with what was answered before.
    pub request_id: RequestId,
    /// Where it comes from.
    pub source: MessageSource,
}

impl NewMessage {
    /// As it comes into the context.
    pub(crate) fn to_message(&self) -> Message {
        Message { images: self.images.clone(), ..Message::user(self.text.clone(), self.source.clone()) }
    }

    /// Whether both say the same.
    pub(crate) fn has_same_content(&self, other: &NewMessage) -> bool {
        self.text == other.text && self.images == other.images
    }
}

/// Which agent, whether it is live or not: a cheap clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRef {
    pub(crate) serial: Serial,
    pub(crate) id: AgentId,
}

impl AgentRef {
    /// The agent's name.
    #[must_use]
    pub fn id(&self) -> &AgentId {
        &self.id
    }

    /// What tells it from others for ever.
    #[must_use]
    pub fn serial(&self) -> Serial {
        self.serial
    }
}

/// A handle to one live agent. While there is one the agent does not go to sleep.
#[derive(Clone)]
pub struct AgentHandle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) inbox: mpsc::Sender<Box<Command>>,
}

/// What an agent's handles and its task have in common.
pub(crate) struct Shared {
    pub(crate) id: AgentId,
    pub(crate) node: Arc<LineageNode>,
    pub(crate) capability: CapabilityDigest,
    pub(crate) created_at: Timestamp,
    pub(crate) created_by: String,
    pub(crate) origin: Option<String>,
    pub(crate) on_restart: RestartPolicy,
    /// The model it asked for.
    pub(crate) model_requested: Option<String>,
    pub(crate) model: Option<Arc<str>>,
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) published: Published,
    /// The state that is in line to be kept. Held while something is put in line, so that the last in line is the newest.
    pub(crate) enqueued_state: Mutex<AgentState>,
    /// The turns taken so far.
    pub(crate) turns: AtomicU64,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) event_bus: Arc<EventBus>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) open_turns: Arc<AtomicUsize>,
    pub(crate) limits: Arc<Limits>,
    /// The pool holds its agents, so they must not hold it.
    pub(crate) pool: Weak<Pool>,
    /// When it was last asked for something, in milliseconds of the pool's life.
    pub(crate) last_used_ms: AtomicU64,
    /// Cancelled when the agent has to end.
    pub(crate) end_requested: CancellationToken,
    /// Cancelled when a send is open in the store that the task no longer knows of.
    pub(crate) needs_reload: CancellationToken,
    /// Cancelled when its task has ended.
    pub(crate) ended: CancellationToken,
}

/// An accepted message's answer. Dropping it does not end the turn.
pub struct TurnFuture {
    reply: oneshot::Receiver<Result<TurnEnd, Fault>>,
    shared: Arc<Shared>,
}

impl Future for TurnFuture {
    type Output = Result<TurnEnd, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = Pin::new(&mut self.reply).poll(cx);
        answer.map(|answer| answer.unwrap_or_else(|_| Err(self.shared.unavailable())))
    }
}

impl AgentHandle {
    /// The agent's name.
    #[must_use]
    pub fn id(&self) -> &AgentId {
        &self.shared.id
    }

    pub(crate) fn node(&self) -> &Arc<LineageNode> {
        &self.shared.node
    }

    /// Which agent this is.
    #[must_use]
    pub fn agent_ref(&self) -> AgentRef {
        AgentRef { serial: self.node().serial, id: self.shared.id.clone() }
    }

    /// Whether nobody else can reach the agent's task, and it has nothing to do.
    pub(crate) fn is_evictable(&self) -> bool {
        self.inbox.strong_count() == 1 && self.shared.open_turns.load(Ordering::Acquire) == 0
    }

    pub(crate) fn last_used_ms(&self) -> u64 {
        self.shared.last_used_ms.load(Ordering::Relaxed)
    }

    /// What the agent is made from when it is kept.
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

    /// Whether this agent is below another in the tree.
    #[must_use]
    pub fn is_descendant_of(&self, other: &AgentHandle) -> bool {
        self.node().is_descendant_of(other.node())
    }

    /// Whether both are handles to one agent. Two agents of one name, one after the other, are two.
    #[must_use]
    pub fn is_same_agent(&self, other: &AgentHandle) -> bool {
        self.node().serial == other.node().serial
    }

    /// Whether this agent may use this tool on another now.
    ///
    /// # Errors
    /// When it may not: why.
    pub fn authorize_reach(&self, tool: &str, other: &AgentHandle) -> Result<(), Denial> {
        let reach = Effect::Reach(other.id().clone(), self.node().relation_to(other.node()));
        match judge(&[Effect::Use(tool.into()), reach], &self.node().may()) {
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
    /// When there is no room, the agent is gone, or a send of that name had another text.
    pub async fn send(&self, message: NewMessage) -> Result<TurnEnd, Fault> {
        self.submit(message)?.await
    }

    /// Gives the agent a message; whether it is kept is known with the answer.
    ///
    /// # Errors
    /// When there is no room, the agent is gone, or its model takes no pictures and there are some.
    pub fn submit(&self, message: NewMessage) -> Result<TurnFuture, Fault> {
        self.check_image_support(&message.images)?;
        let place = self.admit()?;
        self.submit_with_permit(place, message, None)
    }

    /// Leaves the agent a message: it is kept when this returns, and will be worked on.
    ///
    /// # Errors
    /// When there is no room, the agent is gone, or the message cannot be kept.
    pub async fn submit_committed(&self, message: NewMessage) -> Result<TurnFuture, Fault> {
        let (kept, is_kept) = oneshot::channel();
        let place = self.admit()?;
        let answering = self.submit_with_permit(place, message, Some(kept))?;
        is_kept.await.unwrap_or_else(|_| Err(self.shared.unavailable()))?;
        Ok(answering)
    }

    /// A picture from a file that the agent may read.
    ///
    /// # Errors
    /// When the agent may not read it, it cannot be read, or is no picture that models take.
    pub async fn read_image(&self, path: &str) -> Result<Image, Fault> {
        let invalid = |text: String| Fault::new(FaultKind::Invalid, text);
        let file = FilePath::resolve(path, &self.node().cwd).map_err(|fault| invalid(fault.to_string()))?;
        let permit = match judge(&[Effect::Read(file)], &self.node().may()) {
            Verdict::Allowed(permit) => permit,
            Verdict::Denied(denial) => return Err(Fault::denied(denial.dimension.name(), denial.text)),
        };
        let pool = self.shared.pool.upgrade().ok_or_else(shutting_down)?;
        let given = path.to_owned();
        let read = move || {
            let bytes = pool.outside.workspace.read_file(&given, permit, Image::BYTES_MAX)?;
            Image::parse(bytes).map_err(|wrong| format!("{given} {wrong}"))
        };
        let read = tokio::task::spawn_blocking(read).await;
        read.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())).map_err(invalid)
    }

    /// Pictures for a model that takes none are refused before they are in the context, where they would stay.
    fn check_image_support(&self, images: &[Image]) -> Result<(), Fault> {
        if images.is_empty() || self.shared.provider.spec().accepts_images {
            return Ok(());
        }
        let model = self.shared.model.as_deref().unwrap_or("of this agent");
        let text = format!(
            "the model {model} takes no images: ask a model that does, or set `images = true` for it in config.toml"
        );
        Err(Fault::new(FaultKind::Invalid, text))
    }

    pub(crate) fn admit(&self) -> Result<AdmissionPermit, Fault> {
        self.shared.admission.admit(&self.shared.open_turns, self.shared.limits.agent_turns_open_max)
    }

    fn submit_with_permit(
        &self,
        place: AdmissionPermit,
        message: NewMessage,
        kept: Option<oneshot::Sender<Result<(), Fault>>>,
    ) -> Result<TurnFuture, Fault> {
        let (reply, answer) = oneshot::channel();
        let command = Box::new(Command::Send { message, reply, permit: place, commit_waiter: kept });
        self.inbox.try_send(command).map_err(|refused| self.inbox_fault(&refused))?;
        Ok(self.turn_future(answer))
    }

    pub(crate) fn turn_future(&self, reply: oneshot::Receiver<Result<TurnEnd, Fault>>) -> TurnFuture {
        TurnFuture { reply, shared: Arc::clone(&self.shared) }
    }

    /// Keeps the first messages of the context and takes the others out of it; gives how many those were. They stay in
    /// the journal.
    ///
    /// # Errors
    /// When a turn is open, a call would be left without its result, or the change cannot be kept.
    pub async fn rollback(&self, messages: usize, by: Initiator<'_>) -> Result<usize, Fault> {
        let (reply, answer) = oneshot::channel();
        let by = by.name().to_owned();
        let sent = self.inbox.send(Box::new(Command::Rollback { messages, initiator: by, reply })).await;
        sent.map_err(|_| self.shared.unavailable())?;
        answer.await.unwrap_or_else(|_| Err(self.shared.unavailable()))
    }

    /// Makes the context shorter: older messages are summed up by the model, or dropped when it cannot. Waits in line with
    /// the sends. Dropping the future does not end it.
    ///
    /// # Errors
    /// When there is no room in line, the agent is gone or ends meanwhile, or the change cannot be kept.
    pub async fn compact(
        &self,
        when: CompactionCondition,
        by: Initiator<'_>,
    ) -> Result<CompactionOutcome, Fault> {
        let (reply, answer) = oneshot::channel();
        let compaction = CompactionRequest {
            initiator: by.name().to_owned(),
            condition: when,
            reply,
            permit: self.admit()?,
        };
        self.inbox
            .try_send(Box::new(Command::Compact(compaction)))
            .map_err(|refused| self.inbox_fault(&refused))?;
        answer.await.unwrap_or_else(|_| Err(self.shared.unavailable()))
    }

    fn inbox_fault(&self, refused: &mpsc::error::TrySendError<Box<Command>>) -> Fault {
        match refused {
            mpsc::error::TrySendError::Full(_) => Fault::new(busy(), "busy: the agent's inbox is full"),
            mpsc::error::TrySendError::Closed(_) => self.shared.unavailable(),
        }
    }

    /// Ends a running or waiting send now. False when there is none of that name.
    pub async fn cancel(&self, request_id: RequestId) -> bool {
        let (reply, answer) = oneshot::channel();
        let sent = self.inbox.send(Box::new(Command::Cancel { request_id, reply })).await;
        sent.is_ok() && answer.await.unwrap_or(false)
    }

    /// Adds a word to the turn under way. None when there is no such turn, or it has enough of them; otherwise the name
    /// of the send that it went to.
    pub async fn steer(&self, text: String, source: MessageSource) -> Option<RequestId> {
        let (reply, answer) = oneshot::channel();
        let sent = self.inbox.send(Box::new(Command::Steer { text, source, reply })).await;
        if sent.is_err() {
            return None;
        }
        answer.await.ok().flatten()
    }

    /// Has the agent's task end: open sends are answered as cancelled. A signal and not a command, because a command
    /// could find the inbox full, and a caller that then goes away would leave an agent that nobody can reach.
    pub(crate) fn request_end(&self) {
        self.shared.end_requested.cancel();
    }

    /// Returns when the agent's task has ended.
    pub(crate) async fn wait_ended(&self) {
        self.shared.ended.cancelled().await;
    }

    /// Marks the agent as finished. An agent may say so of itself; only an admin's word lets the daemon stop.
    pub(crate) async fn mark_finished(&self, by: Initiator<'_>) -> Result<(), Fault> {
        let is_admin = matches!(by, Initiator::Admin);
        let record = Record::Finished { by: by.name().to_owned() };
        let keeping = self.shared.append(vec![record], |state| {
            state.should_shutdown = true;
            state.is_finished |= is_admin;
        });
        keeping.await?;
        self.shared.published.write().should_shutdown = true;
        Ok(())
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
        let frame =
            self.shared.fixed_overhead(&self.shared.visible_tools(), self.shared.volatile_suffix_tokens());
        let has_price = self.shared.provider.spec().prices.is_some();
        let tree_cost = self.node().tree_cost();
        let state = self.shared.published.read();
        AgentTokens {
            size: state.window.size(&frame),
            used: state.used,
            tree_cost: (has_price || tree_cost > 0).then_some(tree_cost),
            cost: (has_price || state.used.cost > 0).then_some(state.used.cost),
        }
    }

    /// Some of the messages.
    #[must_use]
    pub fn messages(&self, offset: usize, limit: usize) -> MessagePage {
        self.shared.published.read().page(offset, limit)
    }
}

impl Shared {
    /// The agent in a list; whoever lists knows how many children it has.
    pub(crate) fn status(&self, child_count: usize) -> AgentStatus {
        let kin = &self.node;
        let (standing, write_folders) = (kin.granted(), kin.write_folders().roots().to_vec());
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
            parent: kin.parent.as_ref().map(|parent| parent.id()),
            child_count,
            depth: kin.depth,
            preset: standing.preset,
            level: standing.level,
            cwd: kin.cwd.clone(),
            write_folders,
            state: AgentLiveness::Live,
            on_restart: self.on_restart,
            origin: self.origin.clone(),
        }
    }

    /// Puts records in line, with the state as `change` makes it and whatever was used up since the last time.
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

    /// What was put in line was not kept: the state counts what is shown again.
    pub(crate) fn reset_message_count(&self) {
        let messages = self.published.read().window.messages().len() as u64;
        self.enqueued_state.lock().unwrap_or_else(PoisonError::into_inner).messages = messages;
    }

    /// Puts a record in line that changes nothing; nobody waits for it.
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

    /// Whether it is kept that the agent is gone; its task hears of that a moment later.
    pub(crate) async fn is_destroyed(&self) -> Result<bool, StoreFault> {
        let kept = self.store.agents(vec![self.node.serial]).await?;
        Ok(kept.iter().all(|agent| agent.is_destroyed))
    }

    /// The number of the next turn.
    pub(crate) fn next_turn(&self) -> u64 {
        self.turns.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Why nobody answers: the agent is gone, or it fell and is not up again.
    pub(crate) fn unavailable(&self) -> Fault {
        if self.end_requested.is_cancelled() {
            return agent_not_found(&self.id);
        }
        Fault::new(busy(), format!("busy: agent '{}' could not keep its work and is being restored", self.id))
    }
}

pub(crate) fn agent_not_found(id: &AgentId) -> Fault {
    Fault::new(FaultKind::NotFound, format!("Agent not found: {id}"))
}
