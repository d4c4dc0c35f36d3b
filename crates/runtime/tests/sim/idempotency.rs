//! Idempotent sends: a duplicate request id joins the turn or gets the stored response; the turn runs once.

use std::sync::Arc;
use std::time::Duration;

use agent::journal::RestartPolicy;
use agent::permission::{Budget, Resource};
use agent::{Fault, FaultKind, TurnOutcome};
use runtime::{AgentHandle, AgentSpec, Limits, PermissionSpec};
use testkit::TestClock;

use crate::history::{idle_history_violation, messages, texts, user_texts};
use crate::world::{
    World, WorldOptions, expect_end, expect_fault, numeric_request_id, run_until_idle, spec_named,
    start_send, without_waiting,
};

const OTHER_SCRIPT: &str = "#1 say something else; done";
const SCRIPT: &str = "#1 report 1; call note x; done | wait; say so; done";

fn assert_reuse_rejected(fault: &Fault) {
    assert_eq!(fault.kind, FaultKind::Invalid);
    assert_eq!(fault.public, "request_id was used before with other content: 1");
}

async fn expect_reuse_rejected(agent: &AgentHandle) {
    assert_reuse_rejected(&without_waiting(expect_fault(start_send(agent, 1, OTHER_SCRIPT))).await);
}

