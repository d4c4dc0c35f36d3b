//! One message worked through to an answer, as a machine: events in, actions out. Who carries the actions out, and
//! when, is left to the runtime; which calls of an answer may run now is kept by [`calls`].

mod call_scheduler;
#[cfg(test)]
mod tests;

use self::call_scheduler::CallScheduler;
pub use self::call_scheduler::Schedule;
use crate::journal::TurnProgress;
use crate::permission::Resource;
use crate::{Ending, Fault, Message, TokenCount, ToolCall, ToolClass, ToolOutcome, Usage, compaction};

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnEvent {
    /// The model said more.
    Text(String),
    /// The model thought this before the calls that follow; it is kept with them.
    ReasoningBlock(String),
    /// The model made a call, which can run in this manner.
    ToolCall(ToolCall, Schedule),
    /// The model told what it used.
    Usage(Usage),
    /// The context was folded, and so many tokens of it are free again.
    Compacted(TokenCount),
    /// The model's answer ends where it does because it is as long as it may be.
    Truncated,
    /// The model's answer is complete.
    ModelDone,
    /// The model, or the way to it, failed.
    ModelFailed(Fault),
    /// The call at this place of the answer is done.
    ToolDone(usize, ToolOutcome),
    /// Somebody has a word to add; it is delivered before the model is asked again.
    Steer(Message),
    /// There is no more of this. What runs may end; nothing new begins.
    BudgetExhausted(Resource),
    /// Somebody wants the turn to end now.
    Cancel,
    /// The turn cannot go on, for this reason; it may be opened again.
    Interrupt(String),
}

