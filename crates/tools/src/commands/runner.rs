//! Runs permitted commands: opens the directories of the permit, starts the command in the sandbox, collects its output.
//! The only module of the room that starts processes.

mod built_in;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent::ToolOutcome;
use agent::outside::{ToolOutputSink, ToolOutputStream};
use agent::permission::{Confinement, FilePath, ReadPermit, RunPermit, WritePermit};
use sandbox::{
    CapturedOutput, CommandExit, GrantedDirectory, Helper, Launch, Launcher, OutputLimits, OutputStream,
    ResourceLimits, RunningCommand, SelfTest, SystemDirectories, Tier,
};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::definition::execution_failed;
use crate::fs::{DirectoryHandle, Hiding, hiding_of};
use crate::process::ProcessTable;

pub(crate) use self::built_in::BuiltInCall;

/// How commands are run. The binary reads these options from the configuration and the environment.
#[derive(Debug, Clone)]
pub struct CommandOptions {
    /// How the sandbox helper is started.
    pub helper: Helper,
    /// The environment of every command, including `PATH`.
    pub environment: Vec<(String, String)>,
    /// Further variables of commands outside the sandbox.
    pub unconfined_environment: Vec<(String, String)>,
    /// Directories that every command may read, besides those of the system.
    pub readable_directories: Vec<PathBuf>,
    /// The directory for the temporary directories of commands.
    pub temporary_directory: PathBuf,
    /// Resource limits of each command.
    pub limits: ResourceLimits,
}

/// What the self-test of the sandbox found.
#[derive(Debug)]
pub struct SandboxReport {
    /// The tests, from the strongest tier to the weakest.
    pub tests: Vec<SelfTest>,
    launcher: Option<Launcher>,
}

impl SandboxReport {
    /// The tier in which commands run; none if they are refused.
    #[must_use]
    pub fn tier(&self) -> Option<Tier> {
        self.launcher.as_ref().map(Launcher::tier)
    }

    /// Why commands are refused.
    fn refusal(&self) -> String {
        let failure = |test: &SelfTest| {
            format!("{}: {}", test.tier.name(), test.failure().unwrap_or_else(|| "not used".to_owned()))
        };
        self.tests.iter().map(failure).collect::<Vec<_>>().join("; ")
    }
}

/// Runs commands in the sandbox.
pub struct CommandRunner {
    options: CommandOptions,
    report: OnceCell<SandboxReport>,
    /// Those that run in the background.
    processes: Arc<ProcessTable>,
}

/// Output of a command beyond this is omitted in its middle.
const OUTPUT_LIMITS: OutputLimits = OutputLimits { head_bytes_max: 256 << 10, tail_bytes_max: 256 << 10 };

/// How long a call waits for the death of a command that was killed at its timeout.
const KILL_TIME_MAX: Duration = Duration::from_secs(5);

/// The names of temporary directories: this, the id of the process that made them, and random characters.
const TEMPORARY_PREFIX: &str = "nexus3-command-";

/// What git executes or takes commands from. Read-only in the directories that a command may write: git would run it
/// later as the user, outside any sandbox.
const EXECUTED_BY_GIT: [&str; 2] = [".git/hooks", ".git/config"];

/// The variables that point to the temporary directory of a command. A home of its own: programs fail when the user's
/// home exists and cannot be read.
const TEMPORARY_VARIABLES: [&str; 2] = ["TMPDIR", "HOME"];

impl CommandRunner {
    /// A runner that has not tested the sandbox yet.
    #[must_use]
    pub fn new(options: CommandOptions) -> Self {
        Self { options, report: OnceCell::new(), processes: Arc::default() }
    }

    /// A runner that refuses every command, for programs that run none.
    #[must_use]
    pub fn refusing(why: &str) -> Self {
        let options = CommandOptions {
            helper: Helper::own_executable(),
            environment: Vec::new(),
            unconfined_environment: Vec::new(),
            readable_directories: Vec::new(),
            temporary_directory: PathBuf::new(),
            limits: ResourceLimits::default(),
        };
        let tests = vec![SelfTest { tier: Tier::Landlock, probes: Err(why.to_owned()) }];
        let report = OnceCell::new_with(Some(SandboxReport { tests, launcher: None }));
        Self { options, report, processes: Arc::default() }
    }

    /// The background processes of all agents.
    pub(crate) fn processes(&self) -> &Arc<ProcessTable> {
        &self.processes
    }

    /// Kills all background processes, waits for their end, and returns their number. None can be started any more.
    pub async fn stop_processes(&self) -> usize {
        self.processes.close().await
    }

