//! What must hold for every agent of the simulation: at any time, when nothing runs, and at the end.

use agent::permission::Resource;
use agent::{Message, Role};
use runtime::ResourceUsage;

use crate::driver::{AgentModel, Driver, SendOutcome, SentMessage, resource_index};
use crate::history::{STEER_PREFIX, history_violation, idle_history_violation, messages, user_texts};

/// More than any answer of a script reports.
const RESPONSE_TOKENS_MAX: u64 = 10;

const TURN_BUDGET_EXHAUSTED: &str = "[Stopping: the budget of turns is used up]";

/// Everything a create or a change could leave behind.
pub(crate) type PoolFingerprint = (Vec<String>, Vec<Vec<(Option<u64>, u64, u64)>>, usize);

impl Driver {
    /// Nothing while somebody is at work.
    pub(crate) async fn fingerprint(&self) -> Option<PoolFingerprint> {
        let account = |one: &ResourceUsage| (one.limit, one.used, one.reserved);
        let accounts = |life: &AgentModel| self.resource_usage(life).iter().map(account).collect();
        let accounts = self.agents.iter().map(accounts).collect();
        let traces = (self.world.names().await, accounts, self.world.pool.open_turns());
        Some(traces).filter(|(_, _, open)| *open == 0)
    }

    fn resource_usage(&self, life: &AgentModel) -> Vec<ResourceUsage> {
        self.world.pool.permissions(&life.handle).resource_usage
    }

    /// At any time.
    pub(crate) fn check_always(&self) {
        let violations = self.world.tools.observations().violations.clone();
        assert_eq!(violations, Vec::<String>::new(), "a tool did what it may not");
        for place in 0..self.agents.len() {
            self.check_accounts(place);
        }
        for life in &self.agents {
            let Some(capability) = &life.capability else { continue };
            let found = self.world.pool.find_ref_by_capability(capability.reveal().as_bytes());
            let right = found.as_ref().is_some_and(|found| *found == life.handle.agent_ref());
            assert_eq!((right, found.is_some()), (!life.is_destroyed, !life.is_destroyed), "'{}'", life.name);
        }
        assert!(self.world.pool.open_turns() <= self.limits.turns_open_max);
    }

    fn check_accounts(&self, place_of_life: usize) {
        let life = &self.agents[place_of_life];
        let existing = self.existing_agents();
        let below =
            self.descendants(place_of_life).iter().filter(|other| existing.contains(other)).count() as u64;
        let many = self.agents.len() as u64 + 1;
        for one in self.resource_usage(life) {
            let what = format!(
                "life {place_of_life}: {one:?}, {:?}",
                life.budget_history[resource_index(one.resource)]
            );
            if one.resource == Resource::Children {
                // Whoever is being made by an agent counts before it can be found, and whoever is being destroyed by
                // one no longer counts and is there until that is kept.
                let is_at_work = self.world.tools.observations().live > 0;
                let come_or_go = is_at_work && (one.used > below || self.world.store.has_queued());
                assert!(one.used == below || come_or_go, "{below} are below: {what}");
                let floor = life.budget_history[resource_index(one.resource)].floor;
                assert!(one.limit.is_none_or(|limit| one.used <= limit.max(floor)), "too many: {what}");
                continue;
            }
            let nobody = below == 0 && self.world.tools.observations().live == 0;
            assert!(!nobody || one.reserved == 0, "set aside for nobody: {what}");
            let Some(limit) = one.limit else { continue };
            let past = life.budget_history[resource_index(one.resource)];
            let top = limit.max(past.floor);
            let top = match one.resource {
                // Agents that draw on one account at the same time may each use a little too much.
                Resource::Tokens => top + RESPONSE_TOKENS_MAX * many,
                // Whoever waits hears of another limit when its wait is over.
                Resource::WallMs if past.changes > 1 => continue,
                Resource::WallMs => top * many,
                _ => top,
            };
            assert!(one.used + one.reserved <= top, "more than there is: {what}");
        }
    }

    /// No family uses more than its head was ever given, however it was passed on.
    pub(crate) fn check_subtree_budgets(&self) {
        let seen = self.world.tools.observations();
        for (place_of_life, life) in self.agents.iter().enumerate() {
            let family = || self.descendants(place_of_life).into_iter().chain([place_of_life]);
            let turns: u64 = family().map(|life| paid_turns(&self.agents[life])).sum();
            let is_family = |ran: &&crate::tools::RecordedCall| {
                let agent = ran.agent.as_ref();
                agent.is_some_and(|agent| {
                    agent.is_same_agent(&life.handle) || agent.is_descendant_of(&life.handle)
                })
            };
            let calls = seen.calls.iter().filter(is_family).count() as u64;
            for (resource, used) in [(Resource::Turns, turns), (Resource::ToolCalls, calls)] {
                let past = life.budget_history[resource_index(resource)];
                let fair = past.ever_unlimited || used <= past.limit_max;
                assert!(fair, "the family of life {place_of_life} used {used} {resource}: {past:?}");
            }
            let tokens = family().map(|life| used_tokens(&self.agents[life])).sum();
            self.check_debits(
                life,
                &[(Resource::Turns, turns), (Resource::ToolCalls, calls), (Resource::Tokens, tokens)],
            );
        }
    }

