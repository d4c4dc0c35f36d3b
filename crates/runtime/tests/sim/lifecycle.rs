//! Operations on a whole agent: rename, fork, rollback, import.

use agent::outside::Timestamp;
use agent::permission::{Budget, Resource};
use agent::{FaultKind, Message, MessageSource, ToolCall, ToolOutcome};
use runtime::{AgentHandle, AgentSpec, Fork, Import, Initiator, PermissionSpec};

use crate::history::{idle_history_violation, messages, texts, tool_texts};
use crate::restarts::describe_agent;
use crate::world::{
    World, agent_id, expect_end, expect_fault, is_busy, new_message, run_until_idle, spec_named, start_send,
    with_first_message, with_parent, with_preset,
};

async fn agent_with_turns(world: &World, name: &str) -> AgentHandle {
    let agent = world.trusted_agent(name).await;
    expect_end(start_send(&agent, 1, "#1 call note x; done | say a; done")).await;
    expect_end(start_send(&agent, 2, "#2 say b; done")).await;
    agent
}

#[tokio::test(start_paused = true)]
async fn rename_changes_only_the_name() {
    let world = World::new().await;
    let created = world.create(with_preset(spec_named("a"), "trusted")).await.expect("the agent is created");
    let token = created.capability;
    expect_end(start_send(&created.handle, 1, "#1 report 3; say yes; done")).await;
    let child = world.child_agent("c", &created.handle).await;
    let before = describe_agent(&world, &created.handle);
    let old = created.handle.agent_ref();
    drop(created.handle);
    let new = world.pool.rename(&old, agent_id("z"), Initiator::Admin).await.expect("the agent is idle");
    assert_eq!((new.id().as_str(), new.serial()), ("z", old.serial()));
    assert!(world.pool.find_ref(&agent_id("a")).is_none());
    let renamed = |text: &str| text.replace("\"a\"", "\"z\"");
    let agent = world.pool.wake(&new).await.expect("the agent exists");
    assert_eq!(describe_agent(&world, &agent), renamed(&before));
    assert_eq!(world.status(&child).parent, Some(agent_id("z")), "its children see it");
    assert_eq!(world.pool.find_ref_by_capability(token.reveal().as_bytes()), Some(new.clone()));
    assert_eq!(world.pool.wake(&old).await.expect("the old reference works").id().as_str(), "z");
    assert_eq!(
        expect_end(start_send(&agent, 1, "#1 report 3; say yes; done")).await.content,
        "yes",
        "its request ids too"
    );
    let other = world.agent("a").await;
    assert!(!other.is_same_agent(&agent), "the old name is free");
    drop((agent, child, other));
    let world = world.restart().await;
    let agent = world.find("z").await;
    assert_eq!(describe_agent(&world, &agent), renamed(&before));
    assert_eq!(world.status(&world.find("c").await).parent, Some(agent_id("z")));
}

