//! Replay of every record sequence that a turn can leave, written by hand. [`prefixes`] cuts turns off at every commit;
//! [`simulation`] drives them.

mod prefixes;
mod simulation;

use super::*;
use crate::{Ending, MessageSource, Role, ToolCall};

fn user(text: &str) -> Message {
    Message::user(text, MessageSource::default())
}

fn accepted(turn: u64) -> Record {
    let request_id = RequestId::Number(i64::try_from(turn).expect("a small number"));
    Record::TurnAccepted(Box::new(AcceptedTurn { turn, request_id, message: user(&format!("ask {turn}")) }))
}

fn begun(turn: u64) -> Record {
    Record::TurnBegun { turn }
}

fn message_added(message: Message) -> Record {
    Record::MessageAdded(Box::new(message))
}

fn response(text: &str) -> Record {
    message_added(Message::assistant(text, Vec::new()))
}

fn calls(text: &str, ids: &[&str]) -> Record {
    message_added(Message::assistant(text, ids.iter().map(|id| call(id)).collect()))
}

fn call(id: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), name: "x".to_owned(), arguments: "{}".to_owned() }
}

fn result(id: &str) -> Record {
    message_added(Message::tool_result(id, &ToolOutcome::Done(id.to_uppercase())))
}

fn call_begun(turn: u64, index: usize, class: ToolClass) -> Record {
    let (call_id, tool) = (index.to_string(), "x".to_owned());
    Record::CallBegun { turn, index, call_id, tool, class }
}

fn call_done(turn: u64, index: usize, text: &str) -> Record {
    Record::CallDone { turn, index, outcome: ToolOutcome::Done(text.to_owned()) }
}

fn steered(turn: u64, text: &str) -> Record {
    Record::Steered { turn, message: Box::new(user(text)) }
}

fn ended(turn: u64, outcome: crate::TurnOutcome) -> Record {
    let request_id = RequestId::Number(i64::try_from(turn).expect("a small number"));
    Record::TurnEnded { turn, request_id, end: Box::new(TurnEnd::without_content(outcome)) }
}

fn completed(turn: u64) -> Record {
    ended(turn, crate::TurnOutcome::Completed)
}

fn interrupted(turn: u64) -> Record {
    ended(turn, crate::TurnOutcome::Interrupted("a crash".to_owned()))
}

fn interruption_notice() -> Record {
    message_added(Message::aborted("", Ending::Interrupted))
}

fn reopened(turn: u64, messages: usize) -> Record {
    let request_id = RequestId::Number(i64::try_from(turn).expect("a small number"));
    Record::TurnReopened { turn, request_id, messages }
}

/// The texts of the context, and the open turns.
fn replayed(records: &[Record]) -> (Vec<String>, Vec<OpenTurn>) {
    let (messages, open) = Replay::from_records(records.to_vec()).into_parts();
    (messages.iter().map(|message| message.text.clone()).collect(), open.into())
}

fn texts(records: &[Record]) -> Vec<String> {
    replayed(records).0
}

/// The progress of the only open turn.
fn progress(records: &[Record]) -> TurnProgress {
    let (_, mut open) = replayed(records);
    assert_eq!(open.len(), 1, "number of open turns");
    match open.remove(0).state {
        OpenTurnState::Running(progress) => progress,
        OpenTurnState::Waiting => panic!("the turn has begun"),
    }
}

#[test]
fn no_records_replay_to_an_empty_state() {
    assert_eq!(replayed(&[]), (Vec::new(), Vec::new()));
}

#[test]
fn accepted_turn_is_queued_and_not_in_the_context() {
    let (texts, open) = replayed(&[accepted(1), accepted(2)]);
    assert_eq!(texts, Vec::<String>::new());
    assert_eq!(
        open.iter().map(|open| open.accepted.turn).collect::<Vec<_>>(),
        [1, 2],
        "in order of acceptance"
    );
    assert!(open.iter().all(|open| open.state == OpenTurnState::Waiting && open.attempts == 0));
}

#[test]
fn begun_turn_has_its_message_in_the_context() {
    let records = [accepted(1), begun(1)];
    assert_eq!(texts(&records), ["ask 1"]);
    assert_eq!(progress(&records), TurnProgress::default());
}

#[test]
fn ended_turn_is_not_open() {
    let records = [accepted(1), begun(1), response("yes"), completed(1)];
    assert_eq!(replayed(&records), (vec!["ask 1".to_owned(), "yes".to_owned()], Vec::new()));
    for outcome in [crate::TurnOutcome::Cancelled, crate::TurnOutcome::Completed] {
        let unbegun = [accepted(1), ended(1, outcome)];
        assert_eq!(replayed(&unbegun), (Vec::new(), Vec::new()), "a turn that never began leaves nothing");
    }
}

