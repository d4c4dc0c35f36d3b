//! One run of the simulation: the pool, everything that was asked of it, and what each answer may be.

use std::future::Future;
use std::pin::Pin;

use agent::permission::Resource;
use agent::{AgentId, Fault, FaultKind, Halt, RequestId, TurnEnd, TurnOutcome};
use futures_util::FutureExt;
use runtime::{AgentHandle, Capability, Limits, NewMessage};

use crate::dice::Dice;
use crate::plots::{Playwright, Plot};
use crate::world::{World, is_busy};

pub(crate) struct Driver {
    pub(crate) dice: Dice,
    pub(crate) playwright: Playwright,
    pub(crate) world: World,
    pub(crate) limits: Limits,
    pub(crate) temper: Temper,
    pub(crate) lives: Vec<Life>,
    pub(crate) sent: Vec<Sent>,
    /// Somebody asked for a stop: no new agents.
    pub(crate) stop_wanted: bool,
    /// Open turns may be cancelled without anybody naming them.
    pub(crate) stopping: bool,
    pub(crate) log: Log,
}

/// What is likely in a run: where everything is forbidden much else never happens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Temper {
    /// How many agents of a hundred may do everything.
    pub(crate) free: usize,
    /// How many limits of a hundred are set.
    pub(crate) thrifty: usize,
    /// How many parts of an ask are, of a hundred, something special.
    pub(crate) odd: usize,
    /// How many agents of a hundred are put below the lowest.
    pub(crate) deep: usize,
    /// How many messages of a hundred have agents talk to each other.
    pub(crate) talkative: usize,
    pub(crate) names: usize,
}

impl Temper {
    fn any(dice: &mut Dice) -> Self {
        Self {
            free: *dice.pick(&[0, 50, 95]),
            thrifty: *dice.pick(&[0, 8, 30]),
            odd: *dice.pick(&[0, 15]),
            deep: *dice.pick(&[0, 0, 95]),
            talkative: *dice.pick(&[10, 30, 80]),
            names: *dice.pick(&[2, 3, 5]),
        }
    }

    /// Agents that have much to do with each other.
    fn sociable(dice: &mut Dice) -> Self {
        let thrifty = *dice.pick(&[0, 0, 8]);
        let deep = *dice.pick(&[0, 95]);
        Self { free: 97, thrifty, odd: 0, deep, talkative: 80, names: dice.between(2, 3) }
    }
}

fn some_limits(dice: &mut Dice) -> Limits {
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
pub(crate) struct Life {
    pub(crate) name: AgentId,
    pub(crate) handle: AgentHandle,
    /// Nothing for one that an agent created.
    pub(crate) capability: Option<Capability>,
    pub(crate) destroyed: bool,
    pub(crate) finished: bool,
    /// Words that were added to its turns.
    pub(crate) steers: usize,
    pub(crate) budgets: [BudgetPast; 5],
}

/// What limits one resource of a life has had.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BudgetPast {
    pub(crate) ever_limited: bool,
    pub(crate) ever_unlimited: bool,
    pub(crate) changes: usize,
    pub(crate) limit_max: u64,
    /// What was used or set aside when the limit was last changed.
    pub(crate) floor: u64,
}

/// One send, as its sender sees it.
pub(crate) struct Sent {
    pub(crate) life: usize,
    pub(crate) request_id: RequestId,
    pub(crate) plot: Plot,
    pub(crate) fate: Fate,
    pub(crate) cancel_wanted: bool,
    pub(crate) cancel_confirmed: bool,
    /// Another send of this agent had the same name and said something else.
    pub(crate) reuses_request_id: bool,
    /// The send that this one repeats.
    pub(crate) duplicate_of: Option<usize>,
    /// Somebody added a word, which is a script of its own.
    pub(crate) steered: bool,
}

