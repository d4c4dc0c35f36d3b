//! What was acknowledged is kept: looked for in the store in the very moment in which somebody is told.

use std::sync::Arc;

use agent::journal::Record;
use agent::outside::Store;
use agent::{FaultKind, MessageSource, TurnOutcome};
use futures_util::FutureExt;
use runtime::{AgentHandle, ChildPolicy, Initiator, PermissionChange};

use crate::history::{texts, user_texts};
use crate::world::{
    World, expect_end, new_message, numeric_request_id, run_until_idle, spec_named, start_send,
    with_first_message, without_waiting,
};

/// The kinds of what is kept of an agent.
async fn stored_kinds(world: &World, agent: &AgentHandle) -> Vec<&'static str> {
    world.store.stored_records(agent.agent_ref().serial()).await.iter().map(Record::kind).collect()
}

/// Has somebody wait while the store is held up, and gives the answer when it goes on.
async fn call_while_store_held<T>(world: &World, call: impl Future<Output = T>) -> T {
    world.store.hold();
    let mut call = Box::pin(call);
    assert!((&mut call).now_or_never().is_none());
    run_until_idle().await;
    assert!((&mut call).now_or_never().is_none(), "somebody was told before it was kept");
    world.store.release();
    without_waiting(call).await
}

#[tokio::test(start_paused = true)]
async fn a_create_is_answered_when_the_agent_is_kept() {
    let world = World::new().await;
    let created = call_while_store_held(&world, world.create(spec_named("a"))).await.expect("there is room");
    assert_eq!(stored_kinds(&world, &created.handle).await, ["agent_created"]);
    let with_message =
        call_while_store_held(&world, world.create(with_first_message(spec_named("b"), "say a; done")))
            .await
            .expect("there is room");
    assert_eq!(stored_kinds(&world, &with_message.handle).await[..2], ["agent_created", "turn_accepted"]);
}

#[tokio::test(start_paused = true)]
async fn nobody_finds_an_agent_that_is_not_kept_yet() {
    let world = World::new().await;
    world.store.hold();
    let mut creating = Box::pin(world.create(spec_named("a")));
    assert!((&mut creating).now_or_never().is_none());
    run_until_idle().await;
    assert!(world.pool.find_ref(&crate::world::agent_id("a")).is_none());
    assert_eq!(world.names().await, Vec::<String>::new());
    let fault = world.expect_create_refused(spec_named("a")).await;
    assert_eq!((fault.kind, fault.public.as_ref()), (FaultKind::Invalid, "Agent already exists: a"));
    world.store.release();
    creating.await.expect("it is kept now");
    assert_eq!(world.names().await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_create_whose_caller_goes_away_is_finished() {
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
async fn a_message_that_was_left_is_kept_whether_its_turn_begins_or_waits() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    call_while_store_held(&world, agent.submit_committed(new_message(1, "#1 wait; say a; done")))
        .await
        .expect("it is kept");
    assert!(stored_kinds(&world, &agent).await.contains(&"turn_accepted"));
    call_while_store_held(&world, agent.submit_committed(new_message(2, "#2 say b; done")))
        .await
        .expect("it is kept");
    let accepted =
        stored_kinds(&world, &agent).await.into_iter().filter(|kind| *kind == "turn_accepted").count();
    assert_eq!(accepted, 2);
    assert_eq!(user_texts(&agent).len(), 1, "the second waits");
    drop(agent);
    let world = world.restart().await;
    run_until_idle().await;
    world.model.release_all();
    run_until_idle().await;
    assert_eq!(user_texts(&world.find("a").await).len(), 2, "and both are worked on after a crash");
}

#[tokio::test(start_paused = true)]
async fn a_first_message_is_worked_on_after_a_crash() {
    let world = World::new().await;
    world.store.take_observed();
    // The create is one call; nothing of the turn is kept behind it.
    world.store.die_after(1);
    let created =
        world.create(with_first_message(spec_named("a"), "#1 say a; done")).await.expect("it is kept");
    let (request_id, _) = created.initial.expect("there was a first message");
    drop(created.handle);
    let world = world.restart().await;
    run_until_idle().await;
    let agent = world.find("a").await;
    assert_eq!(texts(&agent), ["#1 say a; done", "a"]);
    let again = runtime::NewMessage {
        text: "#1 say a; done".into(),
        images: Vec::new(),
        request_id,
        source: MessageSource::default(),
    };
    assert_eq!(agent.send(again).await.expect("it is known").content, "a");
}

#[tokio::test(start_paused = true)]
async fn the_model_is_asked_when_the_question_is_kept_and_a_tool_runs_when_that_is_kept() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.store.hold();
    let sending = start_send(&agent, 1, "#1 call once 1; done | say so; done");
    run_until_idle().await;
    assert_eq!((world.model.observations().prompts.len(), texts(&agent).len()), (0, 0), "not shown either");
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
        "its result is not kept yet"
    );
    world.store.release();
    assert_eq!(expect_end(sending).await.content, "so");
}

#[tokio::test(start_paused = true)]
async fn a_turn_puts_together_in_line_what_belongs_together_and_nothing_is_rewritten() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.store.take_observed();
    for turn in 0..3 {
        let script = format!("#{turn} call note a; call slow 5; done | say so; done");
        expect_end(start_send(&agent, turn, &script)).await;
        let seen = world.store.take_observed();
        let calls: Vec<_> = seen.iter().map(|call| call.kinds.as_slice()).collect();
        let expected: [&[&str]; 5] = [
            &["turn_accepted", "turn_begun"],
            &["message", "tool_begun", "tool_begun"],
            &["tool_done"],
            &["message", "message"],
            &["message", "turn_ended"],
        ];
        assert_eq!(calls, expected, "the same for every turn, however many were before");
        assert!(seen.iter().all(|call| call.was_committed));
    }
}

