//! The state machine of one turn, from a message to the response: events in, actions out. The runtime executes the
//! actions; [`call_scheduler`] decides which tool calls of a response may run.

mod call_scheduler;
#[cfg(test)]
mod tests;

use self::call_scheduler::CallScheduler;
pub use self::call_scheduler::Schedule;
use crate::journal::TurnProgress;
use crate::permission::Resource;
use crate::{Ending, Fault, Message, TokenCount, ToolCall, ToolClass, ToolOutcome, Usage, compaction};

/// An input of the state machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnEvent {
    /// A text delta of the model.
    Text(String),
    /// The model's reasoning before the tool calls that follow; stored with them.
    ReasoningBlock(String),
    /// A tool call of the model, and how it may run.
    ToolCall(ToolCall, Schedule),
    /// The token usage that the model reported.
    Usage(Usage),
    /// The context was compacted, which reclaimed this many tokens.
    Compacted(TokenCount),
    /// The model's response was cut off at its token limit.
    Truncated,
    /// The model's response is complete.
    ModelDone,
    /// The model, or the connection to it, failed.
    ModelFailed(Fault),
    /// The tool call at this index of the response finished.
    ToolDone(usize, ToolOutcome),
    /// An added instruction; it joins the context before the next model call.
    Steer(Message),
    /// This budget is used up. Running calls may finish; nothing new starts.
    BudgetExhausted(Resource),
    /// The turn was cancelled.
    Cancel,
    /// The turn cannot continue, for this reason; it may be reopened.
    Interrupt(String),
}

/// An output of the state machine. Actions are executed in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnAction {
    /// Append this message to the context.
    Append(Message),
    /// Call the model with the current context.
    CallModel,
    /// Run the call at this index and report [`TurnEvent::ToolDone`]. Several calls may run at once.
    RunTool(usize, ToolCall),
    /// The turn is over: cancel what still runs. No action follows.
    End(TurnEnd),
}

/// The limits of one turn.
#[derive(Debug, Clone, Copy)]
pub struct TurnLimits {
    /// Maximum number of model calls.
    pub rounds_max: u64,
    /// Maximum number of tool calls that run at once.
    pub calls_running_max: usize,
}

/// The result of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnEnd {
    /// The outcome.
    pub outcome: TurnOutcome,
    /// The text of all responses, with notices in brackets.
    pub content: String,
    /// The token usage, if the model reported it.
    pub usage: Option<Usage>,
    /// Number of model calls.
    pub rounds: u64,
    /// Why the turn was halted early; the next message continues.
    pub halted: Option<Halt>,
}

/// Why a turn is halted early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Halt {
    /// The turn reached its limit of model calls.
    IterationLimit,
    /// A budget is used up.
    Budget(Resource),
}

impl Halt {
    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Halt::IterationLimit => "iteration_limit",
            Halt::Budget(_) => "budget",
        }
    }
}

/// The outcome of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnOutcome {
    /// The model responded.
    Completed,
    /// The turn was cancelled.
    Cancelled,
    /// The model failed.
    Failed(Fault),
    /// The daemon stopped meanwhile, and the turn was not resumed; the reason.
    Interrupted(String),
}

impl TurnEnd {
    /// The end of a turn that was cancelled before it began.
    #[must_use]
    pub fn cancelled_before_start() -> Self {
        Self::without_content(TurnOutcome::Cancelled)
    }

    /// The end of a turn without text.
    #[must_use]
    pub fn without_content(outcome: TurnOutcome) -> Self {
        Self { outcome, content: String::new(), usage: None, rounds: 0, halted: None }
    }
}

/// Maximum number of added instructions that one turn buffers until it delivers them.
pub const STEERS_MAX: usize = 16;

/// Limit of consecutive responses without a usable tool call.
const UNUSABLE_ROUNDS_MAX: u32 = 3;

/// The result of a tool call that may have run when the daemon stopped, and must not run twice.
const RESULT_UNKNOWN: &str = "Outcome unknown: the daemon stopped while this tool ran. It may have taken effect or not, \
                              and it was not run again. Check before you repeat it.";

const NOTICE_LIMIT: &str = "[Max tool iterations reached]";
const NOTICE_EMPTY: &str = "[Provider returned an empty response]";
const NOTICE_EMPTY_AGAIN: &str = "[Stopping: provider returned multiple empty responses in a row]";
const NOTICE_TRUNCATED: &str = "\n\n[Response truncated: it reached its token limit]";
const NOTICE_UNUSABLE: &str = "[Stopping: the model made no usable tool call three times in a row]";

/// A running turn.
#[derive(Debug)]
pub struct Turn {
    limits: TurnLimits,
    rounds: u64,
    /// Text of earlier rounds, and notices.
    content: String,
    /// Text of the current round.
    round_text: String,
    /// Reasoning of the current round.
    reasoning_block: Option<String>,
    /// Calls of the response being received; then, while they run, of the completed response.
    calls: CallScheduler,
    phase: TurnPhase,
    /// Whether the current response was cut off at its token limit.
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
    /// Starts a turn whose message is in the context: the first action calls the model.
    #[must_use]
    pub fn start(limits: TurnLimits) -> (Self, Vec<TurnAction>) {
        (Self::new(limits), vec![TurnAction::CallModel])
    }

