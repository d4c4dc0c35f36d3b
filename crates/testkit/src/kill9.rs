//! Ends the daemon by SIGKILL at random moments under load, again and again, and holds what it kept against what its
//! clients were told, what its model was asked and what its tools wrote. Nothing here asks the daemon to judge itself.

mod book;
mod call;
mod dice;
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

use book::{Book, Life};
use call::{Address, Reply};
use dice::Dice;
use listener::Listener;
use load::Client;
pub use report::Kill9Report;
use verdict::{Verdict, lines, messages, sessions};

use crate::daemon::{StoppedDaemon, TestDaemon, TestDaemonBuilder};
use crate::model::{ModelOptions, ScriptedModel};

/// Small, so that agents are put to sleep and woken all the time.
const CONFIG: &str = "idle_sleep_s = 1\n[limits]\nlive_agents_max = 12\n[log]\nlevel = \"warn\"\n";

const CLIENTS: usize = 5;
/// Agents that all clients send to, new ones in each cycle.
const COMMON_AGENTS: usize = 2;
/// Load before a kill.
const LOAD_MS: (u64, u64) = (20, 200);
/// How long a start may take before it is killed.
const START_MS_MAX: u64 = 120;
/// Starts that are killed, out of a hundred.
const KILLED_STARTS: u64 = 12;
/// When everything has to be settled after a start.
const SETTLED_MAX: Duration = Duration::from_secs(5);
/// How long a call that is made again may take.
const REPEAT_MAX: Duration = Duration::from_secs(20);

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
        soak.greet(&daemon, Instant::now());
        let mut done = 0;
        while done < self.cycles && soak.is_clean() {
            let stopped = soak.load_and_kill(daemon);
            daemon = soak.start_again(stopped);
            soak.settle();
            soak.check();
            done += 1;
            soak.cycle += 1;
            if self.progress && done % 10 == 0 {
                eprintln!("{done} cycles, {} acknowledged sends", soak.book().counts.sends);
            }
        }
        soak.finish(daemon);
        soak.report(self.seed, done, started.elapsed())
    }
}

struct Soak {
    dice: Dice,
    cycle: u64,
    model: ScriptedModel,
    book: Mutex<Book>,
    listener: Listener,
    folder: TempDir,
    address: Address,
    /// When the daemon was ready.
    ready_at: Instant,
    killed_starts: u64,
    unsettled: u64,
    slowest_settled: Duration,
    verdict: Verdict,
}

