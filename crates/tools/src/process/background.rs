//! One background process: a task drains its output into bounded buffers, carries out the order to stop, and records the
//! exit. The output that was not read yet is in the state, which readers wait on.

use std::sync::Arc;
use std::time::Duration;

use agent::journal::Serial;
use agent::permission::CommandEffect;
use sandbox::{CapturedOutput, CommandExit, CommandInput, OutputLimits, OutputStream};
use tokio::sync::watch;

use crate::commands::StartedCommand;

/// A command that runs in the background, or has ended. Ids are random, so that an id of an earlier daemon is not taken
/// for a process of this one.
pub(crate) struct BackgroundProcess {
    pub(crate) id: String,
    pub(crate) agent: Serial,
    pub(crate) line: CommandLine,
    state: watch::Sender<State>,
    order: watch::Sender<Order>,
}

/// What runs, and where.
#[derive(Debug, Clone)]
pub(crate) struct CommandLine {
    /// The command as it was judged.
    pub(crate) command: CommandEffect,
    /// Program and arguments, shortened, for lists.
    pub(crate) summary: String,
}

struct State {
    stdout: CapturedOutput,
    stderr: CapturedOutput,
    input: Input,
    exit: Option<CommandExit>,
}

enum Input {
    /// The command is being started.
    Pending,
    Open(Arc<CommandInput>),
    Closed,
}

/// What the process is to do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    Run,
    /// End by SIGTERM; killed after [`STOP_GRACE`].
    Terminate,
    Kill,
}

/// What a process has done since the last look at it.
pub(crate) struct Progress {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// None while it runs.
    pub(crate) exit: Option<CommandExit>,
}

/// What a reader waits for. The end of the process is always enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    Output,
    Exit,
}

/// Unread output of one stream beyond this is omitted in its middle.
const OUTPUT_LIMITS: OutputLimits = OutputLimits { head_bytes_max: 64 << 10, tail_bytes_max: 64 << 10 };

/// Time between SIGTERM and SIGKILL.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// Output that follows the awaited output within this time is returned with it.
const SETTLE_TIME: Duration = Duration::from_millis(100);

/// How long a write waits for a process that does not read its input.
pub(crate) const WRITE_TIME_MAX: Duration = Duration::from_secs(5);

impl BackgroundProcess {
    /// A process that is being started.
    pub(crate) fn new(id: String, agent: Serial, line: CommandLine) -> Self {
        let output = || CapturedOutput::new(OUTPUT_LIMITS);
        let state = State { stdout: output(), stderr: output(), input: Input::Pending, exit: None };
        Self { id, agent, line, state: watch::Sender::new(state), order: watch::Sender::new(Order::Run) }
    }

    /// Runs the started command to its end.
    pub(crate) async fn run(&self, mut command: StartedCommand) {
        let input = command.running.take_input().ok().flatten();
        let input = input.map_or(Input::Closed, |input| Input::Open(Arc::new(input)));
        self.state.send_modify(|state| state.input = input);
        let mut order = self.order.subscribe();
        tokio::select! {
            () = self.drain(&mut command) => {}
            _ = order.wait_for(|order| *order >= Order::Terminate) => command.running.terminate(),
        }
        tokio::select! {
            () = self.drain(&mut command) => {}
            _ = order.wait_for(|order| *order == Order::Kill) => {}
            () = tokio::time::sleep(STOP_GRACE) => {}
        }
        command.running.kill();
        self.drain(&mut command).await;
        let exit = command.running.exit().cloned().unwrap_or(CommandExit::HelperLost);
        // Removes the temporary directory. An error means that the runtime is stopping.
        let _ = tokio::task::spawn_blocking(move || drop(command)).await;
        self.finish(exit);
    }

    /// Reads output until the command has ended, whether or not anyone reads it here: a full pipe would block the
    /// command.
    async fn drain(&self, command: &mut StartedCommand) {
        while let Some((stream, bytes)) = command.running.next_output().await {
            self.push_output(stream, &bytes);
        }
    }

