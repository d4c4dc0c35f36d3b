//! The parameters of a custom tool: a JSON Schema of a few keywords, all of which are enforced. Any other keyword is an
//! error when the tool is defined.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value, json};

use super::template::{PARAMETER_NAME_RULE, is_parameter_name};
use crate::definition::SortedKeys;

/// The parameters by name.
#[derive(Debug)]
pub(super) struct Parameters {
    properties: BTreeMap<String, Property>,
    required: Vec<String>,
    schema: Value,
}

/// The keywords of the schema itself, and of one parameter.
const SCHEMA_KEYS: [&str; 4] = ["type", "properties", "required", "additionalProperties"];
const PROPERTY_KEYS: [&str; 10] = [
    "type",
    "description",
    "default",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "items",
];

#[derive(Debug)]
struct Property {
    kind: Kind,
    default: Option<Value>,
    choices: Option<Vec<Value>>,
    pattern: Option<Regex>,
    length: (Option<u64>, Option<u64>),
    range: (Option<f64>, Option<f64>),
    items: Option<Box<Property>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    String,
    Integer,
    Number,
    Boolean,
    Array,
    Object,
}

const KINDS: [(&str, Kind); 6] = [
    ("string", Kind::String),
    ("integer", Kind::Integer),
    ("number", Kind::Number),
    ("boolean", Kind::Boolean),
    ("array", Kind::Array),
    ("object", Kind::Object),
];

impl Parameters {
    /// Checks a schema.
    pub(super) fn new(schema: &Map<String, Value>) -> Result<Self, String> {
        check_keys("", schema, &SCHEMA_KEYS)?;
        if schema.get("type").is_some_and(|kind| kind != "object") {
            return Err(".type must be \"object\"".to_owned());
        }
        if schema.get("additionalProperties").is_some_and(|extra| extra != false) {
            return Err(".additionalProperties must be false: unknown parameters are refused".to_owned());
        }
        let empty = json!({});
        let members = schema.get("properties").unwrap_or(&empty);
        let members = members.as_object().ok_or(".properties must be a table")?;
        let mut properties = BTreeMap::new();
        for (name, property) in members {
            let path = format!(".properties.{name}");
            if !is_parameter_name(name) {
                return Err(format!("{path}: the name must be {PARAMETER_NAME_RULE}"));
            }
            properties.insert(name.clone(), Property::new(&path, property)?);
        }
        let required = required_names(schema, &properties)?;
        let schema = json!({
            "type": "object",
            "properties": members,
            "required": required,
            "additionalProperties": false,
        });
        Ok(Self { properties, required, schema })
    }

    /// The schema that models see, as JSON text.
    pub(super) fn schema_text(&self) -> String {
        // Serializing a `Value` does not fail.
        serde_json::to_string(&SortedKeys(&self.schema)).unwrap_or_default()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.properties.keys().map(String::as_str)
    }

    /// Checks the arguments of a call, leaves out those that are `null` and adds defaults.
    pub(super) fn check(&self, mut arguments: Map<String, Value>) -> Result<Map<String, Value>, String> {
        arguments.retain(|_, value| !value.is_null());
        if let Some(unknown) = arguments.keys().find(|name| !self.properties.contains_key(*name)) {
            let names = self.names().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            return Err(format!("unknown field `{}`, expected: {names}", unknown.escape_debug()));
        }
        for (name, property) in &self.properties {
            match (arguments.get(name), &property.default) {
                (Some(value), _) => property.check(value).map_err(|why| format!("field `{name}`: {why}"))?,
                (None, Some(default)) => {
                    arguments.insert(name.clone(), default.clone());
                }
                (None, None) if self.required.contains(name) => {
                    return Err(format!("missing field `{name}`"));
                }
                (None, None) => {}
            }
        }
        Ok(arguments)
    }
}

fn required_names(
    schema: &Map<String, Value>,
    properties: &BTreeMap<String, Property>,
) -> Result<Vec<String>, String> {
    let Some(required) = schema.get("required") else { return Ok(Vec::new()) };
    let names: Option<Vec<String>> = required
        .as_array()
        .and_then(|names| names.iter().map(|name| Some(name.as_str()?.to_owned())).collect());
    let names = names.ok_or(".required must be a list of parameters")?;
    match names.iter().find(|name| !properties.contains_key(*name)) {
        Some(unknown) => {
            Err(format!(".required: there is no parameter {unknown:?}; define it in properties"))
        }
        None => Ok(names),
    }
}

