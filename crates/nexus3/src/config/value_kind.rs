//! Kinds of setting values: parses a TOML value or a text into a validated `SettingValue`, or reports what is invalid.

use std::ops::Range;

use agent::AgentId;
use agent::permission::{HostPattern, Rule, is_program_name};
use provider::Secret;
use provider::catalog::{PROVIDERS, known_provider};
use toml::de::{DeArray, DeValue};

use super::named_tables::table_values;
use super::presets::{NAME_RULE, is_table_name};
use super::web_origin::{WebOriginCheck, check_web_origin};

/// Characters of a value that a message quotes, so that one invalid value cannot fill the screen.
const QUOTE_CHARS_MAX: usize = 60;

/// Maximum length of a single-line text: descriptions are shown in lists.
const LINE_CHARS_MAX: usize = 200;

/// Maximum length of a description for models, which is part of every request.
const DESCRIPTION_CHARS_MAX: usize = 2000;

/// Maximum length of a tool's name.
const TOOL_NAME_CHARS_MAX: usize = 128;

/// Kind of values that a setting accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueKind {
    Boolean,
    Integer {
        min: u64,
        max: u64,
    },
    /// A loopback address.
    Host,
    /// Web origins.
    Origins,
    /// The name of a model.
    Model,
    /// One of these names.
    OneOf(&'static [&'static str]),
    /// The name of a preset.
    Preset,
    /// Names of presets.
    Presets,
    /// Names of tools.
    ToolNames,
    /// Programs that may be run.
    Commands,
    /// Approval rules.
    Rules,
    /// Patterns of hosts.
    Hosts,
    /// Absolute paths, or beneath the user's home.
    Paths,
    /// A word for related agents, such as parent, or a list of agent ids.
    Targets,
    /// One line of text.
    SingleLine,
    /// Names of models.
    Models,
    /// The name of a built-in provider.
    Provider,
    /// The name of an environment variable.
    VariableName,
    /// A path, absolute or beneath the user's home.
    Path,
    /// A program and its arguments.
    Command,
    /// A program by its name or path.
    Program,
    /// Text of several lines.
    Description,
    /// Arguments of a program.
    Arguments,
    /// HTTP headers; their values may be secret.
    Headers,
    /// Environment variables; their values may be secret.
    Variables,
    /// A table that is passed on unchanged.
    RawTable,
}

/// A validated value for a field of `Config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SettingValue {
    Unset,
    Boolean(bool),
    Integer(u64),
    Text(String),
    List(Vec<String>),
    /// Header names and values; the values are never shown.
    Headers(Vec<(String, Secret)>),
    RawTable(serde_json::Map<String, serde_json::Value>),
}

/// A value that was rejected.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InvalidValue {
    /// The value as shown in the message, with the reason where the expected form does not make it obvious.
    pub(crate) got: String,
    /// Position of the element, when it was part of a list or table.
    pub(crate) span: Option<Range<usize>>,
}

impl InvalidValue {
    pub(crate) fn new(got: String) -> Self {
        Self { got, span: None }
    }
}

