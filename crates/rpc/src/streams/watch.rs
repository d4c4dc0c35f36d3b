//! Event subscriptions of clients, from a given journal sequence on.

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

/// A client's event subscription.
struct Watch {
    pool: PoolHandle,
    subscription: Subscription,
    event_filter: EventFilter,
    query: EventQuery,
    /// The watched agent; `None` for all agents.
    agent: Option<Serial>,
    has_ended: bool,
}

impl Dispatcher {
    /// Subscribes to the events of one agent or, for the daemon, of all agents the caller may see.
    ///
    /// # Errors
    /// When the caller is not authorized, or the journal cannot be read.
    pub async fn watch(
        &self,
        target: &Target,
        caller: &Caller,
        query: EventQuery,
    ) -> Result<EventBytes, StreamError> {
        self.start_watch(target, caller, query).await.map_err(|fault| {
            self.audited_error(&fault, caller, Operation::EVENTS);
            StreamError::from(&fault)
        })
    }

    async fn start_watch(
        &self,
        target: &Target,
        caller: &Caller,
        query: EventQuery,
    ) -> Result<EventBytes, Fault> {
        let (scope, agent) = match &target.0 {
            TargetKind::Daemon => (EventScope::All, None),
            TargetKind::Agent(agent) => {
                caller.authorize(&self.pool, agent, Operation::EVENTS).await?;
                (EventScope::Agent(self.pool.wake(agent).await?), Some(agent.serial()))
            }
        };
        let event_filter = EventFilter::for_principal(caller.principal(&self.pool)?, &self.pool);
        let subscription = self.pool.subscribe(scope, query.after).await?;
        let starts_after = query.after.is_none().then(|| subscription.cursor());
        let pool = self.pool.clone();
        let watch = Watch { pool, subscription, event_filter, query, agent, has_ended: false };
        let chunks =
            stream::unfold(watch, |mut watch| async move { watch.next().await.map(|chunk| (chunk, watch)) });
        Ok(EventBytes::new(chunks).starting_after(starts_after))
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
            let visibility = self.event_filter.visibility(&self.pool, &item);
            self.has_ended = visibility == Visibility::Ended || self.is_last(&item);
            if visibility != Visibility::Visible {
                continue;
            }
            let event = event(&item);
            if self.query.filter.matches(event.kind()) {
                return Some(encode_event(&event));
            }
        }
        None
    }

    /// Whether the event destroys the watched agent, after which no event follows.
    fn is_last(&self, item: &BusEvent) -> bool {
        match item {
            BusEvent::Entry(entry) => {
                self.agent == Some(entry.agent) && matches!(entry.record, Record::Destroyed { .. })
            }
            BusEvent::Delta(_) | BusEvent::Gap { .. } | BusEvent::Lagged => false,
        }
    }

    /// Ends the stream with a comment. The client may reconnect and resume at its last event.
    fn journal_error_comment(&mut self, fault: &Fault) -> Vec<u8> {
        let cause = fault.cause.as_deref().unwrap_or_default();
        tracing::error!(cause, "event stream ended: the journal cannot be read: {fault}");
        self.has_ended = true;
        let mut bytes = Vec::new();
        sse::write_comment(&mut bytes, "the journal cannot be read");
        bytes
    }
}
