//! Wall time of a turn, debited in milliseconds to the agent's budget.

use std::time::Duration;

use agent::permission::Resource;
use tokio::time::Instant;

use crate::lineage::LineageNode;

pub(super) struct WallTime {
    /// Time up to which the turn is debited.
    debited_until: Instant,
}

impl WallTime {
    pub(super) fn start() -> Self {
        Self { debited_until: Instant::now() }
    }

    /// Debits whole milliseconds; carries the remainder over.
    pub(super) fn debit(&mut self, node: &LineageNode) {
        let ms = self.debited_until.elapsed().as_millis();
        let ms = u64::try_from(ms).unwrap_or(u64::MAX);
        if ms > 0 {
            node.record_usage(Resource::WallMs, ms);
            self.debited_until += Duration::from_millis(ms);
        }
    }

    /// Returns the remaining run time; `None` is unlimited.
    pub(super) fn remaining(&self, node: &LineageNode) -> Option<Duration> {
        let remaining = Duration::from_millis(node.remaining(Resource::WallMs)?);
        Some(remaining.saturating_sub(self.debited_until.elapsed()))
    }
}
