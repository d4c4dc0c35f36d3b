//! Approvals: calls that wait for an answer, answers by admins, ancestors, rules and the time limit, and restarts in between.

use std::time::Duration;

use agent::journal::{ApprovalAnswer, Record};
use agent::outside::{AnswerScope, EntryRange, NewAnswer, PendingApproval, Store, StoreFault};
use agent::permission::{Rule, RuleAction, RuleEntry, RuleScope};
use agent::{Fault, FaultKind, TurnOutcome};
use runtime::{AgentHandle, AgentSpec, DefaultAnswer, Initiator, Limits, PermissionChange, PermissionSpec};
use tokio::time::Instant;

use crate::history::tool_texts;
use crate::world::{
    World, WorldOptions, expect_end, numeric_request_id, run_until_idle, spec_named, start_send, with_parent,
    with_preset,
};

const MINUTE: Duration = Duration::from_secs(60);

/// A turn that calls a tool which must not run twice, then answers.
const SCRIPT: &str = "call once 10; done | say a; done";

fn rules(action: RuleAction, texts: &[&str]) -> Vec<RuleEntry> {
    let entry = |text: &&str| RuleEntry::of_creator(action, rule(text));
    texts.iter().map(entry).collect()
}

fn rule(text: &str) -> Rule {
    Rule::parse(text).expect("a valid rule")
}

/// An agent that asks for calls of `once`.
fn asking(name: &str) -> AgentSpec {
    let permissions =
        PermissionSpec { rules: rules(RuleAction::Ask, &["once"]), ..PermissionSpec::default() };
    AgentSpec { permissions, ..spec_named(name) }
}

fn answer(is_allowed: bool) -> NewAnswer {
    NewAnswer { is_allowed, scope: AnswerScope::Once, rule: None, note: None }
}

fn allow_later(scope: RuleScope, text: Option<&str>) -> NewAnswer {
    NewAnswer { scope: AnswerScope::Rule(scope), rule: text.map(rule), ..answer(true) }
}

impl World {
    fn approvals(&self) -> Vec<PendingApproval> {
        self.pool.approvals(Initiator::Admin).expect("an admin lists approvals")
    }

    /// The id of the only open request, once every task waits.
    async fn open_approval(&self) -> String {
        run_until_idle().await;
        let approvals = self.approvals();
        assert_eq!(approvals.len(), 1, "{approvals:?}");
        approvals[0].request.id.clone()
    }

    async fn answer(&self, id: &str, answer: NewAnswer) -> Result<ApprovalAnswer, Fault> {
        self.pool.answer_approval(id, answer, Initiator::Admin).await
    }

