//! What can be done to a conversation as a whole: another name, a copy, a way back, one from elsewhere.

use agent::outside::Timestamp;
use agent::permission::{Budget, Resource};
use agent::{FaultKind, Message, MessageSource, ToolCall, ToolOutcome};
use runtime::{AgentHandle, AgentSpec, Initiator, Fork, Import, PermissionSpec};

use crate::history::{messages, objection_when_idle, results, texts};
use crate::restarts::portrait;
use crate::world::{
    World, below, end_of, fault_of, first, id, is_busy, message, named, preset, settle, start,
};

async fn talked(world: &World, name: &str) -> AgentHandle {
    let agent = world.trusted(name).await;
    end_of(start(&agent, 1, "#1 call note x; done | say a; done")).await;
    end_of(start(&agent, 2, "#2 say b; done")).await;
    agent
}

#[tokio::test(start_paused = true)]
async fn a_rename_keeps_everything_but_the_name() {
    let world = World::new().await;
    let created = world.create(preset(named("a"), "trusted")).await.expect("there is room");
    let token = created.capability;
    end_of(start(&created.handle, 1, "#1 report 3; say yes; done")).await;
    let child = world.child("c", &created.handle).await;
    let before = portrait(&world, &created.handle);
    let old = created.handle.agent_ref();
    drop(created.handle);
    let new = world.pool.rename(&old, id("z"), Initiator::Admin).await.expect("it rests");
    assert_eq!((new.id().as_str(), new.serial()), ("z", old.serial()));
    assert!(world.pool.find_ref(&id("a")).is_none());
    let renamed = |text: &str| text.replace("\"a\"", "\"z\"");
    let agent = world.pool.wake(&new).await.expect("it is there");
    assert_eq!(portrait(&world, &agent), renamed(&before));
    assert_eq!(world.summary(&child).parent, Some(id("z")), "its children know");
    assert_eq!(world.pool.find_ref_by_capability(token.reveal().as_bytes()), Some(new.clone()));
    assert_eq!(world.pool.wake(&old).await.expect("whoever knew it finds it").id().as_str(), "z");
    assert_eq!(end_of(start(&agent, 1, "#1 report 3; say yes; done")).await.content, "yes", "its sends too");
    let other = world.agent("a").await;
    assert!(!other.is_same_agent(&agent), "the old name is free");
    drop((agent, child, other));
    let world = world.restart().await;
    let agent = world.find("z").await;
    assert_eq!(portrait(&world, &agent), renamed(&before));
    assert_eq!(world.summary(&world.find("c").await).parent, Some(id("z")));
}

