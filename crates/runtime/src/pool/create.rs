//! Creation of agents: validates the request and checks it against what the parent may grant before anything is
//! created. A rejected creation leaves nothing behind.

use std::collections::VecDeque;
use std::sync::Arc;

use agent::journal::{AgentState, Record, RestartPolicy};
use agent::outside::{Provider, StoreFault, Timestamp};
use agent::permission::{DEPTH_MAX, Dimension, Effect, FilePath, Grant, Level, Preset, RuleAction};
use agent::{
    AgentId, CountedMessage, Fault, FaultKind, Message, MessageSource, PrincipalId, RequestId, TodoItem,
    Window,
};
use tokio::sync::oneshot;

use super::Pool;
use super::directory::ReserveError;
use super::permission_spec::PermissionSpec;
use super::permissions::{Recorded, authorize_effects, budget_exceeds_parent, reject_widening};
use super::wake::NewAgent;
use crate::actor::PendingTurn;
use crate::admission::shutting_down;
use crate::capability::Capability;
use crate::context::{DefaultPrompt, default_prompt};
use crate::handle::{AgentHandle, NewMessage, TurnFuture};
use crate::lineage::{GrantedPermissions, LineageNode, NewLineageNode};

/// Parameters of a new agent.
#[derive(Debug, Clone, Default)]
pub struct AgentSpec {
    /// Agent id.
    pub name: NameSpec,
    /// System prompt; the pool's default if `None`.
    pub system_prompt: Option<String>,
    /// Parent agent.
    pub parent: Option<AgentId>,
    /// Working directory; the parent's or the pool's if `None`.
    pub cwd: Option<String>,
    /// Model; the default model if `None`.
    pub model: Option<String>,
    /// Requested permissions.
    pub permissions: PermissionSpec,
    /// Maximum trust level, whatever the preset; `None` is unbounded.
    pub level_max: Option<Level>,
    /// First message.
    pub initial: Option<FirstMessage>,
    /// Restart policy for open turns; the pool's default if `None`.
    pub on_restart: Option<RestartPolicy>,
    /// Origin, if it is forked or imported.
    pub origin: Option<String>,
}

/// How the id of a new agent is chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NameSpec {
    /// Random id of eight hex digits.
    #[default]
    Generated,
    /// Lowest free temporary id: `.1`, `.2`, …
    NextTemporary,
    /// This id.
    Given(AgentId),
}

/// First message of a new agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstMessage {
    /// Text of the message.
    pub text: String,
    /// Origin of the message.
    pub source: MessageSource,
}

/// Initiator of an operation.
#[derive(Clone, Copy)]
pub enum Initiator<'a> {
    /// The operator of the daemon.
    Admin,
    /// An agent; the parent of agents it creates.
    Agent(&'a AgentHandle),
}

impl Initiator<'_> {
    /// Returns the identity for records and the audit trail.
    pub(crate) fn principal_id(&self) -> PrincipalId {
        match self {
            Initiator::Admin => PrincipalId::Admin,
            Initiator::Agent(agent) => PrincipalId::Agent(agent.id().clone()),
        }
    }
}

/// Owned [`Initiator`], for detached work that outlives the caller.
pub(crate) enum OwnedInitiator {
    Admin,
    Agent(AgentHandle),
}

impl OwnedInitiator {
    pub(crate) fn from_initiator(initiator: Initiator<'_>) -> Self {
        match initiator {
            Initiator::Admin => OwnedInitiator::Admin,
            Initiator::Agent(agent) => OwnedInitiator::Agent(agent.clone()),
        }
    }

    pub(crate) fn as_initiator(&self) -> Initiator<'_> {
        match self {
            OwnedInitiator::Admin => Initiator::Admin,
            OwnedInitiator::Agent(agent) => Initiator::Agent(agent),
        }
    }
}

/// A created agent.
pub struct CreatedAgent {
    /// Handle to the agent.
    pub handle: AgentHandle,
    /// Token that authenticates its bearer as this agent.
    pub capability: Capability,
    /// Request id and turn of the first message.
    pub initial: Option<(RequestId, TurnFuture)>,
}

/// Attempts to generate a free id before the entropy source is assumed broken: even among 100,000 agents the first is
/// nearly always free.
const ID_ATTEMPTS_MAX: usize = 16;

