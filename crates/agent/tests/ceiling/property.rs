//! Seeded cases on several threads. A failed case names its seed: `CEILING_SEED=n` repeats it, `CEILING_CASES=n` sets
//! the number of cases; `cargo xtask soak permissions` runs ten million.

use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::time::Instant;

use testkit::seeds_from_environment;

use crate::case::{self, Tally};
use crate::vocabulary::Vocabulary;

const CASES: u64 = 10_000;

/// Cases per batch of a thread.
const BATCH_CASES: u64 = 1_000;

/// Maximum number of progress reports.
const REPORTS_MAX: u64 = 20;

#[test]
fn no_agent_exceeds_what_its_ancestors_may_grant() {
    let cases = seeds_from_environment("CEILING_SEED", "CEILING_CASES", CASES);
    let total = cases.end - cases.start;
    let start = Instant::now();
    let work =
        Mutex::new(Work { left: cases, total, done: 0, tally: Tally::default(), failed_seed: None, start });
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| run_worker(&work));
        }
    });
    let work = work.into_inner().expect("no thread panics with the lock");
    if let Some(seed) = work.failed_seed {
        panic!("case {seed} broke the ceiling; CEILING_SEED={seed} repeats it");
    }
    println!("{}", work.report());
    let Tally { judged, allowed, .. } = work.tally;
    let is_vacuous = total >= CASES && (allowed * 10 < judged || allowed * 10 > judged * 9);
    assert!(
        !is_vacuous,
        "cases that allow nearly nothing or nearly everything prove little: {:?}",
        work.tally
    );
}

#[test]
fn case_is_reproducible_by_its_seed() {
    let vocabulary = Vocabulary::new();
    for seed in 0..20 {
        assert_eq!(case::run(seed, &vocabulary), case::run(seed, &vocabulary), "seed {seed}");
    }
}

struct Work {
    left: Range<u64>,
    total: u64,
    done: u64,
    tally: Tally,
    failed_seed: Option<u64>,
    start: Instant,
}

impl Work {
    fn take_batch(&mut self) -> Option<Range<u64>> {
        let first = self.left.start;
        let end = self.left.end.min(first + BATCH_CASES);
        self.left.start = end;
        (first < end && self.failed_seed.is_none()).then_some(first..end)
    }

    fn finish_batch(&mut self, cases: u64, tally: Tally) {
        let reports = self.done * REPORTS_MAX / self.total;
        self.done += cases;
        self.tally = self.tally.plus(tally);
        // Short runs print no progress.
        if self.done * REPORTS_MAX / self.total > reports && self.total > 10 * CASES && self.done < self.total
        {
            println!("{}", self.report());
        }
    }

    fn report(&self) -> String {
        let seconds = self.start.elapsed().as_secs_f64();
        let Tally { agents, judged, allowed } = self.tally;
        format!(
            "{} of {} cases: {agents} agents, {judged} effects judged, {allowed} allowed; {:.0} cases/s",
            self.done,
            self.total,
            self.done as f64 / seconds
        )
    }
}

fn run_worker(work: &Mutex<Work>) {
    let vocabulary = Vocabulary::new();
    let locked = || work.lock().expect("no thread panics with the lock");
    loop {
        let Some(batch) = locked().take_batch() else { return };
        let cases = batch.end - batch.start;
        let mut tally = Tally::default();
        for seed in batch {
            match std::panic::catch_unwind(AssertUnwindSafe(|| case::run(seed, &vocabulary))) {
                Ok(result) => tally = tally.plus(result),
                Err(_) => {
                    let mut work = locked();
                    work.failed_seed = Some(work.failed_seed.map_or(seed, |other| other.min(seed)));
                    return;
                }
            }
        }
        locked().finish_batch(cases, tally);
    }
}
