//! What must hold for every agent of the simulation: at any time, when nothing runs, and at the end.

use agent::permission::Resource;
use agent::{Message, Role};
use runtime::ResourceUsage;

use crate::driver::{Driver, Fate, Life, Sent, place};
use crate::history::{STEER, messages, objection, objection_when_idle, questions};

/// More than any answer of a script reports.
const ANSWER_TOKENS: u64 = 10;

const NO_TURNS: &str = "[Stopping: the budget of turns is used up]";

/// Everything a create or a change could leave behind.
pub(crate) type Traces = (Vec<String>, Vec<Vec<(Option<u64>, u64, u64)>>, usize);

impl Driver {
    /// Nothing while somebody is at work.
    pub(crate) async fn traces(&self) -> Option<Traces> {
        let account = |one: &ResourceUsage| (one.limit, one.used, one.reserved);
        let accounts = |life: &Life| self.resource_usage(life).iter().map(account).collect();
        let accounts = self.lives.iter().map(accounts).collect();
        let traces = (self.world.names().await, accounts, self.world.pool.open_turns());
        Some(traces).filter(|(_, _, open)| *open == 0)
    }

    fn resource_usage(&self, life: &Life) -> Vec<ResourceUsage> {
        self.world.pool.permissions(&life.handle).resource_usage
    }

    /// At any time.
    pub(crate) fn check_now(&self) {
        let violations = self.world.tools.observations().violations.clone();
        assert_eq!(violations, Vec::<String>::new(), "a tool did what it may not");
        for place in 0..self.lives.len() {
            self.check_accounts(place);
        }
        for life in &self.lives {
            let Some(capability) = &life.capability else { continue };
            let found = self.world.pool.find_ref_by_capability(capability.reveal().as_bytes());
            let right = found.as_ref().is_some_and(|found| *found == life.handle.agent_ref());
            assert_eq!((right, found.is_some()), (!life.destroyed, !life.destroyed), "'{}'", life.name);
        }
        assert!(self.world.pool.open_turns() <= self.limits.turns_open_max);
    }

    fn check_accounts(&self, place_of_life: usize) {
        let life = &self.lives[place_of_life];
        let existing = self.existing();
        let below = self.below(place_of_life).iter().filter(|other| existing.contains(other)).count() as u64;
        let many = self.lives.len() as u64 + 1;
        for one in self.resource_usage(life) {
            let what = format!("life {place_of_life}: {one:?}, {:?}", life.budgets[place(one.resource)]);
            if one.resource == Resource::Children {
                // Whoever is being made by an agent counts before it can be found, and whoever is being destroyed by
                // one no longer counts and is there until that is kept.
                let is_at_work = self.world.tools.observations().live > 0;
                let come_or_go = is_at_work && (one.used > below || self.world.store.has_queued());
                assert!(one.used == below || come_or_go, "{below} are below: {what}");
                let floor = life.budgets[place(one.resource)].floor;
                assert!(one.limit.is_none_or(|limit| one.used <= limit.max(floor)), "too many: {what}");
                continue;
            }
            let nobody = below == 0 && self.world.tools.observations().live == 0;
            assert!(!nobody || one.reserved == 0, "set aside for nobody: {what}");
            let Some(limit) = one.limit else { continue };
            let past = life.budgets[place(one.resource)];
            let top = limit.max(past.floor);
            let top = match one.resource {
                // Agents that draw on one account at the same time may each use a little too much.
                Resource::Tokens => top + ANSWER_TOKENS * many,
                // Whoever waits hears of another limit when its wait is over.
                Resource::WallMs if past.changes > 1 => continue,
                Resource::WallMs => top * many,
                _ => top,
            };
            assert!(one.used + one.reserved <= top, "more than there is: {what}");
        }
    }

    /// No family uses more than its head was ever given, however it was passed on.
    pub(crate) fn check_families(&self) {
        let seen = self.world.tools.observations();
        for (place_of_life, life) in self.lives.iter().enumerate() {
            let family = || self.below(place_of_life).into_iter().chain([place_of_life]);
            let turns: u64 = family().map(|life| turns_of(&self.lives[life])).sum();
            let is_family = |ran: &&crate::tools::RecordedCall| {
                let agent = ran.agent.as_ref();
                agent.is_some_and(|agent| agent.is_same_agent(&life.handle) || agent.is_descendant_of(&life.handle))
            };
            let calls = seen.calls.iter().filter(is_family).count() as u64;
            for (resource, used) in [(Resource::Turns, turns), (Resource::ToolCalls, calls)] {
                let past = life.budgets[place(resource)];
                let fair = past.ever_unlimited || used <= past.limit_max;
                assert!(fair, "the family of life {place_of_life} used {used} {resource}: {past:?}");
            }
            let tokens = family().map(|life| tokens_of(&self.lives[life])).sum();
            self.check_paid(
                life,
                &[(Resource::Turns, turns), (Resource::ToolCalls, calls), (Resource::Tokens, tokens)],
            );
        }
    }