/// Tool that creates agents; an agent that calls the RPC method directly needs permission for it too.
const CREATE_TOOL: &str = "agent_create";

/// A validated creation request, before an id is assigned.
pub(super) struct CreatePlan {
    pub(super) spec: AgentSpec,
    pub(super) parent: Option<Arc<LineageNode>>,
    pub(super) cwd: FilePath,
    pub(super) granted: GrantedPermissions,
    pub(super) provider: Arc<dyn Provider>,
    pub(super) created_by: PrincipalId,
    pub(super) created_at: Option<Timestamp>,
    /// Initial messages.
    pub(super) messages: Vec<Arc<Message>>,
    /// Initial plan.
    pub(super) todo: Vec<TodoItem>,
}

impl Pool {
    pub(crate) async fn create(
        self: &Arc<Self>,
        spec: AgentSpec,
        initiator: Initiator<'_>,
    ) -> Result<CreatedAgent, Fault> {
        let plan = self.plan_create(spec, initiator).await?;
        self.create_planned(&plan).await
    }

    pub(super) async fn create_planned(self: &Arc<Self>, plan: &CreatePlan) -> Result<CreatedAgent, Fault> {
        match plan.spec.name.clone() {
            NameSpec::Given(id) => {
                self.wait_for_id(&id).await;
                let created = self.create_with_id(plan, &id).await?;
                created.ok_or_else(|| Fault::new(FaultKind::Invalid, format!("Agent already exists: {id}")))
            }
            NameSpec::Generated => self.create_with_generated_id(plan, || self.generate_id()).await,
            NameSpec::NextTemporary => {
                let next_id = || {
                    let none = || Fault::new(FaultKind::Internal, "no temporary agent ID is free");
                    self.directory.free_temporary_id().ok_or_else(none)
                };
                self.create_with_generated_id(plan, next_id).await
            }
        }
    }

    async fn create_with_generated_id(
        self: &Arc<Self>,
        plan: &CreatePlan,
        next_id: impl Fn() -> Result<AgentId, Fault>,
    ) -> Result<CreatedAgent, Fault> {
        for _ in 0..ID_ATTEMPTS_MAX {
            if let Some(created) = self.create_with_id(plan, &next_id()?).await? {
                return Ok(created);
            }
        }
        let fault = Fault::new(FaultKind::Internal, "could not generate an agent ID");
        Err(fault.caused_by(format!("all {ID_ATTEMPTS_MAX} generated IDs are taken")))
    }

    fn generate_id(&self) -> Result<AgentId, Fault> {
        let mut bytes = [0; 4];
        self.outside.entropy.fill(&mut bytes)?;
        AgentId::parse(&format!("{:08x}", u32::from_be_bytes(bytes))).map_err(|fault| {
            Fault::new(FaultKind::Internal, "could not generate an agent ID").caused_by(fault)
        })
    }

    /// Validates the whole request.
    pub(super) async fn plan_create(
        &self,
        spec: AgentSpec,
        initiator: Initiator<'_>,
    ) -> Result<CreatePlan, Fault> {
        if self.stop_requested.is_cancelled() {
            return Err(shutting_down());
        }
        let parent = self.resolve_parent(&spec, initiator).await?;
        let preset = self.find_preset(&spec.permissions, spec.level_max)?;
        self.check_ceiling(preset, &spec.permissions, parent.as_deref(), initiator)?;
        if spec.level_max.is_some_and(|max| preset.level > max) {
            return Err(self.preset_not_found(preset.name(), spec.level_max));
        }
        let ceiling = parent.as_deref().map(LineageNode::may_grant);
        let cwd = self.resolve_cwd(&spec, parent.as_deref(), ceiling.as_ref())?;
        let granted =
            self.resolve_permissions(&spec.permissions, &cwd, ceiling.as_ref(), &Recorded::default())?;
        let provider = match &spec.model {
            None => self.outside.models.default_model(),
            Some(model) => self.outside.models.find(model)?,
        };
        let created_by = initiator.principal_id();
        Ok(CreatePlan {
            spec,
            parent,
            cwd,
            granted,
            provider,
            created_by,
            created_at: None,
            messages: Vec::new(),
            todo: Vec::new(),
        })
    }

