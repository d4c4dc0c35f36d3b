//! Ends the daemon by SIGKILL at random moments under load, again and again, and holds what it kept against what its
//! clients were told, what its model was asked and what its tools wrote. Nothing here asks the daemon to judge itself.

mod call;
mod expectations;
mod journal;
mod listener;
mod load;
mod report;
mod rng;
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
use rng::TestRng;
use verdict::{Verdict, count_lines, fetch_messages, list_agents};

use crate::daemon::{StoppedDaemon, TestDaemon, TestDaemonBuilder};
use crate::model::{ModelOptions, ScriptedModel};

/// Small, so that agents are put to sleep and woken all the time.
const CONFIG: &str = "idle_sleep_s = 1\n[limits]\nlive_agents_max = 12\n[log]\nlevel = \"warn\"\n";

const CLIENTS: usize = 5;
/// Agents that all clients send to, new ones in each cycle.
const SHARED_AGENTS: usize = 2;
/// Load before a kill.
const LOAD_MS_RANGE: (u64, u64) = (20, 200);
/// How long a start may take before it is killed.
const START_MS_MAX: u64 = 120;
/// Starts that are killed, out of a hundred.
const KILLED_STARTS_PERCENT: u64 = 12;
/// When everything has to be settled after a start.
const RECOVERY_MAX: Duration = Duration::from_secs(5);
/// How long a call that is made again may take.
const RETRY_TIME_MAX: Duration = Duration::from_secs(20);

/// How often a send has to be told that it was interrupted to believe that it does not go on.
const INTERRUPTIONS_MAX: usize = 3;

/// Cycles of load, kill, start and check.
#[derive(Debug, Clone)]
#[must_use = "nothing is killed before run"]
pub struct Kill9 {
    binary: PathBuf,
    cycles: u64,
    seed: u64,
    progress: bool,
}

impl Kill9 {
    /// Prepares a soak of `BINARY serve`.
    pub fn new(binary: impl Into<PathBuf>) -> Self {
        Self { binary: binary.into(), cycles: 1, seed: 1, progress: false }
    }

    /// How often the daemon is killed under load.
    pub fn cycles(self, cycles: u64) -> Self {
        Self { cycles, ..self }
    }

    /// What the choices follow from. Moments within the daemon are not among them.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Tells on stderr how far it is.
    pub fn progress(self) -> Self {
        Self { progress: true, ..self }
    }

