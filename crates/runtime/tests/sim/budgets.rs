//! Budgets: an exhausted budget halts a turn, a raised limit lets it continue, and reservations are refunded.

use std::time::Duration;

use agent::permission::{Budget, Resource};
use agent::{FaultKind, Halt, TurnEnd, TurnOutcome};
use runtime::{AgentHandle, AgentSpec, ChildPolicy, PermissionChange, PermissionSpec, ResourceUsage};
use tokio::time::Instant;

use crate::history::{idle_history_violation, messages, texts, tool_texts, user_texts};
use crate::world::{
    World, expect_end, expect_fault, numeric_request_id, run_until_idle, spec_named, start_send, with_parent,
    without_waiting,
};

fn with_limit(spec: AgentSpec, resource: Resource, limit: u64) -> AgentSpec {
    let budget = spec.permissions.budget.with_limit(resource, Some(limit));
    AgentSpec { permissions: PermissionSpec { budget, ..spec.permissions.clone() }, ..spec }
}

/// Creates a parent with a limit.
async fn create_limited_parent(world: &World, name: &str, resource: Resource, limit: u64) -> AgentHandle {
    world
        .create_handle(with_limit(crate::world::with_preset(spec_named(name), "trusted"), resource, limit))
        .await
}

async fn set_limit(world: &World, agent: &AgentHandle, resource: Resource, limit: Option<u64>) {
    let change = PermissionChange { budget: vec![(resource, limit)], ..PermissionChange::default() };
    world.change_permissions(agent, &change).await.expect("the limit is available");
}

fn resource_usage(world: &World, agent: &AgentHandle, resource: Resource) -> ResourceUsage {
    let usage = world.pool.permissions(agent).resource_usage;
    *usage.iter().find(|account| account.resource == resource).expect("every resource is listed")
}

/// Limit, used, reserved, remaining.
fn usage_figures(
    world: &World,
    agent: &AgentHandle,
    resource: Resource,
) -> (Option<u64>, u64, u64, Option<u64>) {
    let usage = resource_usage(world, agent, resource);
    (usage.limit, usage.used, usage.reserved, usage.remaining)
}

fn assert_halted(end: &TurnEnd, resource: Resource) {
    assert_eq!(end.outcome, TurnOutcome::Completed);
    assert_eq!(end.halted, Some(Halt::Budget(resource)));
    assert!(
        end.content.ends_with(&format!("[Stopping: the budget of {resource} is used up]")),
        "{}",
        end.content
    );
}

#[tokio::test(start_paused = true)]
async fn turn_budget_halts_until_raised() {
    let world = World::new().await;
    let agent = world.create_handle(with_limit(spec_named("a"), Resource::Turns, 1)).await;
    assert_eq!(expect_end(start_send(&agent, 1, "#1 say a; done")).await.content, "a");
    assert_halted(&expect_end(start_send(&agent, 2, "#2 say never; done")).await, Resource::Turns);
    assert_eq!(world.model.observations().prompts.len(), 1, "the model was not called");
    assert_eq!(world.status(&agent).halted, Some(Halt::Budget(Resource::Turns)));
    assert_eq!(idle_history_violation(&messages(&agent)), None);
    set_limit(&world, &agent, Resource::Turns, Some(2)).await;
    assert_eq!(expect_end(start_send(&agent, 3, "#3 say b; done")).await.content, "b");
    assert_eq!(user_texts(&agent).len(), 3, "the halted message is committed");
    assert_eq!(usage_figures(&world, &agent, Resource::Turns), (Some(2), 2, 0, Some(0)));
}

#[tokio::test(start_paused = true)]
async fn tool_call_budget_halts_until_raised() {
    let world = World::new().await;
    let agent = world.create_handle(with_limit(spec_named("a"), Resource::ToolCalls, 2)).await;
    let script = "#1 call slow 10; call note b; call note c; call step 1; done | say never; done";
    assert_halted(&expect_end(start_send(&agent, 1, script)).await, Resource::ToolCalls);
    let skipped = "Did not execute: the budget of tool_calls is used up";
    assert_eq!(tool_texts(&agent), ["took 10", "noted b", skipped, skipped], "running calls may end");
    assert_eq!(idle_history_violation(&messages(&agent)), None);
    assert_eq!(
        expect_end(start_send(&agent, 2, "#2 say text; done")).await.content,
        "text",
        "text needs no tool calls"
    );
    set_limit(&world, &agent, Resource::ToolCalls, None).await;
    assert_eq!(expect_end(start_send(&agent, 3, "#3 call note d; done | say b; done")).await.content, "b");
}

