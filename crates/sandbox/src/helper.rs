//! The helper process: receives a request on its standard input, confines and runs the command, reports how it ended.
//! It has one thread and starts nothing else, so that it is ready in a millisecond.

mod kill_scope;
mod landlock_domain;
mod namespaces;
mod process_limit;
mod restrict;
mod seccomp;
mod supervise;
mod sys;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;

use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, waitpid};

use self::kill_scope::KillScope;
use self::process_limit::ProcessLimit;
use self::restrict::OpenedRules;
use self::sys::Fork;
use crate::built_in::BuiltIn;
use crate::control;
use crate::request::{Access, HelperRequest, Report, Rule, Tier};

/// The argument that makes the daemon's executable the helper.
pub const HELPER_ARGUMENT: &str = "sandbox-helper";

/// Runs the helper, which knows these built-ins. The control socket is its standard input; standard output and error are those of the command.
#[must_use]
pub fn run_helper(built_ins: &'static [BuiltIn]) -> ExitCode {
    match serve_request(built_ins) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sandbox helper: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve_request(built_ins: &'static [BuiltIn]) -> io::Result<()> {
    // A copy on another number: the command gets a standard input of its own.
    let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let (request, descriptors) = control::receive::<HelperRequest>(control.as_fd())?
        .ok_or_else(|| io::Error::other("started without a request; it is not meant to be run by hand"))?;
    let job = Job::new(request, descriptors, built_ins)?;
    // Outside the daemon's session: Ctrl-C in a terminal must not end the helper before the command.
    let _ = rustix::process::setsid();
    sys::ignore_signals();
    if let Err(error) = job.watch(control.as_fd()) {
        let why = format!("cannot confine the command: {error}");
        control::send(control.as_fd(), &Report::NotStarted(why), &[])?;
    }
    Ok(())
}

/// A request with its descriptors.
struct Job {
    request: HelperRequest,
    cwd: OwnedFd,
    stdin: Option<OwnedFd>,
    /// One for each rule of `request.held`.
    held: Vec<OwnedFd>,
    built_ins: &'static [BuiltIn],
}

impl Job {
    fn new(
        request: HelperRequest,
        descriptors: Vec<OwnedFd>,
        built_ins: &'static [BuiltIn],
    ) -> io::Result<Self> {
        let missing = || io::Error::other("the request lacks descriptors");
        let mut descriptors = descriptors.into_iter();
        let cwd = descriptors.next().ok_or_else(missing)?;
        let stdin = if request.has_stdin { Some(descriptors.next().ok_or_else(missing)?) } else { None };
        let held: Vec<OwnedFd> = descriptors.collect();
        if held.len() != request.held.len() {
            return Err(missing());
        }
        Ok(Self { request, cwd, stdin, held, built_ins })
    }

    /// Starts the supervisor of the command and waits for its end. Should it die before the command, for example because
    /// the system ran out of memory, this process kills what is left; in namespaces the kernel does.
    fn watch(&self, control: BorrowedFd<'_>) -> io::Result<()> {
        let scope = match self.request.tier {
            Tier::Unconfined | Tier::Landlock => {
                rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
                Some(KillScope::enter_domain()?)
            }
            Tier::Namespaces => {
                namespaces::enter().map_err(|error| io::Error::other(format!("namespaces: {error}")))?;
                None
            }
        };
        match sys::fork()? {
            Fork::Child => {
                let report = self.supervise(control).unwrap_or_else(|error| {
                    Some(Report::NotStarted(format!("cannot confine the command: {error}")))
                });
                let sent = report.map_or(Ok(()), |report| control::send(control, &report, &[]));
                sys::exit_now(i32::from(sent.is_err()))
            }
            Fork::Parent(supervisor) => {
                release_output()?;
                while let Err(Errno::INTR) = waitpid(Some(supervisor), WaitOptions::empty()) {}
                scope.iter().for_each(supervise::kill_descendants);
                Ok(())
            }
        }
    }

    /// Runs the command and supervises it in this process.
    fn supervise(&self, control: BorrowedFd<'_>) -> io::Result<Option<Report>> {
        let scope = match self.request.tier {
            Tier::Unconfined | Tier::Landlock => {
                rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
                // Within the domain of the watching process, which this process therefore cannot kill.
                KillScope::enter_domain()?
            }
            // Their first process: when it ends, the kernel kills all others.
            Tier::Namespaces => {
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
                let held: Vec<BorrowedFd<'_>> = self.held.iter().map(AsFd::as_fd).collect();
                namespaces::build_root(&self.request, &held)
                    .map_err(|why| io::Error::other(format!("namespaces: {why}")))?;
                KillScope::of_namespace()?
            }
        };
        let limit = ProcessLimit::new(self.request.limits.processes_max);
        match sys::fork()? {
            Fork::Child => {
                let why = self.execute();
                let _ = control::send(control, &Report::NotStarted(why), &[]);
                sys::exit_now(127)
            }
            Fork::Parent(command) => {
                release_output()?;
                supervise::supervise(control, command, &scope, limit)
            }
        }
    }

    /// Executes the command in this process; returns why it could not.
    fn execute(&self) -> String {
        let mut rules = OpenedRules::new();
        let opened = self.open_rules(&mut rules);
        let stdin = self.stdin.as_ref().map(OwnedFd::try_clone).transpose();
        let cwd = self.open_cwd();
        match (opened, stdin, cwd) {
            (Ok(()), Ok(stdin), Ok(cwd)) => {
                restrict::execute(&self.request, cwd.as_fd(), stdin, &rules, self.built_ins)
            }
            (Err(why), ..) => format!("cannot confine the command: {why}"),
            (_, Err(error), _) => format!("cannot pass the standard input: {error}"),
            (.., Err(error)) => format!("cannot enter {}: {error}", self.request.cwd),
        }
    }

    fn open_rules(&self, rules: &mut OpenedRules) -> Result<(), String> {
        for (rule, handle) in self.request.held.iter().zip(&self.held) {
            let handle = handle.try_clone().map_err(|error| format!("{}: {error}", rule.path))?;
            rules.add(handle, rule.access)?;
        }
        if self.request.payload.is_built_in() {
            return Ok(());
        }
        rules.open_all(&self.request.system)?;
        match self.request.tier {
            Tier::Unconfined | Tier::Landlock => Ok(()),
            // The mounts that only the namespaces have.
            Tier::Namespaces => {
                let rule = |path: &str, access| Rule { path: path.to_owned(), access };
                rules.open_all(&[
                    rule("/", Access::List),
                    rule("/proc", Access::Read),
                    rule("/dev/shm", Access::Write),
                    rule("/tmp", Access::Write),
                ])
            }
        }
    }

    /// In namespaces the directory is opened again: a handle of the old tree leads out of the new one with `..`.
    fn open_cwd(&self) -> io::Result<OwnedFd> {
        use rustix::fs::{Mode, OFlags};
        match self.request.tier {
            Tier::Unconfined | Tier::Landlock => self.cwd.try_clone(),
            Tier::Namespaces => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                Ok(rustix::fs::open(&*self.request.cwd, flags, Mode::empty())?)
            }
        }
    }
}

/// Leaves the output to the command: it ends when the command and its descendants have ended.
fn release_output() -> io::Result<()> {
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(rustix::stdio::dup2_stderr(&null)?)
}

/// Tries to enter a new user namespace, for the self-test.
pub(crate) fn unshare_user() -> io::Result<()> {
    sys::unshare(rustix::thread::UnshareFlags::NEWUSER)
}

/// Truncates a file by its path, without opening it, for the self-test.
pub(crate) fn truncate(path: &std::path::Path) -> io::Result<()> {
    sys::truncate(&std::ffi::CString::new(path.as_os_str().as_encoded_bytes())?)
}
