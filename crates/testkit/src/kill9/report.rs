//! The report of a crash test.

use std::fmt;
use std::time::Duration;

/// Counts and violations of a crash test.
#[derive(Debug, Clone, Default)]
pub struct Kill9Report {
    /// The seed of the random choices.
    pub seed: u64,
    /// Completed cycles.
    pub cycles: u64,
    /// Duration of the run.
    pub elapsed: Duration,
    /// Counts in display order.
    pub counts: Vec<(String, u64)>,
    /// Kills by what the daemon was doing. One kill may interrupt turns at several stages.
    pub kills: Vec<(String, u64)>,
    /// Acknowledged data that is missing.
    pub lost: u64,
    /// Data or effects that exist twice.
    pub duplicated: u64,
    /// Waits for recovery after a start that timed out with turns still open.
    pub stuck_turns: u64,
    /// Descriptions of all violations.
    pub violations: Vec<String>,
    /// The events of the agents that the first violation names; violations about sends come first.
    pub transcript: Vec<String>,
}

/// Maximum number of violations shown.
const SHOWN_VIOLATIONS_MAX: usize = 40;

impl Kill9Report {
    /// Whether there are no violations.
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
        let totals = [("lost", self.lost), ("duplicated", self.duplicated), ("stuck", self.stuck_turns)];
        let totals = totals.into_iter().map(|(name, count)| (name.to_owned(), count));
        for (name, count) in self.counts.iter().cloned().chain(totals) {
            writeln!(out, "  {name:<36} {count:>8}")?;
        }
        writeln!(out, "  kills by activity:")?;
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
            writeln!(out, "  events of the first violation:")?;
            self.transcript.iter().try_for_each(|event| writeln!(out, "    {event}"))?;
        }
        write!(out, "  {}", if self.is_clean() { "clean" } else { "NOT CLEAN" })
    }
}