#[tokio::test(start_paused = true)]
async fn denied_call_consumes_no_budget() {
    let world = World::new().await;
    let agent = world.create_handle(with_limit(spec_named("a"), Resource::ToolCalls, 1)).await;
    let script =
        "call write x; call agent_create; call nonsense; call note !; call note b; done | say a; done";
    assert_eq!(expect_end(start_send(&agent, 1, script)).await.content, "a");
    assert_eq!(usage_figures(&world, &agent, Resource::ToolCalls), (Some(1), 1, 0, Some(0)));
}

#[tokio::test(start_paused = true)]
async fn token_budget_halts_until_raised() {
    let world = World::new().await;
    let agent = world.create_handle(with_limit(spec_named("a"), Resource::Tokens, 10)).await;
    let end = expect_end(start_send(
        &agent,
        1,
        "#1 report 8; call note a; done | report 8; call note b; done | say c; done",
    ))
    .await;
    assert_halted(&end, Resource::Tokens);
    assert_eq!(
        usage_figures(&world, &agent, Resource::Tokens),
        (Some(10), 18, 0, Some(0)),
        "one response beyond the limit"
    );
    assert_halted(&expect_end(start_send(&agent, 2, "#2 say never; done")).await, Resource::Tokens);
    set_limit(&world, &agent, Resource::Tokens, Some(19)).await;
    assert_eq!(expect_end(start_send(&agent, 3, "#3 report 1; say b; done")).await.content, "b");
}

#[tokio::test(start_paused = true)]
async fn wall_time_budget_halts_a_model_response() {
    let world = World::new().await;
    let agent = world.create_handle(with_limit(spec_named("a"), Resource::WallMs, 1000)).await;
    let started_at = Instant::now();
    let end = expect_end(start_send(&agent, 1, "#1 say hel; pass 5000; say lo; done")).await;
    assert_halted(&end, Resource::WallMs);
    assert!(end.content.starts_with("hel["), "{}", end.content);
    assert_eq!((started_at.elapsed(), world.model.observations().live_total), (Duration::from_secs(1), 0));
    assert_halted(&expect_end(start_send(&agent, 2, "#2 say never; done")).await, Resource::WallMs);
    set_limit(&world, &agent, Resource::WallMs, Some(9000)).await;
    assert_eq!(
        expect_end(start_send(&agent, 3, "#3 say hel; pass 5000; say lo; done")).await.content,
        "hello"
    );
    assert_eq!(usage_figures(&world, &agent, Resource::WallMs), (Some(9000), 6000, 0, Some(3000)));
}

#[tokio::test(start_paused = true)]
async fn wall_time_budget_halts_running_tools() {
    let world = World::new().await;
    let agent = world.create_handle(with_limit(spec_named("a"), Resource::WallMs, 1000)).await;
    let script = "call slow 500; call slow 5000; call step 1; done | say never; done";
    assert_halted(&expect_end(start_send(&agent, 1, script)).await, Resource::WallMs);
    let (stopped, skipped) =
        ("Stopped: the budget of wall_ms is used up", "Did not execute: the budget of wall_ms is used up");
    assert_eq!(tool_texts(&agent), ["took 500", stopped, skipped]);
    assert_eq!(world.tools.observations().live, 0);
    assert_eq!(idle_history_violation(&messages(&agent)), None);
}

#[tokio::test(start_paused = true)]
async fn wall_time_raised_mid_turn_applies_to_the_turn() {
    let world = World::new().await;
    let agent = world.create_handle(with_limit(spec_named("a"), Resource::WallMs, 1000)).await;
    let sending = start_send(&agent, 1, "say hel; pass 5000; say lo; done");
    tokio::time::sleep(Duration::from_millis(500)).await;
    set_limit(&world, &agent, Resource::WallMs, Some(9000)).await;
    assert_eq!(expect_end(sending).await.content, "hello");
}

#[tokio::test(start_paused = true)]
async fn child_budget_limits_live_children_until_raised() {
    let world = World::new().await;
    let agent = create_limited_parent(&world, "p", Resource::Children, 1).await;
    let child = world.child_agent("c", &agent).await;
    let fault = world.expect_create_rejected(with_parent(spec_named("d"), &agent)).await;
    assert_eq!(fault.kind, FaultKind::Denied);
    assert!(world.destroy(&child).await);
    world.child_agent("d", &agent).await;
    assert_eq!(usage_figures(&world, &agent, Resource::Children), (Some(1), 1, 0, Some(0)));
    set_limit(&world, &agent, Resource::Children, Some(2)).await;
    world.child_agent("e", &agent).await;
    assert_eq!(
        world.expect_create_rejected(with_parent(spec_named("f"), &agent)).await.kind,
        FaultKind::Denied
    );
}