/// What is to be done, in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnAction {
    /// Put this message into the context.
    Append(Message),
    /// Ask the model with the context as it now is.
    CallModel,
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
    pub fn cancelled_before_start() -> Self {
        Self::without_content(TurnOutcome::Cancelled)
    }

    /// The end of a turn in which nothing was said.
    #[must_use]
    pub fn without_content(outcome: TurnOutcome) -> Self {
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
const NOTICE_TRUNCATED: &str = "\n\n[The answer is cut off: it reached the most tokens it may have]";
const NOTICE_UNUSABLE: &str = "[Stopping: the model made no usable tool call three times in a row]";

/// A turn under way.
#[derive(Debug)]
pub struct Turn {
    limits: TurnLimits,
    rounds: u64,
    /// Text of earlier rounds, and notices.
    content: String,
    /// Text of the round under way.
    round_text: String,
    /// Thoughts of the round under way.
    reasoning_block: Option<String>,
    /// Calls of the answer under way, and then of the answer whose calls run.
    calls: CallScheduler,
    phase: TurnPhase,
    /// The answer under way is cut off.
    truncated: bool,
    steers: Vec<Message>,
    usage: Option<Usage>,
    last_response_empty: bool,
    unusable_rounds: u32,
    exhausted: Option<Resource>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnPhase {
    CallingModel,
    RunningTools,
    Ended,
}

impl Turn {
    /// Starts a turn: the first actions keep the message and ask the model.
    #[must_use]
    pub fn start(message: Message, limits: TurnLimits) -> (Self, Vec<TurnAction>) {
        let turn = Self {
            limits,
            rounds: 1,
            content: String::new(),
            round_text: String::new(),
            reasoning_block: None,
            calls: CallScheduler::new(limits.calls_running_max),
            phase: TurnPhase::CallingModel,
            truncated: false,
            steers: Vec::new(),
            usage: None,
            last_response_empty: false,
            unusable_rounds: 0,
            exhausted: None,
        };
        (turn, vec![TurnAction::Append(message), TurnAction::CallModel])
    }

    /// Goes on with a turn that a crash cut off. `manners` say how the calls of its last answer can run; one that may
    /// not run twice, and may have run, does not run again.
    #[must_use]
    pub fn resume(
        progress: TurnProgress,
        manners: Vec<Schedule>,
        limits: TurnLimits,
    ) -> (Self, Vec<TurnAction>) {
        let TurnProgress {
            responses: answers,
            content: said,
            calls,
            started_calls: begun,
            finished_calls: mut done,
            steers,
        } = progress;
        let (mut turn, _) = Self::start(Message::user("", crate::MessageSource::default()), limits);
        turn.rounds = answers;
        turn.content = said;
        turn.steers = steers.into();
        if calls.is_empty() {
            let actions = turn.next_round();
            return (turn, actions);
        }
        turn.phase = TurnPhase::RunningTools;
        for (place, (call, manner)) in calls.into_iter().zip(manners).enumerate() {
            let outcome = done.remove(&place).or_else(|| match begun.get(&place) {
                Some(ToolClass::Once) => Some(ToolOutcome::Failed(RESULT_UNKNOWN.to_owned())),
                Some(ToolClass::Pure | ToolClass::Keyed) | None => None,
            });
            turn.calls.restore(call, manner, outcome);
        }
        let actions = turn.advance();
        (turn, actions)
    }

    /// Whether a word can still be added.
    #[must_use]
    pub fn accepts_steers(&self) -> bool {
        self.phase != TurnPhase::Ended && self.steers.len() < STEERS_MAX
    }

    /// Takes an event and says what to do. After the end every event is ignored, so a turn ends exactly once.
    pub fn handle(&mut self, event: TurnEvent) -> Vec<TurnAction> {
        match (self.phase, event) {
            (TurnPhase::Ended, _) => Vec::new(),
            (_, TurnEvent::Cancel) => self.abort(Ending::Cancelled, TurnOutcome::Cancelled),
            (_, TurnEvent::Interrupt(why)) => self.abort(Ending::Interrupted, TurnOutcome::Interrupted(why)),
            (_, TurnEvent::Steer(message)) => {
                self.steers.push(message);
                Vec::new()
            }
            (_, TurnEvent::Usage(usage)) => {
                self.usage = Some(self.usage.unwrap_or_default().plus(usage));
                Vec::new()
            }
            (_, TurnEvent::Compacted(reclaimed)) => {
                self.content.push_str(&compaction::notice(reclaimed));
                Vec::new()
            }
            (TurnPhase::CallingModel, TurnEvent::Text(text)) => {
                self.round_text.push_str(&text);
                Vec::new()
            }
            (TurnPhase::CallingModel, TurnEvent::ReasoningBlock(thoughts)) => {
                self.reasoning_block = Some(thoughts);
                Vec::new()
            }
            (TurnPhase::CallingModel, TurnEvent::ToolCall(call, manner)) => {
                self.calls.add(call, manner);
                Vec::new()
            }
            (TurnPhase::CallingModel, TurnEvent::Truncated) => {
                self.truncated = true;
                Vec::new()
            }
            (TurnPhase::CallingModel, TurnEvent::ModelDone) => self.finish_response(),
            (TurnPhase::CallingModel, TurnEvent::ModelFailed(fault)) => {
                self.abort(Ending::Failed, TurnOutcome::Failed(fault))
            }
            (TurnPhase::CallingModel, TurnEvent::BudgetExhausted(resource)) => {
                self.stop_out_of_budget(resource)
            }
            (TurnPhase::RunningTools, TurnEvent::BudgetExhausted(resource)) => {
                self.exhausted = Some(resource);
                self.calls.fail_pending(&budget_exhausted_result(resource));
                self.advance()
            }
            (TurnPhase::RunningTools, TurnEvent::ToolDone(place, outcome)) => {
                self.calls.complete(place, outcome);
                self.advance()
            }
            // A model that is not asked has nothing to say, and a call that does not run cannot end.
            (
                TurnPhase::RunningTools,
                TurnEvent::Text(_) | TurnEvent::ReasoningBlock(_) | TurnEvent::ToolCall(..),
            )
            | (
                TurnPhase::RunningTools,
                TurnEvent::Truncated | TurnEvent::ModelDone | TurnEvent::ModelFailed(_),
            )
            | (TurnPhase::CallingModel, TurnEvent::ToolDone(..)) => Vec::new(),
        }
    }

    fn finish_response(&mut self) -> Vec<TurnAction> {
        let text = std::mem::take(&mut self.round_text);
        self.content.push_str(&text);
        let (was_cut_short, thoughts) = (std::mem::take(&mut self.truncated), self.reasoning_block.take());
        if !self.calls.is_empty() {
            self.last_response_empty = false;
            self.phase = TurnPhase::RunningTools;
            let answer =
                Message { reasoning_block: thoughts, ..Message::assistant(text, self.calls.tool_calls()) };
            let mut actions = vec![TurnAction::Append(answer)];
            actions.extend(self.advance());
            return actions;
        }
        if was_cut_short {
            self.content.push_str(NOTICE_TRUNCATED);
        }
        if text.is_empty() {
            return self.handle_empty_response();
        }
        // Whatever was wrong with earlier answers, this one breaks the row.
        self.last_response_empty = false;
        self.unusable_rounds = 0;
        let mut actions = vec![TurnAction::Append(Message::assistant(text, Vec::new()))];
        if self.steers.is_empty() {
            actions.push(self.end(TurnOutcome::Completed, None));
        } else {
            // Somebody added a word while the model gave its last answer: it gets one more.
            actions.extend(self.next_round());
        }
        actions
    }

    fn handle_empty_response(&mut self) -> Vec<TurnAction> {
        if self.last_response_empty || self.rounds >= self.limits.rounds_max {
            return self.stop_with_notice(NOTICE_EMPTY_AGAIN, None);
        }
        self.last_response_empty = true;
        self.content.push_str(NOTICE_EMPTY);
        self.rounds += 1;
        let mut actions = self.deliver_steers();
        actions.push(TurnAction::CallModel);
        actions
    }

    /// Starts what can start; when all calls are done, keeps their results and goes on to the next round.
    fn advance(&mut self) -> Vec<TurnAction> {
        let started = self.calls.start_ready();
        let mut actions: Vec<_> =
            started.into_iter().map(|(place, call)| TurnAction::RunTool(place, call)).collect();
        if !self.calls.all_done() {
            return actions;
        }
        self.unusable_rounds = if self.calls.all_unusable() { self.unusable_rounds + 1 } else { 0 };
        actions.extend(self.calls.take_results().into_iter().map(TurnAction::Append));
        actions.extend(self.next_round());
        actions
    }

    fn next_round(&mut self) -> Vec<TurnAction> {
        if let Some(resource) = self.exhausted {
            return self.stop_out_of_budget(resource);
        }
        if self.unusable_rounds >= UNUSABLE_ROUNDS_MAX {
            return self.stop_with_notice(NOTICE_UNUSABLE, None);
        }
        if self.rounds >= self.limits.rounds_max {
            return self.stop_with_notice(NOTICE_LIMIT, Some(Halt::IterationLimit));
        }
        self.rounds += 1;
        self.phase = TurnPhase::CallingModel;
        let mut actions = self.deliver_steers();
        actions.push(TurnAction::CallModel);
        actions
    }

    /// Ends with a notice as the last answer, behind what the model was just saying: a context never ends on a question.
    fn stop_with_notice(&mut self, notice: &str, halted: Option<Halt>) -> Vec<TurnAction> {
        let text = std::mem::take(&mut self.round_text) + notice;
        self.content.push_str(&text);
        let mut actions = self.deliver_steers();
        actions.push(TurnAction::Append(Message::assistant(text, Vec::new())));
        actions.push(self.end(TurnOutcome::Completed, halted));
        actions
    }

    fn stop_out_of_budget(&mut self, resource: Resource) -> Vec<TurnAction> {
        let notice = format!("[Stopping: the budget of {resource} is used up]");
        self.stop_with_notice(&notice, Some(Halt::Budget(resource)))
    }

    /// Calls that were running get a result, and what was said so far is kept as the answer that broke off.
    fn abort(&mut self, ending: Ending, outcome: TurnOutcome) -> Vec<TurnAction> {
        let text = std::mem::take(&mut self.round_text);
        self.content.push_str(&text);
        let mut actions = Vec::new();
        if self.phase == TurnPhase::RunningTools {
            self.calls.fail_unfinished(ending);
            actions.extend(self.calls.take_results().into_iter().map(TurnAction::Append));
        }
        actions.extend(self.deliver_steers());
        actions.push(TurnAction::Append(Message::aborted(text, ending)));
        actions.push(self.end(outcome, None));
        actions
    }

    /// Words that were added are never lost, whatever comes next.
    fn deliver_steers(&mut self) -> Vec<TurnAction> {
        self.steers.drain(..).map(TurnAction::Append).collect()
    }

    fn end(&mut self, outcome: TurnOutcome, halted: Option<Halt>) -> TurnAction {
        self.phase = TurnPhase::Ended;
        let content = std::mem::take(&mut self.content);
        TurnAction::End(TurnEnd { outcome, content, usage: self.usage, rounds: self.rounds, halted })
    }
}

/// What a call is answered that no longer could run.
#[must_use]
pub fn budget_exhausted_result(resource: Resource) -> String {
    format!("Did not execute: the budget of {resource} is used up")
}
