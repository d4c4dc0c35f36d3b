//! The self-test: runs denial probes in the sandbox and proves that the kernel refuses them, instead of trusting version
//! numbers. Without a tier that passes, commands are refused.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

use crate::launcher::{GrantedDirectory, Helper, Launch, Launcher};
use crate::output::{CapturedOutput, OutputLimits};
use crate::request::{ResourceLimits, Tier};
use crate::running::CommandExit;
use crate::system_directories::SystemDirectories;

/// The argument that makes the daemon's executable the probe program. It runs in the sandbox.
pub const PROBE_ARGUMENT: &str = "sandbox-probe";

/// The name of the directory within the granted one that is hidden where the tier can.
const HIDDEN: &str = "hidden";

/// The self-test takes milliseconds; a kernel that hangs in it cannot be used.
const TIME_MAX: Duration = Duration::from_secs(20);

/// The outcome of one probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeOutcome {
    /// What was tried.
    pub name: String,
    /// Whether the outcome is the expected one: refused, or for what a command needs, allowed.
    pub passed: bool,
    /// What happened.
    pub detail: String,
}

/// The result of the self-test of one tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelfTest {
    /// The tier.
    pub tier: Tier,
    /// The probes, or why they could not run.
    pub probes: Result<Vec<ProbeOutcome>, String>,
}

impl SelfTest {
    /// Whether every probe passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.probes.as_ref().is_ok_and(|probes| !probes.is_empty() && probes.iter().all(|probe| probe.passed))
    }

    /// Why the tier is not enforced; none if it is.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        match &self.probes {
            Err(why) => Some(why.clone()),
            Ok(_) if self.passed() => None,
            Ok(probes) if probes.is_empty() => Some("no probe ran".to_owned()),
            Ok(probes) => {
                let failed = probes.iter().filter(|probe| !probe.passed);
                Some(
                    failed
                        .map(|probe| format!("{}: {}", probe.name, probe.detail))
                        .collect::<Vec<_>>()
                        .join("; "),
                )
            }
        }
    }

    /// Runs the probes in a tier. `directory` is an existing private directory for the test's files.
    pub async fn run(helper: &Helper, tier: Tier, system: &Arc<SystemDirectories>, directory: &Path) -> Self {
        let test = run_in_sandbox(helper, tier, system, directory);
        let probes = match tokio::time::timeout(TIME_MAX, test).await {
            Ok(probes) => probes,
            Err(_) => Err(format!("the probes took more than {} s", TIME_MAX.as_secs())),
        };
        Self { tier, probes }
    }
}

async fn run_in_sandbox(
    helper: &Helper,
    tier: Tier,
    system: &Arc<SystemDirectories>,
    directory: &Path,
) -> Result<Vec<ProbeOutcome>, String> {
    let fail = |error: io::Error| format!("{}: {error}", directory.display());
    let (inside, outside) = (directory.join("inside"), directory.join("outside"));
    let hidden = inside.join(HIDDEN);
    for directory in [&hidden, &outside] {
        fs::create_dir_all(directory).map_err(fail)?;
        fs::write(directory.join("secret"), "secret").map_err(fail)?;
    }
    // A real peer, so that a connection would succeed.
    let socket = outside.join("socket");
    let _ = fs::remove_file(&socket);
    let _listener = std::os::unix::net::UnixListener::bind(&socket).map_err(fail)?;
    let program = fs::canonicalize(&helper.program)
        .map_err(|error| format!("{}: {error}", helper.program.display()))?;
    let mut launch = probe_launch(&program, &inside, &outside)?;
    if tier == Tier::Namespaces {
        launch.hidden = vec![format!("{}/{HIDDEN}", launch.cwd)];
        launch.arguments.push(HIDDEN.to_owned());
    }
    let system = with_program(system, &program);
    let launcher = Launcher::new(helper.clone(), tier, Arc::new(system));
    let started = tokio::task::spawn_blocking(move || launcher.start(launch)).await;
    let mut running = started.map_err(|error| error.to_string())?.map_err(|fault| fault.to_string())?;
    let limits = OutputLimits { head_bytes_max: 64 << 10, tail_bytes_max: 0 };
    let (mut stdout, mut stderr) = (CapturedOutput::new(limits), CapturedOutput::new(limits));
    while let Some((stream, bytes)) = running.next_output().await {
        match stream {
            crate::OutputStream::Stdout => stdout.push(&bytes),
            crate::OutputStream::Stderr => stderr.push(&bytes),
        }
    }
    match running.exit() {
        Some(CommandExit::Exited(0)) => {
            serde_json::from_str(&stdout.text()).map_err(|error| format!("unreadable probe report: {error}"))
        }
        Some(CommandExit::NotStarted(why)) => Err(why.clone()),
        exit => Err(format!("the probe program failed: {exit:?} {}", stderr.text().trim())),
    }
}

fn probe_launch(program: &Path, inside: &Path, outside: &Path) -> Result<Launch, String> {
    let text = |path: &Path| path.to_str().map(str::to_owned).ok_or("a path is not UTF-8".to_owned());
    let handle = File::open(inside).map_err(|error| format!("{}: {error}", inside.display()))?;
    let handle = Arc::new(handle.into());
    Ok(Launch {
        program: text(program)?,
        arguments: vec![
            PROBE_ARGUMENT.to_owned(),
            text(inside)?,
            text(outside)?,
            std::process::id().to_string(),
        ],
        environment: Vec::new(),
        cwd: text(inside)?,
        cwd_handle: Arc::clone(&handle),
        roots: vec![GrantedDirectory { path: text(inside)?, handle, is_writable: true }],
        hidden: Vec::new(),
        has_stdin: false,
        limits: ResourceLimits::default(),
    })
}