impl Soak {
    fn new(options: &Kill9) -> (Self, TestDaemonBuilder) {
        let options_of_model = ModelOptions { record_requests: false, ..ModelOptions::default() };
        let model = ScriptedModel::open(options_of_model).expect("the scripted model takes a free port");
        let builder = TestDaemon::builder(&options.binary).model(&model).config(CONFIG);
        let soak = Self {
            dice: Dice::new(options.seed),
            cycle: 0,
            model,
            book: Mutex::default(),
            listener: Listener::start(),
            folder: TempDir::new().expect("a temporary directory can be made"),
            address: Address { port: 0, token: String::new() },
            ready_at: Instant::now(),
            killed_starts: 0,
            unsettled: 0,
            slowest_settled: Duration::ZERO,
            verdict: Verdict::default(),
        };
        (soak, builder)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn folder(&self) -> String {
        let real = fs::canonicalize(self.folder.path()).expect("a directory has a real path");
        real.to_str().expect("a temporary path is UTF-8").to_owned()
    }

    fn is_clean(&self) -> bool {
        let heard = self.listener.look(|journal| journal.faults.is_empty());
        heard && self.verdict.faults.is_empty() && self.book().faults.is_empty() && self.unsettled == 0
    }

    fn greet(&mut self, daemon: &TestDaemon, ready_at: Instant) {
        let token = daemon.token().expect("a daemon writes a token").to_owned();
        self.address = Address { port: daemon.port(), token };
        self.ready_at = ready_at;
        self.listener.tell(self.address.clone());
    }

    fn client<'a>(&'a self, place: usize, folder: &'a str, dice: Dice) -> Client<'a> {
        Client { place, cycle: self.cycle, address: &self.address, book: &self.book, folder, dice }
    }

    fn load_and_kill(&mut self, daemon: TestDaemon) -> StoppedDaemon {
        let moment = LOAD_MS.0 + self.dice.roll(LOAD_MS.1 - LOAD_MS.0);
        let dice: Vec<Dice> = (0..CLIENTS).map(|_| self.dice.split()).collect();
        let (folder, stop) = (self.folder(), AtomicBool::new(false));
        let (gone, is_gone) = channel();
        let mut common = self.client(CLIENTS, &folder, dice[0].clone());
        for _ in 0..COMMON_AGENTS {
            common.create(None);
        }
        thread::scope(|scope| {
            for (place, dice) in dice.into_iter().enumerate() {
                let mut client = self.client(place, &folder, dice);
                let (gone, stop) = (gone.clone(), &stop);
                scope.spawn(move || {
                    client.work(stop);
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

    fn start_again(&mut self, mut stopped: StoppedDaemon) -> TestDaemon {
        // One at the most: a turn that is cut off three times is not tried again, and that is as it should be.
        if self.dice.percent(KILLED_STARTS) {
            let starting = stopped.spawn_with(|builder| builder);
            let (_keep, never) = channel::<()>();
            let _ = never.recv_timeout(Duration::from_millis(self.dice.roll(START_MS_MAX)));
            stopped = starting.kill();
            self.killed_starts += 1;
        }
        let daemon = stopped.start();
        self.greet(&daemon, Instant::now());
        daemon
    }

    /// Everything that nobody has an answer to is asked again. Sometimes turns are left to settle by themselves first.
    fn settle(&mut self) {
        if self.dice.percent(50) {
            self.wait_settled();
            self.slowest_settled = self.slowest_settled.max(self.ready_at.elapsed());
        }
        self.repeat_changes();
        self.repeat_sends();
        self.wait_settled();
    }

    fn repeat_changes(&mut self) {
        let folder = self.folder();
        let dice = self.dice.split();
        let client = self.client(CLIENTS, &folder, dice);
        let agents = self.book().agents.len();
        for agent in 0..agents {
            let (life, name) = {
                let book = self.book();
                (book.agents[agent].life.clone(), book.agents[agent].name.clone())
            };
            match life {
                Life::There | Life::Gone => continue,
                Life::Asked => {
                    let reply = self.address.call("/", "create_agent", &client.creation(agent));
                    self.book().take_create(agent, &reply);
                }
                Life::Leaving => {
                    let reply = self.address.call("/", "destroy_agent", &json!({ "agent_id": name }));
                    self.book().take_destroy(agent, &reply);
                }
                Life::Renaming(new) => {
                    let params = json!({ "agent_id": name, "new_agent_id": new });
                    let reply = self.address.call("/", "rename_agent", &params);
                    self.book().take_rename(agent, &reply);
                }
            }
            self.book().counts.repeats += 1;
        }
    }

    /// Agent by agent in the order they were sent, and several agents at once.
    fn repeat_sends(&self) {
        let by_agent = self.book().open_sends();
        let places = Mutex::new(by_agent.into_iter());
        thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    loop {
                        let next = places.lock().unwrap_or_else(PoisonError::into_inner).next();
                        let Some(sends) = next else { return };
                        sends.into_iter().for_each(|place| self.repeat_send(place));
                    }
                });
            }
        });
    }

    fn repeat_send(&self, place: usize) {
        let (path, request_id, content) = {
            let book = self.book();
            let sent = &book.sends[place];
            (book.path(sent.agent), sent.request_id.clone(), sent.content.clone())
        };
        let params = json!({ "content": content, "request_id": request_id });
        let until = Instant::now() + REPEAT_MAX;
        let mut interruptions = 0;
        loop {
            let reply = self.address.call(&path, "send", &params);
            let mut book = self.book();
            book.counts.repeats += 1;
            book.take_send(place, &reply);
            match reply {
                Reply::Error(refusal) if refusal.is_interrupted() => {
                    interruptions += 1;
                    if interruptions == INTERRUPTIONS_MAX {
                        return book.give_up(place);
                    }
                }
                Reply::Error(refusal) if refusal.is_for_now() && Instant::now() < until => {}
                Reply::Lost => return book.fault(format!("{request_id}: the daemon went away by itself")),
                Reply::Error(_) | Reply::Result(_) => return,
            }
        }
    }

    /// All turns are over soon after a start. A temporary agent marks how far the events have to be read for that.
    fn wait_settled(&mut self) {
        let mark = format!(".mark{}", self.book().number());
        let reply = self.address.call("/", "create_agent", &json!({ "agent_id": mark }));
        if !matches!(reply, Reply::Result(_)) {
            self.book().fault(format!("a temporary agent was refused: {reply:?}"));
            return;
        }
        let until = self.ready_at.max(Instant::now() - SETTLED_MAX / 2) + SETTLED_MAX;
        let settled =
            self.listener.wait(until, |journal| journal.made.contains(&mark) && journal.open.is_empty());
        if settled {
            return;
        }
        let open = self.listener.look(|journal| {
            let heard = if journal.made.contains(&mark) { "" } else { " (the events are late)" };
            format!("{:?}{heard}", journal.open)
        });
        self.unsettled += 1;
        self.verdict.faults.push(format!("open {:?} after the start: {open}", self.ready_at.elapsed()));
    }

    /// Agents that were used in this cycle; all of them at the end.
    fn check(&mut self) {
        let cycle = self.cycle;
        self.check_agents(|used| used == cycle);
    }

    fn check_agents(&mut self, is_due: impl Fn(u64) -> bool) {
        let counted = lines(&self.folder());
        let mut verdict = std::mem::take(&mut self.verdict);
        let book = self.book();
        verdict.check_list(&book, sessions(&self.address).as_ref());
        verdict.check_lines(&counted);
        for (place, agent) in book.agents.iter().enumerate() {
            if agent.life == Life::There && is_due(agent.used) {
                let messages = messages(&self.address, &agent.name);
                verdict.check_history(&book, place, messages.as_deref(), &counted);
            }
        }
        drop(book);
        let ledger = self.model.ledger();
        verdict.faults.extend(self.listener.look(|journal| journal.asked_again(&ledger)));
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
                .faults
                .push(format!("the daemon stopped with {}: {}", stopped.status, stopped.stderr));
        }
        for command in [&["check"][..], &["audit", "verify"]] {
            let finished = stopped.run(command);
            if finished.code != 0 {
                let said = format!("{}{}", finished.stdout, finished.stderr);
                self.verdict.faults.push(format!("nexus3 {} found: {said}", command.join(" ")));
            }
        }
    }

    fn report(self, seed: u64, cycles: u64, took: Duration) -> Kill9Report {
        let mut violations = self.verdict.faults.clone();
        violations.extend(self.book().faults.iter().cloned());
        let (events, answers, stages, story) = self.listener.look(|journal| {
            violations.append(&mut journal.faults);
            let named = violations.iter().find(|text| text.contains(" to ")).or(violations.first());
            let story = named.map(|text| journal.story_of(text)).unwrap_or_default();
            (journal.last, journal.answers(), journal.kills.clone(), story)
        });
        let mut kills: Vec<(String, u64)> = vec![("the start".to_owned(), self.killed_starts)];
        kills.extend(stages.into_iter().map(|(stage, count)| (stage.words().to_owned(), count as u64)));
        let counts = self.book().counts;
        let listed = [
            ("acknowledged sends", counts.sends),
            ("acknowledged creates", counts.creates),
            ("acknowledged destroys", counts.destroys),
            ("acknowledged renames", counts.renames),
            ("acknowledged steers", counts.words),
            ("repeats of what nobody knew", counts.repeats),
            ("repeats of what was answered", counts.probes),
            ("sends interrupted for good", counts.interrupted),
            ("answers of the model kept", answers),
            ("lines appended", lines(&self.folder()).len()),
        ];
        let mut listed: Vec<(String, u64)> =
            listed.into_iter().map(|(name, count)| (name.to_owned(), count as u64)).collect();
        listed.push(("events, without hole or repeat".to_owned(), events));
        let slowest = u64::try_from(self.slowest_settled.as_millis()).unwrap_or(u64::MAX);
        listed.push(("slowest settled after a start, ms".to_owned(), slowest));
        Kill9Report {
            seed,
            cycles,
            took,
            counts: listed,
            kills,
            lost: self.verdict.lost as u64,
            doubled: self.verdict.doubled as u64,
            unsettled: self.unsettled,
            violations,
            story,
        }
    }
}
