//! A running command, as the daemon sees it: its output, its exit, its end. Dropping it kills the command with all its
//! descendants.

use std::io::{self, PipeWriter};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::{Child, ChildStderr, ChildStdout};

use crate::control;
use crate::request::{Order, Report};

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandExit {
    /// It exited with this code.
    Exited(i32),
    /// A signal killed it.
    Killed(i32),
    /// The supervisor killed it because it exceeded a limit; the reason.
    Stopped(String),
    /// It was not started; the reason.
    NotStarted(String),
    /// The helper ended without a report, for example because the system ran out of memory.
    HelperLost,
}

/// A stream of a command's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A running command.
#[derive(Debug)]
pub struct RunningCommand {
    /// Closing it makes the helper kill the command.
    control: tokio::net::UnixStream,
    stdin: Option<PipeWriter>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    exit: Option<CommandExit>,
    /// Whether the daemon has killed it.
    is_killed: bool,
    frame: Vec<u8>,
}

/// The standard input of a running command. Dropping it is end of file for the command.
#[derive(Debug)]
pub struct CommandInput(pipe::Sender);

impl CommandInput {
    /// Writes the beginning of some bytes, as much as the pipe takes; waits while it is full. Cancel safe.
    ///
    /// # Errors
    /// When the command has ended.
    pub async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            self.0.writable().await?;
            match self.0.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return written,
            }
        }
    }
}

/// Output that was written before the exit is in the pipe; all writers are dead then, so that reading ends at once.
const DRAIN_TIME_MAX: Duration = Duration::from_millis(500);

const CHUNK_BYTES: usize = 64 << 10;

impl RunningCommand {
    pub(crate) fn new(child: &mut Child, control: UnixStream, stdin: Option<PipeWriter>) -> io::Result<Self> {
        control.set_nonblocking(true)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        Ok(Self {
            control: tokio::net::UnixStream::from_std(control)?,
            stdin,
            stdout,
            stderr,
            exit: None,
            is_killed: false,
            frame: Vec::new(),
        })
    }

    /// Reads the next output, or `None` when the command has ended and all its output is read. Cancel safe.
    pub async fn next_output(&mut self) -> Option<(OutputStream, Vec<u8>)> {
        loop {
            if self.exit.is_some() {
                let drained =
                    tokio::time::timeout(DRAIN_TIME_MAX, read_either(&mut self.stdout, &mut self.stderr));
                return drained.await.ok().flatten();
            }
            tokio::select! {
                biased;
                chunk = read_either(&mut self.stdout, &mut self.stderr), if self.has_output() => {
                    if chunk.is_some() {
                        return chunk;
                    }
                }
                exit = read_exit(&self.control, &mut self.frame) => self.exit = Some(match exit {
                    // The supervisor of a killed command reports nothing.
                    CommandExit::HelperLost if self.is_killed => CommandExit::Killed(libc::SIGKILL),
                    exit => exit,
                }),
            }
        }
    }

    fn has_output(&self) -> bool {
        self.stdout.is_some() || self.stderr.is_some()
    }

    /// How the command ended; none while it runs.
    #[must_use]
    pub fn exit(&self) -> Option<&CommandExit> {
        self.exit.as_ref()
    }

    /// Takes the write end of the command's standard input. Writing to it may block; dropping it is end of file for the
    /// command.
    #[must_use]
    pub fn take_stdin(&mut self) -> Option<PipeWriter> {
        self.stdin.take()
    }

    /// Takes the standard input of the command, to write to it without blocking a thread.
    ///
    /// # Errors
    /// When the pipe cannot be watched by the runtime.
    pub fn take_input(&mut self) -> io::Result<Option<CommandInput>> {
        let open = |stdin: PipeWriter| pipe::Sender::from_owned_fd(OwnedFd::from(stdin)).map(CommandInput);
        self.stdin.take().map(open).transpose()
    }

    /// Kills the command with all its descendants. [`Self::next_output`] returns `None` when they are dead.
    pub fn kill(&mut self) {
        self.is_killed = true;
        // An error means that the helper has ended.
        let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Write);
    }

    /// Asks the command to end, with SIGTERM to its process group.
    pub fn terminate(&self) {
        // An error means that it has ended already. The frame is shorter than the socket's buffer.
        if let Ok(frame) = control::encode(&Order::Terminate) {
            let _ = self.control.try_write(&frame);
        }
    }
}

/// Reads from whichever stream has output; none when both have ended.
async fn read_either(
    stdout: &mut Option<ChildStdout>,
    stderr: &mut Option<ChildStderr>,
) -> Option<(OutputStream, Vec<u8>)> {
    loop {
        let (stream, read) = match (stdout.as_mut(), stderr.as_mut()) {
            (None, None) => return None,
            (Some(out), None) => (OutputStream::Stdout, read_chunk(out).await),
            (None, Some(err)) => (OutputStream::Stderr, read_chunk(err).await),
            (Some(out), Some(err)) => tokio::select! {
                read = read_chunk(out) => (OutputStream::Stdout, read),
                read = read_chunk(err) => (OutputStream::Stderr, read),
            },
        };
        match (read, stream) {
            (Some(bytes), stream) => return Some((stream, bytes)),
            (None, OutputStream::Stdout) => *stdout = None,
            (None, OutputStream::Stderr) => *stderr = None,
        }
    }
}

/// Reads a chunk; none at the end or on an error. Cancel safe: a chunk that is read is returned.
async fn read_chunk(stream: &mut (impl AsyncReadExt + Unpin)) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(CHUNK_BYTES);
    match stream.read_buf(&mut bytes).await {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(bytes),
    }
}

/// Reads the report. Cancel safe: `frame` holds what was read so far.
async fn read_exit(control: &tokio::net::UnixStream, frame: &mut Vec<u8>) -> CommandExit {
    loop {
        if let Some(report) = parse_report(frame) {
            return match report {
                Report::NotStarted(why) => CommandExit::NotStarted(why),
                Report::Exited(code) => CommandExit::Exited(code),
                Report::Killed(signal) => CommandExit::Killed(signal),
                Report::Stopped(why) => CommandExit::Stopped(why),
            };
        }
        if control.readable().await.is_err() {
            return CommandExit::HelperLost;
        }
        match control.try_read_buf(frame) {
            Ok(0) => return CommandExit::HelperLost,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return CommandExit::HelperLost,
        }
    }
}

fn parse_report(frame: &[u8]) -> Option<Report> {
    let (head, body) = frame.split_at_checked(4)?;
    let length = u32::from_be_bytes(head.try_into().ok()?) as usize;
    serde_json::from_slice(body.get(..length)?).ok()
}
