//! A store without room, and one that has failed: a clear fault, reads that go on, and nothing doubled when it heals.

use std::time::Duration;

use agent::journal::RestartPolicy;
use agent::outside::StoreFault;
use agent::{Fault, FaultKind, MessageSource, TurnOutcome};
use futures_util::FutureExt;
use runtime::{AgentSpec, ChildPolicy, Fork, Import, Initiator, PermissionChange};

use crate::history::{idle_history_violation, messages, texts, user_texts};
use crate::world::{
    World, agent_id, expect_end, expect_fault, is_busy, new_message, numeric_request_id, run_until_idle,
    spec_named, start_send, with_first_message, with_parent,
};

fn full_fault() -> StoreFault {
    StoreFault::Full("no space left on device".to_owned())
}

fn assert_full(fault: &Fault) {
    assert!(matches!(fault.kind, FaultKind::Full { retry_after_ms } if retry_after_ms > 0), "{fault:?}");
    assert!(fault.public.starts_with("storage full"), "{fault}");
}

#[tokio::test(start_paused = true)]
async fn a_send_that_finds_no_room_is_told_so_and_reads_go_on() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "#1 say a; done")).await;
    world.store.inject_fault(usize::MAX, full_fault());
    assert_full(&expect_fault(start_send(&agent, 2, "#2 say b; done")).await);
    assert_eq!((texts(&agent).len(), world.summary(&agent).message_count), (2, 2), "who had it can read it");
    drop(agent);
    let agent = world.find("a").await;
    assert_eq!(texts(&agent), ["#1 say a; done", "a"]);
    assert_eq!((world.names().await.len(), world.pool.open_turns()), (1, 0));
    assert_full(&expect_fault(start_send(&agent, 2, "#2 say b; done")).await);
    world.store.clear_faults();
    drop(agent);
    let agent = world.find("a").await;
    assert_eq!(expect_end(start_send(&agent, 2, "#2 say b; done")).await.content, "b");
    assert_eq!(texts(&agent).len(), 4);
    assert_eq!(idle_history_violation(&messages(&agent)), None);
}

