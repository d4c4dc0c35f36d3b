//! How long a turn has run, paid for in milliseconds from the agent's budget.

use std::time::Duration;

use agent::permission::Resource;
use tokio::time::Instant;

use crate::lineage::LineageNode;

pub(super) struct WallTime {
    /// What came before is paid.
    debited_until: Instant,
}

impl WallTime {
    pub(super) fn start() -> Self {
        Self { debited_until: Instant::now() }
    }

    /// Pays for whole milliseconds; the rest is paid later.
    pub(super) fn debit(&mut self, kin: &LineageNode) {
        let ms = self.debited_until.elapsed().as_millis();
        let ms = u64::try_from(ms).unwrap_or(u64::MAX);
        if ms > 0 {
            kin.record_usage(Resource::WallMs, ms);
            self.debited_until += Duration::from_millis(ms);
        }
    }

    /// How long the turn may still run; none is no limit.
    pub(super) fn remaining(&self, kin: &LineageNode) -> Option<Duration> {
        let left = Duration::from_millis(kin.remaining(Resource::WallMs)?);
        Some(left.saturating_sub(self.debited_until.elapsed()))
    }
}