fn check_keys(path: &str, table: &Map<String, Value>, known: &[&str]) -> Result<(), String> {
    match table.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(format!("{path}.{key} is not supported; the keys here are {}", known.join(", "))),
    }
}

impl Property {
    fn new(path: &str, schema: &Value) -> Result<Self, String> {
        let schema = schema.as_object().ok_or_else(|| format!("{path} must be a table"))?;
        check_keys(path, schema, &PROPERTY_KEYS)?;
        let word = schema.get("type").and_then(Value::as_str).unwrap_or_default();
        let kind = KINDS.iter().find(|(name, _)| *name == word).map(|(_, kind)| *kind).ok_or_else(|| {
            let names = KINDS.map(|(name, _)| name).join(", ");
            format!("{path}.type must be one of {names}")
        })?;
        let wrong = |key: &str, what: &str| format!("{path}.{key} must be {what}");
        let count = |key: &str| match schema.get(key) {
            None => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or_else(|| wrong(key, "a count")),
        };
        let number = |key: &str| match schema.get(key) {
            None => Ok(None),
            Some(value) => value.as_f64().map(Some).ok_or_else(|| wrong(key, "a number")),
        };
        let pattern = match schema.get("pattern") {
            None => None,
            Some(text) => Some(
                Regex::new(text.as_str().unwrap_or("("))
                    .map_err(|_| wrong("pattern", "a regular expression like \"^[a-z]+$\""))?,
            ),
        };
        let choices = match schema.get("enum") {
            None => None,
            Some(choices) => Some(choices.as_array().ok_or_else(|| wrong("enum", "a list"))?.clone()),
        };
        if schema.get("description").is_some_and(|text| !text.is_string()) {
            return Err(wrong("description", "a string"));
        }
        let items =
            schema.get("items").map(|items| Self::new(&format!("{path}.items"), items)).transpose()?;
        let property = Self {
            kind,
            default: schema.get("default").cloned(),
            choices,
            pattern,
            length: (count("minLength")?, count("maxLength")?),
            range: (number("minimum")?, number("maximum")?),
            items: items.map(Box::new),
        };
        if let Some(default) = &property.default {
            property.check(default).map_err(|why| format!("{path}.default: {why}"))?;
        }
        Ok(property)
    }

    fn check(&self, value: &Value) -> Result<(), String> {
        if !self.kind.fits(value) {
            let (name, _) = KINDS.iter().find(|(_, kind)| *kind == self.kind).unwrap_or(&KINDS[0]);
            return Err(format!("must be of type {name}"));
        }
        if let Some(choices) = self.choices.as_ref().filter(|choices| !choices.contains(value)) {
            let choices = choices.iter().map(Value::to_string).collect::<Vec<_>>().join(", ");
            return Err(format!("must be one of {choices}"));
        }
        match value {
            Value::String(text) => self.check_text(text),
            Value::Number(number) => self.check_number(number.as_f64().unwrap_or(f64::NAN)),
            Value::Array(elements) => elements
                .iter()
                .try_for_each(|element| self.items.as_ref().map_or(Ok(()), |items| items.check(element))),
            _ => Ok(()),
        }
    }

    fn check_text(&self, text: &str) -> Result<(), String> {
        if let Some(pattern) = self.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
            return Err(format!("must match the pattern {pattern}"));
        }
        let chars = text.chars().count() as u64;
        match self.length {
            (Some(min), _) if chars < min => Err(format!("must have at least {min} characters")),
            (_, Some(max)) if chars > max => Err(format!("must have at most {max} characters")),
            _ => Ok(()),
        }
    }

    fn check_number(&self, number: f64) -> Result<(), String> {
        match self.range {
            (Some(min), _) if number < min => Err(format!("must be at least {min}")),
            (_, Some(max)) if number > max => Err(format!("must be at most {max}")),
            _ => Ok(()),
        }
    }
}

