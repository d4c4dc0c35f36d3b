//! Budgets: what is used up halts a turn, more lets it go on, and shares come back from whoever is gone.

use std::time::Duration;

use agent::permission::{Budget, Resource};
use agent::{FaultKind, Halt, TurnEnd, TurnOutcome};
use runtime::{AgentHandle, AgentSpec, ChildPolicy, PermissionChange, PermissionSpec, ResourceUsage};
use tokio::time::Instant;

use crate::history::{idle_history_violation, messages, texts, tool_texts, user_texts};
use crate::world::{
    World, expect_end, numeric_request_id, run_until_idle, spec_named, start_send, with_parent,
    without_waiting,
};

fn with_limit(spec: AgentSpec, resource: Resource, limit: u64) -> AgentSpec {
    let budget = spec.permissions.budget.with_limit(resource, Some(limit));
    AgentSpec { permissions: PermissionSpec { budget, ..spec.permissions.clone() }, ..spec }
}

/// An agent that may have children.
async fn create_limited_parent(world: &World, name: &str, resource: Resource, limit: u64) -> AgentHandle {
    world
        .create_handle(with_limit(crate::world::with_preset(spec_named(name), "trusted"), resource, limit))
        .await
}

async fn set_limit(world: &World, agent: &AgentHandle, resource: Resource, limit: Option<u64>) {
    let change = PermissionChange { budget: vec![(resource, limit)], ..PermissionChange::default() };
    world.change_permissions(agent, &change).await.expect("there is so much");
}

fn resource_usage(world: &World, agent: &AgentHandle, resource: Resource) -> ResourceUsage {
    let holdings = world.pool.permissions(agent).resource_usage;
    *holdings.iter().find(|one| one.resource == resource).expect("every resource is held")
}

/// Limit, used, reserved, left.
fn usage_figures(
    world: &World,
    agent: &AgentHandle,
    resource: Resource,
) -> (Option<u64>, u64, u64, Option<u64>) {
    let one = resource_usage(world, agent, resource);
    (one.limit, one.used, one.reserved, one.remaining)
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
async fn turns_halt_and_go_on() {
    let world = World::new().await;
    let agent = world.create_handle(with_limit(spec_named("a"), Resource::Turns, 1)).await;
    assert_eq!(expect_end(start_send(&agent, 1, "#1 say a; done")).await.content, "a");
    assert_halted(&expect_end(start_send(&agent, 2, "#2 say never; done")).await, Resource::Turns);
    assert_eq!(world.model.observations().prompts.len(), 1, "the model was not asked");
    assert_eq!(world.summary(&agent).halted, Some(Halt::Budget(Resource::Turns)));
    assert_eq!(idle_history_violation(&messages(&agent)), None);
    set_limit(&world, &agent, Resource::Turns, Some(2)).await;
    assert_eq!(expect_end(start_send(&agent, 3, "#3 say b; done")).await.content, "b");
    assert_eq!(user_texts(&agent).len(), 3, "what was asked in vain is kept");
    assert_eq!(usage_figures(&world, &agent, Resource::Turns), (Some(2), 2, 0, Some(0)));
}

#[tokio::test(start_paused = true)]
async fn tool_calls_halt_and_go_on() {
    let world = World::new().await;
    let agent = world.create_handle(with_limit(spec_named("a"), Resource::ToolCalls, 2)).await;
    let script = "#1 call slow 10; call note b; call note c; call step 1; done | say never; done";
    assert_halted(&expect_end(start_send(&agent, 1, script)).await, Resource::ToolCalls);
    let spent = "Did not execute: the budget of tool_calls is used up";
    assert_eq!(tool_texts(&agent), ["took 10", "noted b", spent, spent], "what runs may end");
    assert_eq!(idle_history_violation(&messages(&agent)), None);
    assert_eq!(
        expect_end(start_send(&agent, 2, "#2 say words; done")).await.content,
        "words",
        "words need no tools"
    );
    set_limit(&world, &agent, Resource::ToolCalls, None).await;
    assert_eq!(expect_end(start_send(&agent, 3, "#3 call note d; done | say b; done")).await.content, "b");
}

#[tokio::test(start_paused = true)]
async fn a_denied_call_costs_nothing() {
    let world = World::new().await;
    let agent = world.create_handle(with_limit(spec_named("a"), Resource::ToolCalls, 1)).await;
    let script =
        "call write x; call agent_create; call nonsense; call note !; call note b; done | say a; done";
    assert_eq!(expect_end(start_send(&agent, 1, script)).await.content, "a");
    assert_eq!(usage_figures(&world, &agent, Resource::ToolCalls), (Some(1), 1, 0, Some(0)));
}

#[tokio::test(start_paused = true)]
async fn tokens_halt_and_go_on() {
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
        "one answer too many"
    );
    assert_halted(&expect_end(start_send(&agent, 2, "#2 say never; done")).await, Resource::Tokens);
    set_limit(&world, &agent, Resource::Tokens, Some(19)).await;
    assert_eq!(expect_end(start_send(&agent, 3, "#3 report 1; say b; done")).await.content, "b");
}

