//! What a setting may be: turns a TOML value or a text into a checked `Value`, or says what was wrong with it.

use std::ops::Range;

use agent::AgentId;
use agent::journal::OnRestart;
use local::generation::EngineKind;
use provider::Secret;
use provider::catalog::{PROVIDERS, known_provider};
use store::Durability;
use toml::de::{DeArray, DeValue};
use tracing::Level;

use super::named::tables;
use super::presets::{NAME_RULE, is_name};
use super::web_origin::{WebOriginShape, web_origin_shape};

/// A text in a message is cut here, so that one bad value cannot fill the screen.
const QUOTE_CHARS_MAX: usize = 60;

/// A description is shown in lists.
const LINE_CHARS_MAX: usize = 200;

/// The longest name of a tool.
const TOOL_NAME_CHARS_MAX: usize = 128;

/// What a setting may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Flag,
    Count {
        min: u64,
        max: u64,
    },
    Host,
    Origins,
    Model,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// The name of a preset.
    Preset,
    /// Names of presets.
    Presets,
    /// Names of tools.
    Names,
    /// Absolute paths, or beneath the user's home.
    Paths,
    /// Kin, or names of agents.
    Targets,
    /// A line for people.
    Line,
    /// Names of models.
    Models,
    /// The name of a provider that is known.
    Provider,
    /// The name of a variable of the environment.
    Variable,
    /// A path, absolute or beneath the user's home.
    Path,
    /// A program and its words.
    Command,
    /// Names with texts that may be secret.
    Headers,
    /// A table that is handed on as it is.
    Fields,
}

/// A checked value on its way to a field of `Config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Unset,
    Flag(bool),
    Count(u64),
    Text(String),
    Texts(Vec<String>),
    /// Never shown.
    Headers(Vec<(String, Secret)>),
    Fields(serde_json::Map<String, serde_json::Value>),
}

/// Why a value was not taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// What stood there instead, and the reason where the rule does not speak for itself.
    pub(crate) got: String,
    /// Where exactly, when it was one element of a list.
    pub(crate) span: Option<Range<usize>>,
}

impl Refusal {
    pub(crate) fn new(got: String) -> Self {
        Self { got, span: None }
    }
}

impl Kind {
    /// The end of the sentence "port must be …".
    pub(crate) fn must_be(self) -> String {
        match self {
            Self::Flag => "true or false".to_owned(),
            Self::Count { min, max } => format!("an integer from {min} to {max}"),
            Self::Host => "127.0.0.1, localhost or ::1 (only loopback can be bound)".to_owned(),
            Self::Origins => {
                r#"a list of origins like "https://example.com" (scheme://host[:port], no path)"#.to_owned()
            }
            Self::Model => r#"a text "provider/name", or an alias"#.to_owned(),
            Self::Models => r#"a list of models like "provider/name", or of aliases"#.to_owned(),
            Self::Provider => {
                let names: Vec<&str> = PROVIDERS.iter().map(|known| known.name).collect();
                format!("one of {}", names.join(", "))
            }
            Self::Variable => "the name of an environment variable".to_owned(),
            Self::Path => r#"an absolute path, or one that begins with "~/""#.to_owned(),
            Self::Command => r#"a list of a program and its words, like ["pass", "show", "key"]"#.to_owned(),
            Self::Headers => r#"a table of texts, like { "X-Title" = "nexus3" }"#.to_owned(),
            Self::Fields => "a table, like { temperature = 0.2 }".to_owned(),
            Self::OneOf(words) => format!("one of {}", words.join(", ")),
            Self::Preset => "the name of a preset".to_owned(),
            Self::Presets => r#"a list of presets like "worker""#.to_owned(),
            Self::Names => r#"a list of tools like "fs.read_file""#.to_owned(),
            Self::Paths => r#"a list of absolute paths, or of paths that begin with "~/""#.to_owned(),
            Self::Targets => r#""nobody", "parent", "children", "family", or a list of agent ids"#.to_owned(),
            Self::Line => format!("one line of at most {LINE_CHARS_MAX} characters"),
        }
    }

    /// Reads the form that the environment and the command line use.
    pub(crate) fn read_text(self, text: &str) -> Result<Value, Refusal> {
        match self {
            Self::Flag => match text {
                "true" => Ok(Value::Flag(true)),
                "false" => Ok(Value::Flag(false)),
                _ => Err(Refusal::new(quote(text))),
            },
            Self::Count { .. } => {
                text.parse().ok().and_then(|count| self.count(count)).ok_or_else(|| Refusal::new(quote(text)))
            }
            Self::Headers | Self::Fields => Err(Refusal::new(quote(text))),
            Self::Origins | Self::Presets | Self::Names | Self::Paths | Self::Models | Self::Command => {
                let parts = text.split(',').map(str::trim).filter(|_| !text.trim().is_empty());
                parts
                    .map(|part| self.element(part).map_err(Refusal::new))
                    .collect::<Result<_, _>>()
                    .map(Value::Texts)
            }
            Self::Host
            | Self::Model
            | Self::OneOf(_)
            | Self::Preset
            | Self::Targets
            | Self::Line
            | Self::Provider
            | Self::Variable
            | Self::Path => self.word(text).ok_or_else(|| Refusal::new(quote(text))),
        }
    }