    /// Tests the sandbox, once. Commands run in the strongest tier whose probes all pass.
    pub async fn report(&self) -> &SandboxReport {
        self.report.get_or_init(|| self.test_sandbox()).await
    }

    /// The launcher of the strongest tier; a failure if the kernel enforces none.
    async fn launcher(&self) -> Result<Launcher, ToolOutcome> {
        let report = self.report().await;
        report.launcher.clone().ok_or_else(|| {
            execution_failed(format!(
                "commands are refused because the kernel does not confine them ({}); nexus3 doctor says more",
                report.refusal()
            ))
        })
    }

    async fn test_sandbox(&self) -> SandboxReport {
        let options = &self.options;
        self.remove_stale_directories();
        let path = options.environment.iter().find(|(name, _)| name == "PATH").map_or("", |(_, value)| value);
        let system = Arc::new(SystemDirectories::new(path, &options.readable_directories));
        let mut tests = Vec::new();
        let mut launcher = None;
        for tier in [Tier::Namespaces, Tier::Landlock] {
            let test = match self.temporary_directory() {
                Ok(directory) => SelfTest::run(&options.helper, tier, &system, directory.path()).await,
                Err(why) => SelfTest { tier, probes: Err(why) },
            };
            if launcher.is_none() && test.passed() {
                launcher = Some(Launcher::new(options.helper.clone(), tier, Arc::clone(&system)));
            }
            tests.push(test);
        }
        SandboxReport { tests, launcher }
    }

    fn temporary_directory(&self) -> Result<TempDir, String> {
        let base = &self.options.temporary_directory;
        let prefix = format!("{TEMPORARY_PREFIX}{}-", std::process::id());
        let made = tempfile::Builder::new().prefix(&prefix).tempdir_in(base);
        made.map_err(|fault| format!("cannot create a directory in {}: {fault}", base.display()))
    }

