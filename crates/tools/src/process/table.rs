//! The table of background processes: bounded, keyed by agent. It outlives turns and the sleep of agents, not the daemon.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::journal::Serial;
use agent::outside::Entropy;
use agent::{Fault, ToolOutcome};
use tokio_util::task::TaskTracker;

use super::background::{BackgroundProcess, CommandLine};
use crate::commands::StartedCommand;
use crate::definition::execution_failed;

/// Running processes of one agent, and of all.
pub(crate) const RUNNING_PER_AGENT_MAX: usize = 8;
pub(crate) const RUNNING_MAX: usize = 64;

/// Ended processes of one agent whose output can still be read, and of all; the oldest are forgotten.
const ENDED_PER_AGENT_MAX: usize = 8;
const ENDED_MAX: usize = 64;

/// The background processes of all agents.
#[derive(Default)]
pub(crate) struct ProcessTable {
    state: Mutex<TableState>,
    /// One task per running process.
    tasks: TaskTracker,
}

#[derive(Default)]
struct TableState {
    /// Oldest first.
    processes: VecDeque<Arc<BackgroundProcess>>,
    /// Whether the daemon stops.
    is_closed: bool,
}

/// The entry of a process that is being started. Dropping it before it runs removes the entry.
pub(crate) struct Reservation {
    table: Arc<ProcessTable>,
    process: Arc<BackgroundProcess>,
    is_started: bool,
}

impl ProcessTable {
    fn state(&self) -> MutexGuard<'_, TableState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves the entry of a process, before it is started.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        agent: Serial,
        line: CommandLine,
        entropy: &dyn Entropy,
    ) -> Result<Reservation, ToolOutcome> {
        let mut state = self.state();
        state.check_room(agent)?;
        let id = state.unused_id(entropy).map_err(|fault| execution_failed(fault.public))?;
        let process = Arc::new(BackgroundProcess::new(id, agent, line));
        state.processes.push_back(Arc::clone(&process));
        state.forget_ended(agent);
        drop(state);
        Ok(Reservation { table: Arc::clone(self), process, is_started: false })
    }

    /// Finds a process of an agent.
    pub(crate) fn find(&self, agent: Serial, id: &str) -> Option<Arc<BackgroundProcess>> {
        let state = self.state();
        state.processes.iter().find(|process| process.agent == agent && process.id == id).cloned()
    }

    /// Finds a process of an agent, or returns the outcome for the model.
    pub(crate) fn require(&self, agent: Serial, id: &str) -> Result<Arc<BackgroundProcess>, ToolOutcome> {
        self.find(agent, id).ok_or_else(|| {
            let id: String = id.chars().take(64).collect();
            execution_failed(format!(
                "no process {id}; background processes end when the daemon stops; process.list shows those that exist"
            ))
        })
    }

    /// The processes of an agent, oldest first.
    pub(crate) fn processes_of(&self, agent: Serial) -> Vec<Arc<BackgroundProcess>> {
        self.state().processes.iter().filter(|process| process.agent == agent).cloned().collect()
    }

    /// Kills the processes of an agent that was destroyed, and forgets them.
    pub(crate) fn remove_agent(&self, agent: Serial) {
        self.remove(|process| process.agent == agent);
    }

    /// Kills all processes, waits for their end, and returns their number. None can be started any more.
    pub(crate) async fn close(&self) -> usize {
        self.state().is_closed = true;
        self.remove(|_| true);
        self.tasks.close();
        let running = self.tasks.len();
        self.tasks.wait().await;
        running
    }

    fn remove(&self, is_removed: impl Fn(&BackgroundProcess) -> bool) {
        self.state().processes.retain(|process| {
            let is_removed = is_removed(process);
            if is_removed {
                process.kill();
            }
            !is_removed
        });
    }
}

impl TableState {
    fn running(&self) -> impl Iterator<Item = &Arc<BackgroundProcess>> {
        self.processes.iter().filter(|process| process.is_running())
    }

