//! One run of the simulation: the pool, everything that was asked of it, and what each answer may be.

use std::future::Future;
use std::pin::Pin;

use agent::permission::Resource;
use agent::{AgentId, Fault, FaultKind, Halt, RequestId, TurnEnd, TurnOutcome};
use futures_util::FutureExt;
use runtime::{AgentHandle, Capability, Limits, NewMessage};

use crate::rng::TestRng;
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
    /// Somebody asked for a stop: no new agents.
    pub(crate) stop_requested: bool,
    /// Open turns may be cancelled without anybody naming them.
    pub(crate) stopping: bool,
    pub(crate) log: Log,
}

/// What is likely in a run: where everything is forbidden much else never happens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunProfile {
    /// How many agents of a hundred may do everything.
    pub(crate) unrestricted_percent: usize,
    /// How many limits of a hundred are set.
    pub(crate) limited_percent: usize,
    /// How many parts of an ask are, of a hundred, something special.
    pub(crate) unusual_percent: usize,
    /// How many agents of a hundred are put below the lowest.
    pub(crate) deep_percent: usize,
    /// How many messages of a hundred have agents talk to each other.
    pub(crate) conversation_percent: usize,
    pub(crate) name_count: usize,
}

impl RunProfile {
    fn random(dice: &mut TestRng) -> Self {
        Self {
            unrestricted_percent: *dice.pick(&[0, 50, 95]),
            limited_percent: *dice.pick(&[0, 8, 30]),
            unusual_percent: *dice.pick(&[0, 15]),
            deep_percent: *dice.pick(&[0, 0, 95]),
            conversation_percent: *dice.pick(&[10, 30, 80]),
            name_count: *dice.pick(&[2, 3, 5]),
        }
    }

    /// Agents that have much to do with each other.
    fn random_conversational(dice: &mut TestRng) -> Self {
        let thrifty = *dice.pick(&[0, 0, 8]);
        let deep = *dice.pick(&[0, 95]);
        Self {
            unrestricted_percent: 97,
            limited_percent: thrifty,
            unusual_percent: 0,
            deep_percent: deep,
            conversation_percent: 80,
            name_count: dice.between(2, 3),
        }
    }
}

fn random_limits(dice: &mut TestRng) -> Limits {
    Limits {
        agents_max: *dice.pick(&[1, 4, 8, 12]),
        turns_running_max: dice.between(1, 4),
        turns_open_max: *dice.pick(&[1, 6, 20, 60]),
        agent_turns_open_max: dice.between(1, 6),
        tool_iterations_max: dice.between(1, 4) as u64,
        tools_running_max: dice.between(1, 4),
        tool_result_bytes_max: 1000,
        model_idle_timeout: std::time::Duration::from_secs(dice.between(1, 60) as u64),
        ..Limits::default()
    }
}

/// One agent, from its creation on. A name may have several lives.
pub(crate) struct AgentModel {
    pub(crate) name: AgentId,
    pub(crate) handle: AgentHandle,
    /// Nothing for one that an agent created.
    pub(crate) capability: Option<Capability>,
    pub(crate) is_destroyed: bool,
    pub(crate) is_finished: bool,
    /// Words that were added to its turns.
    pub(crate) steer_count: usize,
    pub(crate) budget_history: [BudgetHistory; 5],
}

/// What limits one resource of a life has had.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BudgetHistory {
    pub(crate) ever_limited: bool,
    pub(crate) ever_unlimited: bool,
    pub(crate) changes: usize,
    pub(crate) limit_max: u64,
    /// What was used or set aside when the limit was last changed.
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
    /// Another send of this agent had the same name and said something else.
    pub(crate) reuses_request_id: bool,
    /// The send that this one repeats.
    pub(crate) duplicate_of: Option<usize>,
    /// Somebody added a word, which is a script of its own.
    pub(crate) is_steered: bool,
}

pub(crate) enum SendOutcome {
    Pending(Pin<Box<dyn Future<Output = Result<TurnEnd, Fault>>>>),
    /// The sender went away; the turn goes on.
    SenderDropped,
    Answered(Result<TurnEnd, Fault>),
    /// It was never accepted.
    Refused,
}

/// What was done, shown when the run fails.
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
            eprintln!("what was done:\n{}", self.lines.join("\n"));
        }
    }
}

