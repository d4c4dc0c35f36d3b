//! The clock double: time stands still until the test advances it.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use agent::outside::{Clock, Timestamp};

/// A clock that shows a fixed time, may be advanced, and may run code of the test at each reading.
pub struct TestClock {
    now: AtomicI64,
    at_reading: Option<Box<dyn Fn() + Send + Sync>>,
}

impl TestClock {
    /// The time that [`TestClock::default`] shows: 2023-11-14T22:13:20Z.
    pub const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

    /// A clock that shows this time.
    pub fn at(time: Timestamp) -> Self {
        Self { now: AtomicI64::new(time.0), at_reading: None }
    }

    /// A clock that runs this code before it shows [`TestClock::NOW`].
    pub fn calling(at_reading: impl Fn() + Send + Sync + 'static) -> Self {
        Self { at_reading: Some(Box::new(at_reading)), ..Self::default() }
    }

    /// Advances the clock.
    pub fn advance(&self, duration: Duration) {
        let micros = i64::try_from(duration.as_micros()).expect("a short duration");
        self.now.fetch_add(micros, Ordering::Relaxed);
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self::at(Self::NOW)
    }
}

impl fmt::Debug for TestClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TestClock").field(&self.now).finish()
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        if let Some(at_reading) = &self.at_reading {
            at_reading();
        }
        Timestamp(self.now.load(Ordering::Relaxed))
    }
}
