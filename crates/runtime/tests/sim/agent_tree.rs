//! The agent tree: ancestors, orphans, temporary names, and capabilities.

use agent::permission::{DEPTH_MAX, Resource};
use agent::{FaultKind, TurnOutcome};
use runtime::{AgentHandle, AgentSpec, ChildPolicy, ListScope, NameSpec};

use crate::history::tool_texts;
use crate::world::{
    POOL_TASKS, World, agent_id, alive_task_count, expect_end, run_until_idle, spec_named, start_send,
    with_parent, with_preset, without_waiting,
};

fn child_count(world: &World, agent: &AgentHandle) -> u64 {
    let usage = world.pool.permissions(agent).resource_usage;
    usage.iter().find(|account| account.resource == Resource::Children).expect("children are counted").used
}

/// A chain of agents, each the child of the previous one.
async fn create_chain(world: &World, names: &[&str]) -> Vec<AgentHandle> {
    let mut agents: Vec<AgentHandle> = Vec::new();
    for name in names {
        let spec = with_preset(spec_named(name), "yolo");
        let spec = agents.last().map_or_else(|| spec.clone(), |parent| with_parent(spec.clone(), parent));
        agents.push(world.create_handle(spec).await);
    }
    agents
}

#[tokio::test(start_paused = true)]
async fn nesting_depth_is_limited() {
    let world = World::new().await;
    let agents = create_chain(&world, &["a0", "a1", "a2", "a3", "a4", "a5"]).await;
    assert_eq!(world.status(&agents[5]).depth, DEPTH_MAX);
    let fault =
        world.expect_create_rejected(with_parent(with_preset(spec_named("a6"), "yolo"), &agents[5])).await;
    assert_eq!(fault.kind, FaultKind::Denied);
    assert_eq!(fault.public, "Cannot create agent: max nesting depth (5) exceeded");
    let counts: Vec<_> = agents.iter().map(|agent| child_count(&world, agent)).collect();
    assert_eq!(counts, [5, 4, 3, 2, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn destroying_a_parent_cancels_its_descendants_turns() {
    let world = World::new().await;
    let agents = create_chain(&world, &["a", "b", "c"]).await;
    let other = world.agent("other").await;
    let sendings: Vec<_> = agents.iter().map(|agent| start_send(agent, 1, "say hel; wait")).collect();
    run_until_idle().await;
    assert!(without_waiting(world.destroy(&agents[0])).await);
    assert_eq!(world.names().await, ["other"], "all names are free");
    for sending in sendings {
        assert_eq!(expect_end(sending).await.outcome, TurnOutcome::Cancelled);
    }
    assert_eq!((world.pool.open_turns(), alive_task_count()), (0, 1 + POOL_TASKS));
    assert_eq!(expect_end(start_send(&other, 1, "say a; done")).await.content, "a");
}

#[tokio::test(start_paused = true)]
async fn orphans_retain_their_permission_ceiling() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let child = world.child_agent("c", &parent).await;
    let before = world.pool.permissions(&child);
    let running = start_send(&child, 1, "wait; say a; done");
    run_until_idle().await;
    assert!(without_waiting(world.destroy_named("p", ChildPolicy::Orphan)).await);
    assert_eq!(world.names().await, ["c"]);
    world.model.release_all();
    assert_eq!(expect_end(running).await.content, "a", "its turn goes on");
    let after = world.pool.permissions(&child);
    assert_eq!((after.may, after.may_grant, after.limits), (before.may, before.may_grant, before.limits));
    assert_eq!(world.status(&child).depth, 1);
}

#[tokio::test(start_paused = true)]
async fn reused_parent_name_does_not_adopt_orphans() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let child = world.child_agent("c", &parent).await;
    assert!(world.destroy_named("p", ChildPolicy::Orphan).await);
    let successor = world.trusted_agent("p").await;
    assert!(
        !successor.is_same_agent(&parent)
            && !child.is_descendant_of(&successor)
            && child.is_descendant_of(&parent)
    );
    assert_eq!((world.status(&successor).child_count, child_count(&world, &successor)), (0, 0));
    assert!(world.children(&successor).await.is_empty());
    expect_end(start_send(
        &successor,
        1,
        "call agent_list; call agent_send {to=c say x; done}; done | say so; done",
    ))
    .await;
    let results = tool_texts(&successor);
    assert_eq!(results[0], "p");
    assert!(results[1].starts_with("Permission denied: cannot target agent 'c'"), "{}", results[1]);
    expect_end(start_send(&child, 1, "call agent_send {to=p say x; done}; done | say so; done")).await;
    assert!(tool_texts(&child)[0].starts_with("Permission denied"), "not the former parent");
    assert!(world.destroy_named("p", ChildPolicy::Cascade).await);
    assert_eq!(world.names().await, ["c"]);
}

#[tokio::test(start_paused = true)]
async fn destroying_a_grandparent_destroys_orphans() {
    let world = World::new().await;
    let agents = create_chain(&world, &["a", "b", "c", "d"]).await;
    assert!(world.destroy_named("b", ChildPolicy::Orphan).await);
    assert_eq!(world.status(&agents[0]).child_count, 0, "the orphan of a child is not a child");
    assert_eq!(child_count(&world, &agents[0]), 2);
    assert!(agents[2].is_descendant_of(&agents[0]));
    assert!(world.destroy_named("a", ChildPolicy::Cascade).await);
    assert_eq!(world.names().await, Vec::<String>::new());
    run_until_idle().await;
    assert_eq!(alive_task_count(), POOL_TASKS);
}

#[tokio::test(start_paused = true)]
async fn children_are_listed_and_counted_while_alive() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let children = [world.child_agent("a", &parent).await, world.child_agent("b", &parent).await];
    let listed: Vec<_> = world.children(&parent).await.iter().map(|child| child.id.to_string()).collect();
    assert_eq!((listed, world.status(&parent).child_count), (vec!["a".to_owned(), "b".to_owned()], 2));
    assert_eq!(world.status(&children[0]).parent, Some(agent_id("p")));
    assert!(world.destroy(&children[0]).await);
    assert_eq!((world.status(&parent).child_count, child_count(&world, &parent)), (1, 1));
    world.agent("other").await;
    let root = parent.agent_ref();
    let page = world.pool.list_page(ListScope::Subtree(&root), 1, 10).await.expect("the store is readable");
    let listed: Vec<&str> = page.agents.iter().map(|agent| agent.id.as_str()).collect();
    assert_eq!((page.total, listed), (2, vec!["b"]), "the root and its descendants");
}

