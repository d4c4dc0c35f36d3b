//! Events of the daemon: the list of kinds, their payload types, and their encoding as server-sent events. Journalled
//! events can be read again; live ones exist only while they are sent. Publishing them is left to the runtime.

mod payloads;
mod query;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use payloads::{
    AgentCreated, AgentDestroyed, AgentFinished, AgentRenamed, ApprovalAnswered, ApprovalRequested,
    ContextCompacted, DaemonStarted, DaemonStopped, Denied, Gap, Lagged, MessageEvent, NotJournalled,
    PermissionsChanged, PermissionsView, ReasoningDelta, RolledBack, Steered, TextDelta, ToolBegun, ToolDone,
    ToolOutputDelta, TurnAccepted, TurnBegun, TurnEnded, TurnError, TurnReopened, TurnUndone,
};
pub use query::{EventKindFilter, EventQuery, QueryFault, parse_cursor};

use crate::methods::Count;
use crate::sse;

/// Kind of the last event of a streamed `send`; its data is the JSON-RPC response.
pub const RESPONSE_EVENT: &str = "response";

macro_rules! define_events {
    (
        journal { $( $(#[doc = $journal_doc:literal])* $journal:ident = $journal_name:literal; )* }
        live { $( $(#[doc = $live_doc:literal])* $live:ident = $live_name:literal; )* }
    ) => {
        /// The kind of an event.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum EventKind {
            $( $(#[doc = $journal_doc])* $journal, )*
            $( $(#[doc = $live_doc])* $live, )*
        }

        impl EventKind {
            /// All kinds, in the order of the list.
            pub const ALL: &'static [EventKind] = &[ $( EventKind::$journal, )* $( EventKind::$live, )* ];

            /// Name on the wire.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $( EventKind::$journal => $journal_name, )*
                    $( EventKind::$live => $live_name, )*
                }
            }

            /// All names, separated by commas, for error texts. Built in a loop, because `join` on an array of known
            /// length takes the compiler minutes.
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

            /// Description for users: the doc comment of the entry.
            #[must_use]
            pub fn doc(self) -> &'static str {
                match self {
                    $( EventKind::$journal => concat!($( $journal_doc, "\n" ),*).trim_ascii(), )*
                    $( EventKind::$live => concat!($( $live_doc, "\n" ),*).trim_ascii(), )*
                }
            }

            /// Whether events of this kind are stored in the journal and can be read again.
            #[must_use]
            pub fn is_journalled(self) -> bool {
                match self {
                    $( EventKind::$journal => true, )*
                    $( EventKind::$live => false, )*
                }
            }

            /// Looks up a kind by its name on the wire.
            #[must_use]
            pub fn find(name: &str) -> Option<EventKind> {
                match name {
                    $( $journal_name => Some(EventKind::$journal), )*
                    $( $live_name => Some(EventKind::$live), )*
                    _ => None,
                }
            }
        }

        /// Payload of a journalled event, by kind.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind")]
        pub enum JournalRecord {
            $( $(#[doc = $journal_doc])* #[serde(rename = $journal_name)] $journal($journal), )*
        }

        impl JournalRecord {
            /// Kind of the event.
            #[must_use]
            pub fn kind(&self) -> EventKind {
                match self { $( JournalRecord::$journal(_) => EventKind::$journal, )* }
            }
        }

        /// An event that is not stored, by kind.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(tag = "kind")]
        pub enum LiveEvent {
            $( $(#[doc = $live_doc])* #[serde(rename = $live_name)] $live($live), )*
        }

        impl LiveEvent {
            /// Kind of the event.
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
        /// An agent was created.
        AgentCreated = "agent_created";
        /// An agent's permissions were changed.
        PermissionsChanged = "permissions_changed";
        /// An agent's id was changed. Its later events carry the new id.
        AgentRenamed = "agent_renamed";
        /// An agent was marked as finished.
        AgentFinished = "agent_finished";
        /// An agent was destroyed. Its own event stream ends with this event.
        AgentDestroyed = "agent_destroyed";
        /// A message was accepted and its turn is queued. From now on the message survives a crash.
        TurnAccepted = "turn_accepted";
        /// A turn started: its message is now in the context. No `message` event is sent for it.
        TurnBegun = "turn_begun";
        /// A message was added to the context: a response of the model, the result of a tool, or an added instruction.
        MessageEvent = "message";
        /// An instruction was added to the turn. It enters the context, as a `message`, before the next model call.
        Steered = "steered";
        /// A tool call is about to run.
        ToolBegun = "tool_begun";
        /// A tool call ended while others of the same response are still running. When the last one ends, the `message`
        /// events of all results follow instead.
        ToolDone = "tool_done";
        /// A tool call waits for an approval. It is open until `approval_answered` or the end of the turn.
        ApprovalRequested = "approval_requested";
        /// An approval request was answered, or its time limit passed.
        ApprovalAnswered = "approval_answered";
        /// A turn ended. Only an interrupted turn can continue.
        TurnEnded = "turn_ended";
        /// An interrupted turn continues.
        TurnReopened = "turn_reopened";
        /// The newest messages of a context were removed.
        RolledBack = "rolled_back";
        /// The file changes of a turn were undone.
        TurnUndone = "turn_undone";
        /// A context was shortened: older messages were summarized or dropped. Their events stay in the journal.
        ContextCompacted = "context_compacted";
        /// A call or tool call was denied.
        Denied = "denied";
        /// The daemon started to serve. Visible to admins only.
        DaemonStarted = "daemon_started";
        /// The daemon stopped cleanly. Visible to admins only.
        DaemonStopped = "daemon_stopped";
    }
    live {
        /// A chunk of the model's text. The complete text follows as a `message`.
        TextDelta = "text_delta";
        /// A chunk of the model's reasoning, which is never stored.
        ReasoningDelta = "reasoning_delta";
        /// A chunk of a command's output while it runs. The result of the tool call follows as a `message`; output that
        /// comes too fast is omitted here.
        ToolOutputDelta = "tool_output_delta";
        /// The cursor is not in the journal, so events may be missing. The stream continues at `first`. Sent regardless
        /// of the filter.
        Gap = "gap";
        /// The reader was too slow, so deltas were dropped. Journalled events follow without loss. Sent regardless of
        /// the filter.
        Lagged = "lagged";
    }
}

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Stored in the journal.
    Journalled(Box<JournalEvent>),
    /// Sent once, never stored.
    Live(LiveEvent),
}

/// A journalled event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JournalEvent {
    /// Sequence number in the journal, from 1: the `id` on the stream and the cursor to continue from.
    pub sequence: Count,
    /// Agent the event is about, by its id at that time; null for the daemon itself.
    pub agent_id: Option<String>,
    /// Number among the events of that agent, from 1 without gaps.
    pub number: Count,
    /// Time of the event: UTC, RFC 3339 with microseconds.
    pub at: String,
    /// Kind and payload.
    #[serde(flatten)]
    pub record: JournalRecord,
}

/// An event whose data does not fit its kind.
#[derive(Debug, thiserror::Error)]
#[error("cannot decode event {kind}: {cause}")]
pub struct EventFault {
    /// Kind of the event.
    pub kind: &'static str,
    /// The JSON error.
    #[source]
    pub cause: serde_json::Error,
}

impl Event {
    /// Kind of the event.
    #[must_use]
    pub fn kind(&self) -> EventKind {
        match self {
            Event::Journalled(event) => event.record.kind(),
            Event::Live(event) => event.kind(),
        }
    }

    /// Decodes an event of a stream. Returns `None` for [`RESPONSE_EVENT`] and for a kind that only a newer daemon
    /// knows, which the reader skips.
    ///
    /// # Errors
    /// When the data does not fit the kind.
    pub fn decode(kind: &str, data: &str) -> Result<Option<Self>, EventFault> {
        let Some(kind) = EventKind::find(kind) else { return Ok(None) };
        let decoded = if kind.is_journalled() {
            serde_json::from_str(data).map(|event| Event::Journalled(Box::new(event)))
        } else {
            serde_json::from_str(data).map(Event::Live)
        };
        decoded.map(Some).map_err(|cause| EventFault { kind: kind.name(), cause })
    }

    /// Encodes the event as a server-sent event: `id` only if it is journalled, then kind, then data in one line.
    ///
    /// # Errors
    /// When the event cannot be serialized as JSON.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        let (id, data) = match self {
            Event::Journalled(event) => (Some(event.sequence), serde_json::to_string(event)?),
            Event::Live(event) => (None, serde_json::to_string(event)?),
        };
        sse::write_event(out, id, self.kind().name(), &data);
        Ok(())
    }
}
