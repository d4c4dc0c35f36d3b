//! Operating-system services of the process: clock, random bytes, descriptor limit, protection from memory dumps.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use agent::outside::{Clock, Entropy, Timestamp};
use agent::{Fault, FaultKind};
use jiff::tz::TimeZone;
use rustix::process::{Resource, Rlimit};

/// Environment variable with the failpoints to trigger. Only debug builds read it.
pub(crate) const FAILPOINTS_VARIABLE: &str = "NEXUS3_FAILPOINTS";

/// Environment variable with the path of a file that holds seconds to add to the time; the file may change while the
/// daemon runs. Only debug builds read it.
pub(crate) const CLOCK_FILE_VARIABLE: &str = "NEXUS3_CLOCK_FILE";

/// The system clock.
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    fn offset_minutes(&self, at: Timestamp) -> i32 {
        let instant = jiff::Timestamp::from_microsecond(at.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        TimeZone::system().to_offset(instant).seconds() / 60
    }
}

/// The system clock plus an offset from a file, for tests.
struct OffsetClock {
    /// File with the seconds to add; an unreadable file means 0.
    file: PathBuf,
}

impl Clock for OffsetClock {
    fn now(&self) -> Timestamp {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        let seconds: i64 = text.trim().parse().unwrap_or_default();
        Timestamp(SystemClock.now().0.saturating_add(seconds.saturating_mul(1_000_000)))
    }
}

/// Opens the system clock, or an offset clock that reads `file`.
pub(crate) fn open_clock(file: Option<String>) -> Arc<dyn Clock> {
    match file {
        None => Arc::new(SystemClock),
        Some(file) => Arc::new(OffsetClock { file: file.into() }),
    }
}

/// The system's random bytes.
pub(crate) struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), Fault> {
        getrandom::fill(bytes)
            .map_err(|fault| Fault::new(FaultKind::Internal, "cannot read random bytes").caused_by(fault))
    }
}

/// Generates a request id for a send from the command line. Without random bytes, it uses the time: the daemon rejects
/// a duplicate id with different content, so that a collision cannot go unnoticed.
pub(crate) fn generate_request_id() -> String {
    let mut bytes = [0; 8];
    if getrandom::fill(&mut bytes).is_err() {
        bytes = SystemClock.now().0.to_be_bytes();
    }
    format!("{:016x}", u64::from_be_bytes(bytes))
}

/// Raises the limit of file descriptors to the maximum, since each connection needs one; returns the limit.
pub(crate) fn raise_descriptor_limit() -> Option<u64> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match rustix::process::setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}

/// Keeps the token and API keys out of core dumps and away from other processes of the same user.
pub(crate) fn forbid_memory_dumps() {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let core = rustix::process::setrlimit(Resource::Core, none);
    let dumpable = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    if core.is_err() || dumpable.is_err() {
        tracing::warn!(
            "cannot disable memory dumps: other processes of this user may read the token and API keys"
        );
    }
}