    /// Removes the temporary directories that processes have left which were killed.
    fn remove_stale_directories(&self) {
        let entries = std::fs::read_dir(&self.options.temporary_directory);
        for entry in entries.into_iter().flatten().flatten() {
            let name = entry.file_name();
            let owner = name.to_str().and_then(|name| name.strip_prefix(TEMPORARY_PREFIX)?.split('-').next());
            let is_stale = owner.and_then(|owner| owner.parse::<u32>().ok()).is_some_and(|process| {
                // The process ids of this machine only.
                !Path::new("/proc").join(process.to_string()).exists()
            });
            if is_stale {
                // An error means that it belongs to another user, or that it is being removed.
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// A command that the judge has permitted.
pub(crate) struct PermittedCommand {
    permit: RunPermit,
    /// Variables besides those of every command.
    environment: Vec<(String, String)>,
    /// Whether it may read its program, wherever that is.
    is_program_readable: bool,
}

/// A command that runs, with its temporary directory.
pub(crate) struct StartedCommand {
    pub(crate) running: RunningCommand,
    /// Removed with the command. A built-in has none.
    _temporary: Option<TempDir>,
}

/// A command that has ended, or was stopped at its timeout.
pub(crate) struct FinishedCommand {
    /// None at the timeout.
    pub(crate) exit: Option<CommandExit>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl PermittedCommand {
    /// The command of a permit.
    pub(crate) fn from_permit(permit: Option<RunPermit>) -> Result<Self, ToolOutcome> {
        let denied = || ToolOutcome::Denied("Permission denied: no command is permitted".to_owned());
        let command = |permit| Self { permit, environment: Vec::new(), is_program_readable: false };
        permit.map(command).ok_or_else(denied)
    }

    /// Adds variables to its environment.
    pub(crate) fn with_environment(mut self, environment: Vec<(String, String)>) -> Self {
        self.environment = environment;
        self
    }

    /// Lets the command read its program, which the operator has chosen, also outside the directories of the agent.
    pub(crate) fn with_readable_program(mut self) -> Self {
        self.is_program_readable = true;
        self
    }

    /// The working directory.
    pub(crate) fn cwd(&self) -> FilePath {
        let path = &self.permit.cwd().file().path;
        FilePath::resolve(&format!("./{}", path.relative), &path.root).unwrap_or_else(|_| path.root.clone())
    }

    /// Starts the command in the sandbox.
    pub(crate) async fn start(
        self,
        runner: &Arc<CommandRunner>,
        arguments: Vec<String>,
        has_stdin: bool,
    ) -> Result<StartedCommand, ToolOutcome> {
        let launcher = runner.launcher().await?;
        let launcher = match self.permit.confinement() {
            Confinement::Sandboxed => launcher,
            Confinement::Unsandboxed => launcher.unconfined(),
        };
        let runner = Arc::clone(runner);
        let runtime = tokio::runtime::Handle::current();
        let started = tokio::task::spawn_blocking(move || {
            let _runtime = runtime.enter();
            let temporary = runner.temporary_directory().map_err(execution_failed)?;
            let mut launch =
                self.launch(&runner.options, &temporary, arguments, has_stdin, launcher.tier())?;
            launch.hidden = hidden_paths(&self.permit.cwd().file().blocked, &launch.roots, launcher.tier())?;
            if self.is_program_readable {
                grant_program(&mut launch, &launcher);
            }
            launch.environment.extend(self.environment);
            let running = launcher.start(launch).map_err(execution_failed)?;
            Ok(StartedCommand { running, _temporary: Some(temporary) })
        });
        started.await.unwrap_or_else(|_| Err(execution_failed("the command could not be started")))
    }

    fn launch(
        &self,
        options: &CommandOptions,
        temporary: &TempDir,
        arguments: Vec<String>,
        has_stdin: bool,
        tier: Tier,
    ) -> Result<Launch, ToolOutcome> {
        let cwd = open_cwd(self.permit.cwd())?;
        let launch = Launch {
            program: self.permit.program().to_owned(),
            arguments,
            environment: options.environment.clone(),
            cwd: cwd.path.to_string(),
            cwd_handle: Arc::new(cwd.handle),
            roots: Vec::new(),
            hidden: Vec::new(),
            has_stdin,
            limits: options.limits,
        };
        let mut roots = self.open_roots(tier)?;
        if tier == Tier::Unconfined {
            // A command outside the sandbox has the home of the user.
            let environment = [launch.environment, options.unconfined_environment.clone()].concat();
            return Ok(Launch { environment, roots, ..launch });
        }
        let temporary_path =
            temporary.path().to_str().ok_or_else(|| execution_failed("TMPDIR is not UTF-8"))?;
        let handle = std::fs::File::open(temporary.path()).map_err(execution_failed)?;
        roots.push(GrantedDirectory {
            path: temporary_path.to_owned(),
            handle: Arc::new(handle.into()),
            is_writable: true,
        });
        let mut environment = launch.environment;
        environment.retain(|(name, _)| !TEMPORARY_VARIABLES.contains(&&**name));
        let temporary =
            TEMPORARY_VARIABLES.iter().map(|name| ((*name).to_owned(), temporary_path.to_owned()));
        environment.extend(temporary);
        Ok(Launch { environment, roots, ..launch })
    }

    /// Opens the directories of the permit, with what git executes in them. Those that do not exist, such as a write path
    /// that was never used, are left out.
    fn open_roots(&self, tier: Tier) -> Result<Vec<GrantedDirectory>, ToolOutcome> {
        let readable = self.permit.readable().iter().map(|read| (ReadPermit::file(read), false));
        let writable = self.permit.writable().iter().map(|write| (WritePermit::file(write), true));
        let mut roots = Vec::new();
        for (file, is_writable) in readable.chain(writable) {
            let Some(directory) = DirectoryHandle::open(file)? else { continue };
            // The tier landlock cannot restrict what is in a writable directory.
            if is_writable && tier == Tier::Namespaces {
                for name in EXECUTED_BY_GIT {
                    roots.extend(directory.open_below(name)?.map(|found| granted(found, false)));
                }
            }
            roots.push(granted(directory, is_writable));
        }
        Ok(roots)
    }
}

/// The blocked files and directories within the roots, which grant all that they contain.
fn hidden_paths(
    blocked: &[FilePath],
    roots: &[GrantedDirectory],
    tier: Tier,
) -> Result<Vec<String>, ToolOutcome> {
    let mut hidden = Vec::new();
    for blocked in blocked {
        let contains = |root: &&GrantedDirectory| Path::new(blocked.as_str()).starts_with(&root.path);
        for root in roots.iter().filter(contains) {
            if is_hidden(blocked, root, tier)? {
                hidden.push(blocked.to_string());
            }
        }
    }
    Ok(hidden)
}

/// Grants the program itself, unless the command can read it already. One that does not exist fails to start.
fn grant_program(launch: &mut Launch, launcher: &Launcher) {
    let is_within = |path: &Path, directory: &str| path.starts_with(directory);
    let is_readable = |path: &Path| {
        let is_granted = launch.roots.iter().any(|root| is_within(path, &root.path));
        launcher.is_of_system(path)
            || (is_granted && !launch.hidden.iter().any(|hidden| is_within(path, hidden)))
    };
    if !launch.program.starts_with('/') || is_readable(Path::new(&launch.program)) {
        return;
    }
    let Ok(real) = std::fs::canonicalize(&launch.program) else { return };
    let (Some(path), Ok(handle)) = (real.to_str(), std::fs::File::open(&real)) else { return };
    if !is_readable(&real) {
        let handle = Arc::new(handle.into());
        launch.roots.push(GrantedDirectory { path: path.to_owned(), handle, is_writable: false });
    }
    launch.program = path.to_owned();
}

fn granted(directory: DirectoryHandle, is_writable: bool) -> GrantedDirectory {
    let DirectoryHandle { path, handle } = directory;
    GrantedDirectory { path: path.to_string(), handle: Arc::new(handle), is_writable }
}

fn open_cwd(cwd: &ReadPermit) -> Result<DirectoryHandle, ToolOutcome> {
    DirectoryHandle::open(cwd.file())?.ok_or_else(|| execution_failed("the working directory does not exist"))
}

/// Whether a blocked file or directory has to be hidden within a granted directory; an error if it cannot be.
fn is_hidden(blocked: &FilePath, root: &GrantedDirectory, tier: Tier) -> Result<bool, ToolOutcome> {
    let denied = |why: &str| {
        Err(ToolOutcome::Denied(format!(
            "Permission denied: commands cannot run with access to {}, because it contains {blocked}, which is \
             blocked{why}; use a directory that does not contain it",
            root.path
        )))
    };
    let hiding = hiding_of(blocked).map_err(|errno| execution_failed(format!("{blocked}: {errno}")))?;
    match (tier, hiding) {
        // Such a command sees everything.
        (Tier::Unconfined, _) => Ok(false),
        (Tier::Landlock, _) => denied(""),
        (Tier::Namespaces, Hiding::ByPath) => Ok(true),
        (Tier::Namespaces, Hiding::Missing) if root.is_writable => {
            denied(" and cannot be hidden, because it does not exist: create it")
        }
        (Tier::Namespaces, Hiding::Link) if root.is_writable => denied(
            " and cannot be hidden, because it is a symbolic link: block the directory that it leads to instead",
        ),
        (Tier::Namespaces, Hiding::Missing | Hiding::Link) => Ok(false),
        (Tier::Namespaces, Hiding::HasOtherNames) => {
            denied(" and cannot be hidden, because a file in it has other names (hard links): remove them")
        }
    }
}

impl StartedCommand {
    /// Reads the output until the command ends or the timeout passes; then the command is killed with its descendants.
    /// The sink gets the output as it arrives.
    pub(crate) async fn finish(mut self, timeout: Duration, sink: &dyn ToolOutputSink) -> FinishedCommand {
        let (mut stdout, mut stderr) =
            (CapturedOutput::new(OUTPUT_LIMITS), CapturedOutput::new(OUTPUT_LIMITS));
        let read = async {
            while let Some((stream, bytes)) = self.running.next_output().await {
                let (captured, stream) = match stream {
                    OutputStream::Stdout => (&mut stdout, ToolOutputStream::Stdout),
                    OutputStream::Stderr => (&mut stderr, ToolOutputStream::Stderr),
                };
                captured.push(&bytes);
                sink.push(stream, &bytes);
            }
        };
        let is_in_time = tokio::time::timeout(timeout, read).await.is_ok();
        let exit = self.running.exit().cloned().filter(|_| is_in_time);
        if !is_in_time {
            self.running.kill();
            let died = async { while self.running.next_output().await.is_some() {} };
            let _ = tokio::time::timeout(KILL_TIME_MAX, died).await;
        }
        FinishedCommand { exit, stdout: stdout.text(), stderr: stderr.text() }
    }

    /// Passes text to the standard input of the command, then closes it. Runs on a thread of its own: a command that does
    /// not read would block it until it ends.
    pub(crate) fn feed(&mut self, text: String) {
        let Some(mut stdin) = self.running.take_stdin() else { return };
        tokio::task::spawn_blocking(move || {
            use std::io::Write;
            // An error means that the command does not read its input to the end.
            let _ = stdin.write_all(text.as_bytes());
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_dead_processes_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let mut runner = CommandRunner::refusing("this test runs no commands");
        runner.options.temporary_directory = base.path().to_owned();
        let own = runner.temporary_directory().unwrap();
        // Above the largest process id.
        let stale = base.path().join("nexus3-command-4294967295-x/deep");
        let foreign = base.path().join("nexus3-command-x");
        for directory in [&stale, &foreign] {
            std::fs::create_dir_all(directory).unwrap();
        }
        runner.remove_stale_directories();
        assert!(own.path().exists() && foreign.exists());
        assert!(!stale.parent().unwrap().exists());
    }
}