#[tokio::test(start_paused = true)]
async fn a_send_is_answered_when_its_end_is_kept() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sending = start_send(&agent, 1, "#1 wait; say so; done");
    run_until_idle().await;
    world.store.hold();
    world.model.release_all();
    run_until_idle().await;
    assert!(!sending.is_finished());
    assert_eq!(texts(&agent).len(), 1, "what is not kept is not shown");
    world.store.release();
    assert_eq!(expect_end(sending).await.content, "so");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_is_answered_when_it_is_kept_and_survives_a_restart() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    agent.submit_committed(new_message(1, "#1 say hel; wait")).await.expect("it is kept");
    agent.submit_committed(new_message(2, "#2 say b; done")).await.expect("it is kept");
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
async fn a_cancel_that_was_not_acknowledged_may_be_lost_and_the_send_is_not() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    agent.submit_committed(new_message(1, "#1 wait; say a; done")).await.expect("it is kept");
    agent.submit_committed(new_message(2, "#2 say b; done")).await.expect("it is kept");
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
async fn a_word_is_acknowledged_when_it_is_kept() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    start_send(&agent, 1, "#1 wait; say so; done");
    run_until_idle().await;
    let taken = call_while_store_held(
        &world,
        agent.steer("#s say steered; done".to_owned(), MessageSource::default()),
    )
    .await;
    assert_eq!(taken, Some(numeric_request_id(1)));
    assert_eq!(stored_kinds(&world, &agent).await.last(), Some(&"steered"));
}

#[tokio::test(start_paused = true)]
async fn what_is_done_to_an_agent_is_answered_when_it_is_kept() {
    let world = World::new().await;
    let agent = world.trusted_agent("a").await;
    expect_end(start_send(&agent, 1, "#1 say a; done")).await;
    let change = PermissionChange { disable_tools: Some(vec!["note".into()]), ..PermissionChange::default() };
    call_while_store_held(&world, world.change_permissions(&agent, &change))
        .await
        .expect("less is always allowed");
    call_while_store_held(&world, world.finish(&agent)).await;
    assert_eq!(call_while_store_held(&world, agent.rollback(0, Initiator::Admin)).await, Ok(2));
    let kinds = stored_kinds(&world, &agent).await;
    assert_eq!(kinds[kinds.len() - 3..], ["permissions_changed", "agent_finished", "rolled_back"]);
    let target = agent.agent_ref();
    assert!(call_while_store_held(&world, world.destroy_ref(&target, ChildPolicy::Cascade)).await);
    assert_eq!(stored_kinds(&world, &agent).await.last(), Some(&"agent_destroyed"));
}

#[tokio::test(start_paused = true)]
async fn what_an_agent_is_denied_is_in_the_journal() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "#1 call agent_create; done | say so; done")).await;
    world.pool.record_denial("somebody", Some(&agent.agent_ref()), "destroy_agent", "targets", "no");
    world.pool.record_denial("somebody", None, "shutdown_server", "identity", "no");
    run_until_idle().await;
    let records = world.store.stored_records(agent.agent_ref().serial()).await;
    let denied: Vec<_> = records
        .iter()
        .filter_map(|record| match record {
            Record::Denied { principal, action, .. } => Some((principal.as_str(), action.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(denied, [("a", "agent_create"), ("somebody", "destroy_agent")]);
    let daemon: Vec<_> =
        world.store.stored_records(agent::journal::DAEMON).await.iter().map(Record::kind).collect();
    assert_eq!(daemon, ["daemon_started", "denied"]);
    let memory = Arc::clone(world.store.memory());
    world.pool.stop(std::time::Duration::ZERO).await;
    let daemon = memory.history(agent::journal::DAEMON).await.expect("it can be read");
    assert_eq!(daemon.last().map(Record::kind), Some("daemon_stopped"));
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_an_agent_that_is_being_kept_and_leaves_no_task_behind() {
    let world = World::new().await;
    world.store.hold();
    let mut creating = Box::pin(world.create(spec_named("late")));
    assert!((&mut creating).now_or_never().is_none());
    run_until_idle().await;
    let mut stopping = Box::pin(world.pool.stop(std::time::Duration::from_secs(1)));
    assert!((&mut stopping).now_or_never().is_none());
    run_until_idle().await;
    world.store.release();
    let created = creating.await;
    let stopped = tokio::time::timeout(std::time::Duration::from_secs(60), stopping).await;
    assert_eq!(stopped, Ok(0), "a stop that never ends");
    assert!(created.is_ok(), "what is kept is answered so");
    assert_eq!(crate::world::alive_task_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_an_agent_that_is_being_woken_and_leaves_no_task_behind() {
    let world = World::new().await;
    world.agent("a").await;
    let world = world.restart().await;
    world.store.set_commit_yields(3);
    let name = crate::world::agent_id("a");
    let mut waking = Box::pin(world.pool.find(&name));
    assert!((&mut waking).now_or_never().is_none());
    let stopping = world.pool.stop(std::time::Duration::from_secs(1));
    let (woken, stopped) = tokio::join!(waking, async {
        tokio::time::timeout(std::time::Duration::from_secs(60), stopping).await
    });
    assert_eq!(stopped, Ok(0), "a stop that never ends");
    drop(woken);
    run_until_idle().await;
    assert_eq!(crate::world::alive_task_count(), 0);
}
