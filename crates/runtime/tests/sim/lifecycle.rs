//! What can be done to a conversation as a whole: another name, a copy, a way back, one from elsewhere.

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
async fn a_rename_keeps_everything_but_the_name() {
    let world = World::new().await;
    let created = world.create(with_preset(spec_named("a"), "trusted")).await.expect("there is room");
    let token = created.capability;
    expect_end(start_send(&created.handle, 1, "#1 report 3; say yes; done")).await;
    let child = world.child_agent("c", &created.handle).await;
    let before = describe_agent(&world, &created.handle);
    let old = created.handle.agent_ref();
    drop(created.handle);
    let new = world.pool.rename(&old, agent_id("z"), Initiator::Admin).await.expect("it rests");
    assert_eq!((new.id().as_str(), new.serial()), ("z", old.serial()));
    assert!(world.pool.find_ref(&agent_id("a")).is_none());
    let renamed = |text: &str| text.replace("\"a\"", "\"z\"");
    let agent = world.pool.wake(&new).await.expect("it is there");
    assert_eq!(describe_agent(&world, &agent), renamed(&before));
    assert_eq!(world.summary(&child).parent, Some(agent_id("z")), "its children know");
    assert_eq!(world.pool.find_ref_by_capability(token.reveal().as_bytes()), Some(new.clone()));
    assert_eq!(world.pool.wake(&old).await.expect("whoever knew it finds it").id().as_str(), "z");
    assert_eq!(
        expect_end(start_send(&agent, 1, "#1 report 3; say yes; done")).await.content,
        "yes",
        "its sends too"
    );
    let other = world.agent("a").await;
    assert!(!other.is_same_agent(&agent), "the old name is free");
    drop((agent, child, other));
    let world = world.restart().await;
    let agent = world.find("z").await;
    assert_eq!(describe_agent(&world, &agent), renamed(&before));
    assert_eq!(world.summary(&world.find("c").await).parent, Some(agent_id("z")));
}