    /// What those below used who are gone was paid by whoever always had a limit.
    fn check_paid(&self, life: &Life, used: &[(Resource, u64)]) {
        let holdings = self.resource_usage(life);
        let childless = holdings.iter().any(|one| one.resource == Resource::Children && one.used == 0);
        for (resource, used) in used.iter().filter(|_| childless && !life.destroyed) {
            let always_limited = !life.budgets[place(*resource)].ever_unlimited;
            let paid = holdings[place(*resource)].used;
            assert!(!always_limited || paid >= *used, "'{}' paid {paid} of {used} {resource}", life.name);
        }
    }

    /// Only for agents without a turn.
    pub(crate) fn check_histories(&self) {
        for (place, life) in self.lives.iter().enumerate() {
            let history = messages(&life.handle);
            // What a destroyed agent was doing is not kept to its end, and a stop leaves to the next start what nobody
            // waits for.
            let is_left = life.destroyed || self.stopping;
            let objection = if is_left { objection(&history) } else { objection_when_idle(&history) };
            assert_eq!(objection, None, "life {place}");
            let asked = questions(&life.handle);
            let steers = asked.iter().filter(|text| text.starts_with(STEER)).count();
            let fair = steers == life.steers || (is_left && steers < life.steers);
            assert!(fair, "every word that was taken is kept, life {place}");
            assert!(is_left || !self.world.summary(&life.handle).is_working, "life {place} rests");
            let ended_by_model = |fate: &Fate| match fate {
                Fate::Answered(Ok(end)) => end.outcome == agent::TurnOutcome::Completed,
                Fate::Answered(Err(fault)) => fault.kind != agent::FaultKind::Invalid,
                Fate::Open(_) | Fate::Dropped | Fate::Refused => false,
            };
            for sent in self.sent.iter().filter(|sent| sent.life == place) {
                let times = asked.iter().filter(|text| **text == sent.plot.script).count();
                let fair = if ended_by_model(&sent.fate) { times == 1 } else { times <= 1 };
                assert!(fair, "{} is {times} times in the history", sent.plot.script);
                let mut same = self.sent.iter().filter(|other| other.plot.script == sent.plot.script);
                let was_accepted = same.any(Sent::was_accepted);
                assert!(was_accepted || times == 0, "{} was refused and kept", sent.plot.script);
            }
        }
        self.check_families();
    }

    /// What a model was shown was a history at any time.
    pub(crate) fn check_requests(&self) {
        for request in &self.world.model.seen().requests {
            assert_eq!(objection(&request.messages), None);
        }
    }

    /// Turns of one agent begin in the order they were accepted in: the numbers of their scripts rise.
    pub(crate) fn check_order(&self) {
        // One that was refused or cancelled at first, and repeated later, has its place by the repetition.
        let is_repeated = |number: &usize| {
            let script = self.sent.get(*number).map(|sent| &sent.plot.script);
            self.sent.iter().filter(|sent| Some(&sent.plot.script) == script).count() > 1
        };
        let number = |script: &String| -> Option<usize> {
            let label = script.split(' ').next().and_then(|label| label.strip_prefix('#'));
            label.and_then(|label| label.parse().ok()).filter(|number| !is_repeated(number))
        };
        for life in &self.lives {
            let asked: Vec<_> = questions(&life.handle).iter().filter_map(number).collect();
            assert!(asked.is_sorted(), "out of order: {asked:?}");
            let first = questions(&life.handle).first().cloned();
            let seen = self.world.model.seen();
            let played = seen.questions.iter().filter(|(agent, _)| Some(agent) == first.as_ref());
            let played: Vec<_> = played.filter_map(|(_, script)| number(script)).collect();
            assert!(played.is_sorted(), "out of order: {played:?}");
        }
    }

    pub(crate) fn check_model(&self) {
        let seen = self.world.model.seen();
        assert_eq!(seen.overlaps, Vec::<String>::new(), "one turn at a time for each agent");
        assert!(seen.live_max <= self.limits.turns_running_max, "{} turns ran at once", seen.live_max);
        assert_eq!(seen.live_total, 0, "every stream is dropped");
        for life in &self.lives {
            let reported =
                questions(&life.handle).first().and_then(|first| seen.reported.get(first)).copied();
            assert_eq!(life.handle.tokens().used, reported.unwrap_or_default(), "usage adds up");
        }
    }
}

fn tokens_of(life: &Life) -> u64 {
    let usage = life.handle.tokens().used.usage;
    usage.input + usage.output
}

/// Turns of a life that were certainly paid for.
fn turns_of(life: &Life) -> u64 {
    let history = messages(&life.handle);
    let begun = history.iter().filter(|one| one.role == Role::User && !one.text.starts_with(STEER)).count();
    // One that was cancelled or abandoned before it said a word may have had nothing to pay with.
    let is_unpaid = |one: &Message| one.text == NO_TURNS || (one.text.is_empty() && one.ending.is_some());
    let unpaid = history.iter().filter(|one| one.role == Role::Assistant && is_unpaid(one)).count();
    let is_open =
        history.last().is_some_and(|last| last.role != Role::Assistant || !last.tool_calls.is_empty());
    (begun - unpaid - usize::from(is_open)) as u64
}
