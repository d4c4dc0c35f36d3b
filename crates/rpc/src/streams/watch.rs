//! Event subscriptions of clients, from a given journal sequence on.

use agent::Fault;
use agent::journal::{Record, Serial};
use futures_util::stream;
use nexus3_protocol::events::EventQuery;
use nexus3_protocol::{Access, Method, sse};
use runtime::{AgentRef, BusEvent, EventScope, PoolHandle, Subscription};

use super::event_filter::{EventFilter, Visibility};
use super::{EventBytes, StreamError, encode_event};
use crate::caller::{Caller, Principal};
use crate::dispatcher::{Dispatcher, Target, TargetKind};
use crate::events::event;
use crate::operation::{Handler, Operation};

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
        self.invoke::<WatchEvents>(target, caller, query).await.map_err(StreamError::from)
    }
}

/// Operation: watch the events of an agent or, at the daemon's door, of all agents that the principal may see.
struct WatchEvents;

/// Reading an agent's events needs the same permission as reading its messages.
pub(super) const EVENTS_ACCESS: Access = Method::GetMessages.access();

impl Operation for WatchEvents {
    const NAME: &'static str = "events";
    type Params = EventQuery;
    type Output = EventBytes;
    /// The watched agent; `None` for all agents.
    type Subject = Option<AgentRef>;

    async fn authorize(
        dispatcher: &Dispatcher,
        target: &Target,
        principal: &Principal,
        _: &EventQuery,
    ) -> Result<Option<AgentRef>, Fault> {
        match &target.0 {
            TargetKind::Daemon => Ok(None),
            TargetKind::Agent(agent) => {
                dispatcher.authorize(principal, agent, EVENTS_ACCESS, Self::NAME).await?;
                Ok(Some(agent.clone()))
            }
        }
    }
}

impl Handler<WatchEvents> for Dispatcher {
    async fn handle(
        &self,
        principal: &Principal,
        agent: &Option<AgentRef>,
        query: EventQuery,
    ) -> Result<EventBytes, Fault> {
        let scope = match agent {
            None => EventScope::All,
            Some(agent) => EventScope::Agent(self.pool.wake(agent).await?),
        };
        let event_filter = EventFilter::for_principal(principal, &self.pool);
        let subscription = self.pool.subscribe(scope, query.after).await?;
        let starts_after = query.after.is_none().then(|| subscription.cursor());
        let (pool, agent) = (self.pool.clone(), agent.as_ref().map(AgentRef::serial));
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
