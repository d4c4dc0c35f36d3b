//! One message worked through to an answer, as a machine: events in, actions out. Who carries the actions out, and
//! when, is left to the runtime; which calls of an answer may run now is kept by [`calls`].

mod calls;
#[cfg(test)]
mod tests;

use self::calls::Calls;
pub use self::calls::Manner;
use crate::journal::Progress;
use crate::permission::Resource;
use crate::{Ending, Fault, Message, TokenCount, ToolCall, ToolClass, ToolOutcome, Usage, fold};

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnEvent {
    /// The model said more.
    Text(String),
    /// The model thought this before the calls that follow; it is kept with them.
    Thoughts(String),
    /// The model made a call, which can run in this manner.
    ToolCall(ToolCall, Manner),
    /// The model told what it used.
    Usage(Usage),
    /// The context was folded, and so many tokens of it are free again.
    Folded(TokenCount),
    /// The model's answer ends where it does because it is as long as it may be.
    CutShort,
    /// The model's answer is complete.
    ModelDone,
    /// The model, or the way to it, failed.
    ModelFailed(Fault),
    /// The call at this place of the answer is done.
    ToolDone(usize, ToolOutcome),
    /// Somebody has a word to add; it is delivered before the model is asked again.
    Steer(Message),
    /// There is no more of this. What runs may end; nothing new begins.
    BudgetSpent(Resource),
    /// Somebody wants the turn to end now.
    Cancel,
    /// The turn cannot go on, for this reason; it may be opened again.
    Interrupt(String),
}

/// What is to be done, in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnAction {
    /// Put this message into the context.
    Keep(Message),
    /// Ask the model with the context as it now is.
    AskModel,
    /// Run the call at this place and come back with [`TurnEvent::ToolDone`]. Several may run at once.
    RunTool(usize, ToolCall),
    /// The turn is over: what still runs is stopped. Nothing follows.
    End(TurnEnd),
}

/// How much one turn may do.
#[derive(Debug, Clone, Copy)]
pub struct TurnLimits {
    /// How often the model may be asked.
    pub rounds_max: u64,
    /// Calls that run at once.
    pub calls_running_max: usize,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnEnd {
    /// In which way.
    pub outcome: TurnOutcome,
    /// All that was said, with notices in brackets.
    pub content: String,
    /// What the model reported, if it did.
    pub usage: Option<Usage>,
    /// How often the model was asked.
    pub rounds: u64,
    /// Why it stopped before its end; the next send goes on.
    pub halted: Option<Halt>,
}

/// Why a turn stops before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Halt {
    /// The model may not be asked more often in one turn.
    IterationLimit,
    /// A budget is used up.
    Budget(Resource),
}

impl Halt {
    /// The word clients know.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Halt::IterationLimit => "iteration_limit",
            Halt::Budget(_) => "budget",
        }
    }
}

/// The ways a turn ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnOutcome {
    /// With an answer.
    Completed,
    /// Somebody cancelled it.
    Cancelled,
    /// The model failed.
    Failed(Fault),
    /// The daemon stopped in the middle, and the turn did not go on by itself; the reason.
    Interrupted(String),
}

impl TurnEnd {
    /// The end of a turn that never began.
    #[must_use]
    pub fn unbegun() -> Self {
        Self::without_a_word(TurnOutcome::Cancelled)
    }

    /// The end of a turn in which nothing was said.
    #[must_use]
    pub fn without_a_word(outcome: TurnOutcome) -> Self {
        Self { outcome, content: String::new(), usage: None, rounds: 0, halted: None }
    }
}

/// Words that one turn takes while it runs.
pub const STEERS_MAX: usize = 16;

/// Answers in a row without one usable call.
const UNUSABLE_ROUNDS_MAX: u32 = 3;

/// What the model is told of a call that may have run when the daemon stopped, and must not run twice.
const RESULT_UNKNOWN: &str = "Outcome unknown: the daemon stopped while this tool ran. It may have taken effect or not, \
                              and it was not run again. Check before you repeat it.";

const NOTICE_LIMIT: &str = "[Max tool iterations reached]";
const NOTICE_EMPTY: &str = "[Provider returned an empty response]";
const NOTICE_EMPTY_AGAIN: &str = "[Stopping: provider returned multiple empty responses in a row]";
const NOTICE_CUT_SHORT: &str = "\n\n[The answer is cut off: it reached the most tokens it may have]";
const NOTICE_UNUSABLE: &str = "[Stopping: the model made no usable tool call three times in a row]";

/// A turn under way.
#[derive(Debug)]
pub struct Turn {
    limits: TurnLimits,
    rounds: u64,
    /// Text of earlier rounds, and notices.
    said: String,
    /// Text of the round under way.
    saying: String,
    /// Thoughts of the round under way.
    thoughts: Option<String>,
    /// Calls of the answer under way, and then of the answer whose calls run.
    calls: Calls,
    phase: Phase,
    /// The answer under way is cut off.
    cut_short: bool,
    steers: Vec<Message>,
    usage: Option<Usage>,
    empty_before: bool,
    unusable_rounds: u32,
    spent: Option<Resource>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Asking,
    Running,
    Ended,
}