impl Driver {
    pub(crate) async fn new(seed: u64) -> Self {
        let mut dice = TestRng::new(seed);
        let limits = random_limits(&mut dice);
        let temper = if dice.percent(35) {
            RunProfile::random_conversational(&mut dice)
        } else {
            RunProfile::random(&mut dice)
        };
        let world = World::with_limits(limits.clone()).await;
        world.store.set_commit_yields(*dice.pick(&[0, 0, 1, 3]));
        world.tools.enable_permission_checks(&world.pool);
        Self {
            rng: dice,
            scenario_writer: ScenarioWriter::new(temper.conversation_percent, temper.name_count),
            world,
            limits,
            profile: temper,
            agents: Vec::new(),
            sent: Vec::new(),
            stop_requested: false,
            stopping: false,
            log: Log::default(),
        }
    }

    /// The lives whose agents exist, oldest first.
    pub(crate) fn existing_agents(&self) -> Vec<usize> {
        (0..self.agents.len()).filter(|life| !self.agents[*life].is_destroyed).collect()
    }

    pub(crate) fn agent_named(&self, name: &AgentId) -> Option<usize> {
        self.existing_agents().into_iter().find(|life| self.agents[*life].name == *name)
    }

    /// The lives below one, whether they exist or not.
    pub(crate) fn descendants(&self, life: usize) -> Vec<usize> {
        let top = &self.agents[life].handle;
        (0..self.agents.len()).filter(|other| self.agents[*other].handle.is_descendant_of(top)).collect()
    }

    /// Learns which agents other agents have destroyed meanwhile.
    pub(crate) fn mark_destroyed(&mut self) {
        for life in self.existing_agents() {
            if !self.world.pool.exists(&self.agents[life].handle.agent_ref()) {
                self.log.note(format!("life {life} was destroyed by an agent"));
                self.agents[life].is_destroyed = true;
            }
        }
    }

