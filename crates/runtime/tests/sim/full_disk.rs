//! A full or failed store: a clear fault, reads that still work, and no duplicates after recovery.

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
async fn send_on_full_disk_fails_and_reads_still_work() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "#1 say a; done")).await;
    world.store.inject_fault(usize::MAX, full_fault());
    assert_full(&expect_fault(start_send(&agent, 2, "#2 say b; done")).await);
    assert_eq!((texts(&agent).len(), world.status(&agent).message_count), (2, 2), "old handles can read");
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

/// Fails each kind of append of a turn once.
#[tokio::test(start_paused = true)]
async fn turn_failing_on_any_append_resumes_with_free_space() {
    let script = "#1 call note a; call once 5; call keyed 9; done | say so; done";
    for kind in ["turn_accepted", "turn_begun", "message", "tool_begun", "tool_done", "turn_ended"] {
        let world = World::new().await;
        let agent = world.agent("a").await;
        world.store.inject_fault_for_kind(kind, 1, full_fault());
        assert_full(&expect_fault(start_send(&agent, 1, script)).await);
        drop(agent);
        world.store.clear_faults();
        // Resumed by itself or by a duplicate send: it is the same turn.
        let agent = world.find("a").await;
        let end = expect_end(start_send(&agent, 1, script)).await;
        assert_eq!((end.outcome, end.content.as_str()), (TurnOutcome::Completed, "so"), "{kind}");
        assert_eq!(user_texts(&agent), [script], "{kind}: one user message");
        assert_eq!(idle_history_violation(&messages(&agent)), None, "{kind}");
        let once = world.tools.call_lines().iter().filter(|line| *line == "a once 5").count();
        assert!(once <= 1, "{kind}: {once} times");
        drop(agent);
        let world = world.restart().await;
        assert_eq!(idle_history_violation(&messages(&world.find("a").await)), None, "{kind}");
        assert_eq!(
            world.listed_status("a").await.message_count,
            messages(&world.find("a").await).len(),
            "{kind}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn turn_stopped_by_full_disk_resumes_by_itself() {
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
async fn turn_on_a_full_disk_is_given_up_and_can_be_resent() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.store.inject_fault_for_kind("turn_ended", 9, full_fault());
    assert_full(&expect_fault(start_send(&agent, 1, "#1 say so; done")).await);
    drop(agent);
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.store.clear_faults();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.pool.open_turns(), 0);
    assert!(world.model.observations().prompts.len() <= 3, "few model calls");
    let agent = world.find("a").await;
    assert_eq!(idle_history_violation(&messages(&agent)), None);
    assert_eq!(expect_end(start_send(&agent, 1, "#1 say so; done")).await.content, "so");
    assert_eq!(user_texts(&agent).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn queued_sends_get_a_fault_and_are_not_lost() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let running = start_send(&agent, 1, "#1 wait; say a; done");
    let queued = [start_send(&agent, 2, "#2 say b; done"), start_send(&agent, 3, "#3 say c; done")];
    run_until_idle().await;
    world.store.inject_fault_for_kind("turn_ended", 1, full_fault());
    world.model.release_all();
    assert_full(&expect_fault(running).await);
    for sending in queued {
        assert_full(&expect_fault(sending).await);
    }
    drop(agent);
    let agent = world.find("a").await;
    let duplicate = start_send(&agent, 3, "#3 say c; done");
    run_until_idle().await;
    world.model.release_all();
    assert_eq!(expect_end(duplicate).await.content, "c");
    assert_eq!(user_texts(&agent).len(), 3, "all of them were committed");
    assert_eq!(idle_history_violation(&messages(&agent)), None);
}

#[tokio::test(start_paused = true)]
async fn handle_of_a_reloading_agent_gets_busy() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.store.inject_fault(1, full_fault());
    assert_full(&expect_fault(start_send(&agent, 1, "#1 say a; done")).await);
    let fault = expect_fault(start_send(&agent, 1, "#1 say a; done")).await;
    assert!(is_busy(&fault), "{fault:?}");
    assert!(!agent.cancel(numeric_request_id(1)).await);
    assert_eq!(agent.steer("instruction".to_owned(), MessageSource::default()).await, None);
    assert!(agent.rollback(0, Initiator::Admin).await.is_err());
    assert_eq!(expect_end(start_send(&world.find("a").await, 1, "#1 say a; done")).await.content, "a");
}

#[tokio::test(start_paused = true)]
async fn failed_admin_operations_change_nothing() {
    let world = World::new().await;
    let agent = world.trusted_agent("a").await;
    expect_end(start_send(&agent, 1, "#1 say a; done")).await;
    let before = crate::restarts::describe_agent(&world, &agent);
    world.store.inject_fault(usize::MAX, full_fault());
    assert_full(&world.expect_create_rejected(spec_named("b")).await);
    assert_full(
        &world
            .expect_create_rejected(with_first_message(with_parent(spec_named("b"), &agent), "say x; done"))
            .await,
    );
    let change = PermissionChange { disable_tools: Some(vec!["note".into()]), ..PermissionChange::default() };
    assert_full(&world.change_permissions(&agent, &change).await.expect_err("the disk is full"));
    assert_full(
        &world.pool.mark_agent_finished(&agent, Initiator::Admin).await.expect_err("the disk is full"),
    );
    let target = agent.agent_ref();
    assert_full(
        &world
            .pool
            .destroy(&target, ChildPolicy::Cascade, Initiator::Admin)
            .await
            .expect_err("the disk is full"),
    );
    assert_full(
        &world.pool.fork(&agent, Fork::default(), Initiator::Admin).await.err().expect("the disk is full"),
    );
    let import = Import {
        spec: AgentSpec::default(),
        messages: Vec::new(),
        created_at: None,
        origin: "elsewhere".to_owned(),
    };
    assert_full(&world.pool.import(import, Initiator::Admin).await.err().expect("the disk is full"));
    assert_eq!(crate::restarts::describe_agent(&world, &agent), before);
    assert_eq!((world.names().await, world.pool.open_turns()), (vec!["a".to_owned()], 0));
    assert!(!world.pool.is_stopping());
    let target = agent.agent_ref();
    drop(agent);
    assert_full(
        &world.pool.rename(&target, agent_id("z"), Initiator::Admin).await.expect_err("the disk is full"),
    );
    assert_eq!(world.names().await, ["a"]);
    world.store.clear_faults();
    let agent = world.find("a").await;
    assert_eq!(crate::restarts::describe_agent(&world, &agent), before);
    world.agent("z").await;
    world.child_agent("b", &agent).await;
}

#[tokio::test(start_paused = true)]
async fn failed_rollback_removes_nothing() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "#1 say a; done")).await;
    world.store.inject_fault(1, full_fault());
    assert_full(&agent.rollback(0, Initiator::Admin).await.expect_err("the disk is full"));
    drop(agent);
    let agent = world.find("a").await;
    assert_eq!(texts(&agent).len(), 2);
    assert_eq!(agent.rollback(0, Initiator::Admin).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn submit_on_full_disk_is_rejected() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let running = start_send(&agent, 1, "#1 wait; say a; done");
    run_until_idle().await;
    world.store.inject_fault(1, full_fault());
    let fault =
        agent.submit_committed(new_message(2, "#2 say b; done")).await.err().expect("the disk is full");
    assert_full(&fault);
    world.model.release_all();
    assert_eq!(expect_end(running).await.content, "a", "the running turn is not affected");
    run_until_idle().await;
    assert_eq!((user_texts(&agent).len(), world.pool.open_turns()), (1, 0));
    agent.submit_committed(new_message(2, "#2 say b; done")).await.expect("there is free space now");
    run_until_idle().await;
    assert_eq!(user_texts(&agent).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn failed_steer_is_not_acknowledged() {
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
async fn failed_create_refunds_its_reserved_budget() {
    use agent::permission::{Budget, Resource};
    let world = World::new().await;
    let turns = |limit| Budget::unlimited().with_limit(Resource::Turns, Some(limit));
    let with_budget = |spec: AgentSpec, budget| AgentSpec {
        permissions: runtime::PermissionSpec { budget, ..spec.permissions.clone() },
        ..spec
    };
    let parent = world
        .create_handle(with_budget(crate::world::with_preset(spec_named("p"), "trusted"), turns(10)))
        .await;
    world.store.inject_fault(1, full_fault());
    assert_full(
        &world.expect_create_rejected(with_budget(with_parent(spec_named("c"), &parent), turns(4))).await,
    );
    let account = |world: &World, agent: &runtime::AgentHandle| {
        let usage = world.pool.permissions(agent).resource_usage[0];
        (usage.limit, usage.used, usage.reserved)
    };
    assert_eq!(account(&world, &parent), (Some(10), 0, 0));
    expect_end(start_send(&parent, 1, "#1 say a; done")).await;
    drop(parent);
    let world = world.restart().await;
    assert_eq!(account(&world, &world.find("p").await), (Some(10), 1, 0));
}

#[tokio::test(start_paused = true)]
async fn marked_turn_is_ended_when_there_is_free_space() {
    let world = World::new().await;
    let agent =
        world.create_handle(AgentSpec { on_restart: Some(RestartPolicy::Mark), ..spec_named("a") }).await;
    agent.submit_committed(new_message(1, "#1 say hel; wait")).await.expect("it is committed");
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
async fn failed_store_reports_and_rejects_all_writes() {
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
    assert_eq!(waiting.await.expect("no panic"), "fsync failed");
    assert_eq!(world.pool.store_failed().await, "fsync failed", "also for a later caller");
    let fault = expect_fault(start_send(&agent, 2, "#2 say b; done")).await;
    assert_eq!(fault.kind, FaultKind::Internal);
    assert!(fault.public.contains("the store has failed"), "{fault}");
    drop(agent);
    assert_eq!(texts(&world.find("a").await).len(), 2, "reads still work");
    assert_eq!(world.expect_create_rejected(spec_named("b")).await.kind, FaultKind::Internal);
}

#[tokio::test(start_paused = true)]
async fn old_instance_does_not_affect_a_rewoken_agent() {
    let world =
        World::with_limits(runtime::Limits { live_agents_max: 1, ..runtime::Limits::default() }).await;
    world.agent("b").await;
    world.agent("a").await;
    world.store.inject_fault_for_kind("turn_accepted", 1, full_fault());
    world.store.hold_barriers();
    assert_full(&expect_fault(start_send(&world.find("a").await, 1, "#1 say a; done")).await);
    run_until_idle().await;
    // The failed instance still waits for its barrier; "b" needs its live slot, and then a client wakes "a" again.
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
async fn failed_cancel_leaves_the_turn_to_run() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    for (request_id, script) in [(1, "#1 wait; say a; done"), (2, "#2 say b; done")] {
        agent.submit_committed(new_message(request_id, script)).await.expect("it is committed");
    }
    run_until_idle().await;
    world.store.inject_fault_for_kind("turn_ended", 1, full_fault());
    assert!(!agent.cancel(numeric_request_id(2)).await, "the commit failed");
    drop(agent);
    world.model.release_all();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let agent = world.find("a").await;
    assert_eq!(
        texts(&agent),
        ["#1 wait; say a; done", "a", "#2 say b; done", "b"],
        "without a duplicate send"
    );
}

#[tokio::test(start_paused = true)]
async fn duplicate_send_on_full_disk_is_not_cancelled() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "#1 say a; done")).await;
    let running = start_send(&agent, 2, "#2 wait; say b; done");
    run_until_idle().await;
    world.store.inject_fault(1, full_fault());
    let duplicate = start_send(&agent, 1, "#1 say a; done");
    run_until_idle().await;
    assert!(!agent.cancel(numeric_request_id(1)).await, "the turn has ended");
    assert_full(&expect_fault(duplicate).await);
    world.model.release_all();
    expect_end(running).await;
    assert_eq!(expect_end(start_send(&agent, 1, "#1 say a; done")).await.content, "a");
}
