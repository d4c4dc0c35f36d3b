//! How long a turn has run, paid for in milliseconds from the agent's budget.

use std::time::Duration;

use agent::permission::Resource;
use tokio::time::Instant;

use crate::kin::Kin;

pub(super) struct WallTime {
    /// What came before is paid.
    paid_until: Instant,
}

impl WallTime {
    pub(super) fn start() -> Self {
        Self { paid_until: Instant::now() }
    }

    /// Pays for whole milliseconds; the rest is paid later.
    pub(super) fn pay(&mut self, kin: &Kin) {
        let ms = self.paid_until.elapsed().as_millis();
        let ms = u64::try_from(ms).unwrap_or(u64::MAX);
        if ms > 0 {
            kin.record(Resource::WallMs, ms);
            self.paid_until += Duration::from_millis(ms);
        }
    }

    /// How long the turn may still run; none is no limit.
    pub(super) fn left(&self, kin: &Kin) -> Option<Duration> {
        let left = Duration::from_millis(kin.left(Resource::WallMs)?);
        Some(left.saturating_sub(self.paid_until.elapsed()))
    }
}
