//! Invariants for every agent of the simulation: at any time, when no turn runs, and at the end.

use agent::permission::Resource;
use agent::{Message, Role};
use runtime::ResourceUsage;

use crate::driver::{AgentModel, Driver, SendOutcome, SentMessage, resource_index};
use crate::history::{STEER_PREFIX, history_violation, idle_history_violation, messages, user_texts};

/// More than any scripted model call consumes.
const RESPONSE_TOKENS_MAX: u64 = 2_000;

const TURN_BUDGET_EXHAUSTED: &str = "[Stopping: the budget of turns is used up]";

/// Everything that a failed create or change could alter.
pub(crate) type PoolFingerprint = (Vec<String>, Vec<Vec<(Option<u64>, u64, u64)>>, usize);

impl Driver {
    /// None while a turn is open.
    pub(crate) async fn fingerprint(&self) -> Option<PoolFingerprint> {
        let account = |usage: &ResourceUsage| (usage.limit, usage.used, usage.reserved);
        let accounts = |agent: &AgentModel| self.resource_usage(agent).iter().map(account).collect();
        let accounts = self.agents.iter().map(accounts).collect();
        let fingerprint = (self.world.names().await, accounts, self.world.pool.open_turns());
        Some(fingerprint).filter(|(_, _, open)| *open == 0)
    }

    fn resource_usage(&self, agent: &AgentModel) -> Vec<ResourceUsage> {
        self.world.pool.permissions(&agent.handle).resource_usage
    }

    /// Invariants that hold at any time.
    pub(crate) fn check_always(&self) {
        let violations = self.world.tools.observations().violations.clone();
        assert_eq!(violations, Vec::<String>::new(), "a tool call without permission");
        for index in 0..self.agents.len() {
            self.check_accounts(index);
        }
        for agent in &self.agents {
            let Some(capability) = &agent.capability else { continue };
            let found = self.world.pool.find_ref_by_capability(capability.reveal().as_bytes());
            let is_agent = found.as_ref().is_some_and(|found| *found == agent.handle.agent_ref());
            assert_eq!(
                (is_agent, found.is_some()),
                (!agent.is_destroyed, !agent.is_destroyed),
                "'{}'",
                agent.name
            );
        }
        assert!(self.world.pool.open_turns() <= self.limits.turns_open_max);
    }

    fn check_accounts(&self, index: usize) {
        let agent = &self.agents[index];
        let existing = self.existing_agents();
        let descendants =
            self.descendants(index).iter().filter(|descendant| existing.contains(descendant)).count() as u64;
        let agent_count = self.agents.len() as u64 + 1;
        for usage in self.resource_usage(agent) {
            let what = format!(
                "agent #{index}: {usage:?}, {:?}",
                agent.budget_history[resource_index(usage.resource)]
            );
            if usage.resource == Resource::Children {
                // A child being created by an agent counts before it can be found; a child being destroyed no longer
                // counts, but exists until the commit.
                let tools_running = self.world.tools.observations().live > 0;
                let is_changing =
                    tools_running && (usage.used > descendants || self.world.store.has_queued());
                assert!(usage.used == descendants || is_changing, "{descendants} descendants: {what}");
                let floor = agent.budget_history[resource_index(usage.resource)].floor;
                assert!(
                    usage.limit.is_none_or(|limit| usage.used <= limit.max(floor)),
                    "too many children: {what}"
                );
                continue;
            }
            let no_children = descendants == 0 && self.world.tools.observations().live == 0;
            assert!(!no_children || usage.reserved == 0, "reserved without children: {what}");
            let Some(limit) = usage.limit else { continue };
            let history = agent.budget_history[resource_index(usage.resource)];
            let used_max = limit.max(history.floor);
            let used_max = match usage.resource {
                // Agents that share one account at the same time may each overdraw it a little.
                Resource::Tokens => used_max + RESPONSE_TOKENS_MAX * agent_count,
                // A waiting tool call sees a changed limit only when its wait is over.
                Resource::WallMs if history.changes > 1 => continue,
                Resource::WallMs => used_max * agent_count,
                _ => used_max,
            };
            assert!(usage.used + usage.reserved <= used_max, "more than the limit: {what}");
        }
    }

    /// Checks that no subtree uses more than its root was ever granted, however it was passed on.
    pub(crate) fn check_subtree_budgets(&self) {
        let observations = self.world.tools.observations();
        for (index, agent) in self.agents.iter().enumerate() {
            let subtree = || self.descendants(index).into_iter().chain([index]);
            let turns: u64 = subtree().map(|member| paid_turns(&self.agents[member])).sum();
            let is_in_subtree = |call: &&crate::tools::RecordedCall| {
                let caller = call.agent.as_ref();
                caller.is_some_and(|caller| {
                    caller.is_same_agent(&agent.handle) || caller.is_descendant_of(&agent.handle)
                })
            };
            let calls = observations.calls.iter().filter(is_in_subtree).count() as u64;
            for (resource, used) in [(Resource::Turns, turns), (Resource::ToolCalls, calls)] {
                let history = agent.budget_history[resource_index(resource)];
                let is_within = history.ever_unlimited || used <= history.limit_max;
                assert!(is_within, "the subtree of agent #{index} used {used} {resource}: {history:?}");
            }
            let tokens = subtree().map(|member| used_tokens(&self.agents[member])).sum();
            self.check_debits(
                agent,
                &[(Resource::Turns, turns), (Resource::ToolCalls, calls), (Resource::Tokens, tokens)],
            );
        }
    }

