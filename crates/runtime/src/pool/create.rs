//! Making an agent: every part of the ask is checked, and checked against what the parent may grant, before anything is
//! made. A refused create leaves nothing behind.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use agent::permission::{DEPTH_MAX, Dimension, Effect, FilePath, Grant, Level, Preset};
use agent::{AgentId, Fault, FaultKind, RequestId, Source, Window};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::Pool;
use super::directory::NotIn;
use super::rights::{RightsSpec, must_be_allowed, must_not_widen, too_little};
use crate::actor::Actor;
use crate::capability::Capability;
use crate::handle::{AgentHandle, Answering, NewMessage, Shared};
use crate::kin::{Kin, NewKin, Standing};
use crate::published::Published;
use crate::turnstile::shutting_down;

/// What an agent is made from.
#[derive(Debug, Clone, Default)]
pub struct AgentSpec {
    /// What it is called.
    pub name: Name,
    /// Its prompt; the pool's own when there is none.
    pub system_prompt: Option<String>,
    /// Its parent.
    pub parent: Option<AgentId>,
    /// Its working directory; its parent's, or the pool's, when there is none.
    pub cwd: Option<String>,
    /// Its model; the usual one when there is none.
    pub model: Option<String>,
    /// What it is given.
    pub rights: RightsSpec,
    /// The highest level it may have, whatever its preset says; none is no bound.
    pub level_max: Option<Level>,
    /// Its first message.
    pub initial: Option<FirstMessage>,
}

/// What an agent is called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Name {
    /// Eight hex digits that are free.
    #[default]
    MadeUp,
    /// The lowest of `.1`, `.2`, … that is free.
    Temporary,
    /// This.
    Given(AgentId),
}

/// An agent's first message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstMessage {
    /// Its text.
    pub text: String,
    /// Where it comes from.
    pub source: Source,
}

/// Who wants an agent.
#[derive(Clone, Copy)]
pub enum By<'a> {
    /// Whoever runs the daemon.
    Admin,
    /// An agent; it becomes the parent.
    Agent(&'a AgentHandle),
}

impl By<'_> {
    /// For the audit trail.
    pub(super) fn name(&self) -> &str {
        match self {
            By::Admin => "admin",
            By::Agent(own) => own.id().as_str(),
        }
    }
}

/// An agent that was made.
pub struct Created {
    /// The way to it.
    pub handle: AgentHandle,
    /// What whoever holds it can show to be that agent.
    pub capability: Capability,
    /// The first message's name, and its answer.
    pub initial: Option<(RequestId, Answering)>,
}

/// Commands that may wait in an inbox beyond the turns that are open: cancels.
const INBOX_SPARE: usize = 16;

/// Names made up before the random bytes are taken to be none: even among 100,000 agents the first is nearly always
/// free.
const MADE_UP_IDS_MAX: usize = 16;

/// The tool by which agents create agents; an agent that calls the method itself needs it too.
const CREATE_TOOL: &str = "agent_create";

/// What is known of an agent before it has a name.
struct Plan {
    spec: AgentSpec,
    parent: Option<Arc<Kin>>,
    cwd: FilePath,
    standing: Standing,
    provider: Arc<dyn agent::outside::Provider>,
}

impl Pool {
    pub(crate) fn create(self: &Arc<Self>, spec: AgentSpec, by: By<'_>) -> Result<Created, Fault> {
        if self.stop_wanted.is_cancelled() {
            return Err(shutting_down());
        }
        let plan = self.plan(spec, by)?;
        match plan.spec.name.clone() {
            Name::Given(id) => {
                let created = self.make(&plan, &id)?;
                created.ok_or_else(|| Fault::new(FaultKind::Invalid, format!("Agent already exists: {id}")))
            }
            Name::MadeUp => self.make_named(&plan, || self.make_up_id()),
            Name::Temporary => self.make_named(&plan, || {
                let none = || Fault::new(FaultKind::Internal, "no temporary agent ID is free");
                self.directory.free_temporary_id().ok_or_else(none)
            }),
        }
    }

    fn make_named(
        self: &Arc<Self>,
        plan: &Plan,
        name: impl Fn() -> Result<AgentId, Fault>,
    ) -> Result<Created, Fault> {
        for _ in 0..MADE_UP_IDS_MAX {
            if let Some(created) = self.make(plan, &name()?)? {
                return Ok(created);
            }
        }
        let fault = Fault::new(FaultKind::Internal, "no agent ID could be made up");
        Err(fault.caused_by(format!("{MADE_UP_IDS_MAX} of them were taken")))
    }

    fn make_up_id(&self) -> Result<AgentId, Fault> {
        let mut bytes = [0; 4];
        self.outside.entropy.fill(&mut bytes)?;
        AgentId::parse(&format!("{:08x}", u32::from_be_bytes(bytes)))
            .map_err(|fault| Fault::new(FaultKind::Internal, "no agent ID could be made up").caused_by(fault))
    }

    /// Checks the whole ask.
    fn plan(&self, spec: AgentSpec, by: By<'_>) -> Result<Plan, Fault> {
        let parent = self.parent(&spec, by)?;
        let preset = self.preset(&spec.rights, spec.level_max)?;
        self.check_ceiling(preset, &spec.rights, parent.as_deref(), by)?;
        if spec.level_max.is_some_and(|max| preset.level > max) {
            return Err(self.no_such_preset(preset.name(), spec.level_max));
        }
        let outer = parent.as_deref().map(Kin::may_grant);
        let cwd = self.cwd(&spec, parent.as_deref(), outer.as_ref())?;
        let standing = self.standing(&spec.rights, &cwd, outer.as_ref())?;
        let provider = match &spec.model {
            None => self.outside.models.usual(),
            Some(model) => self.outside.models.find(model)?,
        };
        Ok(Plan { spec, parent, cwd, standing, provider })
    }

