//! The daemon is killed behind every call to the store. Whatever was kept then, the turn ends in the next life: with one
//! user's message and one answer, and nothing that must not run twice runs twice.

use std::collections::BTreeSet;

use agent::journal::{RestartPolicy, Record};
use agent::{Ending, FaultKind, Role, MessageSource, ToolClass, TurnOutcome};
use runtime::{AgentHandle, AgentSpec, Limits};

use crate::history::{messages, objection_when_idle, questions, results, texts};
use crate::world::{Plan, World, end_of, fault_of, message, named, numeric_request_id, preset, settle, start, tasks};

/// A turn with tools of all kinds, beside each other and one after the other.
const SCRIPT: &str = "#1 say see:; call note a; call keyed 5; call once 7; call once_step 3; call slow 2; done | \
                      call once 1; call note !; done | say so; done";

const UNKNOWN: &str = "Outcome unknown";

/// The tools of the script, each with how often it may run.
const CALLS: [&str; 6] = ["a note a", "a keyed 5", "a once 7", "a once_step 3", "a slow 2", "a once 1"];

async fn world(on_restart: RestartPolicy) -> World {
    let world = World::new().await;
    world.make(AgentSpec { on_restart: Some(on_restart), ..preset(named("a"), "trusted") }).await;
    world
}

/// When the daemon is killed, after the last call that it keeps.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Moment {
    /// At once: whatever follows from that call does not happen.
    AtOnce,
    /// Later: what follows from it happens, as far as nothing has to be kept for it.
    Later,
}

/// Sends, and kills the daemon when so many calls are kept. None when the turn has ended before.
async fn cut_off(world: World, calls: usize, moment: Moment) -> Result<World, World> {
    world.store.die_after(calls);
    let sending = start(&world.find("a").await, 1, SCRIPT);
    for _ in 0..100_000 {
        if world.store.is_dead() || sending.is_finished() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_micros(100)).await;
    }
    if sending.is_finished() {
        end_of(sending).await;
        return Err(world);
    }
    assert!(world.store.is_dead(), "the turn goes on for ever");
    if moment == Moment::Later {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    sending.abort();
    Ok(world.restart().await)
}

/// Leaves agent `a` a message, and goes away.
async fn give(world: &World, name: i64, script: &str) {
    world.find("a").await.submit_committed(message(name, script)).await.expect("it is kept");
}