#[tokio::test(start_paused = true)]
async fn failed_rename_changes_nothing() {
    let world = World::new().await;
    let agent = agent_with_turns(&world, "a").await;
    world.agent("b").await;
    let target = agent.agent_ref();
    let rename = async |name: &str| {
        world.pool.rename(&target, agent_id(name), Initiator::Admin).await.expect_err("the rename fails")
    };
    assert!(is_busy(&rename("z").await), "a handle is in use");
    drop(agent);
    assert_eq!(rename("b").await.public, "Agent already exists: b");
    assert_eq!(rename("a").await.public, "Agent already exists: a");
    assert_eq!(rename(".t").await.kind, FaultKind::Invalid);
    world
        .find("a")
        .await
        .submit_committed(new_message(3, "#3 wait; say c; done"))
        .await
        .expect("it is committed");
    run_until_idle().await;
    assert!(is_busy(&rename("z").await), "a turn runs");
    assert_eq!(world.names().await, ["a", "b"]);
    world.model.release_all();
    run_until_idle().await;
    let before = texts(&world.find("a").await);
    world.pool.rename(&target, agent_id("z"), Initiator::Admin).await.expect("the agent is idle now");
    assert_eq!(texts(&world.find("z").await), before);
    assert!(world.destroy_named("z", runtime::ChildPolicy::Cascade).await);
    assert_eq!(rename("y").await.kind, FaultKind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn wake_during_rename_returns_the_new_name() {
    let world = World::new().await;
    drop(agent_with_turns(&world, "a").await);
    let target = world.pool.find_ref(&agent_id("a")).expect("the agent exists");
    world.store.hold();
    let (renamed, woken) = tokio::join!(world.pool.rename(&target, agent_id("z"), Initiator::Admin), async {
        run_until_idle().await;
        let mut waking = Box::pin(world.pool.wake(&target));
        assert!(futures_util::FutureExt::now_or_never(&mut waking).is_none(), "it waits for the rename");
        world.store.release();
        waking.await
    });
    renamed.expect("the agent is idle");
    assert_eq!(woken.expect("the agent exists").id().as_str(), "z");
}

#[tokio::test(start_paused = true)]
async fn fork_copies_its_source_and_is_independent() {
    let world = World::new().await;
    let parent = world.create_handle(with_preset(spec_named("p"), "trusted")).await;
    let permissions = PermissionSpec {
        disable_tools: vec!["step".into()],
        write_paths: Some(vec!["deep".into()]),
        budget: Budget::unlimited().with_limit(Resource::Turns, Some(5)),
        ..PermissionSpec::default()
    };
    let spec = AgentSpec {
        permissions,
        cwd: Some("a".into()),
        system_prompt: Some("be brief".into()),
        ..spec_named("a")
    };
    let source = world.create_handle(with_parent(spec, &parent)).await;
    expect_end(start_send(&source, 1, "#1 call note x; done | say a; done")).await;
    expect_end(start_send(&source, 2, "#2 say b; done")).await;
    let fork = Fork { id: Some(agent_id("f")), messages: Some(4) };
    let created = world.pool.fork(&source, fork, Initiator::Admin).await.expect("the fork succeeds");
    let copy = created.handle;
    assert_eq!(messages(&copy), messages(&source)[..4]);
    let (copy_record, source_record) = (copy.record(), source.record());
    assert_eq!(
        (&copy_record.system_prompt, &copy_record.cwd, &copy_record.permissions, copy_record.parent),
        (&source_record.system_prompt, &source_record.cwd, &source_record.permissions, source_record.parent)
    );
    assert_eq!(world.pool.permissions(&copy).may, world.pool.permissions(&source).may);
    assert_eq!(copy_record.origin.as_deref(), Some("fork of a at 4"));
    assert_ne!(copy_record.capability_digest, source_record.capability_digest, "its own token");
    assert_eq!(world.pool.permissions(&copy).resource_usage[0].used, 0, "the usage is not copied");
    assert_eq!(
        expect_end(start_send(&copy, 1, "#9 say other; done")).await.content,
        "other",
        "request ids are not copied"
    );
    assert_eq!((texts(&copy).len(), texts(&source).len()), (6, 6));
    let before = describe_agent(&world, &copy);
    drop((copy, source, parent));
    let world = world.restart().await;
    let copy = world.find("f").await;
    assert_eq!(describe_agent(&world, &copy), before);
    assert_eq!(idle_history_violation(&messages(&copy)), None);
}

#[tokio::test(start_paused = true)]
async fn fork_point_cannot_separate_a_call_from_its_result() {
    let world = World::new().await;
    let source = agent_with_turns(&world, "a").await;
    let fork = async |count: Option<usize>| {
        let fork = Fork { id: None, messages: count };
        world.pool.fork(&source, fork, Initiator::Admin).await
    };
    for count in [0, 4, 6] {
        let copy = fork(Some(count)).await.expect("the fork succeeds").handle;
        assert_eq!((texts(&copy).len(), copy.id().as_str().len()), (count, 8), "a generated name");
    }
    assert_eq!(texts(&fork(None).await.expect("the fork succeeds").handle).len(), 6);
    let fault = fork(Some(2)).await.err().expect("a call without its result");
    assert_eq!(fault.public, "messages 2 would cut a tool call from its result");
    let fault = fork(Some(7)).await.err().expect("not enough messages");
    assert_eq!(fault.public, "messages must be at most 6, the number there are, got: 7");
    let fault = world
        .pool
        .fork(&source, Fork { id: Some(agent_id("a")), messages: None }, Initiator::Admin)
        .await
        .err();
    assert_eq!(fault.expect("the name exists").public, "Agent already exists: a");
}

#[tokio::test(start_paused = true)]
async fn agent_may_fork_only_its_children() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let child = world.child_agent("c", &parent).await;
    let stranger = world.trusted_agent("s").await;
    let forked =
        world.pool.fork(&child, Fork::default(), Initiator::Agent(&parent)).await.expect("its own child");
    assert_eq!(world.status(&forked.handle).parent, Some(agent_id("p")));
    for (source, initiator) in [(&child, &stranger), (&stranger, &stranger), (&parent, &child)] {
        let fault = world
            .pool
            .fork(source, Fork::default(), Initiator::Agent(initiator))
            .await
            .err()
            .expect("denied");
        assert_eq!(fault.kind, FaultKind::Denied, "{fault}");
    }
}

#[tokio::test(start_paused = true)]
async fn rollback_removes_messages_and_the_agent_continues() {
    let world = World::new().await;
    let agent = agent_with_turns(&world, "a").await;
    assert_eq!(agent.rollback(4, Initiator::Admin).await, Ok(2));
    assert_eq!((texts(&agent).len(), world.status(&agent).message_count), (4, 4));
    expect_end(start_send(&agent, 3, "#3 say c; done")).await;
    assert_eq!(world.model.observations().requests.last().map(|request| request.messages.len()), Some(5));
    let before = describe_agent(&world, &agent);
    drop(agent);
    let world = world.restart().await;
    assert_eq!(world.listed_status("a").await.message_count, 6);
    let agent = world.find("a").await;
    assert_eq!(describe_agent(&world, &agent), before);
    assert_eq!(agent.rollback(0, Initiator::Admin).await, Ok(6));
    assert_eq!(agent.rollback(0, Initiator::Admin).await, Ok(0), "nothing is left");
    drop(agent);
    let world = world.restart().await;
    assert_eq!(texts(&world.find("a").await), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn failed_rollback_changes_nothing() {
    let world = World::new().await;
    let agent = agent_with_turns(&world, "a").await;
    for cut in [2, 7, usize::MAX] {
        let fault = agent.rollback(cut, Initiator::Admin).await.expect_err("the rollback fails");
        assert_eq!(fault.kind, FaultKind::Invalid, "{cut}");
    }
    let running = start_send(&agent, 3, "#3 wait; say c; done");
    run_until_idle().await;
    assert!(is_busy(&agent.rollback(0, Initiator::Admin).await.expect_err("a turn is open")));
    world.model.release_all();
    expect_end(running).await;
    assert_eq!(texts(&agent).len(), 8);
    assert!(world.destroy(&agent).await);
    assert_eq!(
        agent.rollback(0, Initiator::Admin).await.expect_err("the agent is destroyed").kind,
        FaultKind::NotFound
    );
}

fn imported_messages() -> Vec<Message> {
    let call = ToolCall { id: "c1".into(), name: "note".into(), arguments: "x".into() };
    vec![
        Message::user("hello", MessageSource { kind: Some("rpc".into()), agent: None }),
        Message::assistant("let me see", vec![call]),
        Message::tool_result("c1", &ToolOutcome::Done("noted".into())),
        Message::assistant("hi", Vec::new()),
    ]
}

fn import_request(spec: AgentSpec) -> Import {
    Import {
        spec,
        messages: imported_messages(),
        created_at: Some(Timestamp(42)),
        origin: "session.json".into(),
    }
}

#[tokio::test(start_paused = true)]
async fn import_restores_messages_and_metadata() {
    let world = World::new().await;
    let spec =
        AgentSpec { system_prompt: Some("be brief".into()), ..with_preset(spec_named("a"), "trusted") };
    let created =
        world.pool.import(import_request(spec), Initiator::Admin).await.expect("the import succeeds");
    assert!(created.initial.is_none());
    let agent = created.handle;
    let imported: Vec<_> = messages(&agent).iter().map(|message| Message::clone(message)).collect();
    assert_eq!(imported, imported_messages());
    let status = world.status(&agent);
    assert_eq!((status.created_at, status.origin.as_deref()), (Timestamp(42), Some("session.json")));
    expect_end(start_send(&agent, 1, "#1 call note y; done | say on; done")).await;
    assert_eq!(tool_texts(&agent), ["noted", "noted y"]);
    let before = describe_agent(&world, &agent);
    drop(agent);
    let world = world.restart().await;
    assert_eq!(describe_agent(&world, &world.find("a").await), before);
}

#[tokio::test(start_paused = true)]
async fn rejected_import_changes_nothing() {
    let world = World::new().await;
    world.agent("a").await;
    for spec in [
        spec_named("a"),
        with_preset(spec_named("b"), "nonsense"),
        AgentSpec { parent: Some(agent_id("missing")), ..spec_named("b") },
    ] {
        let fault = world
            .pool
            .import(import_request(spec), Initiator::Admin)
            .await
            .err()
            .expect("the import is rejected");
        assert_eq!(fault.kind, FaultKind::Invalid, "{fault}");
    }
    assert_eq!(world.names().await, ["a"]);
    let spec = with_first_message(spec_named("b"), "say never; done");
    let created =
        world.pool.import(import_request(spec), Initiator::Admin).await.expect("the import succeeds");
    run_until_idle().await;
    assert_eq!(texts(&created.handle).len(), 4, "an import has no first message");
    let fault = expect_fault(start_send(&created.handle, 1, "#1 say hel; fail")).await;
    assert_eq!(fault.kind, FaultKind::Model);
}
