//! Measures what the sandbox costs a command: prints, per round, the milliseconds of `/bin/true` without a sandbox, in the
//! tier `landlock` and in the tier `namespaces`. It is its own helper, as the daemon is. `cargo xtask bench commands` runs it.

use std::error::Error;
use std::fs::File;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Instant;

use sandbox::{
    CommandExit, GrantedDirectory, HELPER_ARGUMENT, Helper, Launch, Launcher, ResourceLimits,
    SystemDirectories, Tier,
};

const ROUNDS: usize = 300;
const PROGRAM: &str = "/bin/true";

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(HELPER_ARGUMENT) {
        return sandbox::run_helper(&[]);
    }
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot measure commands: {error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn measure() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let directory = std::fs::canonicalize(directory.path())?;
    let path = directory.to_str().ok_or("the directory for temporary files is not UTF-8")?;
    let system = Arc::new(SystemDirectories::new("/usr/local/bin:/usr/bin:/bin", &[]));
    let [landlock, namespaces] = [Tier::Landlock, Tier::Namespaces]
        .map(|tier| Launcher::new(Helper::own_executable(), tier, Arc::clone(&system)));
    for _ in 0..ROUNDS {
        let plain = run_plainly(path).await?;
        let landlock = run_confined(&landlock, path).await?;
        let namespaces = run_confined(&namespaces, path).await?;
        println!("{plain} {landlock} {namespaces}");
    }
    Ok(())
}

/// Runs the program as tokio does, with `posix_spawn`, and reads its output.
async fn run_plainly(cwd: &str) -> Result<f64, Box<dyn Error>> {
    let started_at = Instant::now();
    let mut command = tokio::process::Command::new(PROGRAM);
    let output = command.env_clear().current_dir(cwd).stdin(Stdio::null()).output().await?;
    let time = milliseconds(started_at);
    if output.status.success() { Ok(time) } else { Err(output.status.to_string().into()) }
}

async fn run_confined(launcher: &Launcher, path: &str) -> Result<f64, Box<dyn Error>> {
    let started_at = Instant::now();
    let handle = Arc::new(File::open(path)?.into());
    let launch = Launch {
        program: PROGRAM.to_owned(),
        arguments: Vec::new(),
        environment: Vec::new(),
        cwd: path.to_owned(),
        cwd_handle: Arc::clone(&handle),
        roots: vec![GrantedDirectory { path: path.to_owned(), handle, is_writable: true }],
        hidden: Vec::new(),
        has_stdin: false,
        limits: ResourceLimits::default(),
    };
    let mut running = launcher.start(launch)?;
    while running.next_output().await.is_some() {}
    let time = milliseconds(started_at);
    match running.exit() {
        Some(CommandExit::Exited(0)) => Ok(time),
        exit => Err(format!("{}: {exit:?}", launcher.tier().name()).into()),
    }
}

fn milliseconds(started_at: Instant) -> f64 {
    started_at.elapsed().as_secs_f64() * 1e3
}
