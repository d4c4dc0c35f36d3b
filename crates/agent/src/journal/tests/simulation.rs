//! A turn as the runtime drives it, with random model responses and tool results. The records of one event are one
//! commit, and they are committed before calls or model requests start.

use testkit::TestRng;

use super::*;
use crate::permission::Resource;
use crate::{Fault, FaultKind, Schedule, Turn, TurnAction, TurnEvent, TurnLimits, TurnOutcome};

pub(super) const LIMITS: TurnLimits = TurnLimits { rounds_max: 4, calls_running_max: 2 };

/// The prefix of added instructions.
pub(super) const STEER_PREFIX: &str = "word";

/// A turn, its context and its committed records.
pub(super) struct TurnSimulation {
    pub(super) turn: Turn,
    pub(super) context: Vec<Message>,
    /// The committed batches, in order.
    pub(super) commits: Vec<Vec<Record>>,
    /// Calls of the current response: schedule and class of each.
    calls: Vec<(Schedule, ToolClass)>,
    running: Vec<usize>,
    /// The ids of the calls that were started.
    pub(super) executed: Vec<String>,
    is_calling_model: bool,
    calls_made: u64,
    pub(super) end: Option<TurnEnd>,
}

impl TurnSimulation {
    /// Begins the turn.
    pub(super) fn begin() -> Self {
        let (turn, actions) = Turn::start(LIMITS);
        let mut simulation = Self::with(turn, vec![user("ask 1")]);
        simulation.apply(actions, vec![accepted(1), begun(1)]);
        simulation
    }

    /// Resumes the turn from its records.
    pub(super) fn resume(records: &[Record], rng: &mut TestRng) -> Self {
        let (messages, open) = Replay::from_records(records.to_vec()).into_parts();
        let (context, progress) = (cloned_messages(&messages), running_progress(open));
        Self::resume_from(context, progress, rng)
    }

    /// Reopens the interrupted turn.
    pub(super) fn reopen(records: &[Record], rng: &mut TestRng) -> Self {
        let replay = Replay::from_records(records.to_vec());
        let (open, messages) = replay.reopenable_turn(1).expect("an interrupted turn");
        let OpenTurnState::Running(progress) = open.state else { panic!("the turn had begun") };
        let (all, _) = replay.into_parts();
        Self::resume_from(cloned_messages(&all[..messages]), progress, rng)
    }

    fn resume_from(context: Vec<Message>, progress: TurnProgress, rng: &mut TestRng) -> Self {
        let calls: Vec<_> = progress.calls.iter().map(|_| random_call(rng)).collect();
        let schedules = calls.iter().map(|(schedule, _)| schedule.clone()).collect();
        // A started call retains its class.
        let class_of = |index: usize, class| progress.started_calls.get(&index).copied().unwrap_or(class);
        let calls = calls.into_iter().enumerate();
        let calls = calls.map(|(index, (schedule, class))| (schedule, class_of(index, class))).collect();
        let first = vec![reopened(1, context.len())];
        let (turn, actions) = Turn::resume(progress, schedules, LIMITS);
        let mut simulation = Self { calls, ..Self::with(turn, context) };
        simulation.apply(actions, first);
        simulation
    }

