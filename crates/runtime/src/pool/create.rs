//! Making an agent: every part of the ask is checked, and checked against what the parent may grant, before anything is
//! made. A refused create leaves nothing behind.

use std::collections::VecDeque;
use std::sync::Arc;

use agent::journal::{AgentState, Record, RestartPolicy};
use agent::outside::{Provider, StoreFault, Timestamp};
use agent::permission::{DEPTH_MAX, Dimension, Effect, FilePath, Grant, Level, Preset};
use agent::{AgentId, CountedMessage, Fault, FaultKind, Message, MessageSource, RequestId, Window};
use tokio::sync::oneshot;

use super::Pool;
use super::directory::ReserveError;
use super::permissions::{PermissionSpec, authorize_effects, budget_exceeds_parent, reject_widening};
use super::wake::NewAgent;
use crate::actor::PendingTurn;
use crate::admission::shutting_down;
use crate::capability::Capability;
use crate::context::{DefaultPrompt, default_prompt};
use crate::handle::{AgentHandle, NewMessage, TurnFuture};
use crate::lineage::{GrantedPermissions, LineageNode, NewLineageNode};

/// What an agent is made from.
#[derive(Debug, Clone, Default)]
pub struct AgentSpec {
    /// What it is called.
    pub name: NameSpec,
    /// Its prompt; the pool's own when there is none.
    pub system_prompt: Option<String>,
    /// Its parent.
    pub parent: Option<AgentId>,
    /// Its working directory; its parent's, or the pool's, when there is none.
    pub cwd: Option<String>,
    /// Its model; the usual one when there is none.
    pub model: Option<String>,
    /// What it is given.
    pub permissions: PermissionSpec,
    /// The highest level it may have, whatever its preset says; none is no bound.
    pub level_max: Option<Level>,
    /// Its first message.
    pub initial: Option<FirstMessage>,
    /// What becomes of a turn that a crash cuts off; the pool's own way when nothing is said.
    pub on_restart: Option<RestartPolicy>,
    /// Where it comes from, if it is not made from nothing.
    pub origin: Option<String>,
}

/// What an agent is called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NameSpec {
    /// Eight hex digits that are free.
    #[default]
    Generated,
    /// The lowest of `.1`, `.2`, … that is free.
    NextTemporary,
    /// This.
    Given(AgentId),
}

/// An agent's first message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstMessage {
    /// Its text.
    pub text: String,
    /// Where it comes from.
    pub source: MessageSource,
}

/// Who wants an agent.
#[derive(Clone, Copy)]
pub enum Initiator<'a> {
    /// Whoever runs the daemon.
    Admin,
    /// An agent; it becomes the parent.
    Agent(&'a AgentHandle),
}

impl Initiator<'_> {
    /// For the audit trail.
    pub(crate) fn name(&self) -> &str {
        match self {
            Initiator::Admin => "admin",
            Initiator::Agent(own) => own.id().as_str(),
        }
    }
}

/// The same, for work that goes on when whoever asked for it is gone.
pub(crate) enum OwnedInitiator {
    Admin,
    Agent(AgentHandle),
}

impl OwnedInitiator {
    pub(crate) fn from_initiator(by: Initiator<'_>) -> Self {
        match by {
            Initiator::Admin => OwnedInitiator::Admin,
            Initiator::Agent(own) => OwnedInitiator::Agent(own.clone()),
        }
    }

    pub(crate) fn as_initiator(&self) -> Initiator<'_> {
        match self {
            OwnedInitiator::Admin => Initiator::Admin,
            OwnedInitiator::Agent(own) => Initiator::Agent(own),
        }
    }
}

/// An agent that was made.
pub struct CreatedAgent {
    /// The way to it.
    pub handle: AgentHandle,
    /// What whoever holds it can show to be that agent.
    pub capability: Capability,
    /// The first message's name, and its answer.
    pub initial: Option<(RequestId, TurnFuture)>,
}

/// Names made up before the random bytes are taken to be none: even among 100,000 agents the first is nearly always
/// free.
const ID_ATTEMPTS_MAX: usize = 16;

/// The tool by which agents create agents; an agent that calls the method itself needs it too.
const CREATE_TOOL: &str = "agent_create";

/// What is known of an agent before it has a name.
pub(super) struct CreatePlan {
    pub(super) spec: AgentSpec,
    pub(super) parent: Option<Arc<LineageNode>>,
    pub(super) cwd: FilePath,
    pub(super) granted: GrantedPermissions,
    pub(super) provider: Arc<dyn Provider>,
    pub(super) created_by: String,
    pub(super) created_at: Option<Timestamp>,
    /// Messages it begins with.
    pub(super) messages: Vec<Arc<Message>>,
}

impl Pool {
    pub(crate) async fn create(
        self: &Arc<Self>,
        spec: AgentSpec,
        by: Initiator<'_>,
    ) -> Result<CreatedAgent, Fault> {
        let plan = self.plan_create(spec, by).await?;
        self.create_planned(&plan).await
    }

