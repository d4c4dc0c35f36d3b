//! Starts commands: resolves the program, hands the request with its directory handles to a new helper process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Component, Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use crate::control;
use crate::request::{Access, HelperRequest, Payload, ResourceLimits, Rule, Tier};
use crate::running::RunningCommand;
use crate::system_directories::SystemDirectories;

/// How the helper is started: the daemon's own executable with an argument.
#[derive(Debug, Clone)]
pub struct Helper {
    /// The executable.
    pub program: PathBuf,
    /// The arguments that make it the helper.
    pub arguments: Vec<String>,
}

impl Helper {
    /// This process's own executable, also when the file was replaced since it started.
    #[must_use]
    pub fn own_executable() -> Self {
        Self { program: "/proc/self/exe".into(), arguments: vec![crate::HELPER_ARGUMENT.to_owned()] }
    }
}

/// A directory that a command may access, held open: the grant applies to this directory, even if its path changes.
#[derive(Debug, Clone)]
pub struct GrantedDirectory {
    /// Its path, at which the command sees it.
    pub path: String,
    /// Its handle.
    pub handle: Arc<OwnedFd>,
    /// Whether the command may change what is in it.
    pub is_writable: bool,
}

/// A command to start.
#[derive(Debug)]
pub struct Launch {
    /// The program: an absolute path, a path relative to the working directory, or a name in the search path.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its complete environment.
    pub environment: Vec<(String, String)>,
    /// The working directory: below one of the roots.
    pub cwd: String,
    /// The handle of the working directory.
    pub cwd_handle: Arc<OwnedFd>,
    /// The directories that it may access besides those of the system. For a directory within another one its own access
    /// applies; the tier `landlock` cannot restrict it further than that of the outer one.
    pub roots: Vec<GrantedDirectory>,
    /// Files and directories within the roots that the command shall not see: it finds an empty read-only one in their place.
    /// They must exist. The tier `landlock` cannot hide anything.
    pub hidden: Vec<String>,
    /// Whether the command gets a pipe as its standard input; else it reads end of file.
    pub has_stdin: bool,
    /// Its resource limits.
    pub limits: ResourceLimits,
}

/// A built-in of the helper to start.
#[derive(Debug)]
pub struct BuiltInLaunch {
    /// Its name.
    pub name: String,
    /// The directories that it may read, at least one and none of them writable. It runs in the first and has access to
    /// nothing else.
    pub roots: Vec<GrantedDirectory>,
    /// Files and directories within the roots that it shall not see, as for a command.
    pub hidden: Vec<String>,
    /// Its resource limits.
    pub limits: ResourceLimits,
}

/// Why a command was not started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchFault {
    /// There is no such program.
    #[error("program not found: {0}")]
    ProgramNotFound(String),
    /// The program is only in a directory of the search path that the command may write.
    #[error(
        "program not found: {name}; {path} is not used, because agents can change it: call it by its path"
    )]
    ProgramWritable {
        /// The name.
        name: String,
        /// The program that was found.
        path: String,
    },
    /// A directory cannot be granted like this.
    #[error("cannot grant {path}: {why}")]
    Grant {
        /// The directory.
        path: String,
        /// The reason.
        why: &'static str,
    },
    /// A file or directory cannot be hidden.
    #[error("cannot hide {path}: {why}")]
    Hide {
        /// The file or directory.
        path: String,
        /// The reason.
        why: &'static str,
    },
    /// The helper could not be started, or the request not be sent.
    #[error("cannot start the sandbox helper: {0}")]
    Helper(#[from] io::Error),
}

/// Starts commands in a sandbox of one tier.
#[derive(Debug, Clone)]
pub struct Launcher {
    helper: Helper,
    tier: Tier,
    system: Arc<SystemDirectories>,
}

impl Launcher {
    /// A launcher. Use the one that the self-test returns: it has proved that the kernel enforces the tier.
    #[must_use]
    pub fn new(helper: Helper, tier: Tier, system: Arc<SystemDirectories>) -> Self {
        Self { helper, tier, system }
    }

    /// The tier.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// A launcher of commands that are not confined, only supervised.
    #[must_use]
    pub fn unconfined(&self) -> Self {
        Self { tier: Tier::Unconfined, ..self.clone() }
    }

