//! Codec of journal records: one JSON shape for each kind.
// tidy: allow retired-word because the stored format names a field `rights`

use std::borrow::Cow;

use agent::compaction::{CompactionMethod, CompactionPart, CompactionRecord};
use agent::journal::{AcceptedTurn, Record};
use agent::{AgentId, ToolClass};
use serde::{Deserialize, Serialize};

use super::approval::{ApprovalAnswerBody, ApprovalRequestBody};
use super::message::{ClassTag, MessageBody, RequestIdBody, ToolOutcomeBody, TurnEndBody};
use super::state::{
    AgentBody, PermissionsBody, decode_agent_id, decode_file_path, decode_principal, encode_principal,
};
use super::{CodecFault, decode as from_json, encode as to_json};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CreatedBody<'a> {
    agent: AgentBody<'a>,
    #[serde(rename = "rights")]
    permissions: PermissionsBody<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PermissionsChangedBody<'a> {
    by: Cow<'a, str>,
    #[serde(rename = "rights")]
    permissions: PermissionsBody<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RenamedBody<'a> {
    by: Cow<'a, str>,
    id: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct InitiatorBody<'a> {
    by: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnAcceptedBody<'a> {
    turn: u64,
    request_id: RequestIdBody<'a>,
    message: MessageBody<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnBody {
    turn: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SteeredBody<'a> {
    turn: u64,
    message: MessageBody<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallBegunBody<'a> {
    turn: u64,
    #[serde(rename = "place")]
    index: usize,
    call_id: Cow<'a, str>,
    tool: Cow<'a, str>,
    #[serde(with = "ClassTag")]
    class: ToolClass,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallDoneBody<'a> {
    turn: u64,
    #[serde(rename = "place")]
    index: usize,
    outcome: ToolOutcomeBody<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnEndedBody<'a> {
    turn: u64,
    request_id: RequestIdBody<'a>,
    end: TurnEndBody<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnReopenedBody<'a> {
    turn: u64,
    request_id: RequestIdBody<'a>,
    messages: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnUndoneBody<'a> {
    turn: u64,
    by: Cow<'a, str>,
    paths: Vec<Cow<'a, str>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RolledBackBody<'a> {
    by: Cow<'a, str>,
    messages: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CompactionBody<'a> {
    turn: Option<u64>,
    by: Cow<'a, str>,
    #[serde(rename = "how")]
    method: Cow<'a, str>,
    messages_before: usize,
    tokens_before: u64,
    tokens_after: u64,
    parts: Vec<CompactionPartBody<'a>>,
}

/// A range of retained messages, or an inserted message.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
enum CompactionPartBody<'a> {
    #[serde(rename = "stays")]
    Retained(usize, usize),
    #[serde(rename = "new")]
    Inserted(MessageBody<'a>),
}

impl<'a> CompactionBody<'a> {
    fn encode(compaction: &'a CompactionRecord) -> Self {
        let CompactionRecord { turn, by, method, messages_before, tokens_before, tokens_after, parts } =
            compaction;
        let part = |part: &'a CompactionPart| match part {
            CompactionPart::Retained { from, to } => CompactionPartBody::Retained(*from, *to),
            CompactionPart::Inserted(message) => CompactionPartBody::Inserted(MessageBody::encode(message)),
        };
        Self {
            turn: *turn,
            by: encode_principal(by),
            method: method.name().into(),
            messages_before: *messages_before,
            tokens_before: *tokens_before,
            tokens_after: *tokens_after,
            parts: parts.iter().map(part).collect(),
        }
    }

    fn decode(self) -> Result<CompactionRecord, CodecFault> {
        let method = CompactionMethod::ALL.into_iter().find(|method| method.name() == self.method);
        let method =
            method.ok_or_else(|| CodecFault::new(format!("unknown compaction method {:?}", self.method)))?;
        let part = |part: CompactionPartBody<'_>| {
            Ok(match part {
                CompactionPartBody::Retained(from, to) => CompactionPart::Retained { from, to },
                CompactionPartBody::Inserted(message) => {
                    CompactionPart::Inserted(Box::new(message.decode()?))
                }
            })
        };
        Ok(CompactionRecord {
            turn: self.turn,
            by: decode_principal(&self.by)?,
            method,
            messages_before: self.messages_before,
            tokens_before: self.tokens_before,
            tokens_after: self.tokens_after,
            parts: self.parts.into_iter().map(part).collect::<Result<_, CodecFault>>()?,
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeniedBody<'a> {
    principal: Cow<'a, str>,
    action: Cow<'a, str>,
    rule: Cow<'a, str>,
    text: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DaemonStartedBody<'a> {
    version: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EmptyBody {}

pub(super) fn encode(record: &Record) -> Result<String, CodecFault> {
    match record {
        Record::Created(record) => to_json(&CreatedBody {
            agent: AgentBody::encode(record),
            permissions: PermissionsBody::encode(&record.permissions),
        }),
        Record::PermissionsChanged { by, permissions } => to_json(&PermissionsChangedBody {
            by: encode_principal(by),
            permissions: PermissionsBody::encode(permissions),
        }),
        Record::Renamed { by, id } => {
            to_json(&RenamedBody { by: encode_principal(by), id: AgentId::as_str(id).into() })
        }
        Record::Finished { by } | Record::Destroyed { by } => {
            to_json(&InitiatorBody { by: encode_principal(by) })
        }
        Record::TurnAccepted(accepted) => {
            let AcceptedTurn { turn, request_id, message } = &**accepted;
            let (request_id, message) = (RequestIdBody::encode(request_id), MessageBody::encode(message));
            to_json(&TurnAcceptedBody { turn: *turn, request_id, message })
        }
        Record::TurnBegun { turn } => to_json(&TurnBody { turn: *turn }),
        Record::MessageAdded(message) => to_json(&MessageBody::encode(message)),
        Record::Steered { turn, message } => {
            to_json(&SteeredBody { turn: *turn, message: MessageBody::encode(message) })
        }
        Record::CallBegun { turn, index, call_id, tool, class } => to_json(&CallBegunBody {
            turn: *turn,
            index: *index,
            call_id: call_id.into(),
            tool: tool.into(),
            class: *class,
        }),
        Record::CallDone { turn, index, outcome } => {
            to_json(&CallDoneBody { turn: *turn, index: *index, outcome: ToolOutcomeBody::encode(outcome) })
        }
        Record::ApprovalRequested(request) => to_json(&ApprovalRequestBody::encode(request)),
        Record::ApprovalAnswered(answer) => to_json(&ApprovalAnswerBody::encode(answer)),
        Record::TurnEnded { turn, request_id, end } => {
            let (request_id, end) = (RequestIdBody::encode(request_id), TurnEndBody::encode(end));
            to_json(&TurnEndedBody { turn: *turn, request_id, end })
        }
        Record::TurnReopened { turn, request_id, messages } => {
            let request_id = RequestIdBody::encode(request_id);
            to_json(&TurnReopenedBody { turn: *turn, request_id, messages: *messages })
        }
        Record::TurnUndone { turn, by, paths } => to_json(&TurnUndoneBody {
            turn: *turn,
            by: encode_principal(by),
            paths: paths.iter().map(|path| path.as_str().into()).collect(),
        }),
        Record::RolledBack { by, messages } => {
            to_json(&RolledBackBody { by: encode_principal(by), messages: *messages })
        }
        Record::Compacted(compaction) => to_json(&CompactionBody::encode(compaction)),
        Record::Denied { principal, action, rule, text: message } => to_json(&DeniedBody {
            principal: encode_principal(principal),
            action: action.into(),
            rule: rule.into(),
            text: message.into(),
        }),
        Record::DaemonStarted { version } => to_json(&DaemonStartedBody { version: version.into() }),
        Record::DaemonStopped => to_json(&EmptyBody {}),
    }
}

/// Decodes a record. The kinds are those of [`Record::kind`]; the conformance suite decodes each of them.
pub(super) fn decode(kind: &str, text: &str) -> Result<Record, CodecFault> {
    match kind {
        "agent_created" | "permissions_changed" | "agent_renamed" | "agent_finished" | "agent_destroyed" => {
            decode_lifecycle(kind, text)
        }
        "turn_accepted" | "turn_begun" | "turn_ended" | "turn_reopened" => decode_turn(kind, text),
        _ => decode_other(kind, text),
    }
}

fn decode_lifecycle(kind: &str, text: &str) -> Result<Record, CodecFault> {
    if kind == "agent_created" {
        let body: CreatedBody<'_> = from_json(text)?;
        return Ok(Record::Created(Box::new(body.agent.decode(body.permissions.decode()?)?)));
    }
    if kind == "permissions_changed" {
        let body: PermissionsChangedBody<'_> = from_json(text)?;
        let permissions = Box::new(body.permissions.decode()?);
        return Ok(Record::PermissionsChanged { by: decode_principal(&body.by)?, permissions });
    }
    if kind == "agent_renamed" {
        let body: RenamedBody<'_> = from_json(text)?;
        return Ok(Record::Renamed { by: decode_principal(&body.by)?, id: decode_agent_id(&body.id)? });
    }
    let by = decode_principal(&from_json::<InitiatorBody<'_>>(text)?.by)?;
    Ok(if kind == "agent_finished" { Record::Finished { by } } else { Record::Destroyed { by } })
}

fn decode_turn(kind: &str, text: &str) -> Result<Record, CodecFault> {
    Ok(match kind {
        "turn_accepted" => {
            let body: TurnAcceptedBody<'_> = from_json(text)?;
            Record::TurnAccepted(Box::new(AcceptedTurn {
                turn: body.turn,
                request_id: body.request_id.decode(),
                message: body.message.decode()?,
            }))
        }
        "turn_ended" => {
            let body: TurnEndedBody<'_> = from_json(text)?;
            let end = Box::new(body.end.decode()?);
            Record::TurnEnded { turn: body.turn, request_id: body.request_id.decode(), end }
        }
        "turn_reopened" => {
            let body: TurnReopenedBody<'_> = from_json(text)?;
            let request_id = body.request_id.decode();
            Record::TurnReopened { turn: body.turn, request_id, messages: body.messages }
        }
        _ => Record::TurnBegun { turn: from_json::<TurnBody>(text)?.turn },
    })
}

fn decode_other(kind: &str, text: &str) -> Result<Record, CodecFault> {
    Ok(match kind {
        "message" => Record::MessageAdded(Box::new(from_json::<MessageBody<'_>>(text)?.decode()?)),
        "steered" => {
            let body: SteeredBody<'_> = from_json(text)?;
            Record::Steered { turn: body.turn, message: Box::new(body.message.decode()?) }
        }
        "tool_begun" => {
            let body: CallBegunBody<'_> = from_json(text)?;
            Record::CallBegun {
                turn: body.turn,
                index: body.index,
                call_id: body.call_id.into_owned(),
                tool: body.tool.into_owned(),
                class: body.class,
            }
        }
        "tool_done" => {
            let body: CallDoneBody<'_> = from_json(text)?;
            Record::CallDone { turn: body.turn, index: body.index, outcome: body.outcome.decode() }
        }
        "approval_requested" => {
            Record::ApprovalRequested(Box::new(from_json::<ApprovalRequestBody<'_>>(text)?.decode()))
        }
        "approval_answered" => {
            Record::ApprovalAnswered(Box::new(from_json::<ApprovalAnswerBody<'_>>(text)?.decode()?))
        }
        "turn_undone" => {
            let body: TurnUndoneBody<'_> = from_json(text)?;
            let paths = body.paths.iter().map(|path| decode_file_path(path)).collect::<Result<_, _>>()?;
            Record::TurnUndone { turn: body.turn, by: decode_principal(&body.by)?, paths }
        }
        "rolled_back" => {
            let body: RolledBackBody<'_> = from_json(text)?;
            Record::RolledBack { by: decode_principal(&body.by)?, messages: body.messages }
        }
        "context_compacted" => Record::Compacted(Box::new(from_json::<CompactionBody<'_>>(text)?.decode()?)),
        "denied" => {
            let body: DeniedBody<'_> = from_json(text)?;
            Record::Denied {
                principal: decode_principal(&body.principal)?,
                action: body.action.into_owned(),
                rule: body.rule.into_owned(),
                text: body.text.into_owned(),
            }
        }
        "daemon_started" => {
            Record::DaemonStarted { version: from_json::<DaemonStartedBody<'_>>(text)?.version.into_owned() }
        }
        "daemon_stopped" => {
            from_json::<EmptyBody>(text)?;
            Record::DaemonStopped
        }
        _ => return Err(CodecFault::new(format!("unknown kind {kind:?}"))),
    })
}