    pub(super) async fn create_planned(self: &Arc<Self>, plan: &CreatePlan) -> Result<CreatedAgent, Fault> {
        match plan.spec.name.clone() {
            NameSpec::Given(id) => {
                let created = self.create_with_id(plan, &id).await?;
                created.ok_or_else(|| Fault::new(FaultKind::Invalid, format!("Agent already exists: {id}")))
            }
            NameSpec::Generated => self.create_with_generated_id(plan, || self.generate_id()).await,
            NameSpec::NextTemporary => {
                let name = || {
                    let none = || Fault::new(FaultKind::Internal, "no temporary agent ID is free");
                    self.directory.free_temporary_id().ok_or_else(none)
                };
                self.create_with_generated_id(plan, name).await
            }
        }
    }

    async fn create_with_generated_id(
        self: &Arc<Self>,
        plan: &CreatePlan,
        name: impl Fn() -> Result<AgentId, Fault>,
    ) -> Result<CreatedAgent, Fault> {
        for _ in 0..ID_ATTEMPTS_MAX {
            if let Some(created) = self.create_with_id(plan, &name()?).await? {
                return Ok(created);
            }
        }
        let fault = Fault::new(FaultKind::Internal, "no agent ID could be made up");
        Err(fault.caused_by(format!("{ID_ATTEMPTS_MAX} of them were taken")))
    }

    fn generate_id(&self) -> Result<AgentId, Fault> {
        let mut bytes = [0; 4];
        self.outside.entropy.fill(&mut bytes)?;
        AgentId::parse(&format!("{:08x}", u32::from_be_bytes(bytes)))
            .map_err(|fault| Fault::new(FaultKind::Internal, "no agent ID could be made up").caused_by(fault))
    }

    /// Checks the whole ask.
    pub(super) async fn plan_create(&self, spec: AgentSpec, by: Initiator<'_>) -> Result<CreatePlan, Fault> {
        if self.stop_requested.is_cancelled() {
            return Err(shutting_down());
        }
        let parent = self.resolve_parent(&spec, by).await?;
        let preset = self.find_preset(&spec.permissions, spec.level_max)?;
        self.check_ceiling(preset, &spec.permissions, parent.as_deref(), by)?;
        if spec.level_max.is_some_and(|max| preset.level > max) {
            return Err(self.preset_not_found(preset.name(), spec.level_max));
        }
        let outer = parent.as_deref().map(LineageNode::may_grant);
        let cwd = self.resolve_cwd(&spec, parent.as_deref(), outer.as_ref())?;
        let standing = self.resolve_permissions(&spec.permissions, &cwd, outer.as_ref())?;
        let provider = match &spec.model {
            None => self.outside.models.default_model(),
            Some(model) => self.outside.models.find(model)?,
        };
        let by = by.name().to_owned();
        Ok(CreatePlan {
            spec,
            parent,
            cwd,
            granted: standing,
            provider,
            created_by: by,
            created_at: None,
            messages: Vec::new(),
        })
    }

    async fn resolve_parent(
        &self,
        spec: &AgentSpec,
        by: Initiator<'_>,
    ) -> Result<Option<Arc<LineageNode>>, Fault> {
        let parent = match (by, &spec.parent) {
            (Initiator::Admin, None) => return Ok(None),
            (Initiator::Admin, Some(id)) => {
                let none = || Fault::new(FaultKind::Invalid, format!("Parent agent not found: {id}"));
                self.node_of(self.directory.find(id).ok_or_else(none)?).await?
            }
            (Initiator::Agent(own), Some(id)) if own.id() != id => {
                let text = "Cannot create agent: requester does not match the parent agent";
                return Err(Fault::denied("identity", text));
            }
            (Initiator::Agent(own), _) => Arc::clone(own.node()),
        };
        if parent.depth >= DEPTH_MAX {
            let text = format!("Cannot create agent: max nesting depth ({DEPTH_MAX}) exceeded");
            return Err(Fault::denied("depth", text));
        }
        Ok(Some(parent))
    }

    /// May this preset be had under this parent? What only an admin may ask for is refused to agents here.
    fn check_ceiling(
        &self,
        preset: &Preset,
        permissions: &PermissionSpec,
        parent: Option<&LineageNode>,
        by: Initiator<'_>,
    ) -> Result<(), Fault> {
        let Some(parent) = parent else { return Ok(()) };
        let create = Effect::Create(preset.inheritance.clone());
        match by {
            Initiator::Admin => authorize_effects(&[create], &parent.may()),
            Initiator::Agent(_) => {
                reject_widening(permissions.may_create.is_some() || permissions.may_grant.is_some())?;
                authorize_effects(&[Effect::Use(CREATE_TOOL.into()), create], &parent.may())
            }
        }
    }

