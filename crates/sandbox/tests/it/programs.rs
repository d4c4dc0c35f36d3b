//! Runs the launcher of the tests, as this user and, if that is root, as an unprivileged user.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sandbox::{ResourceLimits, Tier};
use serde_json::json;
use tempfile::TempDir;

/// The user without privileges, as root is not.
const UNPRIVILEGED: u32 = 65534;

/// The users that a test runs as.
pub(crate) fn users() -> Vec<u32> {
    let own = rustix::process::geteuid().as_raw();
    if own == 0 { vec![own, UNPRIVILEGED] } else { vec![own] }
}

/// A directory of one user, with the programs, a granted directory and one beside it.
pub(crate) struct Programs {
    directory: TempDir,
    user: u32,
}

impl Programs {
    pub(crate) fn new(user: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let programs = Self { directory, user };
        fs::create_dir(programs.path("bin")).unwrap();
        for (name, built) in [
            ("helper", env!("CARGO_BIN_EXE_sandbox-helper")),
            ("hostile", env!("CARGO_BIN_EXE_sandbox-hostile")),
            ("launcher", env!("CARGO_BIN_EXE_sandbox-launcher")),
        ] {
            programs.copy(built, &format!("bin/{name}"));
        }
        for directory in ["inside", "outside", "outside/empty"] {
            fs::create_dir(programs.path(directory)).unwrap();
            programs.own(directory);
        }
        for file in ["secret", "removable", "movable", "exchangeable"] {
            programs.write(&format!("outside/{file}"), "secret");
        }
        programs
    }

    /// A path in the directory, without symbolic links.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.directory.path()).unwrap().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Writes a file that the user owns.
    pub(crate) fn write(&self, name: &str, content: &str) {
        fs::write(self.path(name), content).unwrap();
        self.own(name);
    }

    /// Copies a program, by another process: while this one has a program open for writing, a child that another test
    /// starts inherits it, and the program cannot be executed.
    pub(crate) fn copy(&self, from: &str, name: &str) {
        assert!(Command::new("cp").arg(from).arg(self.path(name)).status().unwrap().success());
    }

    pub(crate) fn own(&self, name: &str) {
        chown(self.path(name), Some(self.user), Some(self.user)).unwrap();
    }

    /// The launcher as the user, with a command that runs the hostile program, in a tier or without a sandbox.
    pub(crate) fn hostile(&self, tier: Option<Tier>, arguments: &[&str]) -> Command {
        self.hostile_within(tier, arguments, None)
    }

    /// The same with resource limits.
    pub(crate) fn hostile_within(
        &self,
        tier: Option<Tier>,
        arguments: &[&str],
        limits: Option<ResourceLimits>,
    ) -> Command {
        let roots = json!([[self.text("inside"), true], [self.text("bin"), false]]);
        self.launcher(&json!({
            "helper": self.text("bin/helper"),
            "tier": tier,
            "roots": roots,
            "cwd": self.text("inside"),
            "program": self.text("bin/hostile"),
            "arguments": arguments,
            "limits": limits,
            "leaked": self.text("outside"),
        }))
    }

    /// The launcher as the user.
    pub(crate) fn launcher(&self, order: &serde_json::Value) -> Command {
        as_user(self.user, &self.path("bin/launcher"), &order.to_string())
    }
}

fn as_user(user: u32, program: &Path, argument: &str) -> Command {
    let mut command = if rustix::process::geteuid().as_raw() == user {
        Command::new(program)
    } else {
        let mut command = Command::new("setpriv");
        let user = user.to_string();
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]).arg(program);
        command
    };
    command
        .arg(argument)
        .env_clear()
        .env("SECRET", "of the daemon")
        .env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command.current_dir("/").stdin(Stdio::null());
    command
}
