//! A turn as the runtime plays it, with dice for the model and the tools. What follows from one event is kept together;
//! nothing that runs or is asked comes before it.

use super::*;
use crate::permission::Resource;
use crate::{Fault, FaultKind, Schedule, Turn, TurnAction, TurnEvent, TurnLimits, TurnOutcome};

pub(super) const LIMITS: TurnLimits = TurnLimits { rounds_max: 4, calls_running_max: 2 };

/// What a word begins with that was added.
pub(super) const STEER_PREFIX: &str = "word";

/// SplitMix64.
pub(super) struct TestRng(pub(super) u64);

impl TestRng {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// A turn, the context it works in, and everything it had kept.
pub(super) struct TurnSimulation {
    pub(super) turn: Turn,
    pub(super) context: Vec<Message>,
    /// What was kept together, in order.
    pub(super) commits: Vec<Vec<Record>>,
    /// Calls of the answer under way: how each can run, and what a crash means for it.
    calls: Vec<(Schedule, ToolClass)>,
    running: Vec<usize>,
    /// The ids of the calls that ran.
    pub(super) executed: Vec<String>,
    is_calling_model: bool,
    calls_made: u64,
    pub(super) end: Option<TurnEnd>,
}

impl TurnSimulation {
    /// Begins the turn behind what is in the context.
    pub(super) fn begin() -> Self {
        let (turn, actions) = Turn::start(user("ask 1"), LIMITS);
        let mut play = Self::with(turn, Vec::new());
        play.apply(actions, vec![accepted(1), begun(1)]);
        play
    }

    /// Goes on with what the records say.
    pub(super) fn resume(records: &[Record], dice: &mut TestRng) -> Self {
        let (messages, open) = Replay::from_records(records.to_vec()).into_parts();
        let (context, progress) = (cloned_messages(&messages), running_progress(open));
        Self::resume_from(context, progress, dice)
    }

    /// Opens the turn again that was interrupted.
    pub(super) fn reopen(records: &[Record], dice: &mut TestRng) -> Self {
        let replay = Replay::from_records(records.to_vec());
        let (open, messages) = replay.reopenable_turn(1).expect("it was interrupted");
        let TurnStage::Running(progress) = open.stage else { panic!("it had begun") };
        let (all, _) = replay.into_parts();
        Self::resume_from(cloned_messages(&all[..messages]), progress, dice)
    }

    fn resume_from(context: Vec<Message>, progress: TurnProgress, dice: &mut TestRng) -> Self {
        let calls: Vec<_> = progress.calls.iter().map(|_| random_call(dice)).collect();
        let manners = calls.iter().map(|(manner, _)| manner.clone()).collect();
        // The class of a call that was begun stays what it was.
        let class_of = |place: usize, class| progress.started_calls.get(&place).copied().unwrap_or(class);
        let calls = calls.into_iter().enumerate();
        let calls = calls.map(|(place, (manner, class))| (manner, class_of(place, class))).collect();
        let first = vec![reopened(1, context.len())];
        let (turn, actions) = Turn::resume(progress, manners, LIMITS);
        let mut play = Self { calls, ..Self::with(turn, context) };
        play.apply(actions, first);
        play
    }

    fn with(turn: Turn, context: Vec<Message>) -> Self {
        let (commits, calls, running, ran) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self {
            turn,
            context,
            commits,
            calls,
            running,
            executed: ran,
            is_calling_model: false,
            calls_made: 0,
            end: None,
        }
    }

    /// Plays to the end, or until so many commits were made.
    pub(super) fn run(&mut self, dice: &mut TestRng, commits_max: usize) {
        while self.end.is_none() && self.commits.len() < commits_max {
            let event = match dice.below(20) {
                0 if self.turn.accepts_steers() => {
                    let word = format!("{STEER_PREFIX} {}", dice.below(1 << 40));
                    self.commits.push(vec![steered(1, &word)]);
                    TurnEvent::Steer(user(&word))
                }
                1 if dice.below(6) == 0 => TurnEvent::Cancel,
                2 if dice.below(6) == 0 => TurnEvent::BudgetExhausted(Resource::Tokens),
                _ if self.is_calling_model => self.random_response(dice),
                _ => self.random_result(dice),
            };
            self.handle(event);
        }
    }