impl Turn {
    /// Starts a turn: the first actions keep the message and ask the model.
    #[must_use]
    pub fn start(message: Message, limits: TurnLimits) -> (Self, Vec<TurnAction>) {
        let turn = Self {
            limits,
            rounds: 1,
            said: String::new(),
            saying: String::new(),
            thoughts: None,
            calls: Calls::new(limits.calls_running_max),
            phase: Phase::Asking,
            cut_short: false,
            steers: Vec::new(),
            usage: None,
            empty_before: false,
            unusable_rounds: 0,
            spent: None,
        };
        (turn, vec![TurnAction::Keep(message), TurnAction::AskModel])
    }

    /// Goes on with a turn that a crash cut off. `manners` say how the calls of its last answer can run; one that may
    /// not run twice, and may have run, does not run again.
    #[must_use]
    pub fn resume(progress: Progress, manners: Vec<Manner>, limits: TurnLimits) -> (Self, Vec<TurnAction>) {
        let Progress { answers, said, calls, begun, mut done, steers } = progress;
        let (mut turn, _) = Self::start(Message::user("", crate::Source::default()), limits);
        turn.rounds = answers;
        turn.said = said;
        turn.steers = steers.into();
        if calls.is_empty() {
            let actions = turn.next_round();
            return (turn, actions);
        }
        turn.phase = Phase::Running;
        for (place, (call, manner)) in calls.into_iter().zip(manners).enumerate() {
            let outcome = done.remove(&place).or_else(|| match begun.get(&place) {
                Some(ToolClass::Once) => Some(ToolOutcome::Failed(RESULT_UNKNOWN.to_owned())),
                Some(ToolClass::Pure | ToolClass::Keyed) | None => None,
            });
            turn.calls.restore(call, manner, outcome);
        }
        let actions = turn.go_on();
        (turn, actions)
    }

    /// Whether a word can still be added.
    #[must_use]
    pub fn takes_steers(&self) -> bool {
        self.phase != Phase::Ended && self.steers.len() < STEERS_MAX
    }

    /// Takes an event and says what to do. After the end every event is ignored, so a turn ends exactly once.
    pub fn on(&mut self, event: TurnEvent) -> Vec<TurnAction> {
        match (self.phase, event) {
            (Phase::Ended, _) => Vec::new(),
            (_, TurnEvent::Cancel) => self.break_off(Ending::Cancelled, TurnOutcome::Cancelled),
            (_, TurnEvent::Interrupt(why)) => {
                self.break_off(Ending::Interrupted, TurnOutcome::Interrupted(why))
            }
            (_, TurnEvent::Steer(message)) => {
                self.steers.push(message);
                Vec::new()
            }
            (_, TurnEvent::Usage(usage)) => {
                self.usage = Some(self.usage.unwrap_or_default().plus(usage));
                Vec::new()
            }
            (_, TurnEvent::Folded(reclaimed)) => {
                self.said.push_str(&fold::notice(reclaimed));
                Vec::new()
            }
            (Phase::Asking, TurnEvent::Text(text)) => {
                self.saying.push_str(&text);
                Vec::new()
            }
            (Phase::Asking, TurnEvent::Thoughts(thoughts)) => {
                self.thoughts = Some(thoughts);
                Vec::new()
            }
            (Phase::Asking, TurnEvent::ToolCall(call, manner)) => {
                self.calls.add(call, manner);
                Vec::new()
            }
            (Phase::Asking, TurnEvent::CutShort) => {
                self.cut_short = true;
                Vec::new()
            }
            (Phase::Asking, TurnEvent::ModelDone) => self.answered(),
            (Phase::Asking, TurnEvent::ModelFailed(fault)) => {
                self.break_off(Ending::Failed, TurnOutcome::Failed(fault))
            }
            (Phase::Asking, TurnEvent::BudgetSpent(resource)) => self.out_of(resource),
            (Phase::Running, TurnEvent::BudgetSpent(resource)) => {
                self.spent = Some(resource);
                self.calls.refuse_waiting(&spent_result(resource));
                self.go_on()
            }
            (Phase::Running, TurnEvent::ToolDone(place, outcome)) => {
                self.calls.done(place, outcome);
                self.go_on()
            }
            // A model that is not asked has nothing to say, and a call that does not run cannot end.
            (Phase::Running, TurnEvent::Text(_) | TurnEvent::Thoughts(_) | TurnEvent::ToolCall(..))
            | (Phase::Running, TurnEvent::CutShort | TurnEvent::ModelDone | TurnEvent::ModelFailed(_))
            | (Phase::Asking, TurnEvent::ToolDone(..)) => Vec::new(),
        }
    }

