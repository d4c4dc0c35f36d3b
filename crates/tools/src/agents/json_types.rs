//! Argument and result types of the agent tools, with the member names of the daemon's methods. Members are in
//! alphabetical order.

use agent::outside::{PeerResponse, PeerStatus};
use std::borrow::Cow;

use agent::{AgentId, AgentIdFault, RequestId};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// An agent id as argument.
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

/// A request id as argument or result.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a string or an integer")]
pub(super) enum RequestIdArgument {
    Text(String),
    Number(i64),
}

/// One type list; the derived schema would be an `anyOf` of two schemas.
impl JsonSchema for RequestIdArgument {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "RequestId".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "integer"] })
    }
}

impl From<RequestIdArgument> for RequestId {
    fn from(argument: RequestIdArgument) -> Self {
        match argument {
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

/// The result of a message.
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
    fn from(response: PeerResponse) -> Self {
        let request_id = response.request_id.into();
        if response.queued {
            return MessageReply::Queued { request_id, status: QUEUED };
        }
        MessageReply::Completed {
            cancelled: response.cancelled,
            content: response.content,
            halted: response.halted,
            request_id,
        }
    }
}

/// The status of a message that was enqueued without waiting for the response.
pub(super) const QUEUED: &str = "queued";

/// The status of an agent.
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