#[test]
fn calls_are_open_until_their_results_are_in_the_context() {
    let mut records = vec![accepted(1), begun(1), calls("let me see", &["a", "b"])];
    let expected = TurnProgress {
        responses: 1,
        content: "let me see".to_owned(),
        calls: vec![call("a"), call("b")],
        ..TurnProgress::default()
    };
    assert_eq!(progress(&records), expected);
    records.push(call_begun(1, 0, ToolClass::Once));
    records.push(call_begun(1, 1, ToolClass::Pure));
    let begun = progress(&records).started_calls;
    assert_eq!(begun.into_iter().collect::<Vec<_>>(), [(0, ToolClass::Once), (1, ToolClass::Pure)]);
    records.push(call_done(1, 1, "B"));
    let done = progress(&records).finished_calls;
    assert_eq!(done.into_iter().collect::<Vec<_>>(), [(1, ToolOutcome::Done("B".to_owned()))]);
    records.extend([result("a"), result("b")]);
    assert_eq!(progress(&records).calls, [], "they have their results");
    assert_eq!(texts(&records), ["ask 1", "let me see", "A", "B"]);
}

#[test]
fn call_records_do_not_carry_over_to_the_next_response() {
    let mut records = vec![accepted(1), begun(1), calls("one ", &["a"]), call_begun(1, 0, ToolClass::Once)];
    records.extend([call_done(1, 0, "A"), result("a"), calls("two", &["b"])]);
    let progress = progress(&records);
    assert_eq!((progress.responses, progress.content.as_str()), (2, "one two"));
    assert_eq!(progress.calls, [call("b")]);
    assert!(progress.started_calls.is_empty() && progress.finished_calls.is_empty());
}

#[test]
fn steer_is_pending_until_it_is_in_the_context() {
    let mut records = vec![accepted(1), begun(1), steered(1, "one"), steered(1, "two")];
    assert_eq!(progress(&records).steers, [user("one"), user("two")]);
    records.extend([response("hm"), message_added(user("one")), message_added(user("two"))]);
    assert_eq!(progress(&records).steers, []);
    assert_eq!(texts(&records), ["ask 1", "hm", "one", "two"]);
    records.push(steered(1, "three"));
    assert_eq!(progress(&records).steers, [user("three")]);
}

#[test]
fn queued_turn_is_not_affected_by_the_running_one() {
    let records =
        [accepted(1), begun(1), accepted(2), steered(1, "word"), calls("", &["a"]), call_done(1, 0, "A")];
    let (_, open) = replayed(&records);
    assert_eq!(open[1].state, OpenTurnState::Waiting);
    let OpenTurnState::Running(progress) = &open[0].state else { panic!("the turn has begun") };
    assert_eq!((progress.calls.len(), progress.finished_calls.len(), progress.steers.len()), (1, 1, 1));
}

#[test]
fn running_turn_comes_before_earlier_queued_ones() {
    let records = [accepted(1), accepted(2), accepted(3), begun(2), accepted(4)];
    let (_, open) = replayed(&records);
    assert_eq!(open.iter().map(|open| open.accepted.turn).collect::<Vec<_>>(), [2, 1, 3, 4]);
}

#[test]
fn resumed_turn_retains_progress_and_counts_attempts() {
    let mut records = vec![accepted(1), begun(1), calls("", &["a"]), call_begun(1, 0, ToolClass::Once)];
    for attempts in 1..=3 {
        records.push(reopened(1, 2));
        let (_, open) = replayed(&records);
        assert_eq!(open[0].attempts, attempts);
        assert_eq!(progress(&records).started_calls.len(), 1);
    }
    assert_eq!(texts(&records).len(), 2);
}

/// An interrupted turn with a call, as the runtime leaves it.
fn interrupted_in_a_call() -> Vec<Record> {
    let mut records = vec![accepted(1), begun(1), calls("see", &["a"]), call_begun(1, 0, ToolClass::Pure)];
    records.extend([reopened(1, 2), result("a"), interruption_notice(), interrupted(1)]);
    records
}

#[test]
fn interrupted_turn_is_closed_and_can_be_reopened() {
    let records = interrupted_in_a_call();
    assert_eq!(replayed(&records), (["ask 1", "see", "A", ""].map(str::to_owned).into(), Vec::new()));
    let replay = Replay::from_records(records);
    let (open, messages) = replay.reopenable_turn(1).expect("an interrupted turn");
    assert_eq!(messages, 3, "the notice is removed");
    let expected = TurnProgress { responses: 1, content: "see".to_owned(), ..TurnProgress::default() };
    let OpenTurnState::Running(progress) = &open.state else { panic!("the turn had begun") };
    assert_eq!(
        (progress.responses, &progress.content, &progress.calls),
        (1, &expected.content, &expected.calls)
    );
    assert!(replay.reopenable_turn(2).is_none());
}

