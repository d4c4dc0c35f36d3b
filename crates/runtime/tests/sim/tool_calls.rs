//! Tool calls: concurrency, tool faults, and the results that the model gets.

use std::time::Duration;

use agent::journal::Record;
use agent::outside::{EntryRange, ModelRequest, Store};
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
    let started_at = Instant::now();
    expect_end(start_send(
        &agent,
        1,
        "#1 call slow 1000; call slow 1000; call slow 1000; done | say a; done",
    ))
    .await;
    assert_eq!(started_at.elapsed(), SECOND);
    let started_at = Instant::now();
    expect_end(start_send(
        &agent,
        2,
        "#2 call step 1000; call step 1000; call step 1000; done | say b; done",
    ))
    .await;
    assert_eq!(started_at.elapsed(), SECOND * 3);
    let times: Vec<_> = world
        .tools
        .observations()
        .calls
        .iter()
        .map(|call| (call.started_at - started_at).as_secs())
        .collect();
    assert_eq!(times[3..], [0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn ordered_call_is_a_barrier_between_parallel_calls() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let script =
        "call slow 1000; call slow 3000; call step 1000; call slow 500; call slow 500; done | say a; done";
    let started_at = Instant::now();
    expect_end(start_send(&agent, 1, script)).await;
    assert_eq!(started_at.elapsed(), Duration::from_millis(4500));
    assert_eq!(tool_texts(&agent), ["took 1000", "took 3000", "took 1000", "took 500", "took 500"]);
}

#[tokio::test(start_paused = true)]
async fn number_of_running_calls_is_limited() {
    let world = World::with_limits(Limits { tools_running_max: 2, ..Limits::default() }).await;
    let started_at = Instant::now();
    let calls = "call slow 1000; ".repeat(5);
    expect_end(start_send(&world.agent("a").await, 1, &format!("{calls} done | say a; done"))).await;
    assert_eq!(started_at.elapsed(), SECOND * 3);
    assert_eq!(world.tools.observations().live_max, 2);
}

#[tokio::test(start_paused = true)]
async fn results_are_in_the_order_of_the_calls() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "call slow 900; call note b; call slow 100; done | say a; done")).await;
    assert_eq!(tool_texts(&agent), ["took 900", "noted b", "took 100"]);
    assert_eq!(idle_history_violation(&messages(&agent)), None);
}

#[tokio::test(start_paused = true)]
async fn failed_ordered_call_skips_later_ordered_calls() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "call broken; call step 1; call note; call broken; done | say a; done"))
        .await;
    let halted = "Did not execute: halted due to error in previous tool";
    assert_eq!(tool_texts(&agent), ["broken", halted, "noted ", halted]);
    assert_eq!(world.tools.call_lines(), ["a broken", "a note"]);
}

#[tokio::test(start_paused = true)]
async fn invalid_call_is_an_error_and_the_others_run() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let script = "call nonsense; call note !; call note b; done | say a; done";
    assert_eq!(expect_end(start_send(&agent, 1, script)).await.content, "a");
    assert_eq!(tool_texts(&agent), ["Unknown tool: nonsense", "note: malformed arguments", "noted b"]);
    let endings: Vec<_> = messages(&agent)[2..5].iter().map(|message| message.ending).collect();
    assert_eq!(endings, [Some(Ending::Failed), Some(Ending::Failed), None]);
}

#[tokio::test(start_paused = true)]
async fn call_delivered_again_in_one_response_runs_once() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let script = "call step 1; again step 1; again note other; call note b; done | say a; done";
    assert_eq!(expect_end(start_send(&agent, 1, script)).await.content, "a");
    assert_eq!(world.tools.call_lines(), ["a step 1", "a note b"]);
    assert_eq!(tool_texts(&agent), ["took 1", "noted b"]);
    assert_eq!(idle_history_violation(&messages(&agent)), None);
}

