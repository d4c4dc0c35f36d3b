//! Child processes under test: they are killed when their handle is dropped, and when this program ends for any reason.
//! Their CPU time and memory are read from Linux's `/proc`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::command::Failure;

/// Waits until its stdin is closed, which happens when this program ends, also by Ctrl-C; then removes the directory
/// and kills its process group, including itself.
const WATCHDOG_SCRIPT: &str = r#"read -r _; rm -rf -- "$1"; kill -KILL 0"#;

/// Clock ticks per second in `/proc/PID/stat`; the same on every Linux.
const TICKS_PER_SECOND: u64 = 100;

/// A temporary directory and the process group of all children; both end when this is dropped.
pub(crate) struct ProcessGroup {
    folder: PathBuf,
    watchdog: Child,
}

impl ProcessGroup {
    pub(crate) fn new() -> Result<Self, Failure> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("nexus3-bench-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).map_err(|cause| Failure::Failed(format!("{}: {cause}", folder.display())))?;
        let watchdog = Command::new("sh")
            .args(["-c", WATCHDOG_SCRIPT, "watchdog"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Outside the terminal's foreground group, so that Ctrl-C does not kill the watchdog before it cleans up.
            .process_group(0)
            .spawn()
            .map_err(|cause| Failure::Failed(format!("sh did not start: {cause}")))?;
        Ok(Self { folder, watchdog })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts a child in the process group.
    pub(crate) fn start(&self, command: &mut Command) -> Result<ChildProcess, Failure> {
        let group = i32::try_from(self.watchdog.id()).unwrap_or(0);
        let spawned = command.stdin(Stdio::null()).process_group(group).spawn();
        let child = spawned.map_err(|cause| {
            Failure::Failed(format!("{:?} did not start: {cause}", command.get_program()))
        })?;
        Ok(ChildProcess { child })
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        // `drop` cannot return an error.
        let _ = self.watchdog.wait();
    }
}

/// Returns a command with an empty environment: a nexus3 variable in ours would change the result.
pub(crate) fn clean_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear();
    command
}

/// A child process that is killed when this is dropped.
pub(crate) struct ChildProcess {
    child: Child,
}

/// Memory of a process, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// Resident set size, including pages that are shared or mapped from the executable.
    pub(crate) rss: f64,
    /// Proportional set size: a page that `n` processes map counts as one `n`th. NaN when not readable.
    pub(crate) pss: f64,
    /// Unique set size: pages that no other process maps. NaN when not readable.
    pub(crate) uss: f64,
    /// Anonymous resident memory: no file backs it, so that the kernel cannot drop it.
    pub(crate) anonymous: f64,
}

/// Selects one figure of the memory.
pub(crate) type Figure = fn(&Memory) -> f64;

impl Memory {
    /// All figures with their names.
    pub(crate) const FIGURES: [(&str, Figure); 4] = [
        ("RSS", |memory| memory.rss),
        ("PSS", |memory| memory.pss),
        ("USS", |memory| memory.uss),
        ("anonymous memory", |memory| memory.anonymous),
    ];

    /// Explains the figures in a table.
    pub(crate) const NOTE: &str = "RSS: all resident pages; PSS: the same, but a page that n processes map counts as one \
         nth; USS: only pages that no other process maps; anonymous memory: no pages of files, such as the executable. PSS \
         and USS are NaN unless root runs the benchmark: the daemon denies other processes of its user access to its \
         memory. 1 MB is 1,000,000 bytes, 1 KB is 1,000";
}

/// CPU time of a process, in user and in kernel mode.
struct CpuTimes {
    user: Duration,
    system: Duration,
}

impl ChildProcess {
    pub(crate) fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    pub(crate) fn wait(&mut self) -> Result<ExitStatus, Failure> {
        self.child
            .wait()
            .map_err(|cause| Failure::Failed(format!("waiting for a child process failed: {cause}")))
    }

    /// Describes what each thread waits for in the kernel, for the error about a process that does not go on.
    pub(crate) fn waiting_threads(&self) -> String {
        let threads = fs::read_dir(self.proc("task")).into_iter().flatten().flatten();
        let describe = |thread: fs::DirEntry| {
            let read = |file: &str| fs::read_to_string(thread.path().join(file)).unwrap_or_default();
            let wait = read("wchan");
            format!("{} {}", read("comm").trim(), if wait.is_empty() { "?" } else { wait.as_str() })
        };
        format!("its threads wait in: {}", threads.map(describe).collect::<Vec<_>>().join(", "))
    }

