//! An acknowledgement follows the commit: each test checks the store at the moment of the reply.

use std::sync::Arc;

use agent::journal::Record;
use agent::outside::Store;
use agent::{FaultKind, MessageSource, PrincipalId, TurnOutcome};
use futures_util::FutureExt;
use runtime::{AgentHandle, ChildPolicy, Initiator, PermissionChange};

use crate::history::{texts, user_texts};
use crate::world::{
    World, expect_end, new_message, numeric_request_id, run_until_idle, spec_named, start_send,
    with_first_message, without_waiting,
};

/// The kinds of an agent's committed records.
async fn stored_kinds(world: &World, agent: &AgentHandle) -> Vec<&'static str> {
    world.store.stored_records(agent.agent_ref().serial()).await.iter().map(Record::kind).collect()
}

/// Starts a call while the store is held, and returns its result after the release.
async fn call_while_store_held<T>(world: &World, call: impl Future<Output = T>) -> T {
    world.store.hold();
    let mut call = Box::pin(call);
    assert!((&mut call).now_or_never().is_none());
    run_until_idle().await;
    assert!((&mut call).now_or_never().is_none(), "a reply before the commit");
    world.store.release();
    without_waiting(call).await
}

#[tokio::test(start_paused = true)]
async fn create_returns_after_the_agent_is_committed() {
    let world = World::new().await;
    let created =
        call_while_store_held(&world, world.create(spec_named("a"))).await.expect("the agent is created");
    assert_eq!(stored_kinds(&world, &created.handle).await, ["agent_created"]);
    let with_message =
        call_while_store_held(&world, world.create(with_first_message(spec_named("b"), "say a; done")))
            .await
            .expect("the agent is created");
    assert_eq!(stored_kinds(&world, &with_message.handle).await[..2], ["agent_created", "turn_accepted"]);
}

#[tokio::test(start_paused = true)]
async fn uncommitted_agent_cannot_be_found() {
    let world = World::new().await;
    world.store.hold();
    let mut creating = Box::pin(world.create(spec_named("a")));
    assert!((&mut creating).now_or_never().is_none());
    run_until_idle().await;
    assert!(world.pool.find_ref(&crate::world::agent_id("a")).is_none());
    assert_eq!(world.names().await, Vec::<String>::new());
    let fault = world.expect_create_rejected(spec_named("a")).await;
    assert_eq!((fault.kind, fault.public.as_ref()), (FaultKind::Invalid, "Agent already exists: a"));
    world.store.release();
    creating.await.expect("the agent is committed");
    assert_eq!(world.names().await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn create_completes_when_its_caller_is_dropped() {
    let world = World::new().await;
    world.store.hold();
    let mut creating = Box::pin(world.create(with_first_message(spec_named("a"), "say a; done")));
    assert!((&mut creating).now_or_never().is_none());
    drop(creating);
    run_until_idle().await;
    world.store.release();
    run_until_idle().await;
    assert_eq!(texts(&world.find("a").await), ["say a; done", "a"]);
}

#[tokio::test(start_paused = true)]
async fn submitted_message_is_committed_running_or_queued() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    call_while_store_held(&world, agent.submit_committed(new_message(1, "#1 wait; say a; done")))
        .await
        .expect("it is committed");
    assert!(stored_kinds(&world, &agent).await.contains(&"turn_accepted"));
    call_while_store_held(&world, agent.submit_committed(new_message(2, "#2 say b; done")))
        .await
        .expect("it is committed");
    let accepted =
        stored_kinds(&world, &agent).await.into_iter().filter(|kind| *kind == "turn_accepted").count();
    assert_eq!(accepted, 2);
    assert_eq!(user_texts(&agent).len(), 1, "the second is queued");
    drop(agent);
    let world = world.restart().await;
    run_until_idle().await;
    world.model.release_all();
    run_until_idle().await;
    assert_eq!(user_texts(&world.find("a").await).len(), 2, "both turns run after a crash");
}

#[tokio::test(start_paused = true)]
async fn first_message_runs_after_a_crash() {
    let world = World::new().await;
    world.store.take_observed();
    // The create is one append; nothing of the turn is committed after it.
    world.store.die_after(1);
    let created =
        world.create(with_first_message(spec_named("a"), "#1 say a; done")).await.expect("it is committed");
    let (request_id, _) = created.initial.expect("there was a first message");
    drop(created.handle);
    let world = world.restart().await;
    run_until_idle().await;
    let agent = world.find("a").await;
    assert_eq!(texts(&agent), ["#1 say a; done", "a"]);
    let duplicate = runtime::NewMessage {
        text: "#1 say a; done".into(),
        images: Vec::new(),
        request_id,
        source: MessageSource::default(),
    };
    assert_eq!(agent.send(duplicate).await.expect("the request id is known").content, "a");
}

#[tokio::test(start_paused = true)]
async fn model_and_tools_run_after_their_input_is_committed() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.store.hold();
    let sending = start_send(&agent, 1, "#1 call once 1; done | say so; done");
    run_until_idle().await;
    assert_eq!((world.model.observations().prompts.len(), texts(&agent).len()), (0, 0), "not visible either");
    world.store.release();
    world.store.hold();
    run_until_idle().await;
    assert_eq!((world.model.observations().prompts.len(), texts(&agent).len()), (1, 1));
    assert_eq!(world.tools.call_lines(), Vec::<String>::new());
    world.store.release();
    world.store.hold();
    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    assert_eq!(world.tools.call_lines(), ["a once 1"]);
    assert_eq!(
        (world.model.observations().prompts.len(), texts(&agent).len()),
        (1, 2),
        "the result is not committed yet"
    );
    world.store.release();
    assert_eq!(expect_end(sending).await.content, "so");
}

