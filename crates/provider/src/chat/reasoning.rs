//! Reasoning that preceded tool calls and must be sent back with them: collected from the response, stored with the
//! message, and included in later requests.

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

/// Reasoning as stored with a message. A JSON object, so that it cannot be confused with Anthropic's list.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct StoredReasoning<'a> {
    /// Model that produced the reasoning; another model would reject the signatures.
    #[serde(rename = "maker")]
    model_digest: ModelDigest,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_content: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_details: Option<&'a RawValue>,
    /// One entry per tool call, in order.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub(super) extra_content: Vec<Option<&'a RawValue>>,
}

/// Hash of a model name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ModelDigest(u64);

impl ModelDigest {
    pub(super) const NONE: Self = Self(0);

    pub(super) fn from_name(model: &str) -> Self {
        Self(fnv1a(model.as_bytes()))
    }
}

impl<'a> StoredReasoning<'a> {
    /// Returns the reasoning of a message that the server expects, if the same model produced it.
    pub(super) fn from_message(message: &'a Message, echo: ReasoningEcho, model_digest: ModelDigest) -> Self {
        let stored = || {
            let text = message.reasoning_block.as_deref().filter(|text| text.starts_with('{'));
            let stored = text.and_then(|text| serde_json::from_str::<Self>(text).ok());
            stored.filter(|stored| stored.model_digest == model_digest).unwrap_or_default()
        };
        match echo {
            ReasoningEcho::Omitted => Self::default(),
            ReasoningEcho::ReasoningContent => Self {
                reasoning_content: (message.role == Role::Assistant)
                    .then(|| stored().reasoning_content.unwrap_or_default()),
                ..Self::default()
            },
            ReasoningEcho::ReasoningDetails => {
                Self { reasoning_details: stored().reasoning_details, ..Self::default() }
            }
            ReasoningEcho::ExtraContent => Self { extra_content: stored().extra_content, ..Self::default() },
        }
    }
}

/// Collector of the reasoning of one response.
#[derive(Debug)]
pub(super) struct ReasoningCollector {
    echo: ReasoningEcho,
    model_digest: ModelDigest,
    text: String,
    details: Vec<Map<String, Value>>,
    /// Size of what was collected, as the server sent it.
    pub(super) bytes: usize,
    /// `extra_content` of calls that are not yet emitted.
    pending_call_extras: BTreeMap<CallIndex, Box<RawValue>>,
    /// `extra_content` of emitted calls: some servers send several finish reasons with calls between them.
    emitted_call_extras: Vec<Option<Box<RawValue>>>,
}

impl ReasoningCollector {
    pub(super) fn new(echo: ReasoningEcho, model_digest: ModelDigest) -> Self {
        let (text, details, pending_call_extras, emitted_call_extras) = Default::default();
        Self { echo, model_digest, text, details, bytes: 0, pending_call_extras, emitted_call_extras }
    }

    /// Appends a delta of `reasoning_content`.
    pub(super) fn push_text(&mut self, reasoning_content: RawField<'_>) {
        if self.echo == ReasoningEcho::ReasoningContent {
            self.count_bytes(reasoning_content);
            self.text.push_str(&parse_field::<Cow<'_, str>>(reasoning_content).unwrap_or_default());
        }
    }

    /// Appends a delta of `reasoning_details`. Consecutive text deltas of the same index and type are merged; encrypted
    /// details arrive complete.
    pub(super) fn push_details(&mut self, reasoning_details: RawField<'_>) {
        if self.echo != ReasoningEcho::ReasoningDetails {
            return;
        }
        self.count_bytes(reasoning_details);
        for delta in parse_field::<Vec<Map<String, Value>>>(reasoning_details).into_iter().flatten() {
            let is_text = matches!(
                delta.get("type").and_then(Value::as_str),
                Some("reasoning.text" | "reasoning.summary")
            );
            let is_continuation = |detail: &&mut Map<String, Value>| {
                is_text && ["index", "type"].iter().all(|name| detail.get(*name) == delta.get(*name))
            };
            match self.details.last_mut().filter(is_continuation) {
                Some(detail) => delta.into_iter().for_each(|(name, value)| merge_field(detail, name, value)),
                None => self.details.push(delta),
            }
        }
    }

    /// Stores the `extra_content` of a call delta.
    pub(super) fn push_call_extra(&mut self, index: CallIndex, extra_content: RawField<'_>) {
        if let Some(extra) = extra_content.filter(|_| self.echo == ReasoningEcho::ExtraContent) {
            self.count_bytes(extra_content);
            self.pending_call_extras.insert(index, extra.to_owned());
        }
    }

    fn count_bytes(&mut self, field: RawField<'_>) {
        self.bytes += field.map_or(0, |raw| raw.get().len());
    }

    /// Encodes the reasoning of all calls so far, to be stored with the message. `calls` are those about to be emitted.
    /// `None` if there are no such calls or there is no reasoning.
    pub(super) fn encode_with_calls(
        &mut self,
        calls: impl Iterator<Item = CallIndex>,
    ) -> Result<Option<String>, Fault> {
        let before = self.emitted_call_extras.len();
        self.emitted_call_extras.extend(calls.map(|index| self.pending_call_extras.remove(&index)));
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
        let stored_reasoning = StoredReasoning {
            model_digest: self.model_digest,
            reasoning_content: (!self.text.is_empty()).then_some(Cow::Borrowed(self.text.as_str())),
            reasoning_details: details.as_deref(),
            extra_content: extras.map(Option::as_deref).collect(),
        };
        serde_json::to_string(&stored_reasoning).map(Some).map_err(encode_fault)
    }
}

/// Merges one field of a delta into a detail: texts are appended, other values replaced.
fn merge_field(detail: &mut Map<String, Value>, name: String, value: Value) {
    let is_streamed = matches!(name.as_str(), "text" | "summary");
    match (detail.get_mut(&name), value) {
        (_, Value::Null) => {}
        (Some(Value::String(text)), Value::String(addition)) if is_streamed => text.push_str(&addition),
        (_, value) => drop(detail.insert(name, value)),
    }
}
