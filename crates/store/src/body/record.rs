//! Records of the journal, as they are written down: one shape for each kind.

use std::borrow::Cow;

use agent::AgentId;
use agent::compaction::{CompactionMethod, CompactionPart, CompactionRecord};
use agent::journal::{AcceptedTurn, Record};
use serde::{Deserialize, Serialize};

use super::message::{ClassWord, EndBody, MessageBody, OutcomeBody, RequestIdBody};
use super::state::{AgentBody, PermissionsBody, agent_id};
use super::{BodyFault, read as parse, write as text};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CreatedBody<'a> {
    agent: AgentBody<'a>,
    #[serde(rename = "rights")] permissions: PermissionsBody<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PermissionsChangedBody<'a> {
    by: Cow<'a, str>,
    #[serde(rename = "rights")] permissions: PermissionsBody<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RenamedBody<'a> {
    by: Cow<'a, str>,
    id: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ByBody<'a> {
    by: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AcceptedBody<'a> {
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
    #[serde(rename = "place")] index: usize,
    call_id: Cow<'a, str>,
    tool: Cow<'a, str>,
    class: ClassWord,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallDoneBody<'a> {
    turn: u64,
    #[serde(rename = "place")] index: usize,
    outcome: OutcomeBody<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EndedBody<'a> {
    turn: u64,
    request_id: RequestIdBody<'a>,
    end: EndBody<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReopenedBody<'a> {
    turn: u64,
    request_id: RequestIdBody<'a>,
    messages: usize,
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
    #[serde(rename = "how")] method: Cow<'a, str>,
    messages_before: usize,
    tokens_before: u64,
    tokens_after: u64,
    parts: Vec<CompactionPartBody<'a>>,
}

/// Messages that stay, from one place to another, or a new one.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum CompactionPartBody<'a> {
    Stays(usize, usize),
    New(MessageBody<'a>),
}