#[tokio::test(start_paused = true)]
async fn turn_appends_related_records_in_one_batch() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.store.take_observed();
    for turn in 0..3 {
        let script = format!("#{turn} call note a; call slow 5; done | say so; done");
        expect_end(start_send(&agent, turn, &script)).await;
        let observed = world.store.take_observed();
        let appends: Vec<_> = observed.iter().map(|append| append.kinds.as_slice()).collect();
        let expected: [&[&str]; 5] = [
            &["turn_accepted", "turn_begun"],
            &["message", "tool_begun", "tool_begun"],
            &["tool_done"],
            &["message", "message"],
            &["message", "turn_ended"],
        ];
        assert_eq!(appends, expected, "the same for every turn, whatever its history");
        assert!(observed.iter().all(|append| append.was_committed));
    }
}

#[tokio::test(start_paused = true)]
async fn send_returns_after_the_turn_end_is_committed() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sending = start_send(&agent, 1, "#1 wait; say so; done");
    run_until_idle().await;
    world.store.hold();
    world.model.release_all();
    run_until_idle().await;
    assert!(!sending.is_finished());
    assert_eq!(texts(&agent).len(), 1, "uncommitted messages are not visible");
    world.store.release();
    assert_eq!(expect_end(sending).await.content, "so");
}

