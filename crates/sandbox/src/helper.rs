//! The helper process: receives a request on its standard input, confines and runs the command, reports how it ended.
//! It has one thread and starts nothing else, so that it is ready in a millisecond.

mod landlock_domain;
mod namespaces;
mod restrict;
mod seccomp;
mod supervise;
mod sys;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;

use rustix::process::{Signal, WaitOptions};

use self::restrict::OpenedRules;
use self::sys::Fork;
use crate::control;
use crate::request::{Access, HelperRequest, Report, Rule, Tier};

/// The argument that makes the daemon's executable the helper.
pub const HELPER_ARGUMENT: &str = "sandbox-helper";

/// Runs the helper. The control socket is its standard input; standard output and error are those of the command.
#[must_use]
pub fn run_helper() -> ExitCode {
    match serve_request() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sandbox helper: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve_request() -> io::Result<()> {
    // A copy on another number: the command gets a standard input of its own.
    let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let (request, descriptors) = control::receive::<HelperRequest>(control.as_fd())?
        .ok_or_else(|| io::Error::other("started without a request; it is not meant to be run by hand"))?;
    let job = Job::new(request, descriptors)?;
    // Outside the daemon's session: Ctrl-C in a terminal must not end the helper before the command.
    let _ = rustix::process::setsid();
    sys::ignore_termination();
    let report = match job.request.tier {
        Tier::Landlock => {
            rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
            job.run(control.as_fd())?
        }
        Tier::Namespaces => return run_in_namespaces(&job, control.as_fd()),
    };
    send_report(control.as_fd(), report)
}

fn send_report(control: BorrowedFd<'_>, report: Option<Report>) -> io::Result<()> {
    report.map_or(Ok(()), |report| control::send(control, &report, &[]))
}

/// A request with its descriptors.
struct Job {
    request: HelperRequest,
    cwd: OwnedFd,
    stdin: Option<OwnedFd>,
    /// One for each rule of `request.held`.
    held: Vec<OwnedFd>,
}

impl Job {
    fn new(request: HelperRequest, descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let missing = || io::Error::other("the request lacks descriptors");
        let mut descriptors = descriptors.into_iter();
        let cwd = descriptors.next().ok_or_else(missing)?;
        let stdin = if request.has_stdin { Some(descriptors.next().ok_or_else(missing)?) } else { None };
        let held: Vec<OwnedFd> = descriptors.collect();
        if held.len() != request.held.len() {
            return Err(missing());
        }
        Ok(Self { request, cwd, stdin, held })
    }

    /// Runs the command and supervises it in this process.
    fn run(&self, control: BorrowedFd<'_>) -> io::Result<Option<Report>> {
        match sys::fork()? {
            Fork::Child => {
                let why = self.execute();
                let _ = control::send(control, &Report::NotStarted(why), &[]);
                sys::exit_now(127)
            }
            Fork::Parent(command) => supervise::supervise(control, command),
        }
    }

    /// Executes the command in this process; returns why it could not.
    fn execute(&self) -> String {
        let mut rules = OpenedRules::new();
        let opened = self.open_rules(&mut rules);
        let stdin = self.stdin.as_ref().map(OwnedFd::try_clone).transpose();
        let cwd = self.open_cwd();
        match (opened, stdin, cwd) {
            (Ok(()), Ok(stdin), Ok(cwd)) => restrict::execute(&self.request, cwd.as_fd(), stdin, &rules),
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
        rules.open_all(&self.request.system)?;
        match self.request.tier {
            Tier::Landlock => Ok(()),
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
            Tier::Landlock => self.cwd.try_clone(),
            Tier::Namespaces => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                Ok(rustix::fs::open(&*self.request.cwd, flags, Mode::empty())?)
            }
        }
    }
}

/// Runs the command in new namespaces. Their first process supervises it: when that process ends, the kernel kills all
/// others. This process only waits for it.
fn run_in_namespaces(job: &Job, control: BorrowedFd<'_>) -> io::Result<()> {
    if let Err(error) = namespaces::enter() {
        let why = format!("cannot confine the command: namespaces: {error}");
        return send_report(control, Some(Report::NotStarted(why)));
    }
    match sys::fork()? {
        Fork::Child => {
            let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
            let held: Vec<BorrowedFd<'_>> = job.held.iter().map(AsFd::as_fd).collect();
            let report = match namespaces::build_root(&job.request, &held) {
                Ok(()) => {
                    job.run(control).unwrap_or_else(|error| Some(Report::NotStarted(error.to_string())))
                }
                Err(why) => {
                    Some(Report::NotStarted(format!("cannot confine the command: namespaces: {why}")))
                }
            };
            let sent = send_report(control, report);
            sys::exit_now(i32::from(sent.is_err()))
        }
        Fork::Parent(init) => loop {
            match rustix::process::waitpid(Some(init), WaitOptions::empty()) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        },
    }
}

/// Tries to enter a new user namespace, for the self-test.
pub(crate) fn unshare_user() -> io::Result<()> {
    sys::unshare(rustix::thread::UnshareFlags::NEWUSER)
}

/// Truncates a file by its path, without opening it, for the self-test.
pub(crate) fn truncate(path: &std::path::Path) -> io::Result<()> {
    sys::truncate(&std::ffi::CString::new(path.as_os_str().as_encoded_bytes())?)
}
