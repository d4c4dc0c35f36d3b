//! Kills the daemon after every append to the store. Whatever was committed, the turn ends after the restart: with one
//! user message and one response, and no non-repeatable tool runs twice.

use std::collections::BTreeSet;

use agent::journal::{Record, RestartPolicy};
use agent::{Ending, FaultKind, MessageSource, Role, ToolClass, TurnOutcome};
use runtime::{AgentHandle, AgentSpec, Limits};

use crate::history::{idle_history_violation, messages, texts, tool_texts, user_texts};
use crate::world::{
    World, WorldOptions, alive_task_count, expect_end, expect_fault, new_message, numeric_request_id,
    run_until_idle, spec_named, start_send, with_preset,
};

/// A turn with tools of all classes, in parallel and in order.
const SCRIPT: &str = "#1 say see:; call note a; call keyed 5; call once 7; call once_step 3; call slow 2; done | \
                      call once 1; call note !; done | say so; done";

const OUTCOME_UNKNOWN: &str = "Outcome unknown";

/// The tool calls of the script.
const CALLS: [&str; 6] = ["a note a", "a keyed 5", "a once 7", "a once_step 3", "a slow 2", "a once 1"];

async fn world_with_agent(on_restart: RestartPolicy) -> World {
    let world = World::new().await;
    world
        .create_handle(AgentSpec { on_restart: Some(on_restart), ..with_preset(spec_named("a"), "trusted") })
        .await;
    world
}

/// When the daemon is killed after its last append.
#[derive(Debug, Clone, Copy, PartialEq)]
enum KillTime {
    /// At once: nothing that follows the append happens.
    Immediately,
    /// Later: effects that need no further append happen.
    Delayed,
}

