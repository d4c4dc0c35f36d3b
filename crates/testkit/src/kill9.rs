//! Crash test: kills the daemon with SIGKILL at random times under load, restarts it, and compares its data with the
//! replies that clients got, the requests that the model got and the lines that tools wrote. It never trusts the
//! daemon's own checks.

mod call;
mod expectations;
mod journal;
mod listener;
mod load;
mod report;
mod verdict;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use call::{DaemonAddress, Reply};
use expectations::{AgentState, Expectations};
use listener::Listener;
use load::Client;
pub use report::Kill9Report;
use verdict::{Verdict, count_lines, fetch_messages, list_agents};

use crate::daemon::{StoppedDaemon, TestDaemon, TestDaemonBuilder};
use crate::model::{ModelOptions, ScriptedModel};
use crate::rng::TestRng;

/// Low limits, so that agents go to sleep and wake all the time.
const CONFIG: &str = "idle_sleep_s = 1\n[limits]\nlive_agents_max = 12\n[log]\nlevel = \"warn\"\n";

const CLIENTS: usize = 5;
/// Agents that all clients send to; new ones in each cycle.
const SHARED_AGENTS: usize = 2;
/// Duration of the load before a kill.
const LOAD_MS_RANGE: (usize, usize) = (20, 200);
/// Maximum delay before a starting daemon is killed.
const START_MS_MAX: usize = 120;
/// Share of starts that are killed.
const KILLED_STARTS_PERCENT: usize = 12;
/// Deadline for all turns to end after a start.
const RECOVERY_MAX: Duration = Duration::from_secs(5);
/// Deadline for a retried call.
const RETRY_TIME_MAX: Duration = Duration::from_secs(20);

/// Number of `interrupted` replies after which a send counts as given up.
const INTERRUPTIONS_MAX: usize = 3;

/// A crash test: cycles of load, kill, start and check.
#[derive(Debug, Clone)]
#[must_use = "nothing is killed before run"]
pub struct Kill9 {
    binary: PathBuf,
    cycles: u64,
    seed: u64,
    progress: bool,
}

impl Kill9 {
    /// Prepares a crash test of `BINARY serve`.
    pub fn new(binary: impl Into<PathBuf>) -> Self {
        Self { binary: binary.into(), cycles: 1, seed: 1, progress: false }
    }

    /// Sets the number of kills under load.
    pub fn cycles(self, cycles: u64) -> Self {
        Self { cycles, ..self }
    }

    /// Sets the seed of the random choices. The timing inside the daemon stays random.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Prints progress to stderr.
    pub fn progress(self) -> Self {
        Self { progress: true, ..self }
    }

    /// Runs all cycles, or until the first violation.
    #[must_use]
    pub fn run(self) -> Kill9Report {
        let started = Instant::now();
        let (mut soak, builder) = Soak::new(&self);
        let mut daemon = builder.start();
        soak.register_daemon(&daemon, Instant::now());
        let mut done = 0;
        while done < self.cycles && soak.is_clean() {
            let stopped = soak.load_and_kill(daemon);
            daemon = soak.restart(stopped);
            soak.retry_unanswered();
            soak.check();
            done += 1;
            soak.cycle += 1;
            if self.progress && done % 10 == 0 {
                eprintln!("{done} cycles, {} acknowledged sends", soak.expectations().counts.sends);
            }
        }
        soak.finish(daemon);
        soak.report(self.seed, done, started.elapsed())
    }
}

/// State of a running crash test.
struct Soak {
    rng: TestRng,
    cycle: u64,
    model: ScriptedModel,
    expectations: Mutex<Expectations>,
    listener: Listener,
    directory: TempDir,
    address: DaemonAddress,
    /// When the current daemon became ready.
    ready_at: Instant,
    killed_starts: u64,
    stuck_turns: u64,
    slowest_recovery: Duration,
    verdict: Verdict,
}