    /// Runs all cycles, or as many as it takes to find something wrong.
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

struct Soak {
    rng: TestRng,
    cycle: u64,
    model: ScriptedModel,
    expectations: Mutex<Expectations>,
    listener: Listener,
    folder: TempDir,
    address: DaemonAddress,
    /// When the daemon was ready.
    ready_at: Instant,
    killed_starts: u64,
    stuck_turns: u64,
    slowest_recovery: Duration,
    verdict: Verdict,
}

impl Soak {
    fn new(options: &Kill9) -> (Self, TestDaemonBuilder) {
        let options_of_model = ModelOptions { record_requests: false, ..ModelOptions::default() };
        let model = ScriptedModel::open(options_of_model).expect("the scripted model takes a free port");
        let builder = TestDaemon::builder(&options.binary).model(&model).config(CONFIG);
        let soak = Self {
            rng: TestRng::new(options.seed),
            cycle: 0,
            model,
            expectations: Mutex::default(),
            listener: Listener::start(),
            folder: TempDir::new().expect("a temporary directory can be made"),
            address: DaemonAddress { port: 0, token: String::new() },
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

    fn folder(&self) -> String {
        let real = fs::canonicalize(self.folder.path()).expect("a directory has a real path");
        real.to_str().expect("a temporary path is UTF-8").to_owned()
    }

    fn is_clean(&self) -> bool {
        let heard = self.listener.with_journal(|journal| journal.violations.is_empty());
        heard
            && self.verdict.violations.is_empty()
            && self.expectations().violations.is_empty()
            && self.stuck_turns == 0
    }

    fn register_daemon(&mut self, daemon: &TestDaemon, ready_at: Instant) {
        let token = daemon.token().expect("a daemon writes a token").to_owned();
        self.address = DaemonAddress { port: daemon.port(), token };
        self.ready_at = ready_at;
        self.listener.connect_to(self.address.clone());
    }

    fn client<'a>(&'a self, place: usize, folder: &'a str, dice: TestRng) -> Client<'a> {
        Client {
            index: place,
            cycle: self.cycle,
            address: &self.address,
            expectations: &self.expectations,
            folder,
            rng: dice,
        }
    }

    fn load_and_kill(&mut self, daemon: TestDaemon) -> StoppedDaemon {
        let moment = LOAD_MS_RANGE.0 + self.rng.below(LOAD_MS_RANGE.1 - LOAD_MS_RANGE.0);
        let dice: Vec<TestRng> = (0..CLIENTS).map(|_| self.rng.split()).collect();
        let (folder, stop) = (self.folder(), AtomicBool::new(false));
        let (gone, is_gone) = channel();
        let mut common = self.client(CLIENTS, &folder, dice[0].clone());
        for _ in 0..SHARED_AGENTS {
            common.create(None);
        }
        thread::scope(|scope| {
            for (place, dice) in dice.into_iter().enumerate() {
                let mut client = self.client(place, &folder, dice);
                let (gone, stop) = (gone.clone(), &stop);
                scope.spawn(move || {
                    client.run(stop);
                    // Nobody listens when the moment came first.
                    let _ = gone.send(());
                });
            }
            // A client that ends before the moment has lost the daemon: then there is nothing to wait for.
            let _ = is_gone.recv_timeout(Duration::from_millis(moment));
            let stopped = daemon.kill();
            stop.store(true, Ordering::Relaxed);
            stopped
        })
    }

    fn restart(&mut self, mut stopped: StoppedDaemon) -> TestDaemon {
        // One at the most: a turn that is cut off three times is not tried again, and that is as it should be.
        if self.rng.percent(KILLED_STARTS_PERCENT) {
            let starting = stopped.spawn_with(|builder| builder);
            let (_keep, never) = channel::<()>();
            let _ = never.recv_timeout(Duration::from_millis(self.rng.below(START_MS_MAX)));
            stopped = starting.kill();
            self.killed_starts += 1;
        }
        let daemon = stopped.start();
        self.register_daemon(&daemon, Instant::now());
        daemon
    }

    /// Everything that nobody has an answer to is asked again. Sometimes turns are left to settle by themselves first.
    fn retry_unanswered(&mut self) {
        if self.rng.percent(50) {
            self.wait_recovered();
            self.slowest_recovery = self.slowest_recovery.max(self.ready_at.elapsed());
        }
        self.retry_changes();
        self.retry_sends();
        self.wait_recovered();
    }

    fn retry_changes(&mut self) {
        let folder = self.folder();
        let dice = self.rng.split();
        let client = self.client(CLIENTS, &folder, dice);
        let agents = self.expectations().agents.len();
        for agent in 0..agents {
            let (life, name) = {
                let book = self.expectations();
                (book.agents[agent].state.clone(), book.agents[agent].name.clone())
            };
            match life {
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

    /// Agent by agent in the order they were sent, and several agents at once.
    fn retry_sends(&self) {
        let by_agent = self.expectations().pending_sends();
        let places = Mutex::new(by_agent.into_iter());
        thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    loop {
                        let next = places.lock().unwrap_or_else(PoisonError::into_inner).next();
                        let Some(sends) = next else { return };
                        sends.into_iter().for_each(|place| self.retry_send(place));
                    }
                });
            }
        });
    }

    fn retry_send(&self, place: usize) {
        let (path, request_id, content) = {
            let book = self.expectations();
            let sent = &book.sends[place];
            (book.path(sent.agent), sent.request_id.clone(), sent.content.clone())
        };
        let params = json!({ "content": content, "request_id": request_id });
        let until = Instant::now() + RETRY_TIME_MAX;
        let mut interruptions = 0;
        loop {
            let reply = self.address.call(&path, "send", &params);
            let mut book = self.expectations();
            book.counts.retries += 1;
            book.record_send_reply(place, &reply);
            match reply {
                Reply::Error(refusal) if refusal.is_interrupted() => {
                    interruptions += 1;
                    if interruptions == INTERRUPTIONS_MAX {
                        return book.mark_interrupted(place);
                    }
                }
                Reply::Error(refusal) if refusal.is_retryable() && Instant::now() < until => {}
                Reply::Lost => {
                    return book.record_violation(format!("{request_id}: the daemon went away by itself"));
                }
                Reply::Error(_) | Reply::Result(_) => return,
            }
        }
    }

