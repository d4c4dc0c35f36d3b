//! Seeded runs over several restarts of a daemon: duplicate sends, sleeping agents, a full disk, kills and stops.
//! [`restart_operations`](crate::restart_operations) has the operations and
//! [`restart_invariants`](crate::restart_invariants) the checks. `SIM_SEED=n` repeats a run, `SIM_SEEDS=n` runs more.

use std::time::Duration;

use agent::journal::Serial;
use agent::outside::Store;
use agent::{Fault, RequestId, TurnEnd};
use runtime::{AgentHandle, AgentRef, Capability, Limits};
use testkit::{SeededSimulation, TestRng};
use tokio::task::JoinHandle;

use crate::driver::Log;
use crate::world::{World, WorldOptions, block_on_paused};

const SIMULATION: SeededSimulation = SeededSimulation {
    seeds: 150,
    run: run_seed,
    required_phrases: &[
        "Outcome unknown",
        "interrupted: the daemon stopped",
        "storage full",
        "other content",
        "duplicate send",
        "killed in the middle",
        "stopped and started",
        "asleep: [",
        "renamed",
        "instruction accepted",
        "cancelled: true",
        "rolled back",
    ],
};

#[test]
fn every_seed_retains_acknowledged_data() {
    SIMULATION.check_every_seed();
}

#[test]
fn same_seed_repeats_the_restarts() {
    SIMULATION.check_repeatable();
}

#[test]
fn restart_seeds_cover_required_behaviour() {
    SIMULATION.check_coverage();
}

fn run_seed(seed: u64) -> Vec<String> {
    block_on_paused(async {
        let mut simulation = RestartSimulation::new(seed).await;
        for _ in 0..simulation.rng.between(2, 5) {
            for _ in 0..simulation.rng.between(5, 40) {
                simulation.run_random_operation().await;
            }
            simulation.run_to_completion().await;
            simulation.check_invariants().await;
        }
        simulation.finish().await
    })
}

/// All requests to the daemon across its restarts.
pub(crate) struct RestartSimulation {
    pub(crate) rng: TestRng,
    pub(crate) world: Option<World>,
    pub(crate) agents: Vec<KnownAgent>,
    pub(crate) sent: Vec<SentMessage>,
    pub(crate) log: Log,
    /// Number of generated scripts.
    pub(crate) script_count: usize,
}

/// An agent that was created.
pub(crate) struct KnownAgent {
    pub(crate) agent_ref: AgentRef,
    pub(crate) parent: Option<Serial>,
    pub(crate) capability: Capability,
    pub(crate) marks_interrupted: bool,
    /// It was destroyed, or was temporary and the daemon has restarted.
    pub(crate) is_destroyed: bool,
    /// Accepted steering instructions.
    pub(crate) steers: Vec<String>,
    /// Messages were rolled back.
    pub(crate) is_rolled_back: bool,
}

/// One message, with all its sends.
pub(crate) struct SentMessage {
    pub(crate) serial: Serial,
    pub(crate) request_id: RequestId,
    pub(crate) script: String,
    pub(crate) expected_text: &'static str,
    pub(crate) pending: Vec<JoinHandle<Result<TurnEnd, Fault>>>,
    pub(crate) responses: Vec<Result<TurnEnd, Fault>>,
    /// A client knows that it is committed.
    pub(crate) is_acknowledged: bool,
    pub(crate) cancel_requested: bool,
    /// A client knows that it is cancelled.
    pub(crate) is_cancelled: bool,
    pub(crate) is_steered: bool,
}

fn random_limits(rng: &mut TestRng) -> Limits {
    Limits {
        turns_running_max: rng.between(1, 4),
        live_agents_max: *rng.pick(&[2, 4, 100]),
        idle_before_sleep: Duration::from_secs(*rng.pick(&[1, 30, 100_000])),
        model_idle_timeout: Duration::from_secs(1_000_000),
        ..Limits::default()
    }
}

impl RestartSimulation {
    async fn new(seed: u64) -> Self {
        let mut rng = TestRng::new(seed);
        let limits = random_limits(&mut rng);
        let world = World::open(WorldOptions::default().with_limits(limits)).await;
        world.store.set_commit_yields(*rng.pick(&[0, 1, 4]));
        let (agents, sent) = (Vec::new(), Vec::new());
        let mut simulation =
            Self { rng, world: Some(world), agents, sent, log: Log::default(), script_count: 0 };
        for _ in 0..3 {
            simulation.create().await;
        }
        simulation
    }

    pub(crate) fn world(&self) -> &World {
        self.world.as_ref().expect("the daemon runs")
    }

    pub(crate) fn existing_agents(&self) -> Vec<usize> {
        (0..self.agents.len()).filter(|index| !self.agents[*index].is_destroyed).collect()
    }

    pub(crate) fn agent_index(&self, serial: Serial) -> Option<usize> {
        self.agents.iter().position(|known| known.agent_ref.serial() == serial)
    }

    pub(crate) fn random_agent(&mut self) -> Option<usize> {
        let existing = self.existing_agents();
        (!existing.is_empty()).then(|| *self.rng.pick(&existing))
    }

    /// The agent, woken; none if the daemon is busy.
    pub(crate) async fn handle(&self, index: usize) -> Option<AgentHandle> {
        match self.world().pool.wake(&self.agents[index].agent_ref).await {
            Ok(handle) => Some(handle),
            Err(fault) => {
                assert!(crate::world::is_busy(&fault), "{fault:?}");
                None
            }
        }
    }

    /// Collects the responses that are ready.
    pub(crate) async fn collect_responses(&mut self) {
        for index in 0..self.sent.len() {
            let (done, pending) = self.sent[index].pending.drain(..).partition(JoinHandle::is_finished);
            let (done, pending): (Vec<_>, Vec<_>) = (done, pending);
            self.sent[index].pending = pending;
            for response in done {
                let response = response.await.expect("a send does not panic");
                self.log.note(format!("response to {}: {response:?}", self.sent[index].script));
                self.check_response(index, &response);
                self.sent[index].responses.push(response);
            }
        }
    }

    /// Waits until all turns end without further requests.
    async fn run_to_completion(&mut self) {
        self.log.note("wait for all turns".to_owned());
        self.world().store.clear_faults();
        for _ in 0..2_000 {
            self.release_all();
            tokio::time::sleep(Duration::from_millis(500)).await;
            self.collect_responses().await;
            let is_pending = self.sent.iter().any(|sent| !sent.pending.is_empty());
            let open_turns = self
                .world()
                .store
                .memory()
                .agents_with_open_turns()
                .await
                .expect("the memory store is readable");
            if !is_pending && self.world().pool.open_turns() == 0 && open_turns.is_empty() {
                return;
            }
        }
        let pending: Vec<_> =
            self.sent.iter().filter(|sent| !sent.pending.is_empty()).map(|sent| &sent.script).collect();
        panic!("{} turns never end; no response to {pending:?}", self.world().pool.open_turns());
    }

    async fn finish(mut self) -> Vec<String> {
        self.kill().await;
        self.run_to_completion().await;
        self.check_invariants().await;
        let mut lines = std::mem::take(&mut self.log.lines);
        for index in self.existing_agents() {
            let agent = self.handle(index).await.expect("no agent is busy");
            lines.extend(crate::history::texts(&agent));
        }
        self.world().pool.stop(Duration::ZERO).await;
        lines
    }
}