/// Waits until nothing is open; a restart has to get there by itself.
async fn come_to_rest(world: &World) {
    settle().await;
    for _ in 0..100_000 {
        if world.pool.open_turns() == 0 && world.tools.observations().live == 0 {
            return settle().await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    panic!("{} turns are open for ever", world.pool.open_turns());
}

fn times(world: &World, line: &str) -> usize {
    world.tools.call_lines().iter().filter(|ran| *ran == line).count()
}

/// Calls that may not run twice and were begun, and have no result that is kept.
async fn lost(world: &World, agent: &AgentHandle) -> BTreeSet<String> {
    let mut lost = BTreeSet::new();
    for record in world.store.stored_records(agent.agent_ref().serial()).await {
        match record {
            Record::CallBegun { call_id, class: ToolClass::Once, .. } => drop(lost.insert(call_id)),
            Record::MessageAdded(message)
                if message.role == Role::Tool && !message.text.starts_with(UNKNOWN) =>
            {
                lost.remove(message.tool_call_id.as_deref().unwrap_or_default());
            }
            _ => {}
        }
    }
    lost
}

/// What the model was told of the calls that are lost.
fn told_unknown(agent: &AgentHandle) -> BTreeSet<String> {
    let all = messages(agent);
    let unknown = all.iter().filter(|one| one.role == Role::Tool && one.text.starts_with(UNKNOWN));
    unknown.filter_map(|one| one.tool_call_id.clone()).collect()
}

fn check_effects(world: &World, what: &str) {
    for line in CALLS {
        let ran = times(world, line);
        let may_repeat = !line.contains("once");
        assert!(ran <= 2 && (may_repeat || ran <= 1), "{what}: '{line}' ran {ran} times");
    }
}

fn check_history(agent: &AgentHandle, what: &str) {
    assert_eq!(objection_when_idle(&messages(agent)), None, "{what}");
    assert_eq!(questions(agent), [SCRIPT], "{what}: one user's message");
    let ends = messages(agent);
    let ends = ends.iter().filter(|one| one.role == Role::Assistant && one.tool_calls.is_empty());
    assert_eq!(ends.count(), 1, "{what}: one answer");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_killed_behind_any_call_ends_in_the_next_life() {
    for moment in [Moment::AtOnce, Moment::Later] {
        let mut unknown = 0;
        for calls in 1.. {
            let what = format!("killed behind call {calls}, {moment:?}");
            let Ok(world) = cut_off(world(RestartPolicy::Resume).await, calls, moment).await else {
                assert!(calls > 8, "the script makes more calls than {calls}");
                assert!(unknown > 0, "some call was lost");
                break;
            };
            come_to_rest(&world).await;
            let agent = world.find("a").await;
            check_history(&agent, &what);
            check_effects(&world, &what);
            assert_eq!(texts(&agent).last().map(String::as_str), Some("so"), "{what}");
            assert_eq!(told_unknown(&agent), lost(&world, &agent).await, "{what}: the model is told");
            unknown += told_unknown(&agent).len();
            // The client that was cut off asks again, and gets what it would have got.
            let asked = world.model.seen().questions.len();
            let end = end_of(start(&agent, 1, SCRIPT)).await;
            assert_eq!((end.outcome, end.content.as_str()), (TurnOutcome::Completed, "see:so"), "{what}");
            assert_eq!(
                world.model.seen().questions.len(),
                asked,
                "{what}: what is answered is not asked again"
            );
            check_history(&agent, &what);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_kept_is_never_asked_for_again() {
    for calls in 1.. {
        let first = world(RestartPolicy::Resume).await;
        let model = std::sync::Arc::clone(&first.model);
        let Ok(world) = cut_off(first, calls, Moment::Later).await else { break };
        let agent = world.find("a").await;
        let kept = world.store.stored_records(agent.agent_ref().serial()).await;
        let is_answer = |record: &&Record| matches!(record, Record::MessageAdded(message) if message.role == Role::Assistant);
        let kept = kept.iter().filter(is_answer).count();
        come_to_rest(&world).await;
        let asked = (model.seen().questions.len(), world.model.seen().questions.len());
        assert!(asked.0 <= kept + 1, "{calls}: {asked:?} with {kept} kept");
        assert_eq!(asked.1, 3 - kept, "{calls}: three answers there are, and {kept} were kept");
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_marked_behind_any_call_is_interrupted_and_goes_on_when_it_is_sent_again() {
    for calls in 1.. {
        let what = format!("killed behind call {calls}");
        let Ok(world) = cut_off(world(RestartPolicy::Mark).await, calls, Moment::Later).await else { break };
        come_to_rest(&world).await;
        assert_eq!(world.model.seen().questions.len(), 0, "{what}: nobody asked for it");
        let agent = world.find("a").await;
        check_effects(&world, &what);
        assert_eq!(objection_when_idle(&messages(&agent)), None, "{what}");
        assert_eq!(messages(&agent).last().and_then(|last| last.ending), Some(Ending::Interrupted), "{what}");
        assert_eq!(told_unknown(&agent), lost(&world, &agent).await, "{what}: it is told");
        let world = world.restart().await;
        come_to_rest(&world).await;
        let agent = world.find("a").await;
        let end = end_of(start(&agent, 1, SCRIPT)).await;
        assert_eq!((end.outcome, end.content.as_str()), (TurnOutcome::Completed, "see:so"), "{what}");
        check_history(&agent, &what);
        check_effects(&world, &what);
        assert_eq!(told_unknown(&agent), lost(&world, &agent).await, "{what}: it is told");
        let end = end_of(start(&agent, 1, SCRIPT)).await;
        assert_eq!(end.content, "see:so", "{what}: and once more it is the stored answer");
        check_history(&agent, &what);
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_send_while_the_turn_is_being_marked_is_told_of_it_and_the_next_completes_it() {
    let world = world(RestartPolicy::Mark).await;
    let Ok(world) = cut_off(world, 2, Moment::Later).await else { panic!("it makes more calls") };
    world.store.hold();
    let agent = world.find("a").await;
    let attached = start(&agent, 1, SCRIPT);
    settle().await;
    world.store.release();
    let fault = fault_of(attached).await;
    assert_eq!(fault.kind, FaultKind::Interrupted, "{fault:?}");
    assert!(fault.public.starts_with("interrupted: the daemon stopped"), "{fault}");
    assert_eq!(end_of(start(&agent, 1, SCRIPT)).await.content, "see:so");
    check_history(&agent, "marked");
}

#[tokio::test(start_paused = true)]
async fn a_crash_in_the_middle_of_a_settling_is_settled_too() {
    for calls in 1..8 {
        for second in 0..6 {
            let what = format!("killed behind call {calls}, then behind {second} more");
            let Ok(world) = cut_off(world(RestartPolicy::Resume).await, calls, Moment::Later).await else {
                break;
            };
            // The start itself makes a call; those of the turn come behind it.
            world.store.die_after(second);
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            let world = world.restart().await;
            come_to_rest(&world).await;
            let agent = world.find("a").await;
            check_history(&agent, &what);
            for line in ["a once 7", "a once_step 3", "a once 1"] {
                assert!(times(&world, line) <= 1, "{what}: {line}");
            }
            assert_eq!(texts(&agent).last().map(String::as_str), Some("so"), "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_was_cut_off_three_times_is_not_begun_again() {
    let mut world = world(RestartPolicy::Resume).await;
    let script = "#1 call slow release; done | say so; done";
    give(&world, 1, script).await;
    for crash in 1..=3 {
        settle().await;
        assert_eq!(
            (world.tools.observations().live, world.pool.open_turns()),
            (1, 1),
            "it runs before crash {crash}"
        );
        world = world.restart().await;
    }
    settle().await;
    assert_eq!(
        (world.pool.open_turns(), world.tools.observations().calls.len()),
        (0, 3),
        "it does not run a fourth time"
    );
    let agent = world.find("a").await;
    assert_eq!(objection_when_idle(&messages(&agent)), None);
    assert_eq!(messages(&agent).last().and_then(|last| last.ending), Some(Ending::Interrupted));
    world.tools.release_all();
    let end = start(&agent, 1, script);
    settle().await;
    assert_eq!(end_of(end).await.content, "so", "whoever wants it may have it begun again");
    assert_eq!(questions(&agent), [script]);
}

#[tokio::test(start_paused = true)]
async fn sends_that_waited_are_worked_on_in_their_order() {
    let world = world(RestartPolicy::Resume).await;
    let scripts = ["#1 wait; say a; done", "#2 say b; done", "#3 say c; done"];
    for (name, script) in (1..).zip(scripts) {
        give(&world, name, script).await;
    }
    let world = world.restart().await;
    settle().await;
    assert_eq!(world.pool.open_turns(), 3);
    world.model.release_all();
    come_to_rest(&world).await;
    let agent = world.find("a").await;
    assert_eq!(texts(&agent), [scripts[0], "a", scripts[1], "b", scripts[2], "c"]);
}

#[tokio::test(start_paused = true)]
async fn sends_that_waited_are_marked_and_begin_when_they_are_sent_again() {
    let world = world(RestartPolicy::Mark).await;
    let scripts = ["#1 wait; say a; done", "#2 say b; done"];
    for (name, script) in (1..).zip(scripts) {
        give(&world, name, script).await;
    }
    let world = world.restart().await;
    come_to_rest(&world).await;
    let agent = world.find("a").await;
    assert_eq!(questions(&agent), [scripts[0]], "the second never began");
    assert_eq!(end_of(start(&agent, 2, scripts[1])).await.content, "b");
    assert_eq!(objection_when_idle(&messages(&agent)), None);
    let fault = fault_of(start(&agent, 1, scripts[0])).await;
    assert_eq!(fault.kind, FaultKind::Interrupted, "others came behind it: it stays as it is");
    assert_eq!(questions(&agent), scripts);
}

#[tokio::test(start_paused = true)]
async fn a_marked_turn_that_had_no_rounds_left_ends_all_the_same() {
    let plan = Plan::default().limits(Limits { tool_iterations_max: 1, ..Limits::default() });
    let world = World::open(plan).await;
    let spec = AgentSpec { on_restart: Some(RestartPolicy::Mark), ..named("a") };
    world.make(spec).await;
    give(&world, 1, "#1 call note x; call once release; done | say never; done").await;
    world.tools.wait_started(2).await;
    settle().await;
    let world = world.restart().await;
    come_to_rest(&world).await;
    let agent = world.find("a").await;
    assert_eq!(objection_when_idle(&messages(&agent)), None);
    assert!(results(&agent)[1].starts_with(UNKNOWN), "{:?}", results(&agent));
    assert_eq!(end_of(start(&agent, 2, "#2 say on; done")).await.content, "on");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_waits_for_a_slot_to_go_on_can_be_cancelled_and_leaves_a_sound_context() {
    let world = World::new().await;
    for name in ["a", "b"] {
        let message = message(1, &format!("#{name} call slow release; done | say {name}; done"));
        world.agent(name).await.submit_committed(message).await.expect("it is kept");
    }
    world.tools.wait_started(2).await;
    settle().await;
    let plan = world.next_life().limits(Limits { turns_running_max: 1, ..Limits::default() });
    world.kill().await;
    let world = World::open(plan).await;
    settle().await;
    let (runs, waits) = (world.find("a").await, world.find("b").await);
    assert_eq!((world.tools.observations().live, world.pool.open_turns()), (1, 2), "there is one slot");
    assert!(waits.cancel(numeric_request_id(1)).await);
    assert_eq!(objection_when_idle(&messages(&waits)), None);
    assert_eq!(results(&waits), ["Cancelled by user: tool execution was interrupted"]);
    world.tools.release_all();
    come_to_rest(&world).await;
    assert_eq!(texts(&runs).last().map(String::as_str), Some("a"));
    let answer = end_of(start(&waits, 1, "#b call slow release; done | say b; done")).await;
    assert_eq!(answer.outcome, TurnOutcome::Cancelled, "that it was cancelled is kept");
    assert_eq!(end_of(start(&waits, 3, "#3 say on; done")).await.content, "on");
    let world = world.restart().await;
    assert_eq!(objection_when_idle(&messages(&world.find("b").await)), None);
}

#[tokio::test(start_paused = true)]
async fn a_word_that_was_acknowledged_survives_a_crash() {
    const WORD: &str = "#s say steered; done";
    let world = world(RestartPolicy::Resume).await;
    let agent = world.find("a").await;
    give(&world, 1, "#1 call slow release; done | say never; done").await;
    world.tools.wait_started(1).await;
    settle().await;
    assert_eq!(agent.steer(WORD.to_owned(), MessageSource::default()).await, Some(numeric_request_id(1)));
    drop(agent);
    let world = world.restart().await;
    settle().await;
    world.tools.release_all();
    come_to_rest(&world).await;
    let agent = world.find("a").await;
    assert_eq!(questions(&agent).len(), 2);
    assert_eq!(texts(&agent)[3..], [WORD, "steered"]);
}

#[tokio::test(start_paused = true)]
async fn a_killed_world_leaves_no_task_behind() {
    let world = world(RestartPolicy::Resume).await;
    let agent = world.find("a").await;
    let message = message(1, "#1 call slow release; call once release; done");
    let _ = tokio::time::timeout(std::time::Duration::from_millis(5), agent.send(message)).await;
    assert_eq!(world.tools.observations().live, 2);
    let tools = std::sync::Arc::clone(&world.tools);
    drop(agent);
    world.kill().await;
    assert_eq!((tools.observations().live, tasks()), (0, 0));
}
