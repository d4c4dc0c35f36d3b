//! One message worked through to an answer, as a machine: events in, actions out. Who carries the actions out, and
//! when, is left to the runtime.

#[cfg(test)]
mod tests;

use crate::{Ending, Fault, Message, ToolCall, Usage};

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnEvent {
    /// The model said more.
    Text(String),
    /// The model made a call.
    ToolCall(ToolCall),
    /// The model told what it used.
    Usage(Usage),
    /// The model's answer is complete.
    ModelDone,
    /// The model, or the way to it, failed.
    ModelFailed(Fault),
    /// The tools are done: one message per call, in the order of the calls.
    ToolsDone(Vec<Message>),
    /// Somebody wants the turn to end now.
    Cancel,
}

/// What is to be done, in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnAction {
    /// Put this message into the context.
    Keep(Message),
    /// Ask the model with the context as it now is.
    AskModel,
    /// Run these calls and come back with [`TurnEvent::ToolsDone`].
    RunTools(Vec<ToolCall>),
    /// The turn is over. Nothing follows.
    End(TurnEnd),
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
    /// Whether it stopped because `rounds` reached its limit.
    pub halted: bool,
}

/// The three ways a turn ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnOutcome {
    /// With an answer.
    Completed,
    /// Somebody cancelled it.
    Cancelled,
    /// The model failed.
    Failed(Fault),
}

const NOTICE_LIMIT: &str = "[Max tool iterations reached]";
const RESULT_INTERRUPTED: &str = "Cancelled by user: tool execution was interrupted";
const NOTICE_EMPTY: &str = "[Provider returned an empty response]";
const NOTICE_EMPTY_AGAIN: &str = "[Stopping: provider returned multiple empty responses in a row]";

/// A turn under way.
#[derive(Debug)]
pub struct Turn {
    rounds_max: u64,
    rounds: u64,
    /// Text of earlier rounds, and notices.
    said: String,
    /// Text of the round under way.
    saying: String,
    calls: Vec<ToolCall>,
    /// Calls handed out to run, whose results are awaited.
    running: Vec<ToolCall>,
    usage: Option<Usage>,
    empty_before: bool,
    ended: bool,
}

impl Turn {
    /// Starts a turn: the first actions keep the message and ask the model.
    #[must_use]
    pub fn start(message: Message, rounds_max: u64) -> (Self, Vec<TurnAction>) {
        let turn = Self {
            rounds_max,
            rounds: 1,
            said: String::new(),
            saying: String::new(),
            calls: Vec::new(),
            running: Vec::new(),
            usage: None,
            empty_before: false,
            ended: false,
        };
        (turn, vec![TurnAction::Keep(message), TurnAction::AskModel])
    }

    /// Takes an event and says what to do. After the end every event is ignored, so a turn ends exactly once.
    pub fn on(&mut self, event: TurnEvent) -> Vec<TurnAction> {
        if self.ended {
            return Vec::new();
        }
        match event {
            TurnEvent::Text(text) => self.saying.push_str(&text),
            TurnEvent::ToolCall(call) => self.calls.push(call),
            TurnEvent::Usage(usage) => self.usage = Some(self.usage.unwrap_or_default().plus(usage)),
            TurnEvent::ModelDone => return self.answered(),
            TurnEvent::ModelFailed(fault) => {
                return self.break_off(Ending::Failed, TurnOutcome::Failed(fault));
            }
            TurnEvent::Cancel => return self.break_off(Ending::Cancelled, TurnOutcome::Cancelled),
            TurnEvent::ToolsDone(results) => return self.tools_done(results),
        }
        Vec::new()
    }

    fn answered(&mut self) -> Vec<TurnAction> {
        let text = std::mem::take(&mut self.saying);
        let calls = std::mem::take(&mut self.calls);
        self.said.push_str(&text);
        if !calls.is_empty() {
            self.empty_before = false;
            self.running.clone_from(&calls);
            return vec![
                TurnAction::Keep(Message::assistant(text, calls.clone())),
                TurnAction::RunTools(calls),
            ];
        }
        if text.is_empty() {
            return self.empty_answer();
        }
        vec![TurnAction::Keep(Message::assistant(text, Vec::new())), self.end(TurnOutcome::Completed, false)]
    }

    fn empty_answer(&mut self) -> Vec<TurnAction> {
        if self.empty_before || self.rounds >= self.rounds_max {
            self.notice(NOTICE_EMPTY_AGAIN);
            let kept = Message::assistant(NOTICE_EMPTY_AGAIN, Vec::new());
            return vec![TurnAction::Keep(kept), self.end(TurnOutcome::Completed, false)];
        }
        self.empty_before = true;
        self.notice(NOTICE_EMPTY);
        self.rounds += 1;
        vec![TurnAction::AskModel]
    }

    fn tools_done(&mut self, results: Vec<Message>) -> Vec<TurnAction> {
        self.running.clear();
        let mut actions: Vec<_> = results.into_iter().map(TurnAction::Keep).collect();
        if self.rounds >= self.rounds_max {
            self.notice(NOTICE_LIMIT);
            actions.push(TurnAction::Keep(Message::assistant(NOTICE_LIMIT, Vec::new())));
            actions.push(self.end(TurnOutcome::Completed, true));
        } else {
            self.rounds += 1;
            actions.push(TurnAction::AskModel);
        }
        actions
    }

    /// A context never ends on a question: calls that were running get a result, and what was said so far is kept as
    /// the answer that broke off.
    fn break_off(&mut self, ending: Ending, outcome: TurnOutcome) -> Vec<TurnAction> {
        let text = std::mem::take(&mut self.saying);
        self.said.push_str(&text);
        let stopped = |call: ToolCall| TurnAction::Keep(Message::tool(call.id, RESULT_INTERRUPTED));
        let mut actions: Vec<_> = std::mem::take(&mut self.running).into_iter().map(stopped).collect();
        actions.push(TurnAction::Keep(Message::broken_off(text, ending)));
        actions.push(self.end(outcome, false));
        actions
    }

    fn notice(&mut self, text: &str) {
        self.said.push_str(text);
    }

    fn end(&mut self, outcome: TurnOutcome, halted: bool) -> TurnAction {
        self.ended = true;
        let content = std::mem::take(&mut self.said);
        TurnAction::End(TurnEnd { outcome, content, usage: self.usage, rounds: self.rounds, halted })
    }
}
