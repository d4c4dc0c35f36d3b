//! Compaction of long contexts: before a model call, within tool loops, and on request. It never fails a turn, a crash
//! leaves all of it or nothing, and it does not delay other calls.

use std::sync::Arc;

use agent::compaction::{CompactionMethod, CompactionRecord};
use agent::journal::Record;
use agent::outside::{ModelSpec, ModelTier};
use agent::permission::Budget;
use agent::{Message, Prices, PrincipalId, Role, TurnOutcome};
use runtime::{
    AgentHandle, AgentSpec, CompactionCondition, CompactionOutcome, Initiator, Limits, PermissionSpec,
};

use crate::history::{messages, texts};
use crate::world::{
    World, WorldOptions, expect_end, expect_fault, new_message, numeric_request_id, run_until_idle,
    spec_named, start_send, with_parent, without_waiting,
};

fn small_window(budget: u64) -> WorldOptions {
    WorldOptions { model_spec: ModelSpec::with_window(budget), ..WorldOptions::default() }
}

/// A script of more than 25 tokens.
fn script(turn: usize) -> String {
    format!("#{turn} say answer {turn} {}; done", "y".repeat(200))
}

async fn compactions(world: &World, agent: &AgentHandle) -> Vec<CompactionRecord> {
    let records = world.store.stored_records(agent.agent_ref().serial()).await;
    let compaction = |record| match record {
        Record::Compacted(compaction) => Some(*compaction),
        _ => None,
    };
    records.into_iter().filter_map(compaction).collect()
}

/// Checks that each call is followed by its results, in order.
fn check_call_results(messages: &[Arc<Message>]) {
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        match &message.tool_call_id {
            Some(id) => assert_eq!(open.remove(0), id),
            None => assert!(open.is_empty(), "{message:?} is between a call and its result"),
        }
        open.extend(message.tool_calls.iter().map(|call| call.id.as_str()));
    }
}

#[tokio::test(start_paused = true)]
async fn small_window_never_fails_in_two_hundred_turns() {
    let world = World::open(small_window(4096)).await;
    let agent = world.agent("a").await;
    for turn in 1..=200 {
        let end = expect_end(start_send(&agent, i64::try_from(turn).expect("small"), &script(turn))).await;
        assert_eq!(end.outcome, TurnOutcome::Completed);
        assert!(end.content.contains(&format!("answer {turn} ")), "{}", end.content);
        let size = agent.tokens().size;
        assert!(size.total <= size.available, "turn {turn}: {size:?}");
    }
    let all = compactions(&world, &agent).await;
    assert!(
        all.len() > 3 && all.iter().all(|compaction| compaction.method == CompactionMethod::Summary),
        "{} compactions",
        all.len()
    );
    assert_eq!(world.model.observations().summary_requests.len(), all.len(), "one model call each");
    let before = texts(&agent);
    assert!(before[0].ends_with("in short"), "{}", before[0]);
    let world = world.restart().await;
    assert_eq!(texts(&world.find("a").await), before, "a restart loads the same context");
}

/// The prompt and the tools take more than half of this window.
#[tokio::test(start_paused = true)]
async fn long_prompt_leaves_room_for_message_and_summary() {
    let world = World::open(small_window(4096)).await;
    let prompt = "p".repeat(2170 * 4);
    let agent = world.create_handle(AgentSpec { system_prompt: Some(prompt), ..spec_named("a") }).await;
    for turn in 1..=40 {
        let script = script(turn);
        let end = expect_end(start_send(&agent, i64::try_from(turn).expect("small"), &script)).await;
        assert!(end.content.contains(&format!("answer {turn} ")), "{}", end.content);
        assert!(texts(&agent).contains(&script), "turn {turn}: {:?}", texts(&agent));
        let size = agent.tokens().size;
        assert!(size.total <= size.available, "turn {turn}: {size:?}");
    }
    let all = compactions(&world, &agent).await;
    assert!(
        all.len() > 3 && all.iter().all(|compaction| compaction.method == CompactionMethod::Summary),
        "{all:?}"
    );
    assert!(texts(&agent)[0].ends_with("in short"), "{:?}", texts(&agent));
}