    /// Whether every command may read a path.
    #[must_use]
    pub fn is_of_system(&self, path: &Path) -> bool {
        self.system.paths().any(|known| path.starts_with(known))
    }

    /// Starts a command. Call it on a thread that may block: the helper reads the request while this sends it.
    ///
    /// # Errors
    /// When a directory cannot be granted, the program does not exist or the helper does not start. What fails later is
    /// reported by the command's exit.
    pub fn start(&self, launch: Launch) -> Result<RunningCommand, LaunchFault> {
        launch.roots.iter().try_for_each(|root| self.check_grant(root, &launch.roots))?;
        launch.hidden.iter().try_for_each(|path| self.check_hidden(path, &launch.roots))?;
        // Also without confinement, a name never leads to a program that the command's directories contain.
        let path = resolve_program(&launch)?;
        let granted = if self.tier == Tier::Unconfined { &[] } else { &launch.roots[..] };
        let access = |root: &GrantedDirectory| if root.is_writable { Access::Write } else { Access::Read };
        let payload = Payload::Program { path, arguments: launch.arguments, environment: launch.environment };
        let request = HelperRequest {
            payload,
            cwd: launch.cwd,
            has_stdin: launch.has_stdin,
            held: rules(granted, access),
            hidden: outermost(&launch.hidden),
            system: self.system.rules.clone(),
            limits: launch.limits,
            tier: self.tier,
        };
        self.start_helper(&request, &launch.cwd_handle, granted)
    }

    /// Starts a built-in. It reads its input from the standard input, up to its end.
    ///
    /// # Errors
    /// When a directory cannot be granted or the helper does not start. What fails later is reported by the exit.
    pub fn start_built_in(&self, launch: BuiltInLaunch) -> Result<RunningCommand, LaunchFault> {
        launch.roots.iter().try_for_each(|root| self.check_grant(root, &launch.roots))?;
        launch.hidden.iter().try_for_each(|path| self.check_hidden(path, &launch.roots))?;
        let fault = |path: &str, why| LaunchFault::Grant { path: path.to_owned(), why };
        let first = launch.roots.first().ok_or_else(|| fault("", "a built-in needs a directory"))?;
        if let Some(root) = launch.roots.iter().find(|root| root.is_writable) {
            return Err(fault(&root.path, "a built-in writes nothing"));
        }
        let request = HelperRequest {
            payload: Payload::BuiltIn(launch.name),
            cwd: first.path.clone(),
            has_stdin: true,
            held: rules(&launch.roots, |_| Access::ReadData),
            hidden: outermost(&launch.hidden),
            // The supervisor needs it; the built-in gets no access to it.
            system: vec![Rule { path: "/dev/null".to_owned(), access: Access::Device }],
            limits: launch.limits,
            tier: self.tier,
        };
        self.start_helper(&request, &first.handle, &launch.roots)
    }

    fn start_helper(
        &self,
        request: &HelperRequest,
        cwd: &OwnedFd,
        roots: &[GrantedDirectory],
    ) -> Result<RunningCommand, LaunchFault> {
        let (near, far) = UnixStream::pair()?;
        let mut child = tokio::process::Command::new(&self.helper.program)
            .args(&self.helper.arguments)
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(far)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let stdin = if request.has_stdin { Some(io::pipe()?) } else { None };
        let (read_end, write_end) = stdin.map_or((None, None), |(read, write)| (Some(read), Some(write)));
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![cwd.as_fd()];
        descriptors.extend(read_end.as_ref().map(AsFd::as_fd));
        descriptors.extend(roots.iter().map(|root| root.handle.as_fd()));
        control::send(near.as_fd(), request, &descriptors)?;
        RunningCommand::new(&mut child, near, write_end).map_err(LaunchFault::Helper)
    }
}

fn rules(roots: &[GrantedDirectory], access: impl Fn(&GrantedDirectory) -> Access) -> Vec<Rule> {
    roots.iter().map(|root| Rule { path: root.path.clone(), access: access(root) }).collect()
}

/// File systems through which root could change the system, even without capabilities.
const KERNEL_DIRECTORIES: [&str; 3] = ["/dev", "/proc", "/sys"];

