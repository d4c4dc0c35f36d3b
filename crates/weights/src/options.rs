//! Options of a pull: programs, addresses, timeouts and size limits.

use std::path::PathBuf;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Options of a pull.
#[derive(Debug, Clone)]
pub struct PullOptions {
    /// Python interpreter with the user's pip.
    pub python: PathBuf,
    /// Base URL of the hub: `https://…`, or `http://` on loopback. Without it, hub sources fail.
    pub hub_base: Option<String>,
    /// Cancels the pull; the partial download stays, and the next pull resumes it.
    pub cancel: CancellationToken,
    /// Time to establish a connection.
    pub connect_timeout: Duration,
    /// Longest time without progress, of a server or of pip.
    pub idle_timeout: Duration,
    /// Most consecutive retries without progress.
    pub retries_max: u32,
    /// First backoff before a retry; each further one is twice as long.
    pub backoff_first: Duration,
    /// Longest backoff, which also bounds `Retry-After`.
    pub backoff_max: Duration,
    /// Largest file accepted when its size is not known beforehand.
    pub file_bytes_max: u64,
    /// Downloaded bytes between two fsyncs.
    pub sync_every_bytes: u64,
    /// Bytes that must stay free on the disk.
    pub spare_bytes: u64,
}

impl Default for PullOptions {
    fn default() -> Self {
        Self {
            python: PathBuf::from("python3"),
            hub_base: None,
            cancel: CancellationToken::new(),
            connect_timeout: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(120),
            retries_max: 5,
            backoff_first: Duration::from_millis(500),
            backoff_max: Duration::from_secs(60),
            file_bytes_max: 64 * GIB,
            sync_every_bytes: 32 * MIB,
            spare_bytes: 64 * MIB,
        }
    }
}