#[tokio::test(start_paused = true)]
async fn duplicates_of_a_running_turn_share_its_response() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let mut sendings: Vec<_> = (0..3).map(|_| start_send(&agent, 1, SCRIPT)).collect();
    run_until_idle().await;
    sendings.push(start_send(&agent, 1, SCRIPT));
    run_until_idle().await;
    assert_eq!(world.pool.open_turns(), 1, "duplicates need no permit");
    expect_reuse_rejected(&agent).await;
    world.model.release_all();
    for sending in sendings {
        let end = expect_end(sending).await;
        assert_eq!((end.content.as_str(), end.rounds), ("so", 2));
    }
    assert_eq!(world.model.observations().prompts.len(), 2, "one model call per round");
    assert_eq!((user_texts(&agent).len(), world.tools.call_lines().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn duplicates_of_a_queued_turn_share_its_response() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let running = start_send(&agent, 5, "#5 wait; say first; done");
    run_until_idle().await;
    let sendings = [start_send(&agent, 1, "#1 say so; done"), start_send(&agent, 1, "#1 say so; done")];
    run_until_idle().await;
    assert_eq!(world.pool.open_turns(), 2);
    expect_reuse_rejected(&agent).await;
    world.model.release_all();
    expect_end(running).await;
    for sending in sendings {
        assert_eq!(expect_end(sending).await.content, "so");
    }
    assert_eq!(user_texts(&agent).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn duplicates_waiting_for_a_slot_share_the_response() {
    let world = World::with_limits(Limits { turns_running_max: 1, ..Limits::default() }).await;
    let (other, agent) = (world.agent("other").await, world.agent("a").await);
    let running = start_send(&other, 5, "#5 wait; say first; done");
    run_until_idle().await;
    let sendings = [start_send(&agent, 1, "#1 say so; done"), start_send(&agent, 1, "#1 say so; done")];
    run_until_idle().await;
    expect_reuse_rejected(&agent).await;
    world.model.release_all();
    expect_end(running).await;
    for sending in sendings {
        assert_eq!(expect_end(sending).await.content, "so");
    }
    assert_eq!(user_texts(&agent).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn duplicate_of_an_ended_turn_gets_the_stored_response() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let first = expect_end(start_send(&agent, 1, "#1 report 3; call note x; done | say so; done")).await;
    for _ in 0..3 {
        let duplicate = without_waiting(expect_end(start_send(
            &agent,
            1,
            "#1 report 3; call note x; done | say so; done",
        )))
        .await;
        assert_eq!(duplicate, first, "with usage and rounds");
    }
    expect_reuse_rejected(&agent).await;
    assert_eq!((world.model.observations().prompts.len(), world.tools.call_lines().len()), (2, 1));
    assert_eq!((texts(&agent).len(), world.pool.open_turns()), (4, 0));
    assert_eq!(expect_end(start_send(&agent, 2, "#2 say on; done")).await.content, "on");
}

#[tokio::test(start_paused = true)]
async fn duplicate_after_restart_gets_the_stored_response() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let first = expect_end(start_send(&agent, 1, "#1 report 3; call note x; done | say so; done")).await;
    drop(agent);
    let world = world.restart().await;
    let agent = world.find("a").await;
    let duplicate = expect_end(start_send(&agent, 1, "#1 report 3; call note x; done | say so; done")).await;
    assert_eq!(duplicate, first);
    expect_reuse_rejected(&agent).await;
    assert_eq!(world.model.observations().prompts.len(), 0);
    assert_eq!(texts(&agent).len(), 4);
}

#[tokio::test(start_paused = true)]
async fn duplicate_of_a_failed_turn_gets_the_same_fault() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let first = expect_fault(start_send(&agent, 1, "#1 say hel; fail")).await;
    assert_eq!(expect_fault(start_send(&agent, 1, "#1 say hel; fail")).await, first);
    drop(agent);
    let world = world.restart().await;
    let agent = world.find("a").await;
    let duplicate = expect_fault(start_send(&agent, 1, "#1 say hel; fail")).await;
    assert_eq!((duplicate.kind, &duplicate.public), (first.kind, &first.public));
    expect_reuse_rejected(&agent).await;
    assert_eq!(texts(&agent), ["#1 say hel; fail", "hel"]);
}

#[tokio::test(start_paused = true)]
async fn duplicate_of_a_cancelled_turn_stays_cancelled() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sending = start_send(&agent, 1, "#1 say hel; wait");
    let queued = start_send(&agent, 2, "#2 say never; done");
    run_until_idle().await;
    assert!(agent.cancel(numeric_request_id(2)).await && agent.cancel(numeric_request_id(1)).await);
    let first = expect_end(sending).await;
    expect_end(queued).await;
    drop(agent);
    let world = world.restart().await;
    let agent = world.find("a").await;
    assert_eq!(expect_end(start_send(&agent, 1, "#1 say hel; wait")).await, first);
    assert_eq!(expect_end(start_send(&agent, 2, "#2 say never; done")).await.outcome, TurnOutcome::Cancelled);
    assert_eq!(world.model.observations().prompts.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn rejected_id_reuse_does_not_block_duplicates() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let first = expect_end(start_send(&agent, 1, "#1 say so; done")).await;
    world.store.hold();
    let other_content = start_send(&agent, 1, OTHER_SCRIPT);
    run_until_idle().await;
    let duplicates = [start_send(&agent, 1, "#1 say so; done"), start_send(&agent, 1, "#1 say so; done")];
    run_until_idle().await;
    world.store.release();
    assert_reuse_rejected(&expect_fault(other_content).await);
    for duplicate in duplicates {
        assert_eq!(expect_end(duplicate).await, first);
    }
    assert_eq!((texts(&agent).len(), world.pool.open_turns()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn queued_id_reuse_does_not_block_a_duplicate() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let first = expect_end(start_send(&agent, 1, "#1 say so; done")).await;
    let running = start_send(&agent, 5, "#5 wait; say first; done");
    run_until_idle().await;
    let other_content = start_send(&agent, 1, OTHER_SCRIPT);
    run_until_idle().await;
    let duplicate = start_send(&agent, 1, "#1 say so; done");
    run_until_idle().await;
    world.model.release_all();
    assert_reuse_rejected(&expect_fault(other_content).await);
    assert_eq!(expect_end(duplicate).await, first);
    assert_eq!(expect_end(running).await.content, "first");
}

#[tokio::test(start_paused = true)]
async fn first_of_two_contents_gets_a_new_request_id() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let running = start_send(&agent, 5, "#5 wait; say first; done");
    for (request_id, running) in [(2, Some(running)), (1, None)] {
        run_until_idle().await;
        world.store.hold();
        let first = start_send(&agent, request_id, "#1 wait; say so; done");
        run_until_idle().await;
        let seconds =
            [start_send(&agent, request_id, OTHER_SCRIPT), start_send(&agent, request_id, OTHER_SCRIPT)];
        run_until_idle().await;
        world.store.release();
        if let Some(running) = running {
            world.model.release_one();
            expect_end(running).await;
        }
        for second in seconds {
            let fault = without_waiting(expect_fault(second)).await;
            assert_eq!(fault.public, format!("request_id was used before with other content: {request_id}"));
        }
        run_until_idle().await;
        assert_eq!(world.pool.open_turns(), 1, "the first turn still runs");
        world.model.release_one();
        assert_eq!(expect_end(first).await.content, "so");
    }
    assert_eq!((user_texts(&agent).len(), world.pool.open_turns()), (3, 0));
}

/// An agent whose send 1 was interrupted by a stop of the daemon.
async fn interrupted_send() -> (World, AgentHandle) {
    let world = World::new().await;
    let spec = AgentSpec { on_restart: Some(RestartPolicy::Mark), ..spec_named("a") };
    let agent = world.create_handle(spec).await;
    start_send(&agent, 1, "#1 wait; say so; done");
    run_until_idle().await;
    drop(agent);
    let world = world.restart().await;
    let agent = world.find("a").await;
    run_until_idle().await;
    (world, agent)
}

#[tokio::test(start_paused = true)]
async fn cancel_affects_only_the_matching_queued_send() {
    let (world, agent) = interrupted_send().await;
    let running = start_send(&agent, 5, "#5 wait; say first; done");
    run_until_idle().await;
    let other_content = start_send(&agent, 1, OTHER_SCRIPT);
    run_until_idle().await;
    let duplicate = start_send(&agent, 1, "#1 wait; say so; done");
    run_until_idle().await;
    agent.cancel(numeric_request_id(1)).await;
    assert_reuse_rejected(&expect_fault(other_content).await);
    let fault = expect_fault(duplicate).await;
    assert_eq!(fault.kind, FaultKind::Interrupted, "it had ended before: {fault:?}");
    world.model.release_all();
    expect_end(running).await;
    assert_eq!(world.model.observations().prompts.len(), 1, "a cancelled turn is not reopened");
}

#[tokio::test(start_paused = true)]
async fn cancel_during_id_lookup_cancels_the_send() {
    let (world, agent) = interrupted_send().await;
    for id_reused in [false, true] {
        world.store.hold();
        let other_content = id_reused.then(|| start_send(&agent, 1, OTHER_SCRIPT));
        run_until_idle().await;
        let duplicate = start_send(&agent, 1, "#1 wait; say so; done");
        run_until_idle().await;
        let cancelling = {
            let agent = agent.clone();
            tokio::spawn(async move { agent.cancel(numeric_request_id(1)).await })
        };
        run_until_idle().await;
        world.store.release();
        cancelling.await.expect("a cancel does not panic");
        if let Some(other_content) = other_content {
            assert_reuse_rejected(&expect_fault(other_content).await);
        }
        let response = duplicate.await.expect("a send does not panic");
        let is_cancelled = response.is_ok_and(|end| end.outcome == TurnOutcome::Cancelled);
        assert!(is_cancelled || id_reused, "the send is cancelled");
        assert_eq!(world.pool.open_turns(), 0);
    }
    assert_eq!(world.model.observations().prompts.len(), 0, "a cancelled turn is not reopened");
}

#[tokio::test(start_paused = true)]
async fn duplicate_send_consumes_no_budget() {
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
    assert_eq!(expect_end(start_send(&agent, 2, "#2 say on; done")).await.content, "on", "one turn is left");
}

#[tokio::test(start_paused = true)]
async fn duplicate_send_leaves_message_counts_correct() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    for _ in 0..3 {
        expect_end(start_send(&agent, 1, "#1 say so; done")).await;
    }
    expect_reuse_rejected(&agent).await;
    expect_end(start_send(&agent, 2, "#2 say on; done")).await;
    drop(agent);
    let world = world.restart().await;
    assert_eq!(world.listed_status("a").await.message_count, 4);
    assert_eq!(texts(&world.find("a").await).len(), 4);
}

#[tokio::test(start_paused = true)]
async fn cancelled_queued_duplicate_gets_the_stored_response() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "#1 say so; done")).await;
    let running = start_send(&agent, 2, "#2 wait; say on; done");
    run_until_idle().await;
    let duplicate = start_send(&agent, 1, "#1 say so; done");
    run_until_idle().await;
    agent.cancel(numeric_request_id(1)).await;
    world.model.release_all();
    assert_eq!(expect_end(duplicate).await.content, "so");
    expect_end(running).await;
    assert_eq!(texts(&agent).len(), 4);
}

