//! The daemon is killed behind every call to the store. Whatever was kept then, the turn ends in the next life: with one
//! user's message and one answer, and nothing that must not run twice runs twice.

use std::collections::BTreeSet;

use agent::journal::{Record, RestartPolicy};
use agent::{Ending, FaultKind, MessageSource, Role, ToolClass, TurnOutcome};
use runtime::{AgentHandle, AgentSpec, Limits};

use crate::history::{idle_history_violation, messages, texts, tool_texts, user_texts};
use crate::world::{
    World, WorldOptions, alive_task_count, expect_end, expect_fault, new_message, numeric_request_id,
    run_until_idle, spec_named, start_send, with_preset,
};

/// A turn with tools of all kinds, beside each other and one after the other.
const SCRIPT: &str = "#1 say see:; call note a; call keyed 5; call once 7; call once_step 3; call slow 2; done | \
                      call once 1; call note !; done | say so; done";

const OUTCOME_UNKNOWN: &str = "Outcome unknown";

/// The tools of the script, each with how often it may run.
const CALLS: [&str; 6] = ["a note a", "a keyed 5", "a once 7", "a once_step 3", "a slow 2", "a once 1"];

async fn world_with_agent(on_restart: RestartPolicy) -> World {
    let world = World::new().await;
    world
        .create_handle(AgentSpec { on_restart: Some(on_restart), ..with_preset(spec_named("a"), "trusted") })
        .await;
    world
}

/// When the daemon is killed, after the last call that it keeps.
#[derive(Debug, Clone, Copy, PartialEq)]
enum KillTime {
    /// At once: whatever follows from that call does not happen.
    Immediately,
    /// Later: what follows from it happens, as far as nothing has to be kept for it.
    Delayed,
}

/// Sends, and kills the daemon when so many calls are kept. None when the turn has ended before.
async fn kill_after_appends(world: World, calls: usize, moment: KillTime) -> Result<World, World> {
    world.store.die_after(calls);
    let sending = start_send(&world.find("a").await, 1, SCRIPT);
    for _ in 0..100_000 {
        if world.store.is_dead() || sending.is_finished() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_micros(100)).await;
    }
    if sending.is_finished() {
        expect_end(sending).await;
        return Err(world);
    }
    assert!(world.store.is_dead(), "the turn goes on for ever");
    if moment == KillTime::Delayed {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    sending.abort();
    Ok(world.restart().await)
}

/// Leaves agent `a` a message, and goes away.
async fn send_detached(world: &World, name: i64, script: &str) {
    world.find("a").await.submit_committed(new_message(name, script)).await.expect("it is kept");
}