impl Soak {
    fn new(options: &Kill9) -> (Self, TestDaemonBuilder) {
        let model_options = ModelOptions { record_requests: false, ..ModelOptions::default() };
        let model = ScriptedModel::open(model_options).expect("the scripted model takes a free port");
        let builder = TestDaemon::builder(&options.binary).model(&model).config(CONFIG);
        let soak = Self {
            rng: TestRng::new(options.seed),
            cycle: 0,
            model,
            expectations: Mutex::default(),
            listener: Listener::start(),
            directory: TempDir::new().expect("a temporary directory can be created"),
            address: DaemonAddress::new(0, None),
            ready_at: Instant::now(),
            killed_starts: 0,
            stuck_turns: 0,
            slowest_recovery: Duration::ZERO,
            verdict: Verdict::default(),
        };
        (soak, builder)
    }

    fn expectations(&self) -> MutexGuard<'_, Expectations> {
        self.expectations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The working directory of the agents, with symbolic links resolved.
    fn directory(&self) -> String {
        let real = fs::canonicalize(self.directory.path()).expect("a directory has a real path");
        real.to_str().expect("a temporary path is UTF-8").to_owned()
    }

    fn is_clean(&self) -> bool {
        let journal_clean = self.listener.with_journal(|journal| journal.violations.is_empty());
        journal_clean
            && self.verdict.violations.is_empty()
            && self.expectations().violations.is_empty()
            && self.stuck_turns == 0
    }

    fn register_daemon(&mut self, daemon: &TestDaemon, ready_at: Instant) {
        self.address = DaemonAddress::new(daemon.port(), daemon.token());
        self.ready_at = ready_at;
        self.listener.connect_to(self.address.clone());
    }

    fn client<'a>(&'a self, index: usize, directory: &'a str, rng: TestRng) -> Client<'a> {
        Client {
            index,
            cycle: self.cycle,
            address: &self.address,
            expectations: &self.expectations,
            directory,
            rng,
        }
    }

    fn load_and_kill(&mut self, daemon: TestDaemon) -> StoppedDaemon {
        let load_ms = self.rng.between(LOAD_MS_RANGE.0, LOAD_MS_RANGE.1 - 1) as u64;
        let rngs: Vec<TestRng> = (0..CLIENTS).map(|_| self.rng.split()).collect();
        let (directory, stop) = (self.directory(), AtomicBool::new(false));
        let (ended, client_ended) = channel();
        let mut setup = self.client(CLIENTS, &directory, rngs[0].clone());
        for _ in 0..SHARED_AGENTS {
            setup.create(None);
        }
        thread::scope(|scope| {
            for (index, rng) in rngs.into_iter().enumerate() {
                let mut client = self.client(index, &directory, rng);
                let (ended, stop) = (ended.clone(), &stop);
                scope.spawn(move || {
                    client.run(stop);
                    // After the load time nothing receives it.
                    let _ = ended.send(());
                });
            }
            // A client that ends early has lost the daemon: kill it without waiting longer.
            let _ = client_ended.recv_timeout(Duration::from_millis(load_ms));
            let stopped = daemon.kill();
            stop.store(true, Ordering::Relaxed);
            stopped
        })
    }

    fn restart(&mut self, mut stopped: StoppedDaemon) -> TestDaemon {
        // At most one killed start: the daemon abandons a turn after three interruptions, as designed.
        if self.rng.percent(KILLED_STARTS_PERCENT) {
            let starting = stopped.spawn_with(|builder| builder);
            // Waits the whole time, because nothing is sent.
            let (_sender, receiver) = channel::<()>();
            let _ = receiver.recv_timeout(Duration::from_millis(self.rng.below(START_MS_MAX) as u64));
            stopped = starting.kill();
            self.killed_starts += 1;
        }
        let daemon = stopped.start();
        self.register_daemon(&daemon, Instant::now());
        daemon
    }

    /// Retries everything without a reply. Sometimes waits first until the daemon has resumed open turns by itself.
    fn retry_unanswered(&mut self) {
        if self.rng.percent(50) {
            self.wait_recovered();
            self.slowest_recovery = self.slowest_recovery.max(self.ready_at.elapsed());
        }
        self.retry_changes();
        self.retry_sends();
        self.wait_recovered();
    }