    /// The kinds of the records about tool calls and approvals.
    async fn call_records(&self) -> Vec<&'static str> {
        let everything = EntryRange { agent: None, after: 0, limit: 1000, bytes_max: usize::MAX };
        let entries = self.store.memory().read(everything).await.expect("the store is readable");
        let is_of_call = |record: &&Record| {
            matches!(
                record,
                Record::ApprovalRequested(_) | Record::ApprovalAnswered(_) | Record::CallBegun { .. }
            )
        };
        entries.iter().map(|entry| &entry.record).filter(is_of_call).map(Record::kind).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn asked_call_runs_once_it_is_allowed() {
    let world = World::new().await;
    let agent = world.create_handle(asking("a")).await;
    let sending = start_send(&agent, 1, SCRIPT);
    let id = world.open_approval().await;
    assert_eq!(world.tools.call_lines(), Vec::<String>::new(), "it waits");
    let pending = &world.approvals()[0];
    assert_eq!((pending.agent.as_str(), pending.request.tool.as_str()), ("a", "once"));
    assert_eq!(pending.request.effects, ["use once"]);
    assert_eq!(pending.request.reason, "rule 'once' of agent 'a' asks for it");
    world.answer(&id, answer(true)).await.expect("the first answer");
    expect_end(sending).await;
    assert_eq!(tool_texts(&agent), ["took 10"]);
    assert_eq!(world.call_records().await, ["approval_requested", "approval_answered", "tool_begun"]);
    assert!(world.approvals().is_empty());
}

#[tokio::test(start_paused = true)]
async fn denied_call_does_not_run_and_the_model_reads_the_note() {
    let world = World::new().await;
    let agent = world.create_handle(asking("a")).await;
    let sending = start_send(&agent, 1, SCRIPT);
    let id = world.open_approval().await;
    let note = Some("use the test database".to_owned());
    world.answer(&id, NewAnswer { note, ..answer(false) }).await.expect("the first answer");
    expect_end(sending).await;
    let text = "Permission denied: the call was denied when asked for: use the test database";
    assert_eq!(tool_texts(&agent), [text]);
    assert_eq!(world.tools.call_lines(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn default_answer_applies_after_the_time_limit() {
    for (default, expected) in [
        (DefaultAnswer::Deny, "Permission denied: the call was not approved: no answer within 60 s"),
        (DefaultAnswer::Allow, "took 10"),
    ] {
        let mut options =
            WorldOptions::default().with_limits(Limits { approval_timeout: MINUTE, ..Limits::default() });
        options.pool_options.approval_default = default;
        let world = World::open(options).await;
        let agent = world.create_handle(asking("a")).await;
        let started_at = Instant::now();
        expect_end(start_send(&agent, 1, SCRIPT)).await;
        assert!((MINUTE..MINUTE * 2).contains(&started_at.elapsed()), "{:?}", started_at.elapsed());
        assert_eq!(tool_texts(&agent), [expected]);
    }
}

#[tokio::test(start_paused = true)]
async fn first_answer_wins_and_later_ones_are_refused() {
    let world = World::new().await;
    let agent = world.create_handle(asking("a")).await;
    let sending = start_send(&agent, 1, SCRIPT);
    let id = world.open_approval().await;
    let (first, second) = tokio::join!(world.answer(&id, answer(false)), world.answer(&id, answer(true)));
    first.expect("the first answer");
    let text = second.expect_err("the second answer").to_string();
    assert!(text.contains("answered already"), "{text}");
    expect_end(sending).await;
    let text = world.answer(&id, answer(true)).await.expect_err("a late answer").to_string();
    assert_eq!(text, format!("approval {id} was answered already: denied by admin"));
    let missing = world.answer("other", answer(true)).await.expect_err("no such request");
    assert_eq!(
        (missing.kind, missing.to_string().as_str()),
        (FaultKind::NotFound, "Approval not found: other")
    );
}

#[tokio::test(start_paused = true)]
async fn waiting_call_occupies_no_slot() {
    let world = World::with_limits(Limits { turns_running_max: 1, ..Limits::default() }).await;
    let (waiting, other) = (world.create_handle(asking("a")).await, world.agent("b").await);
    let sending = start_send(&waiting, 1, SCRIPT);
    let id = world.open_approval().await;
    let end = expect_end(start_send(&other, 1, "say b; done")).await;
    assert_eq!(end.content, "b");
    world.answer(&id, answer(true)).await.expect("the first answer");
    expect_end(sending).await;
}

#[tokio::test(start_paused = true)]
async fn end_of_the_turn_withdraws_its_request() {
    let world = World::new().await;
    let agent = world.create_handle(asking("a")).await;
    let sending = start_send(&agent, 1, SCRIPT);
    let id = world.open_approval().await;
    assert!(agent.cancel(numeric_request_id(1)).await);
    assert_eq!(expect_end(sending).await.outcome, TurnOutcome::Cancelled);
    assert!(world.approvals().is_empty());
    let text = world.answer(&id, answer(true)).await.expect_err("withdrawn").to_string();
    assert_eq!(text, format!("Approval not found: {id}"));
    world.destroy(&agent).await;
}

#[tokio::test(start_paused = true)]
async fn rule_of_an_answer_covers_later_calls_also_after_a_restart() {
    let world = World::new().await;
    let agent = world.create_handle(asking("a")).await;
    let sending = start_send(&agent, 1, SCRIPT);
    let id = world.open_approval().await;
    let wrong = world.answer(&id, allow_later(RuleScope::Agent, Some("slow"))).await;
    let text = wrong.expect_err("a rule for other calls").to_string();
    assert_eq!(text, "rule 'slow' does not match what is asked: use once");
    let answered = world.answer(&id, allow_later(RuleScope::Agent, None)).await.expect("the first answer");
    assert_eq!(answered.rule.map(|entry| entry.rule.to_string()).as_deref(), Some("once 10"));
    expect_end(sending).await;
    expect_end(start_send(&agent, 2, "#2 call once 10; done | say b; done")).await;
    drop(agent);
    let world = world.restart().await;
    let agent = world.find("a").await;
    expect_end(start_send(&agent, 3, "#3 call once 10; done | say c; done")).await;
    assert_eq!(tool_texts(&agent), ["took 10"; 3]);
    // Other arguments are another call.
    let sending = start_send(&agent, 4, "#4 call once 20; done | say d; done");
    let id = world.open_approval().await;
    world.answer(&id, answer(false)).await.expect("the first answer");
    expect_end(sending).await;
}

#[tokio::test(start_paused = true)]
async fn standing_denial_needs_no_further_answer() {
    let world = World::new().await;
    let agent = world.create_handle(asking("a")).await;
    let sending = start_send(&agent, 1, SCRIPT);
    let id = world.open_approval().await;
    let never = NewAnswer { is_allowed: false, ..allow_later(RuleScope::Agent, Some("once")) };
    world.answer(&id, never).await.expect("the first answer");
    expect_end(sending).await;
    expect_end(start_send(&agent, 2, "#2 call once 20; done | say b; done")).await;
    assert_eq!(tool_texts(&agent)[1], "Permission denied: rule 'once' of agent 'a' denies it");
    let change =
        PermissionChange { rules: vec![(RuleAction::Deny, Vec::new())], ..PermissionChange::default() };
    world.change_permissions(&agent, &change).await.expect("the rule is removed");
    let sending = start_send(&agent, 3, "#3 call once 30; done | say c; done");
    let id = world.open_approval().await;
    world.answer(&id, answer(true)).await.expect("the first answer");
    expect_end(sending).await;
}

#[tokio::test(start_paused = true)]
async fn open_request_survives_a_crash() {
    let world = World::new().await;
    let agent = world.create_handle(asking("a")).await;
    let sending = start_send(&agent, 1, SCRIPT);
    let id = world.open_approval().await;
    drop((agent, sending));
    let world = world.restart().await;
    assert_eq!(world.open_approval().await, id, "the same request");
    assert_eq!(world.call_records().await, ["approval_requested"]);
    world.answer(&id, answer(true)).await.expect("the first answer");
    let agent = world.find("a").await;
    let end = expect_end(start_send(&agent, 1, SCRIPT)).await;
    assert_eq!(end.content, "a");
    assert_eq!(world.tools.call_lines(), ["a once 10"]);
}

#[tokio::test(start_paused = true)]
async fn committed_answer_counts_after_a_crash() {
    for is_allowed in [true, false] {
        let world = World::new().await;
        let agent = world.create_handle(asking("a")).await;
        let sending = start_send(&agent, 1, SCRIPT);
        let id = world.open_approval().await;
        // The answer is committed, and the start of the call is not.
        world.store.die_after(1);
        world.answer(&id, answer(is_allowed)).await.expect("the first answer");
        drop((agent, sending));
        let world = world.restart().await;
        run_until_idle().await;
        assert!(world.approvals().is_empty());
        let agent = world.find("a").await;
        expect_end(start_send(&agent, 1, SCRIPT)).await;
        assert_eq!(world.tools.call_lines().len(), usize::from(is_allowed));
        assert_eq!(tool_texts(&agent)[0].starts_with("Permission denied"), !is_allowed);
    }
}

#[tokio::test(start_paused = true)]
async fn graceful_stop_suspends_a_waiting_turn() {
    let world = World::new().await;
    let agent = world.create_handle(asking("a")).await;
    let sending = start_send(&agent, 1, SCRIPT);
    let id = world.open_approval().await;
    // No client waits for the turn any more.
    sending.abort();
    drop((agent, sending));
    let world = world.stop_and_start().await;
    assert_eq!(world.open_approval().await, id);
    world.answer(&id, answer(true)).await.expect("the first answer");
    run_until_idle().await;
    assert_eq!(world.tools.call_lines(), ["a once 10"]);
}

/// lead (trusted, may answer) > middle (sandboxed, may create) > leaf (sandboxed, asks for `once` and for writes).
async fn three_levels(world: &World) -> [AgentHandle; 3] {
    let tools = Some(["*", "approvals_list", "approvals_answer"].map(str::to_owned).to_vec());
    let lead = with_preset(spec_named("lead"), "trusted");
    let permissions = PermissionSpec { tools: tools.clone(), ..lead.permissions.clone() };
    let lead = world.create_handle(AgentSpec { permissions, ..lead }).await;
    let permissions =
        PermissionSpec { tools, may_create: Some(vec!["sandboxed".to_owned()]), ..PermissionSpec::default() };
    let middle =
        world.create_handle(AgentSpec { permissions, ..with_parent(spec_named("middle"), &lead) }).await;
    let permissions =
        PermissionSpec { rules: rules(RuleAction::Ask, &["once", "write:/"]), ..PermissionSpec::default() };
    let leaf = AgentSpec { permissions, ..with_parent(spec_named("leaf"), &middle) };
    let leaf = world.create_handle(leaf).await;
    [lead, middle, leaf]
}

#[tokio::test(start_paused = true)]
async fn ancestors_answer_for_descendants_and_not_for_themselves() {
    let world = World::new().await;
    let [lead, middle, leaf] = three_levels(&world).await;
    let stranger = world.agent("stranger").await;
    let sending = start_send(&leaf, 1, SCRIPT);
    let id = world.open_approval().await;
    for (agent, count) in [(&lead, 1), (&middle, 1)] {
        assert_eq!(world.pool.approvals(Initiator::Agent(agent)).expect("permitted").len(), count);
    }
    // Without the tools nothing is listed or answered.
    for agent in [&leaf, &stranger] {
        let initiator = Initiator::Agent(agent);
        assert_eq!(world.pool.approvals(initiator).expect_err("denied").kind, FaultKind::Denied);
        let refused = world.pool.answer_approval(&id, answer(true), initiator).await;
        assert_eq!(refused.expect_err("denied").kind, FaultKind::Denied);
    }
    let answered = world.pool.answer_approval(&id, answer(true), Initiator::Agent(&lead)).await;
    assert_eq!(answered.expect("the first answer").by.to_string(), "agent:lead");
    expect_end(sending).await;
    assert_eq!(tool_texts(&leaf), ["took 10"]);
}

#[tokio::test(start_paused = true)]
async fn answer_never_exceeds_what_the_answerer_may_grant() {
    let world = World::new().await;
    let [lead, middle, leaf] = three_levels(&world).await;
    let sending = start_send(&leaf, 1, "call write /work/f; done | say a; done");
    let id = world.open_approval().await;
    // The middle agent writes nowhere; the lead writes in its working directory.
    let refused = world.pool.answer_approval(&id, answer(true), Initiator::Agent(&middle)).await;
    let refused = refused.expect_err("beyond its ceiling");
    assert_eq!(refused.kind, FaultKind::Denied);
    assert_eq!(refused.to_string(), format!("approval {id} exceeds what agent:middle may grant"));
    assert_eq!(world.approvals().len(), 1, "the request stays open");
    let allowed = allow_later(RuleScope::Agent, Some("write:/"));
    world.pool.answer_approval(&id, allowed, Initiator::Agent(&lead)).await.expect("within its ceiling");
    expect_end(sending).await;
    assert_eq!(tool_texts(&leaf), ["f beneath /work"]);
    // The rule of the lead does not reach further than the lead.
    let sending = start_send(&leaf, 2, "#2 call write /etc/f; done | say b; done");
    let id = world.open_approval().await;
    let refused = world.pool.answer_approval(&id, answer(true), Initiator::Agent(&lead)).await;
    assert_eq!(refused.expect_err("beyond its ceiling").kind, FaultKind::Denied);
    // A revoked permission of the lead takes its rule with it.
    world.answer(&id, answer(false)).await.expect("the first answer");
    expect_end(sending).await;
    let change = PermissionChange { preset: Some("worker".to_owned()), ..PermissionChange::default() };
    world.change_permissions(&lead, &change).await.expect("narrowed");
    expect_end(start_send(&leaf, 3, "#3 call write /work/f; done | say c; done")).await;
    assert!(tool_texts(&leaf)[2].starts_with("Permission denied"), "{:?}", tool_texts(&leaf));
}

#[tokio::test(start_paused = true)]
async fn agents_may_not_set_rules_that_allow() {
    let world = World::new().await;
    let [lead, ..] = three_levels(&world).await;
    let spec = |action| AgentSpec {
        permissions: PermissionSpec { rules: rules(action, &["once"]), ..PermissionSpec::default() },
        ..spec_named("child")
    };
    let refused = world.pool.create(spec(RuleAction::Allow), Initiator::Agent(&lead)).await;
    assert_eq!(refused.err().expect("denied").kind, FaultKind::Denied);
    let child =
        world.pool.create(spec(RuleAction::Deny), Initiator::Agent(&lead)).await.expect("narrower").handle;
    let change = PermissionChange {
        rules: vec![(RuleAction::Allow, vec![rule("once")])],
        ..PermissionChange::default()
    };
    let refused = world.pool.change_permissions(&child, &change, Initiator::Agent(&lead)).await;
    assert_eq!(refused.expect_err("denied").kind, FaultKind::Denied);
}

#[tokio::test(start_paused = true)]
async fn failed_commit_of_an_answer_leaves_the_request_open() {
    let world = World::new().await;
    let agent = world.create_handle(asking("a")).await;
    let sending = start_send(&agent, 1, SCRIPT);
    let id = world.open_approval().await;
    world.store.inject_fault_for_kind("approval_answered", 1, StoreFault::Full("no space".to_owned()));
    world.answer(&id, allow_later(RuleScope::Agent, None)).await.expect_err("the disk is full");
    assert_eq!(world.open_approval().await, id);
    assert_eq!(world.pool.permissions(&agent).rules.len(), 1, "no rule was added");
    world.answer(&id, answer(true)).await.expect("the first answer");
    expect_end(sending).await;
}