#[tokio::test(start_paused = true)]
async fn a_rename_that_cannot_be_changes_nothing() {
    let world = World::new().await;
    let agent = talked(&world, "a").await;
    world.agent("b").await;
    let target = agent.agent_ref();
    let rename =
        async |name: &str| world.pool.rename(&target, id(name), Initiator::Admin).await.expect_err("it cannot be");
    assert!(is_busy(&rename("z").await), "somebody has it");
    drop(agent);
    assert_eq!(rename("b").await.public, "Agent already exists: b");
    assert_eq!(rename("a").await.public, "Agent already exists: a");
    assert_eq!(rename(".t").await.kind, FaultKind::Invalid);
    world.find("a").await.submit_committed(message(3, "#3 wait; say c; done")).await.expect("it is kept");
    settle().await;
    assert!(is_busy(&rename("z").await), "it is at work");
    assert_eq!(world.names().await, ["a", "b"]);
    world.model.release_all();
    settle().await;
    let before = texts(&world.find("a").await);
    world.pool.rename(&target, id("z"), Initiator::Admin).await.expect("it rests now");
    assert_eq!(texts(&world.find("z").await), before);
    assert!(world.destroy_named("z", runtime::ChildPolicy::Cascade).await);
    assert_eq!(rename("y").await.kind, FaultKind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn whoever_wakes_an_agent_while_it_is_renamed_gets_it_by_its_new_name() {
    let world = World::new().await;
    drop(talked(&world, "a").await);
    let target = world.pool.find_ref(&id("a")).expect("it is there");
    world.store.hold();
    let (renamed, woken) = tokio::join!(world.pool.rename(&target, id("z"), Initiator::Admin), async {
        settle().await;
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
    let parent = world.make(preset(named("p"), "trusted")).await;
    let permissions = PermissionSpec {
        disable_tools: vec!["step".into()],
        write_paths: Some(vec!["deep".into()]),
        budget: Budget::unlimited().with_limit(Resource::Turns, Some(5)),
        ..PermissionSpec::default()
    };
    let spec =
        AgentSpec { permissions, cwd: Some("a".into()), system_prompt: Some("be brief".into()), ..named("a") };
    let source = world.make(below(spec, &parent)).await;
    end_of(start(&source, 1, "#1 call note x; done | say a; done")).await;
    end_of(start(&source, 2, "#2 say b; done")).await;
    let fork = Fork { id: Some(id("f")), messages: Some(4) };
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
    assert_eq!(world.pool.permissions(&copy).resource_usage[0].used, 0, "what the source used it has not used");
    assert_eq!(
        end_of(start(&copy, 1, "#9 say other; done")).await.content,
        "other",
        "nor has it had its sends"
    );
    assert_eq!((texts(&copy).len(), texts(&source).len()), (6, 6));
    let before = portrait(&world, &copy);
    drop((copy, source, parent));
    let world = world.restart().await;
    let copy = world.find("f").await;
    assert_eq!(portrait(&world, &copy), before);
    assert_eq!(objection_when_idle(&messages(&copy)), None);
}

#[tokio::test(start_paused = true)]
async fn a_fork_ends_anywhere_but_between_a_call_and_its_result() {
    let world = World::new().await;
    let source = talked(&world, "a").await;
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
    let fault = world.pool.fork(&source, Fork { id: Some(id("a")), messages: None }, Initiator::Admin).await.err();
    assert_eq!(fault.expect("it is taken").public, "Agent already exists: a");
}

#[tokio::test(start_paused = true)]
async fn an_agent_may_fork_its_own_children_and_nobody_else() {
    let world = World::new().await;
    let parent = world.trusted("p").await;
    let child = world.child("c", &parent).await;
    let stranger = world.trusted("s").await;
    let forked = world.pool.fork(&child, Fork::default(), Initiator::Agent(&parent)).await.expect("it is its child");
    assert_eq!(world.summary(&forked.handle).parent, Some(id("p")));
    for (source, by) in [(&child, &stranger), (&stranger, &stranger), (&parent, &child)] {
        let fault = world.pool.fork(source, Fork::default(), Initiator::Agent(by)).await.err().expect("it may not");
        assert_eq!(fault.kind, FaultKind::Denied, "{fault}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rollback_takes_back_what_was_said_and_the_agent_goes_on_from_there() {
    let world = World::new().await;
    let agent = talked(&world, "a").await;
    assert_eq!(agent.rollback(4, Initiator::Admin).await, Ok(2));
    assert_eq!((texts(&agent).len(), world.summary(&agent).message_count), (4, 4));
    end_of(start(&agent, 3, "#3 say c; done")).await;
    assert_eq!(world.model.seen().requests.last().map(|request| request.messages.len()), Some(5));
    let before = portrait(&world, &agent);
    drop(agent);
    let world = world.restart().await;
    assert_eq!(world.listed("a").await.message_count, 6);
    let agent = world.find("a").await;
    assert_eq!(portrait(&world, &agent), before);
    assert_eq!(agent.rollback(0, Initiator::Admin).await, Ok(6));
    assert_eq!(agent.rollback(0, Initiator::Admin).await, Ok(0), "there is nothing left");
    drop(agent);
    let world = world.restart().await;
    assert_eq!(texts(&world.find("a").await), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_rollback_that_cannot_be_changes_nothing() {
    let world = World::new().await;
    let agent = talked(&world, "a").await;
    for cut in [2, 7, usize::MAX] {
        let fault = agent.rollback(cut, Initiator::Admin).await.expect_err("it cannot be");
        assert_eq!(fault.kind, FaultKind::Invalid, "{cut}");
    }
    let running = start(&agent, 3, "#3 wait; say c; done");
    settle().await;
    assert!(is_busy(&agent.rollback(0, Initiator::Admin).await.expect_err("a turn is open")));
    world.model.release_all();
    end_of(running).await;
    assert_eq!(texts(&agent).len(), 8);
    assert!(world.destroy(&agent).await);
    assert_eq!(agent.rollback(0, Initiator::Admin).await.expect_err("it is gone").kind, FaultKind::NotFound);
}

fn from_elsewhere() -> Vec<Message> {
    let call = ToolCall { id: "c1".into(), name: "note".into(), arguments: "x".into() };
    vec![
        Message::user("hello", MessageSource { kind: Some("rpc".into()), agent: None }),
        Message::assistant("let me see", vec![call]),
        Message::tool_result("c1", &ToolOutcome::Done("noted".into())),
        Message::assistant("hi", Vec::new()),
    ]
}

fn import(spec: AgentSpec) -> Import {
    Import { spec, messages: from_elsewhere(), created_at: Some(Timestamp(42)), origin: "session.json".into() }
}

#[tokio::test(start_paused = true)]
async fn an_agent_from_elsewhere_is_as_it_was_there() {
    let world = World::new().await;
    let spec = AgentSpec { system_prompt: Some("be brief".into()), ..preset(named("a"), "trusted") };
    let created = world.pool.import(import(spec), Initiator::Admin).await.expect("it can be");
    assert!(created.initial.is_none());
    let agent = created.handle;
    let shown: Vec<_> = messages(&agent).iter().map(|message| Message::clone(message)).collect();
    assert_eq!(shown, from_elsewhere());
    let summary = world.summary(&agent);
    assert_eq!((summary.created_at, summary.origin.as_deref()), (Timestamp(42), Some("session.json")));
    end_of(start(&agent, 1, "#1 call note y; done | say on; done")).await;
    assert_eq!(results(&agent), ["noted", "noted y"]);
    let before = portrait(&world, &agent);
    drop(agent);
    let world = world.restart().await;
    assert_eq!(portrait(&world, &world.find("a").await), before);
}

#[tokio::test(start_paused = true)]
async fn a_refused_import_changes_nothing() {
    let world = World::new().await;
    world.agent("a").await;
    for spec in
        [named("a"), preset(named("b"), "nonsense"), AgentSpec { parent: Some(id("nobody")), ..named("b") }]
    {
        let fault = world.pool.import(import(spec), Initiator::Admin).await.err().expect("it cannot be");
        assert_eq!(fault.kind, FaultKind::Invalid, "{fault}");
    }
    assert_eq!(world.names().await, ["a"]);
    let spec = first(named("b"), "say never; done");
    let created = world.pool.import(import(spec), Initiator::Admin).await.expect("it can be");
    settle().await;
    assert_eq!(texts(&created.handle).len(), 4, "what comes from elsewhere has no first message");
    let fault = fault_of(start(&created.handle, 1, "#1 say hel; fail")).await;
    assert_eq!(fault.kind, FaultKind::Model);
}
