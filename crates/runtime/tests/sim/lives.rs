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

use crate::dice::Dice;
use crate::driver::Log;
use crate::simulation::number_in;
use crate::world::{Plan, World};

const SEEDS: u64 = 150;

#[test]
fn every_seed_keeps_what_it_acknowledged() {
    let seeds = match (number_in("SIM_SEED"), number_in("SIM_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, more) => 0..more.unwrap_or(SEEDS),
    };
    for seed in seeds {
        let kept = std::panic::catch_unwind(AssertUnwindSafe(|| run(seed)));
        assert!(kept.is_ok(), "seed {seed} lost or doubled something; SIM_SEED={seed} repeats it");
    }
}

#[test]
fn a_seed_repeats_its_lives() {
    for seed in [1, 2, 3] {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}

/// What has to happen somewhere in the seeds.
const EVERYWHERE: &[&str] = &[
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
    let mut missing = EVERYWHERE.to_vec();
    for seed in 0..SEEDS {
        let lines = run(seed);
        missing.retain(|phrase| !lines.iter().any(|line| line.contains(phrase)));
        if missing.is_empty() {
            return;
        }
    }
    assert_eq!(missing, Vec::<&str>::new(), "no seed gets there");
}

fn run(seed: u64) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime can be made");
    runtime.block_on(async {
        let mut lives = Lives::new(seed).await;
        for _ in 0..lives.dice.between(2, 5) {
            for _ in 0..lives.dice.between(5, 40) {
                lives.operate().await;
            }
            lives.come_to_rest().await;
            lives.check().await;
        }
        lives.end().await
    })
}

/// What was said by whom to the daemon, over all its lives.
pub(crate) struct Lives {
    pub(crate) dice: Dice,
    pub(crate) world: Option<World>,
    pub(crate) agents: Vec<Known>,
    pub(crate) sent: Vec<Sent>,
    pub(crate) log: Log,
    /// Scripts that were written.
    pub(crate) written: usize,
}

/// An agent that was made.
pub(crate) struct Known {
    pub(crate) refer: AgentRef,
    pub(crate) parent: Option<Serial>,
    pub(crate) capability: Capability,
    pub(crate) marks: bool,
    /// It was destroyed, or was temporary and the daemon is another.
    pub(crate) is_gone: bool,
    /// Words that were acknowledged.
    pub(crate) words: Vec<String>,
    /// Somebody took messages back.
    pub(crate) is_rolled_back: bool,
}

/// One send, from its first time on.
pub(crate) struct Sent {
    pub(crate) serial: Serial,
    pub(crate) request_id: RequestId,
    pub(crate) script: String,
    pub(crate) says: &'static str,
    pub(crate) open: Vec<JoinHandle<Result<TurnEnd, Fault>>>,
    pub(crate) answers: Vec<Result<TurnEnd, Fault>>,
    /// Somebody was told that it is kept.
    pub(crate) is_acknowledged: bool,
    pub(crate) cancel_wanted: bool,
    /// Somebody was told that it is cancelled.
    pub(crate) is_cancelled: bool,
    pub(crate) is_steered: bool,
}

fn some_limits(dice: &mut Dice) -> Limits {
    Limits {
        turns_running_max: dice.between(1, 4),
        live_agents_max: *dice.pick(&[2, 4, 100]),
        idle_before_sleep: Duration::from_secs(*dice.pick(&[1, 30, 100_000])),
        model_idle_timeout: Duration::from_secs(1_000_000),
        ..Limits::default()
    }
}

impl Lives {
    async fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let limits = some_limits(&mut dice);
        let world = World::open(Plan::default().limits(limits)).await;
        world.store.set_commit_yields(*dice.pick(&[0, 1, 4]));
        let (agents, sent) = (Vec::new(), Vec::new());
        let mut lives = Self { dice, world: Some(world), agents, sent, log: Log::default(), written: 0 };
        for _ in 0..3 {
            lives.create().await;
        }
        lives
    }

    pub(crate) fn world(&self) -> &World {
        self.world.as_ref().expect("the daemon runs")
    }

    pub(crate) fn existing(&self) -> Vec<usize> {
        (0..self.agents.len()).filter(|place| !self.agents[*place].is_gone).collect()
    }

    pub(crate) fn place_of(&self, serial: Serial) -> Option<usize> {
        self.agents.iter().position(|known| known.refer.serial() == serial)
    }

    pub(crate) fn some_agent(&mut self) -> Option<usize> {
        let existing = self.existing();
        (!existing.is_empty()).then(|| *self.dice.pick(&existing))
    }

    /// The agent, if the daemon lets it live now.
    pub(crate) async fn handle(&self, place: usize) -> Option<AgentHandle> {
        match self.world().pool.wake(&self.agents[place].refer).await {
            Ok(handle) => Some(handle),
            Err(fault) => {
                assert!(crate::world::is_busy(&fault), "{fault:?}");
                None
            }
        }
    }

    /// Takes the answers that are there.
    pub(crate) async fn collect(&mut self) {
        for place in 0..self.sent.len() {
            let (done, open) = self.sent[place].open.drain(..).partition(JoinHandle::is_finished);
            let (done, open): (Vec<_>, Vec<_>) = (done, open);
            self.sent[place].open = open;
            for answer in done {
                let answer = answer.await.expect("a send does not panic");
                self.log.note(format!("answered {}: {answer:?}", self.sent[place].script));
                self.judge(place, &answer);
                self.sent[place].answers.push(answer);
            }
        }
    }

    /// Lets everything end by itself.
    async fn come_to_rest(&mut self) {
        self.log.note("come to rest".to_owned());
        self.world().store.clear_faults();
        for _ in 0..2_000 {
            self.release_all();
            tokio::time::sleep(Duration::from_millis(500)).await;
            self.collect().await;
            let is_open = self.sent.iter().any(|sent| !sent.open.is_empty());
            let unsettled = self.world().store.memory().agents_with_open_turns().await.expect("memory can be read");
            if !is_open && self.world().pool.open_turns() == 0 && unsettled.is_empty() {
                return;
            }
        }
        let open: Vec<_> =
            self.sent.iter().filter(|sent| !sent.open.is_empty()).map(|sent| &sent.script).collect();
        panic!("{} turns never end, and nobody answers {open:?}", self.world().pool.open_turns());
    }

    async fn end(mut self) -> Vec<String> {
        self.kill().await;
        self.come_to_rest().await;
        self.check().await;
        let mut lines = std::mem::take(&mut self.log.lines);
        for place in self.existing() {
            let agent = self.handle(place).await.expect("nobody is at work");
            lines.extend(crate::history::texts(&agent));
        }
        self.world().pool.stop(Duration::ZERO).await;
        lines
    }
}
