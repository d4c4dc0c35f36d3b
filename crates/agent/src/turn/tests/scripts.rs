//! Random scripts: for any order of events, a turn ends at most once and leaves a context that model APIs accept.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// An event of a script. [`ScriptState`] fills in call ids, steer texts and the indices of running calls.
#[derive(Debug, Clone)]
enum ScriptEvent {
    Text(&'static str),
    Call(Schedule),
    Usage,
    ModelDone,
    ModelFailed,
    /// The `which`-th running call if `is_running`, else the call at index `which`, running or not.
    ToolDone {
        which: usize,
        is_running: bool,
        outcome: u8,
    },
    Steer,
    BudgetExhausted,
    Cancel,
}

fn script_event() -> impl Strategy<Value = ScriptEvent> {
    let schedule = prop_oneof![
        4 => Just(Schedule::Parallel),
        3 => Just(Schedule::Ordered),
        1 => Just(Schedule::Unusable("no".to_owned())),
    ];
    prop_oneof![
        20 => prop_oneof![Just("text "), Just("")].prop_map(ScriptEvent::Text),
        30 => schedule.prop_map(ScriptEvent::Call),
        4 => Just(ScriptEvent::Usage),
        20 => Just(ScriptEvent::ModelDone),
        1 => Just(ScriptEvent::ModelFailed),
        40 => (0usize..6, any::<bool>(), 0u8..4)
            .prop_map(|(which, is_running, outcome)| ScriptEvent::ToolDone { which, is_running, outcome }),
        8 => Just(ScriptEvent::Steer),
        1 => Just(ScriptEvent::BudgetExhausted),
        1 => Just(ScriptEvent::Cancel),
    ]
}

/// The calls that run, as the runtime would track them.
#[derive(Default)]
struct ScriptState {
    running: BTreeSet<usize>,
    schedules: Vec<Schedule>,
    steers_accepted: Vec<String>,
    calls_made: usize,
}

impl ScriptState {
    fn event(&mut self, number: usize, script_event: ScriptEvent, accepts_steers: bool) -> Option<TurnEvent> {
        Some(match script_event {
            ScriptEvent::Text(chunk) => text(chunk),
            ScriptEvent::Call(schedule) => {
                self.calls_made += 1;
                call(&format!("call {}", self.calls_made), schedule)
            }
            ScriptEvent::Usage => TurnEvent::Usage(Usage { input: 1, output: 1, ..Usage::default() }),
            ScriptEvent::ModelDone => MODEL_DONE,
            ScriptEvent::ModelFailed => TurnEvent::ModelFailed(fault()),
            ScriptEvent::ToolDone { which, is_running, outcome } => {
                let any = self.running.iter().nth(which % self.running.len().max(1)).copied();
                let index = any.filter(|_| is_running).unwrap_or(which);
                [done(index, "d"), done(index, "d"), failed(index, "f"), denied(index, "n")]
                    [usize::from(outcome)]
                .clone()
            }
            ScriptEvent::Steer if accepts_steers => {
                self.steers_accepted.push(format!("steer {number}"));
                steer(&format!("steer {number}"))
            }
            ScriptEvent::Steer => return None,
            ScriptEvent::BudgetExhausted => TurnEvent::BudgetExhausted(Resource::WallMs),
            ScriptEvent::Cancel => TurnEvent::Cancel,
        })
    }

    /// Tracks the running calls and checks the scheduling rules.
    fn track(&mut self, event: &TurnEvent, started: &[usize], rounds_before: usize, harness: &TurnHarness) {
        if let TurnEvent::ToolDone(index, _) = event {
            self.running.remove(index);
        }
        for index in started {
            assert!(self.running.insert(*index), "call {index} started twice");
        }
        if harness.model_calls > rounds_before || !harness.ends.is_empty() {
            self.running.clear();
        }
        let calls = harness.appended.iter().rev().find(|message| !message.tool_calls.is_empty());
        assert!(self.running.iter().all(|index| calls.is_some_and(|last| *index < last.tool_calls.len())));
        let is_ordered = |index: &usize| self.schedules.get(*index) == Some(&Schedule::Ordered);
        assert!(
            self.running.len() == 1 || !self.running.iter().any(is_ordered),
            "an ordered call runs concurrently"
        );
    }
}

/// Returns the first violation of the message order that model APIs require.
fn find_violation(messages: &[Message]) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        match message.role {
            Role::Tool => {
                let id = message.tool_call_id.as_deref().unwrap_or_default();
                let Some(position) = open.iter().position(|open| *open == id) else {
                    return Some(format!("message {index} is the result of unknown call '{id}'"));
                };
                if position != 0 {
                    return Some(format!("message {index} is the result of '{id}' out of order"));
                }
                open.remove(position);
            }
            Role::User | Role::Assistant if !open.is_empty() => {
                return Some(format!("message {index} comes before the results of {open:?}"));
            }
            Role::User => {}
            Role::Assistant => open = message.tool_calls.iter().map(|call| call.id.as_str()).collect(),
        }
    }
    None
}

fn run_script(rounds_max: u64, running_max: usize, script: Vec<ScriptEvent>) {
    let mut harness = TurnHarness::new(rounds_max, running_max);
    let mut state = ScriptState::default();
    for (number, script_event) in script.into_iter().enumerate() {
        let Some(event) = state.event(number, script_event, harness.turn.accepts_steers()) else { continue };
        let ended = !harness.ends.is_empty();
        match &event {
            TurnEvent::ToolCall(_, schedule) if state.running.is_empty() => {
                state.schedules.push(schedule.clone());
            }
            _ => {}
        }
        let (appended_before, calls_before) = (harness.appended.len(), harness.model_calls);
        let started = harness.handle(event.clone());
        assert!(
            !ended || (harness.appended.len(), harness.model_calls) == (appended_before, calls_before),
            "action after the end"
        );
        state.track(&event, &started, calls_before, &harness);
        assert!(state.running.len() <= running_max, "{:?} run at once", state.running);
        if harness.model_calls > calls_before {
            state.schedules.clear();
            assert_eq!(find_violation(&harness.appended), None, "context of the model call");
        }
    }
    assert!(harness.ends.len() <= 1, "at most one end");
    assert!(u64::try_from(harness.model_calls).is_ok_and(|model_calls| model_calls <= rounds_max));
    if harness.ends.is_empty() {
        harness.handle(TurnEvent::Cancel);
    }
    assert_eq!(find_violation(&harness.appended), None, "{:#?}", harness.appended);
    let last = harness.appended.last().map(|last| (last.role, last.tool_calls.len()));
    assert_eq!(last, Some((Role::Assistant, 0)), "the context ends with a response");
    let steers: Vec<_> = harness.appended.iter().filter(|message| message.role == Role::User).collect();
    let steers: Vec<_> = steers.into_iter().skip(1).map(|message| message.text.clone()).collect();
    assert_eq!(steers, state.steers_accepted, "every accepted steer is delivered once, in order");
    assert_eq!(harness.end().rounds, harness.model_calls as u64);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_script_ends_at_most_once_with_a_valid_context(
        rounds_max in 1u64..8,
        running_max in 1usize..4,
        script in prop::collection::vec(script_event(), 0..120),
    ) {
        run_script(rounds_max, running_max, script);
    }
}
