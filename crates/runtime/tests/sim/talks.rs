//! Agents that talk to each other: waiting, cancelling, circles, and slots.

use agent::{Role, TurnOutcome};
use runtime::{AgentHandle, Limits};
use tokio::time::Instant;

use crate::history::{messages, objection_when_idle, questions, results, texts};
use crate::world::{World, at_once, end_of, named, numeric_request_id, preset, settle, start};

/// An agent that may do everything.
async fn free(world: &World, name: &str) -> AgentHandle {
    world.make(preset(named(name), "yolo")).await
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_gets_the_answer() {
    let world = World::new().await;
    let parent = world.trusted("p").await;
    let child = world.child("c", &parent).await;
    let script = "call agent_send {to=c wait=yes report 1; say hi; done}; done | say so; done";
    assert_eq!(end_of(start(&parent, 1, script)).await.content, "so");
    assert_eq!(results(&parent), ["said 'hi'"]);
    let asked = &messages(&child)[0];
    assert_eq!((asked.role, asked.text.as_str()), (Role::User, "report 1; say hi; done"));
    assert_eq!(asked.source.kind.as_deref(), Some("agent"));
    assert_eq!(asked.source.agent, Some(agent::RequestId::Text("p".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn whoever_does_not_wait_goes_on_at_once() {
    let world = World::new().await;
    let parent = world.trusted("p").await;
    let child = world.child("c", &parent).await;
    let script = "call agent_send {to=c wait; say hi; done}; done | say so; done";
    assert_eq!(at_once(end_of(start(&parent, 1, script))).await.content, "so");
    assert_eq!(results(&parent), ["has it"]);
    settle().await;
    assert_eq!(world.pool.open_turns(), 1, "it works on it");
    world.model.release_all();
    settle().await;
    assert_eq!(texts(&child), ["wait; say hi; done", "hi"]);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_of_whoever_waits_cancels_what_it_waits_for() {
    let world = World::new().await;
    let parent = world.trusted("p").await;
    let child = world.child("c", &parent).await;
    let others = start(&child, 5, "#5 wait; say mine; done");
    let sending = start(&parent, 1, "say so; call agent_send {to=c wait=yes #6 say hel; wait}; done");
    settle().await;
    let behind = start(&child, 7, "#7 say behind; done");
    settle().await;
    assert_eq!(world.pool.open_turns(), 4);
    assert!(at_once(parent.cancel(numeric_request_id(1))).await);
    assert_eq!(end_of(sending).await.content, "so");
    settle().await;
    assert_eq!(world.pool.open_turns(), 2, "its send is gone, those of others are not");
    world.model.release_all();
    assert_eq!(
        (end_of(others).await.content, end_of(behind).await.content),
        ("mine".into(), "behind".into())
    );
    assert_eq!(texts(&child).len(), 4);
    let sending = start(&parent, 2, "call agent_send {to=c wait=yes #8 say hel; wait}; done");
    settle().await;
    assert!(at_once(parent.cancel(numeric_request_id(2))).await);
    end_of(sending).await;
    settle().await;
    let broken = messages(&child).pop().expect("it has messages");
    assert_eq!(
        (broken.text.as_str(), broken.ending),
        ("hel", Some(agent::Ending::Cancelled)),
        "also while it runs"
    );
    assert_eq!((world.pool.open_turns(), world.model.seen().live_total), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_send_is_an_answer_to_whoever_waits() {
    let world = World::new().await;
    let parent = world.trusted("p").await;
    let child = world.child("c", &parent).await;
    let sending = start(&parent, 1, "call agent_send {to=c wait=yes say hel; wait}; done | say so; done");
    settle().await;
    assert!(at_once(world.destroy(&child)).await);
    assert_eq!(end_of(sending).await.content, "so");
    assert_eq!(results(&parent), ["was cancelled after 'hel'"]);
}

#[tokio::test(start_paused = true)]
async fn two_agents_never_wait_for_each_other() {
    let world = World::new().await;
    let parent = world.trusted("p").await;
    let child = world.child("c", &parent).await;
    let inner = "call agent_send {to=p wait=yes say never; done}; done | say alone; done";
    let script = format!("call agent_send {{to=c wait=yes {inner}}}; done | say so; done");
    assert_eq!(at_once(end_of(start(&parent, 1, &script))).await.content, "so");
    let refused = "waiting would never end: 'c' would wait for 'p', which waits for 'c'";
    assert_eq!(results(&child), [refused]);
    assert_eq!(results(&parent), ["said 'alone'"]);
    assert_eq!(questions(&parent).len(), 1, "the refused message was not delivered");
    let script = "#2 call agent_send {to=p wait=yes #3 say now; done}; done | say so; done";
    end_of(start(&child, 2, script)).await;
    assert_eq!(results(&child)[1], "said 'now'", "once nobody waits it may");
}

#[tokio::test(start_paused = true)]
async fn three_agents_never_wait_in_a_circle() {
    let world = World::new().await;
    let agents = [free(&world, "a").await, free(&world, "b").await, free(&world, "c").await];
    let third = "call agent_send {to=a wait=yes say never; done}; done | say third; done";
    let second = format!("call agent_send {{to=c wait=yes {third}}}; done | say second; done");
    let script = format!("call agent_send {{to=b wait=yes {second}}}; done | say first; done");
    assert_eq!(at_once(end_of(start(&agents[0], 1, &script))).await.content, "first");
    let refused = "waiting would never end: 'c' would wait for 'a', which waits for 'c'";
    assert_eq!(results(&agents[2]), [refused]);
    assert_eq!(results(&agents[1]), ["said 'third'"]);
    assert_eq!(results(&agents[0]), ["said 'second'"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_without_waiting_may_go_round_in_a_circle() {
    let world = World::new().await;
    let (first, second) = (free(&world, "a").await, free(&world, "b").await);
    let inner = "call agent_send {to=a say back; done}; done | say b; done";
    let script = format!("call agent_send {{to=b wait=yes {inner}}}; done | say a; done");
    end_of(start(&first, 1, &script)).await;
    settle().await;
    assert_eq!(results(&second), ["has it"]);
    assert_eq!(texts(&first).split_off(4), ["say back; done", "back"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_to_oneself_is_refused() {
    let world = World::new().await;
    let agent = free(&world, "a").await;
    end_of(start(&agent, 1, "call agent_send {to=a wait=yes say never; done}; done | say a; done")).await;
    assert_eq!(results(&agent), ["Permission denied: 'a' cannot target itself"]);
}

#[tokio::test(start_paused = true)]
async fn with_one_slot_whoever_waits_does_not_keep_it() {
    let world = World::with(Limits { turns_running_max: 1, ..Limits::default() }).await;
    let parent = world.trusted("p").await;
    let child = world.child("c", &parent).await;
    let script = "#1 call agent_send {to=c wait=yes #2 say hi; done}; done | say so; done";
    assert_eq!(at_once(end_of(start(&parent, 1, script))).await.content, "so");
    let before: Vec<_> =
        (10..13).map(|place| start(&child, place, &format!("#{place} say x; done"))).collect();
    settle().await;
    let busy = start(&child, 13, "#13 wait; say y; done");
    settle().await;
    let waiting =
        start(&parent, 2, "#3 call agent_send {to=c wait=yes #4 say hi; done}; done | say so; done");
    let behind = start(&child, 14, "#14 say z; done");
    settle().await;
    world.model.release_all();
    assert_eq!(at_once(end_of(waiting)).await.content, "so", "also behind sends of others");
    for sending in before.into_iter().chain([busy, behind]) {
        end_of(sending).await;
    }
    assert_eq!(world.model.seen().live_max, 1);
}

#[tokio::test(start_paused = true)]
async fn a_whole_line_of_waiting_agents_needs_one_slot() {
    let world = World::with(Limits { turns_running_max: 1, ..Limits::default() }).await;
    let mut agents = Vec::new();
    for name in ["a", "b", "c", "d"] {
        agents.push(free(&world, name).await);
    }
    let mut script = "say bottom; done".to_owned();
    for to in ["d", "c", "b"] {
        script = format!("call agent_send {{to={to} wait=yes {script}}}; done | say {to} answered; done");
    }
    assert_eq!(at_once(end_of(start(&agents[0], 1, &script))).await.content, "b answered");
    assert_eq!(results(&agents[2]), ["said 'bottom'"]);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_gave_its_slot_away_waits_for_another_and_can_be_cancelled_meanwhile() {
    let world = World::with(Limits { turns_running_max: 1, ..Limits::default() }).await;
    let parent = world.trusted("p").await;
    let child = world.child("c", &parent).await;
    let other = world.agent("other").await;
    let sending =
        start(&parent, 1, "call agent_send {to=c wait=yes #2 wait; say hi; done}; done | say so; done");
    settle().await;
    let greedy = start(&other, 1, "wait; say other; done");
    settle().await;
    assert!(world.model.release_one(), "the child is done, and the other gets the slot");
    settle().await;
    assert_eq!(results(&parent), ["said 'hi'"]);
    assert!(!sending.is_finished());
    assert!(at_once(parent.cancel(numeric_request_id(1))).await);
    assert_eq!(end_of(sending).await.outcome, TurnOutcome::Cancelled);
    world.model.release_all();
    assert_eq!(end_of(greedy).await.content, "other");
    assert_eq!(end_of(start(&child, 9, "#9 say fine; done")).await.content, "fine", "no slot was lost");
    assert_eq!(objection_when_idle(&messages(&parent)), None);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_takes_too_long_is_given_up_and_its_send_with_it() {
    let world = World::with(Limits { model_idle_timeout: crate::tools::AGENT_TOOL_TIMEOUT * 2, ..Limits::default() }).await;
    let parent = world.trusted("p").await;
    world.child("c", &parent).await;
    let before = Instant::now();
    let script = "call agent_send {to=c wait=yes say hel; pass 1100000000; done}; done | say so; done";
    assert_eq!(end_of(start(&parent, 1, script)).await.content, "so");
    assert_eq!(before.elapsed(), crate::tools::AGENT_TOOL_TIMEOUT);
    settle().await;
    assert_eq!((world.pool.open_turns(), world.model.seen().live_total), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_agent_manages_those_below_it_and_nobody_else() {
    let world = World::new().await;
    let parent = world.trusted("p").await;
    let child = world.child("c", &parent).await;
    world.trusted("stranger").await;
    let open = start(&child, 1, "wait");
    settle().await;
    let script = "call agent_status to=c; call agent_list; call agent_destroy to=stranger; \
                  call agent_destroy to=c; call agent_destroy to=c; done | say so; done";
    end_of(start(&parent, 1, script)).await;
    let told = results(&parent);
    assert!(told[0].contains("is_working: true"), "{}", told[0]);
    assert_eq!(told[1], "p c");
    assert_eq!(
        told[2],
        "Permission denied: cannot target agent 'stranger'; allowed: parent and child agents"
    );
    assert_eq!(told[3], "destroyed: true");
    assert_eq!(end_of(open).await.outcome, TurnOutcome::Cancelled);
    assert_eq!(world.names().await, ["p", "stranger"]);
}

#[tokio::test(start_paused = true)]
async fn a_child_does_not_destroy_its_parent() {
    let world = World::new().await;
    let parent = free(&world, "p").await;
    let child = world.make(crate::world::below(preset(named("c"), "yolo"), &parent)).await;
    end_of(start(&child, 1, "call agent_destroy to=p; done | say so; done")).await;
    assert_eq!(results(&child), ["Agent 'c' is not authorized to destroy 'p'"]);
    assert_eq!(world.names().await, ["p", "c"]);
}
