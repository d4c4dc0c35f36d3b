//! The tree: who is below whom, what becomes of orphans, temporary names, and capabilities.

use agent::permission::{DEPTH_MAX, Resource};
use agent::{FaultKind, TurnOutcome};
use futures_util::FutureExt;
use runtime::{AgentHandle, AgentSpec, Children, Name};

use crate::history::results;
use crate::world::{World, at_once, below, end_of, id, named, preset, settle, start, tasks};

fn count(world: &World, agent: &AgentHandle) -> u64 {
    let holdings = world.pool.rights(agent).holdings;
    holdings.iter().find(|one| one.resource == Resource::Children).expect("children are counted").used
}

/// A line of agents, each the child of the one before.
fn line(world: &World, names: &[&str]) -> Vec<AgentHandle> {
    let mut agents: Vec<AgentHandle> = Vec::new();
    for name in names {
        let spec = preset(named(name), "yolo");
        let spec = agents.last().map_or_else(|| spec.clone(), |parent| below(spec.clone(), parent));
        agents.push(world.make(spec));
    }
    agents
}

#[tokio::test(start_paused = true)]
async fn a_tree_is_so_deep_and_no_deeper() {
    let world = World::new();
    let agents = line(&world, &["a0", "a1", "a2", "a3", "a4", "a5"]);
    assert_eq!(world.summary(&agents[5]).depth, DEPTH_MAX);
    let fault = world.refusal(below(preset(named("a6"), "yolo"), &agents[5]));
    assert_eq!(fault.kind, FaultKind::Denied);
    assert_eq!(fault.public, "Cannot create agent: max nesting depth (5) exceeded");
    let counts: Vec<_> = agents.iter().map(|agent| count(&world, agent)).collect();
    assert_eq!(counts, [5, 4, 3, 2, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn children_go_with_their_parent_and_answer_all_their_sends() {
    let world = World::new();
    let agents = line(&world, &["a", "b", "c"]);
    let other = world.agent("other");
    let sendings: Vec<_> = agents.iter().map(|agent| start(agent, 1, "say hel; wait")).collect();
    settle().await;
    let mut destroying = Box::pin(world.destroy(&agents[0]));
    assert!((&mut destroying).now_or_never().is_none());
    assert_eq!(world.names(), ["other"], "all names are free at once");
    assert!(at_once(destroying).await);
    for sending in sendings {
        assert_eq!(end_of(sending).await.outcome, TurnOutcome::Cancelled);
    }
    assert_eq!((world.pool.open_turns(), tasks()), (0, 1));
    assert_eq!(end_of(start(&other, 1, "say a; done")).await.content, "a");
}

#[tokio::test(start_paused = true)]
async fn orphans_stay_under_the_ceiling_they_had() {
    let world = World::new();
    let parent = world.trusted("p");
    let child = world.child("c", &parent);
    let before = world.pool.rights(&child);
    let running = start(&child, 1, "wait; say a; done");
    settle().await;
    assert!(at_once(world.pool.destroy(&id("p"), Children::Stay)).await);
    assert_eq!(world.names(), ["c"]);
    world.model.release_all();
    assert_eq!(end_of(running).await.content, "a", "its turn goes on");
    let after = world.pool.rights(&child);
    assert_eq!((after.may, after.may_grant, after.limits), (before.may, before.may_grant, before.limits));
    assert_eq!(world.summary(&child).depth, 1);
}

#[tokio::test(start_paused = true)]
async fn a_new_agent_of_a_dead_parents_name_does_not_adopt_its_orphans() {
    let world = World::new();
    let parent = world.trusted("p");
    let child = world.child("c", &parent);
    assert!(world.pool.destroy(&id("p"), Children::Stay).await);
    let successor = world.trusted("p");
    assert!(!successor.is_same(&parent) && !child.is_below(&successor) && child.is_below(&parent));
    assert_eq!((world.summary(&successor).child_count, count(&world, &successor)), (0, 0));
    assert!(world.pool.children(&successor).is_empty());
    end_of(start(&successor, 1, "call agent_list; call agent_send {to=c say x; done}; done | say so; done"))
        .await;
    let told = results(&successor);
    assert_eq!(told[0], "p");
    assert!(told[1].starts_with("Permission denied: cannot target agent 'c'"), "{}", told[1]);
    end_of(start(&child, 1, "call agent_send {to=p say x; done}; done | say so; done")).await;
    assert!(results(&child)[0].starts_with("Permission denied"), "it is not the parent");
    assert!(world.pool.destroy(&id("p"), Children::Go).await);
    assert_eq!(world.names(), ["c"]);
}

#[tokio::test(start_paused = true)]
async fn orphans_still_go_with_whoever_is_above_their_dead_parent() {
    let world = World::new();
    let agents = line(&world, &["a", "b", "c", "d"]);
    assert!(world.pool.destroy(&id("b"), Children::Stay).await);
    assert_eq!(world.summary(&agents[0]).child_count, 0, "a child's orphan is no child");
    assert_eq!(count(&world, &agents[0]), 2);
    assert!(agents[2].is_below(&agents[0]));
    assert!(world.pool.destroy(&id("a"), Children::Go).await);
    assert_eq!(world.names(), Vec::<String>::new());
    settle().await;
    assert_eq!(tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn children_are_listed_and_counted_while_they_exist() {
    let world = World::new();
    let parent = world.trusted("p");
    let children = ["a", "b"].map(|name| world.child(name, &parent));
    let listed: Vec<_> = world.pool.children(&parent).iter().map(|child| child.id.to_string()).collect();
    assert_eq!((listed, world.summary(&parent).child_count), (vec!["a".to_owned(), "b".to_owned()], 2));
    assert_eq!(world.summary(&children[0]).parent, Some(id("p")));
    assert!(world.destroy(&children[0]).await);
    assert_eq!((world.summary(&parent).child_count, count(&world, &parent)), (1, 1));
    let page = world.pool.list_page(|agent| agent.is_below(&parent), 0, 10);
    assert_eq!((page.0, page.1[0].id.as_str()), (1, "b"));
}

#[tokio::test(start_paused = true)]
async fn temporary_names_are_the_lowest_that_are_free() {
    let world = World::new();
    let temporary = || AgentSpec { name: Name::Temporary, ..AgentSpec::default() };
    let made: Vec<_> = (0..3).map(|_| world.make(temporary())).collect();
    assert_eq!(world.names(), [".1", ".2", ".3"]);
    assert!(made.iter().all(|agent| agent.id().is_temporary()));
    assert!(world.destroy(&made[1]).await);
    world.agent(".4");
    let next: Vec<_> = (0..2).map(|_| world.make(temporary()).id().to_string()).collect();
    assert_eq!(next, [".2", ".5"]);
}

#[tokio::test(start_paused = true)]
async fn a_capability_finds_its_agent_and_dies_with_it() {
    let world = World::new();
    let made: Vec<_> = ["a", "b"].map(|name| world.create(named(name)).expect("there is room")).into();
    for created in &made {
        let found = world.pool.find_by_capability(created.capability.reveal().as_bytes());
        assert!(found.is_some_and(|found| found.is_same(&created.handle)));
        assert!(created.capability.reveal().starts_with(runtime::CAPABILITY_PREFIX));
        assert!(!format!("{:?}", created.capability).contains(created.capability.reveal()));
    }
    let token = made[0].capability.reveal();
    for wrong in ["", "nxc_", &token[..token.len() - 1], &format!("{token} "), &token.to_uppercase()] {
        assert!(world.pool.find_by_capability(wrong.as_bytes()).is_none(), "{wrong:?}");
    }
    let mut destroying = Box::pin(world.destroy(&made[0].handle));
    assert!((&mut destroying).now_or_never().is_none());
    assert!(world.pool.find_by_capability(token.as_bytes()).is_none(), "it dies at once");
    destroying.await;
    let again = world.create(named("a")).expect("the name is free");
    assert!(world.pool.find_by_capability(token.as_bytes()).is_none(), "also when the name lives on");
    assert!(world.pool.find_by_capability(again.capability.reveal().as_bytes()).is_some());
}
