//! Permissions: checked at each effect, and never more than the ancestors may grant.

use agent::permission::Resource;
use agent::{Ending, FaultKind, Role};
use runtime::{AgentHandle, AgentSpec, PermissionChange, PermissionSpec};

use crate::history::{messages, tool_texts};
use crate::world::{World, expect_end, run_until_idle, spec_named, start_send, with_parent, with_preset};

/// The end of the denial of a disabled tool.
const DISABLED: &str = "; remove it from disable_tools of the agent or its preset";

async fn disable_tools(world: &World, agent: &AgentHandle, tools: &[&str]) {
    let tools = tools.iter().map(ToString::to_string).collect();
    let change = PermissionChange { disable_tools: Some(tools), ..PermissionChange::default() };
    world.change_permissions(agent, &change).await.expect("fewer permissions are always allowed");
}

#[tokio::test(start_paused = true)]
async fn narrowing_a_parent_denies_the_childs_next_effect() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let child = world.child_agent("c", &parent).await;
    let script =
        "call note a; call slow release; call step 1; call note b; done | call note c; done | say so; done";
    let sending = start_send(&child, 1, script);
    world.tools.wait_started(2).await;
    run_until_idle().await;
    disable_tools(&world, &parent, &["step", "note"]).await;
    world.tools.release_all();
    assert_eq!(expect_end(sending).await.content, "so");
    let denied =
        |tool| format!("Permission denied: Tool '{tool}' is disabled by permission policy{DISABLED}");
    let expected =
        ["noted a".to_owned(), "took release".to_owned(), denied("step"), denied("note"), denied("note")];
    assert_eq!(tool_texts(&child), expected);
    assert_eq!(messages(&child)[4].ending, Some(Ending::Denied));
    disable_tools(&world, &parent, &[]).await;
    expect_end(start_send(&child, 2, "#2 call note d; done | say so; done")).await;
    assert_eq!(tool_texts(&child)[5], "noted d", "restored permissions apply at once");
}

#[tokio::test(start_paused = true)]
async fn narrowing_an_agent_denies_its_next_effect() {
    let world = World::new().await;
    let agent = world.create_handle(with_preset(spec_named("a"), "trusted")).await;
    let sending = start_send(&agent, 1, "call write x; call step release; call write y; done | say so; done");
    world.tools.wait_started(2).await;
    let change = PermissionChange { write_paths: Some(vec!["b".to_owned()]), ..PermissionChange::default() };
    world.change_permissions(&agent, &change).await.expect("within its preset");
    world.tools.release_all();
    expect_end(sending).await;
    let results = tool_texts(&agent);
    assert_eq!(results[0], "x beneath /work");
    assert!(results[2].starts_with("Permission denied: cannot write '/work/y'"), "{}", results[2]);
}

#[tokio::test(start_paused = true)]
async fn tool_disabled_by_an_alias_is_disabled_when_it_comes() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let child = world.child_agent("c", &parent).await;
    disable_tools(&world, &parent, &["search"]).await;
    world.tools.add_note_with_alias("web.search", "search");
    for (agent, request_id) in [(&parent, 1), (&child, 2)] {
        assert!(!agent.tool_names().iter().any(|name| &**name == "web.search"), "not offered");
        let script = format!("#{request_id} call web.search x; call search x; done | say so; done");
        expect_end(start_send(agent, request_id, &script)).await;
        let denied = format!("Permission denied: Tool 'search' is disabled by permission policy{DISABLED}");
        assert_eq!(tool_texts(agent), [denied.clone(), denied]);
    }
    assert!(world.agent("other").await.tool_names().iter().any(|name| &**name == "web.search"));
}

#[tokio::test(start_paused = true)]
async fn request_lists_the_currently_allowed_tools() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let child = world.child_agent("c", &parent).await;
    let sending = start_send(&child, 1, "call slow release; done | say a; done");
    world.tools.wait_started(1).await;
    disable_tools(&world, &parent, &["note"]).await;
    world.tools.release_all();
    expect_end(sending).await;
    let observations = world.model.observations();
    let tool_names = |call: usize| -> Vec<_> {
        observations.requests[call].tools.iter().map(|tool| tool.name.to_string()).collect()
    };
    assert!(tool_names(0).contains(&"note".to_owned()) && !tool_names(1).contains(&"note".to_owned()));
    assert!(!tool_names(0).contains(&"agent_create".to_owned()), "not in a sandbox");
}

#[tokio::test(start_paused = true)]
async fn hidden_tool_is_offered_when_named_and_always_callable() {
    let world = World::new().await;
    world.tools.add_note_not_offered("quiet");
    let parent = world.trusted_agent("p").await;
    let is_offered = |agent: &AgentHandle| agent.tool_names().iter().any(|name| &**name == "quiet");
    assert!(!is_offered(&parent));
    expect_end(start_send(&parent, 1, "call quiet x; done | say so; done")).await;
    assert_eq!(tool_texts(&parent), ["noted x"], "it is permitted");
    let named = |tools: &[&str]| PermissionSpec {
        tools: Some(tools.iter().map(ToString::to_string).collect()),
        ..PermissionSpec::default()
    };
    let with_list = |name: &str, tools: &[&str]| AgentSpec {
        permissions: named(tools),
        ..with_parent(spec_named(name), &parent)
    };
    assert!(is_offered(&world.create_handle(with_list("a", &["note", "quiet"])).await));
    let other = world.create_handle(with_list("b", &["note"])).await;
    assert_eq!(other.tool_names().iter().map(|name| &**name).collect::<Vec<_>>(), ["note"]);
    let change = PermissionChange { tools: Some(vec!["quiet".to_owned()]), ..PermissionChange::default() };
    world.change_permissions(&other, &change).await.expect("within its preset");
    assert!(is_offered(&other));
}

