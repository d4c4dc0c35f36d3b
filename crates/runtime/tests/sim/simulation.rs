//! Seeded runs: random calls against a pool whose model does everything a model can do wrong, then every promise is
//! checked. A failed run names its seed: `SIM_SEED=n` repeats it, `SIM_SEEDS=n` runs more of them.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use crate::driver::{Driver, SendOutcome};
use crate::history::texts;
use crate::scenarios::{ExpectedEnd, Scenario};
use crate::world::{alive_task_count, run_until_idle};

const SEED_COUNT: u64 = 200;

#[test]
fn every_seed_keeps_every_promise() {
    let seeds = match (env_number("SIM_SEED"), env_number("SIM_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, more) => 0..more.unwrap_or(SEED_COUNT),
    };
    for seed in seeds {
        let kept = std::panic::catch_unwind(AssertUnwindSafe(|| run_seed(seed)));
        assert!(kept.is_ok(), "seed {seed} broke a promise; SIM_SEED={seed} repeats it");
    }
}

#[test]
fn a_seed_repeats_its_run() {
    for seed in [1, 2, 3] {
        assert_eq!(run_seed(seed), run_seed(seed), "seed {seed}");
    }
}

/// What has to happen somewhere in the seeds: a simulation that never gets there proves nothing about it.
const REQUIRED_LOG_PHRASES: &[&str] = &[
    "deadlock",
    "Permission denied: Tool",
    "Permission denied: cannot write",
    "Permission denied: cannot target",
    "exceeds parent ceiling",
    "max nesting depth",
    "what the parent has left",
    "the budget of children",
    "the budget of turns",
    "the budget of tool_calls",
    "the budget of tokens",
    "the budget of wall_ms",
    "Stopped: the budget of wall_ms",
    "[Max tool iterations reached]",
    "no usable tool call three times",
    "Timeout after 60 seconds",
    "the tool panicked",
    "halted due to error in previous tool",
    "tool execution was interrupted",
    "truncated",
    "steered",
    "has it",
    "said '",
    "was cancelled after",
    "created by an agent",
    "destroyed by an agent",
    "destroyed: true",
    ", which said",
    "beneath /work",
];

#[test]
fn the_seeds_get_everywhere() {
    let mut missing = REQUIRED_LOG_PHRASES.to_vec();
    for seed in 0..SEED_COUNT {
        let lines = run_seed(seed);
        missing.retain(|phrase| !lines.iter().any(|line| line.contains(phrase)));
        if missing.is_empty() {
            return;
        }
    }
    assert_eq!(missing, Vec::<&str>::new(), "no seed gets there");
}

#[expect(clippy::disallowed_methods, reason = "whoever runs the tests chooses the seeds")]
pub(crate) fn env_number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("seeds are numbers"))
}

/// Runs one seed; gives what was done.
fn run_seed(seed: u64) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime can be made");
    runtime.block_on(async {
        let mut driver = Driver::new(seed).await;
        for _ in 0..driver.rng.between(0, 8) {
            driver.create_random_agent().await;
        }
        for _ in 0..driver.rng.between(20, 150) {
            driver.run_random_operation().await;
        }
        if driver.rng.percent(50) {
            driver.run_to_completion().await;
            driver.send_to_all().await;
        }
        match driver.rng.below(4) {
            0 => driver.drop_all_handles().await,
            _ => driver.stop().await,
        }
    })
}

impl Driver {
    /// Lets all turns end by themselves.
    async fn run_to_completion(&mut self) {
        self.log.note("come to rest".to_owned());
        for _ in 0..10_000 {
            self.world.model.release_all();
            self.world.tools.release_all();
            tokio::time::sleep(Duration::from_millis(500)).await;
            self.collect_answers().await;
            if self.world.pool.open_turns() == 0 {
                break;
            }
        }
        let open: Vec<_> = (0..self.agents.len()).flat_map(|life| self.pending_scripts(life)).collect();
        assert_eq!(open, Vec::<&str>::new(), "every accepted send is answered");
        assert_eq!(self.world.pool.open_turns(), 0, "every place is given back");
        assert_eq!(self.world.tools.observations().live, 0, "every tool has ended");
        self.check_always();
        self.check_histories();
    }