    /// All turns are over soon after a start. A temporary agent marks how far the events have to be read for that.
    fn wait_recovered(&mut self) {
        let mark = format!(".mark{}", self.expectations().next_number());
        let reply = self.address.call("/", "create_agent", &json!({ "agent_id": mark }));
        if !matches!(reply, Reply::Result(_)) {
            self.expectations().record_violation(format!("a temporary agent was refused: {reply:?}"));
            return;
        }
        let until = self.ready_at.max(Instant::now() - RECOVERY_MAX / 2) + RECOVERY_MAX;
        let settled = self
            .listener
            .wait(until, |journal| journal.created_agents.contains(&mark) && journal.open_turns.is_empty());
        if settled {
            return;
        }
        let open = self.listener.with_journal(|journal| {
            let heard = if journal.created_agents.contains(&mark) { "" } else { " (the events are late)" };
            format!("{:?}{heard}", journal.open_turns)
        });
        self.stuck_turns += 1;
        self.verdict.violations.push(format!("open {:?} after the start: {open}", self.ready_at.elapsed()));
    }

    /// Agents that were used in this cycle; all of them at the end.
    fn check(&mut self) {
        let cycle = self.cycle;
        self.check_agents(|used| used == cycle);
    }

    fn check_agents(&mut self, is_due: impl Fn(u64) -> bool) {
        let counted = count_lines(&self.folder());
        let mut verdict = std::mem::take(&mut self.verdict);
        let book = self.expectations();
        verdict.check_agent_list(&book, list_agents(&self.address).as_ref());
        verdict.check_lines(&counted);
        for (place, agent) in book.agents.iter().enumerate() {
            if agent.state == AgentState::Alive && is_due(agent.last_used_cycle) {
                let messages = fetch_messages(&self.address, &agent.name);
                verdict.check_history(&book, place, messages.as_deref(), &counted);
            }
        }
        drop(book);
        let ledger = self.model.ledger();
        verdict.violations.extend(self.listener.with_journal(|journal| journal.excess_calls(&ledger)));
        self.verdict = verdict;
    }

    fn finish(&mut self, daemon: TestDaemon) {
        // What was found wrong already would be found again.
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
                let said = format!("{}{}", finished.stdout, finished.stderr);
                self.verdict.violations.push(format!("nexus3 {} found: {said}", command.join(" ")));
            }
        }
    }

    fn report(self, seed: u64, cycles: u64, took: Duration) -> Kill9Report {
        let mut violations = self.verdict.violations.clone();
        violations.extend(self.expectations().violations.iter().cloned());
        let (events, answers, stages, story) = self.listener.with_journal(|journal| {
            violations.append(&mut journal.violations);
            let named = violations.iter().find(|text| text.contains(" to ")).or(violations.first());
            let story = named.map(|text| journal.transcript_for(text)).unwrap_or_default();
            (journal.last_sequence, journal.response_count(), journal.kills_by_stage.clone(), story)
        });
        let mut kills: Vec<(String, u64)> = vec![("the start".to_owned(), self.killed_starts)];
        kills.extend(stages.into_iter().map(|(stage, count)| (stage.label().to_owned(), count as u64)));
        let counts = self.expectations().counts;
        let listed = [
            ("acknowledged sends", counts.sends),
            ("acknowledged creates", counts.creates),
            ("acknowledged destroys", counts.destroys),
            ("acknowledged renames", counts.renames),
            ("acknowledged steers", counts.steers),
            ("repeats of what nobody knew", counts.retries),
            ("repeats of what was answered", counts.duplicate_checks),
            ("sends interrupted for good", counts.interrupted),
            ("answers of the model kept", answers),
            ("lines appended", count_lines(&self.folder()).len()),
        ];
        let mut listed: Vec<(String, u64)> =
            listed.into_iter().map(|(name, count)| (name.to_owned(), count as u64)).collect();
        listed.push(("events, without hole or repeat".to_owned(), events));
        let slowest = u64::try_from(self.slowest_recovery.as_millis()).unwrap_or(u64::MAX);
        listed.push(("slowest settled after a start, ms".to_owned(), slowest));
        Kill9Report {
            seed,
            cycles,
            elapsed: took,
            counts: listed,
            kills,
            lost: self.verdict.lost as u64,
            duplicated: self.verdict.duplicated as u64,
            stuck_turns: self.stuck_turns,
            violations,
            transcript: story,
        }
    }
}