    fn answered(&mut self) -> Vec<TurnAction> {
        let text = std::mem::take(&mut self.saying);
        self.said.push_str(&text);
        let (was_cut_short, thoughts) = (std::mem::take(&mut self.cut_short), self.thoughts.take());
        if !self.calls.is_empty() {
            self.empty_before = false;
            self.phase = Phase::Running;
            let answer = Message { thoughts, ..Message::assistant(text, self.calls.all()) };
            let mut actions = vec![TurnAction::Keep(answer)];
            actions.extend(self.go_on());
            return actions;
        }
        if was_cut_short {
            self.said.push_str(NOTICE_CUT_SHORT);
        }
        if text.is_empty() {
            return self.empty_answer();
        }
        // Whatever was wrong with earlier answers, this one breaks the row.
        self.empty_before = false;
        self.unusable_rounds = 0;
        let mut actions = vec![TurnAction::Keep(Message::assistant(text, Vec::new()))];
        if self.steers.is_empty() {
            actions.push(self.end(TurnOutcome::Completed, None));
        } else {
            // Somebody added a word while the model gave its last answer: it gets one more.
            actions.extend(self.next_round());
        }
        actions
    }

    fn empty_answer(&mut self) -> Vec<TurnAction> {
        if self.empty_before || self.rounds >= self.limits.rounds_max {
            return self.stop(NOTICE_EMPTY_AGAIN, None);
        }
        self.empty_before = true;
        self.said.push_str(NOTICE_EMPTY);
        self.rounds += 1;
        let mut actions = self.deliver();
        actions.push(TurnAction::AskModel);
        actions
    }

    /// Starts what can start; when all calls are done, keeps their results and goes on to the next round.
    fn go_on(&mut self) -> Vec<TurnAction> {
        let started = self.calls.start();
        let mut actions: Vec<_> =
            started.into_iter().map(|(place, call)| TurnAction::RunTool(place, call)).collect();
        if !self.calls.is_done() {
            return actions;
        }
        self.unusable_rounds = if self.calls.none_was_usable() { self.unusable_rounds + 1 } else { 0 };
        actions.extend(self.calls.take_results().into_iter().map(TurnAction::Keep));
        actions.extend(self.next_round());
        actions
    }

    fn next_round(&mut self) -> Vec<TurnAction> {
        if let Some(resource) = self.spent {
            return self.out_of(resource);
        }
        if self.unusable_rounds >= UNUSABLE_ROUNDS_MAX {
            return self.stop(NOTICE_UNUSABLE, None);
        }
        if self.rounds >= self.limits.rounds_max {
            return self.stop(NOTICE_LIMIT, Some(Halt::IterationLimit));
        }
        self.rounds += 1;
        self.phase = Phase::Asking;
        let mut actions = self.deliver();
        actions.push(TurnAction::AskModel);
        actions
    }

    /// Ends with a notice as the last answer, behind what the model was just saying: a context never ends on a question.
    fn stop(&mut self, notice: &str, halted: Option<Halt>) -> Vec<TurnAction> {
        let text = std::mem::take(&mut self.saying) + notice;
        self.said.push_str(&text);
        let mut actions = self.deliver();
        actions.push(TurnAction::Keep(Message::assistant(text, Vec::new())));
        actions.push(self.end(TurnOutcome::Completed, halted));
        actions
    }

    fn out_of(&mut self, resource: Resource) -> Vec<TurnAction> {
        let notice = format!("[Stopping: the budget of {resource} is used up]");
        self.stop(&notice, Some(Halt::Budget(resource)))
    }

    /// Calls that were running get a result, and what was said so far is kept as the answer that broke off.
    fn break_off(&mut self, ending: Ending, outcome: TurnOutcome) -> Vec<TurnAction> {
        let text = std::mem::take(&mut self.saying);
        self.said.push_str(&text);
        let mut actions = Vec::new();
        if self.phase == Phase::Running {
            self.calls.interrupt(ending);
            actions.extend(self.calls.take_results().into_iter().map(TurnAction::Keep));
        }
        actions.extend(self.deliver());
        actions.push(TurnAction::Keep(Message::broken_off(text, ending)));
        actions.push(self.end(outcome, None));
        actions
    }

    /// Words that were added are never lost, whatever comes next.
    fn deliver(&mut self) -> Vec<TurnAction> {
        self.steers.drain(..).map(TurnAction::Keep).collect()
    }

    fn end(&mut self, outcome: TurnOutcome, halted: Option<Halt>) -> TurnAction {
        self.phase = Phase::Ended;
        let content = std::mem::take(&mut self.said);
        TurnAction::End(TurnEnd { outcome, content, usage: self.usage, rounds: self.rounds, halted })
    }
}

/// What a call is answered that no longer could run.
#[must_use]
pub fn spent_result(resource: Resource) -> String {
    format!("Did not execute: the budget of {resource} is used up")
}
