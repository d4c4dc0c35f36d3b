//! Seeded runs: random operations on a pool whose model fails in every way, then a check of every guarantee.
//! `SIM_SEED=n` repeats a run, `SIM_SEEDS=n` runs more.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use testkit::SeededSimulation;

use crate::driver::{Driver, SendOutcome};
use crate::history::texts;
use crate::scenarios::{ExpectedEnd, Scenario};
use crate::world::{alive_task_count, block_on_paused, run_until_idle};

const SIMULATION: SeededSimulation = SeededSimulation {
    seeds: 200,
    run: run_seed,
    required_phrases: &[
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
        "queued",
        "replied '",
        "was cancelled after",
        "created by an agent",
        "destroyed by an agent",
        "destroyed: true",
        ", which replied",
        "beneath /work",
    ],
};

#[test]
fn every_seed_satisfies_all_invariants() {
    SIMULATION.check_every_seed();
}

#[test]
fn same_seed_repeats_the_run() {
    SIMULATION.check_repeatable();
}

#[test]
fn seeds_cover_all_required_behaviour() {
    SIMULATION.check_coverage();
}

/// Runs one seed and returns its log.
fn run_seed(seed: u64) -> Vec<String> {
    block_on_paused(async {
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
    /// Waits until all turns end without further requests.
    async fn run_to_completion(&mut self) {
        self.log.note("wait for all turns".to_owned());
        for _ in 0..10_000 {
            self.world.model.release_all();
            self.world.tools.release_all();
            tokio::time::sleep(Duration::from_millis(500)).await;
            self.collect_responses().await;
            if self.world.pool.open_turns() == 0 {
                break;
            }
        }
        let pending: Vec<_> = (0..self.agents.len()).flat_map(|index| self.pending_scripts(index)).collect();
        assert_eq!(pending, Vec::<&str>::new(), "every accepted send gets a response");
        assert_eq!(self.world.pool.open_turns(), 0, "every permit is released");
        assert_eq!(self.world.tools.observations().live, 0, "no tool runs");
        self.check_always();
        self.check_histories();
    }

    /// Checks that every agent responds to a send, whatever happened before.
    async fn send_to_all(&mut self) {
        for index in self.existing_agents() {
            let script = format!("#{} say still here; done", self.sent.len());
            let request_id = agent::RequestId::Text(format!("{script}?"));
            self.send(
                index,
                request_id,
                Scenario { script, expected_end: ExpectedEnd::Replies("still here"), may_time_out: false },
            );
            run_until_idle().await;
            self.collect_responses().await;
            assert_eq!(self.pending_scripts(index), Vec::<&str>::new(), "agent #{index} responds");
            let last = self.sent.last().map(|sent| &sent.outcome);
            assert!(
                matches!(last, Some(SendOutcome::Responded(Ok(_)))),
                "agent #{index} responds with success"
            );
        }
    }

    /// Stops the pool while further calls arrive.
    async fn stop(mut self) -> Vec<String> {
        let pool = self.world.pool.clone();
        let grace = Duration::from_millis(*self.rng.pick(&[0, 10, 5_000, 1_000_000]));
        let started_at = tokio::time::Instant::now();
        self.log.note(format!("stop with {grace:?}"));
        (self.stop_requested, self.stopping) = (true, true);
        let stopped_pool = pool.clone();
        let mut stop = Box::pin(async move { stopped_pool.stop(grace).await });
        let mut stopped = tokio::task::unconstrained(&mut stop).now_or_never();
        for _ in 0..self.rng.between(0, 5) {
            self.send_random();
            self.create_after_stop().await;
            self.release_random();
            self.collect_responses().await;
        }
        if self.rng.percent(20) {
            pool.abort_turns();
        }
        if stopped.is_none() {
            stopped = Some(stop.await);
        }
        let elapsed = tokio::time::Instant::now() - started_at;
        assert!(elapsed <= grace + Duration::from_millis(1), "a stop with {grace:?} took {elapsed:?}");
        self.log.note(format!("stopped, {stopped:?} cancelled"));
        self.read_random().await;
        assert_eq!(pool.stop(grace).await, 0, "a second stop cancels nothing");
        drop(pool);
        self.check_all().await
    }

    async fn create_after_stop(&mut self) {
        let count = self.agents.len();
        // A stop may have cleared the pool's directory already; the driver's list is not changed.
        let fault =
            self.world.pool.create(runtime::AgentSpec::default(), runtime::Initiator::Admin).await.err();
        assert!(
            fault.is_some_and(|fault| crate::world::is_busy(&fault)),
            "no agent is created during a stop"
        );
        assert_eq!(self.agents.len(), count);
    }

    /// Drops all handles without stopping the pool.
    async fn drop_all_handles(mut self) -> Vec<String> {
        self.log.note("drop all handles".to_owned());
        let (model, tools) = (Arc::clone(&self.world.model), Arc::clone(&self.world.tools));
        let lines = std::mem::take(&mut self.log.lines);
        drop(self);
        run_until_idle().await;
        assert_eq!(alive_task_count(), 0, "no task is left");
        assert_eq!(model.observations().live_total, 0, "no stream is left");
        assert_eq!(tools.observations().live, 0, "no tool is left");
        assert_eq!((Arc::strong_count(&model), Arc::strong_count(&tools)), (1, 1), "no reference is left");
        lines
    }

    async fn check_all(mut self) -> Vec<String> {
        self.collect_responses().await;
        for index in 0..self.agents.len() {
            assert_eq!(
                self.pending_scripts(index),
                Vec::<&str>::new(),
                "every accepted send gets a response"
            );
        }
        assert_eq!(self.world.pool.open_turns(), 0, "every permit is released");
        assert_eq!(alive_task_count(), 0, "no task is left");
        assert_eq!(self.world.tools.observations().live, 0, "no tool is left");
        self.check_always();
        self.check_histories();
        self.check_requests();
        self.check_order();
        self.check_model();
        let (model, tools) = (Arc::clone(&self.world.model), Arc::clone(&self.world.tools));
        let mut lines = std::mem::take(&mut self.log.lines);
        lines.extend(self.agents.iter().flat_map(|agent| texts(&agent.handle)));
        drop(self);
        assert_eq!((Arc::strong_count(&model), Arc::strong_count(&tools)), (1, 1), "no reference is left");
        lines
    }
}