#[tokio::test(start_paused = true)]
async fn wall_time_halts_a_model_in_the_middle_of_its_answer_and_goes_on() {
    let world = World::new().await;
    let agent = world.create_handle(with_limit(spec_named("a"), Resource::WallMs, 1000)).await;
    let before = Instant::now();
    let end = expect_end(start_send(&agent, 1, "#1 say hel; pass 5000; say lo; done")).await;
    assert_halted(&end, Resource::WallMs);
    assert!(end.content.starts_with("hel["), "{}", end.content);
    assert_eq!((before.elapsed(), world.model.observations().live_total), (Duration::from_secs(1), 0));
    assert_halted(&expect_end(start_send(&agent, 2, "#2 say never; done")).await, Resource::WallMs);
    set_limit(&world, &agent, Resource::WallMs, Some(9000)).await;
    assert_eq!(
        expect_end(start_send(&agent, 3, "#3 say hel; pass 5000; say lo; done")).await.content,
        "hello"
    );
    assert_eq!(usage_figures(&world, &agent, Resource::WallMs), (Some(9000), 6000, 0, Some(3000)));
}

#[tokio::test(start_paused = true)]
async fn wall_time_halts_tools_that_run() {
    let world = World::new().await;
    let agent = world.create_handle(with_limit(spec_named("a"), Resource::WallMs, 1000)).await;
    let script = "call slow 500; call slow 5000; call step 1; done | say never; done";
    assert_halted(&expect_end(start_send(&agent, 1, script)).await, Resource::WallMs);
    let (stopped, spent) =
        ("Stopped: the budget of wall_ms is used up", "Did not execute: the budget of wall_ms is used up");
    assert_eq!(tool_texts(&agent), ["took 500", stopped, spent]);
    assert_eq!(world.tools.observations().live, 0);
    assert_eq!(idle_history_violation(&messages(&agent)), None);
}

#[tokio::test(start_paused = true)]
async fn wall_time_that_is_granted_while_a_turn_runs_counts_for_it() {
    let world = World::new().await;
    let agent = world.create_handle(with_limit(spec_named("a"), Resource::WallMs, 1000)).await;
    let sending = start_send(&agent, 1, "say hel; pass 5000; say lo; done");
    tokio::time::sleep(Duration::from_millis(500)).await;
    set_limit(&world, &agent, Resource::WallMs, Some(9000)).await;
    assert_eq!(expect_end(sending).await.content, "hello");
}