impl Kind {
    fn fits(self, value: &Value) -> bool {
        match self {
            Kind::String => value.is_string(),
            Kind::Integer => value.is_i64() || value.is_u64(),
            Kind::Number => value.is_number(),
            Kind::Boolean => value.is_boolean(),
            Kind::Array => value.is_array(),
            Kind::Object => value.is_object(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(schema: &Value) -> Result<Parameters, String> {
        Parameters::new(schema.as_object().unwrap())
    }

    #[test]
    fn every_keyword_is_enforced() {
        let property = |schema: Value| parameters(&json!({ "properties": { "a": schema } })).unwrap();
        for (schema, good, bad) in [
            (json!({ "type": "string" }), json!(""), json!(1)),
            (json!({ "type": "integer" }), json!(-1), json!(1.5)),
            (json!({ "type": "number" }), json!(1.5), json!("1")),
            (json!({ "type": "boolean" }), json!(false), json!("false")),
            (json!({ "type": "object" }), json!({}), json!([])),
            (json!({ "type": "array", "items": { "type": "string" } }), json!(["a"]), json!(["a", 1])),
            (json!({ "type": "string", "enum": ["a", "b"] }), json!("a"), json!("c")),
            (json!({ "type": "string", "pattern": "^[a-z]" }), json!("a-"), json!("-a")),
            (json!({ "type": "string", "minLength": 1, "maxLength": 2 }), json!("ää"), json!("")),
            (json!({ "type": "string", "maxLength": 2 }), json!("ää"), json!("äää")),
            (json!({ "type": "integer", "minimum": 1, "maximum": 5 }), json!(5), json!(6)),
            (json!({ "type": "number", "minimum": 1 }), json!(1), json!(0.5)),
        ] {
            let parameters = property(schema.clone());
            let call = |value: &Value| parameters.check(json!({ "a": value }).as_object().unwrap().clone());
            assert!(call(&good).is_ok(), "{schema} {good}");
            assert!(call(&bad).unwrap_err().contains("field `a`: must"), "{schema} {bad}");
        }
    }

    #[test]
    fn required_unknown_and_default_values() {
        let schema = json!({
            "properties": { "a": { "type": "string" }, "b": { "type": "integer", "default": 7 } },
            "required": ["a"],
        });
        let parameters = parameters(&schema).unwrap();
        let call = |value: Value| parameters.check(value.as_object().unwrap().clone()).map(Value::Object);
        assert_eq!(call(json!({ "a": "x", "b": null })), Ok(json!({ "a": "x", "b": 7 })));
        assert_eq!(call(json!({})), Err("missing field `a`".to_owned()));
        assert_eq!(call(json!({ "a": null })), Err("missing field `a`".to_owned()));
        let unknown = Err("unknown field `c`, expected: `a`, `b`".to_owned());
        assert_eq!(call(json!({ "a": "x", "c": 1 })), unknown);
        assert!(parameters.schema_text().starts_with(r#"{"additionalProperties":false,"properties":{"a":"#));
    }

    #[test]
    fn unsupported_schemas_are_refused_with_their_place() {
        for (schema, place) in [
            (json!({ "type": "string" }), ".type must be \"object\""),
            (json!({ "oneOf": [] }), ".oneOf is not supported"),
            (json!({ "additionalProperties": true }), ".additionalProperties must be false"),
            (json!({ "required": ["x"] }), ".required: there is no parameter \"x\""),
            (json!({ "properties": { "a b": { "type": "string" } } }), ".properties.a b: the name must be"),
            (json!({ "properties": { "a": {} } }), ".properties.a.type must be one of string"),
            (
                json!({ "properties": { "a": { "type": "string", "format": "uri" } } }),
                ".properties.a.format is not",
            ),
            (
                json!({ "properties": { "a": { "type": "string", "pattern": "(" } } }),
                "a.pattern must be a regular",
            ),
            (
                json!({ "properties": { "a": { "type": "integer", "default": "x" } } }),
                "a.default: must be of type",
            ),
            (
                json!({ "properties": { "a": { "type": "array", "items": { "type": "x" } } } }),
                "a.items.type must",
            ),
        ] {
            let why = parameters(&schema).unwrap_err();
            assert!(why.contains(place), "{schema}: {why}");
        }
    }
}
