//! What the process asks of the operating system: time, random bytes, descriptors, and to be left alone by debuggers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use agent::outside::{Clock, Entropy, Timestamp};
use agent::{Fault, FaultKind};
use jiff::tz::TimeZone;
use rustix::process::{Resource, Rlimit};

/// The variable that names places to fail at on purpose. Only builds for tests look at it.
pub(crate) const FAILPOINTS_VARIABLE: &str = "NEXUS3_FAILPOINTS";

/// The variable that names a file with seconds to add to the time, which may change. Only builds for tests look at it.
pub(crate) const CLOCK_FILE_VARIABLE: &str = "NEXUS3_CLOCK_FILE";

/// The machine's clock.
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

/// The machine's clock as if somebody set it now and then: for tests.
struct OffsetClock {
    /// Holds the seconds to add; none when it cannot be read.
    file: PathBuf,
}

impl Clock for OffsetClock {
    fn now(&self) -> Timestamp {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        let seconds: i64 = text.trim().parse().unwrap_or_default();
        Timestamp(SystemClock.now().0.saturating_add(seconds.saturating_mul(1_000_000)))
    }
}

/// The clock, set by this file if there is one.
pub(crate) fn open_clock(file: Option<String>) -> Arc<dyn Clock> {
    match file {
        None => Arc::new(SystemClock),
        Some(file) => Arc::new(OffsetClock { file: file.into() }),
    }
}

/// The machine's random bytes.
pub(crate) struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), Fault> {
        getrandom::fill(bytes)
            .map_err(|fault| Fault::new(FaultKind::Internal, "no random bytes can be had").caused_by(fault))
    }
}

/// A name for a send made at the command line. A name that repeats is refused by the daemon unless the send does too, so
/// time will do when there are no random bytes.
pub(crate) fn generate_request_id() -> String {
    let mut bytes = [0; 8];
    if getrandom::fill(&mut bytes).is_err() {
        bytes = SystemClock.now().0.to_be_bytes();
    }
    format!("{:016x}", u64::from_be_bytes(bytes))
}

/// Takes all descriptors the process may have: a connection needs one.
pub(crate) fn raise_descriptor_limit() -> Option<u64> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match rustix::process::setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}

/// Keeps the token and the model's key out of core files and of other processes of the same user.
pub(crate) fn forbid_memory_dumps() {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let core = rustix::process::setrlimit(Resource::Core, none);
    let dumpable = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    if core.is_err() || dumpable.is_err() {
        tracing::warn!(
            "the operating system does not hide this process's memory from others of the same user"
        );
    }
}