#[tokio::test(start_paused = true)]
async fn children_are_so_many_at_once_and_more_when_granted() {
    let world = World::new().await;
    let agent = create_limited_parent(&world, "p", Resource::Children, 1).await;
    let child = world.child_agent("c", &agent).await;
    let fault = world.expect_create_refused(with_parent(spec_named("d"), &agent)).await;
    assert_eq!(fault.kind, FaultKind::Denied);
    assert!(world.destroy(&child).await);
    world.child_agent("d", &agent).await;
    assert_eq!(usage_figures(&world, &agent, Resource::Children), (Some(1), 1, 0, Some(0)));
    set_limit(&world, &agent, Resource::Children, Some(2)).await;
    world.child_agent("e", &agent).await;
    assert_eq!(
        world.expect_create_refused(with_parent(spec_named("f"), &agent)).await.kind,
        FaultKind::Denied
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_without_a_limit_draws_on_those_above_it() {
    let world = World::new().await;
    let parent = create_limited_parent(&world, "p", Resource::Turns, 3).await;
    let child = world.child_agent("c", &parent).await;
    for place in 1..=2 {
        expect_end(start_send(&child, place, &format!("#{place} say a; done"))).await;
    }
    assert_eq!(usage_figures(&world, &parent, Resource::Turns), (Some(3), 2, 0, Some(1)));
    assert_eq!(usage_figures(&world, &child, Resource::Turns), (None, 2, 0, Some(1)));
    expect_end(start_send(&parent, 1, "#3 say b; done")).await;
    assert_halted(&expect_end(start_send(&child, 4, "#4 say never; done")).await, Resource::Turns);
    assert!(world.destroy(&child).await);
    assert_eq!(usage_figures(&world, &parent, Resource::Turns), (Some(3), 3, 0, Some(0)));
}

#[tokio::test(start_paused = true)]
async fn a_share_is_set_aside_and_what_is_left_of_it_comes_back() {
    let world = World::new().await;
    let parent = create_limited_parent(&world, "p", Resource::Turns, 10).await;
    let child =
        world.create_handle(with_limit(with_parent(spec_named("c"), &parent), Resource::Turns, 6)).await;
    assert_eq!(usage_figures(&world, &parent, Resource::Turns), (Some(10), 0, 6, Some(4)));
    let fault = world
        .expect_create_refused(with_limit(with_parent(spec_named("d"), &parent), Resource::Turns, 5))
        .await;
    assert!(fault.public.contains("what the parent has left") && fault.public.ends_with(": 4"), "{fault}");
    expect_end(start_send(&child, 1, "say a; done")).await;
    assert_eq!(usage_figures(&world, &parent, Resource::Turns), (Some(10), 0, 6, Some(4)));
    assert!(world.destroy(&child).await);
    assert_eq!(usage_figures(&world, &parent, Resource::Turns), (Some(10), 1, 0, Some(9)));
}

#[tokio::test(start_paused = true)]
async fn an_orphans_share_comes_back_when_it_is_gone_too() {
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
        "an orphan lives on it"
    );
    expect_end(start_send(&orphan, 1, "#2 say b; done")).await;
    assert!(world.destroy(&orphan).await);
    assert_eq!(usage_figures(&world, &top, Resource::Turns), (Some(10), 2, 0, Some(8)));
}

#[tokio::test(start_paused = true)]
async fn an_orphan_without_a_share_still_lives_on_its_dead_parents() {
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
    for place in 1..=2 {
        assert_eq!(
            expect_end(start_send(&orphan, place, &format!("#{place} say a; done"))).await.halted,
            None
        );
    }
    assert_halted(&expect_end(start_send(&orphan, 3, "#3 say never; done")).await, Resource::Turns);
    for place in 4..=5 {
        assert_eq!(expect_end(start_send(&top, place, &format!("#{place} say b; done"))).await.halted, None);
    }
    assert_halted(&expect_end(start_send(&top, 6, "#6 say never; done")).await, Resource::Turns);
    assert!(world.destroy(&orphan).await);
    assert_eq!(usage_figures(&world, &top, Resource::Turns), (Some(4), 4, 0, Some(0)));
}

#[tokio::test(start_paused = true)]
async fn a_lowered_limit_gives_back_nothing_that_is_used() {
    let world = World::new().await;
    let parent = create_limited_parent(&world, "p", Resource::Turns, 4).await;
    let child =
        world.create_handle(with_limit(with_parent(spec_named("c"), &parent), Resource::Turns, 4)).await;
    for place in 1..=3 {
        expect_end(start_send(&child, place, &format!("#{place} say a; done"))).await;
    }
    set_limit(&world, &child, Resource::Turns, Some(1)).await;
    assert_eq!(resource_usage(&world, &parent, Resource::Turns).remaining, Some(1));
    assert!(world.destroy(&child).await);
    assert_eq!(usage_figures(&world, &parent, Resource::Turns), (Some(4), 3, 0, Some(1)));
}

#[tokio::test(start_paused = true)]
async fn time_that_a_destroyed_child_took_is_paid_for() {
    let world = World::new().await;
    let parent = create_limited_parent(&world, "p", Resource::WallMs, 100_000).await;
    let shared = world.child_agent("shared", &parent).await;
    let own = world
        .create_handle(with_limit(with_parent(spec_named("own"), &parent), Resource::WallMs, 50_000))
        .await;
    let sendings = [start_send(&shared, 1, "#1 wait"), start_send(&own, 1, "#2 wait")];
    tokio::time::sleep(Duration::from_secs(10)).await;
    for agent in [&shared, &own] {
        assert!(world.destroy(agent).await);
    }
    for sending in sendings {
        assert_eq!(expect_end(sending).await.outcome, TurnOutcome::Cancelled);
    }
    assert_eq!(usage_figures(&world, &parent, Resource::WallMs), (Some(100_000), 20_000, 0, Some(80_000)));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_turn_is_paid_for_too() {
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
    let waiting = start_send(&agent, 2, "wait");
    let unbegun = start_send(&agent, 3, "say never; done");
    run_until_idle().await;
    assert!(without_waiting(agent.cancel(numeric_request_id(3))).await);
    expect_end(unbegun).await;
    assert_eq!(
        resource_usage(&world, &agent, Resource::Turns).used,
        2,
        "a turn that never began costs nothing"
    );
    assert!(without_waiting(agent.cancel(numeric_request_id(2))).await);
    expect_end(waiting).await;
    assert_eq!(texts(&agent).len(), 4);
}