/// Sends the script and kills the daemon after this number of appends. `Err` if the turn ended before.
async fn kill_after_appends(world: World, appends: usize, kill_time: KillTime) -> Result<World, World> {
    world.store.die_after(appends);
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
    assert!(world.store.is_dead(), "the turn never ends");
    if kill_time == KillTime::Delayed {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    sending.abort();
    Ok(world.restart().await)
}

/// Submits a message to agent `a` without waiting for its turn.
async fn send_detached(world: &World, request_id: i64, script: &str) {
    world.find("a").await.submit_committed(new_message(request_id, script)).await.expect("it is committed");
}

/// Waits until no turn is open, without further requests.
async fn run_to_completion(world: &World) {
    run_until_idle().await;
    for _ in 0..100_000 {
        if world.pool.open_turns() == 0 && world.tools.observations().live == 0 {
            return run_until_idle().await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    panic!("{} turns never end", world.pool.open_turns());
}

fn run_count(world: &World, line: &str) -> usize {
    world.tools.call_lines().iter().filter(|call| *call == line).count()
}

/// Started non-repeatable calls without a committed result.
async fn unresolved_once_calls(world: &World, agent: &AgentHandle) -> BTreeSet<String> {
    let mut unresolved = BTreeSet::new();
    for record in world.store.stored_records(agent.agent_ref().serial()).await {
        match record {
            Record::CallBegun { call_id, class: ToolClass::Once, .. } => drop(unresolved.insert(call_id)),
            Record::MessageAdded(message)
                if message.role == Role::Tool && !message.text.starts_with(OUTCOME_UNKNOWN) =>
            {
                unresolved.remove(message.tool_call_id.as_deref().unwrap_or_default());
            }
            _ => {}
        }
    }
    unresolved
}

/// The calls whose outcome is reported to the model as unknown.
fn calls_reported_unknown(agent: &AgentHandle) -> BTreeSet<String> {
    let all = messages(agent);
    let unknown =
        all.iter().filter(|message| message.role == Role::Tool && message.text.starts_with(OUTCOME_UNKNOWN));
    unknown.filter_map(|message| message.tool_call_id.clone()).collect()
}

fn check_effects(world: &World, what: &str) {
    for line in CALLS {
        let runs = run_count(world, line);
        let may_repeat = !line.contains("once");
        assert!(runs <= 2 && (may_repeat || runs <= 1), "{what}: '{line}' ran {runs} times");
    }
}

fn check_history(agent: &AgentHandle, what: &str) {
    assert_eq!(idle_history_violation(&messages(agent)), None, "{what}");
    assert_eq!(user_texts(agent), [SCRIPT], "{what}: one user message");
    let ends = messages(agent);
    let ends = ends.iter().filter(|message| message.role == Role::Assistant && message.tool_calls.is_empty());
    assert_eq!(ends.count(), 1, "{what}: one response");
}

#[tokio::test(start_paused = true)]
async fn turn_killed_after_any_append_ends_after_restart() {
    for kill_time in [KillTime::Immediately, KillTime::Delayed] {
        let mut unknown = 0;
        for appends in 1.. {
            let what = format!("killed after append {appends}, {kill_time:?}");
            let Ok(world) =
                kill_after_appends(world_with_agent(RestartPolicy::Resume).await, appends, kill_time).await
            else {
                assert!(appends > 8, "the script makes more than {appends} appends");
                assert!(unknown > 0, "some call has an unknown outcome");
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
                "{what}: reported to the model"
            );
            unknown += calls_reported_unknown(&agent).len();
            // The disconnected client repeats its send and gets the same response.
            let calls = world.model.observations().prompts.len();
            let end = expect_end(start_send(&agent, 1, SCRIPT)).await;
            assert_eq!((end.outcome, end.content.as_str()), (TurnOutcome::Completed, "see:so"), "{what}");
            assert_eq!(
                world.model.observations().prompts.len(),
                calls,
                "{what}: a committed response is not requested again"
            );
            check_history(&agent, &what);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn committed_response_is_never_requested_again() {
    for appends in 1.. {
        let first = world_with_agent(RestartPolicy::Resume).await;
        let model = std::sync::Arc::clone(&first.model);
        let Ok(world) = kill_after_appends(first, appends, KillTime::Delayed).await else { break };
        let agent = world.find("a").await;
        let records = world.store.stored_records(agent.agent_ref().serial()).await;
        let is_response = |record: &&Record| matches!(record, Record::MessageAdded(message) if message.role == Role::Assistant);
        let committed = records.iter().filter(is_response).count();
        run_to_completion(&world).await;
        let calls = (model.observations().prompts.len(), world.model.observations().prompts.len());
        assert!(calls.0 <= committed + 1, "{appends}: {calls:?} with {committed} committed");
        assert_eq!(calls.1, 3 - committed, "{appends}: three responses, {committed} committed");
    }
}

#[tokio::test(start_paused = true)]
async fn marked_turn_is_interrupted_and_resumes_when_resent() {
    for appends in 1.. {
        let what = format!("killed after append {appends}");
        let Ok(world) =
            kill_after_appends(world_with_agent(RestartPolicy::Mark).await, appends, KillTime::Delayed).await
        else {
            break;
        };
        run_to_completion(&world).await;
        assert_eq!(world.model.observations().prompts.len(), 0, "{what}: no client resent it");
        let agent = world.find("a").await;
        check_effects(&world, &what);
        assert_eq!(idle_history_violation(&messages(&agent)), None, "{what}");
        assert_eq!(messages(&agent).last().and_then(|last| last.ending), Some(Ending::Interrupted), "{what}");
        assert_eq!(
            calls_reported_unknown(&agent),
            unresolved_once_calls(&world, &agent).await,
            "{what}: reported to the model"
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
            "{what}: reported to the model"
        );
        let end = expect_end(start_send(&agent, 1, SCRIPT)).await;
        assert_eq!(end.content, "see:so", "{what}: a duplicate gets the stored response");
        check_history(&agent, &what);
    }
}

#[tokio::test(start_paused = true)]
async fn sends_during_marking_resume_the_turn() {
    let world = world_with_agent(RestartPolicy::Mark).await;
    let Ok(world) = kill_after_appends(world, 2, KillTime::Delayed).await else {
        panic!("the script makes more appends")
    };
    world.store.hold();
    let agent = world.find("a").await;
    let sends = [start_send(&agent, 1, SCRIPT), start_send(&agent, 1, SCRIPT)];
    let later = start_send(&agent, 2, "#2 say later; done");
    run_until_idle().await;
    world.store.release();
    for send in sends {
        assert_eq!(expect_end(send).await.content, "see:so");
    }
    assert_eq!(expect_end(later).await.content, "later");
    assert_eq!(user_texts(&agent), [SCRIPT, "#2 say later; done"]);
    check_effects(&world, "marked");
}

#[tokio::test(start_paused = true)]
async fn cancelled_send_during_marking_stays_interrupted() {
    let world = world_with_agent(RestartPolicy::Mark).await;
    let Ok(world) = kill_after_appends(world, 2, KillTime::Delayed).await else {
        panic!("the script makes more appends")
    };
    world.store.hold();
    let agent = world.find("a").await;
    let send = start_send(&agent, 1, SCRIPT);
    run_until_idle().await;
    let cancel = {
        let agent = agent.clone();
        tokio::spawn(async move { agent.cancel(numeric_request_id(1)).await })
    };
    run_until_idle().await;
    world.store.release();
    assert!(!cancel.await.expect("no panic"), "the turn had ended before");
    assert_eq!(expect_fault(send).await.kind, FaultKind::Interrupted);
    run_to_completion(&world).await;
    assert_eq!(world.model.observations().prompts.len(), 0, "a cancelled turn is not reopened");
}

#[tokio::test(start_paused = true)]
async fn crash_while_resuming_is_recovered_too() {
    for appends in 1..8 {
        for second in 0..6 {
            let what = format!("killed after append {appends}, then after {second} more");
            let Ok(world) =
                kill_after_appends(world_with_agent(RestartPolicy::Resume).await, appends, KillTime::Delayed)
                    .await
            else {
                break;
            };
            // The start itself makes an append; those of the turn follow.
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
async fn turn_interrupted_three_times_is_not_resumed() {
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
    assert_eq!(expect_end(end).await.content, "so", "a duplicate send starts it again");
    assert_eq!(user_texts(&agent), [script]);
}

#[tokio::test(start_paused = true)]
async fn queued_sends_resume_in_order() {
    let world = world_with_agent(RestartPolicy::Resume).await;
    let scripts = ["#1 wait; say a; done", "#2 say b; done", "#3 say c; done"];
    for (request_id, script) in (1..).zip(scripts) {
        send_detached(&world, request_id, script).await;
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
async fn queued_sends_are_marked_and_start_when_resent() {
    let world = world_with_agent(RestartPolicy::Mark).await;
    let scripts = ["#1 wait; say a; done", "#2 say b; done"];
    for (request_id, script) in (1..).zip(scripts) {
        send_detached(&world, request_id, script).await;
    }
    let world = world.restart().await;
    run_to_completion(&world).await;
    let agent = world.find("a").await;
    assert_eq!(user_texts(&agent), [scripts[0]], "the second never started");
    assert_eq!(expect_end(start_send(&agent, 2, scripts[1])).await.content, "b");
    assert_eq!(idle_history_violation(&messages(&agent)), None);
    let fault = expect_fault(start_send(&agent, 1, scripts[0])).await;
    assert_eq!(fault.kind, FaultKind::Interrupted, "a later turn follows, so it stays interrupted");
    assert_eq!(user_texts(&agent), scripts);
}

#[tokio::test(start_paused = true)]
async fn marked_turn_without_rounds_left_ends() {
    let options = WorldOptions::default().with_limits(Limits { tool_iterations_max: 1, ..Limits::default() });
    let world = World::open(options).await;
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
async fn resumed_turn_waiting_for_a_slot_can_be_cancelled() {
    let world = World::new().await;
    for name in ["a", "b"] {
        let message = new_message(1, &format!("#{name} call slow release; done | say {name}; done"));
        world.agent(name).await.submit_committed(message).await.expect("it is committed");
    }
    world.tools.wait_started(2).await;
    run_until_idle().await;
    let options = world.restart_options().with_limits(Limits { turns_running_max: 1, ..Limits::default() });
    world.kill().await;
    let world = World::open(options).await;
    run_until_idle().await;
    let (running, waiting) = (world.find("a").await, world.find("b").await);
    assert_eq!((world.tools.observations().live, world.pool.open_turns()), (1, 2), "there is one slot");
    assert!(waiting.cancel(numeric_request_id(1)).await);
    assert_eq!(idle_history_violation(&messages(&waiting)), None);
    assert_eq!(tool_texts(&waiting), ["Cancelled by user: tool execution was interrupted"]);
    world.tools.release_all();
    run_to_completion(&world).await;
    assert_eq!(texts(&running).last().map(String::as_str), Some("a"));
    let end = expect_end(start_send(&waiting, 1, "#b call slow release; done | say b; done")).await;
    assert_eq!(end.outcome, TurnOutcome::Cancelled, "the cancellation is committed");
    assert_eq!(expect_end(start_send(&waiting, 3, "#3 say on; done")).await.content, "on");
    let world = world.restart().await;
    assert_eq!(idle_history_violation(&messages(&world.find("b").await)), None);
}

#[tokio::test(start_paused = true)]
async fn acknowledged_steer_survives_a_crash() {
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
async fn killed_daemon_leaves_no_task() {
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