#[tokio::test(start_paused = true)]
async fn acknowledged_cancel_survives_a_restart() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    agent.submit_committed(new_message(1, "#1 say hel; wait")).await.expect("it is committed");
    agent.submit_committed(new_message(2, "#2 say b; done")).await.expect("it is committed");
    run_until_idle().await;
    assert!(call_while_store_held(&world, agent.cancel(numeric_request_id(2))).await);
    assert!(call_while_store_held(&world, agent.cancel(numeric_request_id(1))).await);
    drop(agent);
    let world = world.restart().await;
    run_until_idle().await;
    assert_eq!(world.pool.open_turns(), 0);
    let agent = world.find("a").await;
    assert_eq!(texts(&agent), ["#1 say hel; wait", "hel"]);
    assert_eq!(expect_end(start_send(&agent, 2, "#2 say b; done")).await.outcome, TurnOutcome::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn unacknowledged_cancel_may_be_lost_but_not_the_send() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    agent.submit_committed(new_message(1, "#1 wait; say a; done")).await.expect("it is committed");
    agent.submit_committed(new_message(2, "#2 say b; done")).await.expect("it is committed");
    run_until_idle().await;
    world.store.die();
    assert!(agent.cancel(numeric_request_id(2)).now_or_never().is_none());
    drop(agent);
    let world = world.restart().await;
    run_until_idle().await;
    world.model.release_all();
    run_until_idle().await;
    assert_eq!(user_texts(&world.find("a").await).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn steer_returns_after_its_commit() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    start_send(&agent, 1, "#1 wait; say so; done");
    run_until_idle().await;
    let accepted = call_while_store_held(
        &world,
        agent.steer("#s say steered; done".to_owned(), MessageSource::default()),
    )
    .await;
    assert_eq!(accepted, Some(numeric_request_id(1)));
    assert_eq!(stored_kinds(&world, &agent).await.last(), Some(&"steered"));
}

#[tokio::test(start_paused = true)]
async fn admin_operations_return_after_their_commit() {
    let world = World::new().await;
    let agent = world.trusted_agent("a").await;
    expect_end(start_send(&agent, 1, "#1 say a; done")).await;
    let change = PermissionChange { disable_tools: Some(vec!["note".into()]), ..PermissionChange::default() };
    call_while_store_held(&world, world.change_permissions(&agent, &change))
        .await
        .expect("fewer permissions are always allowed");
    call_while_store_held(&world, world.finish(&agent)).await;
    assert_eq!(call_while_store_held(&world, agent.rollback(0, Initiator::Admin)).await, Ok(2));
    let kinds = stored_kinds(&world, &agent).await;
    assert_eq!(kinds[kinds.len() - 3..], ["permissions_changed", "agent_finished", "rolled_back"]);
    let target = agent.agent_ref();
    assert!(call_while_store_held(&world, world.destroy_ref(&target, ChildPolicy::Cascade)).await);
    assert_eq!(stored_kinds(&world, &agent).await.last(), Some(&"agent_destroyed"));
}

#[tokio::test(start_paused = true)]
async fn denials_are_in_the_journal() {
    let world = World::new().await;
    let agent = world.agent("admin").await;
    expect_end(start_send(&agent, 1, "#1 call agent_create; done | say so; done")).await;
    world.pool.record_denial(PrincipalId::Admin, Some(&agent.agent_ref()), "destroy_agent", "targets", "no");
    world.pool.record_denial(PrincipalId::Admin, None, "shutdown_server", "identity", "no");
    run_until_idle().await;
    let records = world.store.stored_records(agent.agent_ref().serial()).await;
    let denied: Vec<_> = records
        .iter()
        .filter_map(|record| match record {
            Record::Denied { principal, action, .. } => Some((principal.to_string(), action.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(denied, [("agent:admin".to_owned(), "agent_create"), ("admin".to_owned(), "destroy_agent")]);
    let daemon: Vec<_> =
        world.store.stored_records(agent::journal::DAEMON).await.iter().map(Record::kind).collect();
    assert_eq!(daemon, ["daemon_started", "denied"]);
    let memory = Arc::clone(world.store.memory());
    world.pool.stop(std::time::Duration::ZERO).await;
    let daemon = memory.history(agent::journal::DAEMON).await.expect("the store is readable");
    assert_eq!(daemon.last().map(Record::kind), Some("daemon_stopped"));
}

#[tokio::test(start_paused = true)]
async fn stop_waits_for_a_create_and_leaves_no_task() {
    let world = World::new().await;
    world.store.hold();
    let mut creating = Box::pin(world.create(spec_named("late")));
    assert!((&mut creating).now_or_never().is_none());
    run_until_idle().await;
    let mut stop = Box::pin(world.pool.stop(std::time::Duration::from_secs(1)));
    assert!((&mut stop).now_or_never().is_none());
    run_until_idle().await;
    world.store.release();
    let created = creating.await;
    let stopped = tokio::time::timeout(std::time::Duration::from_secs(60), stop).await;
    assert_eq!(stopped, Ok(0), "the stop ends");
    assert!(created.is_ok(), "a committed create succeeds");
    assert_eq!(crate::world::alive_task_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn stop_waits_for_a_wake_and_leaves_no_task() {
    let world = World::new().await;
    world.agent("a").await;
    let world = world.restart().await;
    world.store.set_commit_yields(3);
    let name = crate::world::agent_id("a");
    let mut waking = Box::pin(world.pool.find(&name));
    assert!((&mut waking).now_or_never().is_none());
    let stop = world.pool.stop(std::time::Duration::from_secs(1));
    let (woken, stopped) =
        tokio::join!(waking, async { tokio::time::timeout(std::time::Duration::from_secs(60), stop).await });
    assert_eq!(stopped, Ok(0), "the stop ends");
    drop(woken);
    run_until_idle().await;
    assert_eq!(crate::world::alive_task_count(), 0);
}
