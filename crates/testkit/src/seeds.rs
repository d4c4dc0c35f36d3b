//! Seeded simulations: the seeds to run, and the three checks that every simulation has.
//! A failed run prints its seed: `SIM_SEED=n` repeats it, `SIM_SEEDS=n` runs more seeds.

use std::ops::Range;
use std::panic::AssertUnwindSafe;

/// A simulation that one seed determines.
#[derive(Debug)]
pub struct SeededSimulation {
    /// The number of seeds that a test runs.
    pub seeds: u64,
    /// Runs one seed, panics if an invariant is violated, and returns the log.
    pub run: fn(u64) -> Vec<String>,
    /// Phrases that must occur in the log of some seed: otherwise the simulation does not cover that behaviour.
    pub required_phrases: &'static [&'static str],
}

impl SeededSimulation {
    /// Runs every seed.
    pub fn check_every_seed(&self) {
        for seed in seeds_from_environment("SIM_SEED", "SIM_SEEDS", self.seeds) {
            let result = std::panic::catch_unwind(AssertUnwindSafe(|| (self.run)(seed)));
            assert!(result.is_ok(), "seed {seed} violated an invariant; repeat with SIM_SEED={seed}");
        }
    }

    /// Runs a few seeds twice and compares the logs.
    pub fn check_repeatable(&self) {
        for seed in [1, 2, 3] {
            assert_eq!((self.run)(seed), (self.run)(seed), "seed {seed}");
        }
    }

    /// Runs seeds until every required phrase was logged.
    pub fn check_coverage(&self) {
        let mut missing = self.required_phrases.to_vec();
        for seed in 0..self.seeds {
            let lines = (self.run)(seed);
            missing.retain(|phrase| !lines.iter().any(|line| line.contains(phrase)));
            if missing.is_empty() {
                return;
            }
        }
        assert_eq!(missing, Vec::<&str>::new(), "phrases that no seed logs");
    }
}

/// The seeds to run: the one in the variable `seed`, or as many as the variable `count` says, or `default_count`.
pub fn seeds_from_environment(seed: &str, count: &str, default_count: u64) -> Range<u64> {
    match (number_from_environment(seed), number_from_environment(count)) {
        (Some(seed), _) => seed..seed + 1,
        (None, count) => 0..count.unwrap_or(default_count),
    }
}

#[expect(clippy::disallowed_methods, reason = "the environment selects the seeds of a test run")]
fn number_from_environment(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("seeds are numbers"))
}
