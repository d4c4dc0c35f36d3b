//! Event subscriptions of clients, from a given journal sequence on.

use agent::Fault;
use agent::journal::{DAEMON, Record, Serial};
use bytes::Bytes;
use futures_util::stream;
use nexus3_protocol::events::EventQuery;
use nexus3_protocol::{Access, Method, sse};
use runtime::{AgentRef, BusEvent, EventScope, PoolHandle, Subscription};

use super::encoded_events::{Encoding, PieceReader};
use super::event_filter::{EventFilter, Visibility};
use super::{EventBytes, StreamError, encode_event};
use crate::authorization::missing;
use crate::caller::{Caller, Principal};
use crate::dispatcher::{Dispatcher, Target, TargetKind};
use crate::events::{event, event_kind};
use crate::operation::{Handler, Operation};

/// A client's event subscription.
struct Watch {
    pool: PoolHandle,
    subscription: Subscription,
    event_filter: EventFilter,
    query: EventQuery,
    pieces: PieceReader,
    /// The agent of the event whose pieces are being read.
    event_agent: Serial,
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
            TargetKind::Missing(id) => Err(missing(principal, Self::NAME, id)),
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
        let pieces = self.encoded_events.reader();
        let watch = Watch {
            pool,
            subscription,
            event_filter,
            query,
            pieces,
            event_agent: DAEMON,
            agent,
            has_ended: false,
        };
        let chunks =
            stream::unfold(watch, |mut watch| async move { watch.next().await.map(|chunk| (chunk, watch)) });
        Ok(EventBytes::new(chunks).starting_after(starts_after))
    }
}

impl Watch {
    async fn next(&mut self) -> Option<Bytes> {
        if self.pieces.has_begun() {
            return self.next_piece().await;
        }
        while !self.has_ended {
            let item = match self.subscription.next().await {
                Ok(item) => item,
                Err(fault) => return Some(self.journal_error_comment(&fault)),
            };
            self.event_filter.refresh(&self.pool).await;
            let visibility = self.event_filter.visibility(&self.pool, &item);
            self.has_ended = visibility == Visibility::Ended || self.is_last(&item);
            if visibility == Visibility::Visible && self.query.filter.matches(event_kind(&item)) {
                return Some(self.begin(&item));
            }
        }
        None
    }

    fn begin(&mut self, item: &BusEvent) -> Bytes {
        match item {
            BusEvent::Entry(entry) => {
                self.event_agent = entry.agent;
                self.pieces.begin(Encoding::Event, entry)
            }
            BusEvent::Delta(_) | BusEvent::Gap { .. } | BusEvent::Lagged => encode_event(&event(item)).into(),
        }
    }

    /// Returns the next piece of an event. A reader that is slow may have lost the permission to see it: the stream
    /// then ends within the event, which the client discards.
    async fn next_piece(&mut self) -> Option<Bytes> {
        self.event_filter.refresh(&self.pool).await;
        if !self.event_filter.sees_agent(&self.pool, self.event_agent) {
            return None;
        }
        match self.pieces.next(&self.subscription).await {
            Ok(piece) => piece,
            Err(fault) => {
                self.log_journal_error(&fault);
                None
            }
        }
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
    fn journal_error_comment(&mut self, fault: &Fault) -> Bytes {
        self.log_journal_error(fault);
        self.has_ended = true;
        let mut bytes = Vec::new();
        sse::write_comment(&mut bytes, "the journal cannot be read");
        bytes.into()
    }

    fn log_journal_error(&self, fault: &Fault) {
        let cause = fault.cause.as_deref().unwrap_or_default();
        tracing::error!(cause, "event stream ended: the journal cannot be read: {fault}");
    }
}
