//! Values that fit a JSON Schema, for questions that ask for one. Simple schemas only: what it does not know it
//! leaves out of account.

use serde_json::{Map, Value, json};

/// How deep a schema is followed; one that refers to itself has to end somewhere.
const DEPTH_MAX: usize = 16;

/// A value that fits the schema; its strings are `text`.
pub(crate) fn sample(schema: &Value, text: &str) -> Value {
    Sampler { root: schema, text }.value(schema, 0)
}

struct Sampler<'a> {
    root: &'a Value,
    text: &'a str,
}

impl Sampler<'_> {
    fn value(&self, schema: &Value, depth: usize) -> Value {
        if depth > DEPTH_MAX {
            return Value::Null;
        }
        if let Some(value) = schema.get("const").or_else(|| schema["enum"].get(0)) {
            return value.clone();
        }
        if let Some(path) = schema["$ref"].as_str().and_then(|path| path.strip_prefix('#')) {
            return self.root.pointer(path).map_or(Value::Null, |schema| self.value(schema, depth + 1));
        }
        let choice = ["anyOf", "oneOf", "allOf"].iter().find_map(|name| schema[*name].get(0));
        if let Some(choice) = choice {
            return self.value(choice, depth + 1);
        }
        match schema_type(schema) {
            "object" => self.object(schema, depth),
            "array" => self.array(schema, depth),
            "string" => json!(self.string(schema)),
            "integer" | "number" => schema.get("minimum").cloned().unwrap_or_else(|| json!(1)),
            "boolean" => json!(true),
            _ => Value::Null,
        }
    }

    fn object(&self, schema: &Value, depth: usize) -> Value {
        let properties = schema["properties"].as_object().into_iter().flatten();
        let members: Map<_, _> =
            properties.map(|(name, schema)| (name.clone(), self.value(schema, depth + 1))).collect();
        Value::Object(members)
    }

    fn array(&self, schema: &Value, depth: usize) -> Value {
        let least = schema["minItems"].as_u64().unwrap_or(1).min(100);
        let most = schema["maxItems"].as_u64().unwrap_or(least);
        (0..least.min(most)).map(|_| self.value(&schema["items"], depth + 1)).collect()
    }

    fn string(&self, schema: &Value) -> String {
        let most = schema["maxLength"]
            .as_u64()
            .map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
        let mut text: String = self.text.chars().take(most).collect();
        while schema["minLength"]
            .as_u64()
            .is_some_and(|least| (text.chars().count() as u64) < least.min(1000))
        {
            text.push('x');
        }
        text
    }
}

/// The first type that is named, or the one that the other members are for.
fn schema_type(schema: &Value) -> &str {
    let named = schema["type"].as_str().or_else(|| schema["type"].get(0)?.as_str());
    match named {
        Some(kind) => kind,
        None if schema.get("properties").is_some() => "object",
        None if schema.get("items").is_some() => "array",
        None => "null",
    }
}
