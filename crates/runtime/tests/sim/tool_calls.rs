//! Tool calls: what runs beside what, what a tool can do wrong, and what the model is told of it.

use std::time::Duration;

use agent::{Ending, Role, TurnOutcome};
use runtime::Limits;
use tokio::time::Instant;

use crate::history::{idle_history_violation, messages, roles, texts, tool_texts};
use crate::tools::TOOL_TIMEOUT;
use crate::world::{
    POOL_TASKS, World, alive_task_count, expect_end, numeric_request_id, run_until_idle, start_send,
    without_waiting,
};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn parallel_calls_overlap_and_ordered_ones_do_not() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let before = Instant::now();
    expect_end(start_send(
        &agent,
        1,
        "#1 call slow 1000; call slow 1000; call slow 1000; done | say a; done",
    ))
    .await;
    assert_eq!(before.elapsed(), SECOND);
    let before = Instant::now();
    expect_end(start_send(
        &agent,
        2,
        "#2 call step 1000; call step 1000; call step 1000; done | say b; done",
    ))
    .await;
    assert_eq!(before.elapsed(), SECOND * 3);
    let times: Vec<_> =
        world.tools.observations().calls.iter().map(|ran| (ran.started_at - before).as_secs()).collect();
    assert_eq!(times[3..], [0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn an_ordered_call_waits_for_all_before_it_and_keeps_all_behind_it_waiting() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let script =
        "call slow 1000; call slow 3000; call step 1000; call slow 500; call slow 500; done | say a; done";
    let before = Instant::now();
    expect_end(start_send(&agent, 1, script)).await;
    assert_eq!(before.elapsed(), Duration::from_millis(4500));
    assert_eq!(tool_texts(&agent), ["took 1000", "took 3000", "took 1000", "took 500", "took 500"]);
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_run_at_once_than_allowed() {
    let world = World::with_limits(Limits { tools_running_max: 2, ..Limits::default() }).await;
    let before = Instant::now();
    let calls = "call slow 1000; ".repeat(5);
    expect_end(start_send(&world.agent("a").await, 1, &format!("{calls} done | say a; done"))).await;
    assert_eq!(before.elapsed(), SECOND * 3);
    assert_eq!(world.tools.observations().live_max, 2);
}

#[tokio::test(start_paused = true)]
async fn results_stand_in_the_order_of_the_calls_whoever_is_done_first() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "call slow 900; call note b; call slow 100; done | say a; done")).await;
    assert_eq!(tool_texts(&agent), ["took 900", "noted b", "took 100"]);
    assert_eq!(idle_history_violation(&messages(&agent)), None);
}

#[tokio::test(start_paused = true)]
async fn after_an_ordered_call_that_failed_no_ordered_one_runs() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "call broken; call step 1; call note; call broken; done | say a; done"))
        .await;
    let halted = "Did not execute: halted due to error in previous tool";
    assert_eq!(tool_texts(&agent), ["broken", halted, "noted ", halted]);
    assert_eq!(world.tools.call_lines(), ["a broken", "a note"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_cannot_be_is_told_why_and_the_others_run() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let script = "call nonsense; call note !; call note b; done | say a; done";
    assert_eq!(expect_end(start_send(&agent, 1, script)).await.content, "a");
    assert_eq!(tool_texts(&agent), ["Unknown tool: nonsense", "note: malformed arguments", "noted b"]);
    let endings: Vec<_> = messages(&agent)[2..5].iter().map(|message| message.ending).collect();
    assert_eq!(endings, [Some(Ending::Failed), Some(Ending::Failed), None]);
}

#[tokio::test(start_paused = true)]
async fn three_answers_without_a_usable_call_end_the_turn() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let end = expect_end(start_send(&agent, 1, "call note !; done")).await;
    assert_eq!(end.rounds, 3);
    assert!(end.content.contains("no usable tool call three times"), "{}", end.content);
    assert_eq!(idle_history_violation(&messages(&agent)), None);
}

#[tokio::test(start_paused = true)]
async fn a_panicking_tool_fails_alone() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    for (place, tool) in (0..).zip(["panics", "panics_at_prepare", "panics_at_effects"]) {
        let script = format!("#{place} call note x; call {tool}; call note y; done | say fine; done");
        let before = tool_texts(&agent).len();
        assert_eq!(expect_end(start_send(&agent, place, &script)).await.content, "fine", "{tool}");
        let panicked = "Internal error: the tool panicked";
        assert_eq!(tool_texts(&agent).split_off(before), ["noted x", panicked, "noted y"], "{tool}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_panics_when_it_is_dropped_takes_nobody_with_it() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    for (place, neighbours) in
        (1..).zip(["panics_at_drop {}; call slow {}", "slow {}; call panics_at_drop {}"])
    {
        let calls = neighbours.replace("{}", "release");
        let sending =
            start_send(&agent, place, &format!("#{place} call {calls}; call panics_at_drop release; done"));
        run_until_idle().await;
        assert_eq!(world.tools.observations().live, 3);
        assert!(without_waiting(agent.cancel(numeric_request_id(place))).await);
        assert_eq!(expect_end(sending).await.outcome, TurnOutcome::Cancelled);
        assert_eq!(world.tools.observations().live, 0, "a neighbour lives on");
    }
    let before = Instant::now();
    let sending = start_send(&agent, 3, "#3 call panics_at_drop release; done | say c; done");
    assert_eq!(expect_end(sending).await.content, "c", "after its time was up");
    assert_eq!(before.elapsed(), TOOL_TIMEOUT);
    assert_eq!(expect_end(start_send(&agent, 4, "#4 say d; done")).await.content, "d");
}

#[tokio::test(start_paused = true)]
async fn a_tool_is_given_up_after_its_time_and_the_turn_goes_on() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let before = Instant::now();
    expect_end(start_send(&agent, 1, "call slow release; call note b; done | say a; done")).await;
    assert_eq!(before.elapsed(), TOOL_TIMEOUT);
    assert_eq!(tool_texts(&agent), ["Timeout after 60 seconds", "noted b"]);
    assert_eq!(world.tools.observations().live, 0);
}