#[tokio::test(start_paused = true)]
async fn turn_reports_the_compaction() {
    let world = World::open(small_window(2048)).await;
    let agent = world.agent("a").await;
    let mut contents = Vec::new();
    for turn in 1..=30 {
        contents.push(
            expect_end(start_send(&agent, i64::try_from(turn).expect("small"), &script(turn))).await.content,
        );
    }
    let records = compactions(&world, &agent).await;
    let turn = usize::try_from(records[0].turn.expect("it ran in a turn")).expect("small");
    let notice =
        format!("\n[Context compacted: {} tokens reclaimed]\n\nanswer {turn} ", records[0].reclaimed());
    assert!(contents[turn - 1].starts_with(&notice), "{}", contents[turn - 1]);
    assert_eq!((&records[0].by, records[0].messages_before), (&PrincipalId::Auto, turn * 2 - 1));
}

#[tokio::test(start_paused = true)]
async fn long_tool_loop_is_compacted_but_retains_the_prompt() {
    let limits = Limits { tool_iterations_max: 40, ..Limits::default() };
    let world = World::open(small_window(4096).with_limits(limits)).await;
    let agent = world.agent("a").await;
    let script = "#1 call long 1600; done";
    let end = expect_end(start_send(&agent, 1, script)).await;
    assert_eq!((end.outcome, end.rounds), (TurnOutcome::Completed, 40));
    assert!(end.content.contains("[Context compacted: "), "{}", end.content);
    assert!(compactions(&world, &agent).await.len() > 2);
    let requests: Vec<_> =
        world.model.observations().requests.iter().map(|request| Arc::clone(&request.messages)).collect();
    for messages in requests {
        check_call_results(&messages);
        assert!(messages.iter().any(|message| message.text == script), "the request has the prompt");
    }
}

#[tokio::test(start_paused = true)]
async fn failed_summary_falls_back_to_dropping_messages() {
    let failures = [
        "fail",
        "",
        "done",
        "say  ; done",
        "panic",
        "panic-at-call",
        "flood 100000; done",
        "pass 200000; say late; done",
        "say half; pass 200000",
    ];
    for failure in failures {
        let world = World::open(small_window(4096)).await;
        world.model.observations().summary_script = failure.to_owned();
        let agent = world.agent("a").await;
        for turn in 1..=80 {
            let end =
                expect_end(start_send(&agent, turn, &script(usize::try_from(turn).expect("small")))).await;
            assert_eq!(end.outcome, TurnOutcome::Completed, "{failure}");
        }
        let all = compactions(&world, &agent).await;
        assert!(
            !all.is_empty() && all.iter().all(|compaction| compaction.method == CompactionMethod::Dropped),
            "{failure}"
        );
        assert!(texts(&agent)[0].starts_with("[Earlier messages were dropped to make room: "), "{failure}");
        assert_eq!(world.model.observations().live_total, 0, "{failure}: no stream is left");
    }
}

#[tokio::test(start_paused = true)]
async fn giant_message_is_truncated_only_for_the_model() {
    let world = World::open(small_window(4096)).await;
    let agent = world.agent("a").await;
    let giant = format!("#1 say hello; done | {}", "z ".repeat(500_000));
    let end = expect_end(start_send(&agent, 1, &giant)).await;
    assert!(end.content.ends_with("hello"), "{}", end.content.len());
    let size = agent.tokens().size;
    assert!(size.total <= size.available, "{size:?}");
    let records = world.store.stored_records(agent.agent_ref().serial()).await;
    let is_complete =
        |record: &Record| matches!(record, Record::TurnAccepted(accepted) if accepted.message.text == giant);
    assert!(records.iter().any(is_complete));
}

#[tokio::test(start_paused = true)]
async fn context_full_fault_retries_with_a_shorter_context() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    for turn in 1..=40 {
        expect_end(start_send(&agent, turn, &script(usize::try_from(turn).expect("small")))).await;
    }
    // The window is smaller than its declared size.
    world.model.observations().characters_max = Some(3000);
    let end = expect_end(start_send(&agent, 99, "#99 say still here; done")).await;
    assert!(end.content.ends_with("still here"), "{}", end.content);
    assert!(world.model.observations().rejected_count > 1);
    world.model.observations().characters_max = Some(1);
    let fault = expect_fault(start_send(&agent, 100, "#100 say never; done")).await;
    assert_eq!(fault.kind, agent::FaultKind::ContextFull, "it ends with the cause");
}

