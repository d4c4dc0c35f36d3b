//! What must hold over all lives of a daemon: nothing acknowledged is lost, nothing is doubled, and whoever asks twice is
//! told the same.

use agent::{Fault, FaultKind, TurnEnd, TurnOutcome};
use runtime::AgentLiveness;

use crate::history::{STEER_PREFIX, idle_history_violation, messages, user_texts};
use crate::restart_simulation::{RestartSimulation, SentMessage};
use crate::world::is_busy;

impl RestartSimulation {
    /// Whether an answer may be given.
    pub(crate) fn check_answer(&mut self, place: usize, answer: &Result<TurnEnd, Fault>) {
        let sent = &self.sent[place];
        let known = self.agent_index(sent.serial).map(|place| &self.agents[place]);
        let (is_gone, marks) =
            known.map_or((true, false), |known| (known.is_destroyed, known.marks_interrupted));
        let fair = match answer {
            Ok(end) => match end.outcome {
                TurnOutcome::Completed => {
                    !sent.is_cancelled && (sent.is_steered || end.content == sent.expected_text)
                }
                // A stop cancels what somebody waits for.
                TurnOutcome::Cancelled => {
                    is_gone || sent.is_steered || sent.expected_text.starts_with(&*end.content)
                }
                TurnOutcome::Failed(_) | TurnOutcome::Interrupted(_) => false,
            },
            Err(fault) => match fault.kind {
                FaultKind::Model => sent.script.ends_with("fail") || sent.is_steered,
                FaultKind::NotFound => is_gone,
                FaultKind::Interrupted => marks || fault.public.contains("stopped 3 times"),
                FaultKind::Full { .. } | FaultKind::Busy { .. } => true,
                // Its name is its own, whoever else uses it for something else.
                FaultKind::Invalid => false,
                FaultKind::Denied | FaultKind::ContextFull | FaultKind::Internal => false,
            },
        };
        assert!(fair, "{} was answered with {answer:?}", sent.script);
        // An agent that is gone has taken its answers with it.
        if !is_gone {
            self.check_duplicate_answer(place, answer);
        }
        self.sent[place].is_acknowledged |= is_final(answer);
    }

    /// Whoever asks again is told what was told before, once that is for good.
    fn check_duplicate_answer(&self, place: usize, answer: &Result<TurnEnd, Fault>) {
        let sent = &self.sent[place];
        let first = sent.answers.iter().find(|before| is_final(before));
        if let (Some(first), true) = (first, is_final(answer)) {
            assert_eq!(
                visible_answer(answer),
                visible_answer(first),
                "{} is answered in two ways",
                sent.script
            );
        }
    }

    /// When nothing is open.
    pub(crate) async fn check_invariants(&mut self) {
        self.check_list().await;
        self.check_effects();
        for place in self.existing_agents() {
            let world = self.world();
            let agent = world.pool.wake(&self.agents[place].agent_ref).await.expect("nobody is at work");
            let history = messages(&agent);
            let name = agent.id();
            assert_eq!(idle_history_violation(&history), None, "{name}");
            let known = &self.agents[place];
            let asked = user_texts(&agent);
            for sent in self.sent.iter().filter(|sent| sent.serial == known.agent_ref.serial()) {
                self.check_sent(sent, &asked, known.is_rolled_back, known.marks_interrupted);
            }
            for word in &known.steers {
                let times = asked.iter().filter(|text| *text == word).count();
                assert!(
                    times == 1 || (known.is_rolled_back && times == 0),
                    "'{word}' is {times} times in {name}"
                );
            }
            let words = asked.iter().filter(|text| text.starts_with(STEER_PREFIX)).count();
            let stray = words.saturating_sub(known.steers.len());
            assert!(stray <= known.steers.len() + 16, "{name} has {stray} words that nobody had taken");
        }
    }

    fn check_sent(&self, sent: &SentMessage, asked: &[String], is_rolled_back: bool, marks: bool) {
        let times = asked.iter().filter(|text| **text == sent.script).count();
        let completed = |answer: &Result<TurnEnd, Fault>| match answer {
            Ok(end) => end.outcome == TurnOutcome::Completed,
            Err(fault) => fault.kind == FaultKind::Model,
        };
        let has_begun = sent.answers.iter().any(completed);
        let may_be_unbegun = sent.cancel_requested || sent.answers.iter().any(is_cancelled) || marks;
        let fair = match times {
            0 => is_rolled_back || !sent.is_acknowledged || (may_be_unbegun && !has_begun),
            1 => true,
            _ => false,
        };
        assert!(
            fair,
            "{} is {times} times in the history, acknowledged: {}",
            sent.script, sent.is_acknowledged
        );
    }

    /// What may happen once has happened at most once in all lives.
    fn check_effects(&self) {
        let mut once: Vec<_> =
            self.world().tools.call_lines().into_iter().filter(|line| line.contains(" once")).collect();
        // The agent may have been renamed between two lives.
        once.iter_mut().for_each(|line| drop(line.drain(..line.find(' ').unwrap_or_default())));
        once.sort();
        let all = once.len();
        once.dedup();
        assert_eq!(once.len(), all, "something happened twice");
    }

    async fn check_list(&mut self) {
        let listed = self.world().list().await;
        let mut expected: Vec<_> =
            self.existing_agents().iter().map(|place| self.agents[*place].agent_ref.clone()).collect();
        expected.sort_by_key(runtime::AgentRef::serial);
        let names: Vec<_> = listed.iter().map(|agent| agent.id.clone()).collect();
        assert_eq!(names, expected.iter().map(|one| one.id().clone()).collect::<Vec<_>>(), "who is there");
        for summary in &listed {
            let agent = self.world().find(summary.id.as_str()).await;
            assert_eq!(summary.message_count, messages(&agent).len(), "{}, {:?}", summary.id, summary.state);
            assert!(summary.state == AgentLiveness::Live || summary.open_turns == 0);
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

/// Whether an answer is for good: whoever asks again gets it again.
pub(crate) fn is_final(answer: &Result<TurnEnd, Fault>) -> bool {
    match answer {
        // One that was cancelled before it was kept is not known.
        Ok(end) => *end != TurnEnd::cancelled_before_start(),
        Err(fault) => !is_busy(fault) && fault.kind == FaultKind::Model,
    }
}

fn is_cancelled(answer: &Result<TurnEnd, Fault>) -> bool {
    answer.as_ref().is_ok_and(|end| end.outcome == TurnOutcome::Cancelled)
}

fn visible_answer(answer: &Result<TurnEnd, Fault>) -> Result<(TurnOutcome, &str), (FaultKind, &str)> {
    match answer {
        Ok(end) => Ok((end.outcome.clone(), &end.content)),
        Err(fault) => Err((fault.kind, &fault.public)),
    }
}
