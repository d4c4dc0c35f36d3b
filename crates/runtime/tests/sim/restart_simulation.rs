//! Seeded runs over several lives of a daemon: sends that are repeated, agents that sleep, a store that has no room, and
//! kills and stops in between. What is done is in [`lives_acts`](crate::lives_acts), and what must hold in
//! [`lives_checks`](crate::lives_checks). `SIM_SEED=n` repeats a run,
//! `SIM_SEEDS=n` runs more of them.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use agent::journal::Serial;
use agent::outside::Store;
use agent::{Fault, RequestId, TurnEnd};
use runtime::{AgentHandle, AgentRef, Capability, Limits};
use tokio::task::JoinHandle;

use crate::driver::Log;
use crate::rng::TestRng;
use crate::simulation::env_number;
use crate::world::{World, WorldOptions};

const SEED_COUNT: u64 = 150;

#[test]
fn every_seed_keeps_what_it_acknowledged() {
    let seeds = match (env_number("SIM_SEED"), env_number("SIM_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, more) => 0..more.unwrap_or(SEED_COUNT),
    };
    for seed in seeds {
        let kept = std::panic::catch_unwind(AssertUnwindSafe(|| run_seed(seed)));
        assert!(kept.is_ok(), "seed {seed} lost or doubled something; SIM_SEED={seed} repeats it");
    }
}

#[test]
fn a_seed_repeats_its_lives() {
    for seed in [1, 2, 3] {
        assert_eq!(run_seed(seed), run_seed(seed), "seed {seed}");
    }
}

/// What has to happen somewhere in the seeds.
const REQUIRED_LOG_PHRASES: &[&str] = &[
    "Outcome unknown",
    "interrupted: the daemon stopped",
    "storage full",
    "other content",
    "repeat",
    "killed in the middle",
    "stopped and started",
    "asleep: [",
    "renamed",
    "word taken",
    "cancelled: true",
    "rolled back",
];

#[test]
fn the_lives_get_everywhere() {
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

fn run_seed(seed: u64) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime can be made");
    runtime.block_on(async {
        let mut lives = RestartSimulation::new(seed).await;
        for _ in 0..lives.rng.between(2, 5) {
            for _ in 0..lives.rng.between(5, 40) {
                lives.run_random_operation().await;
            }
            lives.run_to_completion().await;
            lives.check_invariants().await;
        }
        lives.finish().await
    })
}

/// What was said by whom to the daemon, over all its lives.
pub(crate) struct RestartSimulation {
    pub(crate) rng: TestRng,
    pub(crate) world: Option<World>,
    pub(crate) agents: Vec<KnownAgent>,
    pub(crate) sent: Vec<SentMessage>,
    pub(crate) log: Log,
    /// Scripts that were written.
    pub(crate) script_count: usize,
}

/// An agent that was made.
pub(crate) struct KnownAgent {
    pub(crate) agent_ref: AgentRef,
    pub(crate) parent: Option<Serial>,
    pub(crate) capability: Capability,
    pub(crate) marks_interrupted: bool,
    /// It was destroyed, or was temporary and the daemon is another.
    pub(crate) is_destroyed: bool,
    /// Words that were acknowledged.
    pub(crate) steers: Vec<String>,
    /// Somebody took messages back.
    pub(crate) is_rolled_back: bool,
}

/// One send, from its first time on.
pub(crate) struct SentMessage {
    pub(crate) serial: Serial,
    pub(crate) request_id: RequestId,
    pub(crate) script: String,
    pub(crate) expected_text: &'static str,
    pub(crate) pending: Vec<JoinHandle<Result<TurnEnd, Fault>>>,
    pub(crate) answers: Vec<Result<TurnEnd, Fault>>,
    /// Somebody was told that it is kept.
    pub(crate) is_acknowledged: bool,
    pub(crate) cancel_requested: bool,
    /// Somebody was told that it is cancelled.
    pub(crate) is_cancelled: bool,
    pub(crate) is_steered: bool,
}

fn random_limits(dice: &mut TestRng) -> Limits {
    Limits {
        turns_running_max: dice.between(1, 4),
        live_agents_max: *dice.pick(&[2, 4, 100]),
        idle_before_sleep: Duration::from_secs(*dice.pick(&[1, 30, 100_000])),
        model_idle_timeout: Duration::from_secs(1_000_000),
        ..Limits::default()
    }
}

impl RestartSimulation {
    async fn new(seed: u64) -> Self {
        let mut dice = TestRng::new(seed);
        let limits = random_limits(&mut dice);
        let world = World::open(WorldOptions::default().with_limits(limits)).await;
        world.store.set_commit_yields(*dice.pick(&[0, 1, 4]));
        let (agents, sent) = (Vec::new(), Vec::new());
        let mut lives =
            Self { rng: dice, world: Some(world), agents, sent, log: Log::default(), script_count: 0 };
        for _ in 0..3 {
            lives.create().await;
        }
        lives
    }

    pub(crate) fn world(&self) -> &World {
        self.world.as_ref().expect("the daemon runs")
    }

    pub(crate) fn existing_agents(&self) -> Vec<usize> {
        (0..self.agents.len()).filter(|place| !self.agents[*place].is_destroyed).collect()
    }

    pub(crate) fn agent_index(&self, serial: Serial) -> Option<usize> {
        self.agents.iter().position(|known| known.agent_ref.serial() == serial)
    }

    pub(crate) fn random_agent(&mut self) -> Option<usize> {
        let existing = self.existing_agents();
        (!existing.is_empty()).then(|| *self.rng.pick(&existing))
    }

    /// The agent, if the daemon lets it live now.
    pub(crate) async fn handle(&self, place: usize) -> Option<AgentHandle> {
        match self.world().pool.wake(&self.agents[place].agent_ref).await {
            Ok(handle) => Some(handle),
            Err(fault) => {
                assert!(crate::world::is_busy(&fault), "{fault:?}");
                None
            }
        }
    }

    /// Takes the answers that are there.
    pub(crate) async fn collect_answers(&mut self) {
        for place in 0..self.sent.len() {
            let (done, open) = self.sent[place].pending.drain(..).partition(JoinHandle::is_finished);
            let (done, open): (Vec<_>, Vec<_>) = (done, open);
            self.sent[place].pending = open;
            for answer in done {
                let answer = answer.await.expect("a send does not panic");
                self.log.note(format!("answered {}: {answer:?}", self.sent[place].script));
                self.check_answer(place, &answer);
                self.sent[place].answers.push(answer);
            }
        }
    }

    /// Lets everything end by itself.
    async fn run_to_completion(&mut self) {
        self.log.note("come to rest".to_owned());
        self.world().store.clear_faults();
        for _ in 0..2_000 {
            self.release_all();
            tokio::time::sleep(Duration::from_millis(500)).await;
            self.collect_answers().await;
            let is_open = self.sent.iter().any(|sent| !sent.pending.is_empty());
            let unsettled =
                self.world().store.memory().agents_with_open_turns().await.expect("memory can be read");
            if !is_open && self.world().pool.open_turns() == 0 && unsettled.is_empty() {
                return;
            }
        }
        let open: Vec<_> =
            self.sent.iter().filter(|sent| !sent.pending.is_empty()).map(|sent| &sent.script).collect();
        panic!("{} turns never end, and nobody answers {open:?}", self.world().pool.open_turns());
    }

    async fn finish(mut self) -> Vec<String> {
        self.kill().await;
        self.run_to_completion().await;
        self.check_invariants().await;
        let mut lines = std::mem::take(&mut self.log.lines);
        for place in self.existing_agents() {
            let agent = self.handle(place).await.expect("nobody is at work");
            lines.extend(crate::history::texts(&agent));
        }
        self.world().pool.stop(Duration::ZERO).await;
        lines
    }
}
