//! What a model thought before its calls, where its server wants it back with them: collected from the answer, kept with
//! the message, and put into the questions that follow.

use std::borrow::Cow;
use std::collections::BTreeMap;

use agent::{Fault, Message};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::reading::{CallPlace, Raw, part};
use crate::writing::unwritten;

/// What a server wants back. None of it is in the API as OpenAI wrote it, and some servers refuse what they do not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Nothing,
    /// The text in `reasoning_content`: DeepSeek refuses calls without it, Kimi asks for it.
    Text,
    /// The list in `reasoning_details`, which OpenRouter needs for models that sign what they think.
    Details,
    /// `extra_content` of each call, where Gemini has its signature: the newer ones refuse calls without it.
    OfCalls,
}

impl Wanted {
    /// What is wanted by the server of a model.
    pub(crate) fn by(provider: &str, model: &str) -> Self {
        let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
        match name.as_str() {
            _ if provider == "openrouter" => Self::Details,
            name if name.starts_with("gemini") => Self::OfCalls,
            name if name.starts_with("deepseek") || name.starts_with("kimi") => Self::Text,
            _ => Self::Nothing,
        }
    }
}

/// As it is kept with a message: an object, so that no other API takes it for its own.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Thoughts<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_content: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_details: Option<&'a RawValue>,
    /// One for each call, in their order.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub(super) extra_content: Vec<Option<&'a RawValue>>,
}

impl<'a> Thoughts<'a> {
    /// Those of a message, as far as they are wanted. Another API's are none.
    pub(super) fn of(message: &'a Message, wanted: Wanted) -> Self {
        let kept = message.thoughts.as_deref().filter(|_| wanted != Wanted::Nothing);
        let kept: Self = kept.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        match wanted {
            Wanted::Nothing => Self::default(),
            Wanted::Text => Self { reasoning_content: kept.reasoning_content, ..Self::default() },
            Wanted::Details => Self { reasoning_details: kept.reasoning_details, ..Self::default() },
            Wanted::OfCalls => Self { extra_content: kept.extra_content, ..Self::default() },
        }
    }
}

/// Collects what is wanted of one answer.
#[derive(Debug)]
pub(super) struct Collector {
    wanted: Wanted,
    text: String,
    details: Vec<Map<String, Value>>,
    of_calls: BTreeMap<CallPlace, Box<RawValue>>,
}

impl Collector {
    pub(super) fn new(wanted: Wanted) -> Self {
        Self { wanted, text: String::new(), details: Vec::new(), of_calls: BTreeMap::new() }
    }

    /// More of the text.
    pub(super) fn read(&mut self, reasoning_content: Raw<'_>) {
        if self.wanted == Wanted::Text {
            self.text.push_str(&part::<Cow<'_, str>>(reasoning_content).unwrap_or_default());
        }
    }

    /// More of the list. Pieces of one index are one: their texts follow each other.
    pub(super) fn read_details(&mut self, reasoning_details: Raw<'_>) {
        if self.wanted != Wanted::Details {
            return;
        }
        for piece in part::<Vec<Map<String, Value>>>(reasoning_details).into_iter().flatten() {
            let index = piece.get("index").filter(|index| index.is_number());
            let known = self.details.iter_mut().find(|known| index.is_some() && known.get("index") == index);
            match known {
                Some(known) => piece.into_iter().for_each(|(name, value)| grow(known, name, value)),
                None => self.details.push(piece),
            }
        }
    }

    /// What came with a piece of a call.
    pub(super) fn read_call(&mut self, place: CallPlace, extra_content: Raw<'_>) {
        if let Some(extra) = extra_content.filter(|_| self.wanted == Wanted::OfCalls) {
            self.of_calls.insert(place, extra.to_owned());
        }
    }

    /// What is to be kept with these calls, if anything is.
    pub(super) fn written(&self, calls: impl Iterator<Item = CallPlace>) -> Result<Option<String>, Fault> {
        let details = match self.details.as_slice() {
            [] => None,
            details => Some(serde_json::value::to_raw_value(details).map_err(unwritten)?),
        };
        let of_calls = |place| self.of_calls.get(&place).map(|extra| &**extra);
        let thoughts = Thoughts {
            reasoning_content: (!self.text.is_empty()).then_some(Cow::Borrowed(self.text.as_str())),
            reasoning_details: details.as_deref(),
            extra_content: if self.of_calls.is_empty() { Vec::new() } else { calls.map(of_calls).collect() },
        };
        let is_empty = self.text.is_empty() && details.is_none() && self.of_calls.is_empty();
        if is_empty { Ok(None) } else { serde_json::to_string(&thoughts).map(Some).map_err(unwritten) }
    }
}

/// Adds a member of a piece to what is there.
fn grow(known: &mut Map<String, Value>, name: String, value: Value) {
    let is_long = matches!(name.as_str(), "text" | "summary" | "data");
    match (known.get_mut(&name), value) {
        (_, Value::Null) => {}
        (Some(Value::String(text)), Value::String(more)) if is_long => text.push_str(&more),
        (_, value) => drop(known.insert(name, value)),
    }
}
