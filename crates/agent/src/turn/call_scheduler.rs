//! Scheduler for the tool calls of one response: which may run now, and their results in the order of the calls.

use crate::{Ending, Message, ToolCall, ToolOutcome};

/// How a tool call may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schedule {
    /// Concurrently with adjacent parallel calls.
    Parallel,
    /// After all calls before it, and before all calls after it.
    Ordered,
    /// Not at all: unknown tool or invalid arguments. The text is the result that the model receives.
    Unusable(String),
}

const RESULT_INTERRUPTED: &str = "Cancelled by user: tool execution was interrupted";
const RESULT_STOPPED: &str = "Did not execute: the daemon stopped";
const RESULT_HALTED: &str = "Did not execute: halted due to error in previous tool";

/// Limit of calls per response. The first call beyond it gets an error result; further ones are discarded.
const CALLS_MAX: usize = 256;

fn too_many_calls() -> String {
    format!("Did not execute: only the first {CALLS_MAX} calls of a response are run")
}

#[derive(Debug)]
pub(super) struct CallScheduler {
    entries: Vec<ScheduledCall>,
    running_max: usize,
}

#[derive(Debug)]
struct ScheduledCall {
    call: ToolCall,
    /// The id that the model gave; the call's own id replaces a missing one.
    given_id: String,
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

    /// Whether the response has a call that the model gave this id. Calls without an id are different calls.
    pub(super) fn has_given_id(&self, id: &str) -> bool {
        !id.is_empty() && self.entries.iter().any(|entry| entry.given_id == id)
    }

    /// Adds a call; drops one whose id the response has given already. Ids identify results: a missing id is replaced.
    pub(super) fn add(&mut self, mut call: ToolCall, mut schedule: Schedule) {
        if self.has_given_id(&call.id) {
            return;
        }
        match self.entries.len() {
            0..CALLS_MAX => {}
            CALLS_MAX => schedule = Schedule::Unusable(too_many_calls()),
            _ => return,
        }
        let given_id = call.id.clone();
        let is_taken = |id: &str| self.entries.iter().any(|entry| entry.call.id == id);
        if call.id.is_empty() || is_taken(&call.id) {
            let numbered =
                |number: usize| format!("{}_{number}", if call.id.is_empty() { "call" } else { &call.id });
            let free = (self.entries.len() + 1..).map(numbered).find(|id| !is_taken(id));
            call.id = free.unwrap_or_default();
        }
        let state = match &schedule {
            Schedule::Unusable(why) => CallState::Done(ToolOutcome::Failed(why.clone())),
            Schedule::Parallel | Schedule::Ordered => CallState::Pending,
        };
        self.entries.push(ScheduledCall { call, given_id, schedule, state });
    }

    /// Restores a call of a stored response; a call with an outcome is done.
    pub(super) fn restore(&mut self, call: ToolCall, mut schedule: Schedule, outcome: Option<ToolOutcome>) {
        if self.entries.len() >= CALLS_MAX {
            schedule = Schedule::Unusable(too_many_calls());
        }
        let state = match (&schedule, outcome) {
            (_, Some(outcome)) => CallState::Done(outcome),
            (Schedule::Unusable(why), None) => CallState::Done(ToolOutcome::Failed(why.clone())),
            (Schedule::Parallel | Schedule::Ordered, None) => CallState::Pending,
        };
        self.entries.push(ScheduledCall { given_id: call.id.clone(), call, schedule, state });
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

    /// Marks the calls that can start now as running and returns them. Adjacent parallel calls run concurrently; an
    /// ordered call waits for all before it, and once an ordered call failed no further ordered call runs.
    pub(super) fn start_ready(&mut self) -> Vec<(usize, ToolCall)> {
        let mut running = self.entries.iter().filter(|entry| entry.state == CallState::Running).count();
        let mut started = Vec::new();
        let (mut all_done, mut ordered_failed) = (true, false);
        for (index, entry) in self.entries.iter_mut().enumerate() {
            let ordered = entry.schedule == Schedule::Ordered;
            if entry.state == CallState::Pending && ordered && all_done && ordered_failed {
                entry.state = CallState::Done(ToolOutcome::Failed(RESULT_HALTED.to_owned()));
            }
            let may_start = if ordered { all_done } else { true };
            if entry.state == CallState::Pending && may_start && running < self.running_max {
                entry.state = CallState::Running;
                running += 1;
                started.push((index, entry.call.clone()));
            }
            match &entry.state {
                CallState::Done(outcome) => {
                    ordered_failed |= ordered && !matches!(outcome, ToolOutcome::Done(_));
                }
                CallState::Pending | CallState::Running if ordered => break,
                CallState::Pending | CallState::Running => all_done = false,
            }
        }
        started
    }

    /// Completes a running call; ignores any other index.
    pub(super) fn complete(&mut self, index: usize, outcome: ToolOutcome) {
        if let Some(entry) = self.entries.get_mut(index)
            && entry.state == CallState::Running
        {
            entry.state = CallState::Done(outcome);
        }
    }

    /// Fails the calls that have not started.
    pub(super) fn fail_pending(&mut self, why: &str) {
        for entry in self.entries.iter_mut().filter(|entry| entry.state == CallState::Pending) {
            entry.state = CallState::Done(ToolOutcome::Failed(why.to_owned()));
        }
    }

    /// Fails the calls that are not done.
    pub(super) fn fail_unfinished(&mut self, ending: Ending) {
        let result = if ending == Ending::Interrupted { RESULT_STOPPED } else { RESULT_INTERRUPTED };
        for entry in &mut self.entries {
            if !matches!(entry.state, CallState::Done(_)) {
                entry.state = CallState::Done(ToolOutcome::Failed(result.to_owned()));
            }
        }
    }

    /// Returns one message for each call, in the order of the calls, and clears the list.
    pub(super) fn take_results(&mut self) -> Vec<Message> {
        let result = |entry: ScheduledCall| match entry.state {
            CallState::Done(outcome) => Message::tool_result(entry.call.id, &outcome),
            // Not all calls are done; a call without a result would make the context invalid.
            CallState::Pending | CallState::Running => {
                Message::tool_result(entry.call.id, &ToolOutcome::Failed(RESULT_INTERRUPTED.to_owned()))
            }
        };
        self.entries.drain(..).map(result).collect()
    }
}
