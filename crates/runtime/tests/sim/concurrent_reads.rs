//! Reads of an agent at any time: while a turn runs, and concurrently with other readers and writers.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agent::{Halt, Role, Usage, UsageTotals};
use futures_util::FutureExt;
use runtime::{AgentSpec, Limits, PoolHandle};
use testkit::{TestClock, WINDOW_TOKENS};

use crate::history::{roles, texts};
use crate::world::{
    World, block_on_paused, expect_end, expect_fault, numeric_request_id, run_until_idle, spec_named,
    start_send,
};

#[tokio::test(start_paused = true)]
async fn running_turn_is_readable_up_to_its_last_commit() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    assert_eq!(world.status(&agent).last_action_at, None);
    let sending = start_send(&agent, 1, "say let me see; call note; done | say hel; wait; say lo; done");
    world.model.wait_called(2).await;
    run_until_idle().await;
    assert_eq!(roles(&agent), [Role::User, Role::Assistant, Role::Tool]);
    assert_eq!(agent.messages(0, 10).messages[1].tool_calls[0].name, "note");
    let status = world.status(&agent);
    assert_eq!((status.id.as_str(), status.message_count, status.created_at), ("a", 3, TestClock::NOW));
    assert_eq!(
        (status.model.as_deref(), status.last_action_at),
        (Some("scripted/one"), Some(TestClock::NOW))
    );
    assert_eq!((agent.context().message_count, agent.context().has_system_prompt), (3, true));
    let size = agent.tokens().size;
    assert_eq!((size.budget, size.total), (WINDOW_TOKENS, size.system + size.messages + size.tools));
    assert!(size.tools > 0, "allowed tools consume tokens");
    world.model.release_all();
    assert_eq!(expect_end(sending).await.content, "let me seehello");
    assert_eq!(roles(&agent).len(), 4);
    assert!(agent.tokens().size.messages > size.messages);
}

#[tokio::test(start_paused = true)]
async fn message_pages_have_no_gap_or_overlap() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    for number in 0..5 {
        expect_end(start_send(&agent, number, &format!("#{number} say {number}; done"))).await;
    }
    let all = texts(&agent);
    let paged: Vec<_> = (0..4).flat_map(|page| agent.messages(page * 3, 3).messages).collect();
    assert_eq!(paged.iter().map(|message| message.text.clone()).collect::<Vec<_>>(), all);
    for (offset, limit) in [(10, 1), (usize::MAX, usize::MAX), (0, 0)] {
        let page = agent.messages(offset, limit);
        assert_eq!((page.total, page.messages.len()), (10, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn usage_accumulates_over_rounds_and_turns() {
    let world = World::with_limits(Limits { tool_iterations_max: 3, ..Limits::default() }).await;
    let agent = world.agent("a").await;
    let end =
        expect_end(start_send(&agent, 1, "#1 report 1; call note; done | report 10; say a; done")).await;
    assert_eq!(end.usage, Some(Usage { input: 11, output: 2, ..Usage::default() }));
    expect_fault(start_send(&agent, 2, "#2 report 100; fail")).await;
    let sending = start_send(&agent, 3, "#3 report 1000; wait");
    run_until_idle().await;
    assert!(agent.cancel(numeric_request_id(3)).await);
    expect_end(sending).await;
    let used =
        UsageTotals { requests: 4, usage: Usage { input: 1111, output: 4, ..Usage::default() }, cost: 0 };
    assert_eq!(agent.tokens().usage_totals, used);
}

#[tokio::test(start_paused = true)]
async fn next_turn_clears_the_halted_state() {
    let world = World::with_limits(Limits { tool_iterations_max: 3, ..Limits::default() }).await;
    let agent = world.agent("a").await;
    let end = expect_end(start_send(&agent, 1, "call note; done")).await;
    assert_eq!(end.halted, Some(Halt::IterationLimit));
    assert_eq!((end.rounds, agent.context().last_rounds, agent.context().rounds_max), (3, 3, 3));
    assert!(agent.context().halted.is_some() && world.status(&agent).halted.is_some());
    let sending = start_send(&agent, 2, "wait; say a; done");
    run_until_idle().await;
    world.model.release_all();
    assert_eq!(expect_end(sending).await.halted, None);
    assert!(agent.context().halted.is_none() && world.status(&agent).halted.is_none());
    assert_eq!(agent.context().last_rounds, 1);
}

#[tokio::test(start_paused = true)]
async fn request_has_the_system_prompt_and_the_history() {
    let world = World::new().await;
    let with_prompt = world
        .create_handle(AgentSpec { system_prompt: Some("be brief".to_owned()), ..spec_named("own") })
        .await;
    let without_prompt =
        world.create_handle(AgentSpec { system_prompt: Some(String::new()), ..spec_named("none") }).await;
    let agents = [with_prompt, without_prompt, world.agent("default").await];
    for agent in &agents {
        expect_end(start_send(agent, 1, "say a; done")).await;
        expect_fault(start_send(agent, 2, "fail")).await;
        expect_end(start_send(agent, 3, "say c; done")).await;
    }
    let observations = world.model.observations();
    let prompts: Vec<_> =
        observations.requests.iter().step_by(3).map(|request| request.system.as_deref()).collect();
    assert_eq!(prompts, [Some("be brief"), None, Some("the pool's prompt")]);
    let shown: Vec<_> =
        observations.requests[2].messages.iter().map(|message| message.text.as_str()).collect();
    assert_eq!(shown, ["say a; done", "a", "fail", "[failed]", "say c; done"]);
}

#[test]
fn no_outside_call_runs_under_a_lock() {
    let (done, finished) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        block_on_paused(async {
            // The clock reads the pool before it returns, as a logging one would.
            let pool = Arc::new(OnceLock::<PoolHandle>::new());
            let read = Arc::clone(&pool);
            let clock = TestClock::calling(move || {
                let _ = read.get().map(|pool| (pool.agent_count(), pool.list().now_or_never()));
            });
            let world = World::with_clock(Arc::new(clock), Limits::default()).await;
            let _ = pool.set(world.pool.clone());
            let end = expect_end(start_send(&world.agent("a").await, 1, "say a; done")).await;
            done.send(end.content).expect("the test waits");
        });
    });
    let content = finished.recv_timeout(Duration::from_secs(20));
    assert_eq!(content.as_deref(), Ok("a"), "deadlock: the clock waits for its caller's lock");
}