    fn parent(&self, spec: &AgentSpec, by: By<'_>) -> Result<Option<Arc<Kin>>, Fault> {
        let parent = match (by, &spec.parent) {
            (By::Admin, None) => return Ok(None),
            (By::Admin, Some(id)) => {
                let found = self.directory.find(id);
                found
                    .ok_or_else(|| Fault::new(FaultKind::Invalid, format!("Parent agent not found: {id}")))?
            }
            (By::Agent(own), Some(id)) if own.id() != id => {
                let text = "Cannot create agent: requester does not match the parent agent";
                return Err(Fault::denied("identity", text));
            }
            (By::Agent(own), _) => own.clone(),
        };
        if parent.kin().depth >= DEPTH_MAX {
            let text = format!("Cannot create agent: max nesting depth ({DEPTH_MAX}) exceeded");
            return Err(Fault::denied("depth", text));
        }
        Ok(Some(Arc::clone(parent.kin())))
    }

    /// May this preset be had under this parent? What only an admin may ask for is refused to agents here.
    fn check_ceiling(
        &self,
        preset: &Preset,
        rights: &RightsSpec,
        parent: Option<&Kin>,
        by: By<'_>,
    ) -> Result<(), Fault> {
        let Some(parent) = parent else { return Ok(()) };
        let create = Effect::Create(preset.lineage.clone());
        match by {
            By::Admin => must_be_allowed(&[create], &parent.may()),
            By::Agent(_) => {
                must_not_widen(rights.may_create.is_some() || rights.may_grant.is_some())?;
                must_be_allowed(&[Effect::Use(CREATE_TOOL.into()), create], &parent.may())
            }
        }
    }

    fn cwd(&self, spec: &AgentSpec, parent: Option<&Kin>, outer: Option<&Grant>) -> Result<FilePath, Fault> {
        let base = parent.map_or(&self.options.cwd, |parent| &parent.cwd);
        let Some(text) = &spec.cwd else { return Ok(base.clone()) };
        let cwd =
            self.outside.workspace.folder(text, base).map_err(|text| Fault::new(FaultKind::Invalid, text))?;
        if outer.is_some_and(|outer| outer.read.find(&cwd).is_none()) {
            let text = format!("cwd '{cwd}' is outside parent's allowed paths");
            return Err(Fault::denied(Dimension::Read.name(), text));
        }
        Ok(cwd)
    }

    /// None when the name is taken.
    fn make(self: &Arc<Self>, plan: &Plan, id: &AgentId) -> Result<Option<Created>, Fault> {
        let capability = Capability::generate(&*self.outside.entropy)?;
        let kin = Kin::new(NewKin {
            id: id.clone(),
            serial: self.next_serial(),
            parent: plan.parent.clone(),
            cwd: plan.cwd.clone(),
            standing: plan.standing.clone(),
        })
        .map_err(too_little)?;
        let prompt = plan.spec.system_prompt.as_deref().or(self.options.system_prompt_default.as_deref());
        let (inbox, commands) = mpsc::channel(self.limits.agent_turns_open_max + INBOX_SPARE);
        let shared = Arc::new(Shared {
            id: id.clone(),
            kin,
            capability: capability.digest(),
            created_at: self.outside.clock.now(),
            model: plan.provider.model().map(Arc::from),
            provider: Arc::clone(&plan.provider),
            published: Published::new(Window::new(prompt)),
            turnstile: Arc::clone(&self.turnstile),
            open_turns: Arc::new(AtomicUsize::new(0)),
            limits: Arc::clone(&self.limits),
            pool: Arc::downgrade(self),
            ending: CancellationToken::new(),
            ended: CancellationToken::new(),
        });
        let handle = AgentHandle { shared: Arc::clone(&shared), inbox };
        // Both before the agent can be found: a first message that finds no room refuses the whole create.
        let first = plan.spec.initial.as_ref().map(|first| self.first_message(&handle, first)).transpose()?;
        // From before the agent can be found until its task is spawned, so that a stop waits for both.
        let _creating = self.tasks.token();
        match self.directory.insert(handle.clone(), self.limits.agents_max) {
            Ok(()) => {}
            Err(NotIn::Taken) => return Ok(None),
            Err(NotIn::Refused(fault)) => return Err(fault),
        }
        let span = tracing::info_span!(parent: None, "agent", agent = %id);
        tracing::debug!(parent: &span, "agent created");
        let actor = Actor::new(shared, commands, Arc::clone(&self.outside.clock));
        self.tasks.spawn(actor.run().instrument(span));
        Ok(Some(Created { handle, capability, initial: first }))
    }

    /// Puts the first message into the inbox before anybody else can.
    fn first_message(
        &self,
        handle: &AgentHandle,
        first: &FirstMessage,
    ) -> Result<(RequestId, Answering), Fault> {
        let mut bytes = [0; 16];
        self.outside.entropy.fill(&mut bytes)?;
        let request_id = RequestId::Text(uuid_text(bytes));
        let message = NewMessage {
            text: first.text.clone(),
            request_id: request_id.clone(),
            source: first.source.clone(),
        };
        let answering = handle.submit(message)?;
        Ok((request_id, answering))
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