    async fn resolve_parent(
        &self,
        spec: &AgentSpec,
        initiator: Initiator<'_>,
    ) -> Result<Option<Arc<LineageNode>>, Fault> {
        let parent = match (initiator, &spec.parent) {
            (Initiator::Admin, None) => return Ok(None),
            (Initiator::Admin, Some(id)) => {
                let none = || Fault::new(FaultKind::Invalid, format!("Parent agent not found: {id}"));
                self.node_of(self.directory.find(id).ok_or_else(none)?).await?
            }
            (Initiator::Agent(agent), Some(id)) if agent.id() != id => {
                let text = "Cannot create agent: requester does not match the parent agent";
                return Err(Fault::denied("identity", text));
            }
            (Initiator::Agent(agent), _) => Arc::clone(agent.node()),
        };
        if parent.depth >= DEPTH_MAX {
            let text = format!("Cannot create agent: max nesting depth ({DEPTH_MAX}) exceeded");
            return Err(Fault::denied("depth", text));
        }
        Ok(Some(parent))
    }

    /// Checks that the parent may create an agent of this preset, and rejects admin-only fields from agents.
    fn check_ceiling(
        &self,
        preset: &Preset,
        spec: &PermissionSpec,
        parent: Option<&LineageNode>,
        initiator: Initiator<'_>,
    ) -> Result<(), Fault> {
        let Some(parent) = parent else { return Ok(()) };
        let create = Effect::Create(preset.inheritance.clone());
        match initiator {
            Initiator::Admin => authorize_effects(&[create], &parent.may()),
            Initiator::Agent(_) => {
                let allows = spec.rules.iter().any(|entry| entry.action == RuleAction::Allow);
                reject_widening(spec.may_create.is_some() || spec.may_grant.is_some() || allows)?;
                authorize_effects(&[Effect::Use(CREATE_TOOL.into()), create], &parent.may())
            }
        }
    }

    fn resolve_cwd(
        &self,
        spec: &AgentSpec,
        parent: Option<&LineageNode>,
        ceiling: Option<&Grant>,
    ) -> Result<FilePath, Fault> {
        let base = parent.map_or(&self.options.cwd, |parent| &parent.cwd);
        let Some(text) = &spec.cwd else { return Ok(base.clone()) };
        let cwd = self
            .outside
            .workspace
            .resolve_directory(text, base)
            .map_err(|text| Fault::new(FaultKind::Invalid, text))?;
        if ceiling.is_some_and(|ceiling| ceiling.read.find(&cwd).is_none()) {
            let text = format!("cwd '{cwd}' is outside parent's allowed paths");
            return Err(Fault::denied(Dimension::Read.name(), text));
        }
        Ok(cwd)
    }

    /// Creates the agent with this id; `None` when the id is taken.
    async fn create_with_id(
        self: &Arc<Self>,
        plan: &CreatePlan,
        id: &AgentId,
    ) -> Result<Option<CreatedAgent>, Fault> {
        let capability = Capability::generate(&*self.outside.entropy)?;
        // Locked before the budget is reserved: until the commit, no ancestor is destroyed and refunded.
        let tree_lock = plan.parent.as_ref().and_then(|parent| self.directory.tree_lock(parent.root()));
        let _tree_guard = match &tree_lock {
            Some(tree_lock) => Some(tree_lock.read().await),
            None => None,
        };
        let node = LineageNode::new(NewLineageNode {
            id: id.clone(),
            serial: self.next_serial(),
            parent: plan.parent.clone(),
            cwd: plan.cwd.clone(),
            granted: plan.granted.clone(),
        })
        .map_err(budget_exceeds_parent)?;
        match self.directory.reserve(&node, capability.digest(), self.limits.agents_max) {
            Ok(()) => {}
            Err(error) => {
                node.release_pending();
                return match error {
                    ReserveError::IdTaken => Ok(None),
                    ReserveError::Refused(fault) => Err(fault),
                };
            }
        }
        match self.persist_and_start(plan, &node, &capability).await {
            Ok(created) => Ok(Some(created)),
            Err(fault) => {
                self.directory.remove(node.serial);
                node.release().confirm();
                Err(fault)
            }
        }
    }