#[tokio::test(start_paused = true)]
async fn cancel_ends_a_summary_at_once() {
    let world = World::open(small_window(2048)).await;
    let agent = world.agent("a").await;
    world.model.observations().summary_script = "say half; wait; done".to_owned();
    let mut turn = 0;
    let sending = loop {
        turn += 1;
        let sending = start_send(&agent, turn, &script(usize::try_from(turn).expect("small")));
        run_until_idle().await;
        if !world.model.observations().summary_requests.is_empty() {
            break sending;
        }
        expect_end(sending).await;
    };
    assert!(without_waiting(agent.cancel(numeric_request_id(turn))).await);
    assert_eq!(expect_end(sending).await.outcome, TurnOutcome::Cancelled);
    run_until_idle().await;
    assert_eq!(world.model.observations().live_total, 0);
    assert_eq!(compactions(&world, &agent).await.len(), 0);
    world.model.observations().summary_script = "say in short; done".to_owned();
    expect_end(start_send(&agent, 1000, "#1000 say on; done")).await;
    assert_eq!(compactions(&world, &agent).await.len(), 1, "the next turn compacts");
}

#[tokio::test(start_paused = true)]
async fn crash_leaves_a_compaction_complete_or_absent() {
    let mut outcomes = [0, 0];
    for appends in 1..60 {
        let world = World::open(small_window(1024)).await;
        let agent = world.agent("a").await;
        world.store.die_after(appends);
        let mut turn = 0;
        while !world.store.is_dead() && turn < 40 {
            turn += 1;
            let sending = start_send(&agent, turn, &script(usize::try_from(turn).expect("small")));
            run_until_idle().await;
            if !sending.is_finished() {
                sending.abort();
                break;
            }
        }
        drop(agent);
        let world = world.restart().await;
        run_until_idle().await;
        let agent = world.find("a").await;
        let (all, texts) = (compactions(&world, &agent).await, texts(&agent));
        outcomes[usize::from(!all.is_empty())] += 1;
        assert_eq!(texts.iter().any(|text| text.starts_with("[Summary")), !all.is_empty(), "{appends}");
        let last = all.last().map_or(0, CompactionRecord::messages_after);
        assert!(texts.len() >= last, "{appends}");
        expect_end(start_send(&agent, 1000, "#1000 say on; done")).await;
        assert_eq!(messages(&agent).last().map(|message| message.role), Some(Role::Assistant));
    }
    assert!(outcomes[0] > 3 && outcomes[1] > 3, "{outcomes:?}");
}

async fn agent_with_turns(world: &World, name: &str) -> AgentHandle {
    let agent = world.agent(name).await;
    for turn in 1..=10 {
        expect_end(start_send(&agent, turn, &script(usize::try_from(turn).expect("small")))).await;
    }
    agent
}

#[tokio::test(start_paused = true)]
async fn compaction_on_request() {
    let world = World::new().await;
    let agent = agent_with_turns(&world, "a").await;
    assert_eq!(
        agent.compact(CompactionCondition::Full, Initiator::Admin).await,
        Ok(CompactionOutcome::Nothing),
        "the context is not full"
    );
    let before = agent.tokens().size.messages;
    let done = agent.compact(CompactionCondition::Now, Initiator::Admin).await.expect("the commit succeeds");
    let after = agent.tokens().size.messages;
    assert_eq!(done, CompactionOutcome::Done { tokens_before: before, tokens_after: after });
    assert!(after < before / 2, "{before} tokens became {after}");
    let all = compactions(&world, &agent).await;
    assert_eq!((all.len(), all[0].turn, &all[0].by), (1, None, &PrincipalId::Admin));
    assert_eq!(world.listed_status("a").await.message_count, messages(&agent).len());
    let empty = world.agent("b").await;
    assert_eq!(
        empty.compact(CompactionCondition::Now, Initiator::Admin).await,
        Ok(CompactionOutcome::Nothing)
    );
    let texts_before = texts(&agent);
    drop((agent, empty));
    let world = world.restart().await;
    assert_eq!(texts(&world.find("a").await), texts_before);
}

