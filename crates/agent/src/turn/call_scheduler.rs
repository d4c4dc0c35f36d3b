//! The calls of one answer: which may run now, what came of each, and the results in the order of the calls.

use crate::{Ending, Message, ToolCall, ToolOutcome};

/// How a call can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schedule {
    /// Beside its neighbours.
    Parallel,
    /// After all before it, and before all after it.
    Ordered,
    /// Not at all: there is no such tool, or these are no arguments of it. The model is told why.
    Unusable(String),
}

const RESULT_INTERRUPTED: &str = "Cancelled by user: tool execution was interrupted";
const RESULT_STOPPED: &str = "Did not execute: the daemon stopped";
const RESULT_HALTED: &str = "Did not execute: halted due to error in previous tool";

/// Calls of one answer that are run. The model is told of the first that is not; further ones are as if never made.
const CALLS_MAX: usize = 256;

fn too_many_calls() -> String {
    format!("Did not execute: only the first {CALLS_MAX} calls of an answer are run")
}

#[derive(Debug)]
pub(super) struct CallScheduler {
    entries: Vec<ScheduledCall>,
    running_max: usize,
}

#[derive(Debug)]
struct ScheduledCall {
    call: ToolCall,
    schedule: Schedule,
    state: CallState,
}

#[derive(Debug, PartialEq)]
enum CallState {
    Pending,
    Running,
    Done(ToolOutcome),
}

impl CallScheduler {
    pub(super) fn new(running_max: usize) -> Self {
        Self { entries: Vec::new(), running_max: running_max.max(1) }
    }

    /// Takes a call. Results are told apart by their call's id: one that is missing or stands twice gets another.
    pub(super) fn add(&mut self, mut call: ToolCall, mut manner: Schedule) {
        match self.entries.len() {
            0..CALLS_MAX => {}
            CALLS_MAX => manner = Schedule::Unusable(too_many_calls()),
            _ => return,
        }
        let is_taken = |id: &str| self.entries.iter().any(|entry| entry.call.id == id);
        if call.id.is_empty() || is_taken(&call.id) {
            let numbered =
                |number: usize| format!("{}_{number}", if call.id.is_empty() { "call" } else { &call.id });
            let free = (self.entries.len() + 1..).map(numbered).find(|id| !is_taken(id));
            call.id = free.unwrap_or_default();
        }
        let state = match &manner {
            Schedule::Unusable(why) => CallState::Done(ToolOutcome::Failed(why.clone())),
            Schedule::Parallel | Schedule::Ordered => CallState::Pending,
        };
        self.entries.push(ScheduledCall { call, schedule: manner, state });
    }

    /// Takes a call of an answer that was read before; with an outcome it is done.
    pub(super) fn restore(&mut self, call: ToolCall, mut manner: Schedule, outcome: Option<ToolOutcome>) {
        if self.entries.len() >= CALLS_MAX {
            manner = Schedule::Unusable(too_many_calls());
        }
        let state = match (&manner, outcome) {
            (_, Some(outcome)) => CallState::Done(outcome),
            (Schedule::Unusable(why), None) => CallState::Done(ToolOutcome::Failed(why.clone())),
            (Schedule::Parallel | Schedule::Ordered, None) => CallState::Pending,
        };
        self.entries.push(ScheduledCall { call, schedule: manner, state });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn tool_calls(&self) -> Vec<ToolCall> {
        self.entries.iter().map(|entry| entry.call.clone()).collect()
    }

    pub(super) fn all_unusable(&self) -> bool {
        self.entries.iter().all(|entry| matches!(entry.schedule, Schedule::Unusable(_)))
    }

    pub(super) fn all_done(&self) -> bool {
        self.entries.iter().all(|entry| matches!(entry.state, CallState::Done(_)))
    }

    /// Marks what can start now as running and gives it. Neighbours that may run beside each other do; an ordered
    /// call waits for all before it, and after an ordered one that failed no ordered one runs.
    pub(super) fn start_ready(&mut self) -> Vec<(usize, ToolCall)> {
        let mut running = self.entries.iter().filter(|entry| entry.state == CallState::Running).count();
        let mut started = Vec::new();
        let (mut all_done, mut ordered_failed) = (true, false);
        for (place, entry) in self.entries.iter_mut().enumerate() {
            let ordered = entry.schedule == Schedule::Ordered;
            if entry.state == CallState::Pending && ordered && all_done && ordered_failed {
                entry.state = CallState::Done(ToolOutcome::Failed(RESULT_HALTED.to_owned()));
            }
            let may_start = if ordered { all_done } else { true };
            if entry.state == CallState::Pending && may_start && running < self.running_max {
                entry.state = CallState::Running;
                running += 1;
                started.push((place, entry.call.clone()));
            }
            match &entry.state {
                CallState::Done(outcome) => {
                    ordered_failed |= ordered && !matches!(outcome, ToolOutcome::Done(_))
                }
                CallState::Pending | CallState::Running if ordered => break,
                CallState::Pending | CallState::Running => all_done = false,
            }
        }
        started
    }

    /// Only a call that runs can be done.
    pub(super) fn complete(&mut self, place: usize, outcome: ToolOutcome) {
        if let Some(entry) = self.entries.get_mut(place)
            && entry.state == CallState::Running
        {
            entry.state = CallState::Done(outcome);
        }
    }

    /// What has not begun will not begin.
    pub(super) fn fail_pending(&mut self, why: &str) {
        for entry in self.entries.iter_mut().filter(|entry| entry.state == CallState::Pending) {
            entry.state = CallState::Done(ToolOutcome::Failed(why.to_owned()));
        }
    }

    /// Everything that is not done is over.
    pub(super) fn fail_unfinished(&mut self, ending: Ending) {
        let result = if ending == Ending::Interrupted { RESULT_STOPPED } else { RESULT_INTERRUPTED };
        for entry in &mut self.entries {
            if !matches!(entry.state, CallState::Done(_)) {
                entry.state = CallState::Done(ToolOutcome::Failed(result.to_owned()));
            }
        }
    }

    /// One message for each call, in the order of the calls; the list is empty afterwards.
    pub(super) fn take_results(&mut self) -> Vec<Message> {
        let result = |entry: ScheduledCall| match entry.state {
            CallState::Done(outcome) => Message::tool_result(entry.call.id, &outcome),
            // Asked for before all were done; a call without a result would break the context.
            CallState::Pending | CallState::Running => {
                Message::tool_result(entry.call.id, &ToolOutcome::Failed(RESULT_INTERRUPTED.to_owned()))
            }
        };
        self.entries.drain(..).map(result).collect()
    }
}