    /// Reads a value of the file; a list can be wrong in several places.
    pub(crate) fn read_toml(self, value: &DeValue<'_>) -> Result<Value, Vec<Refusal>> {
        let read = match (self, value) {
            (Self::Command, DeValue::Array(words)) if has_no_first(words) => Err("none".to_owned()),
            (
                Self::Origins
                | Self::Presets
                | Self::Names
                | Self::Paths
                | Self::Targets
                | Self::Models
                | Self::Command,
                DeValue::Array(array),
            ) => return self.elements(array),
            (Self::Headers, DeValue::Table(table)) => return tables::headers(table),
            (Self::Fields, DeValue::Table(table)) => return tables::fields(table).map(Value::Fields),
            (Self::Flag, DeValue::Boolean(flag)) => Ok(Value::Flag(*flag)),
            (Self::Count { .. }, DeValue::Integer(integer)) => {
                i128::from_str_radix(integer.as_str(), integer.radix())
                    .ok()
                    .and_then(|count| self.count(count))
                    .ok_or_else(|| integer.to_string())
            }
            (
                Self::Host
                | Self::Model
                | Self::OneOf(_)
                | Self::Preset
                | Self::Targets
                | Self::Line
                | Self::Provider
                | Self::Variable
                | Self::Path,
                DeValue::String(text),
            ) => self.word(text).ok_or_else(|| quote(text)),
            (_, other) => Err(describe(other)),
        };
        read.map_err(|got| vec![Refusal::new(got)])
    }

    fn count(self, count: i128) -> Option<Value> {
        let Self::Count { min, max } = self else { return None };
        let count = u64::try_from(count).ok()?;
        (min..=max).contains(&count).then_some(Value::Count(count))
    }

    fn word(self, text: &str) -> Option<Value> {
        let fits = match self {
            Self::Host => matches!(text, "127.0.0.1" | "localhost" | "::1"),
            Self::Model => is_model(text),
            Self::Provider => known_provider(text).is_some(),
            Self::Variable => is_variable(text),
            Self::Path => text.starts_with('/') || text.starts_with("~/"),
            Self::OneOf(words) => words.contains(&text),
            Self::Preset => is_name(text),
            Self::Targets => matches!(text, "nobody" | "parent" | "children" | "family"),
            Self::Line => text.chars().count() <= LINE_CHARS_MAX && !text.chars().any(char::is_control),
            Self::Flag | Self::Count { .. } => false,
            Self::Origins | Self::Presets | Self::Names | Self::Paths => false,
            Self::Models | Self::Command | Self::Headers | Self::Fields => false,
        };
        fits.then(|| Value::Text(text.to_owned()))
    }

    fn elements(self, array: &DeArray<'_>) -> Result<Value, Vec<Refusal>> {
        let mut texts = Vec::new();
        let mut refusals = Vec::new();
        for element in array.iter() {
            let value = element.get_ref();
            match value.as_str().map_or_else(|| Err(describe(value)), |text| self.element(text)) {
                Ok(text) => texts.push(text),
                Err(got) => refusals.push(Refusal { got, span: Some(element.span()) }),
            }
        }
        if refusals.is_empty() { Ok(Value::Texts(texts)) } else { Err(refusals) }
    }

    /// One text of a list, or what was wrong with it.
    fn element(self, text: &str) -> Result<String, String> {
        let fits = match self {
            Self::Origins => return origin(text),
            Self::Presets if !is_name(text) => {
                return Err(format!("{} (a name is {NAME_RULE})", quote(text)));
            }
            Self::Presets => true,
            Self::Names => is_tool_name(text),
            Self::Models => is_model(text),
            Self::Command => !text.contains('\0'),
            Self::Paths => text.starts_with('/') || text == "~" || text.starts_with("~/"),
            Self::Targets => {
                return AgentId::parse(text)
                    .map(|id| id.to_string())
                    .map_err(|fault| format!("{} ({fault})", quote(text)));
            }
            Self::Flag | Self::Count { .. } | Self::Host | Self::Model | Self::OneOf(_) => false,
            Self::Preset | Self::Line | Self::Provider | Self::Variable | Self::Path => false,
            Self::Headers | Self::Fields => false,
        };
        if fits { Ok(text.to_owned()) } else { Err(quote(text)) }
    }
}

impl Value {
    /// The value as TOML writes it; nothing for one that is not set.
    pub(crate) fn to_toml(&self) -> Option<String> {
        match self {
            Self::Unset => None,
            Self::Flag(flag) => Some(flag.to_string()),
            Self::Count(count) => Some(count.to_string()),
            Self::Text(text) => Some(toml::Value::from(text.as_str()).to_string()),
            Self::Texts(texts) => Some(toml::Value::from(texts.clone()).to_string()),
            Self::Headers(headers) => Some(tables::show_headers(headers)),
            Self::Fields(fields) => Some(tables::show_fields(fields)),
        }
    }
}