impl ValueKind {
    /// Describes valid values; completes the sentence "port must be …".
    pub(crate) fn expected(self) -> String {
        match self {
            Self::Boolean => "true or false".to_owned(),
            Self::Integer { min, max } => format!("an integer from {min} to {max}"),
            Self::Host => "127.0.0.1, localhost or ::1 (only loopback can be bound)".to_owned(),
            Self::Origins => {
                r#"a list of origins like "https://example.com" (scheme://host[:port], no path)"#.to_owned()
            }
            Self::Model => r#""provider/name" or an alias"#.to_owned(),
            Self::Models => r#"a list of models like "provider/name", or aliases"#.to_owned(),
            Self::Provider => {
                let names: Vec<&str> = PROVIDERS.iter().map(|known| known.name).collect();
                format!("one of {}", names.join(", "))
            }
            Self::VariableName => "the name of an environment variable".to_owned(),
            Self::Path => r#"an absolute path, or one that starts with "~/""#.to_owned(),
            Self::Command => {
                r#"a program and its arguments as a list, like ["pass", "show", "key"]"#.to_owned()
            }
            Self::Program => "the name of a program or an absolute path".to_owned(),
            Self::Description => format!("a text of 1 to {DESCRIPTION_CHARS_MAX} characters"),
            Self::Arguments => r#"a list of arguments, like ["--max", "${count}"]"#.to_owned(),
            Self::Variables => r#"a table of variables, like { MODE = "fast" }"#.to_owned(),
            Self::Headers => r#"a table of strings, like { "X-Title" = "nexus3" }"#.to_owned(),
            Self::RawTable => "a table, like { temperature = 0.2 }".to_owned(),
            Self::OneOf(names) => format!("one of {}", names.join(", ")),
            Self::Preset => "the name of a preset".to_owned(),
            Self::Presets => r#"a list of presets like "worker""#.to_owned(),
            Self::ToolNames => r#"a list of tools like "fs.read_file""#.to_owned(),
            Self::Rules => {
                r#"a list of approval rules like "fs.delete", "run:git push" or "host:*""#.to_owned()
            }
            Self::Commands => r#"a list of programs like "cargo", or ["*"] for all"#.to_owned(),
            Self::Hosts => {
                r#"a list of hosts like "example.com", "*.example.com", "10.1.2.3:8080" or "*""#.to_owned()
            }
            Self::Paths => r#"a list of paths that are absolute or start with "~/""#.to_owned(),
            Self::Targets => r#""none", "parent", "children", "family", or a list of agent ids"#.to_owned(),
            Self::SingleLine => format!("one line of at most {LINE_CHARS_MAX} characters"),
        }
    }

    /// Parses the text form, as used in the environment and on the command line.
    pub(crate) fn parse_text(self, text: &str) -> Result<SettingValue, InvalidValue> {
        match self {
            Self::Boolean => match text {
                "true" => Ok(SettingValue::Boolean(true)),
                "false" => Ok(SettingValue::Boolean(false)),
                _ => Err(InvalidValue::new(quote(text))),
            },
            Self::Integer { .. } => text
                .parse()
                .ok()
                .and_then(|count| self.check_integer(count))
                .ok_or_else(|| InvalidValue::new(quote(text))),
            Self::Headers | Self::Variables | Self::RawTable => Err(InvalidValue::new(quote(text))),
            Self::Origins
            | Self::Presets
            | Self::ToolNames
            | Self::Commands
            | Self::Rules
            | Self::Hosts
            | Self::Paths
            | Self::Models
            | Self::Command
            | Self::Arguments => {
                let parts = text.split(',').map(str::trim).filter(|_| !text.trim().is_empty());
                parts
                    .map(|part| self.check_element(part).map_err(InvalidValue::new))
                    .collect::<Result<_, _>>()
                    .map(SettingValue::List)
            }
            Self::Host
            | Self::Model
            | Self::OneOf(_)
            | Self::Preset
            | Self::Targets
            | Self::SingleLine
            | Self::Provider
            | Self::VariableName
            | Self::Program
            | Self::Description
            | Self::Path => self.check_text(text).ok_or_else(|| InvalidValue::new(quote(text))),
        }
    }

    /// Parses a value of the file; a list can have several invalid elements.
    pub(crate) fn parse_toml(self, value: &DeValue<'_>) -> Result<SettingValue, Vec<InvalidValue>> {
        let parsed = match (self, value) {
            (Self::Command, DeValue::Array(command)) if lacks_program(command) => Err("none".to_owned()),
            (
                Self::Origins
                | Self::Presets
                | Self::ToolNames
                | Self::Commands
                | Self::Rules
                | Self::Hosts
                | Self::Paths
                | Self::Targets
                | Self::Models
                | Self::Command
                | Self::Arguments,
                DeValue::Array(array),
            ) => return self.parse_list(array),
            (Self::Headers, DeValue::Table(table)) => return table_values::parse_headers(table),
            (Self::Variables, DeValue::Table(table)) => return table_values::parse_variables(table),
            (Self::RawTable, DeValue::Table(table)) => {
                return table_values::parse_raw_table(table).map(SettingValue::RawTable);
            }
            (Self::Boolean, DeValue::Boolean(flag)) => Ok(SettingValue::Boolean(*flag)),
            (Self::Integer { .. }, DeValue::Integer(integer)) => {
                i128::from_str_radix(integer.as_str(), integer.radix())
                    .ok()
                    .and_then(|count| self.check_integer(count))
                    .ok_or_else(|| integer.to_string())
            }
            (
                Self::Host
                | Self::Model
                | Self::OneOf(_)
                | Self::Preset
                | Self::Targets
                | Self::SingleLine
                | Self::Provider
                | Self::VariableName
                | Self::Program
                | Self::Description
                | Self::Path,
                DeValue::String(text),
            ) => self.check_text(text).ok_or_else(|| quote(text)),
            (_, other) => Err(describe_type(other)),
        };
        parsed.map_err(|got| vec![InvalidValue::new(got)])
    }