    /// Commits the agent with its first message, then starts its actor.
    async fn persist_and_start(
        self: &Arc<Self>,
        plan: &CreatePlan,
        node: &Arc<LineageNode>,
        capability: &Capability,
    ) -> Result<CreatedAgent, Fault> {
        let reservation = self.reserve_live().await?;
        let window = self.initial_window(plan, node);
        let turns = u64::from(plan.spec.initial.is_some());
        let (messages, todo) = (plan.messages.len() as u64, plan.todo.clone());
        let mut state = AgentState { messages, turns, todo, ..AgentState::default() };
        node.copy_identities(&mut state);
        let new = NewAgent {
            node: Arc::clone(node),
            capability: capability.digest(),
            created_at: plan.created_at.unwrap_or_else(|| self.outside.clock.now()),
            created_by: plan.created_by.clone(),
            origin: plan.spec.origin.clone(),
            on_restart: plan.spec.on_restart.unwrap_or(self.options.on_restart_default),
            model_requested: plan.spec.model.clone(),
            provider: Arc::clone(&plan.provider),
            window,
            state,
        };
        let (handle, commands) = self.assemble(new);
        let first_message = plan
            .spec
            .initial
            .as_ref()
            .map(|first_message| self.admit_first_message(&handle, first_message))
            .transpose()?;
        let mut records = vec![Record::Created(Box::new(handle.record()))];
        let added_record = |message: &Arc<Message>| Record::MessageAdded(Box::new(Message::clone(message)));
        records.extend(plan.messages.iter().map(added_record));
        records.extend(first_message.as_ref().map(|(_, pending)| pending.accepted_record()));
        node.mark_creation_enqueued();
        handle.shared.append(records, |_| {}).await.map_err(|fault| match fault {
            StoreFault::DuplicateAgentId => {
                Fault::new(FaultKind::Invalid, format!("Agent already exists: {}", handle.id()))
            }
            fault => fault.into(),
        })?;
        let (initial, queue) = match first_message {
            None => (None, VecDeque::new()),
            Some((request_id, mut pending)) => {
                let (reply, receiver) = oneshot::channel();
                pending.mark_committed();
                let initial = (request_id, handle.turn_future(receiver));
                (Some(initial), VecDeque::from([pending.with_reply(reply)]))
            }
        };
        self.start_agent(&handle, commands, queue, reservation);
        Ok(CreatedAgent { handle, capability: capability.clone(), initial })
    }

    /// Builds the initial context. The system prompt is the agent's own, else the pool's default, else the layered
    /// prompt.
    fn initial_window(&self, plan: &CreatePlan, node: &LineageNode) -> Window {
        let prompt = plan.spec.system_prompt.clone().or_else(|| self.options.system_prompt_default.clone());
        let provider = &*plan.provider;
        let prompt = prompt.or_else(|| match self.options.context.prompt {
            DefaultPrompt::Nothing => None,
            DefaultPrompt::Layers => {
                let writable_paths = node.write_directories().roots().to_vec();
                Some(default_prompt(
                    &*self.outside.workspace,
                    provider,
                    &plan.cwd,
                    &writable_paths,
                    self.options.context.operating_system,
                ))
            }
        });
        let count = |text: &str| provider.count(text);
        let mut window = Window::new(prompt.as_deref(), &count);
        plan.messages
            .iter()
            .for_each(|message| window.push(CountedMessage::new(Arc::clone(message), &count)));
        window
    }

    /// Admits the first message before the agent is visible: without a permit the creation fails.
    fn admit_first_message(
        &self,
        handle: &AgentHandle,
        first_message: &FirstMessage,
    ) -> Result<(RequestId, PendingTurn), Fault> {
        let mut bytes = [0; 16];
        self.outside.entropy.fill(&mut bytes)?;
        let request_id = RequestId::Text(uuid_text(bytes));
        let message = NewMessage {
            text: first_message.text.clone(),
            images: Vec::new(),
            request_id: request_id.clone(),
            source: first_message.source.clone(),
        };
        Ok((request_id, PendingTurn::new(message, handle.admit()?, handle.shared.next_turn())))
    }
}

/// Formats a random (version 4) UUID.
fn uuid_text(mut bytes: [u8; 16]) -> String {
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    parts.join("-")
}
