//! Starts one command and forwards its output: the daemon's part in the sandbox as a process of its own, so that tests can
//! run it as another user and kill it. Without a tier it runs the command without a sandbox, as a control.

#![expect(clippy::unwrap_used, reason = "a program of the tests fails by panicking")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::io::FdFlags;
use sandbox::{
    GrantedDirectory, Helper, Launch, Launcher, OutputStream, ResourceLimits, SystemDirectories, Tier,
};
use serde::Deserialize;

/// What to run; the first argument, as JSON. `{daemon}` in an argument becomes the id of this process.
#[derive(Deserialize)]
struct Order {
    helper: String,
    tier: Option<Tier>,
    /// Directories and whether they are writable.
    roots: Vec<(String, bool)>,
    /// What is hidden in them.
    #[serde(default)]
    hidden: Vec<String>,
    cwd: String,
    program: String,
    arguments: Vec<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    limits: Option<ResourceLimits>,
    /// A directory whose handle, and that of the file `secret` in it, the process holds without closing them on exec.
    leaked: Option<String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let order: Order = serde_json::from_str(&std::env::args().nth(1).unwrap()).unwrap();
    let _leaked = order.leaked.as_deref().map(leak);
    let daemon = std::process::id().to_string();
    let arguments: Vec<String> =
        order.arguments.iter().map(|argument| argument.replace("{daemon}", &daemon)).collect();
    match order.tier {
        None => run_plainly(&order, &arguments),
        Some(tier) => run_confined(&order, arguments, tier).await,
    }
}

fn run_plainly(order: &Order, arguments: &[String]) {
    let mut command = std::process::Command::new(&order.program);
    command.args(arguments).env_clear().envs(&order.environment).current_dir(&order.cwd);
    let status = command.stdin(std::process::Stdio::null()).status().unwrap();
    eprintln!("exit: {status}");
}

async fn run_confined(order: &Order, arguments: Vec<String>, tier: Tier) {
    let open = |path: &str| Arc::new(OwnedFd::from(File::open(path).unwrap()));
    let roots = order.roots.iter().map(|(path, is_writable)| GrantedDirectory {
        path: path.clone(),
        handle: open(path),
        is_writable: *is_writable,
    });
    let launch = Launch {
        program: order.program.clone(),
        arguments,
        environment: order.environment.clone().into_iter().collect(),
        cwd: order.cwd.clone(),
        cwd_handle: open(&order.cwd),
        roots: roots.collect(),
        hidden: order.hidden.clone(),
        has_stdin: false,
        limits: order.limits.unwrap_or_default(),
    };
    let helper =
        Helper { program: order.helper.clone().into(), arguments: vec!["sandbox-helper".to_owned()] };
    let system = Arc::new(SystemDirectories::new("/usr/local/bin:/usr/bin:/bin", &[]));
    let mut running = Launcher::new(helper, tier, system).start(launch).unwrap();
    while let Some((stream, bytes)) = running.next_output().await {
        match stream {
            OutputStream::Stdout => std::io::stdout().write_all(&bytes).unwrap(),
            OutputStream::Stderr => std::io::stderr().write_all(&bytes).unwrap(),
        }
        std::io::stdout().flush().unwrap();
    }
    eprintln!("exit: {:?}", running.exit().unwrap());
}

/// Opens a file, a directory and a socket that every child inherits, from descriptor 100 on.
fn leak(directory: &str) -> Vec<OwnedFd> {
    let (near, far) = UnixStream::pair().unwrap();
    let file = File::open(format!("{directory}/secret")).unwrap();
    let opened: [OwnedFd; 4] = [file.into(), File::open(directory).unwrap().into(), near.into(), far.into()];
    let leaked: Vec<OwnedFd> =
        opened.iter().map(|fd| rustix::io::fcntl_dupfd_cloexec(fd.as_fd(), 100).unwrap()).collect();
    leaked.iter().for_each(|fd| rustix::io::fcntl_setfd(fd, FdFlags::empty()).unwrap());
    leaked
}