    fn check_integer(self, count: i128) -> Option<SettingValue> {
        let Self::Integer { min, max } = self else { return None };
        let count = u64::try_from(count).ok()?;
        (min..=max).contains(&count).then_some(SettingValue::Integer(count))
    }

    fn check_text(self, text: &str) -> Option<SettingValue> {
        let is_valid = match self {
            Self::Host => matches!(text, "127.0.0.1" | "localhost" | "::1"),
            Self::Model => is_model_name(text),
            Self::Provider => known_provider(text).is_some(),
            Self::VariableName => is_variable_name(text),
            Self::Path => text.starts_with('/') || text.starts_with("~/"),
            Self::OneOf(names) => names.contains(&text),
            Self::Preset => is_table_name(text),
            Self::Targets => matches!(text, "none" | "parent" | "children" | "family"),
            Self::SingleLine => text.chars().count() <= LINE_CHARS_MAX && !text.chars().any(char::is_control),
            Self::Program => is_program_name(text),
            Self::Description => is_description(text),
            Self::Boolean | Self::Integer { .. } => false,
            Self::Origins | Self::Presets | Self::ToolNames | Self::Commands | Self::Paths => false,
            Self::Hosts | Self::Models | Self::Command | Self::Arguments | Self::Rules => false,
            Self::Headers | Self::Variables | Self::RawTable => false,
        };
        is_valid.then(|| SettingValue::Text(text.to_owned()))
    }

    fn parse_list(self, array: &DeArray<'_>) -> Result<SettingValue, Vec<InvalidValue>> {
        let mut texts = Vec::new();
        let mut invalid_values = Vec::new();
        for element in array.iter() {
            let value = element.get_ref();
            match value.as_str().map_or_else(|| Err(describe_type(value)), |text| self.check_element(text)) {
                Ok(text) => texts.push(text),
                Err(got) => invalid_values.push(InvalidValue { got, span: Some(element.span()) }),
            }
        }
        if invalid_values.is_empty() { Ok(SettingValue::List(texts)) } else { Err(invalid_values) }
    }

    /// Validates one element of a list; the error is the `got` text of the problem.
    fn check_element(self, text: &str) -> Result<String, String> {
        let is_valid = match self {
            Self::Origins => return check_origin(text),
            Self::Presets if !is_table_name(text) => {
                return Err(format!("{} (a name must be {NAME_RULE})", quote(text)));
            }
            Self::Presets => true,
            Self::ToolNames => is_tool_name(text),
            Self::Commands => is_program_name(text),
            Self::Rules => {
                return Rule::parse(text).map(|rule| rule.to_string()).map_err(|fault| fault.to_string());
            }
            Self::Hosts => HostPattern::parse(text).is_some(),
            Self::Models => is_model_name(text),
            Self::Command | Self::Arguments => !text.contains('\0'),
            Self::Paths => text.starts_with('/') || text == "~" || text.starts_with("~/"),
            Self::Targets => {
                return AgentId::parse(text)
                    .map(|id| id.to_string())
                    .map_err(|fault| format!("{} ({fault})", quote(text)));
            }
            Self::Boolean | Self::Integer { .. } | Self::Host | Self::Model | Self::OneOf(_) => false,
            Self::Preset | Self::SingleLine | Self::Provider | Self::VariableName | Self::Path => false,
            Self::Program | Self::Description | Self::Headers | Self::Variables | Self::RawTable => false,
        };
        if is_valid { Ok(text.to_owned()) } else { Err(quote(text)) }
    }
}

