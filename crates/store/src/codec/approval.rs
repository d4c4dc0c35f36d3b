//! Codec of approval requests, their answers, and approval rules.

use std::borrow::Cow;

use agent::journal::{ApprovalAnswer, ApprovalRequest, Serial};
use agent::outside::Timestamp;
use agent::permission::{Grantor, Rule, RuleAction, RuleEntry, RuleScope};
use serde::{Deserialize, Serialize};

use super::CodecFault;
use super::state::{decode_principal, encode_principal};

/// A rule: action, text, scope, grantor.
#[derive(Serialize, Deserialize)]
pub(super) struct RuleBody(Cow<'static, str>, String, Cow<'static, str>, GrantorBody);

/// `admin`, `creator`, or the serial of an agent.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum GrantorBody {
    Agent(Serial),
    Named(Cow<'static, str>),
}

const ADMIN: &str = "admin";
const CREATOR: &str = "creator";

impl GrantorBody {
    fn encode(grantor: Grantor) -> Self {
        match grantor {
            Grantor::Admin => Self::Named(ADMIN.into()),
            Grantor::Creator => Self::Named(CREATOR.into()),
            Grantor::Agent(serial) => Self::Agent(serial),
        }
    }

    fn decode(self) -> Result<Grantor, CodecFault> {
        match self {
            Self::Agent(serial) => Ok(Grantor::Agent(serial)),
            Self::Named(name) if name == ADMIN => Ok(Grantor::Admin),
            Self::Named(name) if name == CREATOR => Ok(Grantor::Creator),
            Self::Named(name) => Err(CodecFault::new(format!("unknown grantor {name:?}"))),
        }
    }
}

impl RuleBody {
    pub(super) fn encode(entry: &RuleEntry) -> Self {
        let RuleEntry { action, rule, scope, grantor } = entry;
        Self(action.name().into(), rule.to_string(), scope.name().into(), GrantorBody::encode(*grantor))
    }

    pub(super) fn decode(self) -> Result<RuleEntry, CodecFault> {
        let Self(action, rule, scope, grantor) = self;
        let action = RuleAction::ALL.into_iter().find(|known| known.name() == action);
        let scope = RuleScope::ALL.into_iter().find(|known| known.name() == scope);
        Ok(RuleEntry {
            action: action.ok_or_else(|| CodecFault::new("unknown action of a rule"))?,
            rule: Rule::parse(&rule).map_err(CodecFault::new)?,
            scope: scope.ok_or_else(|| CodecFault::new("unknown scope of a rule"))?,
            grantor: grantor.decode()?,
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ApprovalRequestBody<'a> {
    id: Cow<'a, str>,
    turn: u64,
    index: usize,
    call_id: Cow<'a, str>,
    tool: Cow<'a, str>,
    arguments: Cow<'a, str>,
    effects: Cow<'a, [String]>,
    reason: Cow<'a, str>,
    asked_at: i64,
    expires_at: i64,
}

impl<'a> ApprovalRequestBody<'a> {
    pub(super) fn encode(request: &'a ApprovalRequest) -> Self {
        let ApprovalRequest {
            id,
            turn,
            index,
            call_id,
            tool,
            arguments,
            effects,
            reason,
            asked_at,
            expires_at,
        } = request;
        Self {
            id: id.into(),
            turn: *turn,
            index: *index,
            call_id: call_id.into(),
            tool: tool.into(),
            arguments: arguments.into(),
            effects: effects.into(),
            reason: reason.into(),
            asked_at: asked_at.0,
            expires_at: expires_at.0,
        }
    }

    pub(super) fn decode(self) -> ApprovalRequest {
        ApprovalRequest {
            id: self.id.into_owned(),
            turn: self.turn,
            index: self.index,
            call_id: self.call_id.into_owned(),
            tool: self.tool.into_owned(),
            arguments: self.arguments.into_owned(),
            effects: self.effects.into_owned(),
            reason: self.reason.into_owned(),
            asked_at: Timestamp(self.asked_at),
            expires_at: Timestamp(self.expires_at),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ApprovalAnswerBody<'a> {
    id: Cow<'a, str>,
    turn: u64,
    index: usize,
    allowed: bool,
    by: Cow<'a, str>,
    grantor: GrantorBody,
    rule: Option<RuleBody>,
    note: Option<Cow<'a, str>>,
}

impl<'a> ApprovalAnswerBody<'a> {
    pub(super) fn encode(answer: &'a ApprovalAnswer) -> Self {
        let ApprovalAnswer { id, turn, index, is_allowed, by, grantor, rule, note } = answer;
        Self {
            id: id.into(),
            turn: *turn,
            index: *index,
            allowed: *is_allowed,
            by: encode_principal(by),
            grantor: GrantorBody::encode(*grantor),
            rule: rule.as_ref().map(RuleBody::encode),
            note: note.as_deref().map(Cow::Borrowed),
        }
    }

    pub(super) fn decode(self) -> Result<ApprovalAnswer, CodecFault> {
        Ok(ApprovalAnswer {
            id: self.id.into_owned(),
            turn: self.turn,
            index: self.index,
            is_allowed: self.allowed,
            by: decode_principal(&self.by)?,
            grantor: self.grantor.decode()?,
            rule: self.rule.map(RuleBody::decode).transpose()?,
            note: self.note.map(Cow::into_owned),
        })
    }
}
