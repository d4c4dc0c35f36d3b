//! The identity of granted directories: recorded with the grant or at the first use, until they are granted
//! again. A tool opens a directory only if its identity holds.

use agent::permission::Resource;
use runtime::{AgentHandle, AgentSpec, Initiator, PermissionChange, PermissionSpec};

use crate::history::tool_texts;
use crate::world::{World, expect_end, run_until_idle, spec_named, start_send, with_parent};

/// The result of a call of a file tool: the file, and the directories that have to hold.
async fn call(agent: &AgentHandle, request_id: i64, line: &str) -> String {
    expect_end(start_send(agent, request_id, &format!("#{request_id} call {line}; done | say so; done")))
        .await;
    tool_texts(agent).pop().expect("a result")
}

/// A writer in `new`, a directory that may not exist yet.
fn writer(name: &str) -> AgentSpec {
    let write_paths = Some(vec!["new".to_owned()]);
    AgentSpec { permissions: PermissionSpec { write_paths, ..PermissionSpec::default() }, ..spec_named(name) }
}

async fn change(world: &World, agent: &AgentHandle, change: PermissionChange) {
    world.change_permissions(agent, &change).await.expect("the change is valid");
}

#[tokio::test(start_paused = true)]
async fn identity_stays_that_of_the_grant_until_it_is_granted_again() {
    let world = World::new().await;
    world.workspace.put_directory("/work", 1);
    let agent = world.agent("a").await;
    world.workspace.put_directory("/work", 2);
    assert_eq!(call(&agent, 1, "read x").await, "x beneath /work, /work is 1");
    let budget = vec![(Resource::Turns, Some(100))];
    change(&world, &agent, PermissionChange { budget, ..PermissionChange::default() }).await;
    assert_eq!(call(&agent, 2, "read x").await, "x beneath /work, /work is 1", "directories are not named");
    drop(agent);
    let world = world.restart().await;
    let agent = world.find("a").await;
    assert_eq!(call(&agent, 3, "read x").await, "x beneath /work, /work is 1", "after a restart");
    let preset = Some("sandboxed".to_owned());
    change(&world, &agent, PermissionChange { preset, ..PermissionChange::default() }).await;
    assert_eq!(call(&agent, 4, "read x").await, "x beneath /work, /work is 2");
    drop(agent);
    let world = world.restart().await;
    assert_eq!(call(&world.find("a").await, 5, "read x").await, "x beneath /work, /work is 2");
}

#[tokio::test(start_paused = true)]
async fn directory_created_after_the_grant_is_recorded_at_first_use() {
    let world = World::new().await;
    world.workspace.put_directory("/work", 1);
    let agent = world.create_handle(writer("a")).await;
    assert_eq!(call(&agent, 1, "write new/x").await, "x beneath /work/new, /work is 1");
    world.workspace.put_directory("/work/new", 5);
    let both = "x beneath /work/new, /work is 1, /work/new is 5";
    assert_eq!(call(&agent, 2, "write new/x").await, both);
    world.workspace.put_directory("/work/new", 6);
    assert_eq!(call(&agent, 3, "write new/x").await, both);
    drop(agent);
    let world = world.restart().await;
    assert_eq!(call(&world.find("a").await, 4, "write new/x").await, both, "after a restart");
}

#[tokio::test(start_paused = true)]
async fn change_of_a_budget_does_not_resolve_paths_again() {
    let world = World::new().await;
    world.workspace.put_link("/work/new", "/work/a");
    let agent = world.create_handle(writer("a")).await;
    // The link leads elsewhere, and the directory it led to is a link now.
    world.workspace.put_link("/work/new", "/work/b");
    world.workspace.put_link("/work/a", "/work/b");
    let budget = vec![(Resource::Turns, Some(100))];
    change(&world, &agent, PermissionChange { budget, ..PermissionChange::default() }).await;
    assert_eq!(call(&agent, 1, "write a/x").await, "x beneath /work/a");
    let write_paths = Some(vec!["new".to_owned()]);
    change(&world, &agent, PermissionChange { write_paths, ..PermissionChange::default() }).await;
    assert_eq!(call(&agent, 2, "write b/x").await, "x beneath /work/b");
}

#[tokio::test(start_paused = true)]
async fn directory_in_a_replaced_one_is_not_recorded() {
    let world = World::new().await;
    world.workspace.put_directory("/work", 1);
    let agent = world.create_handle(writer("a")).await;
    world.workspace.put_directory("/work", 2);
    world.workspace.put_directory("/work/new", 5);
    assert_eq!(call(&agent, 1, "write new/x").await, "x beneath /work/new, /work is 1");
}

#[tokio::test(start_paused = true)]
async fn agent_stored_without_identities_gets_them_at_its_first_use() {
    let world = World::new().await;
    drop(world.agent("a").await);
    world.workspace.put_directory("/work", 1);
    let world = world.restart().await;
    assert_eq!(call(&world.find("a").await, 1, "read x").await, "x beneath /work, /work is 1");
    world.workspace.put_directory("/work", 2);
    let world = world.restart().await;
    assert_eq!(call(&world.find("a").await, 2, "read x").await, "x beneath /work, /work is 1");
}

#[tokio::test(start_paused = true)]
async fn identities_of_ancestors_and_forks_hold_too() {
    let world = World::new().await;
    world.workspace.put_directory("/work", 1);
    let parent = world.trusted_agent("p").await;
    world.workspace.put_directory("/work/a", 3);
    let spec = AgentSpec { cwd: Some("a".to_owned()), ..with_parent(spec_named("c"), &parent) };
    let child = world.create_handle(spec).await;
    world.workspace.put_directory("/work", 2);
    world.workspace.put_directory("/work/a", 4);
    let both = "x beneath /work/a, /work is 1, /work/a is 3";
    assert_eq!(call(&child, 1, "read x").await, both);
    let fork = world.pool.fork(&child, runtime::Fork::default(), Initiator::Admin).await.expect("a fork");
    run_until_idle().await;
    assert_eq!(call(&fork.handle, 2, "read x").await, both);
}