impl SettingValue {
    /// Formats the value as TOML; `None` when it is not set.
    pub(crate) fn to_toml(&self) -> Option<String> {
        match self {
            Self::Unset => None,
            Self::Boolean(flag) => Some(flag.to_string()),
            Self::Integer(count) => Some(count.to_string()),
            Self::Text(text) => Some(toml::Value::from(text.as_str()).to_string()),
            Self::List(texts) => Some(toml::Value::from(texts.clone()).to_string()),
            Self::Headers(headers) => Some(table_values::display_headers(headers)),
            Self::RawTable(fields) => Some(table_values::display_raw_table(fields)),
        }
    }
}

/// The type of a field of `Config`.
pub(crate) trait SettingField {
    /// Sets the field; false when the value has another type. A test ensures that this never happens for a setting.
    fn set(&mut self, value: SettingValue) -> bool;
    fn get(&self) -> SettingValue;
}

macro_rules! integer_fields {
    ($($integer:ty),*) => { $(
        impl SettingField for $integer {
            fn set(&mut self, value: SettingValue) -> bool {
                let SettingValue::Integer(count) = value else { return false };
                Self::try_from(count).map(|count| *self = count).is_ok()
            }

            fn get(&self) -> SettingValue {
                u64::try_from(*self).map_or(SettingValue::Unset, SettingValue::Integer)
            }
        }
    )* };
}

integer_fields!(u16, u32, u64, usize);

impl SettingField for bool {
    fn set(&mut self, value: SettingValue) -> bool {
        let SettingValue::Boolean(flag) = value else { return false };
        *self = flag;
        true
    }

    fn get(&self) -> SettingValue {
        SettingValue::Boolean(*self)
    }
}

impl SettingField for String {
    fn set(&mut self, value: SettingValue) -> bool {
        let SettingValue::Text(text) = value else { return false };
        *self = text;
        true
    }

    fn get(&self) -> SettingValue {
        SettingValue::Text(self.clone())
    }
}

impl SettingField for Option<String> {
    fn set(&mut self, value: SettingValue) -> bool {
        let SettingValue::Text(text) = value else { return false };
        *self = Some(text);
        true
    }

    fn get(&self) -> SettingValue {
        self.clone().map_or(SettingValue::Unset, SettingValue::Text)
    }
}

impl SettingField for Vec<String> {
    fn set(&mut self, value: SettingValue) -> bool {
        let SettingValue::List(texts) = value else { return false };
        *self = texts;
        true
    }

    fn get(&self) -> SettingValue {
        SettingValue::List(self.clone())
    }
}

/// Whether a command line has no program.
fn lacks_program(command: &DeArray<'_>) -> bool {
    command.first().is_none_or(|first| first.get_ref().as_str() == Some(""))
}

/// Whether a text is `provider/name` or an alias.
fn is_model_name(text: &str) -> bool {
    let has_provider =
        text.split_once('/').is_some_and(|(provider, name)| !provider.is_empty() && !name.is_empty());
    (has_provider || is_table_name(text)) && !text.chars().any(char::is_control)
}

pub(crate) fn is_variable_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !text.is_empty() && text.bytes().all(fits) && !text.starts_with(|first: char| first.is_ascii_digit())
}

fn is_description(text: &str) -> bool {
    let is_odd = |char: char| char.is_control() && !char.is_ascii_whitespace();
    !text.trim().is_empty() && text.chars().count() <= DESCRIPTION_CHARS_MAX && !text.contains(is_odd)
}

fn is_tool_name(text: &str) -> bool {
    let is_odd = |char: char| char.is_whitespace() || char.is_control() || char == ',';
    !text.is_empty() && text.chars().count() <= TOOL_NAME_CHARS_MAX && !text.contains(is_odd)
}

fn check_origin(text: &str) -> Result<String, String> {
    match check_web_origin(text) {
        WebOriginCheck::Valid => Ok(text.to_owned()),
        WebOriginCheck::Malformed => Err(quote(text)),
        WebOriginCheck::Disallowed(why) => Err(format!("{} ({why})", quote(text))),
    }
}

/// Describes a value of the wrong type.
pub(crate) fn describe_type(value: &DeValue<'_>) -> String {
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

/// Formats a text for a message: quoted, escaped, truncated, on one line.
pub(crate) fn quote(text: &str) -> String {
    match text.char_indices().nth(QUOTE_CHARS_MAX) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}…", &text[..end]),
    }
}
