//! What a model thought before its calls, where its server wants it back with them: collected from the answer, kept
//! with the message, and put into the questions that follow.

use std::borrow::Cow;
use std::collections::BTreeMap;

use agent::{Fault, Message, Role};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::catalog::Thinking;
use crate::reading::{CallPlace, Raw, part};
use crate::tape::digest_of;
use crate::writing::unwritten;

/// As it is kept with a message: an object, so that no other API takes it for its own.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Thoughts<'a> {
    /// Who thought so: what one model has signed, another refuses.
    maker: Maker,
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
pub(super) struct Maker(u64);

impl Maker {
    pub(super) const NOBODY: Self = Self(0);

    pub(super) fn of(model: &str) -> Self {
        Self(digest_of(model.as_bytes()))
    }
}

impl<'a> Thoughts<'a> {
    /// Those of a message, as far as they are wanted and of the same maker.
    pub(super) fn of(message: &'a Message, wanted: Thinking, maker: Maker) -> Self {
        let kept = || {
            let text = message.reasoning_block.as_deref().filter(|text| text.starts_with('{'));
            let kept = text.and_then(|text| serde_json::from_str::<Self>(text).ok());
            kept.filter(|kept| kept.maker == maker).unwrap_or_default()
        };
        match wanted {
            Thinking::Unwanted => Self::default(),
            Thinking::InText => Self {
                reasoning_content: (message.role == Role::Assistant)
                    .then(|| kept().reasoning_content.unwrap_or_default()),
                ..Self::default()
            },
            Thinking::InDetails => Self { reasoning_details: kept().reasoning_details, ..Self::default() },
            Thinking::InCalls => Self { extra_content: kept().extra_content, ..Self::default() },
        }
    }
}

/// Collects what is wanted of one answer.
#[derive(Debug)]
pub(super) struct Collector {
    wanted: Thinking,
    maker: Maker,
    text: String,
    details: Vec<Map<String, Value>>,
    /// What came with calls that are not in the message yet.
    of_calls: BTreeMap<CallPlace, Box<RawValue>>,
    /// What came with those that are: some servers end their answer more than once, and have calls between.
    of_earlier_calls: Vec<Option<Box<RawValue>>>,
}

impl Collector {
    pub(super) fn new(wanted: Thinking, maker: Maker) -> Self {
        let (text, details, of_calls, of_earlier_calls) = Default::default();
        Self { wanted, maker, text, details, of_calls, of_earlier_calls }
    }

    /// More of the text.
    pub(super) fn read(&mut self, reasoning_content: Raw<'_>) {
        if self.wanted == Thinking::InText {
            self.text.push_str(&part::<Cow<'_, str>>(reasoning_content).unwrap_or_default());
        }
    }

    /// More of the list. Pieces of one index and kind are one: their texts follow each other. What is signed or hidden
    /// comes whole.
    pub(super) fn read_details(&mut self, reasoning_details: Raw<'_>) {
        if self.wanted != Thinking::InDetails {
            return;
        }
        for piece in part::<Vec<Map<String, Value>>>(reasoning_details).into_iter().flatten() {
            let is_text = matches!(
                piece.get("type").and_then(Value::as_str),
                Some("reasoning.text" | "reasoning.summary")
            );
            let is_more = |known: &&mut Map<String, Value>| {
                is_text && ["index", "type"].iter().all(|name| known.get(*name) == piece.get(*name))
            };
            match self.details.last_mut().filter(is_more) {
                Some(known) => piece.into_iter().for_each(|(name, value)| grow(known, name, value)),
                None => self.details.push(piece),
            }
        }
    }

    /// What came with a piece of a call.
    pub(super) fn read_call(&mut self, place: CallPlace, extra_content: Raw<'_>) {
        if let Some(extra) = extra_content.filter(|_| self.wanted == Thinking::InCalls) {
            self.of_calls.insert(place, extra.to_owned());
        }
    }

    /// These calls are in the message now: what is to be kept with it, if anything is.
    pub(super) fn hand_on(
        &mut self,
        calls: impl Iterator<Item = CallPlace>,
    ) -> Result<Option<String>, Fault> {
        let before = self.of_earlier_calls.len();
        self.of_earlier_calls.extend(calls.map(|place| self.of_calls.remove(&place)));
        let is_new = self.of_earlier_calls.len() > before;
        let has_extras = self.of_earlier_calls.iter().any(Option::is_some);
        if !is_new || self.text.is_empty() && self.details.is_empty() && !has_extras {
            return Ok(None);
        }
        let details = match self.details.as_slice() {
            [] => None,
            details => Some(serde_json::value::to_raw_value(details).map_err(unwritten)?),
        };
        let extras = self.of_earlier_calls.iter().filter(|_| has_extras);
        let thoughts = Thoughts {
            maker: self.maker,
            reasoning_content: (!self.text.is_empty()).then_some(Cow::Borrowed(self.text.as_str())),
            reasoning_details: details.as_deref(),
            extra_content: extras.map(Option::as_deref).collect(),
        };
        serde_json::to_string(&thoughts).map(Some).map_err(unwritten)
    }
}

/// Adds a member of a piece to what is there.
fn grow(known: &mut Map<String, Value>, name: String, value: Value) {
    let is_long = matches!(name.as_str(), "text" | "summary");
    match (known.get_mut(&name), value) {
        (_, Value::Null) => {}
        (Some(Value::String(text)), Value::String(more)) if is_long => text.push_str(&more),
        (_, value) => drop(known.insert(name, value)),
    }
}