#[tokio::test(start_paused = true)]
async fn request_id_expires_after_its_retention_time() {
    let (clock, limits) = (Arc::new(TestClock::default()), Limits::default());
    let retention = limits.request_retention;
    let world =
        World::open(WorldOptions { clock: Arc::<TestClock>::clone(&clock), ..WorldOptions::default() }).await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "#1 say so; done")).await;
    clock.advance(retention - Duration::from_secs(1));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    expect_reuse_rejected(&agent).await;
    assert_eq!(expect_end(start_send(&agent, 1, "#1 say so; done")).await.content, "so");
    clock.advance(Duration::from_secs(2));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(expect_end(start_send(&agent, 1, "#1 say anew; done")).await.content, "anew");
    assert_eq!(texts(&agent).len(), 4, "the messages stay");
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
async fn request_id_of_an_open_turn_never_expires() {
    let clock = Arc::new(TestClock::default());
    let limits = Limits { model_idle_timeout: Duration::from_secs(1_000_000), ..Limits::default() };
    let options = WorldOptions { clock: Arc::<TestClock>::clone(&clock), ..WorldOptions::default() }
        .with_limits(limits);
    let world = World::open(options).await;
    let agent = world.agent("a").await;
    let sending = start_send(&agent, 1, "#1 wait; say so; done");
    run_until_idle().await;
    clock.advance(Duration::from_secs(100 * 24 * 3600));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    expect_reuse_rejected(&agent).await;
    world.model.release_all();
    assert_eq!(expect_end(sending).await.content, "so");
}

