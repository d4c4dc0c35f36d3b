//! The request of the daemon to the helper, and the helper's reports: JSON frames on the control socket.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// How a command is confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Not confined: the access of the daemon's user. Supervised like the others, so that nothing outlives the command.
    Unconfined,
    /// Landlock, seccomp, no capabilities, resource limits.
    Landlock,
    /// The same in namespaces of its own: it sees only the granted files, its own processes and no network device.
    Namespaces,
}

impl Tier {
    /// The name in logs and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Tier::Unconfined => "unconfined",
            Tier::Landlock => "landlock",
            Tier::Namespaces => "namespaces",
        }
    }
}

/// Resource limits of one command. Each process of the command has those for files and memory of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// The longest file that it may write.
    pub file_bytes_max: u64,
    /// Private memory of a process.
    pub memory_bytes_max: u64,
    /// Open descriptors of a process.
    pub open_files_max: u64,
    /// Processes and threads. The kernel applies it to all processes of a user other than root; the supervisor kills a
    /// command that has more.
    pub processes_max: u64,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        Self { file_bytes_max: 4 << 30, memory_bytes_max: 4 << 30, open_files_max: 4096, processes_max: 4096 }
    }
}

/// What a command may do with a granted file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Access {
    /// Read files, list directories, execute programs.
    Read,
    /// Read files and list directories, but execute nothing.
    ReadData,
    /// Also change files and directories.
    Write,
    /// List the directory itself and what is in it, but read no file.
    List,
    /// Read from and write to a device.
    Device,
}

/// A granted file or directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rule {
    pub(crate) path: String,
    pub(crate) access: Access,
}

/// What the helper shall run.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Payload {
    /// A program with its arguments and its complete environment.
    Program { path: String, arguments: Vec<String>, environment: Vec<(String, String)> },
    /// A built-in of this name. It gets no access to system directories.
    BuiltIn(String),
}

impl Payload {
    pub(crate) fn is_built_in(&self) -> bool {
        matches!(self, Payload::BuiltIn(_))
    }
}

/// What the helper shall run, and how. Descriptors come with it, in this order: the working directory, the command's
/// standard input if `has_stdin`, then one for each rule of `held`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HelperRequest {
    pub(crate) payload: Payload,
    pub(crate) cwd: String,
    pub(crate) has_stdin: bool,
    /// Directories that the daemon holds open: the grant applies to these inodes, even if their paths change.
    pub(crate) held: Vec<Rule>,
    /// Files and directories within the held ones that the command shall not see. For namespaces only.
    pub(crate) hidden: Vec<String>,
    /// Files and directories of the system, opened by the helper. Missing ones are skipped.
    pub(crate) system: Vec<Rule>,
    pub(crate) limits: ResourceLimits,
    pub(crate) tier: Tier,
}

impl HelperRequest {
    /// Whether the path is hidden, or in a hidden directory.
    pub(crate) fn is_hidden(&self, path: &Path) -> bool {
        self.hidden.iter().any(|hidden| path.starts_with(hidden))
    }

    /// Whether a held directory contains the path, or is it.
    pub(crate) fn is_held(&self, path: &str) -> bool {
        self.held.iter().any(|held| Path::new(path).starts_with(&held.path))
    }
}

/// An order of the daemon while the command runs. When the socket closes, the helper kills the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Ask the command to end: SIGTERM to its process group.
    Terminate,
}

/// A report of the helper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// The command could not be started: the failed step and the reason.
    NotStarted(String),
    /// The command exited with this code; its descendants are dead.
    Exited(i32),
    /// A signal killed the command; its descendants are dead.
    Killed(i32),
    /// The supervisor killed the command with its descendants; the reason.
    Stopped(String),
}
