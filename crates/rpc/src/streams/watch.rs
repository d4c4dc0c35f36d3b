//! Watching what happens, from a place in the journal on.

use agent::Fault;
use agent::journal::{Record, Serial};
use futures_util::stream;
use nexus3_protocol::events::EventQuery;
use nexus3_protocol::sse;
use runtime::{FeedItem, FeedScope, PoolHandle, Subscription};

use super::sight::{Look, Sight};
use super::{EventStream, NoStream, written};
use crate::caller::{Caller, Errand};
use crate::desk::{Desk, Entrance, Place};
use crate::events::event;

/// One watcher.
struct Watch {
    pool: PoolHandle,
    subscription: Subscription,
    sight: Sight,
    query: EventQuery,
    /// The agent that is watched; all when there is none.
    agent: Option<Serial>,
    is_over: bool,
}

impl Desk {
    /// Begins to watch: at the daemon's door everybody that the caller may see, at an agent's door that agent.
    ///
    /// # Errors
    /// When the caller may not, or the journal cannot be read.
    pub async fn watch(
        &self,
        entrance: &Entrance,
        caller: &Caller,
        query: EventQuery,
    ) -> Result<EventStream, NoStream> {
        self.begin_to_watch(entrance, caller, query).await.map_err(|fault| {
            self.answered(&fault, caller, Errand::EVENTS);
            NoStream::from(&fault)
        })
    }

    async fn begin_to_watch(
        &self,
        entrance: &Entrance,
        caller: &Caller,
        query: EventQuery,
    ) -> Result<EventStream, Fault> {
        let (scope, agent) = match &entrance.0 {
            Place::Daemon => (FeedScope::All, None),
            Place::Agent(agent) => {
                caller.must_reach(&self.pool, agent, Errand::EVENTS).await?;
                (FeedScope::Agent(self.pool.wake(agent).await?), Some(agent.serial()))
            }
        };
        let sight = Sight::of(caller.principal(&self.pool)?, &self.pool);
        let subscription = self.pool.subscribe(scope, query.after).await?;
        let begins_behind = query.after.is_none().then(|| subscription.cursor());
        let watch = Watch { pool: self.pool.clone(), subscription, sight, query, agent, is_over: false };
        let pieces =
            stream::unfold(watch, |mut watch| async move { watch.next().await.map(|piece| (piece, watch)) });
        Ok(EventStream::of(pieces).beginning_behind(begins_behind))
    }
}

impl Watch {
    async fn next(&mut self) -> Option<Vec<u8>> {
        while !self.is_over {
            let item = match self.subscription.next().await {
                Ok(item) => item,
                Err(fault) => return Some(self.broken(&fault)),
            };
            self.sight.clear(&self.pool).await;
            let look = self.sight.look(&self.pool, &item);
            self.is_over = look == Look::Over || self.is_last(&item);
            if look != Look::Told {
                continue;
            }
            let event = event(&item);
            if self.query.filter.passes(event.kind()) {
                return Some(written(&event));
            }
        }
        None
    }

    /// Nothing follows the end of the one that is watched.
    fn is_last(&self, item: &FeedItem) -> bool {
        match item {
            FeedItem::Entry(entry) => {
                self.agent == Some(entry.agent) && matches!(entry.record, Record::Destroyed { .. })
            }
            FeedItem::Delta(_) | FeedItem::Gap { .. } | FeedItem::Lagged => false,
        }
    }

    /// The reader may come back to where it was.
    fn broken(&mut self, fault: &Fault) -> Vec<u8> {
        let cause = fault.cause.as_deref().unwrap_or_default();
        tracing::error!(cause, "an event stream ends because the journal cannot be read: {fault}");
        self.is_over = true;
        let mut bytes = Vec::new();
        sse::write_comment(&mut bytes, "the journal cannot be read");
        bytes
    }
}
