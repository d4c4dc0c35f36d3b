//! One run of the simulation: the pool, everything that was asked of it, and what each answer may be.

use std::future::Future;
use std::pin::Pin;

use agent::{AgentId, Fault, FaultKind, RequestId, TurnEnd, TurnOutcome};
use futures_util::FutureExt;
use runtime::{AgentHandle, Limits, NewMessage};

use crate::dice::Dice;
use crate::world::{World, is_busy};

pub(crate) struct Driver {
    pub(crate) dice: Dice,
    pub(crate) world: World,
    pub(crate) limits: Limits,
    pub(crate) lives: Vec<Life>,
    pub(crate) sent: Vec<Sent>,
    /// Somebody asked for a stop: no new agents.
    pub(crate) stop_wanted: bool,
    /// Open turns may be cancelled without anybody naming them.
    pub(crate) stopping: bool,
    pub(crate) log: Log,
}

/// One agent, from its creation on. A name may have several lives.
pub(crate) struct Life {
    pub(crate) name: AgentId,
    pub(crate) handle: AgentHandle,
    pub(crate) destroyed: bool,
    pub(crate) finished: bool,
}

/// One send, as its sender sees it.
pub(crate) struct Sent {
    pub(crate) life: usize,
    pub(crate) request_id: RequestId,
    pub(crate) plot: Plot,
    pub(crate) fate: Fate,
    pub(crate) cancel_wanted: bool,
    pub(crate) cancel_confirmed: bool,
    /// Another send of this agent had the same name.
    pub(crate) reuses_name: bool,
}

pub(crate) enum Fate {
    Open(Pin<Box<dyn Future<Output = Result<TurnEnd, Fault>>>>),
    /// The sender went away; the turn goes on.
    Dropped,
    Answered(Result<TurnEnd, Fault>),
    /// It was never accepted.
    Refused,
}

/// A script and how it ends when nobody interferes.
#[derive(Clone)]
pub(crate) struct Plot {
    pub(crate) script: String,
    pub(crate) ending: PlotEnding,
    /// It waits for a release and may so time out.
    pub(crate) waits: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum PlotEnding {
    Says(&'static str),
    Completes,
    Fails(FaultKind),
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
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let limits = Limits {
            agents_max: dice.between(1, 6),
            turns_running_max: dice.between(1, 4),
            turns_open_max: dice.between(1, 16),
            agent_turns_open_max: dice.between(1, 6),
            tool_iterations_max: dice.between(1, 4) as u64,
            model_idle: std::time::Duration::from_secs(dice.between(1, 60) as u64),
        };
        Self {
            dice,
            world: World::with(limits.clone()),
            limits,
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

    /// Sends, and judges a refusal if there is one.
    pub(crate) fn send(&mut self, life: usize, request_id: RequestId, plot: Plot) {
        let open_before = self.world.pool.open_turns();
        let agent = self.lives[life].handle.clone();
        let message = NewMessage {
            text: plot.script.clone(),
            request_id: request_id.clone(),
            source: agent::Source::default(),
        };
        let mut future = Box::pin(async move { agent.send(message).await });
        let reuses_name = self.sent.iter().any(|sent| sent.life == life && sent.request_id == request_id);
        let fate = match tokio::task::unconstrained(&mut future).now_or_never() {
            None => Fate::Open(future),
            Some(answer) => {
                self.judge_refusal(life, open_before, &answer);
                Fate::Refused
            }
        };
        self.log.note(format!("send {} to life {life}: {}", plot.script, fate.name()));
        let (cancel_wanted, cancel_confirmed) = (false, false);
        self.sent.push(Sent { life, request_id, plot, fate, cancel_wanted, cancel_confirmed, reuses_name });
    }

    fn judge_refusal(&self, life: usize, open_before: usize, answer: &Result<TurnEnd, Fault>) {
        let fault = answer.as_ref().expect_err("a turn takes longer than one look");
        let at_agent = self.sent.iter().filter(|sent| sent.life == life && sent.may_be_open()).count();
        let full = open_before >= self.limits.turns_open_max || at_agent >= self.limits.agent_turns_open_max;
        let gone = self.lives[life].destroyed;
        let fair = if is_busy(fault) { full || self.stopping } else { gone || self.stopping };
        assert!(fair, "refused without a reason: {fault:?}");
        assert!(is_busy(fault) || fault.kind == FaultKind::NotFound, "refused oddly: {fault:?}");
    }

    /// Takes the answers that are there.
    pub(crate) fn collect(&mut self) {
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
                TurnOutcome::Completed => !sent.cancel_confirmed && sent.plot.is_complete(&end.content),
                TurnOutcome::Cancelled => {
                    let wanted = sent.cancel_wanted || self.lives[sent.life].destroyed || self.stopping;
                    wanted && sent.plot.may_begin_with(&end.content)
                }
                TurnOutcome::Failed(_) => false,
            },
            Err(fault) if fault.kind == FaultKind::Invalid => sent.reuses_name,
            Err(fault) => !sent.cancel_confirmed && sent.plot.may_fail_as(fault.kind),
        };
        assert!(fair, "{script} was answered with {answer:?}");
    }

    /// The sends of a life that nobody has answered yet.
    pub(crate) fn unanswered(&self, life: usize) -> Vec<&str> {
        let open = |sent: &&Sent| sent.life == life && matches!(sent.fate, Fate::Open(_));
        self.sent.iter().filter(open).map(|sent| sent.plot.script.as_str()).collect()
    }
}

impl Sent {
    /// Whether it may still hold a place: nobody knows when a turn ended whose sender went away.
    fn may_be_open(&self) -> bool {
        matches!(self.fate, Fate::Open(_) | Fate::Dropped)
    }

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

impl Plot {
    fn is_complete(&self, content: &str) -> bool {
        match self.ending {
            PlotEnding::Says(text) => content == text,
            PlotEnding::Completes => true,
            PlotEnding::Fails(_) => false,
        }
    }

    fn may_begin_with(&self, content: &str) -> bool {
        match self.ending {
            PlotEnding::Says(text) => text.starts_with(content),
            PlotEnding::Completes | PlotEnding::Fails(_) => true,
        }
    }

    fn may_fail_as(&self, kind: FaultKind) -> bool {
        let plotted = matches!(self.ending, PlotEnding::Fails(fails) if fails == kind);
        plotted || (self.waits && kind == FaultKind::Model)
    }
}