#[tokio::test(start_paused = true)]
async fn unlimited_child_consumes_the_parents_budget() {
    let world = World::new().await;
    let parent = create_limited_parent(&world, "p", Resource::Turns, 3).await;
    let child = world.child_agent("c", &parent).await;
    for number in 1..=2 {
        expect_end(start_send(&child, number, &format!("#{number} say a; done"))).await;
    }
    assert_eq!(usage_figures(&world, &parent, Resource::Turns), (Some(3), 2, 0, Some(1)));
    assert_eq!(usage_figures(&world, &child, Resource::Turns), (None, 2, 0, Some(1)));
    expect_end(start_send(&parent, 1, "#3 say b; done")).await;
    assert_halted(&expect_end(start_send(&child, 4, "#4 say never; done")).await, Resource::Turns);
    assert!(world.destroy(&child).await);
    assert_eq!(usage_figures(&world, &parent, Resource::Turns), (Some(3), 3, 0, Some(0)));
}

#[tokio::test(start_paused = true)]
async fn child_budget_is_reserved_and_the_rest_refunded() {
    let world = World::new().await;
    let parent = create_limited_parent(&world, "p", Resource::Turns, 10).await;
    let child =
        world.create_handle(with_limit(with_parent(spec_named("c"), &parent), Resource::Turns, 6)).await;
    assert_eq!(usage_figures(&world, &parent, Resource::Turns), (Some(10), 0, 6, Some(4)));
    let fault = world
        .expect_create_rejected(with_limit(with_parent(spec_named("d"), &parent), Resource::Turns, 5))
        .await;
    assert!(fault.public.contains("what the parent has left") && fault.public.ends_with(": 4"), "{fault}");
    expect_end(start_send(&child, 1, "say a; done")).await;
    assert_eq!(usage_figures(&world, &parent, Resource::Turns), (Some(10), 0, 6, Some(4)));
    assert!(world.destroy(&child).await);
    assert_eq!(usage_figures(&world, &parent, Resource::Turns), (Some(10), 1, 0, Some(9)));
}

#[tokio::test(start_paused = true)]
async fn orphan_budget_is_refunded_when_it_is_destroyed() {
    let world = World::new().await;
    let top = world
        .create_handle(with_limit(crate::world::with_preset(spec_named("top"), "yolo"), Resource::Turns, 10))
        .await;
    let middle = with_limit(
        with_parent(crate::world::with_preset(spec_named("middle"), "yolo"), &top),
        Resource::Turns,
        6,
    );
    let middle = world.create_handle(middle).await;
    let orphan =
        world.create_handle(with_limit(with_parent(spec_named("orphan"), &middle), Resource::Turns, 2)).await;
    expect_end(start_send(&middle, 1, "#1 say a; done")).await;
    assert!(world.destroy_named("middle", ChildPolicy::Orphan).await);
    assert_eq!(
        usage_figures(&world, &top, Resource::Turns),
        (Some(10), 0, 6, Some(4)),
        "an orphan still uses it"
    );
    expect_end(start_send(&orphan, 1, "#2 say b; done")).await;
    assert!(world.destroy(&orphan).await);
    assert_eq!(usage_figures(&world, &top, Resource::Turns), (Some(10), 2, 0, Some(8)));
}

#[tokio::test(start_paused = true)]
async fn unlimited_orphan_uses_its_dead_parents_budget() {
    let world = World::new().await;
    let top = world
        .create_handle(with_limit(crate::world::with_preset(spec_named("top"), "yolo"), Resource::Turns, 4))
        .await;
    let middle = with_limit(
        with_parent(crate::world::with_preset(spec_named("middle"), "yolo"), &top),
        Resource::Turns,
        2,
    );
    let middle = world.create_handle(middle).await;
    let orphan = world.child_agent("orphan", &middle).await;
    assert!(world.destroy_named("middle", ChildPolicy::Orphan).await);
    for number in 1..=2 {
        assert_eq!(
            expect_end(start_send(&orphan, number, &format!("#{number} say a; done"))).await.halted,
            None
        );
    }
    assert_halted(&expect_end(start_send(&orphan, 3, "#3 say never; done")).await, Resource::Turns);
    for number in 4..=5 {
        assert_eq!(
            expect_end(start_send(&top, number, &format!("#{number} say b; done"))).await.halted,
            None
        );
    }
    assert_halted(&expect_end(start_send(&top, 6, "#6 say never; done")).await, Resource::Turns);
    assert!(world.destroy(&orphan).await);
    assert_eq!(usage_figures(&world, &top, Resource::Turns), (Some(4), 4, 0, Some(0)));
}

#[tokio::test(start_paused = true)]
async fn lowered_limit_refunds_only_unused_budget() {
    let world = World::new().await;
    let parent = create_limited_parent(&world, "p", Resource::Turns, 4).await;
    let child =
        world.create_handle(with_limit(with_parent(spec_named("c"), &parent), Resource::Turns, 4)).await;
    for number in 1..=3 {
        expect_end(start_send(&child, number, &format!("#{number} say a; done"))).await;
    }
    set_limit(&world, &child, Resource::Turns, Some(1)).await;
    assert_eq!(resource_usage(&world, &parent, Resource::Turns).remaining, Some(1));
    assert!(world.destroy(&child).await);
    assert_eq!(usage_figures(&world, &parent, Resource::Turns), (Some(4), 3, 0, Some(1)));
}

