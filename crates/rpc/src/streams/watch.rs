//! Watching what happens, from a place in the journal on.

use agent::Fault;
use agent::journal::{Record, Serial};
use futures_util::stream;
use nexus3_protocol::events::EventQuery;
use nexus3_protocol::sse;
use runtime::{BusEvent, EventScope, PoolHandle, Subscription};

use super::event_filter::{EventFilter, Visibility};
use super::{EventBytes, StreamError, encode_event};
use crate::caller::{Caller, Operation};
use crate::dispatcher::{Dispatcher, Target, TargetKind};
use crate::events::event;

/// One watcher.
struct Watch {
    pool: PoolHandle,
    subscription: Subscription,
    event_filter: EventFilter,
    query: EventQuery,
    /// The agent that is watched; all when there is none.
    agent: Option<Serial>,
    has_ended: bool,
}

impl Dispatcher {
    /// Begins to watch: at the daemon's door everybody that the caller may see, at an agent's door that agent.
    ///
    /// # Errors
    /// When the caller may not, or the journal cannot be read.
    pub async fn watch(
        &self,
        entrance: &Target,
        caller: &Caller,
        query: EventQuery,
    ) -> Result<EventBytes, StreamError> {
        self.start_watch(entrance, caller, query).await.map_err(|fault| {
            self.audited_error(&fault, caller, Operation::EVENTS);
            StreamError::from(&fault)
        })
    }

    async fn start_watch(
        &self,
        entrance: &Target,
        caller: &Caller,
        query: EventQuery,
    ) -> Result<EventBytes, Fault> {
        let (scope, agent) = match &entrance.0 {
            TargetKind::Daemon => (EventScope::All, None),
            TargetKind::Agent(agent) => {
                caller.authorize(&self.pool, agent, Operation::EVENTS).await?;
                (EventScope::Agent(self.pool.wake(agent).await?), Some(agent.serial()))
            }
        };
        let sight = EventFilter::for_principal(caller.principal(&self.pool)?, &self.pool);
        let subscription = self.pool.subscribe(scope, query.after).await?;
        let begins_behind = query.after.is_none().then(|| subscription.cursor());
        let watch = Watch {
            pool: self.pool.clone(),
            subscription,
            event_filter: sight,
            query,
            agent,
            has_ended: false,
        };
        let pieces =
            stream::unfold(watch, |mut watch| async move { watch.next().await.map(|piece| (piece, watch)) });
        Ok(EventBytes::new(pieces).starting_after(begins_behind))
    }
}

impl Watch {
    async fn next(&mut self) -> Option<Vec<u8>> {
        while !self.has_ended {
            let item = match self.subscription.next().await {
                Ok(item) => item,
                Err(fault) => return Some(self.journal_error_comment(&fault)),
            };
            self.event_filter.refresh(&self.pool).await;
            let look = self.event_filter.visibility(&self.pool, &item);
            self.has_ended = look == Visibility::Ended || self.is_last(&item);
            if look != Visibility::Visible {
                continue;
            }
            let event = event(&item);
            if self.query.filter.matches(event.kind()) {
                return Some(encode_event(&event));
            }
        }
        None
    }

    /// Nothing follows the end of the one that is watched.
    fn is_last(&self, item: &BusEvent) -> bool {
        match item {
            BusEvent::Entry(entry) => {
                self.agent == Some(entry.agent) && matches!(entry.record, Record::Destroyed { .. })
            }
            BusEvent::Delta(_) | BusEvent::Gap { .. } | BusEvent::Lagged => false,
        }
    }

    /// The reader may come back to where it was.
    fn journal_error_comment(&mut self, fault: &Fault) -> Vec<u8> {
        let cause = fault.cause.as_deref().unwrap_or_default();
        tracing::error!(cause, "an event stream ends because the journal cannot be read: {fault}");
        self.has_ended = true;
        let mut bytes = Vec::new();
        sse::write_comment(&mut bytes, "the journal cannot be read");
        bytes
    }
}