    fn new(limits: TurnLimits) -> Self {
        Self {
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
        }
    }

    /// Resumes a turn that a crash interrupted. `schedules` says how the calls of its last response may run; a call
    /// that must not run twice, and may have run, is not repeated.
    #[must_use]
    pub fn resume(
        progress: TurnProgress,
        schedules: Vec<Schedule>,
        limits: TurnLimits,
    ) -> (Self, Vec<TurnAction>) {
        let TurnProgress {
            responses,
            content,
            calls,
            started_calls,
            mut finished_calls,
            steers,
            approvals: _,
        } = progress;
        let mut turn = Self::new(limits);
        turn.rounds = responses;
        turn.content = content;
        turn.steers = steers.into();
        if calls.is_empty() {
            let actions = turn.next_round();
            return (turn, actions);
        }
        turn.phase = TurnPhase::RunningTools;
        for (index, (call, schedule)) in calls.into_iter().zip(schedules).enumerate() {
            let outcome = finished_calls.remove(&index).or_else(|| match started_calls.get(&index) {
                Some(ToolClass::Once) => Some(ToolOutcome::Failed(RESULT_UNKNOWN.to_owned())),
                Some(ToolClass::Pure | ToolClass::Keyed) | None => None,
            });
            turn.calls.restore(call, schedule, outcome);
        }
        let actions = turn.advance();
        (turn, actions)
    }

    /// Whether an instruction can be added.
    #[must_use]
    pub fn accepts_steers(&self) -> bool {
        self.phase != TurnPhase::Ended && self.steers.len() < STEERS_MAX
    }

    /// Whether the response has a call with this id already. Such a call is one call delivered again: it is dropped, so
    /// that it takes effect once.
    #[must_use]
    pub fn has_call(&self, id: &str) -> bool {
        self.phase == TurnPhase::CallingModel && self.calls.has_given_id(id)
    }

    /// Processes an event and returns the actions to execute. Ignores every event after the end, so a turn ends exactly
    /// once.
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
            (TurnPhase::CallingModel, TurnEvent::ReasoningBlock(reasoning)) => {
                self.reasoning_block = Some(reasoning);
                Vec::new()
            }
            (TurnPhase::CallingModel, TurnEvent::ToolCall(call, schedule)) => {
                self.calls.add(call, schedule);
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
            (TurnPhase::RunningTools, TurnEvent::ToolDone(index, outcome)) => {
                self.calls.complete(index, outcome);
                self.advance()
            }
            // No model call is in flight, or no tool call is running: a late event.
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
        let (was_truncated, reasoning) = (std::mem::take(&mut self.truncated), self.reasoning_block.take());
        if !self.calls.is_empty() {
            self.last_response_empty = false;
            self.phase = TurnPhase::RunningTools;
            let response =
                Message { reasoning_block: reasoning, ..Message::assistant(text, self.calls.tool_calls()) };
            let mut actions = vec![TurnAction::Append(response)];
            actions.extend(self.advance());
            return actions;
        }
        if was_truncated {
            self.content.push_str(NOTICE_TRUNCATED);
        }
        if text.is_empty() {
            return self.handle_empty_response();
        }
        // A usable response resets the counters of consecutive bad ones.
        self.last_response_empty = false;
        self.unusable_rounds = 0;
        let mut actions = vec![TurnAction::Append(Message::assistant(text, Vec::new()))];
        if self.steers.is_empty() {
            actions.push(self.end(TurnOutcome::Completed, None));
        } else {
            // Instructions arrived during the last response: the model gets another round.
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

    /// Starts the calls that are ready; once all are done, appends their results and begins the next round.
    fn advance(&mut self) -> Vec<TurnAction> {
        let started = self.calls.start_ready();
        let mut actions: Vec<_> =
            started.into_iter().map(|(index, call)| TurnAction::RunTool(index, call)).collect();
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

    /// Ends with a notice as the last assistant message, after the partial text: a context never ends with a user
    /// message.
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

    /// Completes unfinished calls with a result, and appends the partial text as an aborted assistant message.
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

    /// Appends the added instructions, so that none is lost however the turn continues.
    fn deliver_steers(&mut self) -> Vec<TurnAction> {
        self.steers.drain(..).map(TurnAction::Append).collect()
    }

    fn end(&mut self, outcome: TurnOutcome, halted: Option<Halt>) -> TurnAction {
        self.phase = TurnPhase::Ended;
        let content = std::mem::take(&mut self.content);
        TurnAction::End(TurnEnd { outcome, content, usage: self.usage, rounds: self.rounds, halted })
    }
}

/// The result of a tool call that did not run because the budget is used up.
#[must_use]
pub fn budget_exhausted_result(resource: Resource) -> String {
    format!("Did not execute: the budget of {resource} is used up")
}
