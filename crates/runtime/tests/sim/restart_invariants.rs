//! Invariants across all restarts of a daemon: acknowledged data is not lost, no effect happens twice, and a duplicate
//! send gets the same response.

use agent::{Fault, FaultKind, TurnEnd, TurnOutcome};
use runtime::AgentLiveness;

use crate::history::{STEER_PREFIX, idle_history_violation, messages, user_texts};
use crate::restart_simulation::{RestartSimulation, SentMessage};
use crate::world::is_busy;

impl RestartSimulation {
    /// Checks that a response is allowed.
    pub(crate) fn check_response(&mut self, index: usize, response: &Result<TurnEnd, Fault>) {
        let sent = &self.sent[index];
        let known = self.agent_index(sent.serial).map(|agent| &self.agents[agent]);
        let (is_destroyed, marks_interrupted) =
            known.map_or((true, false), |known| (known.is_destroyed, known.marks_interrupted));
        let is_allowed = match response {
            Ok(end) => match end.outcome {
                TurnOutcome::Completed => {
                    !sent.is_cancelled && (sent.is_steered || end.content == sent.expected_text)
                }
                // A stop cancels turns with a waiting sender.
                TurnOutcome::Cancelled => {
                    is_destroyed || sent.is_steered || sent.expected_text.starts_with(&*end.content)
                }
                TurnOutcome::Failed(_) | TurnOutcome::Interrupted(_) => false,
            },
            Err(fault) => match fault.kind {
                FaultKind::Model => sent.script.ends_with("fail") || sent.is_steered,
                FaultKind::NotFound => is_destroyed,
                FaultKind::Interrupted => marks_interrupted || fault.public.contains("stopped 3 times"),
                FaultKind::Full { .. } | FaultKind::Busy { .. } => true,
                // Sends with other content are rejected themselves; they do not affect the first one.
                FaultKind::Invalid => false,
                FaultKind::Conflict | FaultKind::Denied | FaultKind::ContextFull | FaultKind::Internal => {
                    false
                }
            },
        };
        assert!(is_allowed, "{} got the response {response:?}", sent.script);
        // A destroyed agent's responses are gone with it.
        if !is_destroyed {
            self.check_duplicate_response(index, response);
        }
        self.sent[index].is_acknowledged |= is_final(response);
    }

    /// Checks that a duplicate send gets the first final response.
    fn check_duplicate_response(&self, index: usize, response: &Result<TurnEnd, Fault>) {
        let sent = &self.sent[index];
        let first = sent.responses.iter().find(|earlier| is_final(earlier));
        if let (Some(first), true) = (first, is_final(response)) {
            assert_eq!(
                visible_response(response),
                visible_response(first),
                "{} got two different responses",
                sent.script
            );
        }
    }

    /// Checks all invariants; requires that no turn is open.
    pub(crate) async fn check_invariants(&mut self) {
        self.check_list().await;
        self.check_effects();
        for index in self.existing_agents() {
            let world = self.world();
            let agent = world.pool.wake(&self.agents[index].agent_ref).await.expect("no agent is busy");
            let history = messages(&agent);
            let name = agent.id();
            assert_eq!(idle_history_violation(&history), None, "{name}");
            let known = &self.agents[index];
            let user_messages = user_texts(&agent);
            for sent in self.sent.iter().filter(|sent| sent.serial == known.agent_ref.serial()) {
                self.check_sent(sent, &user_messages, known.is_rolled_back, known.marks_interrupted);
            }
            for instruction in &known.steers {
                let times = user_messages.iter().filter(|text| *text == instruction).count();
                assert!(
                    times == 1 || (known.is_rolled_back && times == 0),
                    "'{instruction}' is {times} times in {name}"
                );
            }
            let instructions = user_messages.iter().filter(|text| text.starts_with(STEER_PREFIX)).count();
            let unacknowledged = instructions.saturating_sub(known.steers.len());
            assert!(
                unacknowledged <= known.steers.len() + 16,
                "{name} has {unacknowledged} unacknowledged instructions"
            );
        }
    }

    fn check_sent(
        &self,
        sent: &SentMessage,
        user_messages: &[String],
        is_rolled_back: bool,
        marks_interrupted: bool,
    ) {
        let times = user_messages.iter().filter(|text| **text == sent.script).count();
        let completed = |response: &Result<TurnEnd, Fault>| match response {
            Ok(end) => end.outcome == TurnOutcome::Completed,
            Err(fault) => fault.kind == FaultKind::Model,
        };
        let has_started = sent.responses.iter().any(completed);
        let may_not_have_started =
            sent.cancel_requested || sent.responses.iter().any(is_cancelled) || marks_interrupted;
        let is_consistent = match times {
            0 => is_rolled_back || !sent.is_acknowledged || (may_not_have_started && !has_started),
            1 => true,
            _ => false,
        };
        assert!(
            is_consistent,
            "{} is {times} times in the history, acknowledged: {}",
            sent.script, sent.is_acknowledged
        );
    }

    /// Checks that each effect of a non-repeatable tool happened at most once.
    fn check_effects(&self) {
        let mut once: Vec<_> =
            self.world().tools.call_lines().into_iter().filter(|line| line.contains(" once")).collect();
        // The agent may have been renamed in between.
        once.iter_mut().for_each(|line| drop(line.drain(..line.find(' ').unwrap_or_default())));
        once.sort();
        let count = once.len();
        once.dedup();
        assert_eq!(once.len(), count, "an effect happened twice");
    }

    async fn check_list(&mut self) {
        let listed = self.world().list().await;
        let mut expected: Vec<_> =
            self.existing_agents().iter().map(|index| self.agents[*index].agent_ref.clone()).collect();
        expected.sort_by_key(runtime::AgentRef::serial);
        let names: Vec<_> = listed.iter().map(|agent| agent.id.clone()).collect();
        assert_eq!(
            names,
            expected.iter().map(|agent| agent.id().clone()).collect::<Vec<_>>(),
            "the agents that exist"
        );
        for status in &listed {
            let agent = self.world().find(status.id.as_str()).await;
            assert_eq!(status.message_count, messages(&agent).len(), "{}, {:?}", status.id, status.state);
            assert!(status.state == AgentLiveness::Live || status.open_turns == 0);
        }
        for known in &self.agents {
            let found = self.world().pool.find_ref_by_capability(known.capability.reveal().as_bytes());
            assert_eq!(
                found,
                (!known.is_destroyed).then(|| known.agent_ref.clone()),
                "{}",
                known.agent_ref.id()
            );
        }
    }
}

/// Whether a response is final: a duplicate send gets it again.
pub(crate) fn is_final(response: &Result<TurnEnd, Fault>) -> bool {
    match response {
        // A send cancelled before its commit is not known.
        Ok(end) => *end != TurnEnd::cancelled_before_start(),
        Err(fault) => !is_busy(fault) && fault.kind == FaultKind::Model,
    }
}

fn is_cancelled(response: &Result<TurnEnd, Fault>) -> bool {
    response.as_ref().is_ok_and(|end| end.outcome == TurnOutcome::Cancelled)
}

fn visible_response(response: &Result<TurnEnd, Fault>) -> Result<(TurnOutcome, &str), (FaultKind, &str)> {
    match response {
        Ok(end) => Ok((end.outcome.clone(), &end.content)),
        Err(fault) => Err((fault.kind, &fault.public)),
    }
}
