//! Background work of a pool: after a start it destroys temporary agents and resumes open turns, and it prunes old
//! request ids.

use std::sync::Arc;
use std::time::Duration;

use agent::journal::Serial;
use agent::outside::Timestamp;
use agent::{Fault, FaultKind, PrincipalId};

use super::Pool;
use crate::handle::AgentRef;

/// Interval between two deletions of old request ids.
const PRUNE_INTERVAL: Duration = Duration::from_secs(600);

/// Agents woken concurrently to resume their turns.
const RESUMES_RUNNING_MAX: usize = 64;

impl Pool {
    /// Destroys temporary agents, which do not survive a restart. Their descendants that are not temporary do.
    pub(super) async fn destroy_temporary_agents(self: &Arc<Self>) -> Result<(), Fault> {
        for serial in self.directory.temporary() {
            self.destroy(serial, super::ChildPolicy::Orphan, &PrincipalId::Restart).await?;
        }
        Ok(())
    }

    /// Wakes agents with open turns, which are resumed or marked as interrupted.
    pub(super) fn resume_open_turns(self: &Arc<Self>, serials: Vec<Serial>) {
        if serials.is_empty() {
            return;
        }
        tracing::info!("{} agents had open turns when the daemon stopped; resuming them", serials.len());
        self.resume_agents(serials);
    }

    /// Resumes an agent's open turns after a delay: after a commit failed for lack of disk space, they continue when
    /// there may be space again, even without a call.
    pub(crate) fn resume_later(self: &Arc<Self>, serial: Serial, after: Duration) {
        let (pool, stop) = (Arc::downgrade(self), self.stop_requested.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(after) => {}
                () = stop.cancelled() => return,
            }
            if let Some(pool) = pool.upgrade() {
                pool.resume_agents(vec![serial]);
            }
        });
    }

    fn resume_agents(self: &Arc<Self>, serials: Vec<Serial>) {
        let pool = Arc::downgrade(self);
        let admission = Arc::clone(&self.admission);
        self.tasks.spawn(async move {
            let wake = |serial| {
                let pool = pool.upgrade();
                async move {
                    let Some(pool) = pool else { return };
                    let Some(id) = pool.directory.id_of(serial) else { return };
                    let agent = AgentRef { serial, id };
                    while let Err(fault) = pool.wake(&agent).await {
                        let FaultKind::Busy { retry_after_ms } = fault.kind else {
                            return tracing::error!(agent = %agent.id, "could not resume an open turn: {fault}");
                        };
                        if pool.stop_requested.is_cancelled() {
                            return;
                        }
                        tokio::time::sleep(Duration::from_millis(retry_after_ms)).await;
                    }
                }
            };
            use futures_util::StreamExt;
            let wakes = futures_util::stream::iter(serials).map(wake).buffer_unordered(RESUMES_RUNNING_MAX);
            tokio::select! {
                () = wakes.collect::<()>() => {}
                () = admission.abort.cancelled() => {}
            }
        });
    }

    /// Deletes the request ids and responses of ended turns after the retention time, periodically.
    pub(super) fn prune_old_turns(self: &Arc<Self>) {
        let (store, clock) = (Arc::clone(&self.outside.store), Arc::clone(&self.outside.clock));
        let retention = i64::try_from(self.limits.request_retention.as_micros()).unwrap_or(i64::MAX);
        let stop = self.stop_requested.clone();
        self.tasks.spawn(async move {
            let prune = async {
                loop {
                    let before = Timestamp(clock.now().0.saturating_sub(retention));
                    if let Err(fault) = store.prune_turns(before).await {
                        tracing::warn!("could not prune old turns: {fault}");
                    }
                    tokio::time::sleep(PRUNE_INTERVAL).await;
                }
            };
            tokio::select! {
                () = prune => {}
                () = stop.cancelled() => {}
            }
        });
    }
}