    /// What those below used who are gone was paid by whoever always had a limit.
    fn check_debits(&self, life: &AgentModel, used: &[(Resource, u64)]) {
        let holdings = self.resource_usage(life);
        let childless = holdings.iter().any(|one| one.resource == Resource::Children && one.used == 0);
        for (resource, used) in used.iter().filter(|_| childless && !life.is_destroyed) {
            let always_limited = !life.budget_history[resource_index(*resource)].ever_unlimited;
            let paid = holdings[resource_index(*resource)].used;
            assert!(!always_limited || paid >= *used, "'{}' paid {paid} of {used} {resource}", life.name);
        }
    }

    /// Only for agents without a turn.
    pub(crate) fn check_histories(&self) {
        for (place, life) in self.agents.iter().enumerate() {
            let history = messages(&life.handle);
            // What a destroyed agent was doing is not kept to its end, and a stop leaves to the next start what nobody
            // waits for.
            let is_left = life.is_destroyed || self.stopping;
            let objection =
                if is_left { history_violation(&history) } else { idle_history_violation(&history) };
            assert_eq!(objection, None, "life {place}");
            let asked = user_texts(&life.handle);
            let steers = asked.iter().filter(|text| text.starts_with(STEER_PREFIX)).count();
            let fair = steers == life.steer_count || (is_left && steers < life.steer_count);
            assert!(fair, "every word that was taken is kept, life {place}");
            assert!(is_left || !self.world.summary(&life.handle).is_working, "life {place} rests");
            let ended_by_model = |fate: &SendOutcome| match fate {
                SendOutcome::Answered(Ok(end)) => end.outcome == agent::TurnOutcome::Completed,
                SendOutcome::Answered(Err(fault)) => fault.kind != agent::FaultKind::Invalid,
                SendOutcome::Pending(_) | SendOutcome::SenderDropped | SendOutcome::Refused => false,
            };
            for sent in self.sent.iter().filter(|sent| sent.agent == place) {
                let times = asked.iter().filter(|text| **text == sent.scenario.script).count();
                let fair = if ended_by_model(&sent.outcome) { times == 1 } else { times <= 1 };
                assert!(fair, "{} is {times} times in the history", sent.scenario.script);
                let mut same = self.sent.iter().filter(|other| other.scenario.script == sent.scenario.script);
                let was_accepted = same.any(SentMessage::was_accepted);
                assert!(was_accepted || times == 0, "{} was refused and kept", sent.scenario.script);
            }
        }
        self.check_subtree_budgets();
    }

    /// What a model was shown was a history at any time.
    pub(crate) fn check_requests(&self) {
        for request in &self.world.model.observations().requests {
            assert_eq!(history_violation(&request.messages), None);
        }
    }

    /// Turns of one agent begin in the order they were accepted in: the numbers of their scripts rise.
    pub(crate) fn check_order(&self) {
        // One that was refused or cancelled at first, and repeated later, has its place by the repetition.
        let is_repeated = |number: &usize| {
            let script = self.sent.get(*number).map(|sent| &sent.scenario.script);
            self.sent.iter().filter(|sent| Some(&sent.scenario.script) == script).count() > 1
        };
        let number = |script: &String| -> Option<usize> {
            let label = script.split(' ').next().and_then(|label| label.strip_prefix('#'));
            label.and_then(|label| label.parse().ok()).filter(|number| !is_repeated(number))
        };
        for life in &self.agents {
            let asked: Vec<_> = user_texts(&life.handle).iter().filter_map(number).collect();
            assert!(asked.is_sorted(), "out of order: {asked:?}");
            let first = user_texts(&life.handle).first().cloned();
            let seen = self.world.model.observations();
            let played = seen.prompts.iter().filter(|(agent, _)| Some(agent) == first.as_ref());
            let played: Vec<_> = played.filter_map(|(_, script)| number(script)).collect();
            assert!(played.is_sorted(), "out of order: {played:?}");
        }
    }

    pub(crate) fn check_model(&self) {
        let seen = self.world.model.observations();
        assert_eq!(seen.overlapping_agents, Vec::<String>::new(), "one turn at a time for each agent");
        assert!(seen.live_max <= self.limits.turns_running_max, "{} turns ran at once", seen.live_max);
        assert_eq!(seen.live_total, 0, "every stream is dropped");
        for life in &self.agents {
            let reported =
                user_texts(&life.handle).first().and_then(|first| seen.reported_usage.get(first)).copied();
            assert_eq!(life.handle.tokens().used, reported.unwrap_or_default(), "usage adds up");
        }
    }
}

fn used_tokens(life: &AgentModel) -> u64 {
    let usage = life.handle.tokens().used.usage;
    usage.input + usage.output
}

/// Turns of a life that were certainly paid for.
fn paid_turns(life: &AgentModel) -> u64 {
    let history = messages(&life.handle);
    let begun =
        history.iter().filter(|one| one.role == Role::User && !one.text.starts_with(STEER_PREFIX)).count();
    // One that was cancelled or abandoned before it said a word may have had nothing to pay with.
    let is_unpaid =
        |one: &Message| one.text == TURN_BUDGET_EXHAUSTED || (one.text.is_empty() && one.ending.is_some());
    let unpaid = history.iter().filter(|one| one.role == Role::Assistant && is_unpaid(one)).count();
    let is_open =
        history.last().is_some_and(|last| last.role != Role::Assistant || !last.tool_calls.is_empty());
    (begun - unpaid - usize::from(is_open)) as u64
}