/// Every kind of call that a turn makes, refused once.
#[tokio::test(start_paused = true)]
async fn a_turn_that_finds_no_room_at_any_point_is_told_so_and_goes_on_when_there_is_room() {
    let script = "#1 call note a; call once 5; call keyed 9; done | say so; done";
    for kind in ["turn_accepted", "turn_begun", "message", "tool_begun", "tool_done", "turn_ended"] {
        let world = World::new().await;
        let agent = world.agent("a").await;
        world.store.inject_fault_for_kind(kind, 1, full_fault());
        assert_full(&expect_fault(start_send(&agent, 1, script)).await);
        drop(agent);
        world.store.clear_faults();
        // By itself or because somebody asks: it is the same turn.
        let agent = world.find("a").await;
        let end = expect_end(start_send(&agent, 1, script)).await;
        assert_eq!((end.outcome, end.content.as_str()), (TurnOutcome::Completed, "so"), "{kind}");
        assert_eq!(user_texts(&agent), [script], "{kind}: one user's message");
        assert_eq!(idle_history_violation(&messages(&agent)), None, "{kind}");
        let once = world.tools.call_lines().iter().filter(|line| *line == "a once 5").count();
        assert!(once <= 1, "{kind}: {once} times");
        drop(agent);
        let world = world.restart().await;
        assert_eq!(idle_history_violation(&messages(&world.find("a").await)), None, "{kind}");
        assert_eq!(
            world.listed_summary("a").await.message_count,
            messages(&world.find("a").await).len(),
            "{kind}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_found_no_room_goes_on_by_itself_when_there_is_some() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.store.inject_fault_for_kind("message", 2, full_fault());
    assert_full(&expect_fault(start_send(&agent, 1, "#1 say so; done")).await);
    drop(agent);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.pool.open_turns(), 0);
    let agent = world.find("a").await;
    assert_eq!(texts(&agent), ["#1 say so; done", "so"]);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_never_finds_room_is_given_up_and_can_be_had_later() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.store.inject_fault_for_kind("turn_ended", 9, full_fault());
    assert_full(&expect_fault(start_send(&agent, 1, "#1 say so; done")).await);
    drop(agent);
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.store.clear_faults();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.pool.open_turns(), 0);
    assert!(world.model.observations().prompts.len() <= 3, "a model costs something");
    let agent = world.find("a").await;
    assert_eq!(idle_history_violation(&messages(&agent)), None);
    assert_eq!(expect_end(start_send(&agent, 1, "#1 say so; done")).await.content, "so");
    assert_eq!(user_texts(&agent).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn sends_that_waited_behind_it_are_told_or_kept_and_never_both_lost() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let running = start_send(&agent, 1, "#1 wait; say a; done");
    let behind = [start_send(&agent, 2, "#2 say b; done"), start_send(&agent, 3, "#3 say c; done")];
    run_until_idle().await;
    world.store.inject_fault_for_kind("turn_ended", 1, full_fault());
    world.model.release_all();
    assert_full(&expect_fault(running).await);
    for sending in behind {
        assert_full(&expect_fault(sending).await);
    }
    drop(agent);
    let agent = world.find("a").await;
    let again = start_send(&agent, 3, "#3 say c; done");
    run_until_idle().await;
    world.model.release_all();
    assert_eq!(expect_end(again).await.content, "c");
    assert_eq!(user_texts(&agent).len(), 3, "all of them were kept");
    assert_eq!(idle_history_violation(&messages(&agent)), None);
}

#[tokio::test(start_paused = true)]
async fn whoever_still_has_the_fallen_agent_is_told_to_come_again() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.store.inject_fault(1, full_fault());
    assert_full(&expect_fault(start_send(&agent, 1, "#1 say a; done")).await);
    let fault = expect_fault(start_send(&agent, 1, "#1 say a; done")).await;
    assert!(is_busy(&fault), "{fault:?}");
    assert!(!agent.cancel(numeric_request_id(1)).await);
    assert_eq!(agent.steer("word".to_owned(), MessageSource::default()).await, None);
    assert!(agent.rollback(0, Initiator::Admin).await.is_err());
    assert_eq!(expect_end(start_send(&world.find("a").await, 1, "#1 say a; done")).await.content, "a");
}

#[tokio::test(start_paused = true)]
async fn whatever_else_finds_no_room_changes_nothing() {
    let world = World::new().await;
    let agent = world.trusted_agent("a").await;
    expect_end(start_send(&agent, 1, "#1 say a; done")).await;
    let before = crate::restarts::describe_agent(&world, &agent);
    world.store.inject_fault(usize::MAX, full_fault());
    assert_full(&world.expect_create_refused(spec_named("b")).await);
    assert_full(
        &world
            .expect_create_refused(with_first_message(with_parent(spec_named("b"), &agent), "say x; done"))
            .await,
    );
    let change = PermissionChange { disable_tools: Some(vec!["note".into()]), ..PermissionChange::default() };
    assert_full(&world.change_permissions(&agent, &change).await.expect_err("there is no room"));
    assert_full(
        &world.pool.mark_agent_finished(&agent, Initiator::Admin).await.expect_err("there is no room"),
    );
    let target = agent.agent_ref();
    assert_full(
        &world
            .pool
            .destroy(&target, ChildPolicy::Cascade, Initiator::Admin)
            .await
            .expect_err("there is no room"),
    );
    assert_full(
        &world.pool.fork(&agent, Fork::default(), Initiator::Admin).await.err().expect("there is no room"),
    );
    let import = Import {
        spec: AgentSpec::default(),
        messages: Vec::new(),
        created_at: None,
        origin: "elsewhere".to_owned(),
    };
    assert_full(&world.pool.import(import, Initiator::Admin).await.err().expect("there is no room"));
    assert_eq!(crate::restarts::describe_agent(&world, &agent), before);
    assert_eq!((world.names().await, world.pool.open_turns()), (vec!["a".to_owned()], 0));
    assert!(!world.pool.is_stopping());
    let target = agent.agent_ref();
    drop(agent);
    assert_full(
        &world.pool.rename(&target, agent_id("z"), Initiator::Admin).await.expect_err("there is no room"),
    );
    assert_eq!(world.names().await, ["a"]);
    world.store.clear_faults();
    let agent = world.find("a").await;
    assert_eq!(crate::restarts::describe_agent(&world, &agent), before);
    world.agent("z").await;
    world.child_agent("b", &agent).await;
}

