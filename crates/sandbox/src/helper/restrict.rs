//! The command's own process: takes its descriptors and limits, gives up its privileges, enters the Landlock domain,
//! installs the system call filters, and executes the program or the built-in.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::process::{Resource, Rlimit, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::landlock_domain::{self, Grant};
use super::{seccomp, sys};
use crate::built_in::BuiltIn;
use crate::request::{Access, HelperRequest, Payload, ResourceLimits, Rule, Tier};

/// Opened files and directories with their access.
pub(super) struct OpenedRules(Vec<(OwnedFd, Access, bool)>);

impl OpenedRules {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a rule with its handle.
    pub(super) fn add(&mut self, handle: OwnedFd, access: Access) -> Result<(), String> {
        let stat = rustix::fs::fstat(&handle).map_err(|errno| errno.to_string())?;
        self.0.push((handle, access, FileType::from_raw_mode(stat.st_mode) == FileType::Directory));
        Ok(())
    }

    /// Opens and adds system files and directories; skips those that do not exist.
    pub(super) fn open_all(&mut self, rules: &[Rule]) -> Result<(), String> {
        for rule in rules {
            let opened = rustix::fs::open(&*rule.path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
            match opened {
                Ok(handle) => self.add(handle, rule.access)?,
                Err(rustix::io::Errno::NOENT | rustix::io::Errno::ACCESS | rustix::io::Errno::NOTDIR) => {}
                Err(errno) => return Err(format!("{}: {errno}", rule.path)),
            }
        }
        Ok(())
    }

    fn grants(&self) -> Vec<Grant<'_>> {
        let grants = self.0.iter();
        grants
            .map(|(handle, access, is_directory)| Grant {
                handle: handle.as_fd(),
                access: *access,
                is_directory: *is_directory,
            })
            .collect()
    }
}

/// Executes the command in this process. Returns only when it cannot: the failed step and the reason.
pub(super) fn execute(
    request: &HelperRequest,
    cwd: BorrowedFd<'_>,
    stdin: Option<OwnedFd>,
    rules: &OpenedRules,
    built_ins: &[BuiltIn],
) -> String {
    if let Err((step, why)) = prepare(request, cwd, stdin, rules) {
        return format!("cannot confine the command: {step}: {why}");
    }
    match &request.payload {
        Payload::Program { path, arguments, environment } => {
            let error = Command::new(path)
                .args(arguments)
                .env_clear()
                .envs(environment.iter().map(|(name, value)| (OsStr::new(name), OsStr::new(value))))
                .exec();
            format!("cannot execute {path}: {error}")
        }
        Payload::BuiltIn(name) => match built_ins.iter().find(|built_in| built_in.name == name) {
            None => format!("there is no built-in {name}"),
            Some(built_in) => match sys::close_from(3) {
                // Handles of the directories and the control socket would lead out of the sandbox.
                Ok(()) => sys::exit_now(built_in.execute()),
                Err(error) => format!("cannot close descriptors: {error}"),
            },
        },
    }
}

type StepError = (&'static str, String);

fn step<E: std::fmt::Display>(name: &'static str) -> impl Fn(E) -> StepError {
    move |error| (name, error.to_string())
}

fn prepare(
    request: &HelperRequest,
    cwd: BorrowedFd<'_>,
    stdin: Option<OwnedFd>,
    rules: &OpenedRules,
) -> Result<(), StepError> {
    // If the supervisor dies, the command dies with it.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(step("death signal"))?;
    rustix::process::setsid().map_err(step("session"))?;
    let stdin = match stdin {
        Some(stdin) => stdin,
        None => File::open("/dev/null").map_err(step("/dev/null"))?.into(),
    };
    rustix::stdio::dup2_stdin(&stdin).map_err(step("standard input"))?;
    rustix::process::fchdir(cwd).map_err(step("working directory"))?;
    sys::close_from_on_exec(3).map_err(step("descriptors"))?;
    sys::restore_signals();
    // When memory runs out, the kernel shall kill the command rather than the daemon.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    if request.tier == Tier::Unconfined {
        // A domain of its own: the command cannot signal its supervisor.
        return landlock_domain::enter_signal_scope().map_err(step("signals"));
    }
    set_limits(&request.limits).map_err(step("resource limits"))?;
    rustix::thread::set_no_new_privs(true).map_err(step("no_new_privs"))?;
    drop_capabilities().map_err(step("capabilities"))?;
    landlock_domain::enter(&rules.grants(), request.tier).map_err(step("Landlock"))?;
    seccomp::restrict(request.tier, &request.payload).map_err(step("seccomp"))
}

fn set_limits(limits: &ResourceLimits) -> rustix::io::Result<()> {
    let at_most = |resource: Resource, value: u64| {
        // A limit that is lower already stays.
        let maximum = rustix::process::getrlimit(resource).maximum.map_or(value, |old| old.min(value));
        rustix::process::setrlimit(resource, Rlimit { current: Some(maximum), maximum: Some(maximum) })
    };
    at_most(Resource::Core, 0)?;
    at_most(Resource::Rtprio, 0)?;
    at_most(Resource::Fsize, limits.file_bytes_max)?;
    at_most(Resource::Data, limits.memory_bytes_max)?;
    at_most(Resource::Nofile, limits.open_files_max)?;
    at_most(Resource::Nproc, limits.processes_max)
}

/// Gives up all capabilities, also those that an executed program could regain.
fn drop_capabilities() -> rustix::io::Result<()> {
    rustix::thread::clear_ambient_capability_set()?;
    for capability in CapabilitySet::all().iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // Not permitted: the process has no privilege to lose. Invalid: newer than the kernel.
            Ok(()) | Err(rustix::io::Errno::PERM | rustix::io::Errno::INVAL) => {}
            Err(errno) => return Err(errno),
        }
    }
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )
}