#[tokio::test(start_paused = true)]
async fn temporary_names_use_the_lowest_free_number() {
    let world = World::new().await;
    let temporary = || AgentSpec { name: NameSpec::NextTemporary, ..AgentSpec::default() };
    let mut agents = Vec::new();
    for _ in 0..3 {
        agents.push(world.create_handle(temporary()).await);
    }
    assert_eq!(world.names().await, [".1", ".2", ".3"]);
    assert!(agents.iter().all(|agent| agent.id().is_temporary()));
    assert!(world.destroy(&agents[1]).await);
    world.agent(".4").await;
    for next in [".2", ".5"] {
        assert_eq!(world.create_handle(temporary()).await.id().as_str(), next);
    }
}

#[tokio::test(start_paused = true)]
async fn capability_identifies_its_agent_until_destroyed() {
    let world = World::new().await;
    let mut agents = Vec::new();
    for name in ["a", "b"] {
        agents.push(world.create(spec_named(name)).await.expect("the agent is created"));
    }
    for created in &agents {
        let found = world.pool.find_ref_by_capability(created.capability.reveal().as_bytes());
        assert!(found.is_some_and(|found| found == created.handle.agent_ref()));
        assert!(created.capability.reveal().starts_with(runtime::CAPABILITY_PREFIX));
        assert!(!format!("{:?}", created.capability).contains(created.capability.reveal()));
    }
    let token = agents[0].capability.reveal();
    for wrong in ["", "nxc_", &token[..token.len() - 1], &format!("{token} "), &token.to_uppercase()] {
        assert!(world.pool.find_ref_by_capability(wrong.as_bytes()).is_none(), "{wrong:?}");
    }
    assert!(world.destroy(&agents[0].handle).await);
    assert!(world.pool.find_ref_by_capability(token.as_bytes()).is_none(), "invalid after the destroy");
    let successor = world.create(spec_named("a")).await.expect("the name is free");
    assert!(
        world.pool.find_ref_by_capability(token.as_bytes()).is_none(),
        "invalid for a new agent of that name"
    );
    assert!(world.pool.find_ref_by_capability(successor.capability.reveal().as_bytes()).is_some());
}