/// The type of a field of `Config`.
pub(crate) trait Field {
    /// False when the value is not of this type; a test holds that the list never gets there.
    fn put(&mut self, value: Value) -> bool;
    fn get(&self) -> Value;
}

macro_rules! integer_fields {
    ($($integer:ty),*) => { $(
        impl Field for $integer {
            fn put(&mut self, value: Value) -> bool {
                let Value::Count(count) = value else { return false };
                Self::try_from(count).map(|count| *self = count).is_ok()
            }

            fn get(&self) -> Value {
                u64::try_from(*self).map_or(Value::Unset, Value::Count)
            }
        }
    )* };
}

integer_fields!(u16, u32, u64, usize);

impl Field for bool {
    fn put(&mut self, value: Value) -> bool {
        let Value::Flag(flag) = value else { return false };
        *self = flag;
        true
    }

    fn get(&self) -> Value {
        Value::Flag(*self)
    }
}

impl Field for String {
    fn put(&mut self, value: Value) -> bool {
        let Value::Text(text) = value else { return false };
        *self = text;
        true
    }

    fn get(&self) -> Value {
        Value::Text(self.clone())
    }
}

impl Field for Option<String> {
    fn put(&mut self, value: Value) -> bool {
        let Value::Text(text) = value else { return false };
        *self = Some(text);
        true
    }

    fn get(&self) -> Value {
        self.clone().map_or(Value::Unset, Value::Text)
    }
}

impl Field for Vec<String> {
    fn put(&mut self, value: Value) -> bool {
        let Value::Texts(texts) = value else { return false };
        *self = texts;
        true
    }

    fn get(&self) -> Value {
        Value::Texts(self.clone())
    }
}

/// A type whose values are words, the setting's and the file's.
pub(crate) trait Word: Copy + PartialEq + 'static {
    /// The words.
    const WORDS: &'static [&'static str];
    /// What they mean, in the same order.
    const MEANINGS: &'static [Self];
}

impl Word for Level {
    const WORDS: &'static [&'static str] = &["error", "warn", "info", "debug", "trace"];
    const MEANINGS: &'static [Self] = &[Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
}

impl Word for Durability {
    const WORDS: &'static [&'static str] = &["full", "normal"];
    const MEANINGS: &'static [Self] = &[Durability::Full, Durability::Normal];
}

impl Word for EngineKind {
    const WORDS: &'static [&'static str] = &["own", "llama-cpp"];
    const MEANINGS: &'static [Self] = &[EngineKind::Native, EngineKind::LlamaCpp];
}

impl Word for OnRestart {
    const WORDS: &'static [&'static str] = &["resume", "mark"];
    const MEANINGS: &'static [Self] = &[OnRestart::Resume, OnRestart::Mark];
}

impl<W: Word> Field for W {
    fn put(&mut self, value: Value) -> bool {
        let Value::Text(text) = value else { return false };
        let place = W::WORDS.iter().position(|word| *word == text);
        let Some(meaning) = place.and_then(|place| W::MEANINGS.get(place)) else { return false };
        *self = *meaning;
        true
    }

    fn get(&self) -> Value {
        let place = W::MEANINGS.iter().position(|meaning| meaning == self);
        place.map_or(Value::Unset, |place| Value::Text(W::WORDS[place].to_owned()))
    }
}

/// Whether a list of words names no program.
fn has_no_first(words: &DeArray<'_>) -> bool {
    words.first().is_none_or(|first| first.get_ref().as_str() == Some(""))
}

/// A provider and a name, or an alias.
fn is_model(text: &str) -> bool {
    let has_halves =
        text.split_once('/').is_some_and(|(provider, name)| !provider.is_empty() && !name.is_empty());
    (has_halves || is_name(text)) && !text.chars().any(char::is_control)
}

fn is_variable(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !text.is_empty() && text.bytes().all(fits) && !text.starts_with(|first: char| first.is_ascii_digit())
}

fn is_tool_name(text: &str) -> bool {
    let is_odd = |char: char| char.is_whitespace() || char.is_control() || char == ',';
    !text.is_empty() && text.chars().count() <= TOOL_NAME_CHARS_MAX && !text.contains(is_odd)
}

fn origin(text: &str) -> Result<String, String> {
    match web_origin_shape(text) {
        WebOriginShape::Good => Ok(text.to_owned()),
        WebOriginShape::Bad => Err(quote(text)),
        WebOriginShape::Never(why) => Err(format!("{} ({why})", quote(text))),
    }
}

/// Names a value that is of the wrong type.
pub(crate) fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("a string {}", quote(text)),
        DeValue::Integer(integer) => format!("an integer {integer}"),
        DeValue::Float(float) => format!("a float {float}"),
        DeValue::Boolean(flag) => format!("a boolean {flag}"),
        DeValue::Datetime(time) => format!("a date {time}"),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// A text in quotes, escaped and cut, fit for one line of a message.
pub(crate) fn quote(text: &str) -> String {
    match text.char_indices().nth(QUOTE_CHARS_MAX) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}…", &text[..end]),
    }
}