    pub(crate) fn memory(&self) -> Result<Memory, Failure> {
        let status = self.read("status")?;
        let (pss, uss) = match fs::read_to_string(self.proc("smaps_rollup")) {
            Ok(maps) => {
                let unique = parse_bytes(&maps, "Private_Clean")? + parse_bytes(&maps, "Private_Dirty")?;
                (parse_bytes(&maps, "Pss")?, unique)
            }
            Err(_) => (f64::NAN, f64::NAN),
        };
        Ok(Memory {
            rss: parse_bytes(&status, "VmRSS")?,
            pss,
            uss,
            anonymous: parse_bytes(&status, "RssAnon")?,
        })
    }

    /// User and system time of all threads: in nanoseconds where the kernel has schedstat, else in clock ticks.
    pub(crate) fn cpu_time(&self) -> Result<Duration, Failure> {
        match self.schedstat_time() {
            Some(time) => Ok(time),
            None => self.tick_time(),
        }
    }

    fn schedstat_time(&self) -> Option<Duration> {
        let mut nanoseconds = 0;
        for thread in fs::read_dir(self.proc("task")).ok()? {
            let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
            nanoseconds += text.split_whitespace().next()?.parse::<u64>().ok()?;
        }
        Some(Duration::from_nanos(nanoseconds))
    }

    fn tick_time(&self) -> Result<Duration, Failure> {
        let CpuTimes { user, system } = self.read_cpu_times()?;
        Ok(user + system)
    }

    /// User time of all threads in clock ticks, which are too coarse for short intervals.
    pub(crate) fn user_time(&self) -> Result<Duration, Failure> {
        self.read_cpu_times().map(|ticks| ticks.user)
    }

    fn read_cpu_times(&self) -> Result<CpuTimes, Failure> {
        let stat = self.read("stat")?;
        // The name in parentheses may contain spaces, the fields after it do not. The CPU times are fields 14 and 15.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let ticks: Vec<u64> = fields.split_whitespace().skip(11).take(2).flat_map(str::parse).collect();
        let time = |ticks: u64| Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND);
        match ticks[..] {
            [user, system] => Ok(CpuTimes { user: time(user), system: time(system) }),
            _ => Err(missing_proc_value("CPU time")),
        }
    }

    fn read(&self, file: &str) -> Result<String, Failure> {
        let path = self.proc(file);
        fs::read_to_string(&path).map_err(|cause| Failure::Failed(format!("{}: {cause}", path.display())))
    }

    fn proc(&self, file: &str) -> PathBuf {
        Path::new("/proc").join(self.child.id().to_string()).join(file)
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // An error means that the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Parses the line `KEY: 123 kB` of a file in `/proc`.
fn parse_bytes(text: &str, key: &str) -> Result<f64, Failure> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let kibibytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kibibytes.map(|kibibytes| kibibytes * 1024.0).ok_or_else(|| missing_proc_value(key))
}

fn missing_proc_value(name: &str) -> Failure {
    Failure::Failed(format!("/proc has no {name} for a process"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spawn_sleep(group: &ProcessGroup) -> ChildProcess {
        group.start(Command::new("sleep").arg("60")).unwrap()
    }

    #[test]
    fn drop_kills_the_children_and_removes_the_directory() {
        let group = ProcessGroup::new().unwrap();
        let folder = group.folder().to_owned();
        let mut child = spawn_sleep(&group);
        fs::write(folder.join("file"), "x").unwrap();
        drop(group);
        assert!(!child.wait().unwrap().success());
        assert!(!folder.exists());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_and_cpu_time_of_a_process_are_read() {
        let group = ProcessGroup::new().unwrap();
        let child = spawn_sleep(&group);
        let memory = child.memory().unwrap();
        assert!(memory.rss >= memory.anonymous && memory.pss >= memory.uss, "{memory:?}");
        assert!(child.cpu_time().unwrap() < Duration::from_secs(1));
        assert!(child.tick_time().unwrap() < Duration::from_secs(1));
        assert!(child.user_time().unwrap() < Duration::from_secs(1));
        assert!(child.waiting_threads().starts_with("its threads wait in: "), "{}", child.waiting_threads());
    }
}