/// The probe program itself has to be readable in the sandbox.
fn with_program(system: &SystemDirectories, program: &Path) -> SystemDirectories {
    let mut system = system.clone();
    if let Some(path) = program.to_str() {
        system
            .rules
            .push(crate::request::Rule { path: path.to_owned(), access: crate::request::Access::Read });
    }
    system
}

/// Runs the probes in this process and prints their outcomes as JSON. `arguments`: a directory inside the grant, one
/// outside of it, the process id of the daemon, and the name of a hidden directory if the tier hides any.
#[must_use]
pub fn run_probes(arguments: &[String]) -> ExitCode {
    let [inside, outside, daemon, hidden @ ..] = arguments else {
        eprintln!("sandbox probe: not meant to be run by hand");
        return ExitCode::FAILURE;
    };
    let mut probes = probe_all(Path::new(inside), Path::new(outside), daemon.parse().unwrap_or(1));
    probes.extend(hidden.iter().flat_map(|name| probe_hidden(&Path::new(inside).join(name))));
    match serde_json::to_writer(io::stdout(), &probes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn probe_all(inside: &Path, outside: &Path, daemon: i32) -> Vec<ProbeOutcome> {
    let secret = outside.join("secret");
    let link = inside.join("link");
    let linked = || {
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(&secret, &link)?;
        fs::read(&link).map(drop)
    };
    vec![
        allowed("write in the granted directory", &fs::write(inside.join("file"), "x")),
        allowed("run a program", &run_program()),
        refused("read a file elsewhere", &fs::read(&secret).map(drop)),
        refused("write a file elsewhere", &OpenOptions::new().write(true).open(&secret).map(drop)),
        refused("create a file elsewhere", &File::create(outside.join("new")).map(drop)),
        refused("list a directory elsewhere", &fs::read_dir(outside).map(drop)),
        refused("remove a file elsewhere", &fs::remove_file(&secret)),
        refused("truncate a file elsewhere", &crate::helper::truncate(&secret)),
        refused("follow a link to a file elsewhere", &linked()),
        refused("hard link a file from elsewhere", &fs::hard_link(&secret, inside.join("hard"))),
        refused("reach a file through /proc/self/root", &fs::read(through_proc(&secret)).map(drop)),
        refused("connect over TCP", &TcpStream::connect(("127.0.0.1", 9)).map(drop)),
        refused("bind a UDP socket", &UdpSocket::bind("127.0.0.1:0").map(drop)),
        refused("connect to a Unix socket", &UnixStream::connect(outside.join("socket")).map(drop)),
        refused("create a Unix socket", &UnixDatagram::unbound().map(drop)),
        refused("create a pair of datagram sockets", &UnixDatagram::pair().map(drop)),
        refused("signal the daemon", &signal(daemon)),
        refused("read the daemon's environment", &fs::read(format!("/proc/{daemon}/environ")).map(drop)),
        refused("create a user namespace", &unshare()),
        confirmed("no new privileges", rustix::thread::no_new_privs().unwrap_or(false)),
        confirmed("no capabilities", has_no_capabilities()),
    ]
}

fn probe_hidden(hidden: &Path) -> [ProbeOutcome; 4] {
    let secret = hidden.join("secret");
    let is_empty = fs::read_dir(hidden).is_ok_and(|mut entries| entries.next().is_none());
    [
        confirmed("a hidden directory is empty", is_empty),
        refused("read a file in a hidden directory", &fs::read(&secret).map(drop)),
        refused("create a file in a hidden directory", &File::create(hidden.join("new")).map(drop)),
        refused("reach a hidden file through /proc/self/root", &fs::read(through_proc(&secret)).map(drop)),
    ]
}

fn allowed(name: &str, result: &io::Result<()>) -> ProbeOutcome {
    let detail = result.as_ref().map_or_else(ToString::to_string, |()| "works".to_owned());
    ProbeOutcome { name: name.to_owned(), passed: result.is_ok(), detail }
}

/// A call that has to fail because it is refused or because its object cannot be seen. Any other error, such as a refused
/// TCP connection, means that the call went through.
fn refused(name: &str, result: &io::Result<()>) -> ProbeOutcome {
    let errno = result.as_ref().err().and_then(Errno::from_io_error);
    let is_refusal = |errno| {
        matches!(
            errno,
            Errno::PERM
                | Errno::ACCESS
                | Errno::NOENT
                | Errno::ROFS
                | Errno::XDEV
                | Errno::SRCH
                | Errno::NOSYS
        )
    };
    let detail =
        result.as_ref().map_or_else(|error| format!("refused: {error}"), |()| "not refused".to_owned());
    ProbeOutcome { name: name.to_owned(), passed: errno.is_some_and(is_refusal), detail }
}

fn confirmed(name: &str, holds: bool) -> ProbeOutcome {
    let detail = if holds { "holds" } else { "does not hold" };
    ProbeOutcome { name: name.to_owned(), passed: holds, detail: detail.to_owned() }
}

fn run_program() -> io::Result<()> {
    let status = std::process::Command::new("/bin/sh").args(["-c", "exit 0"]).env_clear().status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(status.to_string())) }
}

fn through_proc(path: &Path) -> PathBuf {
    Path::new("/proc/self/root").join(path.strip_prefix("/").unwrap_or(path))
}

fn signal(pid: i32) -> io::Result<()> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    test_kill_process(pid).map_err(Into::into)
}

fn unshare() -> io::Result<()> {
    crate::helper::unshare_user()
}

fn has_no_capabilities() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| {
        sets.effective.is_empty() && sets.permitted.is_empty() && sets.inheritable.is_empty()
    })
}
