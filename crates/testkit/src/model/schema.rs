//! Sample values for a JSON Schema, for requests with structured output. Handles simple schemas only and ignores
//! unknown keywords.

use serde_json::{Map, Value, json};

/// Maximum depth, which ends the expansion of recursive schemas.
const DEPTH_MAX: usize = 16;

/// A value that fits the schema; `text` fills its strings.
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
        let items_min = schema["minItems"].as_u64().unwrap_or(1).min(100);
        let items_max = schema["maxItems"].as_u64().unwrap_or(items_min);
        (0..items_min.min(items_max)).map(|_| self.value(&schema["items"], depth + 1)).collect()
    }

    fn string(&self, schema: &Value) -> String {
        let chars_max = schema["maxLength"]
            .as_u64()
            .map_or(usize::MAX, |chars_max| usize::try_from(chars_max).unwrap_or(usize::MAX));
        let mut text: String = self.text.chars().take(chars_max).collect();
        while schema["minLength"]
            .as_u64()
            .is_some_and(|chars_min| (text.chars().count() as u64) < chars_min.min(1000))
        {
            text.push('x');
        }
        text
    }
}

/// The first type in `type`, or the type that the other keywords imply.
fn schema_type(schema: &Value) -> &str {
    let explicit = schema["type"].as_str().or_else(|| schema["type"].get(0)?.as_str());
    match explicit {
        Some(kind) => kind,
        None if schema.get("properties").is_some() => "object",
        None if schema.get("items").is_some() => "array",
        None => "null",
    }
}
