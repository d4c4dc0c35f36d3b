//! One run of the simulation: the pool, all requests sent to it, and the check of every response.

use std::future::Future;
use std::pin::Pin;

use agent::permission::Resource;
use agent::{AgentId, Fault, FaultKind, Halt, RequestId, TurnEnd, TurnOutcome};
use futures_util::FutureExt;
use runtime::{AgentHandle, Capability, Limits, NewMessage};
use testkit::TestRng;

use crate::scenarios::{Scenario, ScenarioWriter};
use crate::world::{World, is_busy};

pub(crate) struct Driver {
    pub(crate) rng: TestRng,
    pub(crate) scenario_writer: ScenarioWriter,
    pub(crate) world: World,
    pub(crate) limits: Limits,
    pub(crate) profile: RunProfile,
    pub(crate) agents: Vec<AgentModel>,
    pub(crate) sent: Vec<SentMessage>,
    /// A stop was requested: no new agents.
    pub(crate) stop_requested: bool,
    /// Open turns may be cancelled without a cancel request.
    pub(crate) stopping: bool,
    pub(crate) log: Log,
}

/// Probabilities of a run. Many restrictions would hide other behaviour, so runs differ.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunProfile {
    /// Percentage of agents with all permissions.
    pub(crate) unrestricted_percent: usize,
    /// Percentage of limits that are set.
    pub(crate) limited_percent: usize,
    /// Percentage of unusual values in a grant request.
    pub(crate) unusual_percent: usize,
    /// Percentage of agents created below the deepest one.
    pub(crate) deep_percent: usize,
    /// Percentage of messages that make agents talk to each other.
    pub(crate) conversation_percent: usize,
    pub(crate) name_count: usize,
}

impl RunProfile {
    fn random(rng: &mut TestRng) -> Self {
        Self {
            unrestricted_percent: *rng.pick(&[0, 50, 95]),
            limited_percent: *rng.pick(&[0, 8, 30]),
            unusual_percent: *rng.pick(&[0, 15]),
            deep_percent: *rng.pick(&[0, 0, 95]),
            conversation_percent: *rng.pick(&[10, 30, 80]),
            name_count: *rng.pick(&[2, 3, 5]),
        }
    }

    /// Agents that interact a lot.
    fn random_conversational(rng: &mut TestRng) -> Self {
        let limited_percent = *rng.pick(&[0, 0, 8]);
        let deep_percent = *rng.pick(&[0, 95]);
        Self {
            unrestricted_percent: 97,
            limited_percent,
            unusual_percent: 0,
            deep_percent,
            conversation_percent: 80,
            name_count: rng.between(2, 3),
        }
    }
}

fn random_limits(rng: &mut TestRng) -> Limits {
    Limits {
        agents_max: *rng.pick(&[1, 4, 8, 12]),
        turns_running_max: rng.between(1, 4),
        turns_open_max: *rng.pick(&[1, 6, 20, 60]),
        agent_turns_open_max: rng.between(1, 6),
        tool_iterations_max: rng.between(1, 4) as u64,
        tools_running_max: rng.between(1, 4),
        tool_result_bytes_max: 1000,
        model_idle_timeout: std::time::Duration::from_secs(rng.between(1, 60) as u64),
        ..Limits::default()
    }
}

/// The simulation's model of one agent. A name may be reused by a later agent.
pub(crate) struct AgentModel {
    pub(crate) name: AgentId,
    pub(crate) handle: AgentHandle,
    /// None for an agent that another agent created.
    pub(crate) capability: Option<Capability>,
    pub(crate) is_destroyed: bool,
    pub(crate) is_finished: bool,
    /// Number of accepted steering instructions.
    pub(crate) steer_count: usize,
    pub(crate) budget_history: [BudgetHistory; 5],
}

/// The limits that one resource of an agent has had.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BudgetHistory {
    pub(crate) ever_limited: bool,
    pub(crate) ever_unlimited: bool,
    pub(crate) changes: usize,
    pub(crate) limit_max: u64,
    /// The amount used or reserved when the limit was last changed.
    pub(crate) floor: u64,
}

/// One send, as its sender sees it.
pub(crate) struct SentMessage {
    pub(crate) agent: usize,
    pub(crate) request_id: RequestId,
    pub(crate) scenario: Scenario,
    pub(crate) outcome: SendOutcome,
    pub(crate) cancel_requested: bool,
    pub(crate) cancel_confirmed: bool,
    /// Another send to this agent has the same request id and other content.
    pub(crate) reuses_request_id: bool,
    /// The earlier send that this one duplicates.
    pub(crate) duplicate_of: Option<usize>,
    /// Whether the turn was steered: the instruction is a script of its own.
    pub(crate) is_steered: bool,
}

pub(crate) enum SendOutcome {
    Pending(Pin<Box<dyn Future<Output = Result<TurnEnd, Fault>>>>),
    /// The sender dropped the future; the turn goes on.
    SenderDropped,
    Responded(Result<TurnEnd, Fault>),
    /// It was not accepted.
    Rejected,
}

