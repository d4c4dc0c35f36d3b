//! The tree: who is below whom, what becomes of orphans, temporary names, and capabilities.

use agent::permission::{DEPTH_MAX, Resource};
use agent::{FaultKind, TurnOutcome};
use runtime::{AgentHandle, AgentSpec, ChildPolicy, ListScope, NameSpec};

use crate::history::tool_texts;
use crate::world::{
    POOL_TASKS, World, agent_id, alive_task_count, expect_end, run_until_idle, spec_named, start_send,
    with_parent, with_preset, without_waiting,
};

fn child_count(world: &World, agent: &AgentHandle) -> u64 {
    let holdings = world.pool.permissions(agent).resource_usage;
    holdings.iter().find(|one| one.resource == Resource::Children).expect("children are counted").used
}

/// A line of agents, each the child of the one before.
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
async fn a_tree_is_so_deep_and_no_deeper() {
    let world = World::new().await;
    let agents = create_chain(&world, &["a0", "a1", "a2", "a3", "a4", "a5"]).await;
    assert_eq!(world.summary(&agents[5]).depth, DEPTH_MAX);
    let fault =
        world.expect_create_refused(with_parent(with_preset(spec_named("a6"), "yolo"), &agents[5])).await;
    assert_eq!(fault.kind, FaultKind::Denied);
    assert_eq!(fault.public, "Cannot create agent: max nesting depth (5) exceeded");
    let counts: Vec<_> = agents.iter().map(|agent| child_count(&world, agent)).collect();
    assert_eq!(counts, [5, 4, 3, 2, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn children_go_with_their_parent_and_answer_all_their_sends() {
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
async fn orphans_stay_under_the_ceiling_they_had() {
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
    assert_eq!(world.summary(&child).depth, 1);
}

#[tokio::test(start_paused = true)]
async fn a_new_agent_of_a_dead_parents_name_does_not_adopt_its_orphans() {
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
    assert_eq!((world.summary(&successor).child_count, child_count(&world, &successor)), (0, 0));
    assert!(world.children(&successor).await.is_empty());
    expect_end(start_send(
        &successor,
        1,
        "call agent_list; call agent_send {to=c say x; done}; done | say so; done",
    ))
    .await;
    let told = tool_texts(&successor);
    assert_eq!(told[0], "p");
    assert!(told[1].starts_with("Permission denied: cannot target agent 'c'"), "{}", told[1]);
    expect_end(start_send(&child, 1, "call agent_send {to=p say x; done}; done | say so; done")).await;
    assert!(tool_texts(&child)[0].starts_with("Permission denied"), "it is not the parent");
    assert!(world.destroy_named("p", ChildPolicy::Cascade).await);
    assert_eq!(world.names().await, ["c"]);
}

#[tokio::test(start_paused = true)]
async fn orphans_still_go_with_whoever_is_above_their_dead_parent() {
    let world = World::new().await;
    let agents = create_chain(&world, &["a", "b", "c", "d"]).await;
    assert!(world.destroy_named("b", ChildPolicy::Orphan).await);
    assert_eq!(world.summary(&agents[0]).child_count, 0, "a child's orphan is no child");
    assert_eq!(child_count(&world, &agents[0]), 2);
    assert!(agents[2].is_descendant_of(&agents[0]));
    assert!(world.destroy_named("a", ChildPolicy::Cascade).await);
    assert_eq!(world.names().await, Vec::<String>::new());
    run_until_idle().await;
    assert_eq!(alive_task_count(), POOL_TASKS);
}

#[tokio::test(start_paused = true)]
async fn children_are_listed_and_counted_while_they_exist() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let children = [world.child_agent("a", &parent).await, world.child_agent("b", &parent).await];
    let listed: Vec<_> = world.children(&parent).await.iter().map(|child| child.id.to_string()).collect();
    assert_eq!((listed, world.summary(&parent).child_count), (vec!["a".to_owned(), "b".to_owned()], 2));
    assert_eq!(world.summary(&children[0]).parent, Some(agent_id("p")));
    assert!(world.destroy(&children[0]).await);
    assert_eq!((world.summary(&parent).child_count, child_count(&world, &parent)), (1, 1));
    world.agent("other").await;
    let under = parent.agent_ref();
    let (total, page) =
        world.pool.list_page(ListScope::Subtree(&under), 1, 10).await.expect("it can be read");
    assert_eq!((total, page.len(), page[0].id.as_str()), (2, 1, "b"), "itself and everybody below it");
}

#[tokio::test(start_paused = true)]
async fn temporary_names_are_the_lowest_that_are_free() {
    let world = World::new().await;
    let temporary = || AgentSpec { name: NameSpec::NextTemporary, ..AgentSpec::default() };
    let mut made = Vec::new();
    for _ in 0..3 {
        made.push(world.create_handle(temporary()).await);
    }
    assert_eq!(world.names().await, [".1", ".2", ".3"]);
    assert!(made.iter().all(|agent| agent.id().is_temporary()));
    assert!(world.destroy(&made[1]).await);
    world.agent(".4").await;
    for next in [".2", ".5"] {
        assert_eq!(world.create_handle(temporary()).await.id().as_str(), next);
    }
}

#[tokio::test(start_paused = true)]
async fn a_capability_finds_its_agent_and_dies_with_it() {
    let world = World::new().await;
    let mut made = Vec::new();
    for name in ["a", "b"] {
        made.push(world.create(spec_named(name)).await.expect("there is room"));
    }
    for created in &made {
        let found = world.pool.find_ref_by_capability(created.capability.reveal().as_bytes());
        assert!(found.is_some_and(|found| found == created.handle.agent_ref()));
        assert!(created.capability.reveal().starts_with(runtime::CAPABILITY_PREFIX));
        assert!(!format!("{:?}", created.capability).contains(created.capability.reveal()));
    }
    let token = made[0].capability.reveal();
    for wrong in ["", "nxc_", &token[..token.len() - 1], &format!("{token} "), &token.to_uppercase()] {
        assert!(world.pool.find_ref_by_capability(wrong.as_bytes()).is_none(), "{wrong:?}");
    }
    assert!(world.destroy(&made[0].handle).await);
    assert!(world.pool.find_ref_by_capability(token.as_bytes()).is_none(), "it dies with the agent");
    let again = world.create(spec_named("a")).await.expect("the name is free");
    assert!(world.pool.find_ref_by_capability(token.as_bytes()).is_none(), "also when the name lives on");
    assert!(world.pool.find_ref_by_capability(again.capability.reveal().as_bytes()).is_some());
}