#[tokio::test(start_paused = true)]
async fn failed_summary_changes_nothing_unless_context_is_full() {
    for window in [0, 4096] {
        let world = World::open(small_window(window)).await;
        let agent = agent_with_turns(&world, "a").await;
        let before = texts(&agent);
        let panics = ["panic", "panic-at-call", "panic-at-drop; fail"];
        for failure in ["fail", "say half", "done", "flood 100000; done"].into_iter().chain(panics) {
            world.model.observations().summary_script = failure.to_owned();
            let fault = agent
                .compact(CompactionCondition::Now, Initiator::Admin)
                .await
                .expect_err("the summary fails");
            assert_eq!(fault.kind, agent::FaultKind::Model, "{window}, {failure}: {fault}");
            assert_eq!(texts(&agent), before, "{window}, {failure}");
        }
        let prompt = world.model.observations().summary_requests.pop().expect("the model was called");
        assert!(prompt.contains("answer 5"), "{window}: the prompt has the conversation: {prompt}");
        let long = format!("#11 say {}; done", "z".repeat(12_000));
        assert_eq!(
            expect_end(start_send(&agent, 11, &long)).await.outcome,
            TurnOutcome::Completed,
            "the agent works"
        );
        let done = agent.compact(CompactionCondition::Now, Initiator::Admin).await;
        assert_eq!(matches!(done, Ok(CompactionOutcome::Done { .. })), window > 0, "{window}: {done:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_window_is_halved_on_context_full() {
    let world = World::open(small_window(0)).await;
    let agent = agent_with_turns(&world, "a").await;
    let before = agent.tokens().size.messages;
    world.model.observations().summary_script = "fail".to_owned();
    world.model.observations().characters_max = Some(usize::try_from(before * 4 * 3 / 4).expect("small"));
    expect_end(start_send(&agent, 99, "#99 say still here; done")).await;
    let after = agent.tokens().size.messages;
    assert!((before / 3..before * 2 / 3).contains(&after), "{before} tokens became {after}");
}

#[tokio::test(start_paused = true)]
async fn compaction_is_queued_between_turns() {
    let world = World::new().await;
    let agent = agent_with_turns(&world, "a").await;
    world.model.observations().summary_script = "wait; say in short; done".to_owned();
    let running = start_send(&agent, 20, "#20 wait; say first; done");
    run_until_idle().await;
    let compacting = {
        let agent = agent.clone();
        tokio::spawn(async move { agent.compact(CompactionCondition::Now, Initiator::Admin).await })
    };
    run_until_idle().await;
    let next = start_send(&agent, 21, "#21 say second; done");
    run_until_idle().await;
    assert!(world.model.observations().summary_requests.is_empty(), "it is queued behind the turn");
    world.model.release_one();
    expect_end(running).await;
    run_until_idle().await;
    assert_eq!(world.model.observations().summary_requests.len(), 1);
    assert!(!next.is_finished(), "the send is queued behind it");
    let submitted = without_waiting(agent.submit_committed(new_message(22, "#22 say third; done"))).await;
    assert!(submitted.is_ok(), "a submitted message is committed at once");
    assert!(without_waiting(agent.cancel(numeric_request_id(22))).await, "and can be cancelled");
    world.model.release_one();
    let done = compacting.await.expect("no panic").expect("the commit succeeds");
    assert!(matches!(done, CompactionOutcome::Done { .. }));
    assert_eq!(expect_end(next).await.content, "second");
    let order: Vec<_> =
        texts(&agent).iter().rev().take(2).map(|text| text.chars().take(6).collect::<String>()).collect();
    assert_eq!(order, ["second", "#21 sa"]);
}

#[tokio::test(start_paused = true)]
async fn destroy_ends_a_running_compaction() {
    let world = World::new().await;
    let agent = agent_with_turns(&world, "a").await;
    world.model.observations().summary_script = "wait; done".to_owned();
    let compacting = {
        let agent = agent.clone();
        tokio::spawn(async move { agent.compact(CompactionCondition::Now, Initiator::Admin).await })
    };
    run_until_idle().await;
    assert!(without_waiting(world.destroy(&agent)).await);
    let fault = compacting.await.expect("no panic").expect_err("the agent is destroyed");
    assert_eq!(fault.kind, agent::FaultKind::NotFound);
    run_until_idle().await;
    assert_eq!(world.model.observations().live_total, 0);
}

#[tokio::test(start_paused = true)]
async fn summary_consumes_budget_or_is_skipped_without_it() {
    let prices = Prices { input: 1_000_000, output: 1_000_000, ..Prices::default() };
    let model_spec = ModelSpec { prices: Some(prices), ..ModelSpec::with_window(100_000) };
    let world = World::open(WorldOptions { model_spec, ..WorldOptions::default() }).await;
    let parent = world.trusted_agent("p").await;
    let budget = Budget::unlimited().with_limit(agent::permission::Resource::Tokens, Some(1022));
    let permissions = PermissionSpec { budget, ..PermissionSpec::default() };
    let child = world.create_handle(AgentSpec { permissions, ..with_parent(spec_named("c"), &parent) }).await;
    for turn in 1..=10 {
        let script = script(usize::try_from(turn).expect("small")).replace("; done", "; report 1; done");
        expect_end(start_send(&child, turn, &script)).await;
    }
    world.model.observations().summary_script = "say in short; report 1000; done".to_owned();
    child.compact(CompactionCondition::Now, Initiator::Admin).await.expect("the commit succeeds");
    let tokens = child.tokens();
    assert_eq!(
        (tokens.usage_totals.requests, tokens.usage_totals.usage.input, tokens.usage_totals.usage.output),
        (11, 1010, 11)
    );
    assert_eq!((tokens.cost, tokens.tree_cost), (Some(1_021_000), Some(1_021_000)));
    assert_eq!((parent.tokens().cost, parent.tokens().tree_cost), (Some(0), Some(1_021_000)));
    expect_end(start_send(&child, 11, &format!("#11 say {}; report 1; done", "w".repeat(4000)))).await;
    world.model.observations().summary_requests.clear();
    let done = child.compact(CompactionCondition::Now, Initiator::Admin).await.expect("the commit succeeds");
    assert!(
        matches!(done, CompactionOutcome::Done { .. })
            && world.model.observations().summary_requests.is_empty()
    );
    assert_eq!(
        compactions(&world, &child).await.last().map(|compaction| compaction.method),
        Some(CompactionMethod::Dropped)
    );
    drop((parent, child));
    let world = world.restart().await;
    let parent = world.find("p").await;
    assert_eq!(parent.tokens().tree_cost, Some(1_023_000), "the cost is persisted");
}

#[tokio::test(start_paused = true)]
async fn long_result_is_truncated_with_a_read_handle() {
    let world = World::open(small_window(8192)).await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "#1 call long 40000; done | say seen; done")).await;
    let all = messages(&agent);
    let result = all.iter().find(|message| message.role == Role::Tool).expect("a result");
    let size = agent.tokens().size;
    assert!(
        result.text.len() < 4 * usize::try_from(size.available / 4).expect("small") + 400,
        "{}",
        result.text.len()
    );
    assert!(
        result.text.contains(" bytes left out: call result_read with handle r1, offset "),
        "{}",
        result.text
    );
}

#[tokio::test(start_paused = true)]
async fn small_model_gets_few_tools() {
    let model_spec = ModelSpec { tier: ModelTier::Small, ..ModelSpec::with_window(4096) };
    let world = World::open(WorldOptions { model_spec, ..WorldOptions::default() }).await;
    let agent = world.trusted_agent("a").await;
    assert!(agent.tool_names().len() <= 6, "{:?}", agent.tool_names());
}

#[tokio::test(start_paused = true)]
async fn reported_token_counts_trigger_compaction() {
    let world = World::open(small_window(100_000)).await;
    let agent = world.agent("a").await;
    let long = "z".repeat(32_000 * 4);
    expect_end(start_send(&agent, 1, &format!("#1 say {long}; done"))).await;
    let counted = agent.tokens().size.total;
    expect_end(start_send(&agent, 2, "#2 say x; done")).await;
    assert!(compactions(&world, &agent).await.is_empty(), "{counted} of 100,000 tokens fit");
    expect_end(start_send(&agent, 3, &format!("#3 report {}; say x; done", counted * 3 / 2))).await;
    expect_end(start_send(&agent, 4, "#4 say x; done")).await;
    assert!(!compactions(&world, &agent).await.is_empty(), "the model counts 50 % more");
}