/// The log of a run, printed when the run fails.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) lines: Vec<String>,
}

impl Log {
    pub(crate) fn note(&mut self, line: String) {
        self.lines.push(line);
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of the run:\n{}", self.lines.join("\n"));
        }
    }
}

impl Driver {
    pub(crate) async fn new(seed: u64) -> Self {
        let mut rng = TestRng::new(seed);
        let limits = random_limits(&mut rng);
        let profile = if rng.percent(35) {
            RunProfile::random_conversational(&mut rng)
        } else {
            RunProfile::random(&mut rng)
        };
        let world = World::with_limits(limits.clone()).await;
        world.store.set_commit_yields(*rng.pick(&[0, 0, 1, 3]));
        world.tools.enable_permission_checks(&world.pool);
        Self {
            rng,
            scenario_writer: ScenarioWriter::new(profile.conversation_percent, profile.name_count),
            world,
            limits,
            profile,
            agents: Vec::new(),
            sent: Vec::new(),
            stop_requested: false,
            stopping: false,
            log: Log::default(),
        }
    }

    /// Indices of the agents that exist, oldest first.
    pub(crate) fn existing_agents(&self) -> Vec<usize> {
        (0..self.agents.len()).filter(|index| !self.agents[*index].is_destroyed).collect()
    }

    pub(crate) fn agent_named(&self, name: &AgentId) -> Option<usize> {
        self.existing_agents().into_iter().find(|index| self.agents[*index].name == *name)
    }

    /// Indices of an agent's descendants, including destroyed ones.
    pub(crate) fn descendants(&self, index: usize) -> Vec<usize> {
        let top = &self.agents[index].handle;
        (0..self.agents.len())
            .filter(|descendant| self.agents[*descendant].handle.is_descendant_of(top))
            .collect()
    }

    /// Records which agents other agents have destroyed.
    pub(crate) fn mark_destroyed(&mut self) {
        for index in self.existing_agents() {
            if !self.world.pool.exists(&self.agents[index].handle.agent_ref()) {
                self.log.note(format!("agent #{index} was destroyed by an agent"));
                self.agents[index].is_destroyed = true;
            }
        }
    }

    /// Records which agents other agents have created and destroyed.
    pub(crate) async fn sync_agents(&mut self) {
        self.mark_destroyed();
        let pool = self.world.pool.clone();
        for status in self.world.list().await {
            if self.agent_named(&status.id).is_none() {
                // Its creator may have destroyed it meanwhile.
                let Ok(Some(handle)) = pool.find(&status.id).await else { continue };
                self.log.note(format!(
                    "agent #{} is '{}', created by an agent",
                    self.agents.len(),
                    status.id
                ));
                self.add_agent(handle, None);
            }
        }
    }

    pub(crate) fn add_agent(&mut self, handle: AgentHandle, capability: Option<Capability>) {
        self.agents.push(AgentModel {
            name: handle.id().clone(),
            handle,
            capability,
            is_destroyed: false,
            is_finished: false,
            steer_count: 0,
            budget_history: Default::default(),
        });
        self.record_budgets(self.agents.len() - 1);
    }

    /// Sends a message, and checks the fault if it is rejected at once.
    pub(crate) fn send(&mut self, index: usize, request_id: RequestId, scenario: Scenario) {
        let open_before = self.world.pool.open_turns();
        let agent = self.agents[index].handle.clone();
        let open_at_agent = self.world.status(&agent).open_turns;
        let message = NewMessage {
            text: scenario.script.clone(),
            images: Vec::new(),
            request_id: request_id.clone(),
            source: agent::MessageSource::default(),
        };
        let mut future = Box::pin(async move { agent.send(message).await });
        let has_same_id = |sent: &&SentMessage| sent.agent == index && sent.request_id == request_id;
        let reuses_request_id =
            self.sent.iter().filter(has_same_id).any(|sent| sent.scenario.script != scenario.script);
        let is_duplicate = |sent: &SentMessage| has_same_id(&sent) && sent.scenario.script == scenario.script;
        let duplicate_of = self.sent.iter().position(is_duplicate);
        let earlier = duplicate_of.map(|position| &self.sent[position]);
        let cancel_requested = earlier.is_some_and(|earlier| earlier.cancel_requested);
        let is_steered = earlier.is_some_and(|earlier| earlier.is_steered);
        let outcome = match tokio::task::unconstrained(&mut future).now_or_never() {
            None => SendOutcome::Pending(future),
            Some(response) => {
                self.check_rejection(index, open_before, open_at_agent, &response);
                SendOutcome::Rejected
            }
        };
        self.log.note(format!("send {} to agent #{index}: {}", scenario.script, outcome.label()));
        let cancel_confirmed = false;
        self.sent.push(SentMessage {
            agent: index,
            request_id,
            scenario,
            outcome,
            cancel_requested,
            cancel_confirmed,
            reuses_request_id,
            duplicate_of,
            is_steered,
        });
    }