    fn resolve_cwd(
        &self,
        spec: &AgentSpec,
        parent: Option<&LineageNode>,
        outer: Option<&Grant>,
    ) -> Result<FilePath, Fault> {
        let base = parent.map_or(&self.options.cwd, |parent| &parent.cwd);
        let Some(text) = &spec.cwd else { return Ok(base.clone()) };
        let cwd = self
            .outside
            .workspace
            .resolve_directory(text, base)
            .map_err(|text| Fault::new(FaultKind::Invalid, text))?;
        if outer.is_some_and(|outer| outer.read.find(&cwd).is_none()) {
            let text = format!("cwd '{cwd}' is outside parent's allowed paths");
            return Err(Fault::denied(Dimension::Read.name(), text));
        }
        Ok(cwd)
    }

    /// None when the name is taken.
    async fn create_with_id(
        self: &Arc<Self>,
        plan: &CreatePlan,
        id: &AgentId,
    ) -> Result<Option<CreatedAgent>, Fault> {
        let capability = Capability::generate(&*self.outside.entropy)?;
        // Waited for first: what is set aside while somebody waits would be kept without the agent it is for.
        let _making = self.tree_lock.read().await;
        let kin = LineageNode::new(NewLineageNode {
            id: id.clone(),
            serial: self.next_serial(),
            parent: plan.parent.clone(),
            cwd: plan.cwd.clone(),
            granted: plan.granted.clone(),
        })
        .map_err(budget_exceeds_parent)?;
        match self.directory.reserve(&kin, capability.digest(), self.limits.agents_max) {
            Ok(()) => {}
            Err(refused) => {
                kin.release_pending();
                return match refused {
                    ReserveError::NameTaken => Ok(None),
                    ReserveError::Refused(fault) => Err(fault),
                };
            }
        }
        match self.persist_and_start(plan, &kin, &capability).await {
            Ok(created) => Ok(Some(created)),
            Err(fault) => {
                self.directory.remove(kin.serial);
                kin.release().confirm();
                Err(fault)
            }
        }
    }

    /// Keeps the agent with its first message, and lets it live then.
    async fn persist_and_start(
        self: &Arc<Self>,
        plan: &CreatePlan,
        kin: &Arc<LineageNode>,
        capability: &Capability,
    ) -> Result<CreatedAgent, Fault> {
        let live_place = self.reserve_live().await?;
        let window = self.initial_window(plan, kin);
        let turns = u64::from(plan.spec.initial.is_some());
        let state = AgentState { messages: plan.messages.len() as u64, turns, ..AgentState::default() };
        let new = NewAgent {
            node: Arc::clone(kin),
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
        let first =
            plan.spec.initial.as_ref().map(|first| self.admit_first_message(&handle, first)).transpose()?;
        let mut records = vec![Record::Created(Box::new(handle.record()))];
        let kept = |message: &Arc<Message>| Record::MessageAdded(Box::new(Message::clone(message)));
        records.extend(plan.messages.iter().map(kept));
        records.extend(first.as_ref().map(|(_, open)| open.accepted_record()));
        kin.mark_committed();
        handle.shared.append(records, |_| {}).await.map_err(|fault| match fault {
            StoreFault::DuplicateAgentId => {
                Fault::new(FaultKind::Invalid, format!("Agent already exists: {}", handle.id()))
            }
            fault => fault.into(),
        })?;
        let (initial, waiting) = match first {
            None => (None, VecDeque::new()),
            Some((request_id, mut open)) => {
                let (reply, answer) = oneshot::channel();
                open.mark_committed();
                let initial = (request_id, handle.turn_future(answer));
                (Some(initial), VecDeque::from([open.with_reply(reply)]))
            }
        };
        self.start_agent(&handle, commands, waiting, live_place);
        Ok(CreatedAgent { handle, capability: capability.clone(), initial })
    }

    /// The context an agent begins with. Its own prompt stands alone; without one it has the pool's, or the layers.
    fn initial_window(&self, plan: &CreatePlan, kin: &LineageNode) -> Window {
        let given = plan.spec.system_prompt.clone().or_else(|| self.options.system_prompt_default.clone());
        let provider = &*plan.provider;
        let prompt = given.or_else(|| match self.options.context.prompt {
            DefaultPrompt::Nothing => None,
            DefaultPrompt::Layers => {
                let writes = kin.write_folders().roots().to_vec();
                Some(default_prompt(
                    &*self.outside.workspace,
                    provider,
                    &plan.cwd,
                    &writes,
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

    /// The first message has its place before the agent can be found: if there is no room, there is no agent.
    fn admit_first_message(
        &self,
        handle: &AgentHandle,
        first: &FirstMessage,
    ) -> Result<(RequestId, PendingTurn), Fault> {
        let mut bytes = [0; 16];
        self.outside.entropy.fill(&mut bytes)?;
        let request_id = RequestId::Text(uuid_text(bytes));
        let message = NewMessage {
            text: first.text.clone(),
            images: Vec::new(),
            request_id: request_id.clone(),
            source: first.source.clone(),
        };
        Ok((request_id, PendingTurn::new(message, handle.admit()?, handle.shared.next_turn())))
    }
}

/// A random UUID in its usual text.
fn uuid_text(mut bytes: [u8; 16]) -> String {
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    parts.join("-")
}