impl Launcher {
    fn check_grant(&self, root: &GrantedDirectory, all: &[GrantedDirectory]) -> Result<(), LaunchFault> {
        let fault = |why| Err(LaunchFault::Grant { path: root.path.clone(), why });
        let path = Path::new(&root.path);
        if !is_plain(path) {
            return fault("it is not an absolute path without `..`");
        }
        let is_of_kernel = |kernel: &&str| path.starts_with(kernel) || Path::new(kernel).starts_with(path);
        if root.is_writable && KERNEL_DIRECTORIES.iter().any(is_of_kernel) {
            return fault("it must not be writable, because the kernel's own files are in it");
        }
        let contains = |other: &GrantedDirectory| {
            other.is_writable && other.path != root.path && path.starts_with(&other.path)
        };
        if self.tier == Tier::Landlock && !root.is_writable && all.iter().any(contains) {
            return fault("the tier landlock cannot make it read-only within a writable directory");
        }
        Ok(())
    }
}

impl Launcher {
    fn check_hidden(&self, path: &str, roots: &[GrantedDirectory]) -> Result<(), LaunchFault> {
        let fault = |why| Err(LaunchFault::Hide { path: path.to_owned(), why });
        let contains = |root: &GrantedDirectory| root.path != path && Path::new(path).starts_with(&root.path);
        match self.tier {
            Tier::Unconfined => fault("an unconfined command sees everything"),
            Tier::Landlock => fault("the tier landlock cannot hide what is in a granted directory"),
            Tier::Namespaces if !is_plain(Path::new(path)) => {
                fault("it is not an absolute path without `..`")
            }
            Tier::Namespaces if !roots.iter().any(contains) => fault("it is not in a granted directory"),
            Tier::Namespaces => Ok(()),
        }
    }
}

/// The paths that no other one contains, each once.
fn outermost(paths: &[String]) -> Vec<String> {
    let mut sorted: Vec<&Path> = paths.iter().map(Path::new).collect();
    sorted.sort();
    // What a directory contains follows it directly.
    sorted.dedup_by(|path, outer| path.starts_with(outer));
    sorted.iter().map(|path| path.display().to_string()).collect()
}

fn is_plain(path: &Path) -> bool {
    path.is_absolute() && !path.components().any(|part| part == Component::ParentDir)
}

/// Resolves the program as a shell would: with a slash it is a path, else a name in `PATH` of the environment. The
/// command executes what is found here, or fails; the helper does not search. Directories that the command may write are
/// not searched: a program that another command has put there could take the name of an allowed one.
fn resolve_program(launch: &Launch) -> Result<String, LaunchFault> {
    let not_found = || LaunchFault::ProgramNotFound(launch.program.clone());
    if launch.program.is_empty() || launch.program.contains('\0') {
        return Err(not_found());
    }
    if launch.program.contains('/') {
        let path = Path::new(&launch.cwd).join(&launch.program);
        return path.to_str().map(str::to_owned).ok_or_else(not_found);
    }
    let path = launch.environment.iter().find(|(name, _)| name == "PATH").map_or("", |(_, value)| value);
    let mut writable = None;
    for directory in path.split(':').filter(|directory| directory.starts_with('/')) {
        let candidate = format!("{directory}/{}", launch.program);
        match is_executable(&candidate) {
            true if is_writable(launch, &candidate) => writable = writable.or(Some(candidate)),
            true => return Ok(candidate),
            false => {}
        }
    }
    let name = launch.program.clone();
    Err(writable.map_or_else(not_found, |path| LaunchFault::ProgramWritable { name, path }))
}

fn is_executable(path: &str) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
        && std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
}

/// Whether the command may change the program, or the link that leads to it.
fn is_writable(launch: &Launch, program: &str) -> bool {
    let real = std::fs::canonicalize(program).unwrap_or_default();
    let directory = Path::new(program).parent().and_then(|parent| std::fs::canonicalize(parent).ok());
    let paths = [Path::new(program), &real, directory.as_deref().unwrap_or(Path::new(program))];
    let writable = launch.roots.iter().filter(|root| root.is_writable);
    writable.into_iter().any(|root| paths.iter().any(|path| path.starts_with(&root.path)))
}