    fn with(turn: Turn, context: Vec<Message>) -> Self {
        let (commits, calls, running, executed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self {
            turn,
            context,
            commits,
            calls,
            running,
            executed,
            is_calling_model: false,
            calls_made: 0,
            end: None,
        }
    }

    /// Runs to the end, or until there are `commits_max` commits.
    pub(super) fn run(&mut self, rng: &mut TestRng, commits_max: usize) {
        while self.end.is_none() && self.commits.len() < commits_max {
            let event = match rng.below(20) {
                0 if self.turn.accepts_steers() => {
                    let instruction = format!("{STEER_PREFIX} {}", rng.below(1 << 40));
                    self.commits.push(vec![steered(1, &instruction)]);
                    TurnEvent::Steer(user(&instruction))
                }
                1 if rng.below(6) == 0 => TurnEvent::Cancel,
                2 if rng.below(6) == 0 => TurnEvent::BudgetExhausted(Resource::Tokens),
                _ if self.is_calling_model => self.random_response(rng),
                _ => self.random_result(rng),
            };
            self.handle(event);
        }
    }

    fn random_response(&mut self, rng: &mut TestRng) -> TurnEvent {
        if rng.below(30) == 0 {
            return TurnEvent::ModelFailed(Fault::new(FaultKind::Model, "gone"));
        }
        for _ in 0..rng.below(3) {
            self.handle(TurnEvent::Text(format!("text {}. ", rng.below(100))));
        }
        self.calls.clear();
        for _ in 0..rng.below(4) {
            self.calls_made += 1;
            let (schedule, class) = random_call(rng);
            self.calls.push((schedule.clone(), class));
            self.handle(TurnEvent::ToolCall(
                call(&format!("c{}-{}", self.calls_made, rng.below(1 << 40))),
                schedule,
            ));
        }
        TurnEvent::ModelDone
    }

    fn random_result(&mut self, rng: &mut TestRng) -> TurnEvent {
        let index = *rng.pick(&self.running);
        self.running.retain(|other| *other != index);
        let text = format!("result {}", rng.below(1 << 40));
        let outcome = match rng.below(4) {
            0 => ToolOutcome::Failed(text),
            _ => ToolOutcome::Done(text),
        };
        TurnEvent::ToolDone(index, outcome)
    }

    pub(super) fn handle(&mut self, event: TurnEvent) {
        let done = match &event {
            TurnEvent::ToolDone(index, outcome) => Some((*index, outcome.clone())),
            _ => None,
        };
        let actions = self.turn.handle(event);
        let mut records = Vec::new();
        if let Some((index, outcome)) = done
            && !actions.iter().any(|action| matches!(action, TurnAction::Append(_)))
        {
            records.push(Record::CallDone { turn: 1, index, outcome });
        }
        self.apply(actions, records);
    }

    /// Interrupts a turn that is not resumed, before any of its actions.
    pub(super) fn interrupt(&mut self) {
        self.handle(TurnEvent::Interrupt("a crash".to_owned()));
    }

    fn apply(&mut self, actions: Vec<TurnAction>, mut records: Vec<Record>) {
        for action in actions {
            assert!(self.end.is_none(), "action after the end");
            self.is_calling_model = false;
            match action {
                TurnAction::Append(message) => {
                    records.push(message_added(message.clone()));
                    self.context.push(message);
                }
                TurnAction::RunTool(index, call) => {
                    self.running.push(index);
                    self.executed.push(call.id.clone());
                    let class = self.calls[index].1;
                    records.push(Record::CallBegun {
                        turn: 1,
                        index,
                        call_id: call.id,
                        tool: call.name,
                        class,
                    });
                }
                TurnAction::CallModel => {
                    self.running.clear();
                    self.is_calling_model = true;
                }
                TurnAction::End(end) => {
                    let request_id = RequestId::Number(1);
                    records.push(Record::TurnEnded { turn: 1, request_id, end: Box::new(end.clone()) });
                    self.end = Some(end);
                }
            }
        }
        if !records.is_empty() {
            self.commits.push(records);
        }
    }

    pub(super) fn records(&self) -> Vec<Record> {
        self.commits.concat()
    }

    pub(super) fn outcome(&self) -> &TurnOutcome {
        &self.end.as_ref().expect("an ended turn").outcome
    }
}

fn random_call(rng: &mut TestRng) -> (Schedule, ToolClass) {
    let schedule = match rng.below(6) {
        0 => Schedule::Unusable("no such tool".to_owned()),
        1..3 => Schedule::Ordered,
        _ => Schedule::Parallel,
    };
    let class = match rng.below(3) {
        0 => ToolClass::Pure,
        1 => ToolClass::Keyed,
        _ => ToolClass::Once,
    };
    (schedule, class)
}

fn cloned_messages(messages: &[std::sync::Arc<Message>]) -> Vec<Message> {
    messages.iter().map(|message| Message::clone(message)).collect()
}

fn running_progress(open: std::collections::VecDeque<OpenTurn>) -> TurnProgress {
    assert_eq!(open.len(), 1, "one turn is open");
    match open.into_iter().next().map(|open| open.state) {
        Some(OpenTurnState::Running(progress)) => progress,
        Some(OpenTurnState::Waiting) | None => panic!("the turn has begun"),
    }
}