    /// Checks that agents with a limit were debited for the usage of destroyed descendants.
    fn check_debits(&self, agent: &AgentModel, used: &[(Resource, u64)]) {
        let usage = self.resource_usage(agent);
        let childless =
            usage.iter().any(|account| account.resource == Resource::Children && account.used == 0);
        for (resource, used) in used.iter().filter(|_| childless && !agent.is_destroyed) {
            let always_limited = !agent.budget_history[resource_index(*resource)].ever_unlimited;
            let debited = usage[resource_index(*resource)].used;
            assert!(
                !always_limited || debited >= *used,
                "'{}' was debited {debited} of {used} {resource}",
                agent.name
            );
        }
    }

    /// Checks the histories of agents without a running turn.
    pub(crate) fn check_histories(&self) {
        for (index, agent) in self.agents.iter().enumerate() {
            let history = messages(&agent.handle);
            // A destroyed agent does not commit the rest of its turn, and a stop leaves turns without a waiter to the
            // next start.
            let is_incomplete = agent.is_destroyed || self.stopping;
            let violation =
                if is_incomplete { history_violation(&history) } else { idle_history_violation(&history) };
            assert_eq!(violation, None, "agent #{index}");
            let user_messages = user_texts(&agent.handle);
            let steers = user_messages.iter().filter(|text| text.starts_with(STEER_PREFIX)).count();
            let is_consistent = steers == agent.steer_count || (is_incomplete && steers < agent.steer_count);
            assert!(is_consistent, "every accepted instruction is committed, agent #{index}");
            assert!(is_incomplete || !self.world.status(&agent.handle).is_working, "agent #{index} is idle");
            let ended_by_model = |outcome: &SendOutcome| match outcome {
                SendOutcome::Responded(Ok(end)) => end.outcome == agent::TurnOutcome::Completed,
                SendOutcome::Responded(Err(fault)) => fault.kind != agent::FaultKind::Invalid,
                SendOutcome::Pending(_) | SendOutcome::SenderDropped | SendOutcome::Rejected => false,
            };
            for sent in self.sent.iter().filter(|sent| sent.agent == index) {
                let times = user_messages.iter().filter(|text| **text == sent.scenario.script).count();
                let is_consistent = if ended_by_model(&sent.outcome) { times == 1 } else { times <= 1 };
                assert!(is_consistent, "{} is {times} times in the history", sent.scenario.script);
                let mut duplicates =
                    self.sent.iter().filter(|duplicate| duplicate.scenario.script == sent.scenario.script);
                let was_accepted = duplicates.any(SentMessage::was_accepted);
                assert!(was_accepted || times == 0, "{} was rejected but committed", sent.scenario.script);
            }
        }
        self.check_subtree_budgets();
    }

    /// Checks that every request to the model contains a valid history.
    pub(crate) fn check_requests(&self) {
        for request in &self.world.model.observations().requests {
            assert_eq!(history_violation(&request.messages), None);
        }
    }

    /// Checks that the turns of one agent start in the order of acceptance: the numbers of their scripts increase.
    pub(crate) fn check_order(&self) {
        // A send that was rejected or cancelled first and repeated later is ordered by the repetition.
        let is_repeated = |number: &usize| {
            let script = self.sent.get(*number).map(|sent| &sent.scenario.script);
            self.sent.iter().filter(|sent| Some(&sent.scenario.script) == script).count() > 1
        };
        let number = |script: &String| -> Option<usize> {
            let label = script.split(' ').next().and_then(|label| label.strip_prefix('#'));
            label.and_then(|label| label.parse().ok()).filter(|number| !is_repeated(number))
        };
        for agent in &self.agents {
            let numbers: Vec<_> = user_texts(&agent.handle).iter().filter_map(number).collect();
            assert!(numbers.is_sorted(), "out of order: {numbers:?}");
            let first = user_texts(&agent.handle).first().cloned();
            let observations = self.world.model.observations();
            let called = observations.prompts.iter().filter(|(agent, _)| Some(agent) == first.as_ref());
            let called: Vec<_> = called.filter_map(|(_, script)| number(script)).collect();
            assert!(called.is_sorted(), "out of order: {called:?}");
        }
    }

    pub(crate) fn check_model(&self) {
        let observations = self.world.model.observations();
        assert_eq!(observations.overlapping_agents, Vec::<String>::new(), "one turn at a time per agent");
        assert!(
            observations.live_max <= self.limits.turns_running_max,
            "{} turns ran at once",
            observations.live_max
        );
        assert_eq!(observations.live_total, 0, "every stream is dropped");
        for agent in &self.agents {
            let reported = user_texts(&agent.handle)
                .first()
                .and_then(|first| observations.reported_usage.get(first))
                .copied();
            let (used, reported) =
                (agent.handle.tokens().usage_totals.usage, reported.unwrap_or_default().usage);
            assert_eq!(
                used.input + used.output - used.estimated,
                reported.input + reported.output,
                "total usage: {used:?}"
            );
        }
    }
}

fn used_tokens(agent: &AgentModel) -> u64 {
    let usage = agent.handle.tokens().usage_totals.usage;
    usage.input + usage.output
}

/// The number of an agent's turns that certainly consumed a turn budget.
fn paid_turns(agent: &AgentModel) -> u64 {
    let history = messages(&agent.handle);
    let started = history
        .iter()
        .filter(|message| message.role == Role::User && !message.text.starts_with(STEER_PREFIX))
        .count();
    // A turn that ended before its first content may have had no budget.
    let is_unbudgeted = |message: &Message| {
        message.text == TURN_BUDGET_EXHAUSTED || (message.text.is_empty() && message.ending.is_some())
    };
    let unbudgeted =
        history.iter().filter(|message| message.role == Role::Assistant && is_unbudgeted(message)).count();
    let is_open =
        history.last().is_some_and(|last| last.role != Role::Assistant || !last.tool_calls.is_empty());
    (started - unbudgeted - usize::from(is_open)) as u64
}
