//! What a model thought before its calls, where its server wants it back with them: collected from the answer, kept
//! with the message, and put into the questions that follow.

use std::borrow::Cow;
use std::collections::BTreeMap;

use agent::{Fault, Message, Role};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::catalog::ReasoningEcho;
use crate::decode::{CallIndex, RawField, parse_field};
use crate::encode::encode_fault;
use crate::recording::fnv1a;

/// As it is kept with a message: an object, so that no other API takes it for its own.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct StoredReasoning<'a> {
    /// Who thought so: what one model has signed, another refuses.
    #[serde(rename = "maker")]
    model_digest: ModelDigest,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_content: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_details: Option<&'a RawValue>,
    /// One for each call, in their order.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub(super) extra_content: Vec<Option<&'a RawValue>>,
}

/// A model, by a digest of its name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ModelDigest(u64);

impl ModelDigest {
    pub(super) const NONE: Self = Self(0);

    pub(super) fn from_name(model: &str) -> Self {
        Self(fnv1a(model.as_bytes()))
    }
}

impl<'a> StoredReasoning<'a> {
    /// Those of a message, as far as they are wanted and of the same maker.
    pub(super) fn from_message(message: &'a Message, wanted: ReasoningEcho, maker: ModelDigest) -> Self {
        let kept = || {
            let text = message.reasoning_block.as_deref().filter(|text| text.starts_with('{'));
            let kept = text.and_then(|text| serde_json::from_str::<Self>(text).ok());
            kept.filter(|kept| kept.model_digest == maker).unwrap_or_default()
        };
        match wanted {
            ReasoningEcho::Omitted => Self::default(),
            ReasoningEcho::ReasoningContent => Self {
                reasoning_content: (message.role == Role::Assistant)
                    .then(|| kept().reasoning_content.unwrap_or_default()),
                ..Self::default()
            },
            ReasoningEcho::ReasoningDetails => {
                Self { reasoning_details: kept().reasoning_details, ..Self::default() }
            }
            ReasoningEcho::ExtraContent => Self { extra_content: kept().extra_content, ..Self::default() },
        }
    }
}

/// Collects what is wanted of one answer.
#[derive(Debug)]
pub(super) struct ReasoningCollector {
    echo: ReasoningEcho,
    model_digest: ModelDigest,
    text: String,
    details: Vec<Map<String, Value>>,
    /// What came with calls that are not in the message yet.
    pending_call_extras: BTreeMap<CallIndex, Box<RawValue>>,
    /// What came with those that are: some servers end their answer more than once, and have calls between.
    emitted_call_extras: Vec<Option<Box<RawValue>>>,
}

impl ReasoningCollector {
    pub(super) fn new(wanted: ReasoningEcho, maker: ModelDigest) -> Self {
        let (text, details, of_calls, of_earlier_calls) = Default::default();
        Self {
            echo: wanted,
            model_digest: maker,
            text,
            details,
            pending_call_extras: of_calls,
            emitted_call_extras: of_earlier_calls,
        }
    }

    /// More of the text.
    pub(super) fn push_text(&mut self, reasoning_content: RawField<'_>) {
        if self.echo == ReasoningEcho::ReasoningContent {
            self.text.push_str(&parse_field::<Cow<'_, str>>(reasoning_content).unwrap_or_default());
        }
    }

    /// More of the list. Pieces of one index and kind are one: their texts follow each other. What is signed or hidden
    /// comes whole.
    pub(super) fn push_details(&mut self, reasoning_details: RawField<'_>) {
        if self.echo != ReasoningEcho::ReasoningDetails {
            return;
        }
        for piece in parse_field::<Vec<Map<String, Value>>>(reasoning_details).into_iter().flatten() {
            let is_text = matches!(
                piece.get("type").and_then(Value::as_str),
                Some("reasoning.text" | "reasoning.summary")
            );
            let is_more = |known: &&mut Map<String, Value>| {
                is_text && ["index", "type"].iter().all(|name| known.get(*name) == piece.get(*name))
            };
            match self.details.last_mut().filter(is_more) {
                Some(known) => piece.into_iter().for_each(|(name, value)| merge_member(known, name, value)),
                None => self.details.push(piece),
            }
        }
    }

    /// What came with a piece of a call.
    pub(super) fn push_call_extra(&mut self, place: CallIndex, extra_content: RawField<'_>) {
        if let Some(extra) = extra_content.filter(|_| self.echo == ReasoningEcho::ExtraContent) {
            self.pending_call_extras.insert(place, extra.to_owned());
        }
    }

    /// These calls are in the message now: what is to be kept with it, if anything is.
    pub(super) fn stored_with_calls(
        &mut self,
        calls: impl Iterator<Item = CallIndex>,
    ) -> Result<Option<String>, Fault> {
        let before = self.emitted_call_extras.len();
        self.emitted_call_extras.extend(calls.map(|place| self.pending_call_extras.remove(&place)));
        let is_new = self.emitted_call_extras.len() > before;
        let has_extras = self.emitted_call_extras.iter().any(Option::is_some);
        if !is_new || self.text.is_empty() && self.details.is_empty() && !has_extras {
            return Ok(None);
        }
        let details = match self.details.as_slice() {
            [] => None,
            details => Some(serde_json::value::to_raw_value(details).map_err(encode_fault)?),
        };
        let extras = self.emitted_call_extras.iter().filter(|_| has_extras);
        let thoughts = StoredReasoning {
            model_digest: self.model_digest,
            reasoning_content: (!self.text.is_empty()).then_some(Cow::Borrowed(self.text.as_str())),
            reasoning_details: details.as_deref(),
            extra_content: extras.map(Option::as_deref).collect(),
        };
        serde_json::to_string(&thoughts).map(Some).map_err(encode_fault)
    }
}

/// Adds a member of a piece to what is there.
fn merge_member(known: &mut Map<String, Value>, name: String, value: Value) {
    let is_long = matches!(name.as_str(), "text" | "summary");
    match (known.get_mut(&name), value) {
        (_, Value::Null) => {}
        (Some(Value::String(text)), Value::String(more)) if is_long => text.push_str(&more),
        (_, value) => drop(known.insert(name, value)),
    }
}
