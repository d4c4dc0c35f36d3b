//! Codec of messages, tool outcomes and turn ends.

use std::borrow::Cow;

use agent::permission::Resource;
use agent::{
    Ending, Fault, FaultKind, Halt, Image, Message, MessageSource, RequestId, Role, ToolCall, ToolClass,
    ToolOutcome, TurnEnd, TurnOutcome, Usage,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use super::CodecFault;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MessageBody<'a> {
    #[serde(with = "RoleTag")]
    role: Role,
    text: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    images: Vec<ImageBody<'a>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCallBody<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "thoughts")]
    reasoning_block: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<SourceBody<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ending: Option<EndingTag>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ImageBody<'a> {
    media_type: Cow<'a, str>,
    /// Base64.
    data: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolCallBody<'a> {
    id: Cow<'a, str>,
    name: Cow<'a, str>,
    arguments: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceBody<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent: Option<RequestIdBody<'a>>,
}

/// A string or a number, as the client sent it.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum RequestIdBody<'a> {
    Number(i64),
    Text(Cow<'a, str>),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Role", rename_all = "snake_case")]
enum RoleTag {
    User,
    Assistant,
    Tool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum EndingTag {
    Cancelled,
    Failed,
    Denied,
    Interrupted,
}

impl<'a> MessageBody<'a> {
    pub(super) fn encode(message: &'a Message) -> Self {
        let Message { role, text, images, tool_calls, reasoning_block, tool_call_id, source, ending } =
            message;
        Self {
            role: *role,
            text: Cow::Borrowed(text),
            images: images.iter().map(ImageBody::encode).collect(),
            tool_calls: tool_calls.iter().map(ToolCallBody::encode).collect(),
            reasoning_block: reasoning_block.as_deref().map(Cow::Borrowed),
            tool_call_id: tool_call_id.as_deref().map(Cow::Borrowed),
            source: SourceBody::encode(source),
            ending: ending.map(|ending| match ending {
                Ending::Cancelled => EndingTag::Cancelled,
                Ending::Failed => EndingTag::Failed,
                Ending::Denied => EndingTag::Denied,
                Ending::Interrupted => EndingTag::Interrupted,
            }),
        }
    }

    pub(super) fn decode(self) -> Result<Message, CodecFault> {
        Ok(Message {
            role: self.role,
            text: self.text.into_owned(),
            images: self.images.into_iter().map(ImageBody::decode).collect::<Result<_, _>>()?,
            tool_calls: self.tool_calls.into_iter().map(ToolCallBody::decode).collect(),
            reasoning_block: self.reasoning_block.map(Cow::into_owned),
            tool_call_id: self.tool_call_id.map(Cow::into_owned),
            source: self.source.map(SourceBody::decode).unwrap_or_default(),
            ending: self.ending.map(|ending| match ending {
                EndingTag::Cancelled => Ending::Cancelled,
                EndingTag::Failed => Ending::Failed,
                EndingTag::Denied => Ending::Denied,
                EndingTag::Interrupted => Ending::Interrupted,
            }),
        })
    }
}

impl<'a> ImageBody<'a> {
    fn encode(image: &'a Image) -> Self {
        let Image { media_type, data } = image;
        Self { media_type: media_type.into(), data: BASE64.encode(data) }
    }

    fn decode(self) -> Result<Image, CodecFault> {
        let data =
            BASE64.decode(&self.data).map_err(|fault| CodecFault::new(format!("image data: {fault}")))?;
        Ok(Image { media_type: self.media_type.into_owned(), data: data.into() })
    }
}

impl<'a> ToolCallBody<'a> {
    fn encode(call: &'a ToolCall) -> Self {
        let ToolCall { id, name, arguments } = call;
        Self { id: id.into(), name: name.into(), arguments: arguments.into() }
    }

    fn decode(self) -> ToolCall {
        ToolCall {
            id: self.id.into_owned(),
            name: self.name.into_owned(),
            arguments: self.arguments.into_owned(),
        }
    }
}

impl<'a> SourceBody<'a> {
    fn encode(source: &'a MessageSource) -> Option<Self> {
        let MessageSource { kind, agent } = source;
        let body = Self {
            kind: kind.as_deref().map(Cow::Borrowed),
            agent: agent.as_ref().map(RequestIdBody::encode),
        };
        (body.kind.is_some() || body.agent.is_some()).then_some(body)
    }

    fn decode(self) -> MessageSource {
        MessageSource { kind: self.kind.map(Cow::into_owned), agent: self.agent.map(RequestIdBody::decode) }
    }
}

impl<'a> RequestIdBody<'a> {
    pub(super) fn encode(id: &'a RequestId) -> Self {
        match id {
            RequestId::Text(text) => Self::Text(text.into()),
            RequestId::Number(number) => Self::Number(*number),
        }
    }

    pub(super) fn decode(self) -> RequestId {
        match self {
            Self::Text(text) => RequestId::Text(text.into_owned()),
            Self::Number(number) => RequestId::Number(number),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "ToolClass", rename_all = "snake_case")]
pub(super) enum ClassTag {
    Pure,
    Keyed,
    Once,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToolOutcomeBody<'a> {
    Done(Cow<'a, str>),
    Failed(Cow<'a, str>),
    Denied(Cow<'a, str>),
}

impl<'a> ToolOutcomeBody<'a> {
    pub(super) fn encode(outcome: &'a ToolOutcome) -> Self {
        match outcome {
            ToolOutcome::Done(text) => Self::Done(text.into()),
            ToolOutcome::Failed(text) => Self::Failed(text.into()),
            ToolOutcome::Denied(text) => Self::Denied(text.into()),
        }
    }

    pub(super) fn decode(self) -> ToolOutcome {
        match self {
            Self::Done(text) => ToolOutcome::Done(text.into_owned()),
            Self::Failed(text) => ToolOutcome::Failed(text.into_owned()),
            Self::Denied(text) => ToolOutcome::Denied(text.into_owned()),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TurnEndBody<'a> {
    outcome: TurnOutcomeBody<'a>,
    content: Cow<'a, str>,
    usage: Option<UsageBody>,
    rounds: u64,
    halted: Option<Cow<'a, str>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TurnOutcomeBody<'a> {
    Completed,
    Cancelled,
    Failed(FaultBody<'a>),
    Interrupted(Cow<'a, str>),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultBody<'a> {
    #[serde(with = "FaultKindBody")]
    kind: FaultKind,
    public: Cow<'a, str>,
    cause: Option<Cow<'a, str>>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "FaultKind", rename_all = "snake_case", deny_unknown_fields)]
enum FaultKindBody {
    Invalid,
    Conflict,
    Denied,
    NotFound,
    Busy { retry_after_ms: u64 },
    Full { retry_after_ms: u64 },
    Interrupted,
    Model,
    ContextFull,
    Internal,
}

/// Token counts reported by a model provider.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UsageBody {
    input: u64,
    output: u64,
    cached: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    cache_written: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    reasoning: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    estimated: u64,
}

/// Whether serde omits a count: most providers never report some of them.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
pub(super) fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl From<Usage> for UsageBody {
    fn from(usage: Usage) -> Self {
        let Usage { input, output, cached, cache_written, reasoning, estimated } = usage;
        Self { input, output, cached, cache_written, reasoning, estimated }
    }
}

impl From<UsageBody> for Usage {
    fn from(body: UsageBody) -> Self {
        let UsageBody { input, output, cached, cache_written, reasoning, estimated } = body;
        Self { input, output, cached, cache_written, reasoning, estimated }
    }
}

impl<'a> TurnEndBody<'a> {
    pub(super) fn encode(end: &'a TurnEnd) -> Self {
        let TurnEnd { outcome, content, usage, rounds, halted } = end;
        Self {
            outcome: match outcome {
                TurnOutcome::Completed => TurnOutcomeBody::Completed,
                TurnOutcome::Cancelled => TurnOutcomeBody::Cancelled,
                TurnOutcome::Failed(fault) => TurnOutcomeBody::Failed(FaultBody::encode(fault)),
                TurnOutcome::Interrupted(why) => TurnOutcomeBody::Interrupted(why.into()),
            },
            content: content.into(),
            usage: usage.map(UsageBody::from),
            rounds: *rounds,
            halted: halted.map(|halt| encode_halt(halt).into()),
        }
    }

    pub(super) fn decode(self) -> Result<TurnEnd, CodecFault> {
        Ok(TurnEnd {
            outcome: match self.outcome {
                TurnOutcomeBody::Completed => TurnOutcome::Completed,
                TurnOutcomeBody::Cancelled => TurnOutcome::Cancelled,
                TurnOutcomeBody::Failed(fault) => TurnOutcome::Failed(fault.decode()),
                TurnOutcomeBody::Interrupted(why) => TurnOutcome::Interrupted(why.into_owned()),
            },
            content: self.content.into_owned(),
            usage: self.usage.map(Usage::from),
            rounds: self.rounds,
            halted: self.halted.map(|halt| decode_halt(&halt)).transpose()?,
        })
    }
}

impl<'a> FaultBody<'a> {
    fn encode(fault: &'a Fault) -> Self {
        let Fault { kind, public, cause } = fault;
        Self { kind: *kind, public: public.as_ref().into(), cause: cause.as_deref().map(Cow::Borrowed) }
    }

    fn decode(self) -> Fault {
        let cause = self.cause.map(Cow::into_owned);
        Fault { kind: self.kind, public: self.public.into_owned().into(), cause }
    }
}

const ITERATION_LIMIT: &str = "iteration_limit";

/// Encodes a halt as `iteration_limit`, or as the resource whose budget is used up.
pub(super) fn encode_halt(halt: Halt) -> &'static str {
    match halt {
        Halt::IterationLimit => ITERATION_LIMIT,
        Halt::Budget(resource) => resource.name(),
    }
}

pub(super) fn decode_halt(text: &str) -> Result<Halt, CodecFault> {
    if text == ITERATION_LIMIT {
        return Ok(Halt::IterationLimit);
    }
    let resource = Resource::ALL.into_iter().find(|resource| resource.name() == text);
    resource.map(Halt::Budget).ok_or_else(|| CodecFault::new(format!("unknown halt {text:?}")))
}