#[tokio::test(start_paused = true)]
async fn a_rollback_that_finds_no_room_takes_nothing_away() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "#1 say a; done")).await;
    world.store.inject_fault(1, full_fault());
    assert_full(&agent.rollback(0, Initiator::Admin).await.expect_err("there is no room"));
    drop(agent);
    let agent = world.find("a").await;
    assert_eq!(texts(&agent).len(), 2);
    assert_eq!(agent.rollback(0, Initiator::Admin).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_left_where_there_is_no_room_is_refused() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let running = start_send(&agent, 1, "#1 wait; say a; done");
    run_until_idle().await;
    world.store.inject_fault(1, full_fault());
    let fault =
        agent.submit_committed(new_message(2, "#2 say b; done")).await.err().expect("there is no room");
    assert_full(&fault);
    world.model.release_all();
    assert_eq!(expect_end(running).await.content, "a", "the turn under way does not suffer");
    run_until_idle().await;
    assert_eq!((user_texts(&agent).len(), world.pool.open_turns()), (1, 0));
    agent.submit_committed(new_message(2, "#2 say b; done")).await.expect("there is room now");
    run_until_idle().await;
    assert_eq!(user_texts(&agent).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_word_that_finds_no_room_is_not_acknowledged() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let running = start_send(&agent, 1, "#1 wait; say a; done");
    run_until_idle().await;
    world.store.inject_fault_for_kind("steered", 1, full_fault());
    assert_eq!(agent.steer("#s say b; done".to_owned(), MessageSource::default()).await, None);
    world.model.release_all();
    assert_eq!(expect_end(running).await.outcome, TurnOutcome::Completed);
    assert_eq!(idle_history_violation(&messages(&agent)), None);
}

#[tokio::test(start_paused = true)]
async fn a_budget_is_what_it_was_after_a_call_that_found_no_room() {
    use agent::permission::{Budget, Resource};
    let world = World::new().await;
    let turns = |limit| Budget::unlimited().with_limit(Resource::Turns, Some(limit));
    let with = |spec: AgentSpec, budget| AgentSpec {
        permissions: runtime::PermissionSpec { budget, ..spec.permissions.clone() },
        ..spec
    };
    let parent =
        world.create_handle(with(crate::world::with_preset(spec_named("p"), "trusted"), turns(10))).await;
    world.store.inject_fault(1, full_fault());
    assert_full(&world.expect_create_refused(with(with_parent(spec_named("c"), &parent), turns(4))).await);
    let account = |world: &World, agent: &runtime::AgentHandle| {
        let one = world.pool.permissions(agent).resource_usage[0];
        (one.limit, one.used, one.reserved)
    };
    assert_eq!(account(&world, &parent), (Some(10), 0, 0));
    expect_end(start_send(&parent, 1, "#1 say a; done")).await;
    drop(parent);
    let world = world.restart().await;
    assert_eq!(account(&world, &world.find("p").await), (Some(10), 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_marked_agent_that_finds_no_room_is_settled_when_there_is_some() {
    let world = World::new().await;
    let agent =
        world.create_handle(AgentSpec { on_restart: Some(RestartPolicy::Mark), ..spec_named("a") }).await;
    agent.submit_committed(new_message(1, "#1 say hel; wait")).await.expect("it is kept");
    run_until_idle().await;
    drop(agent);
    let world = world.restart().await;
    world.store.inject_fault_for_kind("turn_ended", 1, full_fault());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.pool.open_turns(), 0);
    let agent = world.find("a").await;
    assert_eq!(idle_history_violation(&messages(&agent)), None);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_has_failed_says_so_and_takes_nothing_more() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "#1 say a; done")).await;
    assert!(world.pool.store_failed().now_or_never().is_none());
    let waiting = {
        let pool = world.pool.clone();
        tokio::spawn(async move { pool.store_failed().await })
    };
    run_until_idle().await;
    world.store.fail_permanently("fsync failed");
    assert_eq!(waiting.await.expect("it does not panic"), "fsync failed");
    assert_eq!(world.pool.store_failed().await, "fsync failed", "also for whoever asks later");
    let fault = expect_fault(start_send(&agent, 2, "#2 say b; done")).await;
    assert_eq!(fault.kind, FaultKind::Internal);
    assert!(fault.public.contains("the store has failed"), "{fault}");
    drop(agent);
    assert_eq!(texts(&world.find("a").await).len(), 2, "reads go on");
    assert_eq!(world.expect_create_refused(spec_named("b")).await.kind, FaultKind::Internal);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_fell_and_was_woken_meanwhile_is_left_alone_by_the_one_it_was() {
    let world =
        World::with_limits(runtime::Limits { live_agents_max: 1, ..runtime::Limits::default() }).await;
    world.agent("b").await;
    world.agent("a").await;
    world.store.inject_fault_for_kind("turn_accepted", 1, full_fault());
    world.store.hold_barriers();
    assert_full(&expect_fault(start_send(&world.find("a").await, 1, "#1 say a; done")).await);
    run_until_idle().await;
    // The fallen one still waits for its place in line; others need its room, and then somebody needs it.
    drop(world.find("b").await);
    let agent = world.find("a").await;
    let running = start_send(&agent, 2, "#2 wait; say b; done");
    run_until_idle().await;
    world.store.release();
    run_until_idle().await;
    assert_eq!(world.live_names().await, ["a"]);
    assert!(world.find("a").await.is_same_agent(&agent) && !running.is_finished());
    world.model.release_all();
    assert_eq!(expect_end(running).await.content, "b");
    assert_eq!(expect_end(start_send(&agent, 3, "#3 say c; done")).await.content, "c", "its inbox is open");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_finds_no_room_leaves_the_send_to_be_worked_on() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    for (name, script) in [(1, "#1 wait; say a; done"), (2, "#2 say b; done")] {
        agent.submit_committed(new_message(name, script)).await.expect("it is kept");
    }
    run_until_idle().await;
    world.store.inject_fault_for_kind("turn_ended", 1, full_fault());
    assert!(!agent.cancel(numeric_request_id(2)).await, "it could not be kept");
    drop(agent);
    world.model.release_all();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let agent = world.find("a").await;
    assert_eq!(
        texts(&agent),
        ["#1 wait; say a; done", "a", "#2 say b; done", "b"],
        "nobody has to ask for it"
    );
}

#[tokio::test(start_paused = true)]
async fn a_repeated_send_that_finds_no_room_is_not_said_to_be_cancelled() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "#1 say a; done")).await;
    let running = start_send(&agent, 2, "#2 wait; say b; done");
    run_until_idle().await;
    world.store.inject_fault(1, full_fault());
    let again = start_send(&agent, 1, "#1 say a; done");
    run_until_idle().await;
    assert!(!agent.cancel(numeric_request_id(1)).await, "it was over long ago");
    assert_full(&expect_fault(again).await);
    world.model.release_all();
    expect_end(running).await;
    assert_eq!(expect_end(start_send(&agent, 1, "#1 say a; done")).await.content, "a");
}
