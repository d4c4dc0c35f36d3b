//! Locks of agent trees: until a destroy or rename is committed, it excludes creations in its tree, and delays no other
//! tree.

use agent::{Fault, FaultKind};
use runtime::{AgentHandle, AgentRef, AgentSpec, ChildPolicy, Initiator};
use tokio::task::JoinHandle;

use crate::world::{World, agent_id, run_until_idle, spec_named, with_parent, with_preset};

type Operation<T> = JoinHandle<Result<T, Fault>>;

fn start_create(world: &World, name: &str, parent: Option<&AgentHandle>) -> Operation<AgentHandle> {
    let spec = AgentSpec { parent: parent.map(|parent| parent.id().clone()), ..spec_named(name) };
    let pool = world.pool.clone();
    tokio::spawn(async move { pool.create(spec, Initiator::Admin).await.map(|created| created.handle) })
}

fn start_destroy(world: &World, target: AgentRef, children: ChildPolicy) -> Operation<bool> {
    let pool = world.pool.clone();
    tokio::spawn(async move { pool.destroy(&target, children, Initiator::Admin).await })
}

fn start_rename(world: &World, target: AgentRef, name: &str) -> Operation<AgentRef> {
    let (pool, id) = (world.pool.clone(), agent_id(name));
    tokio::spawn(async move { pool.rename(&target, id, Initiator::Admin).await })
}

/// The result of an operation that has nothing to wait for.
async fn result_now<T>(operation: Operation<T>) -> Result<T, Fault> {
    run_until_idle().await;
    assert!(operation.is_finished(), "the operation waits");
    operation.await.expect("no panic")
}

async fn expect_waiting<T>(operation: &Operation<T>) {
    run_until_idle().await;
    assert!(!operation.is_finished(), "the operation does not wait");
}

/// Creates, renames and destroys agents in the tree of `other`, and creates a root.
async fn change_other_trees(world: &World, other: &AgentHandle) {
    let child = result_now(start_create(world, "child", Some(other))).await.expect("it is created");
    let target = child.agent_ref();
    drop(child);
    let renamed = result_now(start_rename(world, target, "renamed")).await.expect("it is renamed");
    result_now(start_create(world, "sibling", Some(other))).await.expect("it is created");
    assert_eq!(result_now(start_destroy(world, renamed, ChildPolicy::Cascade)).await, Ok(true));
    result_now(start_create(world, "root", None)).await.expect("it is created");
}

#[tokio::test(start_paused = true)]
async fn other_trees_change_while_a_destroy_commits() {
    let world = World::new().await;
    let (top, other) = (world.trusted_agent("top").await, world.trusted_agent("other").await);
    world.child_agent("below", &top).await;
    world.store.hold_agent(top.agent_ref().serial());
    let destroying = start_destroy(&world, top.agent_ref(), ChildPolicy::Cascade);
    change_other_trees(&world, &other).await;
    expect_waiting(&destroying).await;
    world.store.release();
    assert_eq!(result_now(destroying).await, Ok(true));
    assert_eq!(world.names().await, ["other", "sibling", "root"]);
    assert_eq!(world.restart().await.names().await, ["other", "sibling", "root"]);
}

#[tokio::test(start_paused = true)]
async fn other_trees_change_while_a_rename_commits() {
    let world = World::new().await;
    let other = world.trusted_agent("other").await;
    let target = world.agent("a").await.agent_ref();
    world.store.hold_agent(target.serial());
    let renaming = start_rename(&world, target, "z");
    change_other_trees(&world, &other).await;
    expect_waiting(&renaming).await;
    world.store.release();
    result_now(renaming).await.expect("it is renamed");
    assert_eq!(world.names().await, ["other", "z", "sibling", "root"]);
}

#[tokio::test(start_paused = true)]
async fn destroyed_parent_gets_no_child_during_the_commit() {
    let world = World::new().await;
    let top = world.create_handle(with_preset(spec_named("top"), "yolo")).await;
    let parent = world.create_handle(with_parent(with_preset(spec_named("p"), "trusted"), &top)).await;
    for children in [ChildPolicy::Cascade, ChildPolicy::Orphan] {
        let name = if children == ChildPolicy::Cascade { "p" } else { "top" };
        let target = world.find(name).await;
        world.store.hold_agent(target.agent_ref().serial());
        let destroying = start_destroy(&world, target.agent_ref(), children);
        run_until_idle().await;
        let creating = start_create(&world, "child", Some(&target));
        expect_waiting(&creating).await;
        world.store.release();
        assert_eq!(result_now(destroying).await, Ok(true));
        let fault = result_now(creating).await.err().expect("the parent is destroyed");
        assert_eq!(fault.kind, FaultKind::Invalid);
        assert_eq!(fault.public, format!("Parent agent not found: {name}"));
    }
    drop(parent);
    assert_eq!((world.names().await, world.pool.agent_count()), (Vec::new(), 0));
}

#[tokio::test(start_paused = true)]
async fn destroy_includes_a_child_that_is_being_created() {
    let world = World::new().await;
    let top = world.trusted_agent("top").await;
    world.store.hold();
    let creating = start_create(&world, "child", Some(&top));
    run_until_idle().await;
    let destroying = start_destroy(&world, top.agent_ref(), ChildPolicy::Cascade);
    expect_waiting(&destroying).await;
    world.store.release();
    result_now(creating).await.expect("it was created before the destroy");
    assert_eq!(result_now(destroying).await, Ok(true));
    assert_eq!(world.names().await, Vec::<String>::new());
    assert_eq!(world.restart().await.names().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn id_that_is_being_freed_goes_to_the_next_agent() {
    let world = World::new().await;
    let (first, second) = (world.agent("a").await.agent_ref(), world.agent("b").await.agent_ref());
    let third = world.agent("c").await.agent_ref();
    world.store.hold_agent(first.serial());
    let destroying = start_destroy(&world, first, ChildPolicy::Cascade);
    run_until_idle().await;
    let renaming = start_rename(&world, second, "a");
    expect_waiting(&renaming).await;
    world.store.release();
    assert_eq!(result_now(destroying).await, Ok(true));
    let renamed = result_now(renaming).await.expect("the id is free");
    world.store.hold_agent(renamed.serial());
    let renaming = start_rename(&world, renamed, "z");
    run_until_idle().await;
    let (old, new) = (start_create(&world, "a", None), start_create(&world, "z", None));
    let other = start_rename(&world, third, "z");
    expect_waiting(&old).await;
    world.store.release();
    result_now(renaming).await.expect("the id is free");
    result_now(old).await.expect("the rename freed the id");
    let faults = [result_now(new).await.err(), result_now(other).await.err()];
    assert!(faults.iter().flatten().all(|fault| fault.public == "Agent already exists: z"), "{faults:?}");
    assert_eq!(faults.iter().flatten().count(), 2);
    assert_eq!(world.names().await, ["z", "c", "a"]);
}