#[tokio::test(start_paused = true)]
async fn known_secrets_are_redacted_from_every_kind_of_result() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    // Known only after the agent was created, as a key that is read again.
    world.known_secrets().add("key-of-a-provider");
    let token = format!("nxc_{}", "x".repeat(43));
    let script = format!(
        "call note key-of-a-provider {token}; call key-of-a-provider; call write /etc/key-of-a-provider; done \
         | say so; done"
    );
    expect_end(start_send(&agent, 1, &script)).await;
    let results = tool_texts(&agent);
    assert_eq!(results[..2], ["noted [redacted] [redacted]", "Unknown tool: [redacted]"]);
    assert!(results[2].starts_with("Permission denied: cannot write '/etc/[redacted]'"), "{}", results[2]);
    assert_eq!(world.tools.call_lines(), [format!("a note key-of-a-provider {token}")], "the tool gets them");
    let everything = EntryRange { agent: None, after: 0, limit: 1000, bytes_max: usize::MAX };
    let entries = world.store.memory().read(everything).await.expect("the store is readable");
    let is_result = |record: &Record| match record {
        Record::CallDone { .. } | Record::Denied { .. } => true,
        Record::MessageAdded(message) => message.role == Role::Tool,
        _ => false,
    };
    let results: Vec<_> = entries.iter().filter(|entry| is_result(&entry.record)).collect();
    assert!(results.len() >= 4 && !format!("{results:?}").contains("key-of-a-provider"), "{results:?}");
}

#[tokio::test(start_paused = true)]
async fn secret_is_redacted_before_its_result_is_truncated() {
    let world = World::with_limits(Limits { tool_result_bytes_max: 15, ..Limits::default() }).await;
    let agent = world.agent("a").await;
    world.known_secrets().add("key-of-a-provider");
    expect_end(start_send(&agent, 1, "call note key-of-a-provider; done | say so; done")).await;
    assert_eq!(
        tool_texts(&agent),
        ["noted [redacted\n[truncated: 15 of 16 bytes shown; call the tool for a smaller part]"]
    );
}

/// Whether each model call so far offered the tool.
fn offered(world: &World, tool: &str) -> Vec<bool> {
    let observations = world.model.observations();
    let offers = |request: &ModelRequest| request.tools.iter().any(|spec| &*spec.name == tool);
    observations.requests.iter().map(offers).collect()
}

#[tokio::test(start_paused = true)]
async fn tool_is_added_and_removed_while_a_pool_runs() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let send = |number: i64| {
        start_send(&agent, number, &format!("#{number} call late {number}; done | say {number}; done"))
    };
    expect_end(send(1)).await;
    world.tools.add_note("late");
    expect_end(send(2)).await;
    world.tools.remove("late");
    expect_end(send(3)).await;
    assert_eq!(tool_texts(&agent), ["Unknown tool: late", "noted 2", "Unknown tool: late"]);
    assert_eq!(offered(&world, "late"), [false, false, true, true, false, false]);
}

#[tokio::test(start_paused = true)]
async fn model_call_keeps_its_tools_until_its_calls_are_done() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.tools.add_note("late");
    let sending = start_send(&agent, 1, "call note a; wait; call late b; call later c; done | say d; done");
    world.model.wait_called(1).await;
    run_until_idle().await;
    world.tools.remove("late");
    world.tools.add_note("later");
    world.model.release_all();
    expect_end(sending).await;
    assert_eq!(tool_texts(&agent), ["noted a", "noted b", "Unknown tool: later"]);
    assert_eq!((offered(&world, "late"), offered(&world, "later")), (vec![true, false], vec![false, true]));
}

#[tokio::test(start_paused = true)]
async fn three_responses_without_a_valid_call_end_the_turn() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let end = expect_end(start_send(&agent, 1, "call note !; done")).await;
    assert_eq!(end.rounds, 3);
    assert!(end.content.contains("no usable tool call three times"), "{}", end.content);
    assert_eq!(idle_history_violation(&messages(&agent)), None);
}