#[tokio::test(start_paused = true)]
async fn request_ids_are_scoped_to_one_agent() {
    let world = World::new().await;
    let (first, second) = (world.agent("a").await, world.agent("b").await);
    assert_eq!(expect_end(start_send(&first, 1, "#1 say a; done")).await.content, "a");
    assert_eq!(expect_end(start_send(&second, 1, "#2 say b; done")).await.content, "b");
    assert!(world.destroy(&first).await);
    let successor = world.agent("a").await;
    assert_eq!(
        expect_end(start_send(&successor, 1, "#3 say c; done")).await.content,
        "c",
        "the successor has its own request ids"
    );
}

#[tokio::test(start_paused = true)]
async fn uncommitted_send_does_not_use_its_request_id() {
    let world = World::with_limits(Limits { agent_turns_open_max: 1, ..Limits::default() }).await;
    let agent = world.agent("a").await;
    let running = start_send(&agent, 5, "#5 wait; say first; done");
    run_until_idle().await;
    let fault = expect_fault(start_send(&agent, 1, "#1 say so; done")).await;
    assert!(crate::world::is_busy(&fault));
    world.model.release_all();
    expect_end(running).await;
    assert_eq!(
        expect_end(start_send(&agent, 1, "#1 say other; done")).await.content,
        "other",
        "the request id is unused"
    );
    assert_eq!(idle_history_violation(&messages(&agent)), None);
}

#[tokio::test(start_paused = true)]
async fn rolled_back_turn_retains_its_response() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "#1 say so; done")).await;
    assert_eq!(agent.rollback(0, runtime::Initiator::Admin).await, Ok(2));
    assert_eq!(expect_end(start_send(&agent, 1, "#1 say so; done")).await.content, "so");
    assert_eq!(texts(&agent), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn duplicate_during_cancel_commit_is_cancelled_too() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let running = start_send(&agent, 5, "#5 wait; say first; done");
    run_until_idle().await;
    let queued = start_send(&agent, 1, "#1 say so; done");
    run_until_idle().await;
    world.store.hold();
    let cancelling = {
        let agent = agent.clone();
        tokio::spawn(async move { agent.cancel(numeric_request_id(1)).await })
    };
    run_until_idle().await;
    let duplicate = start_send(&agent, 1, "#1 say so; done");
    run_until_idle().await;
    world.model.release_all();
    run_until_idle().await;
    world.store.release();
    assert!(cancelling.await.expect("a cancel does not panic"));
    for sending in [queued, duplicate] {
        assert_eq!(expect_end(sending).await.outcome, TurnOutcome::Cancelled);
    }
    expect_end(running).await;
    assert_eq!(user_texts(&agent).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn duplicate_during_destroy_is_cancelled() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "#1 say so; done")).await;
    world.store.hold();
    let (destroyed, duplicate) = tokio::join!(world.destroy(&agent), async {
        run_until_idle().await;
        let duplicate = start_send(&agent, 1, "#1 say so; done");
        run_until_idle().await;
        world.store.release();
        expect_end(duplicate).await
    });
    assert!(destroyed);
    assert_eq!(duplicate.outcome, TurnOutcome::Cancelled, "the response is destroyed with the agent");
}
