//! A send that is repeated is the same send: it is worked on once, and answered as often as it is asked for.

use std::sync::Arc;
use std::time::Duration;

use agent::journal::RestartPolicy;
use agent::permission::{Budget, Resource};
use agent::{Fault, FaultKind, TurnOutcome};
use runtime::{AgentHandle, AgentSpec, Limits, PermissionSpec};

use crate::history::{idle_history_violation, messages, texts, user_texts};
use crate::world::{
    ManualClock, World, WorldOptions, expect_end, expect_fault, numeric_request_id, run_until_idle,
    spec_named, start_send, without_waiting,
};

const OTHER_SCRIPT: &str = "#1 say something else; done";
const SCRIPT: &str = "#1 report 1; call note x; done | wait; say so; done";

fn assert_reuse_refused(fault: &Fault) {
    assert_eq!(fault.kind, FaultKind::Invalid);
    assert_eq!(fault.public, "request_id was used before with other content: 1");
}

async fn expect_reuse_refused(agent: &AgentHandle) {
    assert_reuse_refused(&without_waiting(expect_fault(start_send(agent, 1, OTHER_SCRIPT))).await);
}

#[tokio::test(start_paused = true)]
async fn while_it_runs_all_get_the_one_answer() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sendings =
        [start_send(&agent, 1, SCRIPT), start_send(&agent, 1, SCRIPT), start_send(&agent, 1, SCRIPT)];
    run_until_idle().await;
    let late = start_send(&agent, 1, SCRIPT);
    run_until_idle().await;
    assert_eq!(world.pool.open_turns(), 1, "those who attach need no place");
    expect_reuse_refused(&agent).await;
    world.model.release_all();
    let answers = [expect_end(late).await, expect_end(sendings.into_iter().next().expect("three")).await];
    assert!(answers.iter().all(|end| end.content == "so" && end.rounds == 2));
    assert_eq!(world.model.observations().prompts.len(), 2, "the model was asked once for each round");
    assert_eq!((user_texts(&agent).len(), world.tools.call_lines().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn while_it_waits_both_get_the_one_answer() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let before = start_send(&agent, 5, "#5 wait; say first; done");
    run_until_idle().await;
    let sendings = [start_send(&agent, 1, "#1 say so; done"), start_send(&agent, 1, "#1 say so; done")];
    run_until_idle().await;
    assert_eq!(world.pool.open_turns(), 2);
    expect_reuse_refused(&agent).await;
    world.model.release_all();
    expect_end(before).await;
    for sending in sendings {
        assert_eq!(expect_end(sending).await.content, "so");
    }
    assert_eq!(user_texts(&agent).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn while_it_waits_for_a_slot_both_get_the_one_answer() {
    let world = World::with_limits(Limits { turns_running_max: 1, ..Limits::default() }).await;
    let (other, agent) = (world.agent("other").await, world.agent("a").await);
    let before = start_send(&other, 5, "#5 wait; say first; done");
    run_until_idle().await;
    let sendings = [start_send(&agent, 1, "#1 say so; done"), start_send(&agent, 1, "#1 say so; done")];
    run_until_idle().await;
    expect_reuse_refused(&agent).await;
    world.model.release_all();
    expect_end(before).await;
    for sending in sendings {
        assert_eq!(expect_end(sending).await.content, "so");
    }
    assert_eq!(user_texts(&agent).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn after_its_end_it_gets_the_stored_answer() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let first = expect_end(start_send(&agent, 1, "#1 report 3; call note x; done | say so; done")).await;
    for _ in 0..3 {
        let again = without_waiting(expect_end(start_send(
            &agent,
            1,
            "#1 report 3; call note x; done | say so; done",
        )))
        .await;
        assert_eq!(again, first, "usage, rounds and all");
    }
    expect_reuse_refused(&agent).await;
    assert_eq!((world.model.observations().prompts.len(), world.tools.call_lines().len()), (2, 1));
    assert_eq!((texts(&agent).len(), world.pool.open_turns()), (4, 0));
    assert_eq!(expect_end(start_send(&agent, 2, "#2 say on; done")).await.content, "on");
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_it_gets_the_stored_answer() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let first = expect_end(start_send(&agent, 1, "#1 report 3; call note x; done | say so; done")).await;
    drop(agent);
    let world = world.restart().await;
    let agent = world.find("a").await;
    let again = expect_end(start_send(&agent, 1, "#1 report 3; call note x; done | say so; done")).await;
    assert_eq!(again, first);
    expect_reuse_refused(&agent).await;
    assert_eq!(world.model.observations().prompts.len(), 0);
    assert_eq!(texts(&agent).len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_failed_fails_again_in_the_same_words() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let first = expect_fault(start_send(&agent, 1, "#1 say hel; fail")).await;
    assert_eq!(expect_fault(start_send(&agent, 1, "#1 say hel; fail")).await, first);
    drop(agent);
    let world = world.restart().await;
    let agent = world.find("a").await;
    let again = expect_fault(start_send(&agent, 1, "#1 say hel; fail")).await;
    assert_eq!((again.kind, &again.public), (first.kind, &first.public));
    expect_reuse_refused(&agent).await;
    assert_eq!(texts(&agent), ["#1 say hel; fail", "hel"]);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_was_cancelled_stays_cancelled() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sending = start_send(&agent, 1, "#1 say hel; wait");
    let behind = start_send(&agent, 2, "#2 say never; done");
    run_until_idle().await;
    assert!(agent.cancel(numeric_request_id(2)).await && agent.cancel(numeric_request_id(1)).await);
    let first = expect_end(sending).await;
    expect_end(behind).await;
    drop(agent);
    let world = world.restart().await;
    let agent = world.find("a").await;
    assert_eq!(expect_end(start_send(&agent, 1, "#1 say hel; wait")).await, first);
    assert_eq!(expect_end(start_send(&agent, 2, "#2 say never; done")).await.outcome, TurnOutcome::Cancelled);
    assert_eq!(world.model.observations().prompts.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_uses_the_name_of_an_answered_send_for_something_else_does_not_stand_in_its_way() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let first = expect_end(start_send(&agent, 1, "#1 say so; done")).await;
    world.store.hold();
    let wrong = start_send(&agent, 1, OTHER_SCRIPT);
    run_until_idle().await;
    let right = [start_send(&agent, 1, "#1 say so; done"), start_send(&agent, 1, "#1 say so; done")];
    run_until_idle().await;
    world.store.release();
    assert_reuse_refused(&expect_fault(wrong).await);
    for again in right {
        assert_eq!(expect_end(again).await, first);
    }
    assert_eq!((texts(&agent).len(), world.pool.open_turns()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn nor_does_one_that_waits_in_line_to_be_refused() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let first = expect_end(start_send(&agent, 1, "#1 say so; done")).await;
    let running = start_send(&agent, 5, "#5 wait; say first; done");
    run_until_idle().await;
    let wrong = start_send(&agent, 1, OTHER_SCRIPT);
    run_until_idle().await;
    let right = start_send(&agent, 1, "#1 say so; done");
    run_until_idle().await;
    world.model.release_all();
    assert_reuse_refused(&expect_fault(wrong).await);
    assert_eq!(expect_end(right).await, first);
    assert_eq!(expect_end(running).await.content, "first");
}

#[tokio::test(start_paused = true)]
async fn of_two_that_use_a_new_name_for_different_things_the_first_has_it() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let before = start_send(&agent, 5, "#5 wait; say first; done");
    for (name, running) in [(2, Some(before)), (1, None)] {
        run_until_idle().await;
        world.store.hold();
        let first = start_send(&agent, name, "#1 wait; say so; done");
        run_until_idle().await;
        let seconds = [start_send(&agent, name, OTHER_SCRIPT), start_send(&agent, name, OTHER_SCRIPT)];
        run_until_idle().await;
        world.store.release();
        if let Some(running) = running {
            world.model.release_one();
            expect_end(running).await;
        }
        for second in seconds {
            let fault = without_waiting(expect_fault(second)).await;
            assert_eq!(fault.public, format!("request_id was used before with other content: {name}"));
        }
        run_until_idle().await;
        assert_eq!(world.pool.open_turns(), 1, "the first is still at work");
        world.model.release_one();
        assert_eq!(expect_end(first).await.content, "so");
    }
    assert_eq!((user_texts(&agent).len(), world.pool.open_turns()), (3, 0));
}

/// An agent whose send 1 was interrupted by a stop of the daemon.
async fn interrupted_send() -> (World, AgentHandle) {
    let world = World::new().await;
    let marks = AgentSpec { on_restart: Some(RestartPolicy::Mark), ..spec_named("a") };
    let agent = world.create_handle(marks).await;
    start_send(&agent, 1, "#1 wait; say so; done");
    run_until_idle().await;
    drop(agent);
    let world = world.restart().await;
    let agent = world.find("a").await;
    run_until_idle().await;
    (world, agent)
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_the_right_one_of_those_that_wait_under_a_name() {
    let (world, agent) = interrupted_send().await;
    let running = start_send(&agent, 5, "#5 wait; say first; done");
    run_until_idle().await;
    let wrong = start_send(&agent, 1, OTHER_SCRIPT);
    run_until_idle().await;
    let right = start_send(&agent, 1, "#1 wait; say so; done");
    run_until_idle().await;
    agent.cancel(numeric_request_id(1)).await;
    assert_reuse_refused(&expect_fault(wrong).await);
    let told = expect_fault(right).await;
    assert_eq!(told.kind, FaultKind::Interrupted, "it had ended before: {told:?}");
    world.model.release_all();
    expect_end(running).await;
    assert_eq!(world.model.observations().prompts.len(), 1, "what was cancelled is not opened again");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_comes_before_a_name_is_looked_up_holds_for_what_is_found() {
    let (world, agent) = interrupted_send().await;
    for others in [false, true] {
        world.store.hold();
        let wrong = others.then(|| start_send(&agent, 1, OTHER_SCRIPT));
        run_until_idle().await;
        let right = start_send(&agent, 1, "#1 wait; say so; done");
        run_until_idle().await;
        let cancelling = {
            let agent = agent.clone();
            tokio::spawn(async move { agent.cancel(numeric_request_id(1)).await })
        };
        run_until_idle().await;
        world.store.release();
        cancelling.await.expect("a cancel does not panic");
        if let Some(wrong) = wrong {
            assert_reuse_refused(&expect_fault(wrong).await);
        }
        let told = right.await.expect("a send does not panic");
        let is_over = told.is_ok_and(|end| end.outcome == TurnOutcome::Cancelled);
        assert!(is_over || others, "it was to be cancelled");
        assert_eq!(world.pool.open_turns(), 0);
    }
    assert_eq!(world.model.observations().prompts.len(), 0, "what was cancelled is not opened again");
}

#[tokio::test(start_paused = true)]
async fn a_repeated_send_costs_nothing() {
    let world = World::new().await;
    let budget =
        Budget::unlimited().with_limit(Resource::Turns, Some(2)).with_limit(Resource::ToolCalls, Some(9));
    let permissions = PermissionSpec { budget, ..PermissionSpec::default() };
    let agent = world.create_handle(AgentSpec { permissions, ..spec_named("a") }).await;
    for _ in 0..4 {
        assert_eq!(
            expect_end(start_send(&agent, 1, "#1 call note x; done | say so; done")).await.halted,
            None
        );
    }
    assert_eq!(world.pool.permissions(&agent).resource_usage[0].used, 1);
    assert_eq!(
        expect_end(start_send(&agent, 2, "#2 say on; done")).await.content,
        "on",
        "there is one turn left"
    );
}

#[tokio::test(start_paused = true)]
async fn a_repeated_send_leaves_the_counts_of_a_sleeping_agent_right() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    for _ in 0..3 {
        expect_end(start_send(&agent, 1, "#1 say so; done")).await;
    }
    expect_reuse_refused(&agent).await;
    expect_end(start_send(&agent, 2, "#2 say on; done")).await;
    drop(agent);
    let world = world.restart().await;
    assert_eq!(world.listed_summary("a").await.message_count, 4);
    assert_eq!(texts(&world.find("a").await).len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_send_that_is_cancelled_while_it_waits_gets_the_stored_answer() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "#1 say so; done")).await;
    let running = start_send(&agent, 2, "#2 wait; say on; done");
    run_until_idle().await;
    let again = start_send(&agent, 1, "#1 say so; done");
    run_until_idle().await;
    agent.cancel(numeric_request_id(1)).await;
    world.model.release_all();
    assert_eq!(expect_end(again).await.content, "so");
    expect_end(running).await;
    assert_eq!(texts(&agent).len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_name_is_forgotten_after_its_time_and_not_before() {
    let (clock, limits) = (ManualClock::new(), Limits::default());
    let retention = limits.request_retention;
    let world =
        World::open(WorldOptions { clock: Arc::<ManualClock>::clone(&clock), ..WorldOptions::default() })
            .await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "#1 say so; done")).await;
    clock.advance(retention - Duration::from_secs(1));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    expect_reuse_refused(&agent).await;
    assert_eq!(expect_end(start_send(&agent, 1, "#1 say so; done")).await.content, "so");
    clock.advance(Duration::from_secs(2));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(expect_end(start_send(&agent, 1, "#1 say anew; done")).await.content, "anew");
    assert_eq!(texts(&agent).len(), 4, "what was said stays");
    drop(agent);
    clock.advance(retention * 2);
    let world = world.restart().await;
    run_until_idle().await;
    assert_eq!(
        expect_end(start_send(&world.find("a").await, 1, "#1 say again; done")).await.content,
        "again"
    );
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_open_is_not_forgotten_however_old_it_is() {
    let clock = ManualClock::new();
    let limits = Limits { model_idle_timeout: Duration::from_secs(1_000_000), ..Limits::default() };
    let plan = WorldOptions { clock: Arc::<ManualClock>::clone(&clock), ..WorldOptions::default() }
        .with_limits(limits);
    let world = World::open(plan).await;
    let agent = world.agent("a").await;
    let sending = start_send(&agent, 1, "#1 wait; say so; done");
    run_until_idle().await;
    clock.advance(Duration::from_secs(100 * 24 * 3600));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    expect_reuse_refused(&agent).await;
    world.model.release_all();
    assert_eq!(expect_end(sending).await.content, "so");
}

#[tokio::test(start_paused = true)]
async fn the_same_name_at_another_agent_is_another_send() {
    let world = World::new().await;
    let (first, second) = (world.agent("a").await, world.agent("b").await);
    assert_eq!(expect_end(start_send(&first, 1, "#1 say a; done")).await.content, "a");
    assert_eq!(expect_end(start_send(&second, 1, "#2 say b; done")).await.content, "b");
    assert!(world.destroy(&first).await);
    let successor = world.agent("a").await;
    assert_eq!(
        expect_end(start_send(&successor, 1, "#3 say c; done")).await.content,
        "c",
        "a name is an agent's own"
    );
}

#[tokio::test(start_paused = true)]
async fn a_send_that_was_never_kept_can_be_sent_again() {
    let world = World::with_limits(Limits { agent_turns_open_max: 1, ..Limits::default() }).await;
    let agent = world.agent("a").await;
    let running = start_send(&agent, 5, "#5 wait; say first; done");
    run_until_idle().await;
    let refused = expect_fault(start_send(&agent, 1, "#1 say so; done")).await;
    assert!(crate::world::is_busy(&refused));
    world.model.release_all();
    expect_end(running).await;
    assert_eq!(
        expect_end(start_send(&agent, 1, "#1 say other; done")).await.content,
        "other",
        "nobody has had the name"
    );
    assert_eq!(idle_history_violation(&messages(&agent)), None);
}

#[tokio::test(start_paused = true)]
async fn a_rolled_back_turn_still_has_its_answer() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "#1 say so; done")).await;
    assert_eq!(agent.rollback(0, runtime::Initiator::Admin).await, Ok(2));
    assert_eq!(expect_end(start_send(&agent, 1, "#1 say so; done")).await.content, "so");
    assert_eq!(texts(&agent), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_send_that_is_repeated_while_its_cancel_is_being_kept_is_cancelled_too() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let running = start_send(&agent, 5, "#5 wait; say first; done");
    run_until_idle().await;
    let waiting = start_send(&agent, 1, "#1 say so; done");
    run_until_idle().await;
    world.store.hold();
    let cancelling = {
        let agent = agent.clone();
        tokio::spawn(async move { agent.cancel(numeric_request_id(1)).await })
    };
    run_until_idle().await;
    let again = start_send(&agent, 1, "#1 say so; done");
    run_until_idle().await;
    world.model.release_all();
    run_until_idle().await;
    world.store.release();
    assert!(cancelling.await.expect("a cancel does not panic"));
    for sending in [waiting, again] {
        assert_eq!(expect_end(sending).await.outcome, TurnOutcome::Cancelled);
    }
    expect_end(running).await;
    assert_eq!(user_texts(&agent).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_send_that_is_repeated_while_its_agent_is_being_destroyed_is_cancelled() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "#1 say so; done")).await;
    world.store.hold();
    let (destroyed, again) = tokio::join!(world.destroy(&agent), async {
        run_until_idle().await;
        let again = start_send(&agent, 1, "#1 say so; done");
        run_until_idle().await;
        world.store.release();
        expect_end(again).await
    });
    assert!(destroyed);
    assert_eq!(again.outcome, TurnOutcome::Cancelled, "the store forgot the answer with the agent");
}