impl<'a> CompactionBody<'a> {
    fn encode(folded: &'a CompactionRecord) -> Self {
        let CompactionRecord { turn, by, method: how, messages_before, tokens_before, tokens_after, parts } = folded;
        let part = |part: &'a CompactionPart| match part {
            CompactionPart::Retained { from, to } => CompactionPartBody::Stays(*from, *to),
            CompactionPart::Inserted(message) => CompactionPartBody::New(MessageBody::of(message)),
        };
        Self {
            turn: *turn,
            by: by.into(),
            method: how.name().into(),
            messages_before: *messages_before,
            tokens_before: *tokens_before,
            tokens_after: *tokens_after,
            parts: parts.iter().map(part).collect(),
        }
    }

    fn decode(self) -> Result<CompactionRecord, BodyFault> {
        let how = CompactionMethod::ALL.into_iter().find(|how| how.name() == self.method);
        let how = how.ok_or_else(|| BodyFault::new(format!("unknown way to fold {:?}", self.method)))?;
        let part = |part: CompactionPartBody<'_>| {
            Ok(match part {
                CompactionPartBody::Stays(from, to) => CompactionPart::Retained { from, to },
                CompactionPartBody::New(message) => CompactionPart::Inserted(Box::new(message.message()?)),
            })
        };
        Ok(CompactionRecord {
            turn: self.turn,
            by: self.by.into_owned(),
            method: how,
            messages_before: self.messages_before,
            tokens_before: self.tokens_before,
            tokens_after: self.tokens_after,
            parts: self.parts.into_iter().map(part).collect::<Result<_, BodyFault>>()?,
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
struct StartedBody<'a> {
    version: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoBody {}

pub(super) fn write(record: &Record) -> Result<String, BodyFault> {
    match record {
        Record::Created(record) => {
            text(&CreatedBody { agent: AgentBody::of(record), permissions: PermissionsBody::of(&record.permissions) })
        }
        Record::PermissionsChanged { by, permissions } => {
            text(&PermissionsChangedBody { by: by.into(), permissions: PermissionsBody::of(permissions) })
        }
        Record::Renamed { by, id } => text(&RenamedBody { by: by.into(), id: AgentId::as_str(id).into() }),
        Record::Finished { by } | Record::Destroyed { by } => text(&ByBody { by: by.into() }),
        Record::TurnAccepted(accepted) => {
            let AcceptedTurn { turn, request_id, message } = &**accepted;
            let (request_id, message) = (RequestIdBody::of(request_id), MessageBody::of(message));
            text(&AcceptedBody { turn: *turn, request_id, message })
        }
        Record::TurnBegun { turn } => text(&TurnBody { turn: *turn }),
        Record::MessageAdded(message) => text(&MessageBody::of(message)),
        Record::Steered { turn, message } => {
            text(&SteeredBody { turn: *turn, message: MessageBody::of(message) })
        }
        Record::CallBegun { turn, index: place, call_id, tool, class } => text(&CallBegunBody {
            turn: *turn,
            index: *place,
            call_id: call_id.into(),
            tool: tool.into(),
            class: ClassWord::from(*class),
        }),
        Record::CallDone { turn, index: place, outcome } => {
            text(&CallDoneBody { turn: *turn, index: *place, outcome: OutcomeBody::of(outcome) })
        }
        Record::TurnEnded { turn, request_id, end } => {
            let (request_id, end) = (RequestIdBody::of(request_id), EndBody::of(end));
            text(&EndedBody { turn: *turn, request_id, end })
        }
        Record::TurnReopened { turn, request_id, messages } => {
            let request_id = RequestIdBody::of(request_id);
            text(&ReopenedBody { turn: *turn, request_id, messages: *messages })
        }
        Record::RolledBack { by, messages } => text(&RolledBackBody { by: by.into(), messages: *messages }),
        Record::Compacted(folded) => text(&CompactionBody::encode(folded)),
        Record::Denied { principal, action, rule, text: told } => text(&DeniedBody {
            principal: principal.into(),
            action: action.into(),
            rule: rule.into(),
            text: told.into(),
        }),
        Record::DaemonStarted { version } => text(&StartedBody { version: version.into() }),
        Record::DaemonStopped => text(&NoBody {}),
    }
}

/// The words are those of [`Record::kind`]; the conformance suite reads every kind back.
pub(super) fn read(kind: &str, text: &str) -> Result<Record, BodyFault> {
    match kind {
        "agent_created" | "permissions_changed" | "agent_renamed" | "agent_finished" | "agent_destroyed" => {
            read_lifecycle(kind, text)
        }
        "turn_accepted" | "turn_begun" | "turn_ended" | "turn_reopened" => read_turn(kind, text),
        _ => read_rest(kind, text),
    }
}

fn read_lifecycle(kind: &str, text: &str) -> Result<Record, BodyFault> {
    if kind == "agent_created" {
        let body: CreatedBody<'_> = parse(text)?;
        return Ok(Record::Created(Box::new(body.agent.record(body.permissions.permissions()?)?)));
    }
    if kind == "permissions_changed" {
        let body: PermissionsChangedBody<'_> = parse(text)?;
        let permissions = Box::new(body.permissions.permissions()?);
        return Ok(Record::PermissionsChanged { by: body.by.into_owned(), permissions });
    }
    if kind == "agent_renamed" {
        let body: RenamedBody<'_> = parse(text)?;
        return Ok(Record::Renamed { by: body.by.into_owned(), id: agent_id(&body.id)? });
    }
    let by = parse::<ByBody<'_>>(text)?.by.into_owned();
    Ok(if kind == "agent_finished" { Record::Finished { by } } else { Record::Destroyed { by } })
}

fn read_turn(kind: &str, text: &str) -> Result<Record, BodyFault> {
    Ok(match kind {
        "turn_accepted" => {
            let body: AcceptedBody<'_> = parse(text)?;
            Record::TurnAccepted(Box::new(AcceptedTurn {
                turn: body.turn,
                request_id: body.request_id.id(),
                message: body.message.message()?,
            }))
        }
        "turn_ended" => {
            let body: EndedBody<'_> = parse(text)?;
            let end = Box::new(body.end.end()?);
            Record::TurnEnded { turn: body.turn, request_id: body.request_id.id(), end }
        }
        "turn_reopened" => {
            let body: ReopenedBody<'_> = parse(text)?;
            let request_id = body.request_id.id();
            Record::TurnReopened { turn: body.turn, request_id, messages: body.messages }
        }
        _ => Record::TurnBegun { turn: parse::<TurnBody>(text)?.turn },
    })
}

fn read_rest(kind: &str, text: &str) -> Result<Record, BodyFault> {
    Ok(match kind {
        "message" => Record::MessageAdded(Box::new(parse::<MessageBody<'_>>(text)?.message()?)),
        "steered" => {
            let body: SteeredBody<'_> = parse(text)?;
            Record::Steered { turn: body.turn, message: Box::new(body.message.message()?) }
        }
        "tool_begun" => {
            let body: CallBegunBody<'_> = parse(text)?;
            Record::CallBegun {
                turn: body.turn,
                index: body.index,
                call_id: body.call_id.into_owned(),
                tool: body.tool.into_owned(),
                class: body.class.into(),
            }
        }
        "tool_done" => {
            let body: CallDoneBody<'_> = parse(text)?;
            Record::CallDone { turn: body.turn, index: body.index, outcome: body.outcome.outcome() }
        }
        "rolled_back" => {
            let body: RolledBackBody<'_> = parse(text)?;
            Record::RolledBack { by: body.by.into_owned(), messages: body.messages }
        }
        "context_compacted" => Record::Compacted(Box::new(parse::<CompactionBody<'_>>(text)?.decode()?)),
        "denied" => {
            let body: DeniedBody<'_> = parse(text)?;
            Record::Denied {
                principal: body.principal.into_owned(),
                action: body.action.into_owned(),
                rule: body.rule.into_owned(),
                text: body.text.into_owned(),
            }
        }
        "daemon_started" => {
            Record::DaemonStarted { version: parse::<StartedBody<'_>>(text)?.version.into_owned() }
        }
        "daemon_stopped" => {
            parse::<NoBody>(text)?;
            Record::DaemonStopped
        }
        _ => return Err(BodyFault::new(format!("unknown kind {kind:?}"))),
    })
}
