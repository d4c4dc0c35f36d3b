//! What the kills came to, for a reader.

use std::fmt;
use std::time::Duration;

/// What was counted, and what was found wrong.
#[derive(Debug, Clone, Default)]
pub struct Kill9Report {
    /// The seed that repeats the choices.
    pub seed: u64,
    /// Cycles that were done.
    pub cycles: u64,
    /// How long they took.
    pub elapsed: Duration,
    /// What was counted, in order.
    pub counts: Vec<(String, u64)>,
    /// Kills, by what the daemon was doing. One kill may have met turns at several stages.
    pub kills: Vec<(String, u64)>,
    /// Acknowledged things that are not there.
    pub lost: u64,
    /// Things that are there twice, or were done twice.
    pub duplicated: u64,
    /// Turns that were open and not worked on too long after a start.
    pub stuck_turns: u64,
    /// Everything that must not be, in words.
    pub violations: Vec<String>,
    /// What happened to the agents that the first of them names, event by event.
    pub transcript: Vec<String>,
}

/// Violations that are shown; the rest are counted.
const SHOWN_VIOLATIONS_MAX: usize = 40;

impl Kill9Report {
    /// Whether everything is as it must be.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }
}

impl fmt::Display for Kill9Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.elapsed.as_secs_f64();
        let rate = self.cycles as f64 / seconds.max(0.001);
        writeln!(out, "kill9: {} cycles in {seconds:.1} s ({rate:.2}/s), seed {}", self.cycles, self.seed)?;
        let verdict = [("lost", self.lost), ("doubled", self.duplicated), ("unsettled", self.stuck_turns)];
        let verdict = verdict.into_iter().map(|(name, count)| (name.to_owned(), count));
        for (name, count) in self.counts.iter().cloned().chain(verdict) {
            writeln!(out, "  {name:<36} {count:>8}")?;
        }
        writeln!(out, "  kills, by what was under way:")?;
        for (stage, count) in &self.kills {
            writeln!(out, "    {stage:<34} {count:>8}")?;
        }
        for violation in self.violations.iter().take(SHOWN_VIOLATIONS_MAX) {
            writeln!(out, "  VIOLATION: {violation}")?;
        }
        if self.violations.len() > SHOWN_VIOLATIONS_MAX {
            writeln!(out, "  and {} more", self.violations.len() - SHOWN_VIOLATIONS_MAX)?;
        }
        if !self.transcript.is_empty() {
            writeln!(out, "  the first one, event by event:")?;
            self.transcript.iter().try_for_each(|event| writeln!(out, "    {event}"))?;
        }
        write!(out, "  {}", if self.is_clean() { "clean" } else { "NOT CLEAN" })
    }
}