    fn check_room(&self, agent: Serial) -> Result<(), ToolOutcome> {
        if self.is_closed {
            return Err(ToolOutcome::Failed("Server shutting down".to_owned()));
        }
        let own = self.running().filter(|process| process.agent == agent).count();
        if own >= RUNNING_PER_AGENT_MAX {
            return Err(execution_failed(format!(
                "{own} background processes are running, which is the limit; stop one with process.stop"
            )));
        }
        if self.running().count() >= RUNNING_MAX {
            return Err(execution_failed(format!(
                "all agents together run {RUNNING_MAX} background processes, which is the limit; try again later"
            )));
        }
        Ok(())
    }

    fn unused_id(&self, entropy: &dyn Entropy) -> Result<String, Fault> {
        loop {
            let mut bytes = [0; 3];
            entropy.fill(&mut bytes)?;
            let [a, b, c] = bytes;
            // The letter: a model would write digits alone as a number.
            let id = format!("p{a:02x}{b:02x}{c:02x}");
            if self.processes.iter().all(|process| process.id != id) {
                return Ok(id);
            }
        }
    }

    /// Forgets the oldest ended processes beyond the limits.
    fn forget_ended(&mut self, agent: Serial) {
        self.keep_ended(ENDED_PER_AGENT_MAX, |process| process.agent == agent);
        self.keep_ended(ENDED_MAX, |_| true);
    }

    fn keep_ended(&mut self, count_max: usize, is_counted: impl Fn(&BackgroundProcess) -> bool) {
        let is_ended = |process: &Arc<BackgroundProcess>| !process.is_running() && is_counted(process);
        let mut excess =
            self.processes.iter().filter(|process| is_ended(process)).count().saturating_sub(count_max);
        self.processes.retain(|process| {
            let is_forgotten = excess > 0 && is_ended(process);
            excess -= usize::from(is_forgotten);
            !is_forgotten
        });
    }
}

