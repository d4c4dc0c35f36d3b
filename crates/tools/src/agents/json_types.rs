//! What the tools for agents take and answer, in the words of the daemon's own methods. Members are in the order of the
//! alphabet.

use agent::outside::{PeerResponse, PeerStatus};
use std::borrow::Cow;

use agent::{AgentId, AgentIdFault, RequestId};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The name of an agent.
#[derive(Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub(super) struct AgentIdArgument(pub(super) AgentId);

impl TryFrom<String> for AgentIdArgument {
    type Error = AgentIdFault;

    fn try_from(text: String) -> Result<Self, AgentIdFault> {
        AgentId::parse(&text).map(AgentIdArgument)
    }
}

/// The name of a send.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a string or an integer")]
pub(super) enum RequestIdArgument {
    Text(String),
    Number(i64),
}

/// One line of both types; derived, it would be a choice of two schemas.
impl JsonSchema for RequestIdArgument {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "RequestName".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "integer"] })
    }
}

impl From<RequestIdArgument> for RequestId {
    fn from(name: RequestIdArgument) -> Self {
        match name {
            RequestIdArgument::Text(text) => RequestId::Text(text),
            RequestIdArgument::Number(number) => RequestId::Number(number),
        }
    }
}

impl From<RequestId> for RequestIdArgument {
    fn from(id: RequestId) -> Self {
        match id {
            RequestId::Text(text) => RequestIdArgument::Text(text),
            RequestId::Number(number) => RequestIdArgument::Number(number),
        }
    }
}

/// What came of a message.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum MessageReply {
    Completed {
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        cancelled: bool,
        content: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        halted: Option<&'static str>,
        request_id: RequestIdArgument,
    },
    Queued {
        request_id: RequestIdArgument,
        status: &'static str,
    },
}

impl From<PeerResponse> for MessageReply {
    fn from(answer: PeerResponse) -> Self {
        let request_id = answer.request_id.into();
        if answer.queued {
            return MessageReply::Queued { request_id, status: QUEUED };
        }
        MessageReply::Completed {
            cancelled: answer.cancelled,
            content: answer.content,
            halted: answer.halted,
            request_id,
        }
    }
}

/// A message was left, and nobody waits for the answer.
pub(super) const QUEUED: &str = "queued";

/// An agent in numbers.
#[derive(Serialize)]
pub(super) struct StatusOutput {
    agent_id: String,
    halted: Option<&'static str>,
    message_count: usize,
    parent_agent_id: Option<String>,
    preset: String,
    queued: usize,
    working: bool,
}

impl From<PeerStatus> for StatusOutput {
    fn from(status: PeerStatus) -> Self {
        Self {
            agent_id: status.id.to_string(),
            halted: status.halted,
            message_count: status.message_count,
            parent_agent_id: status.parent.map(|parent| parent.to_string()),
            preset: status.preset.to_string(),
            queued: status.queued,
            working: status.is_working,
        }
    }
}
