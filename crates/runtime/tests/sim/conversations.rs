//! Agents that talk to each other: waiting, cancelling, circles, and slots.

use agent::{Role, TurnOutcome};
use runtime::{AgentHandle, Limits};
use tokio::time::Instant;

use crate::history::{idle_history_violation, messages, texts, tool_texts, user_texts};
use crate::world::{
    World, expect_end, numeric_request_id, run_until_idle, spec_named, start_send, with_preset,
    without_waiting,
};

/// An agent that may do everything.
async fn unrestricted_agent(world: &World, name: &str) -> AgentHandle {
    world.create_handle(with_preset(spec_named(name), "yolo")).await
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_gets_the_answer() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let child = world.child_agent("c", &parent).await;
    let script = "call agent_send {to=c wait=yes report 1; say hi; done}; done | say so; done";
    assert_eq!(expect_end(start_send(&parent, 1, script)).await.content, "so");
    assert_eq!(tool_texts(&parent), ["replied 'hi'"]);
    let asked = &messages(&child)[0];
    assert_eq!((asked.role, asked.text.as_str()), (Role::User, "report 1; say hi; done"));
    assert_eq!(asked.source.kind.as_deref(), Some("agent"));
    assert_eq!(asked.source.agent, Some(agent::RequestId::Text("p".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn whoever_does_not_wait_goes_on_at_once() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let child = world.child_agent("c", &parent).await;
    let script = "call agent_send {to=c wait; say hi; done}; done | say so; done";
    assert_eq!(without_waiting(expect_end(start_send(&parent, 1, script))).await.content, "so");
    assert_eq!(tool_texts(&parent), ["queued"]);
    run_until_idle().await;
    assert_eq!(world.pool.open_turns(), 1, "it works on it");
    world.model.release_all();
    run_until_idle().await;
    assert_eq!(texts(&child), ["wait; say hi; done", "hi"]);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_of_whoever_waits_cancels_what_it_waits_for() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let child = world.child_agent("c", &parent).await;
    let others = start_send(&child, 5, "#5 wait; say mine; done");
    let sending = start_send(&parent, 1, "say so; call agent_send {to=c wait=yes #6 say hel; wait}; done");
    run_until_idle().await;
    let behind = start_send(&child, 7, "#7 say behind; done");
    run_until_idle().await;
    assert_eq!(world.pool.open_turns(), 4);
    assert!(without_waiting(parent.cancel(numeric_request_id(1))).await);
    assert_eq!(expect_end(sending).await.content, "so");
    run_until_idle().await;
    assert_eq!(world.pool.open_turns(), 2, "its send is gone, those of others are not");
    world.model.release_all();
    assert_eq!(
        (expect_end(others).await.content, expect_end(behind).await.content),
        ("mine".into(), "behind".into())
    );
    assert_eq!(texts(&child).len(), 4);
    let sending = start_send(&parent, 2, "call agent_send {to=c wait=yes #8 say hel; wait}; done");
    run_until_idle().await;
    assert!(without_waiting(parent.cancel(numeric_request_id(2))).await);
    expect_end(sending).await;
    run_until_idle().await;
    let broken = messages(&child).pop().expect("it has messages");
    assert_eq!(
        (broken.text.as_str(), broken.ending),
        ("hel", Some(agent::Ending::Cancelled)),
        "also while it runs"
    );
    assert_eq!((world.pool.open_turns(), world.model.observations().live_total), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_send_is_an_answer_to_whoever_waits() {
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
async fn two_agents_never_wait_for_each_other() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let child = world.child_agent("c", &parent).await;
    let inner = "call agent_send {to=p wait=yes say never; done}; done | say alone; done";
    let script = format!("call agent_send {{to=c wait=yes {inner}}}; done | say so; done");
    assert_eq!(without_waiting(expect_end(start_send(&parent, 1, &script))).await.content, "so");
    let refused = "waiting would never end: 'c' would wait for 'p', which waits for 'c'";
    assert_eq!(tool_texts(&child), [refused]);
    assert_eq!(tool_texts(&parent), ["replied 'alone'"]);
    assert_eq!(user_texts(&parent).len(), 1, "the refused message was not delivered");
    let script = "#2 call agent_send {to=p wait=yes #3 say now; done}; done | say so; done";
    expect_end(start_send(&child, 2, script)).await;
    assert_eq!(tool_texts(&child)[1], "replied 'now'", "once nobody waits it may");
}

#[tokio::test(start_paused = true)]
async fn three_agents_never_wait_in_a_circle() {
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
    let refused = "waiting would never end: 'c' would wait for 'a', which waits for 'c'";
    assert_eq!(tool_texts(&agents[2]), [refused]);
    assert_eq!(tool_texts(&agents[1]), ["replied 'third'"]);
    assert_eq!(tool_texts(&agents[0]), ["replied 'second'"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_without_waiting_may_go_round_in_a_circle() {
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
async fn a_message_to_oneself_is_refused() {
    let world = World::new().await;
    let agent = unrestricted_agent(&world, "a").await;
    expect_end(start_send(&agent, 1, "call agent_send {to=a wait=yes say never; done}; done | say a; done"))
        .await;
    assert_eq!(tool_texts(&agent), ["Permission denied: 'a' cannot target itself"]);
}

#[tokio::test(start_paused = true)]
async fn with_one_slot_whoever_waits_does_not_keep_it() {
    let world = World::with_limits(Limits { turns_running_max: 1, ..Limits::default() }).await;
    let parent = world.trusted_agent("p").await;
    let child = world.child_agent("c", &parent).await;
    let script = "#1 call agent_send {to=c wait=yes #2 say hi; done}; done | say so; done";
    assert_eq!(without_waiting(expect_end(start_send(&parent, 1, script))).await.content, "so");
    let before: Vec<_> =
        (10..13).map(|place| start_send(&child, place, &format!("#{place} say x; done"))).collect();
    run_until_idle().await;
    let busy = start_send(&child, 13, "#13 wait; say y; done");
    run_until_idle().await;
    let waiting =
        start_send(&parent, 2, "#3 call agent_send {to=c wait=yes #4 say hi; done}; done | say so; done");
    let behind = start_send(&child, 14, "#14 say z; done");
    run_until_idle().await;
    world.model.release_all();
    assert_eq!(without_waiting(expect_end(waiting)).await.content, "so", "also behind sends of others");
    for sending in before.into_iter().chain([busy, behind]) {
        expect_end(sending).await;
    }
    assert_eq!(world.model.observations().live_max, 1);
}

#[tokio::test(start_paused = true)]
async fn a_whole_line_of_waiting_agents_needs_one_slot() {
    let world = World::with_limits(Limits { turns_running_max: 1, ..Limits::default() }).await;
    let mut agents = Vec::new();
    for name in ["a", "b", "c", "d"] {
        agents.push(unrestricted_agent(&world, name).await);
    }
    let mut script = "say bottom; done".to_owned();
    for to in ["d", "c", "b"] {
        script = format!("call agent_send {{to={to} wait=yes {script}}}; done | say {to} answered; done");
    }
    assert_eq!(without_waiting(expect_end(start_send(&agents[0], 1, &script))).await.content, "b answered");
    assert_eq!(tool_texts(&agents[2]), ["replied 'bottom'"]);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_gave_its_slot_away_waits_for_another_and_can_be_cancelled_meanwhile() {
    let world = World::with_limits(Limits { turns_running_max: 1, ..Limits::default() }).await;
    let parent = world.trusted_agent("p").await;
    let child = world.child_agent("c", &parent).await;
    let other = world.agent("other").await;
    let sending =
        start_send(&parent, 1, "call agent_send {to=c wait=yes #2 wait; say hi; done}; done | say so; done");
    run_until_idle().await;
    let greedy = start_send(&other, 1, "wait; say other; done");
    run_until_idle().await;
    assert!(world.model.release_one(), "the child is done, and the other gets the slot");
    run_until_idle().await;
    assert_eq!(tool_texts(&parent), ["replied 'hi'"]);
    assert!(!sending.is_finished());
    assert!(without_waiting(parent.cancel(numeric_request_id(1))).await);
    assert_eq!(expect_end(sending).await.outcome, TurnOutcome::Cancelled);
    world.model.release_all();
    assert_eq!(expect_end(greedy).await.content, "other");
    assert_eq!(
        expect_end(start_send(&child, 9, "#9 say fine; done")).await.content,
        "fine",
        "no slot was lost"
    );
    assert_eq!(idle_history_violation(&messages(&parent)), None);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_takes_too_long_is_given_up_and_its_send_with_it() {
    let world = World::with_limits(Limits {
        model_idle_timeout: crate::tools::AGENT_TOOL_TIMEOUT * 2,
        ..Limits::default()
    })
    .await;
    let parent = world.trusted_agent("p").await;
    world.child_agent("c", &parent).await;
    let before = Instant::now();
    let script = "call agent_send {to=c wait=yes say hel; pass 1100000000; done}; done | say so; done";
    assert_eq!(expect_end(start_send(&parent, 1, script)).await.content, "so");
    assert_eq!(before.elapsed(), crate::tools::AGENT_TOOL_TIMEOUT);
    run_until_idle().await;
    assert_eq!((world.pool.open_turns(), world.model.observations().live_total), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_agent_manages_those_below_it_and_nobody_else() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let child = world.child_agent("c", &parent).await;
    world.trusted_agent("stranger").await;
    let open = start_send(&child, 1, "wait");
    run_until_idle().await;
    let script = "call agent_status to=c; call agent_list; call agent_destroy to=stranger; \
                  call agent_destroy to=c; call agent_destroy to=c; done | say so; done";
    expect_end(start_send(&parent, 1, script)).await;
    let told = tool_texts(&parent);
    assert!(told[0].contains("is_working: true"), "{}", told[0]);
    assert_eq!(told[1], "p c");
    assert_eq!(
        told[2],
        "Permission denied: cannot target agent 'stranger'; allowed: parent and child agents"
    );
    assert_eq!(told[3], "destroyed: true");
    assert_eq!(expect_end(open).await.outcome, TurnOutcome::Cancelled);
    assert_eq!(world.names().await, ["p", "stranger"]);
}

#[tokio::test(start_paused = true)]
async fn a_child_does_not_destroy_its_parent() {
    let world = World::new().await;
    let parent = unrestricted_agent(&world, "p").await;
    let child =
        world.create_handle(crate::world::with_parent(with_preset(spec_named("c"), "yolo"), &parent)).await;
    expect_end(start_send(&child, 1, "call agent_destroy to=p; done | say so; done")).await;
    assert_eq!(tool_texts(&child), ["Agent 'c' is not authorized to destroy 'p'"]);
    assert_eq!(world.names().await, ["p", "c"]);
}
