//! Agents that send messages to each other: waiting, cancelling, wait cycles, and slots of running turns.

use agent::{Role, TurnOutcome};
use runtime::{AgentHandle, Limits};
use tokio::time::Instant;

use crate::history::{idle_history_violation, messages, texts, tool_texts, user_texts};
use crate::world::{
    World, expect_end, numeric_request_id, run_until_idle, spec_named, start_send, with_preset,
    without_waiting,
};

/// Creates an agent with all permissions.
async fn unrestricted_agent(world: &World, name: &str) -> AgentHandle {
    world.create_handle(with_preset(spec_named(name), "yolo")).await
}

#[tokio::test(start_paused = true)]
async fn waiting_sender_gets_the_response() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let child = world.child_agent("c", &parent).await;
    let script = "call agent_send {to=c wait=yes report 1; say hi; done}; done | say so; done";
    assert_eq!(expect_end(start_send(&parent, 1, script)).await.content, "so");
    assert_eq!(tool_texts(&parent), ["replied 'hi'"]);
    let request = &messages(&child)[0];
    assert_eq!((request.role, request.text.as_str()), (Role::User, "report 1; say hi; done"));
    assert_eq!(request.source.kind.as_deref(), Some("agent"));
    assert_eq!(request.source.agent, Some(agent::RequestId::Text("p".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn non_waiting_sender_continues_at_once() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let child = world.child_agent("c", &parent).await;
    let script = "call agent_send {to=c wait; say hi; done}; done | say so; done";
    assert_eq!(without_waiting(expect_end(start_send(&parent, 1, script))).await.content, "so");
    assert_eq!(tool_texts(&parent), ["queued"]);
    run_until_idle().await;
    assert_eq!(world.pool.open_turns(), 1, "the child's turn runs");
    world.model.release_all();
    run_until_idle().await;
    assert_eq!(texts(&child), ["wait; say hi; done", "hi"]);
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_waiting_turn_cancels_its_send() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let child = world.child_agent("c", &parent).await;
    let other_send = start_send(&child, 5, "#5 wait; say mine; done");
    let sending = start_send(&parent, 1, "say so; call agent_send {to=c wait=yes #6 say hel; wait}; done");
    run_until_idle().await;
    let last = start_send(&child, 7, "#7 say behind; done");
    run_until_idle().await;
    assert_eq!(world.pool.open_turns(), 4);
    assert!(without_waiting(parent.cancel(numeric_request_id(1))).await);
    assert_eq!(expect_end(sending).await.content, "so");
    run_until_idle().await;
    assert_eq!(world.pool.open_turns(), 2, "only its own send is cancelled");
    world.model.release_all();
    assert_eq!(
        (expect_end(other_send).await.content, expect_end(last).await.content),
        ("mine".into(), "behind".into())
    );
    assert_eq!(texts(&child).len(), 4);
    let sending = start_send(&parent, 2, "call agent_send {to=c wait=yes #8 say hel; wait}; done");
    run_until_idle().await;
    assert!(without_waiting(parent.cancel(numeric_request_id(2))).await);
    expect_end(sending).await;
    run_until_idle().await;
    let partial = messages(&child).pop().expect("messages");
    assert_eq!(
        (partial.text.as_str(), partial.ending),
        ("hel", Some(agent::Ending::Cancelled)),
        "also while the child's turn runs"
    );
    assert_eq!((world.pool.open_turns(), world.model.observations().live_total), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn waiting_sender_is_notified_of_a_cancelled_send() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let child = world.child_agent("c", &parent).await;
    let sending =
        start_send(&parent, 1, "call agent_send {to=c wait=yes say hel; wait}; done | say so; done");
    run_until_idle().await;
    assert!(without_waiting(world.destroy(&child)).await);
    assert_eq!(expect_end(sending).await.content, "so");
    assert_eq!(tool_texts(&parent), ["was cancelled after 'hel'"]);
}

#[tokio::test(start_paused = true)]
async fn wait_cycle_of_two_agents_is_rejected() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let child = world.child_agent("c", &parent).await;
    let inner = "call agent_send {to=p wait=yes say never; done}; done | say alone; done";
    let script = format!("call agent_send {{to=c wait=yes {inner}}}; done | say so; done");
    assert_eq!(without_waiting(expect_end(start_send(&parent, 1, &script))).await.content, "so");
    let rejection = "deadlock: 'c' would wait for 'p', which waits for 'c'";
    assert_eq!(tool_texts(&child), [rejection]);
    assert_eq!(tool_texts(&parent), ["replied 'alone'"]);
    assert_eq!(user_texts(&parent).len(), 1, "the rejected message was not delivered");
    let script = "#2 call agent_send {to=p wait=yes #3 say now; done}; done | say so; done";
    expect_end(start_send(&child, 2, script)).await;
    assert_eq!(tool_texts(&child)[1], "replied 'now'", "without a cycle the send succeeds");
}

#[tokio::test(start_paused = true)]
async fn wait_cycle_of_three_agents_is_rejected() {
    let world = World::new().await;
    let agents = [
        unrestricted_agent(&world, "a").await,
        unrestricted_agent(&world, "b").await,
        unrestricted_agent(&world, "c").await,
    ];
    let third = "call agent_send {to=a wait=yes say never; done}; done | say third; done";
    let second = format!("call agent_send {{to=c wait=yes {third}}}; done | say second; done");
    let script = format!("call agent_send {{to=b wait=yes {second}}}; done | say first; done");
    assert_eq!(without_waiting(expect_end(start_send(&agents[0], 1, &script))).await.content, "first");
    let rejection = "deadlock: 'c' would wait for 'a', which waits for 'c'";
    assert_eq!(tool_texts(&agents[2]), [rejection]);
    assert_eq!(tool_texts(&agents[1]), ["replied 'third'"]);
    assert_eq!(tool_texts(&agents[0]), ["replied 'second'"]);
}

#[tokio::test(start_paused = true)]
async fn cycle_of_non_waiting_sends_is_allowed() {
    let world = World::new().await;
    let (first, second) = (unrestricted_agent(&world, "a").await, unrestricted_agent(&world, "b").await);
    let inner = "call agent_send {to=a say back; done}; done | say b; done";
    let script = format!("call agent_send {{to=b wait=yes {inner}}}; done | say a; done");
    expect_end(start_send(&first, 1, &script)).await;
    run_until_idle().await;
    assert_eq!(tool_texts(&second), ["queued"]);
    assert_eq!(texts(&first).split_off(4), ["say back; done", "back"]);
}

#[tokio::test(start_paused = true)]
async fn send_to_itself_is_denied() {
    let world = World::new().await;
    let agent = unrestricted_agent(&world, "a").await;
    expect_end(start_send(&agent, 1, "call agent_send {to=a wait=yes say never; done}; done | say a; done"))
        .await;
    assert_eq!(tool_texts(&agent), ["Permission denied: 'a' cannot target itself"]);
}

#[tokio::test(start_paused = true)]
async fn waiting_turn_releases_its_slot() {
    let world = World::with_limits(Limits { turns_running_max: 1, ..Limits::default() }).await;
    let parent = world.trusted_agent("p").await;
    let child = world.child_agent("c", &parent).await;
    let script = "#1 call agent_send {to=c wait=yes #2 say hi; done}; done | say so; done";
    assert_eq!(without_waiting(expect_end(start_send(&parent, 1, script))).await.content, "so");
    let earlier: Vec<_> =
        (10..13).map(|number| start_send(&child, number, &format!("#{number} say x; done"))).collect();
    run_until_idle().await;
    let running = start_send(&child, 13, "#13 wait; say y; done");
    run_until_idle().await;
    let waiting =
        start_send(&parent, 2, "#3 call agent_send {to=c wait=yes #4 say hi; done}; done | say so; done");
    let last = start_send(&child, 14, "#14 say z; done");
    run_until_idle().await;
    world.model.release_all();
    assert_eq!(without_waiting(expect_end(waiting)).await.content, "so", "also queued behind other sends");
    for sending in earlier.into_iter().chain([running, last]) {
        expect_end(sending).await;
    }
    assert_eq!(world.model.observations().live_max, 1);
}

#[tokio::test(start_paused = true)]
async fn chain_of_waiting_agents_needs_one_slot() {
    let world = World::with_limits(Limits { turns_running_max: 1, ..Limits::default() }).await;
    let mut agents = Vec::new();
    for name in ["a", "b", "c", "d"] {
        agents.push(unrestricted_agent(&world, name).await);
    }
    let mut script = "say bottom; done".to_owned();
    for to in ["d", "c", "b"] {
        script = format!("call agent_send {{to={to} wait=yes {script}}}; done | say {to} replied; done");
    }
    assert_eq!(without_waiting(expect_end(start_send(&agents[0], 1, &script))).await.content, "b replied");
    assert_eq!(tool_texts(&agents[2]), ["replied 'bottom'"]);
}

#[tokio::test(start_paused = true)]
async fn turn_waiting_to_regain_its_slot_can_be_cancelled() {
    let world = World::with_limits(Limits { turns_running_max: 1, ..Limits::default() }).await;
    let parent = world.trusted_agent("p").await;
    let child = world.child_agent("c", &parent).await;
    let other = world.agent("other").await;
    let sending =
        start_send(&parent, 1, "call agent_send {to=c wait=yes #2 wait; say hi; done}; done | say so; done");
    run_until_idle().await;
    let running = start_send(&other, 1, "wait; say other; done");
    run_until_idle().await;
    assert!(world.model.release_one(), "the child is done, and the other agent gets the slot");
    run_until_idle().await;
    assert_eq!(tool_texts(&parent), ["replied 'hi'"]);
    assert!(!sending.is_finished());
    assert!(without_waiting(parent.cancel(numeric_request_id(1))).await);
    assert_eq!(expect_end(sending).await.outcome, TurnOutcome::Cancelled);
    world.model.release_all();
    assert_eq!(expect_end(running).await.content, "other");
    assert_eq!(
        expect_end(start_send(&child, 9, "#9 say fine; done")).await.content,
        "fine",
        "no slot was lost"
    );
    assert_eq!(idle_history_violation(&messages(&parent)), None);
}

#[tokio::test(start_paused = true)]
async fn wait_timeout_cancels_the_send() {
    let world = World::with_limits(Limits {
        model_idle_timeout: crate::tools::AGENT_TOOL_TIMEOUT * 2,
        ..Limits::default()
    })
    .await;
    let parent = world.trusted_agent("p").await;
    world.child_agent("c", &parent).await;
    let started_at = Instant::now();
    let script = "call agent_send {to=c wait=yes say hel; pass 1100000000; done}; done | say so; done";
    assert_eq!(expect_end(start_send(&parent, 1, script)).await.content, "so");
    assert_eq!(started_at.elapsed(), crate::tools::AGENT_TOOL_TIMEOUT);
    run_until_idle().await;
    assert_eq!((world.pool.open_turns(), world.model.observations().live_total), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn agent_manages_only_its_descendants() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let child = world.child_agent("c", &parent).await;
    world.trusted_agent("stranger").await;
    let open = start_send(&child, 1, "wait");
    run_until_idle().await;
    let script = "call agent_status to=c; call agent_list; call agent_destroy to=stranger; \
                  call agent_destroy to=c; call agent_destroy to=c; done | say so; done";
    expect_end(start_send(&parent, 1, script)).await;
    let results = tool_texts(&parent);
    assert!(results[0].contains("is_working: true"), "{}", results[0]);
    assert_eq!(results[1], "p c");
    assert_eq!(
        results[2],
        "Permission denied: cannot target agent 'stranger'; allowed: parent and child agents"
    );
    assert_eq!(results[3], "destroyed: true");
    assert_eq!(expect_end(open).await.outcome, TurnOutcome::Cancelled);
    assert_eq!(world.names().await, ["p", "stranger"]);
}

#[tokio::test(start_paused = true)]
async fn child_cannot_destroy_its_parent() {
    let world = World::new().await;
    let parent = unrestricted_agent(&world, "p").await;
    let child =
        world.create_handle(crate::world::with_parent(with_preset(spec_named("c"), "yolo"), &parent)).await;
    expect_end(start_send(&child, 1, "call agent_destroy to=p; done | say so; done")).await;
    assert_eq!(tool_texts(&child), ["Agent 'c' is not authorized to destroy 'p'"]);
    assert_eq!(world.names().await, ["p", "c"]);
}
