//! A send that is repeated is the same send: it is worked on once, and answered as often as it is asked for.

use std::sync::Arc;
use std::time::Duration;

use agent::journal::RestartPolicy;
use agent::permission::{Budget, Resource};
use agent::{Fault, FaultKind, TurnOutcome};
use runtime::{AgentHandle, AgentSpec, Limits, PermissionSpec};

use crate::history::{messages, objection_when_idle, questions, texts};
use crate::world::{Plan, SetClock, World, at_once, end_of, fault_of, named, numeric_request_id, settle, start};

const OTHER_SCRIPT: &str = "#1 say something else; done";
const SCRIPT: &str = "#1 report 1; call note x; done | wait; say so; done";

fn assert_reuse_refused(fault: &Fault) {
    assert_eq!(fault.kind, FaultKind::Invalid);
    assert_eq!(fault.public, "request_id was used before with other content: 1");
}

async fn expect_reuse_refused(agent: &AgentHandle) {
    assert_reuse_refused(&at_once(fault_of(start(agent, 1, OTHER_SCRIPT))).await);
}

#[tokio::test(start_paused = true)]
async fn while_it_runs_all_get_the_one_answer() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sendings = [start(&agent, 1, SCRIPT), start(&agent, 1, SCRIPT), start(&agent, 1, SCRIPT)];
    settle().await;
    let late = start(&agent, 1, SCRIPT);
    settle().await;
    assert_eq!(world.pool.open_turns(), 1, "those who attach need no place");
    expect_reuse_refused(&agent).await;
    world.model.release_all();
    let answers = [end_of(late).await, end_of(sendings.into_iter().next().expect("three")).await];
    assert!(answers.iter().all(|end| end.content == "so" && end.rounds == 2));
    assert_eq!(world.model.seen().questions.len(), 2, "the model was asked once for each round");
    assert_eq!((questions(&agent).len(), world.tools.call_lines().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn while_it_waits_both_get_the_one_answer() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let before = start(&agent, 5, "#5 wait; say first; done");
    settle().await;
    let sendings = [start(&agent, 1, "#1 say so; done"), start(&agent, 1, "#1 say so; done")];
    settle().await;
    assert_eq!(world.pool.open_turns(), 2);
    expect_reuse_refused(&agent).await;
    world.model.release_all();
    end_of(before).await;
    for sending in sendings {
        assert_eq!(end_of(sending).await.content, "so");
    }
    assert_eq!(questions(&agent).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn while_it_waits_for_a_slot_both_get_the_one_answer() {
    let world = World::with(Limits { turns_running_max: 1, ..Limits::default() }).await;
    let (other, agent) = (world.agent("other").await, world.agent("a").await);
    let before = start(&other, 5, "#5 wait; say first; done");
    settle().await;
    let sendings = [start(&agent, 1, "#1 say so; done"), start(&agent, 1, "#1 say so; done")];
    settle().await;
    expect_reuse_refused(&agent).await;
    world.model.release_all();
    end_of(before).await;
    for sending in sendings {
        assert_eq!(end_of(sending).await.content, "so");
    }
    assert_eq!(questions(&agent).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn after_its_end_it_gets_the_stored_answer() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let first = end_of(start(&agent, 1, "#1 report 3; call note x; done | say so; done")).await;
    for _ in 0..3 {
        let again = at_once(end_of(start(&agent, 1, "#1 report 3; call note x; done | say so; done"))).await;
        assert_eq!(again, first, "usage, rounds and all");
    }
    expect_reuse_refused(&agent).await;
    assert_eq!((world.model.seen().questions.len(), world.tools.call_lines().len()), (2, 1));
    assert_eq!((texts(&agent).len(), world.pool.open_turns()), (4, 0));
    assert_eq!(end_of(start(&agent, 2, "#2 say on; done")).await.content, "on");
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_it_gets_the_stored_answer() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let first = end_of(start(&agent, 1, "#1 report 3; call note x; done | say so; done")).await;
    drop(agent);
    let world = world.restart().await;
    let agent = world.find("a").await;
    let again = end_of(start(&agent, 1, "#1 report 3; call note x; done | say so; done")).await;
    assert_eq!(again, first);
    expect_reuse_refused(&agent).await;
    assert_eq!(world.model.seen().questions.len(), 0);
    assert_eq!(texts(&agent).len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_failed_fails_again_in_the_same_words() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let first = fault_of(start(&agent, 1, "#1 say hel; fail")).await;
    assert_eq!(fault_of(start(&agent, 1, "#1 say hel; fail")).await, first);
    drop(agent);
    let world = world.restart().await;
    let agent = world.find("a").await;
    let again = fault_of(start(&agent, 1, "#1 say hel; fail")).await;
    assert_eq!((again.kind, &again.public), (first.kind, &first.public));
    expect_reuse_refused(&agent).await;
    assert_eq!(texts(&agent), ["#1 say hel; fail", "hel"]);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_was_cancelled_stays_cancelled() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sending = start(&agent, 1, "#1 say hel; wait");
    let behind = start(&agent, 2, "#2 say never; done");
    settle().await;
    assert!(agent.cancel(numeric_request_id(2)).await && agent.cancel(numeric_request_id(1)).await);
    let first = end_of(sending).await;
    end_of(behind).await;
    drop(agent);
    let world = world.restart().await;
    let agent = world.find("a").await;
    assert_eq!(end_of(start(&agent, 1, "#1 say hel; wait")).await, first);
    assert_eq!(end_of(start(&agent, 2, "#2 say never; done")).await.outcome, TurnOutcome::Cancelled);
    assert_eq!(world.model.seen().questions.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_uses_the_name_of_an_answered_send_for_something_else_does_not_stand_in_its_way() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let first = end_of(start(&agent, 1, "#1 say so; done")).await;
    world.store.hold();
    let wrong = start(&agent, 1, OTHER_SCRIPT);
    settle().await;
    let right = [start(&agent, 1, "#1 say so; done"), start(&agent, 1, "#1 say so; done")];
    settle().await;
    world.store.release();
    assert_reuse_refused(&fault_of(wrong).await);
    for again in right {
        assert_eq!(end_of(again).await, first);
    }
    assert_eq!((texts(&agent).len(), world.pool.open_turns()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn nor_does_one_that_waits_in_line_to_be_refused() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let first = end_of(start(&agent, 1, "#1 say so; done")).await;
    let running = start(&agent, 5, "#5 wait; say first; done");
    settle().await;
    let wrong = start(&agent, 1, OTHER_SCRIPT);
    settle().await;
    let right = start(&agent, 1, "#1 say so; done");
    settle().await;
    world.model.release_all();
    assert_reuse_refused(&fault_of(wrong).await);
    assert_eq!(end_of(right).await, first);
    assert_eq!(end_of(running).await.content, "first");
}

#[tokio::test(start_paused = true)]
async fn of_two_that_use_a_new_name_for_different_things_the_first_has_it() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let before = start(&agent, 5, "#5 wait; say first; done");
    for (name, running) in [(2, Some(before)), (1, None)] {
        settle().await;
        world.store.hold();
        let first = start(&agent, name, "#1 wait; say so; done");
        settle().await;
        let seconds = [start(&agent, name, OTHER_SCRIPT), start(&agent, name, OTHER_SCRIPT)];
        settle().await;
        world.store.release();
        if let Some(running) = running {
            world.model.release_one();
            end_of(running).await;
        }
        for second in seconds {
            let fault = at_once(fault_of(second)).await;
            assert_eq!(fault.public, format!("request_id was used before with other content: {name}"));
        }
        settle().await;
        assert_eq!(world.pool.open_turns(), 1, "the first is still at work");
        world.model.release_one();
        assert_eq!(end_of(first).await.content, "so");
    }
    assert_eq!((questions(&agent).len(), world.pool.open_turns()), (3, 0));
}

/// An agent whose send 1 was interrupted by a stop of the daemon.
async fn interrupted_send() -> (World, AgentHandle) {
    let world = World::new().await;
    let marks = AgentSpec { on_restart: Some(RestartPolicy::Mark), ..named("a") };
    let agent = world.make(marks).await;
    start(&agent, 1, "#1 wait; say so; done");
    settle().await;
    drop(agent);
    let world = world.restart().await;
    let agent = world.find("a").await;
    settle().await;
    (world, agent)
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_the_right_one_of_those_that_wait_under_a_name() {
    let (world, agent) = interrupted_send().await;
    let running = start(&agent, 5, "#5 wait; say first; done");
    settle().await;
    let wrong = start(&agent, 1, OTHER_SCRIPT);
    settle().await;
    let right = start(&agent, 1, "#1 wait; say so; done");
    settle().await;
    agent.cancel(numeric_request_id(1)).await;
    assert_reuse_refused(&fault_of(wrong).await);
    let told = fault_of(right).await;
    assert_eq!(told.kind, FaultKind::Interrupted, "it had ended before: {told:?}");
    world.model.release_all();
    end_of(running).await;
    assert_eq!(world.model.seen().questions.len(), 1, "what was cancelled is not opened again");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_comes_before_a_name_is_looked_up_holds_for_what_is_found() {
    let (world, agent) = interrupted_send().await;
    for others in [false, true] {
        world.store.hold();
        let wrong = others.then(|| start(&agent, 1, OTHER_SCRIPT));
        settle().await;
        let right = start(&agent, 1, "#1 wait; say so; done");
        settle().await;
        let cancelling = {
            let agent = agent.clone();
            tokio::spawn(async move { agent.cancel(numeric_request_id(1)).await })
        };
        settle().await;
        world.store.release();
        cancelling.await.expect("a cancel does not panic");
        if let Some(wrong) = wrong {
            assert_reuse_refused(&fault_of(wrong).await);
        }
        let told = right.await.expect("a send does not panic");
        let is_over = told.is_ok_and(|end| end.outcome == TurnOutcome::Cancelled);
        assert!(is_over || others, "it was to be cancelled");
        assert_eq!(world.pool.open_turns(), 0);
    }
    assert_eq!(world.model.seen().questions.len(), 0, "what was cancelled is not opened again");
}

#[tokio::test(start_paused = true)]
async fn a_repeated_send_costs_nothing() {
    let world = World::new().await;
    let budget = Budget::unlimited().with_limit(Resource::Turns, Some(2)).with_limit(Resource::ToolCalls, Some(9));
    let permissions = PermissionSpec { budget, ..PermissionSpec::default() };
    let agent = world.make(AgentSpec { permissions, ..named("a") }).await;
    for _ in 0..4 {
        assert_eq!(end_of(start(&agent, 1, "#1 call note x; done | say so; done")).await.halted, None);
    }
    assert_eq!(world.pool.permissions(&agent).resource_usage[0].used, 1);
    assert_eq!(end_of(start(&agent, 2, "#2 say on; done")).await.content, "on", "there is one turn left");
}

#[tokio::test(start_paused = true)]
async fn a_repeated_send_leaves_the_counts_of_a_sleeping_agent_right() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    for _ in 0..3 {
        end_of(start(&agent, 1, "#1 say so; done")).await;
    }
    expect_reuse_refused(&agent).await;
    end_of(start(&agent, 2, "#2 say on; done")).await;
    drop(agent);
    let world = world.restart().await;
    assert_eq!(world.listed("a").await.message_count, 4);
    assert_eq!(texts(&world.find("a").await).len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_send_that_is_cancelled_while_it_waits_gets_the_stored_answer() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    end_of(start(&agent, 1, "#1 say so; done")).await;
    let running = start(&agent, 2, "#2 wait; say on; done");
    settle().await;
    let again = start(&agent, 1, "#1 say so; done");
    settle().await;
    agent.cancel(numeric_request_id(1)).await;
    world.model.release_all();
    assert_eq!(end_of(again).await.content, "so");
    end_of(running).await;
    assert_eq!(texts(&agent).len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_name_is_forgotten_after_its_time_and_not_before() {
    let (clock, limits) = (SetClock::new(), Limits::default());
    let retention = limits.request_retention;
    let world = World::open(Plan { clock: Arc::<SetClock>::clone(&clock), ..Plan::default() }).await;
    let agent = world.agent("a").await;
    end_of(start(&agent, 1, "#1 say so; done")).await;
    clock.forward(retention - Duration::from_secs(1));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    expect_reuse_refused(&agent).await;
    assert_eq!(end_of(start(&agent, 1, "#1 say so; done")).await.content, "so");
    clock.forward(Duration::from_secs(2));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(end_of(start(&agent, 1, "#1 say anew; done")).await.content, "anew");
    assert_eq!(texts(&agent).len(), 4, "what was said stays");
    drop(agent);
    clock.forward(retention * 2);
    let world = world.restart().await;
    settle().await;
    assert_eq!(end_of(start(&world.find("a").await, 1, "#1 say again; done")).await.content, "again");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_open_is_not_forgotten_however_old_it_is() {
    let clock = SetClock::new();
    let limits = Limits { model_idle_timeout: Duration::from_secs(1_000_000), ..Limits::default() };
    let plan = Plan { clock: Arc::<SetClock>::clone(&clock), ..Plan::default() }.limits(limits);
    let world = World::open(plan).await;
    let agent = world.agent("a").await;
    let sending = start(&agent, 1, "#1 wait; say so; done");
    settle().await;
    clock.forward(Duration::from_secs(100 * 24 * 3600));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    expect_reuse_refused(&agent).await;
    world.model.release_all();
    assert_eq!(end_of(sending).await.content, "so");
}

#[tokio::test(start_paused = true)]
async fn the_same_name_at_another_agent_is_another_send() {
    let world = World::new().await;
    let (first, second) = (world.agent("a").await, world.agent("b").await);
    assert_eq!(end_of(start(&first, 1, "#1 say a; done")).await.content, "a");
    assert_eq!(end_of(start(&second, 1, "#2 say b; done")).await.content, "b");
    assert!(world.destroy(&first).await);
    let successor = world.agent("a").await;
    assert_eq!(end_of(start(&successor, 1, "#3 say c; done")).await.content, "c", "a name is an agent's own");
}

#[tokio::test(start_paused = true)]
async fn a_send_that_was_never_kept_can_be_sent_again() {
    let world = World::with(Limits { agent_turns_open_max: 1, ..Limits::default() }).await;
    let agent = world.agent("a").await;
    let running = start(&agent, 5, "#5 wait; say first; done");
    settle().await;
    let refused = fault_of(start(&agent, 1, "#1 say so; done")).await;
    assert!(crate::world::is_busy(&refused));
    world.model.release_all();
    end_of(running).await;
    assert_eq!(
        end_of(start(&agent, 1, "#1 say other; done")).await.content,
        "other",
        "nobody has had the name"
    );
    assert_eq!(objection_when_idle(&messages(&agent)), None);
}

#[tokio::test(start_paused = true)]
async fn a_rolled_back_turn_still_has_its_answer() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    end_of(start(&agent, 1, "#1 say so; done")).await;
    assert_eq!(agent.rollback(0, runtime::Initiator::Admin).await, Ok(2));
    assert_eq!(end_of(start(&agent, 1, "#1 say so; done")).await.content, "so");
    assert_eq!(texts(&agent), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_send_that_is_repeated_while_its_cancel_is_being_kept_is_cancelled_too() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let running = start(&agent, 5, "#5 wait; say first; done");
    settle().await;
    let waiting = start(&agent, 1, "#1 say so; done");
    settle().await;
    world.store.hold();
    let cancelling = {
        let agent = agent.clone();
        tokio::spawn(async move { agent.cancel(numeric_request_id(1)).await })
    };
    settle().await;
    let again = start(&agent, 1, "#1 say so; done");
    settle().await;
    world.model.release_all();
    settle().await;
    world.store.release();
    assert!(cancelling.await.expect("a cancel does not panic"));
    for sending in [waiting, again] {
        assert_eq!(end_of(sending).await.outcome, TurnOutcome::Cancelled);
    }
    end_of(running).await;
    assert_eq!(questions(&agent).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_send_that_is_repeated_while_its_agent_is_being_destroyed_is_cancelled() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    end_of(start(&agent, 1, "#1 say so; done")).await;
    world.store.hold();
    let (destroyed, again) = tokio::join!(world.destroy(&agent), async {
        settle().await;
        let again = start(&agent, 1, "#1 say so; done");
        settle().await;
        world.store.release();
        end_of(again).await
    });
    assert!(destroyed);
    assert_eq!(again.outcome, TurnOutcome::Cancelled, "the store forgot the answer with the agent");
}
