//! What a pull is told: programs, addresses, times and sizes. Every one has a bound.

use std::path::PathBuf;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// How a pull is done.
#[derive(Debug, Clone)]
pub struct PullOptions {
    /// The Python that has the user's pip.
    pub python: PathBuf,
    /// Where the hub is: `https://…`, or `http://` on this machine. Without it, sources on the hub are passed over.
    pub hub_base: Option<String>,
    /// Ends the pull; what is there is kept, and the next pull goes on from it.
    pub cancel: CancellationToken,
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// How long a server, or pip, may bring nothing.
    pub idle_timeout: Duration,
    /// How often the same is tried again when it brought nothing new.
    pub retries_max: u32,
    /// The first wait before a retry; each further one is twice as long.
    pub backoff_first: Duration,
    /// The longest wait before a retry, also when the server asks for a longer one.
    pub backoff_max: Duration,
    /// The largest file that is taken when nobody says how large it is.
    pub file_bytes_max: u64,
    /// Bytes after which what has come is made safe against a crash.
    pub sync_every_bytes: u64,
    /// Bytes that stay free on the disk.
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