    fn random_response(&mut self, dice: &mut TestRng) -> TurnEvent {
        if dice.below(30) == 0 {
            return TurnEvent::ModelFailed(Fault::new(FaultKind::Model, "gone"));
        }
        for _ in 0..dice.below(3) {
            self.handle(TurnEvent::Text(format!("text {}. ", dice.below(100))));
        }
        self.calls.clear();
        for _ in 0..dice.below(4) {
            self.calls_made += 1;
            let (manner, class) = random_call(dice);
            self.calls.push((manner.clone(), class));
            self.handle(TurnEvent::ToolCall(
                call(&format!("c{}-{}", self.calls_made, dice.below(1 << 40))),
                manner,
            ));
        }
        TurnEvent::ModelDone
    }

    fn random_result(&mut self, dice: &mut TestRng) -> TurnEvent {
        let place = self.running[usize::try_from(dice.below(self.running.len() as u64)).expect("small")];
        self.running.retain(|other| *other != place);
        let text = format!("result {}", dice.below(1 << 40));
        let outcome = match dice.below(4) {
            0 => ToolOutcome::Failed(text),
            _ => ToolOutcome::Done(text),
        };
        TurnEvent::ToolDone(place, outcome)
    }

    pub(super) fn handle(&mut self, event: TurnEvent) {
        let done = match &event {
            TurnEvent::ToolDone(place, outcome) => Some((*place, outcome.clone())),
            _ => None,
        };
        let actions = self.turn.handle(event);
        let mut records = Vec::new();
        if let Some((place, outcome)) = done
            && !actions.iter().any(|action| matches!(action, TurnAction::Append(_)))
        {
            records.push(Record::CallDone { turn: 1, index: place, outcome });
        }
        self.apply(actions, records);
    }

    /// Ends a turn that is not to go on, before anything of it was done.
    pub(super) fn interrupt(&mut self) {
        self.handle(TurnEvent::Interrupt("a crash".to_owned()));
    }

    fn apply(&mut self, actions: Vec<TurnAction>, mut records: Vec<Record>) {
        let begins = records.iter().any(|record| matches!(record, Record::TurnBegun { .. }));
        for (place, action) in actions.into_iter().enumerate() {
            assert!(self.end.is_none(), "nothing follows the end");
            self.is_calling_model = false;
            match action {
                TurnAction::Append(message) => {
                    // The first message came with the send.
                    if !(begins && place == 0) {
                        records.push(message_added(message.clone()));
                    }
                    self.context.push(message);
                }
                TurnAction::RunTool(place, call) => {
                    self.running.push(place);
                    self.executed.push(call.id.clone());
                    let class = self.calls[place].1;
                    records.push(Record::CallBegun {
                        turn: 1,
                        index: place,
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
        &self.end.as_ref().expect("it has ended").outcome
    }
}

fn random_call(dice: &mut TestRng) -> (Schedule, ToolClass) {
    let manner = match dice.below(6) {
        0 => Schedule::Unusable("no such tool".to_owned()),
        1..3 => Schedule::Ordered,
        _ => Schedule::Parallel,
    };
    let class = match dice.below(3) {
        0 => ToolClass::Pure,
        1 => ToolClass::Keyed,
        _ => ToolClass::Once,
    };
    (manner, class)
}

fn cloned_messages(messages: &[std::sync::Arc<Message>]) -> Vec<Message> {
    messages.iter().map(|message| Message::clone(message)).collect()
}

fn running_progress(open: std::collections::VecDeque<OpenTurn>) -> TurnProgress {
    assert_eq!(open.len(), 1, "one turn is open");
    match open.into_iter().next().map(|open| open.stage) {
        Some(TurnStage::Running(progress)) => progress,
        Some(TurnStage::Waiting) | None => panic!("it has begun"),
    }
}