#[test]
fn reopened_turn_continues_before_the_notice() {
    let mut records = interrupted_in_a_call();
    records.push(reopened(1, 3));
    assert_eq!(texts(&records), ["ask 1", "see", "A"]);
    assert_eq!((progress(&records).responses, progress(&records).calls), (1, Vec::new()));
    records.extend([response("so"), completed(1)]);
    assert_eq!(replayed(&records), (["ask 1", "see", "A", "so"].map(str::to_owned).into(), Vec::new()));
    assert!(Replay::from_records(records).reopenable_turn(1).is_none(), "it is completed");
}

#[test]
fn turn_interrupted_before_it_began_begins_on_reopen() {
    let mut records = vec![accepted(1), interrupted(1)];
    let replay = Replay::from_records(records.clone());
    let (open, messages) = replay.reopenable_turn(1).expect("an interrupted turn");
    assert_eq!((&open.state, messages), (&OpenTurnState::Waiting, 0));
    records.extend([reopened(1, 0), begun(1)]);
    assert_eq!(texts(&records), ["ask 1"]);
    assert_eq!(progress(&records), TurnProgress::default());
}

#[test]
fn reopening_removes_only_the_own_notice() {
    let mut records = interrupted_in_a_call();
    records.extend([accepted(2), interrupted(2)]);
    let replay = Replay::from_records(records.clone());
    let (_, messages) = replay.reopenable_turn(2).expect("an interrupted turn");
    assert_eq!(messages, 4, "the notice of turn 1 stays: its message has no other response");
    records.extend([accepted(3), begun(3), response("three"), completed(3)]);
    let replay = Replay::from_records(records);
    let (open, messages) = replay.reopenable_turn(2).expect("an interrupted turn");
    assert_eq!((open.state, messages), (OpenTurnState::Waiting, 6), "no message of turn 3 is removed");
}

#[test]
fn begun_turn_with_later_turns_cannot_be_reopened() {
    let mut records = interrupted_in_a_call();
    records.extend([accepted(2), begun(2), response("two"), completed(2)]);
    assert!(
        Replay::from_records(records).reopenable_turn(1).is_none(),
        "its message would be in the context twice"
    );
}

#[test]
fn rollback_truncates_context_and_prevents_reopening() {
    let mut records = interrupted_in_a_call();
    records.push(Record::RolledBack { by: PrincipalId::Admin, messages: 0 });
    assert_eq!(texts(&records), Vec::<String>::new());
    assert!(Replay::from_records(records.clone()).reopenable_turn(1).is_none());
    records.extend([accepted(2), begun(2), response("two"), completed(2)]);
    assert_eq!(texts(&records), ["ask 2", "two"]);
}

#[test]
fn messages_without_a_turn_are_in_the_context() {
    let records = [message_added(user("from elsewhere")), response("long ago"), accepted(1)];
    let (texts, open) = replayed(&records);
    assert_eq!((texts, open.len()), (["from elsewhere", "long ago"].map(str::to_owned).into(), 1));
}

#[test]
fn records_outside_the_conversation_do_not_affect_replay() {
    let (by, text) = (|| PrincipalId::Admin, || "x".to_owned());
    let id = AgentId::parse("b").expect("a name");
    let others = [
        Record::Renamed { by: by(), id },
        Record::Finished { by: by() },
        Record::Denied { principal: by(), action: text(), rule: text(), text: text() },
        Record::DaemonStarted { version: text() },
        Record::DaemonStopped,
        Record::Destroyed { by: by() },
    ];
    let plain = [accepted(1), begun(1), calls("", &["a"]), call_begun(1, 0, ToolClass::Once)];
    let mixed: Vec<_> =
        plain.iter().flat_map(|record| others.iter().cloned().chain([record.clone()])).collect();
    assert_eq!(replayed(&mixed), replayed(&plain));
}

#[test]
fn records_of_unknown_turns_are_ignored() {
    let unknown =
        [begun(9), steered(9, "word"), call_begun(9, 0, ToolClass::Once), call_done(9, 0, "x"), completed(9)];
    assert_eq!(replayed(&unknown), (Vec::new(), Vec::new()));
    assert!(Replay::from_records(unknown.to_vec()).reopenable_turn(9).is_none());
}

#[test]
fn record_kinds_have_distinct_names() {
    let records = [accepted(1), begun(1), response(""), steered(1, ""), call_done(1, 0, ""), completed(1)];
    let mut kinds: Vec<_> = records.iter().map(Record::kind).collect();
    kinds.extend([reopened(1, 0).kind(), call_begun(1, 0, ToolClass::Once).kind()]);
    let all = kinds.len();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds.len(), all);
    assert_eq!((Role::User, RestartPolicy::ALL.map(RestartPolicy::name)), (Role::User, ["resume", "mark"]));
}
