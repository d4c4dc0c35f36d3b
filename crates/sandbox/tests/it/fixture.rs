//! A scratch directory and the commands that tests run in it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandbox::{
    CapturedOutput, CommandExit, GrantedDirectory, Helper, Launch, Launcher, OutputLimits, OutputStream,
    ResourceLimits, RunningCommand, SystemDirectories, Tier,
};
use tempfile::TempDir;

pub(crate) const TIERS: [Tier; 2] = [Tier::Landlock, Tier::Namespaces];

/// A granted directory, one beside it that is not granted, and a launcher.
pub(crate) struct Fixture {
    _directory: TempDir,
    pub(crate) inside: PathBuf,
    pub(crate) outside: PathBuf,
    pub(crate) launcher: Launcher,
}

/// The result of a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    pub(crate) exit: CommandExit,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn helper() -> Helper {
    Helper {
        program: env!("CARGO_BIN_EXE_sandbox-helper").into(),
        arguments: vec!["sandbox-helper".to_owned()],
    }
}

pub(crate) fn system() -> Arc<SystemDirectories> {
    Arc::new(SystemDirectories::new("/usr/local/bin:/usr/bin:/bin", &[]))
}

impl Fixture {
    pub(crate) fn new(tier: Tier) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(directory.path()).unwrap();
        let (inside, outside) = (base.join("inside"), base.join("outside"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("secret"), "secret").unwrap();
        Self { _directory: directory, inside, outside, launcher: Launcher::new(helper(), tier, system()) }
    }

    pub(crate) fn launch(&self, program: &str, arguments: &[&str]) -> Launch {
        let handle = Arc::new(File::open(&self.inside).unwrap().into());
        let path = self.inside.to_str().unwrap().to_owned();
        Launch {
            program: program.to_owned(),
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            environment: vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())],
            cwd: path.clone(),
            cwd_handle: Arc::clone(&handle),
            roots: vec![GrantedDirectory { path, handle, is_writable: true }],
            hidden: Vec::new(),
            has_stdin: false,
            limits: ResourceLimits::default(),
        }
    }

    pub(crate) fn shell(&self, line: &str) -> Launch {
        self.launch("sh", &["-c", line])
    }

    pub(crate) fn start(&self, launch: Launch) -> RunningCommand {
        self.launcher.start(launch).unwrap()
    }

    pub(crate) async fn run(&self, launch: Launch) -> Finished {
        finish(self.start(launch)).await
    }

    /// Runs a line in a shell and returns its result.
    pub(crate) async fn run_shell(&self, line: &str) -> Finished {
        self.run(self.shell(line)).await
    }
}

/// Reads all output of a command and its exit.
pub(crate) async fn finish(mut running: RunningCommand) -> Finished {
    let limits = OutputLimits { head_bytes_max: 1 << 20, tail_bytes_max: 1 << 20 };
    let (mut stdout, mut stderr) = (CapturedOutput::new(limits), CapturedOutput::new(limits));
    while let Some((stream, bytes)) = running.next_output().await {
        match stream {
            OutputStream::Stdout => stdout.push(&bytes),
            OutputStream::Stderr => stderr.push(&bytes),
        }
    }
    Finished { exit: running.exit().unwrap().clone(), stdout: stdout.text(), stderr: stderr.text() }
}

/// Whether a process lives.
pub(crate) fn is_alive(pid: &str) -> bool {
    // A zombie has been killed and waits for its parent.
    std::fs::read_to_string(Path::new("/proc").join(pid).join("stat"))
        .is_ok_and(|stat| !stat.contains(") Z "))
}