#[tokio::test(start_paused = true)]
async fn wall_time_of_a_destroyed_child_is_debited() {
    let world = World::new().await;
    let parent = create_limited_parent(&world, "p", Resource::WallMs, 100_000).await;
    let shared = world.child_agent("shared", &parent).await;
    let limited = world
        .create_handle(with_limit(with_parent(spec_named("own"), &parent), Resource::WallMs, 50_000))
        .await;
    let sendings = [start_send(&shared, 1, "#1 wait"), start_send(&limited, 1, "#2 wait")];
    tokio::time::sleep(Duration::from_secs(10)).await;
    for agent in [&shared, &limited] {
        assert!(world.destroy(agent).await);
    }
    for sending in sendings {
        assert_eq!(expect_end(sending).await.outcome, TurnOutcome::Cancelled);
    }
    assert_eq!(usage_figures(&world, &parent, Resource::WallMs), (Some(100_000), 20_000, 0, Some(80_000)));
}

#[tokio::test(start_paused = true)]
async fn cancelled_turn_consumes_budget() {
    let world = World::new().await;
    let budget =
        Budget::unlimited().with_limit(Resource::Turns, Some(9)).with_limit(Resource::WallMs, Some(9000));
    let agent = world
        .create_handle(AgentSpec {
            permissions: PermissionSpec { budget, ..PermissionSpec::default() },
            ..spec_named("a")
        })
        .await;
    let sending = start_send(&agent, 1, "say hel; wait");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(without_waiting(agent.cancel(numeric_request_id(1))).await);
    expect_end(sending).await;
    assert_eq!(usage_figures(&world, &agent, Resource::Turns), (Some(9), 1, 0, Some(8)));
    assert_eq!(usage_figures(&world, &agent, Resource::WallMs), (Some(9000), 2000, 0, Some(7000)));
    let running = start_send(&agent, 2, "wait");
    let queued = start_send(&agent, 3, "say never; done");
    run_until_idle().await;
    assert!(without_waiting(agent.cancel(numeric_request_id(3))).await);
    expect_end(queued).await;
    assert_eq!(resource_usage(&world, &agent, Resource::Turns).used, 2, "a queued turn consumes nothing");
    assert!(without_waiting(agent.cancel(numeric_request_id(2))).await);
    expect_end(running).await;
    assert_eq!(texts(&agent).len(), 4);
}

#[tokio::test(start_paused = true)]
async fn token_budget_counts_what_the_model_does_not_report() {
    for (report, estimates_all) in
        [("", true), ("report 0; ", false), ("report 9007199254740992; ", false), ("think hm; ", true)]
    {
        let world = World::new().await;
        let agent = world.create_handle(with_limit(spec_named("a"), Resource::Tokens, 50)).await;
        let script = format!("say some words; {report}done");
        let usage = expect_end(start_send(&agent, 1, &script)).await.usage.expect("counted");
        assert!((50..100).contains(&usage.input), "{report}: {usage:?}");
        let estimated = if estimates_all { usage.input + usage.output } else { usage.input };
        assert_eq!(usage.estimated, estimated, "{report}: the output was reported as 1");
        assert_eq!(agent.tokens().usage_totals.usage, usage, "{report}");
        assert_eq!(resource_usage(&world, &agent, Resource::Tokens).used, usage.input + usage.output);
        assert_halted(&expect_end(start_send(&agent, 2, &script)).await, Resource::Tokens);
        assert_eq!(world.model.observations().requests.len(), 1, "{report}");
    }
}

#[tokio::test(start_paused = true)]
async fn responses_that_break_off_consume_tokens() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let used = || resource_usage(&world, &agent, Resource::Tokens).used;
    expect_fault(start_send(&agent, 1, "fail")).await;
    assert_eq!(used(), 0, "no response arrived");
    expect_fault(start_send(&agent, 2, "say hel; fail")).await;
    let failed = used();
    assert!(failed > 50, "{failed}");
    let sending = start_send(&agent, 3, "say hel; wait");
    run_until_idle().await;
    assert!(agent.cancel(numeric_request_id(3)).await);
    let usage = expect_end(sending).await.usage.expect("counted");
    assert_eq!((usage.estimated, used()), (usage.input + usage.output, failed + usage.input + usage.output));
    expect_fault(start_send(&agent, 4, "report 7; say hel; fail")).await;
    assert_eq!(agent.tokens().usage_totals.requests, 3);
}