impl Reservation {
    /// Runs the started command in the background; returns its id.
    pub(crate) fn start(mut self, command: StartedCommand) -> String {
        self.is_started = true;
        let process = Arc::clone(&self.process);
        self.table.tasks.spawn(async move { process.run(command).await });
        self.process.id.clone()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.is_started {
            self.table.remove(|process| process.id == self.process.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use agent::permission::{CommandEffect, FilePath};
    use sandbox::{CommandExit, OutputStream};
    use testkit::CountingEntropy;

    use super::super::background::Awaited;
    use super::*;

    const AGENT: Serial = 1;
    const OTHER: Serial = 2;

    struct Fixture {
        table: Arc<ProcessTable>,
        entropy: CountingEntropy,
    }

    impl Fixture {
        fn new() -> Self {
            Self { table: Arc::default(), entropy: CountingEntropy::default() }
        }

        fn reserve(&self, agent: Serial) -> Result<Reservation, ToolOutcome> {
            let line = CommandLine {
                command: CommandEffect::sandboxed("cat", [], FilePath::root()),
                summary: "cat".to_owned(),
            };
            self.table.reserve(agent, line, &self.entropy)
        }

        /// Adds a process that the test drives.
        fn add(&self, agent: Serial) -> Arc<BackgroundProcess> {
            let mut reservation = self.reserve(agent).unwrap();
            reservation.is_started = true;
            Arc::clone(&reservation.process)
        }
    }

    #[test]
    fn agent_reaches_its_own_processes_only() {
        let fixture = Fixture::new();
        let process = fixture.add(AGENT);
        assert!(fixture.table.require(AGENT, &process.id).is_ok());
        let fault = fixture.table.require(OTHER, &process.id).err().unwrap();
        assert_eq!(
            fault.text(),
            format!(
                "Execution failed: no process {}; background processes end when the daemon stops; process.list \
                 shows those that exist",
                process.id
            )
        );
        assert!(fixture.table.processes_of(OTHER).is_empty());
    }

    #[test]
    fn running_processes_are_limited_per_agent_and_in_total() {
        let fixture = Fixture::new();
        let mut processes = Vec::new();
        for agent in 0..(RUNNING_MAX / RUNNING_PER_AGENT_MAX) as Serial {
            processes.extend((0..RUNNING_PER_AGENT_MAX).map(|_| fixture.add(agent)));
            let refused = fixture.reserve(agent).err().unwrap();
            assert!(refused.text().contains("8 background processes are running"), "{}", refused.text());
        }
        let refused = fixture.reserve(1000).err().unwrap();
        assert!(refused.text().contains("all agents together run 64"), "{}", refused.text());
        processes[0].finish(CommandExit::Exited(0));
        fixture.add(0);
    }

    #[test]
    fn oldest_ended_processes_are_forgotten() {
        let fixture = Fixture::new();
        let running = fixture.add(AGENT);
        let ended: Vec<_> = (0..=ENDED_PER_AGENT_MAX).map(|_| fixture.add_ended(AGENT)).collect();
        let last = fixture.add(AGENT);
        assert!(fixture.table.find(AGENT, &ended[0].id).is_none());
        for process in [&running, &ended[1], &last] {
            assert!(fixture.table.find(AGENT, &process.id).is_some());
        }
        for agent in 10..30 {
            (0..ENDED_PER_AGENT_MAX).for_each(|_| drop(fixture.add_ended(agent)));
        }
        let state = fixture.table.state();
        // The newest ended after the oldest were forgotten.
        assert_eq!(state.processes.iter().filter(|process| !process.is_running()).count(), ENDED_MAX + 1);
    }

    impl Fixture {
        fn add_ended(&self, agent: Serial) -> Arc<BackgroundProcess> {
            let process = self.add(agent);
            process.finish(CommandExit::Exited(0));
            process
        }
    }

    #[test]
    fn process_that_was_not_started_leaves_no_entry() {
        let fixture = Fixture::new();
        drop(fixture.reserve(AGENT).unwrap());
        assert!(fixture.table.processes_of(AGENT).is_empty());
    }

    #[tokio::test]
    async fn closed_table_is_empty_and_starts_nothing() {
        let fixture = Fixture::new();
        fixture.add(AGENT);
        fixture.table.close().await;
        assert!(fixture.table.processes_of(AGENT).is_empty());
        assert_eq!(fixture.reserve(AGENT).err().unwrap().text(), "Server shutting down");
    }

    #[test]
    fn unread_output_is_bounded_and_its_omission_counted() {
        let fixture = Fixture::new();
        let process = fixture.add(AGENT);
        for _ in 0..100 {
            process.push_output(OutputStream::Stdout, &[b'x'; 10_000]);
        }
        process.push_output(OutputStream::Stderr, b"warning");
        assert_eq!(process.unread_bytes(), 1_000_007);
        let progress = process.take_progress();
        assert!(progress.stdout.contains("[… 868928 bytes omitted …]") && progress.stdout.len() < 140_000);
        assert_eq!((progress.stderr.as_str(), progress.exit), ("warning", None));
        process.push_output(OutputStream::Stdout, b"new");
        let progress = process.take_progress();
        assert_eq!((progress.stdout.as_str(), progress.stderr.as_str()), ("new", ""));
    }

    #[tokio::test(start_paused = true)]
    async fn reader_waits_for_output_or_the_end_and_no_longer() {
        let fixture = Fixture::new();
        let process = fixture.add(AGENT);
        let seconds = Duration::from_secs;
        let start = tokio::time::Instant::now();
        process.wait(Awaited::Output, seconds(5)).await;
        assert_eq!(start.elapsed(), seconds(5));
        process.push_output(OutputStream::Stdout, b"x");
        process.wait(Awaited::Output, seconds(5)).await;
        assert_eq!(start.elapsed(), seconds(5), "unread output is returned at once");
        process.wait(Awaited::Exit, seconds(5)).await;
        assert_eq!(start.elapsed(), seconds(10), "output is not the end");
        process.finish(CommandExit::Exited(3));
        process.wait(Awaited::Exit, seconds(5)).await;
        assert_eq!(start.elapsed(), seconds(10));
        assert_eq!(process.take_progress().exit, Some(CommandExit::Exited(3)));
    }
}
