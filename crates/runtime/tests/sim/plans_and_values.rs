//! State that tools hold for agents: stored values of a tree, the plan of an agent, and the time that a tool waits.

use std::time::Duration;

use agent::TodoItem;
use agent::outside::StoreFault;
use runtime::{
    AgentHandle, ChildPolicy, CompactionCondition, ContextOptions, Fork, Initiator, Limits, PoolOptions,
    VolatileSuffix,
};
use tokio::time::Instant;

use crate::history::tool_texts;
use crate::world::{World, WorldOptions, agent_id, expect_end, start_send};

async fn recall(agent: &AgentHandle, request: i64) -> String {
    expect_end(start_send(agent, request, &format!("#{request} call recall; done | say a; done"))).await;
    tool_texts(agent).pop().expect("a result")
}

#[tokio::test(start_paused = true)]
async fn a_tree_shares_its_values_with_no_other_tree() {
    let world = World::new().await;
    let (parent, other) = (world.trusted_agent("parent").await, world.trusted_agent("other").await);
    let child = world.child_agent("child", &parent).await;
    expect_end(start_send(&child, 1, "#1 call remember x; done | say a; done")).await;
    assert_eq!(recall(&parent, 2).await, r#""x""#);
    assert_eq!(recall(&other, 2).await, "nothing");
    expect_end(start_send(&other, 3, "#3 call remember y; done | say a; done")).await;
    assert_eq!(recall(&child, 4).await, r#""x""#);
    drop((parent, other, child));
    let world = world.restart().await;
    assert_eq!(recall(&world.find("parent").await, 5).await, r#""x""#, "values survive a restart");
}

#[tokio::test(start_paused = true)]
async fn values_end_with_the_last_agent_of_the_tree() {
    let world = World::new().await;
    let parent = world.trusted_agent("a").await;
    let child = world.child_agent("child", &parent).await;
    expect_end(start_send(&parent, 1, "#1 call remember x; done | say a; done")).await;
    drop(parent);
    world.destroy_named("a", ChildPolicy::Orphan).await;
    assert_eq!(recall(&child, 1).await, r#""x""#, "an orphan is in its tree still");
    drop(child);
    world.destroy_named("child", ChildPolicy::Orphan).await;
    assert_eq!(recall(&world.trusted_agent("a").await, 1).await, "nothing", "the name is another agent's");
}

fn steps(agent: &AgentHandle) -> Vec<String> {
    agent.context().todo.into_iter().map(|TodoItem { text, .. }| text).collect()
}

async fn last_suffix(world: &World) -> String {
    let observations = world.model.observations();
    observations
        .requests
        .last()
        .and_then(|request| request.volatile_suffix.as_deref())
        .unwrap_or_default()
        .to_owned()
}

#[tokio::test(start_paused = true)]
async fn plan_survives_restart_and_compaction() {
    let context = ContextOptions { volatile_suffix: VolatileSuffix::On, ..ContextOptions::default() };
    let pool_options = PoolOptions { context, ..WorldOptions::default().pool_options };
    let world = World::open(WorldOptions { pool_options, ..WorldOptions::default() }).await;
    let agent = world.trusted_agent("a").await;
    expect_end(start_send(&agent, 1, "#1 call todo old; done | call todo one two; done | say a; done")).await;
    assert_eq!(steps(&agent), ["one", "two"]);
    drop(agent);
    let world = world.restart().await;
    let agent = world.find("a").await;
    assert_eq!(steps(&agent), ["one", "two"]);
    for number in 2..8 {
        let long = "z".repeat(2000);
        expect_end(start_send(&agent, number, &format!("#{number} say {long}; done"))).await;
    }
    assert!(!last_suffix(&world).await.contains("plan"), "the conversation shows it");
    agent.compact(CompactionCondition::Now, Initiator::Admin).await.expect("the commit succeeds");
    expect_end(start_send(&agent, 9, "#9 say b; done")).await;
    let suffix = last_suffix(&world).await;
    assert!(suffix.contains("\nYour plan:\n[ ] one\n[ ] two\n"), "{suffix}");
    assert_eq!(steps(&agent), ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn plan_ends_with_the_call_that_a_cut_removes() {
    let world = World::new().await;
    let agent = world.trusted_agent("a").await;
    expect_end(start_send(&agent, 1, "#1 say a; done")).await;
    expect_end(start_send(&agent, 2, "#2 call todo one; done | say a; done")).await;
    expect_end(start_send(&agent, 3, "#3 say a; done")).await;
    for (name, messages, expected) in
        [("whole", None, vec!["one"]), ("later", Some(6), vec!["one"]), ("earlier", Some(2), vec![])]
    {
        let fork = Fork { id: Some(agent_id(name)), messages };
        let copy = world.pool.fork(&agent, fork, Initiator::Admin).await.expect("the fork succeeds").handle;
        assert_eq!(steps(&copy), expected, "{name}");
    }
    for (messages, expected) in [(6, vec!["one"]), (2, vec![])] {
        agent.rollback(messages, Initiator::Admin).await.expect("the commit succeeds");
        assert_eq!(steps(&agent), expected, "{messages}");
    }
    drop(agent);
    let world = world.restart().await;
    assert_eq!(steps(&world.find("a").await), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn plan_of_a_failed_commit_is_lost_with_its_call() {
    let world = World::new().await;
    let agent = world.trusted_agent("a").await;
    expect_end(start_send(&agent, 1, "#1 call todo old; done | say a; done")).await;
    let full = StoreFault::Full("no space".to_owned());
    world.store.inject_fault_for_kind("tool_done", usize::MAX, full);
    let sending = start_send(&agent, 2, "#2 call todo new; call doze 1000; done | say a; done");
    assert!(sending.await.expect("no panic").is_err(), "the result is not committed");
    drop(agent);
    assert_eq!(steps(&world.find("a").await), ["old"]);
}

/// As `sleep` does: a wait yields the slot, and neither the model's idle timeout nor the sleep of agents counts it.
#[tokio::test(start_paused = true)]
async fn waiting_tool_yields_the_slot_and_is_not_idle() {
    let limits =
        Limits { turns_running_max: 1, model_idle_timeout: Duration::from_secs(10), ..Limits::default() };
    let world = World::with_limits(limits).await;
    let (waiting, working) = (world.trusted_agent("a").await, world.trusted_agent("b").await);
    let began = Instant::now();
    let sending = start_send(&waiting, 1, "#1 call doze 300000; done | say a; done");
    world.tools.wait_started(1).await;
    assert_eq!(expect_end(start_send(&working, 1, "#1 say b; done")).await.content, "b");
    assert_eq!(began.elapsed().as_secs(), 0, "the only slot was free");
    assert_eq!(expect_end(sending).await.content, "a");
    assert_eq!(began.elapsed().as_secs(), 300);
}