#[tokio::test(start_paused = true)]
async fn a_long_result_is_cut_and_says_so() {
    let world = World::with_limits(Limits { tool_result_bytes_max: 100, ..Limits::default() }).await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "call long 100; call long 101; done | say a; done")).await;
    let (whole, cut) = ("x".repeat(100), format!("{}\n[truncated: 100 of 101 bytes shown]", "x".repeat(100)));
    assert_eq!(tool_texts(&agent), [whole, cut]);
}

#[tokio::test(start_paused = true)]
async fn the_results_of_one_answer_are_cut_together_and_the_next_answer_has_room_again() {
    let world = World::with_limits(Limits { tool_result_bytes_max: 100, ..Limits::default() }).await;
    let agent = world.agent("a").await;
    let calls = ["call long 100"; 10].join("; ");
    expect_end(start_send(&agent, 1, &format!("{calls}; done | call long 100; done | say a; done"))).await;
    let whole = tool_texts(&agent).into_iter().filter(|result| *result == "x".repeat(100)).count();
    assert_eq!(whole, 9, "eight of the first answer, and one of the second");
    let cut =
        tool_texts(&agent).iter().filter(|result| *result == "\n[truncated: 0 of 100 bytes shown]").count();
    assert_eq!(cut, 2);
}

#[tokio::test(start_paused = true)]
async fn a_page_of_messages_ends_after_a_length_and_is_never_empty() {
    let world = World::with_limits(Limits { tool_result_bytes_max: 20 << 20, ..Limits::default() }).await;
    let agent = world.agent("a").await;
    let calls = "call long 9000000; call long 9000000; call long 18000000";
    expect_end(start_send(&agent, 1, &format!("{calls}; done | say a; done"))).await;
    let lengths =
        |offset| agent.messages(offset, 100).messages.iter().map(|message| message.text.len()).collect();
    let (first, third, fourth): (Vec<_>, Vec<_>, Vec<_>) = (lengths(2), lengths(3), lengths(4));
    assert_eq!((first, third, fourth), (vec![9_000_000], vec![9_000_000], vec![18_000_000]));
    assert_eq!(agent.messages(0, 100).total, 6);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_drops_the_tools_and_answers_at_once() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sending = start_send(&agent, 1, "say so; call note x; call slow release; call step 5; done");
    world.tools.wait_started(2).await;
    run_until_idle().await;
    assert_eq!(world.tools.observations().live, 1);
    assert!(without_waiting(agent.cancel(numeric_request_id(1))).await);
    let end = without_waiting(expect_end(sending)).await;
    assert_eq!((end.outcome, end.content.as_str()), (TurnOutcome::Cancelled, "so"));
    assert_eq!(world.tools.observations().live, 0);
    let interrupted = "Cancelled by user: tool execution was interrupted";
    assert_eq!(tool_texts(&agent), ["noted x", interrupted, interrupted]);
    let kept = [Role::User, Role::Assistant, Role::Tool, Role::Tool, Role::Tool, Role::Assistant];
    assert_eq!(roles(&agent), kept);
    assert_eq!(idle_history_violation(&messages(&agent)), None);
    assert_eq!(expect_end(start_send(&agent, 2, "say next; done")).await.content, "next");
}

#[tokio::test(start_paused = true)]
async fn a_destroyed_agent_takes_its_tools_with_it() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sending = start_send(&agent, 1, "call slow release; done");
    world.tools.wait_started(1).await;
    assert!(without_waiting(world.destroy(&agent)).await);
    assert_eq!(expect_end(sending).await.outcome, TurnOutcome::Cancelled);
    assert_eq!(
        (world.tools.observations().live, world.pool.open_turns(), alive_task_count()),
        (0, 0, POOL_TASKS)
    );
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_takes_longer_than_a_model_may_be_silent_does_not_end_the_turn() {
    let world =
        World::with_limits(Limits { model_idle_timeout: Duration::from_secs(5), ..Limits::default() }).await;
    let agent = world.agent("a").await;
    assert_eq!(expect_end(start_send(&agent, 1, "call slow 30000; done | say a; done")).await.content, "a");
    assert_eq!(texts(&agent).len(), 4);
}