#[tokio::test(start_paused = true)]
async fn files_are_opened_beneath_an_allowed_directory() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let spec = AgentSpec { cwd: Some("a".to_owned()), ..with_parent(spec_named("c"), &parent) };
    let child = world
        .create_handle(AgentSpec {
            permissions: PermissionSpec {
                write_paths: Some(vec!["deep".to_owned()]),
                ..PermissionSpec::default()
            },
            ..spec
        })
        .await;
    let script = "call read x; call read ../b/x; call write deep/y; call write y; call write deep/../y; done \
                  | say so; done";
    expect_end(start_send(&child, 1, script)).await;
    let results = tool_texts(&child);
    assert_eq!(results[0], "x beneath /work/a");
    assert!(results[1].starts_with("Permission denied: cannot read '/work/b/x'"), "{}", results[1]);
    assert_eq!(results[2], "y beneath /work/a/deep");
    assert!(results[3].starts_with("Permission denied: cannot write '/work/a/y'"), "{}", results[3]);
    assert_eq!(results[4], "Did not execute: halted due to error in previous tool");
}

#[tokio::test(start_paused = true)]
async fn rejected_permission_change_changes_nothing() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let child = world.child_agent("c", &parent).await;
    let before = world.pool.permissions(&child);
    let changes = [
        (
            FaultKind::Denied,
            PermissionChange { preset: Some("trusted".to_owned()), ..PermissionChange::default() },
        ),
        (
            FaultKind::Invalid,
            PermissionChange { preset: Some("yolo".to_owned()), ..PermissionChange::default() },
        ),
        (
            FaultKind::Invalid,
            PermissionChange { preset: Some("nonsense".to_owned()), ..PermissionChange::default() },
        ),
        (
            FaultKind::Denied,
            PermissionChange {
                write_paths: Some(vec!["/elsewhere".to_owned()]),
                ..PermissionChange::default()
            },
        ),
        (
            FaultKind::Denied,
            PermissionChange {
                commands: Some(vec!["cargo".to_owned(), "rm".to_owned()]),
                ..PermissionChange::default()
            },
        ),
        (
            FaultKind::Invalid,
            PermissionChange { commands: Some(vec![String::new()]), ..PermissionChange::default() },
        ),
    ];
    let only_cargo =
        PermissionChange { commands: Some(vec!["cargo".to_owned()]), ..PermissionChange::default() };
    world.change_permissions(&parent, &only_cargo).await.expect("within its preset");
    for (kind, change) in changes {
        let fault = world.change_permissions(&child, &change).await.expect_err("the change is rejected");
        assert_eq!(fault.kind, kind, "{fault}");
    }
    let after = world.pool.permissions(&child);
    assert_eq!((after.may, after.preset), (before.may, before.preset));
}

#[tokio::test(start_paused = true)]
async fn rejected_limit_leaves_other_limits_unchanged() {
    let world = World::new().await;
    let limited = |turns, calls| {
        let budget = agent::permission::Budget::unlimited();
        budget.with_limit(Resource::Turns, Some(turns)).with_limit(Resource::ToolCalls, Some(calls))
    };
    let permissions = PermissionSpec {
        preset: Some("trusted".to_owned()),
        budget: limited(10, 10),
        ..PermissionSpec::default()
    };
    let parent = world.create_handle(AgentSpec { permissions, ..spec_named("p") }).await;
    let permissions = PermissionSpec { budget: limited(2, 2), ..PermissionSpec::default() };
    let child = world.create_handle(AgentSpec { permissions, ..with_parent(spec_named("c"), &parent) }).await;
    let reserved = || {
        world.pool.permissions(&parent).resource_usage.iter().map(|usage| usage.reserved).collect::<Vec<_>>()
    };
    let before = reserved();
    let budget = vec![(Resource::Turns, Some(9)), (Resource::ToolCalls, Some(11))];
    let change = PermissionChange { budget, ..PermissionChange::default() };
    assert_eq!(
        world.change_permissions(&child, &change).await.map_err(|fault| fault.kind),
        Err(FaultKind::Denied)
    );
    assert_eq!(reserved(), before);
    assert_eq!(world.pool.permissions(&child).resource_usage[0].limit, Some(2));
}

#[tokio::test(start_paused = true)]
async fn denied_call_is_a_result_and_the_turn_continues() {
    let world = World::new().await;
    let agent = world.create_handle(with_preset(spec_named("a"), "worker")).await;
    let script = "call write x; call agent_send {to=b say x; done}; call note y; done | say so; done";
    assert_eq!(expect_end(start_send(&agent, 1, script)).await.content, "so");
    assert_eq!(world.tools.call_lines(), ["a note y"]);
    let denied = messages(&agent).iter().filter(|message| message.ending == Some(Ending::Denied)).count();
    assert_eq!(denied, 2);
    assert_eq!(messages(&agent).iter().filter(|message| message.role == Role::Tool).count(), 3);
}

#[tokio::test(start_paused = true)]
async fn permission_is_checked_when_the_call_starts() {
    let world = World::new().await;
    world.tools.enable_permission_checks(&world.pool);
    let agent = world.agent("a").await;
    for number in 0..300 {
        // Longer responses make the agent's task yield at different points.
        let sending = start_send(
            &agent,
            number,
            &format!("#{number} flood {number}; call note x; done | say so; done"),
        );
        let mut disabled = false;
        while !sending.is_finished() {
            disabled = !disabled;
            disable_tools(&world, &agent, if disabled { &["note"] } else { &[] }).await;
            tokio::task::yield_now().await;
        }
        assert!(expect_end(sending).await.content.ends_with("so"));
    }
    assert_eq!(world.tools.observations().violations, Vec::<String>::new());
}
