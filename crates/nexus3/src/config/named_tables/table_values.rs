//! Parsing and display of values that are TOML tables: headers and variables, which may be secret, and raw fields.

use provider::Secret;
use toml::de::{DeTable, DeValue};

use crate::config::value_kind::{InvalidValue, SettingValue, describe_type, is_variable_name, quote};

/// Text shown in place of a header's or variable's value.
const REDACTED: &str = "[hidden]";

/// Parses a table of headers. Problems never quote a value: it may be an API key.
pub(crate) fn parse_headers(table: &DeTable<'_>) -> Result<SettingValue, Vec<InvalidValue>> {
    let mut headers = Vec::new();
    let mut invalid_values = Vec::new();
    for (name, value) in table.iter() {
        let shown = quote(name.get_ref());
        let is_name =
            name.get_ref().bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        let got = match value.get_ref() {
            DeValue::String(text) if text.chars().any(char::is_control) => {
                format!("a control character in {shown}")
            }
            DeValue::String(_) if !is_name || name.get_ref().is_empty() => format!("the name {shown}"),
            DeValue::String(text) => {
                headers.push((name.get_ref().to_string(), Secret::new(text.to_string())));
                continue;
            }
            _ => format!("a value that is not a string in {shown}"),
        };
        invalid_values.push(InvalidValue { got, span: Some(name.span()) });
    }
    if invalid_values.is_empty() { Ok(SettingValue::Headers(headers)) } else { Err(invalid_values) }
}

/// Parses a table of environment variables. Problems never quote a value: it may be a key.
pub(crate) fn parse_variables(table: &DeTable<'_>) -> Result<SettingValue, Vec<InvalidValue>> {
    let mut variables = Vec::new();
    let mut invalid_values = Vec::new();
    for (name, value) in table.iter() {
        let shown = quote(name.get_ref());
        let got = match value.get_ref() {
            _ if !is_variable_name(name.get_ref()) => format!("the name {shown}"),
            DeValue::String(text) if text.contains('\0') => format!("a NUL character in {shown}"),
            DeValue::String(text) => {
                variables.push((name.get_ref().to_string(), Secret::new(text.to_string())));
                continue;
            }
            _ => format!("a value that is not a string in {shown}"),
        };
        invalid_values.push(InvalidValue { got, span: Some(name.span()) });
    }
    if invalid_values.is_empty() { Ok(SettingValue::Headers(variables)) } else { Err(invalid_values) }
}

pub(crate) fn display_headers(headers: &[(String, Secret)]) -> String {
    let shown = headers.iter().map(|(name, _)| (name.clone(), toml::Value::from(REDACTED)));
    toml::Value::Table(shown.collect()).to_string()
}

/// Converts a table to the JSON fields that are sent to the model server.
pub(crate) fn parse_raw_table(
    table: &DeTable<'_>,
) -> Result<serde_json::Map<String, serde_json::Value>, Vec<InvalidValue>> {
    let mut fields = serde_json::Map::new();
    for (name, value) in table.iter() {
        let read = toml_to_json(value.get_ref())
            .map_err(|got| vec![InvalidValue { got, span: Some(value.span()) }])?;
        fields.insert(name.get_ref().to_string(), read);
    }
    Ok(fields)
}

fn toml_to_json(value: &DeValue<'_>) -> Result<serde_json::Value, String> {
    let number = |text: &str| text.parse::<serde_json::Number>().map(serde_json::Value::Number);
    match value {
        DeValue::String(text) => Ok(text.to_string().into()),
        DeValue::Boolean(flag) => Ok((*flag).into()),
        DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix())
            .map(Into::into)
            .map_err(|_| describe_type(value)),
        DeValue::Float(float) => number(float.as_str()).map_err(|_| describe_type(value)),
        DeValue::Array(array) => array.iter().map(|element| toml_to_json(element.get_ref())).collect(),
        DeValue::Table(table) => {
            let entries = table
                .iter()
                .map(|(name, value)| Ok((name.get_ref().to_string(), toml_to_json(value.get_ref())?)));
            entries.collect::<Result<_, String>>().map(serde_json::Value::Object)
        }
        DeValue::Datetime(_) => Err(describe_type(value)),
    }
}

pub(crate) fn display_raw_table(fields: &serde_json::Map<String, serde_json::Value>) -> String {
    toml::Value::try_from(fields).map(|value| value.to_string()).unwrap_or_default()
}