    pub(super) fn push_output(&self, stream: OutputStream, bytes: &[u8]) {
        self.state.send_modify(|state| match stream {
            OutputStream::Stdout => state.stdout.push(bytes),
            OutputStream::Stderr => state.stderr.push(bytes),
        });
    }

    pub(super) fn finish(&self, exit: CommandExit) {
        self.state.send_modify(|state| {
            state.input = Input::Closed;
            state.exit = Some(exit);
        });
    }

    /// Orders the process to end: SIGTERM first, SIGKILL if that does not help.
    pub(crate) fn terminate(&self) {
        self.raise_order(Order::Terminate);
    }

    /// Orders the process to be killed.
    pub(crate) fn kill(&self) {
        self.raise_order(Order::Kill);
    }

    fn raise_order(&self, order: Order) {
        self.order.send_modify(|current| *current = order.max(*current));
    }

    /// Whether the process runs or is being started.
    pub(crate) fn is_running(&self) -> bool {
        self.state.borrow().exit.is_none()
    }

    /// How the process ended; none while it runs.
    pub(crate) fn exit(&self) -> Option<CommandExit> {
        self.state.borrow().exit.clone()
    }

    /// The number of bytes that were written and not read yet.
    pub(crate) fn unread_bytes(&self) -> u64 {
        let state = self.state.borrow();
        state.stdout.bytes_total() + state.stderr.bytes_total()
    }

    /// Waits for unread output or the end of the process, at most for this time.
    pub(crate) async fn wait(&self, awaited: Awaited, time_max: Duration) {
        let mut state = self.state.subscribe();
        let is_there = |state: &State| match awaited {
            Awaited::Output => state.exit.is_some() || state.has_unread(),
            Awaited::Exit => state.exit.is_some(),
        };
        if is_there(&state.borrow())
            || tokio::time::timeout(time_max, state.wait_for(is_there)).await.is_err()
        {
            return;
        }
        let _ = tokio::time::timeout(SETTLE_TIME, state.wait_for(|state| state.exit.is_some())).await;
    }

    /// Takes the output that was not read yet. Nothing is awaited between this and the result of the call: a cancelled
    /// call takes nothing.
    pub(crate) fn take_progress(&self) -> Progress {
        let mut progress = Progress { stdout: String::new(), stderr: String::new(), exit: None };
        self.state.send_if_modified(|state| {
            progress.exit.clone_from(&state.exit);
            let is_ended = state.exit.is_some();
            let take = |output: &mut CapturedOutput| match is_ended {
                // Nothing follows that could complete its last character.
                true => std::mem::replace(output, CapturedOutput::new(OUTPUT_LIMITS)).text(),
                false => output.take_text(),
            };
            progress.stdout = take(&mut state.stdout);
            progress.stderr = take(&mut state.stderr);
            false
        });
        progress
    }

    /// Writes text to the standard input. The error is a reason for the model.
    pub(crate) async fn write(&self, text: &str) -> Result<(), String> {
        let mut state = self.state.subscribe();
        let _ = state.wait_for(|state| !matches!(state.input, Input::Pending)).await;
        let input = match &state.borrow().input {
            Input::Open(input) => Arc::clone(input),
            Input::Pending | Input::Closed => return Err(self.describe_closed()),
        };
        let mut written = 0;
        let write = async {
            while written < text.len() {
                written += input.write(&text.as_bytes()[written..]).await?;
            }
            std::io::Result::Ok(())
        };
        match tokio::time::timeout(WRITE_TIME_MAX, write).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(self.describe_closed()),
            Err(_) => Err(format!(
                "process {} took {written} of {} bytes in {} s: it does not read its input; write the rest later",
                self.id,
                text.len(),
                WRITE_TIME_MAX.as_secs()
            )),
        }
    }

    fn describe_closed(&self) -> String {
        let why = if self.is_running() { "its input is closed" } else { "it has ended" };
        format!("cannot write to process {}: {why}", self.id)
    }

    /// Closes the standard input: end of file for the process.
    pub(crate) fn close_input(&self) {
        self.state.send_modify(|state| state.input = Input::Closed);
    }
}

impl State {
    fn has_unread(&self) -> bool {
        self.stdout.bytes_total() + self.stderr.bytes_total() > 0
    }
}