    /// Retries the creates, destroys and renames without a reply.
    fn retry_changes(&mut self) {
        let directory = self.directory();
        let rng = self.rng.split();
        let client = self.client(CLIENTS, &directory, rng);
        let agents = self.expectations().agents.len();
        for agent in 0..agents {
            let (state, name) = {
                let expectations = self.expectations();
                (expectations.agents[agent].state.clone(), expectations.agents[agent].name.clone())
            };
            match state {
                AgentState::Alive | AgentState::Destroyed => continue,
                AgentState::Creating => {
                    let reply = self.address.call("/", "create_agent", &client.create_params(agent));
                    self.expectations().record_create_reply(agent, &reply);
                }
                AgentState::Destroying => {
                    let reply = self.address.call("/", "destroy_agent", &json!({ "agent_id": name }));
                    self.expectations().record_destroy_reply(agent, &reply);
                }
                AgentState::Renaming(new) => {
                    let params = json!({ "agent_id": name, "new_agent_id": new });
                    let reply = self.address.call("/", "rename_agent", &params);
                    self.expectations().record_rename_reply(agent, &reply);
                }
            }
            self.expectations().counts.retries += 1;
        }
    }

    /// Retries the sends of each agent in their order, several agents in parallel.
    fn retry_sends(&self) {
        let sends_by_agent = self.expectations().pending_sends();
        let pending = Mutex::new(sends_by_agent.into_iter());
        thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    loop {
                        let next = pending.lock().unwrap_or_else(PoisonError::into_inner).next();
                        let Some(sends) = next else { return };
                        sends.into_iter().for_each(|index| self.retry_send(index));
                    }
                });
            }
        });
    }

    fn retry_send(&self, index: usize) {
        let (path, request_id, content) = {
            let expectations = self.expectations();
            let sent = &expectations.sends[index];
            (expectations.path(sent.agent), sent.request_id.clone(), sent.content.clone())
        };
        let params = json!({ "content": content, "request_id": request_id });
        let deadline = Instant::now() + RETRY_TIME_MAX;
        let mut interruptions = 0;
        loop {
            let reply = self.address.call(&path, "send", &params);
            let mut expectations = self.expectations();
            expectations.counts.retries += 1;
            expectations.record_send_reply(index, &reply);
            match reply {
                Reply::Error(error) if error.is_interrupted() => {
                    interruptions += 1;
                    if interruptions == INTERRUPTIONS_MAX {
                        return expectations.record_interrupted(index);
                    }
                }
                Reply::Error(error) if error.is_retryable() && Instant::now() < deadline => {}
                Reply::Lost => {
                    return expectations
                        .record_violation(format!("{request_id}: the daemon exited by itself"));
                }
                Reply::Error(_) | Reply::Result(_) => return,
            }
        }
    }

    /// Waits until all turns have ended. A temporary agent's event marks how far the events must have been read.
    fn wait_recovered(&mut self) {
        let marker = format!(".mark{}", self.expectations().next_number());
        let reply = self.address.call("/", "create_agent", &json!({ "agent_id": marker }));
        if !matches!(reply, Reply::Result(_)) {
            self.expectations().record_violation(format!("temporary agent rejected: {reply:?}"));
            return;
        }
        let deadline = self.ready_at.max(Instant::now() - RECOVERY_MAX / 2) + RECOVERY_MAX;
        let recovered = self.listener.wait(deadline, |journal| {
            journal.created_agents.contains(&marker) && journal.open_turns.is_empty()
        });
        if recovered {
            return;
        }
        let open_turns = self.listener.with_journal(|journal| {
            let lag = if journal.created_agents.contains(&marker) { "" } else { " (events lag behind)" };
            format!("{:?}{lag}", journal.open_turns)
        });
        self.stuck_turns += 1;
        self.verdict
            .violations
            .push(format!("turns open {:?} after the start: {open_turns}", self.ready_at.elapsed()));
    }

    /// Checks the agents that were used in this cycle.
    fn check(&mut self) {
        let cycle = self.cycle;
        self.check_agents(|used| used == cycle);
    }

    fn check_agents(&mut self, is_due: impl Fn(u64) -> bool) {
        let counted = count_lines(&self.directory());
        let mut verdict = std::mem::take(&mut self.verdict);
        let expectations = self.expectations();
        verdict.check_agent_list(&expectations, list_agents(&self.address).as_ref());
        verdict.check_lines(&counted);
        for (index, agent) in expectations.agents.iter().enumerate() {
            if agent.state == AgentState::Alive && is_due(agent.last_used_cycle) {
                let messages = fetch_messages(&self.address, &agent.name);
                verdict.check_history(&expectations, index, messages.as_deref(), &counted);
            }
        }
        drop(expectations);
        let ledger = self.model.ledger();
        verdict.violations.extend(self.listener.with_journal(|journal| journal.excess_calls(&ledger)));
        self.verdict = verdict;
    }

    fn finish(&mut self, daemon: TestDaemon) {
        // Violations found before would only be found again.
        if self.is_clean() {
            self.check_agents(|_| true);
        }
        let stopped = daemon.stop();
        if !stopped.status.success() {
            self.verdict
                .violations
                .push(format!("the daemon stopped with {}: {}", stopped.status, stopped.stderr));
        }
        for command in [&["check"][..], &["audit", "verify"]] {
            let finished = stopped.run(command);
            if finished.code != 0 {
                let output = format!("{}{}", finished.stdout, finished.stderr);
                self.verdict.violations.push(format!("nexus3 {} failed: {output}", command.join(" ")));
            }
        }
    }

    fn report(self, seed: u64, cycles: u64, elapsed: Duration) -> Kill9Report {
        let mut violations = self.verdict.violations.clone();
        violations.extend(self.expectations().violations.iter().cloned());
        let (events, responses, stages, transcript) = self.listener.with_journal(|journal| {
            violations.append(&mut journal.violations);
            // A violation about a send (`r1 to a2 …`) names its agent.
            let subject = violations.iter().find(|text| text.contains(" to ")).or(violations.first());
            let transcript = subject.map(|text| journal.transcript_for(text)).unwrap_or_default();
            (journal.last_sequence, journal.response_count(), journal.kills_by_stage.clone(), transcript)
        });
        let mut kills: Vec<(String, u64)> = vec![("during startup".to_owned(), self.killed_starts)];
        kills.extend(stages.into_iter().map(|(stage, count)| (stage.label().to_owned(), count as u64)));
        let counts = self.expectations().counts;
        let counts_listed = [
            ("acknowledged sends", counts.sends),
            ("acknowledged creates", counts.creates),
            ("acknowledged destroys", counts.destroys),
            ("acknowledged renames", counts.renames),
            ("acknowledged steers", counts.steers),
            ("retries after a lost reply", counts.retries),
            ("duplicates of acknowledged sends", counts.duplicate_checks),
            ("sends interrupted for good", counts.interrupted),
            ("model responses committed", responses),
            ("lines appended", count_lines(&self.directory()).len()),
        ];
        let mut counts_listed: Vec<(String, u64)> =
            counts_listed.into_iter().map(|(name, count)| (name.to_owned(), count as u64)).collect();
        counts_listed.push(("events, without gap or duplicate".to_owned(), events));
        let slowest = u64::try_from(self.slowest_recovery.as_millis()).unwrap_or(u64::MAX);
        counts_listed.push(("slowest recovery after a start, ms".to_owned(), slowest));
        Kill9Report {
            seed,
            cycles,
            elapsed,
            counts: counts_listed,
            kills,
            lost: self.verdict.lost as u64,
            duplicated: self.verdict.duplicated as u64,
            stuck_turns: self.stuck_turns,
            violations,
            transcript,
        }
    }
}