#[tokio::test(start_paused = true)]
async fn pure_tool_with_a_write_does_not_run() {
    let world = World::new().await;
    let agent = world.trusted_agent("a").await;
    expect_end(start_send(&agent, 1, "call pure_write x; call write y; done | say a; done")).await;
    let refused = "Internal error: the tool is declared pure, but it writes";
    let halted = "Did not execute: halted due to error in previous tool";
    assert_eq!(tool_texts(&agent), [refused, halted]);
    assert_eq!(world.tools.call_lines(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn panicking_tool_fails_only_its_call() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    for (number, tool) in (0..).zip(["panics", "panics_at_prepare", "panics_at_effects"]) {
        let script = format!("#{number} call note x; call {tool}; call note y; done | say fine; done");
        let before = tool_texts(&agent).len();
        assert_eq!(expect_end(start_send(&agent, number, &script)).await.content, "fine", "{tool}");
        let panicked = "Internal error: the tool panicked";
        assert_eq!(tool_texts(&agent).split_off(before), ["noted x", panicked, "noted y"], "{tool}");
    }
}

#[tokio::test(start_paused = true)]
async fn tool_panic_on_drop_does_not_affect_other_calls() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    for (number, template) in
        (1..).zip(["panics_at_drop {}; call slow {}", "slow {}; call panics_at_drop {}"])
    {
        let calls = template.replace("{}", "release");
        let sending =
            start_send(&agent, number, &format!("#{number} call {calls}; call panics_at_drop release; done"));
        run_until_idle().await;
        assert_eq!(world.tools.observations().live, 3);
        assert!(without_waiting(agent.cancel(numeric_request_id(number))).await);
        assert_eq!(expect_end(sending).await.outcome, TurnOutcome::Cancelled);
        assert_eq!(world.tools.observations().live, 0, "another call still runs");
    }
    let started_at = Instant::now();
    let sending = start_send(&agent, 3, "#3 call panics_at_drop release; done | say c; done");
    assert_eq!(expect_end(sending).await.content, "c", "after its timeout");
    assert_eq!(started_at.elapsed(), TOOL_TIMEOUT);
    assert_eq!(expect_end(start_send(&agent, 4, "#4 say d; done")).await.content, "d");
}

#[tokio::test(start_paused = true)]
async fn tool_timeout_is_a_result_and_the_turn_continues() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let started_at = Instant::now();
    expect_end(start_send(&agent, 1, "call slow release; call note b; done | say a; done")).await;
    assert_eq!(started_at.elapsed(), TOOL_TIMEOUT);
    assert_eq!(tool_texts(&agent), ["Timeout after 60 seconds", "noted b"]);
    assert_eq!(world.tools.observations().live, 0);
}

#[tokio::test(start_paused = true)]
async fn long_result_is_truncated_with_a_notice() {
    let world = World::with_limits(Limits { tool_result_bytes_max: 100, ..Limits::default() }).await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "call long 100; call long 101; done | say a; done")).await;
    let (complete, truncated) = (
        "x".repeat(100),
        format!("{}\n[truncated: 100 of 101 bytes shown; call the tool for a smaller part]", "x".repeat(100)),
    );
    assert_eq!(tool_texts(&agent), [complete, truncated]);
}

#[tokio::test(start_paused = true)]
async fn results_of_one_response_share_a_byte_limit() {
    let world = World::with_limits(Limits { tool_result_bytes_max: 100, ..Limits::default() }).await;
    let agent = world.agent("a").await;
    let calls = ["call long 100"; 10].join("; ");
    expect_end(start_send(&agent, 1, &format!("{calls}; done | call long 100; done | say a; done"))).await;
    let complete = tool_texts(&agent).into_iter().filter(|result| *result == "x".repeat(100)).count();
    assert_eq!(complete, 9, "eight of the first response, one of the second");
    let truncated = tool_texts(&agent)
        .iter()
        .filter(|result| *result == "\n[truncated: 0 of 100 bytes shown; call the tool for a smaller part]")
        .count();
    assert_eq!(truncated, 2);
}

#[tokio::test(start_paused = true)]
async fn message_page_is_limited_in_bytes_but_never_empty() {
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
async fn cancel_drops_running_tools_and_returns_at_once() {
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
    let expected = [Role::User, Role::Assistant, Role::Tool, Role::Tool, Role::Tool, Role::Assistant];
    assert_eq!(roles(&agent), expected);
    assert_eq!(idle_history_violation(&messages(&agent)), None);
    assert_eq!(expect_end(start_send(&agent, 2, "say next; done")).await.content, "next");
}

#[tokio::test(start_paused = true)]
async fn destroy_drops_the_agents_running_tools() {
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
async fn tools_learn_of_a_destroyed_agent_also_after_its_last_call() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let serial = agent.agent_ref().serial();
    let sending = start_send(&agent, 1, "call slow release; done");
    world.tools.wait_started(1).await;
    assert!(world.destroy(&agent).await);
    expect_end(sending).await;
    assert_eq!(world.tools.observations().ended, [(serial, 1), (serial, 0)]);
}

#[tokio::test(start_paused = true)]
async fn slow_tool_does_not_trigger_the_model_idle_timeout() {
    let world =
        World::with_limits(Limits { model_idle_timeout: Duration::from_secs(5), ..Limits::default() }).await;
    let agent = world.agent("a").await;
    assert_eq!(expect_end(start_send(&agent, 1, "call slow 30000; done | say a; done")).await.content, "a");
    assert_eq!(texts(&agent).len(), 4);
}