#[tokio::test(start_paused = true)]
async fn a_rename_that_cannot_be_changes_nothing() {
    let world = World::new().await;
    let agent = agent_with_turns(&world, "a").await;
    world.agent("b").await;
    let target = agent.agent_ref();
    let rename = async |name: &str| {
        world.pool.rename(&target, agent_id(name), Initiator::Admin).await.expect_err("it cannot be")
    };
    assert!(is_busy(&rename("z").await), "somebody has it");
    drop(agent);
    assert_eq!(rename("b").await.public, "Agent already exists: b");
    assert_eq!(rename("a").await.public, "Agent already exists: a");
    assert_eq!(rename(".t").await.kind, FaultKind::Invalid);
    world.find("a").await.submit_committed(new_message(3, "#3 wait; say c; done")).await.expect("it is kept");
    run_until_idle().await;
    assert!(is_busy(&rename("z").await), "it is at work");
    assert_eq!(world.names().await, ["a", "b"]);
    world.model.release_all();
    run_until_idle().await;
    let before = texts(&world.find("a").await);
    world.pool.rename(&target, agent_id("z"), Initiator::Admin).await.expect("it rests now");
    assert_eq!(texts(&world.find("z").await), before);
    assert!(world.destroy_named("z", runtime::ChildPolicy::Cascade).await);
    assert_eq!(rename("y").await.kind, FaultKind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn whoever_wakes_an_agent_while_it_is_renamed_gets_it_by_its_new_name() {
    let world = World::new().await;
    drop(agent_with_turns(&world, "a").await);
    let target = world.pool.find_ref(&agent_id("a")).expect("it is there");
    world.store.hold();
    let (renamed, woken) = tokio::join!(world.pool.rename(&target, agent_id("z"), Initiator::Admin), async {
        run_until_idle().await;
        let mut waking = Box::pin(world.pool.wake(&target));
        assert!(futures_util::FutureExt::now_or_never(&mut waking).is_none(), "it waits for the name");
        world.store.release();
        waking.await
    });
    renamed.expect("it rests");
    assert_eq!(woken.expect("it is there").id().as_str(), "z");
}

#[tokio::test(start_paused = true)]
async fn a_fork_has_all_that_its_source_has_and_goes_its_own_way() {
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
    let created = world.pool.fork(&source, fork, Initiator::Admin).await.expect("it can be");
    let copy = created.handle;
    assert_eq!(messages(&copy), messages(&source)[..4]);
    let (of_copy, of_source) = (copy.record(), source.record());
    assert_eq!(
        (&of_copy.system_prompt, &of_copy.cwd, &of_copy.permissions, of_copy.parent),
        (&of_source.system_prompt, &of_source.cwd, &of_source.permissions, of_source.parent)
    );
    assert_eq!(world.pool.permissions(&copy).may, world.pool.permissions(&source).may);
    assert_eq!(of_copy.origin.as_deref(), Some("fork of a at 4"));
    assert_ne!(of_copy.capability_digest, of_source.capability_digest, "its token is its own");
    assert_eq!(
        world.pool.permissions(&copy).resource_usage[0].used,
        0,
        "what the source used it has not used"
    );
    assert_eq!(
        expect_end(start_send(&copy, 1, "#9 say other; done")).await.content,
        "other",
        "nor has it had its sends"
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
async fn a_fork_ends_anywhere_but_between_a_call_and_its_result() {
    let world = World::new().await;
    let source = agent_with_turns(&world, "a").await;
    let fork = async |count: Option<usize>| {
        let fork = Fork { id: None, messages: count };
        world.pool.fork(&source, fork, Initiator::Admin).await
    };
    for count in [0, 4, 6] {
        let copy = fork(Some(count)).await.expect("it can be").handle;
        assert_eq!((texts(&copy).len(), copy.id().as_str().len()), (count, 8), "its name is made up");
    }
    assert_eq!(texts(&fork(None).await.expect("all of them").handle).len(), 6);
    let fault = fork(Some(2)).await.err().expect("a call would be left without its result");
    assert_eq!(fault.public, "messages 2 would cut a tool call from its result");
    let fault = fork(Some(7)).await.err().expect("there are not so many");
    assert_eq!(fault.public, "messages must be at most 6, the number there are, got: 7");
    let fault = world
        .pool
        .fork(&source, Fork { id: Some(agent_id("a")), messages: None }, Initiator::Admin)
        .await
        .err();
    assert_eq!(fault.expect("it is taken").public, "Agent already exists: a");
}

#[tokio::test(start_paused = true)]
async fn an_agent_may_fork_its_own_children_and_nobody_else() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let child = world.child_agent("c", &parent).await;
    let stranger = world.trusted_agent("s").await;
    let forked =
        world.pool.fork(&child, Fork::default(), Initiator::Agent(&parent)).await.expect("it is its child");
    assert_eq!(world.summary(&forked.handle).parent, Some(agent_id("p")));
    for (source, by) in [(&child, &stranger), (&stranger, &stranger), (&parent, &child)] {
        let fault =
            world.pool.fork(source, Fork::default(), Initiator::Agent(by)).await.err().expect("it may not");
        assert_eq!(fault.kind, FaultKind::Denied, "{fault}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rollback_takes_back_what_was_said_and_the_agent_goes_on_from_there() {
    let world = World::new().await;
    let agent = agent_with_turns(&world, "a").await;
    assert_eq!(agent.rollback(4, Initiator::Admin).await, Ok(2));
    assert_eq!((texts(&agent).len(), world.summary(&agent).message_count), (4, 4));
    expect_end(start_send(&agent, 3, "#3 say c; done")).await;
    assert_eq!(world.model.observations().requests.last().map(|request| request.messages.len()), Some(5));
    let before = describe_agent(&world, &agent);
    drop(agent);
    let world = world.restart().await;
    assert_eq!(world.listed_summary("a").await.message_count, 6);
    let agent = world.find("a").await;
    assert_eq!(describe_agent(&world, &agent), before);
    assert_eq!(agent.rollback(0, Initiator::Admin).await, Ok(6));
    assert_eq!(agent.rollback(0, Initiator::Admin).await, Ok(0), "there is nothing left");
    drop(agent);
    let world = world.restart().await;
    assert_eq!(texts(&world.find("a").await), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_rollback_that_cannot_be_changes_nothing() {
    let world = World::new().await;
    let agent = agent_with_turns(&world, "a").await;
    for cut in [2, 7, usize::MAX] {
        let fault = agent.rollback(cut, Initiator::Admin).await.expect_err("it cannot be");
        assert_eq!(fault.kind, FaultKind::Invalid, "{cut}");
    }
    let running = start_send(&agent, 3, "#3 wait; say c; done");
    run_until_idle().await;
    assert!(is_busy(&agent.rollback(0, Initiator::Admin).await.expect_err("a turn is open")));
    world.model.release_all();
    expect_end(running).await;
    assert_eq!(texts(&agent).len(), 8);
    assert!(world.destroy(&agent).await);
    assert_eq!(agent.rollback(0, Initiator::Admin).await.expect_err("it is gone").kind, FaultKind::NotFound);
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
async fn an_agent_from_elsewhere_is_as_it_was_there() {
    let world = World::new().await;
    let spec =
        AgentSpec { system_prompt: Some("be brief".into()), ..with_preset(spec_named("a"), "trusted") };
    let created = world.pool.import(import_request(spec), Initiator::Admin).await.expect("it can be");
    assert!(created.initial.is_none());
    let agent = created.handle;
    let shown: Vec<_> = messages(&agent).iter().map(|message| Message::clone(message)).collect();
    assert_eq!(shown, imported_messages());
    let summary = world.summary(&agent);
    assert_eq!((summary.created_at, summary.origin.as_deref()), (Timestamp(42), Some("session.json")));
    expect_end(start_send(&agent, 1, "#1 call note y; done | say on; done")).await;
    assert_eq!(tool_texts(&agent), ["noted", "noted y"]);
    let before = describe_agent(&world, &agent);
    drop(agent);
    let world = world.restart().await;
    assert_eq!(describe_agent(&world, &world.find("a").await), before);
}

#[tokio::test(start_paused = true)]
async fn a_refused_import_changes_nothing() {
    let world = World::new().await;
    world.agent("a").await;
    for spec in [
        spec_named("a"),
        with_preset(spec_named("b"), "nonsense"),
        AgentSpec { parent: Some(agent_id("nobody")), ..spec_named("b") },
    ] {
        let fault =
            world.pool.import(import_request(spec), Initiator::Admin).await.err().expect("it cannot be");
        assert_eq!(fault.kind, FaultKind::Invalid, "{fault}");
    }
    assert_eq!(world.names().await, ["a"]);
    let spec = with_first_message(spec_named("b"), "say never; done");
    let created = world.pool.import(import_request(spec), Initiator::Admin).await.expect("it can be");
    run_until_idle().await;
    assert_eq!(texts(&created.handle).len(), 4, "what comes from elsewhere has no first message");
    let fault = expect_fault(start_send(&created.handle, 1, "#1 say hel; fail")).await;
    assert_eq!(fault.kind, FaultKind::Model);
}