/// Waits until nothing is open; a restart has to get there by itself.
async fn run_to_completion(world: &World) {
    run_until_idle().await;
    for _ in 0..100_000 {
        if world.pool.open_turns() == 0 && world.tools.observations().live == 0 {
            return run_until_idle().await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    panic!("{} turns are open for ever", world.pool.open_turns());
}

fn run_count(world: &World, line: &str) -> usize {
    world.tools.call_lines().iter().filter(|ran| *ran == line).count()
}

/// Calls that may not run twice and were begun, and have no result that is kept.
async fn unresolved_once_calls(world: &World, agent: &AgentHandle) -> BTreeSet<String> {
    let mut lost = BTreeSet::new();
    for record in world.store.stored_records(agent.agent_ref().serial()).await {
        match record {
            Record::CallBegun { call_id, class: ToolClass::Once, .. } => drop(lost.insert(call_id)),
            Record::MessageAdded(message)
                if message.role == Role::Tool && !message.text.starts_with(OUTCOME_UNKNOWN) =>
            {
                lost.remove(message.tool_call_id.as_deref().unwrap_or_default());
            }
            _ => {}
        }
    }
    lost
}

/// What the model was told of the calls that are lost.
fn calls_reported_unknown(agent: &AgentHandle) -> BTreeSet<String> {
    let all = messages(agent);
    let unknown = all.iter().filter(|one| one.role == Role::Tool && one.text.starts_with(OUTCOME_UNKNOWN));
    unknown.filter_map(|one| one.tool_call_id.clone()).collect()
}

fn check_effects(world: &World, what: &str) {
    for line in CALLS {
        let ran = run_count(world, line);
        let may_repeat = !line.contains("once");
        assert!(ran <= 2 && (may_repeat || ran <= 1), "{what}: '{line}' ran {ran} times");
    }
}

fn check_history(agent: &AgentHandle, what: &str) {
    assert_eq!(idle_history_violation(&messages(agent)), None, "{what}");
    assert_eq!(user_texts(agent), [SCRIPT], "{what}: one user's message");
    let ends = messages(agent);
    let ends = ends.iter().filter(|one| one.role == Role::Assistant && one.tool_calls.is_empty());
    assert_eq!(ends.count(), 1, "{what}: one answer");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_killed_behind_any_call_ends_in_the_next_life() {
    for moment in [KillTime::Immediately, KillTime::Delayed] {
        let mut unknown = 0;
        for calls in 1.. {
            let what = format!("killed behind call {calls}, {moment:?}");
            let Ok(world) =
                kill_after_appends(world_with_agent(RestartPolicy::Resume).await, calls, moment).await
            else {
                assert!(calls > 8, "the script makes more calls than {calls}");
                assert!(unknown > 0, "some call was lost");
                break;
            };
            run_to_completion(&world).await;
            let agent = world.find("a").await;
            check_history(&agent, &what);
            check_effects(&world, &what);
            assert_eq!(texts(&agent).last().map(String::as_str), Some("so"), "{what}");
            assert_eq!(
                calls_reported_unknown(&agent),
                unresolved_once_calls(&world, &agent).await,
                "{what}: the model is told"
            );
            unknown += calls_reported_unknown(&agent).len();
            // The client that was cut off asks again, and gets what it would have got.
            let asked = world.model.observations().prompts.len();
            let end = expect_end(start_send(&agent, 1, SCRIPT)).await;
            assert_eq!((end.outcome, end.content.as_str()), (TurnOutcome::Completed, "see:so"), "{what}");
            assert_eq!(
                world.model.observations().prompts.len(),
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
        let first = world_with_agent(RestartPolicy::Resume).await;
        let model = std::sync::Arc::clone(&first.model);
        let Ok(world) = kill_after_appends(first, calls, KillTime::Delayed).await else { break };
        let agent = world.find("a").await;
        let kept = world.store.stored_records(agent.agent_ref().serial()).await;
        let is_answer = |record: &&Record| matches!(record, Record::MessageAdded(message) if message.role == Role::Assistant);
        let kept = kept.iter().filter(is_answer).count();
        run_to_completion(&world).await;
        let asked = (model.observations().prompts.len(), world.model.observations().prompts.len());
        assert!(asked.0 <= kept + 1, "{calls}: {asked:?} with {kept} kept");
        assert_eq!(asked.1, 3 - kept, "{calls}: three answers there are, and {kept} were kept");
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_marked_behind_any_call_is_interrupted_and_goes_on_when_it_is_sent_again() {
    for calls in 1.. {
        let what = format!("killed behind call {calls}");
        let Ok(world) =
            kill_after_appends(world_with_agent(RestartPolicy::Mark).await, calls, KillTime::Delayed).await
        else {
            break;
        };
        run_to_completion(&world).await;
        assert_eq!(world.model.observations().prompts.len(), 0, "{what}: nobody asked for it");
        let agent = world.find("a").await;
        check_effects(&world, &what);
        assert_eq!(idle_history_violation(&messages(&agent)), None, "{what}");
        assert_eq!(messages(&agent).last().and_then(|last| last.ending), Some(Ending::Interrupted), "{what}");
        assert_eq!(
            calls_reported_unknown(&agent),
            unresolved_once_calls(&world, &agent).await,
            "{what}: it is told"
        );
        let world = world.restart().await;
        run_to_completion(&world).await;
        let agent = world.find("a").await;
        let end = expect_end(start_send(&agent, 1, SCRIPT)).await;
        assert_eq!((end.outcome, end.content.as_str()), (TurnOutcome::Completed, "see:so"), "{what}");
        check_history(&agent, &what);
        check_effects(&world, &what);
        assert_eq!(
            calls_reported_unknown(&agent),
            unresolved_once_calls(&world, &agent).await,
            "{what}: it is told"
        );
        let end = expect_end(start_send(&agent, 1, SCRIPT)).await;
        assert_eq!(end.content, "see:so", "{what}: and once more it is the stored answer");
        check_history(&agent, &what);
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_send_while_the_turn_is_being_marked_is_told_of_it_and_the_next_completes_it() {
    let world = world_with_agent(RestartPolicy::Mark).await;
    let Ok(world) = kill_after_appends(world, 2, KillTime::Delayed).await else {
        panic!("it makes more calls")
    };
    world.store.hold();
    let agent = world.find("a").await;
    let attached = start_send(&agent, 1, SCRIPT);
    run_until_idle().await;
    world.store.release();
    let fault = expect_fault(attached).await;
    assert_eq!(fault.kind, FaultKind::Interrupted, "{fault:?}");
    assert!(fault.public.starts_with("interrupted: the daemon stopped"), "{fault}");
    assert_eq!(expect_end(start_send(&agent, 1, SCRIPT)).await.content, "see:so");
    check_history(&agent, "marked");
}

#[tokio::test(start_paused = true)]
async fn a_crash_in_the_middle_of_a_settling_is_settled_too() {
    for calls in 1..8 {
        for second in 0..6 {
            let what = format!("killed behind call {calls}, then behind {second} more");
            let Ok(world) =
                kill_after_appends(world_with_agent(RestartPolicy::Resume).await, calls, KillTime::Delayed)
                    .await
            else {
                break;
            };
            // The start itself makes a call; those of the turn come behind it.
            world.store.die_after(second);
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            let world = world.restart().await;
            run_to_completion(&world).await;
            let agent = world.find("a").await;
            check_history(&agent, &what);
            for line in ["a once 7", "a once_step 3", "a once 1"] {
                assert!(run_count(&world, line) <= 1, "{what}: {line}");
            }
            assert_eq!(texts(&agent).last().map(String::as_str), Some("so"), "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_was_cut_off_three_times_is_not_begun_again() {
    let mut world = world_with_agent(RestartPolicy::Resume).await;
    let script = "#1 call slow release; done | say so; done";
    send_detached(&world, 1, script).await;
    for crash in 1..=3 {
        run_until_idle().await;
        assert_eq!(
            (world.tools.observations().live, world.pool.open_turns()),
            (1, 1),
            "it runs before crash {crash}"
        );
        world = world.restart().await;
    }
    run_until_idle().await;
    assert_eq!(
        (world.pool.open_turns(), world.tools.observations().calls.len()),
        (0, 3),
        "it does not run a fourth time"
    );
    let agent = world.find("a").await;
    assert_eq!(idle_history_violation(&messages(&agent)), None);
    assert_eq!(messages(&agent).last().and_then(|last| last.ending), Some(Ending::Interrupted));
    world.tools.release_all();
    let end = start_send(&agent, 1, script);
    run_until_idle().await;
    assert_eq!(expect_end(end).await.content, "so", "whoever wants it may have it begun again");
    assert_eq!(user_texts(&agent), [script]);
}

#[tokio::test(start_paused = true)]
async fn sends_that_waited_are_worked_on_in_their_order() {
    let world = world_with_agent(RestartPolicy::Resume).await;
    let scripts = ["#1 wait; say a; done", "#2 say b; done", "#3 say c; done"];
    for (name, script) in (1..).zip(scripts) {
        send_detached(&world, name, script).await;
    }
    let world = world.restart().await;
    run_until_idle().await;
    assert_eq!(world.pool.open_turns(), 3);
    world.model.release_all();
    run_to_completion(&world).await;
    let agent = world.find("a").await;
    assert_eq!(texts(&agent), [scripts[0], "a", scripts[1], "b", scripts[2], "c"]);
}

#[tokio::test(start_paused = true)]
async fn sends_that_waited_are_marked_and_begin_when_they_are_sent_again() {
    let world = world_with_agent(RestartPolicy::Mark).await;
    let scripts = ["#1 wait; say a; done", "#2 say b; done"];
    for (name, script) in (1..).zip(scripts) {
        send_detached(&world, name, script).await;
    }
    let world = world.restart().await;
    run_to_completion(&world).await;
    let agent = world.find("a").await;
    assert_eq!(user_texts(&agent), [scripts[0]], "the second never began");
    assert_eq!(expect_end(start_send(&agent, 2, scripts[1])).await.content, "b");
    assert_eq!(idle_history_violation(&messages(&agent)), None);
    let fault = expect_fault(start_send(&agent, 1, scripts[0])).await;
    assert_eq!(fault.kind, FaultKind::Interrupted, "others came behind it: it stays as it is");
    assert_eq!(user_texts(&agent), scripts);
}

#[tokio::test(start_paused = true)]
async fn a_marked_turn_that_had_no_rounds_left_ends_all_the_same() {
    let plan = WorldOptions::default().with_limits(Limits { tool_iterations_max: 1, ..Limits::default() });
    let world = World::open(plan).await;
    let spec = AgentSpec { on_restart: Some(RestartPolicy::Mark), ..spec_named("a") };
    world.create_handle(spec).await;
    send_detached(&world, 1, "#1 call note x; call once release; done | say never; done").await;
    world.tools.wait_started(2).await;
    run_until_idle().await;
    let world = world.restart().await;
    run_to_completion(&world).await;
    let agent = world.find("a").await;
    assert_eq!(idle_history_violation(&messages(&agent)), None);
    assert!(tool_texts(&agent)[1].starts_with(OUTCOME_UNKNOWN), "{:?}", tool_texts(&agent));
    assert_eq!(expect_end(start_send(&agent, 2, "#2 say on; done")).await.content, "on");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_waits_for_a_slot_to_go_on_can_be_cancelled_and_leaves_a_sound_context() {
    let world = World::new().await;
    for name in ["a", "b"] {
        let message = new_message(1, &format!("#{name} call slow release; done | say {name}; done"));
        world.agent(name).await.submit_committed(message).await.expect("it is kept");
    }
    world.tools.wait_started(2).await;
    run_until_idle().await;
    let plan = world.restart_options().with_limits(Limits { turns_running_max: 1, ..Limits::default() });
    world.kill().await;
    let world = World::open(plan).await;
    run_until_idle().await;
    let (runs, waits) = (world.find("a").await, world.find("b").await);
    assert_eq!((world.tools.observations().live, world.pool.open_turns()), (1, 2), "there is one slot");
    assert!(waits.cancel(numeric_request_id(1)).await);
    assert_eq!(idle_history_violation(&messages(&waits)), None);
    assert_eq!(tool_texts(&waits), ["Cancelled by user: tool execution was interrupted"]);
    world.tools.release_all();
    run_to_completion(&world).await;
    assert_eq!(texts(&runs).last().map(String::as_str), Some("a"));
    let answer = expect_end(start_send(&waits, 1, "#b call slow release; done | say b; done")).await;
    assert_eq!(answer.outcome, TurnOutcome::Cancelled, "that it was cancelled is kept");
    assert_eq!(expect_end(start_send(&waits, 3, "#3 say on; done")).await.content, "on");
    let world = world.restart().await;
    assert_eq!(idle_history_violation(&messages(&world.find("b").await)), None);
}

#[tokio::test(start_paused = true)]
async fn a_word_that_was_acknowledged_survives_a_crash() {
    const STEER_SCRIPT: &str = "#s say steered; done";
    let world = world_with_agent(RestartPolicy::Resume).await;
    let agent = world.find("a").await;
    send_detached(&world, 1, "#1 call slow release; done | say never; done").await;
    world.tools.wait_started(1).await;
    run_until_idle().await;
    assert_eq!(
        agent.steer(STEER_SCRIPT.to_owned(), MessageSource::default()).await,
        Some(numeric_request_id(1))
    );
    drop(agent);
    let world = world.restart().await;
    run_until_idle().await;
    world.tools.release_all();
    run_to_completion(&world).await;
    let agent = world.find("a").await;
    assert_eq!(user_texts(&agent).len(), 2);
    assert_eq!(texts(&agent)[3..], [STEER_SCRIPT, "steered"]);
}

#[tokio::test(start_paused = true)]
async fn a_killed_world_leaves_no_task_behind() {
    let world = world_with_agent(RestartPolicy::Resume).await;
    let agent = world.find("a").await;
    let message = new_message(1, "#1 call slow release; call once release; done");
    let _ = tokio::time::timeout(std::time::Duration::from_millis(5), agent.send(message)).await;
    assert_eq!(world.tools.observations().live, 2);
    let tools = std::sync::Arc::clone(&world.tools);
    drop(agent);
    world.kill().await;
    assert_eq!((tools.observations().live, alive_task_count()), (0, 0));
}
