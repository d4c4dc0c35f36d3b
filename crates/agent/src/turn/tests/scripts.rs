//! Random scripts: whatever comes in whatever order, a turn ends at most once and leaves a context a model can read.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// One event without what the player fills in: ids of calls, texts of steers, places that run.
#[derive(Debug, Clone)]
enum ScriptEvent {
    Text(&'static str),
    Call(Schedule),
    Usage,
    ModelDone,
    ModelFailed,
    /// The so-many-th of those that run, or of any place at all.
    ToolDone {
        which: usize,
        real: bool,
        outcome: u8,
    },
    Steer,
    BudgetSpent,
    Cancel,
}

fn script_event() -> impl Strategy<Value = ScriptEvent> {
    let manner = prop_oneof![
        4 => Just(Schedule::Parallel),
        3 => Just(Schedule::Ordered),
        1 => Just(Schedule::Unusable("no".to_owned())),
    ];
    prop_oneof![
        20 => prop_oneof![Just("said "), Just("")].prop_map(ScriptEvent::Text),
        30 => manner.prop_map(ScriptEvent::Call),
        4 => Just(ScriptEvent::Usage),
        20 => Just(ScriptEvent::ModelDone),
        1 => Just(ScriptEvent::ModelFailed),
        40 => (0usize..6, any::<bool>(), 0u8..4)
            .prop_map(|(which, real, outcome)| ScriptEvent::ToolDone { which, real, outcome }),
        8 => Just(ScriptEvent::Steer),
        1 => Just(ScriptEvent::BudgetSpent),
        1 => Just(ScriptEvent::Cancel),
    ]
}

/// What runs, as whoever carries actions out would know it.
#[derive(Default)]
struct ScriptState {
    running: BTreeSet<usize>,
    schedules: Vec<Schedule>,
    steers_taken: Vec<String>,
    calls_made: usize,
}

impl ScriptState {
    fn event(&mut self, number: usize, cue: ScriptEvent, takes_steers: bool) -> Option<TurnEvent> {
        Some(match cue {
            ScriptEvent::Text(said) => text(said),
            ScriptEvent::Call(manner) => {
                self.calls_made += 1;
                call(&format!("call {}", self.calls_made), manner)
            }
            ScriptEvent::Usage => TurnEvent::Usage(Usage { input: 1, output: 1, ..Usage::default() }),
            ScriptEvent::ModelDone => MODEL_DONE,
            ScriptEvent::ModelFailed => TurnEvent::ModelFailed(fault()),
            ScriptEvent::ToolDone { which, real, outcome } => {
                let any = self.running.iter().nth(which % self.running.len().max(1)).copied();
                let place = any.filter(|_| real).unwrap_or(which);
                [done(place, "d"), done(place, "d"), failed(place, "f"), denied(place, "n")]
                    [usize::from(outcome)]
                .clone()
            }
            ScriptEvent::Steer if takes_steers => {
                self.steers_taken.push(format!("steer {number}"));
                steer(&format!("steer {number}"))
            }
            ScriptEvent::Steer => return None,
            ScriptEvent::BudgetSpent => TurnEvent::BudgetExhausted(Resource::WallMs),
            ScriptEvent::Cancel => TurnEvent::Cancel,
        })
    }

    /// Follows what runs and holds it against the rules.
    fn track(&mut self, event: &TurnEvent, started: &[usize], rounds_before: usize, play: &TurnHarness) {
        if let TurnEvent::ToolDone(place, _) = event {
            self.running.remove(place);
        }
        for place in started {
            assert!(self.running.insert(*place), "call {place} started twice");
        }
        if play.model_calls > rounds_before || !play.ends.is_empty() {
            self.running.clear();
        }
        let calls = play.appended.iter().rev().find(|message| !message.tool_calls.is_empty());
        assert!(self.running.iter().all(|place| calls.is_some_and(|last| *place < last.tool_calls.len())));
        let is_ordered = |place: &usize| self.schedules.get(*place) == Some(&Schedule::Ordered);
        assert!(
            self.running.len() == 1 || !self.running.iter().any(is_ordered),
            "an ordered call has company"
        );
    }
}

/// What is wrong with a context, if anything is.
fn find_violation(kept: &[Message]) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    for (place, message) in kept.iter().enumerate() {
        match message.role {
            Role::Tool => {
                let id = message.tool_call_id.as_deref().unwrap_or_default();
                let Some(found) = open.iter().position(|open| *open == id) else {
                    return Some(format!("message {place} answers '{id}', which nobody asked"));
                };
                if found != 0 {
                    return Some(format!("message {place} answers '{id}' out of turn"));
                }
                open.remove(found);
            }
            Role::User | Role::Assistant if !open.is_empty() => {
                return Some(format!("message {place} comes before the results of {open:?}"));
            }
            Role::User => {}
            Role::Assistant => open = message.tool_calls.iter().map(|call| call.id.as_str()).collect(),
        }
    }
    None
}

fn run_script(rounds_max: u64, running_max: usize, cues: Vec<ScriptEvent>) {
    let mut play = TurnHarness::new(rounds_max, running_max);
    let mut stage = ScriptState::default();
    for (number, cue) in cues.into_iter().enumerate() {
        let Some(event) = stage.event(number, cue, play.turn.accepts_steers()) else { continue };
        let ended = !play.ends.is_empty();
        match &event {
            TurnEvent::ToolCall(_, manner) if stage.running.is_empty() => {
                stage.schedules.push(manner.clone())
            }
            _ => {}
        }
        let (kept, asked) = (play.appended.len(), play.model_calls);
        let started = play.handle(event.clone());
        assert!(
            !ended || (play.appended.len(), play.model_calls) == (kept, asked),
            "something followed the end"
        );
        stage.track(&event, &started, asked, &play);
        assert!(stage.running.len() <= running_max, "{:?} run at once", stage.running);
        if play.model_calls > asked {
            stage.schedules.clear();
            assert_eq!(find_violation(&play.appended), None, "what the model is asked");
        }
    }
    assert!(play.ends.len() <= 1, "one end at most");
    assert!(u64::try_from(play.model_calls).is_ok_and(|asked| asked <= rounds_max));
    if play.ends.is_empty() {
        play.handle(TurnEvent::Cancel);
    }
    assert_eq!(find_violation(&play.appended), None, "{:#?}", play.appended);
    let last = play.appended.last().map(|last| (last.role, last.tool_calls.len()));
    assert_eq!(last, Some((Role::Assistant, 0)), "the context ends on an answer");
    let heard: Vec<_> = play.appended.iter().filter(|message| message.role == Role::User).collect();
    let heard: Vec<_> = heard.into_iter().skip(1).map(|message| message.text.clone()).collect();
    assert_eq!(heard, stage.steers_taken, "every word that was taken is delivered once, in order");
    assert_eq!(play.end().rounds, play.model_calls as u64);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_script_ends_at_most_once_and_leaves_a_sound_context(
        rounds_max in 1u64..8,
        running_max in 1usize..4,
        cues in prop::collection::vec(script_event(), 0..120),
    ) {
        run_script(rounds_max, running_max, cues);
    }
}