    /// Learns which agents other agents have created and destroyed meanwhile.
    pub(crate) async fn sync_agents(&mut self) {
        self.mark_destroyed();
        let pool = self.world.pool.clone();
        for summary in self.world.list().await {
            if self.agent_named(&summary.id).is_none() {
                // Whoever made it may have ended it meanwhile.
                let Ok(Some(handle)) = pool.find(&summary.id).await else { continue };
                self.log.note(format!("life {} is '{}', created by an agent", self.agents.len(), summary.id));
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

    /// Sends, and judges a refusal if there is one.
    pub(crate) fn send(&mut self, life: usize, request_id: RequestId, plot: Scenario) {
        let open_before = self.world.pool.open_turns();
        let agent = self.agents[life].handle.clone();
        let at_agent = self.world.summary(&agent).open_turns;
        let message = NewMessage {
            text: plot.script.clone(),
            images: Vec::new(),
            request_id: request_id.clone(),
            source: agent::MessageSource::default(),
        };
        let mut future = Box::pin(async move { agent.send(message).await });
        let same_name = |sent: &&SentMessage| sent.agent == life && sent.request_id == request_id;
        let reuses_name = self.sent.iter().filter(same_name).any(|sent| sent.scenario.script != plot.script);
        let says_the_same = |sent: &SentMessage| same_name(&sent) && sent.scenario.script == plot.script;
        let repeats = self.sent.iter().position(says_the_same);
        let before = repeats.map(|place| &self.sent[place]);
        let cancel_wanted = before.is_some_and(|before| before.cancel_requested);
        let steered = before.is_some_and(|before| before.is_steered);
        let fate = match tokio::task::unconstrained(&mut future).now_or_never() {
            None => SendOutcome::Pending(future),
            Some(answer) => {
                self.check_refusal(life, open_before, at_agent, &answer);
                SendOutcome::Refused
            }
        };
        self.log.note(format!("send {} to life {life}: {}", plot.script, fate.label()));
        let cancel_confirmed = false;
        self.sent.push(SentMessage {
            agent: life,
            request_id,
            scenario: plot,
            outcome: fate,
            cancel_requested: cancel_wanted,
            cancel_confirmed,
            reuses_request_id: reuses_name,
            duplicate_of: repeats,
            is_steered: steered,
        });
    }

    fn check_refusal(&self, life: usize, open: usize, at_agent: usize, answer: &Result<TurnEnd, Fault>) {
        let fault = answer.as_ref().expect_err("a turn takes longer than one look");
        let full = open >= self.limits.turns_open_max || at_agent >= self.limits.agent_turns_open_max;
        let gone = self.agents[life].is_destroyed;
        let fair = if is_busy(fault) { full || self.stopping } else { gone || self.stopping };
        assert!(fair, "refused without a reason: {fault:?}");
        assert!(is_busy(fault) || fault.kind == FaultKind::NotFound, "refused oddly: {fault:?}");
    }

    /// Takes the answers that are there.
    pub(crate) async fn collect_answers(&mut self) {
        self.sync_agents().await;
        for place in 0..self.sent.len() {
            let SendOutcome::Pending(future) = &mut self.sent[place].outcome else { continue };
            if let Some(answer) = tokio::task::unconstrained(future).now_or_never() {
                self.check_answer(&self.sent[place], &answer);
                self.log.note(format!("answered {}: {answer:?}", self.sent[place].scenario.script));
                self.sent[place].outcome = SendOutcome::Answered(answer);
            }
        }
    }

    fn check_answer(&self, sent: &SentMessage, answer: &Result<TurnEnd, Fault>) {
        let script = &sent.scenario.script;
        let fair = match answer {
            Ok(end) => match &end.outcome {
                TurnOutcome::Completed => {
                    let said = end.halted.is_some()
                        || sent.is_steered
                        || sent.scenario.matches_completed(&end.content);
                    !sent.cancel_confirmed && said && self.may_halt(sent.agent, end)
                }
                TurnOutcome::Cancelled => {
                    let wanted =
                        sent.cancel_requested || self.agents[sent.agent].is_destroyed || self.stopping;
                    wanted && (sent.is_steered || sent.scenario.accepts_partial(&end.content))
                }
                TurnOutcome::Failed(_) | TurnOutcome::Interrupted(_) => false,
            },
            Err(fault) if fault.kind == FaultKind::Invalid => sent.reuses_request_id,
            Err(fault) => !sent.cancel_confirmed && sent.scenario.accepts_fault(fault.kind),
        };
        assert!(fair, "{script} was answered with {answer:?}");
        if let Some(SendOutcome::Answered(before)) =
            sent.duplicate_of.map(|before| &self.sent[before].outcome)
        {
            // One that was cancelled before it was kept is not known.
            let unbegun = Ok(TurnEnd::cancelled_before_start());
            // An agent that has to go answers everybody like this.
            let goes = self.agents[sent.agent].is_destroyed || self.stopping;
            let is_cancelled = answer.as_ref().is_ok_and(|end| end.outcome == TurnOutcome::Cancelled);
            let fair = *before == unbegun || answer == before || (goes && is_cancelled);
            assert!(fair, "{script}: {answer:?} after {before:?}");
        }
    }

    /// A budget halts only where somebody has set one.
    fn may_halt(&self, life: usize, end: &TurnEnd) -> bool {
        match end.halted {
            None => true,
            Some(Halt::IterationLimit) => end.rounds == self.limits.tool_iterations_max,
            Some(Halt::Budget(resource)) => {
                let place = resource_index(resource);
                let agent = &self.agents[life].handle;
                let above = self.agents.iter().filter(|other| agent.is_descendant_of(&other.handle));
                let mut line = above.chain([&self.agents[life]]);
                line.any(|life| life.budget_history[place].ever_limited)
            }
        }
    }

    /// The sends of a life that nobody has answered yet.
    pub(crate) fn pending_scripts(&self, life: usize) -> Vec<&str> {
        let open =
            |sent: &&SentMessage| sent.agent == life && matches!(sent.outcome, SendOutcome::Pending(_));
        self.sent.iter().filter(open).map(|sent| sent.scenario.script.as_str()).collect()
    }
}

/// Where a resource stands among all.
pub(crate) fn resource_index(resource: Resource) -> usize {
    Resource::ALL.iter().position(|other| *other == resource).expect("all of them are there")
}

impl SentMessage {
    pub(crate) fn was_accepted(&self) -> bool {
        !matches!(self.outcome, SendOutcome::Refused)
    }
}

impl SendOutcome {
    pub(crate) fn label(&self) -> &'static str {
        match self {
            SendOutcome::Pending(_) => "accepted",
            SendOutcome::SenderDropped => "dropped",
            SendOutcome::Answered(_) => "answered",
            SendOutcome::Refused => "refused",
        }
    }
}