    fn check_rejection(
        &self,
        index: usize,
        open_turns: usize,
        open_at_agent: usize,
        response: &Result<TurnEnd, Fault>,
    ) {
        let fault = response.as_ref().expect_err("no turn ends within the first poll");
        let full =
            open_turns >= self.limits.turns_open_max || open_at_agent >= self.limits.agent_turns_open_max;
        let is_destroyed = self.agents[index].is_destroyed;
        let is_allowed = if is_busy(fault) { full || self.stopping } else { is_destroyed || self.stopping };
        assert!(is_allowed, "rejected without a reason: {fault:?}");
        assert!(
            is_busy(fault) || fault.kind == FaultKind::NotFound,
            "rejected with an unexpected fault: {fault:?}"
        );
    }

    /// Collects the responses that are ready.
    pub(crate) async fn collect_responses(&mut self) {
        self.sync_agents().await;
        for position in 0..self.sent.len() {
            let SendOutcome::Pending(future) = &mut self.sent[position].outcome else { continue };
            if let Some(response) = tokio::task::unconstrained(future).now_or_never() {
                self.check_response(&self.sent[position], &response);
                self.log.note(format!("response to {}: {response:?}", self.sent[position].scenario.script));
                self.sent[position].outcome = SendOutcome::Responded(response);
            }
        }
    }

    fn check_response(&self, sent: &SentMessage, response: &Result<TurnEnd, Fault>) {
        let script = &sent.scenario.script;
        let is_allowed = match response {
            Ok(end) => match &end.outcome {
                TurnOutcome::Completed => {
                    let content_matches = end.halted.is_some()
                        || sent.is_steered
                        || sent.scenario.matches_completed(&end.content);
                    !sent.cancel_confirmed && content_matches && self.may_halt(sent.agent, end)
                }
                TurnOutcome::Cancelled => {
                    let is_expected =
                        sent.cancel_requested || self.agents[sent.agent].is_destroyed || self.stopping;
                    is_expected && (sent.is_steered || sent.scenario.accepts_partial(&end.content))
                }
                TurnOutcome::Failed(_) | TurnOutcome::Interrupted(_) => false,
            },
            Err(fault) if fault.kind == FaultKind::Invalid => sent.reuses_request_id,
            Err(fault) => !sent.cancel_confirmed && sent.scenario.accepts_fault(fault.kind),
        };
        assert!(is_allowed, "{script} got the response {response:?}");
        if let Some(SendOutcome::Responded(earlier)) =
            sent.duplicate_of.map(|earlier| &self.sent[earlier].outcome)
        {
            // A send cancelled before its commit is not known to the idempotency check.
            let never_started = Ok(TurnEnd::cancelled_before_start());
            // An agent that is being destroyed cancels every send.
            let is_ending = self.agents[sent.agent].is_destroyed || self.stopping;
            let is_cancelled = response.as_ref().is_ok_and(|end| end.outcome == TurnOutcome::Cancelled);
            let is_consistent =
                *earlier == never_started || response == earlier || (is_ending && is_cancelled);
            assert!(is_consistent, "{script}: {response:?} after {earlier:?}");
        }
    }

    /// Whether a halt is justified: a budget halts a turn only if a limit was set.
    fn may_halt(&self, index: usize, end: &TurnEnd) -> bool {
        match end.halted {
            None => true,
            Some(Halt::IterationLimit) => end.rounds == self.limits.tool_iterations_max,
            Some(Halt::Budget(resource)) => {
                let position = resource_index(resource);
                let agent = &self.agents[index].handle;
                let above = self.agents.iter().filter(|ancestor| agent.is_descendant_of(&ancestor.handle));
                let mut lineage = above.chain([&self.agents[index]]);
                lineage.any(|agent| agent.budget_history[position].ever_limited)
            }
        }
    }

    /// The scripts of an agent's sends without a response.
    pub(crate) fn pending_scripts(&self, index: usize) -> Vec<&str> {
        let is_pending =
            |sent: &&SentMessage| sent.agent == index && matches!(sent.outcome, SendOutcome::Pending(_));
        self.sent.iter().filter(is_pending).map(|sent| sent.scenario.script.as_str()).collect()
    }
}

/// The index of a resource in `Resource::ALL`.
pub(crate) fn resource_index(resource: Resource) -> usize {
    Resource::ALL.iter().position(|other| *other == resource).expect("every resource is listed")
}

impl SentMessage {
    pub(crate) fn was_accepted(&self) -> bool {
        !matches!(self.outcome, SendOutcome::Rejected)
    }
}

impl SendOutcome {
    pub(crate) fn label(&self) -> &'static str {
        match self {
            SendOutcome::Pending(_) => "accepted",
            SendOutcome::SenderDropped => "dropped",
            SendOutcome::Responded(_) => "responded",
            SendOutcome::Rejected => "rejected",
        }
    }
}
