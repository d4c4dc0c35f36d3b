//! Everything a client can see happen: one list of events, the types of what they carry, and how they are written on an
//! event stream. What is kept is what the daemon's journal holds; the rest is told while it happens and then gone.

mod payloads;
mod query;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use payloads::{
    AgentCreated, AgentDestroyed, AgentFinished, AgentRenamed, ContextCompacted, DaemonStarted,
    DaemonStopped, Denied, Gap, Lagged, MessageEvent, NotJournalled, PermissionsChanged, PermissionsView,
    ReasoningDelta, RolledBack, Steered, TextDelta, ToolBegun, ToolDone, TurnAccepted, TurnBegun, TurnEnded,
    TurnError, TurnReopened,
};
pub use query::{EventKindFilter, EventQuery, QueryFault, parse_cursor};

use crate::methods::Count;
use crate::sse;

/// The kind of the last event of a streamed `send`; its data is the JSON-RPC response and nothing else.
pub const RESPONSE_EVENT: &str = "response";

macro_rules! define_events {
    (
        journal { $( $(#[doc = $journal_doc:literal])* $journal:ident = $journal_name:literal; )* }
        live { $( $(#[doc = $live_doc:literal])* $live:ident = $live_name:literal; )* }
    ) => {
        /// An event's kind.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum EventKind {
            $( $(#[doc = $journal_doc])* $journal, )*
            $( $(#[doc = $live_doc])* $live, )*
        }

        impl EventKind {
            /// The whole list, in order.
            pub const ALL: &'static [EventKind] = &[ $( EventKind::$journal, )* $( EventKind::$live, )* ];

            /// The name on the wire.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $( EventKind::$journal => $journal_name, )*
                    $( EventKind::$live => $live_name, )*
                }
            }

            /// All names, for whoever gave another one. One by one: `join` of a list whose length the compiler knows
            /// makes it work for minutes.
            #[must_use]
            #[inline(never)]
            pub fn choices() -> String {
                let mut choices = String::new();
                for kind in Self::ALL {
                    if !choices.is_empty() {
                        choices.push_str(", ");
                    }
                    choices.push_str(kind.name());
                }
                choices
            }

            /// What it means, for people.
            #[must_use]
            pub fn doc(self) -> &'static str {
                match self {
                    $( EventKind::$journal => concat!($( $journal_doc, "\n" ),*).trim_ascii(), )*
                    $( EventKind::$live => concat!($( $live_doc, "\n" ),*).trim_ascii(), )*
                }
            }

            /// Whether it is kept in the journal, and can be read again.
            #[must_use]
            pub fn is_journalled(self) -> bool {
                match self {
                    $( EventKind::$journal => true, )*
                    $( EventKind::$live => false, )*
                }
            }

            /// Finds a kind by its name on the wire.
            #[must_use]
            pub fn find(name: &str) -> Option<EventKind> {
                match name {
                    $( $journal_name => Some(EventKind::$journal), )*
                    $( $live_name => Some(EventKind::$live), )*
                    _ => None,
                }
            }
        }

        /// What happened and is kept: one variant for each record of the journal.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind")]
        pub enum JournalRecord {
            $( $(#[doc = $journal_doc])* #[serde(rename = $journal_name)] $journal($journal), )*
        }

        impl JournalRecord {
            /// Its kind.
            #[must_use]
            pub fn kind(&self) -> EventKind {
                match self { $( JournalRecord::$journal(_) => EventKind::$journal, )* }
            }
        }

        /// What happens and is not kept.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(tag = "kind")]
        pub enum LiveEvent {
            $( $(#[doc = $live_doc])* #[serde(rename = $live_name)] $live($live), )*
        }

        impl LiveEvent {
            /// Its kind.
            #[must_use]
            pub fn kind(&self) -> EventKind {
                match self { $( LiveEvent::$live(_) => EventKind::$live, )* }
            }
        }

        #[cfg(feature = "schema")]
        pub(crate) fn event_schema(kind: EventKind, generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
            match kind {
                $( EventKind::$journal => <$journal as schemars::JsonSchema>::json_schema(generator), )*
                $( EventKind::$live => <$live as schemars::JsonSchema>::json_schema(generator), )*
            }
        }
    };
}

define_events! {
    journal {
        /// An agent was made.
        AgentCreated = "agent_created";
        /// An agent was given other rights.
        PermissionsChanged = "permissions_changed";
        /// An agent got another name. Its later events bear it.
        AgentRenamed = "agent_renamed";
        /// An agent was told that it is finished.
        AgentFinished = "agent_finished";
        /// An agent is gone. The stream of that agent ends with this.
        AgentDestroyed = "agent_destroyed";
        /// A message was taken; its turn will come. From here on the message is never lost.
        TurnAccepted = "turn_accepted";
        /// A turn began: the message that was taken is in the context now. No `message` is told for it.
        TurnBegun = "turn_begun";
        /// A message came into the context: an answer of the model, the result of a tool, or a word that was added.
        MessageEvent = "message";
        /// Somebody added a word to the turn. It comes into the context, as a `message`, before the model is asked
        /// again.
        Steered = "steered";
        /// A tool call is about to run.
        ToolBegun = "tool_begun";
        /// A tool call is done while others of the same answer still run. The last one to end is told by the `message`s
        /// of all results.
        ToolDone = "tool_done";
        /// A turn is over, for good unless it was interrupted.
        TurnEnded = "turn_ended";
        /// An interrupted turn goes on.
        TurnReopened = "turn_reopened";
        /// The newest messages of a context were taken away.
        RolledBack = "rolled_back";
        /// A context was made shorter: older messages were summed up, or dropped. What they were stays in the journal.
        ContextCompacted = "context_compacted";
        /// Something was not allowed.
        Denied = "denied";
        /// The daemon began to serve. Only admins see it.
        DaemonStarted = "daemon_started";
        /// The daemon stopped in order. Only admins see it.
        DaemonStopped = "daemon_stopped";
    }
    live {
        /// The model said more. All of it comes again in a `message` when the answer is complete.
        TextDelta = "text_delta";
        /// The model thinks. What it thinks is shown and never kept.
        ReasoningDelta = "reasoning_delta";
        /// The cursor is not in the journal, so events may be missing. The stream goes on at `first`. Told whatever the
        /// filter.
        Gap = "gap";
        /// The reader was too slow: deltas were dropped. Events of the journal follow and none of them is missing. Told
        /// whatever the filter.
        Lagged = "lagged";
    }
}

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Kept in the journal.
    Journalled(Box<JournalEvent>),
    /// Told while it happens.
    Live(LiveEvent),
}

/// An event of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JournalEvent {
    /// Its place in the whole journal, from 1. It is the event's id and the cursor to go on from.
    pub sequence: Count,
    /// The agent it is about, by the name it had then; null for the daemon itself.
    pub agent_id: Option<String>,
    /// Its place among the events of that agent, from 1 without a hole.
    pub number: Count,
    /// When it happened: UTC, RFC 3339 with microseconds.
    pub at: String,
    /// What happened.
    #[serde(flatten)]
    pub record: JournalRecord,
}

/// Why the data of an event cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the event {kind} cannot be read: {cause}")]
pub struct EventFault {
    /// Its kind.
    pub kind: &'static str,
    /// What is wrong.
    #[source]
    pub cause: serde_json::Error,
}

impl Event {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> EventKind {
        match self {
            Event::Journalled(event) => event.record.kind(),
            Event::Live(event) => event.kind(),
        }
    }

    /// Reads what an event stream holds. None is an event of a newer daemon, to be passed over, or a [`RESPONSE`].
    ///
    /// # Errors
    /// When the data is not that of its kind.
    pub fn decode(kind: &str, data: &str) -> Result<Option<Self>, EventFault> {
        let Some(kind) = EventKind::find(kind) else { return Ok(None) };
        let read = if kind.is_journalled() {
            serde_json::from_str(data).map(|event| Event::Journalled(Box::new(event)))
        } else {
            serde_json::from_str(data).map(Event::Live)
        };
        read.map(Some).map_err(|cause| EventFault { kind: kind.name(), cause })
    }

    /// Writes it onto an event stream: `id` only for what is kept, then its kind, then its data in one line.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        let (id, data) = match self {
            Event::Journalled(event) => (Some(event.sequence), serde_json::to_string(event)?),
            Event::Live(event) => (None, serde_json::to_string(event)?),
        };
        sse::write_event(out, id, self.kind().name(), &data);
        Ok(())
    }
}