    /// Whatever went wrong before, an agent answers the next send.
    async fn send_to_all(&mut self) {
        for life in self.existing_agents() {
            let script = format!("#{} say still here; done", self.sent.len());
            let request_id = agent::RequestId::Text(format!("{script}?"));
            self.send(
                life,
                request_id,
                Scenario { script, expected_end: ExpectedEnd::Replies("still here"), may_time_out: false },
            );
            run_until_idle().await;
            self.collect_answers().await;
            assert_eq!(self.pending_scripts(life), Vec::<&str>::new(), "life {life} answers");
            let last = self.sent.last().map(|sent| &sent.outcome);
            assert!(matches!(last, Some(SendOutcome::Answered(Ok(_)))), "life {life} answers well");
        }
    }

    /// Stops the pool, with calls that still come in meanwhile.
    async fn stop(mut self) -> Vec<String> {
        let pool = self.world.pool.clone();
        let grace = Duration::from_millis(*self.rng.pick(&[0, 10, 5_000, 1_000_000]));
        let before = tokio::time::Instant::now();
        self.log.note(format!("stop with {grace:?}"));
        (self.stop_requested, self.stopping) = (true, true);
        let stopped_pool = pool.clone();
        let mut stopping = Box::pin(async move { stopped_pool.stop(grace).await });
        let mut stopped = tokio::task::unconstrained(&mut stopping).now_or_never();
        for _ in 0..self.rng.between(0, 5) {
            self.send_random();
            self.create_after_stop().await;
            self.release_random();
            self.collect_answers().await;
        }
        if self.rng.percent(20) {
            pool.abort_turns();
        }
        if stopped.is_none() {
            stopped = Some(stopping.await);
        }
        let took = tokio::time::Instant::now() - before;
        assert!(took <= grace + Duration::from_millis(1), "a stop with {grace:?} took {took:?}");
        self.log.note(format!("stopped, {stopped:?} cancelled"));
        self.read_random().await;
        assert_eq!(pool.stop(grace).await, 0, "a second stop finds nothing to do");
        drop(pool);
        self.check_all().await
    }

    async fn create_after_stop(&mut self) {
        let lives = self.agents.len();
        // After a stop has emptied the directory, the driver's own list is ahead of it.
        let fault =
            self.world.pool.create(runtime::AgentSpec::default(), runtime::Initiator::Admin).await.err();
        assert!(fault.is_some_and(|fault| crate::world::is_busy(&fault)), "no agent is made in a stop");
        assert_eq!(self.agents.len(), lives);
    }

    /// Nobody stops the pool: everybody who knew of it goes away.
    async fn drop_all_handles(mut self) -> Vec<String> {
        self.log.note("walk away".to_owned());
        let (model, tools) = (Arc::clone(&self.world.model), Arc::clone(&self.world.tools));
        let lines = std::mem::take(&mut self.log.lines);
        drop(self);
        run_until_idle().await;
        assert_eq!(alive_task_count(), 0, "no task is left behind");
        assert_eq!(model.observations().live_total, 0, "no stream is left behind");
        assert_eq!(tools.observations().live, 0, "no tool is left behind");
        assert_eq!(
            (Arc::strong_count(&model), Arc::strong_count(&tools)),
            (1, 1),
            "nobody holds the world any more"
        );
        lines
    }

    async fn check_all(mut self) -> Vec<String> {
        self.collect_answers().await;
        for life in 0..self.agents.len() {
            assert_eq!(self.pending_scripts(life), Vec::<&str>::new(), "every accepted send is answered");
        }
        assert_eq!(self.world.pool.open_turns(), 0, "every place is given back");
        assert_eq!(alive_task_count(), 0, "no task is left");
        assert_eq!(self.world.tools.observations().live, 0, "no tool is left");
        self.check_always();
        self.check_histories();
        self.check_requests();
        self.check_order();
        self.check_model();
        let (model, tools) = (Arc::clone(&self.world.model), Arc::clone(&self.world.tools));
        let mut lines = std::mem::take(&mut self.log.lines);
        lines.extend(self.agents.iter().flat_map(|life| texts(&life.handle)));
        drop(self);
        assert_eq!(
            (Arc::strong_count(&model), Arc::strong_count(&tools)),
            (1, 1),
            "nobody holds the world any more"
        );
        lines
    }
}