pub(crate) enum Fate {
    Open(Pin<Box<dyn Future<Output = Result<TurnEnd, Fault>>>>),
    /// The sender went away; the turn goes on.
    Dropped,
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
        let mut dice = Dice::new(seed);
        let limits = some_limits(&mut dice);
        let temper = if dice.percent(35) { Temper::sociable(&mut dice) } else { Temper::any(&mut dice) };
        let world = World::with(limits.clone()).await;
        world.store.set_commit_yields(*dice.pick(&[0, 0, 1, 3]));
        world.tools.enable_permission_checks(&world.pool);
        Self {
            dice,
            playwright: Playwright::new(temper.talkative, temper.names),
            world,
            limits,
            temper,
            lives: Vec::new(),
            sent: Vec::new(),
            stop_wanted: false,
            stopping: false,
            log: Log::default(),
        }
    }

    /// The lives whose agents exist, oldest first.
    pub(crate) fn existing(&self) -> Vec<usize> {
        (0..self.lives.len()).filter(|life| !self.lives[*life].destroyed).collect()
    }

    pub(crate) fn life_of(&self, name: &AgentId) -> Option<usize> {
        self.existing().into_iter().find(|life| self.lives[*life].name == *name)
    }

    /// The lives below one, whether they exist or not.
    pub(crate) fn below(&self, life: usize) -> Vec<usize> {
        let top = &self.lives[life].handle;
        (0..self.lives.len()).filter(|other| self.lives[*other].handle.is_descendant_of(top)).collect()
    }

    /// Learns which agents other agents have destroyed meanwhile.
    pub(crate) fn bury(&mut self) {
        for life in self.existing() {
            if !self.world.pool.exists(&self.lives[life].handle.agent_ref()) {
                self.log.note(format!("life {life} was destroyed by an agent"));
                self.lives[life].destroyed = true;
            }
        }
    }

    /// Learns which agents other agents have created and destroyed meanwhile.
    pub(crate) async fn sync(&mut self) {
        self.bury();
        let pool = self.world.pool.clone();
        for summary in self.world.list().await {
            if self.life_of(&summary.id).is_none() {
                // Whoever made it may have ended it meanwhile.
                let Ok(Some(handle)) = pool.find(&summary.id).await else { continue };
                self.log.note(format!("life {} is '{}', created by an agent", self.lives.len(), summary.id));
                self.add_life(handle, None);
            }
        }
    }

    pub(crate) fn add_life(&mut self, handle: AgentHandle, capability: Option<Capability>) {
        self.lives.push(Life {
            name: handle.id().clone(),
            handle,
            capability,
            destroyed: false,
            finished: false,
            steers: 0,
            budgets: Default::default(),
        });
        self.note_budget(self.lives.len() - 1);
    }

    /// Sends, and judges a refusal if there is one.
    pub(crate) fn send(&mut self, life: usize, request_id: RequestId, plot: Plot) {
        let open_before = self.world.pool.open_turns();
        let agent = self.lives[life].handle.clone();
        let at_agent = self.world.summary(&agent).open_turns;
        let message = NewMessage {
            text: plot.script.clone(),
            images: Vec::new(),
            request_id: request_id.clone(),
            source: agent::MessageSource::default(),
        };
        let mut future = Box::pin(async move { agent.send(message).await });
        let same_name = |sent: &&Sent| sent.life == life && sent.request_id == request_id;
        let reuses_name = self.sent.iter().filter(same_name).any(|sent| sent.plot.script != plot.script);
        let says_the_same = |sent: &Sent| same_name(&sent) && sent.plot.script == plot.script;
        let repeats = self.sent.iter().position(says_the_same);
        let before = repeats.map(|place| &self.sent[place]);
        let cancel_wanted = before.is_some_and(|before| before.cancel_wanted);
        let steered = before.is_some_and(|before| before.steered);
        let fate = match tokio::task::unconstrained(&mut future).now_or_never() {
            None => Fate::Open(future),
            Some(answer) => {
                self.judge_refusal(life, open_before, at_agent, &answer);
                Fate::Refused
            }
        };
        self.log.note(format!("send {} to life {life}: {}", plot.script, fate.name()));
        let cancel_confirmed = false;
        self.sent.push(Sent {
            life,
            request_id,
            plot,
            fate,
            cancel_wanted,
            cancel_confirmed,
            reuses_request_id: reuses_name,
            duplicate_of: repeats,
            steered,
        });
    }

    fn judge_refusal(&self, life: usize, open: usize, at_agent: usize, answer: &Result<TurnEnd, Fault>) {
        let fault = answer.as_ref().expect_err("a turn takes longer than one look");
        let full = open >= self.limits.turns_open_max || at_agent >= self.limits.agent_turns_open_max;
        let gone = self.lives[life].destroyed;
        let fair = if is_busy(fault) { full || self.stopping } else { gone || self.stopping };
        assert!(fair, "refused without a reason: {fault:?}");
        assert!(is_busy(fault) || fault.kind == FaultKind::NotFound, "refused oddly: {fault:?}");
    }

    /// Takes the answers that are there.
    pub(crate) async fn collect(&mut self) {
        self.sync().await;
        for place in 0..self.sent.len() {
            let Fate::Open(future) = &mut self.sent[place].fate else { continue };
            if let Some(answer) = tokio::task::unconstrained(future).now_or_never() {
                self.judge(&self.sent[place], &answer);
                self.log.note(format!("answered {}: {answer:?}", self.sent[place].plot.script));
                self.sent[place].fate = Fate::Answered(answer);
            }
        }
    }

    fn judge(&self, sent: &Sent, answer: &Result<TurnEnd, Fault>) {
        let script = &sent.plot.script;
        let fair = match answer {
            Ok(end) => match &end.outcome {
                TurnOutcome::Completed => {
                    let said = end.halted.is_some() || sent.steered || sent.plot.is_complete(&end.content);
                    !sent.cancel_confirmed && said && self.may_halt(sent.life, end)
                }
                TurnOutcome::Cancelled => {
                    let wanted = sent.cancel_wanted || self.lives[sent.life].destroyed || self.stopping;
                    wanted && (sent.steered || sent.plot.may_begin_with(&end.content))
                }
                TurnOutcome::Failed(_) | TurnOutcome::Interrupted(_) => false,
            },
            Err(fault) if fault.kind == FaultKind::Invalid => sent.reuses_request_id,
            Err(fault) => !sent.cancel_confirmed && sent.plot.may_fail_as(fault.kind),
        };
        assert!(fair, "{script} was answered with {answer:?}");
        if let Some(Fate::Answered(before)) = sent.duplicate_of.map(|before| &self.sent[before].fate) {
            // One that was cancelled before it was kept is not known.
            let unbegun = Ok(TurnEnd::cancelled_before_start());
            // An agent that has to go answers everybody like this.
            let goes = self.lives[sent.life].destroyed || self.stopping;
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
                let place = place(resource);
                let agent = &self.lives[life].handle;
                let above = self.lives.iter().filter(|other| agent.is_descendant_of(&other.handle));
                let mut line = above.chain([&self.lives[life]]);
                line.any(|life| life.budgets[place].ever_limited)
            }
        }
    }

    /// The sends of a life that nobody has answered yet.
    pub(crate) fn unanswered(&self, life: usize) -> Vec<&str> {
        let open = |sent: &&Sent| sent.life == life && matches!(sent.fate, Fate::Open(_));
        self.sent.iter().filter(open).map(|sent| sent.plot.script.as_str()).collect()
    }
}

/// Where a resource stands among all.
pub(crate) fn place(resource: Resource) -> usize {
    Resource::ALL.iter().position(|other| *other == resource).expect("all of them are there")
}

impl Sent {
    pub(crate) fn was_accepted(&self) -> bool {
        !matches!(self.fate, Fate::Refused)
    }
}

impl Fate {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Fate::Open(_) => "accepted",
            Fate::Dropped => "dropped",
            Fate::Answered(_) => "answered",
            Fate::Refused => "refused",
        }
    }
}
