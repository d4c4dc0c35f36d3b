//! Builds a tool's specification from its input type: doc comments become descriptions, fields become a closed schema.

use std::sync::Arc;

use agent::{TokenCount, ToolSpec};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use crate::definition::{SortedKeys, ToolDefinition};

/// Estimated characters per token.
const TOKEN_CHARS: TokenCount = 4;

/// Builds the specification of a tool.
pub(crate) fn build_spec<T: ToolDefinition>() -> ToolSpec {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let schema = settings.into_generator().into_root_schema_for::<T::Input>();
    let mut schema = schema.as_object().cloned().unwrap_or_default();
    let description = single_line(schema.remove("description").as_ref());
    schema.remove("title");
    normalize_schema(&mut schema);
    let brief = brief_schema(&schema);
    let spec = spec_with_texts::<T>(&description, schema);
    let brief_description = description.split_inclusive(". ").next().unwrap_or_default().trim();
    let brief = Arc::new(spec_with_texts::<T>(brief_description, brief));
    ToolSpec { brief: Some(brief), ..spec }
}

/// Builds a specification with this description and schema.
fn spec_with_texts<T: ToolDefinition>(description: &str, schema: Map<String, Value>) -> ToolSpec {
    // Serializing a `Value` does not fail.
    let input_schema = serde_json::to_string(&SortedKeys(&Value::Object(schema))).unwrap_or_default();
    ToolSpec {
        name: Arc::from(T::NAME),
        model_name: Arc::from(T::NAME.replace('.', "_")),
        aliases: T::ALIASES.iter().copied().map(Arc::from).collect(),
        tokens: token_count([T::NAME, description, &input_schema]),
        description: Arc::from(description),
        input_schema: Arc::from(input_schema),
        is_offered_by_default: T::IS_OFFERED_BY_DEFAULT,
        program: None,
        concurrency: T::CONCURRENCY,
        class: T::CLASS,
        time_ms_max: T::TIME_MS_MAX,
        brief: None,
    }
}

/// The estimated tokens of a specification: of its name, description and schema.
pub(crate) fn token_count(texts: [&str; 3]) -> TokenCount {
    let chars = texts.into_iter().map(|text| text.chars().count() as TokenCount).sum::<TokenCount>();
    (chars / TOKEN_CHARS).max(1)
}

/// The schema for small models: only names and types of the arguments, without those that have a default and without
/// lists that are optional. A call may have them all the same.
fn brief_schema(schema: &Map<String, Value>) -> Map<String, Value> {
    let is_required = |name: &str| {
        let required = schema.get("required").and_then(Value::as_array);
        required.is_some_and(|names| names.iter().any(|required| required == name))
    };
    let is_shown = |name: &str, property: &Value| {
        let is_list = property.get("type").is_some_and(|kind| kind == "array");
        is_required(name) || (property.get("default").is_none() && !is_list)
    };
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let shown = properties.filter(|(name, property)| is_shown(name, property));
    let brief = shown.map(|(name, property)| (name.clone(), brief_property(property))).collect();
    let members = [("properties", Some(Value::Object(brief))), ("type", Some(Value::from("object")))];
    let members = members.into_iter().chain([("required", schema.get("required").cloned())]);
    members.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// A property without its description and limits.
fn brief_property(property: &Value) -> Value {
    let Some(members) = property.as_object() else { return property.clone() };
    let is_shown = |name: &str| matches!(name, "type" | "enum" | "items");
    let shown = members.iter().filter(|(name, _)| is_shown(name));
    Value::Object(shown.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// Simplifies the schema for models: optional members also accept `null`, but the schema does not mention it.
fn normalize_schema(schema: &mut Map<String, Value>) {
    let properties = schema.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    for property in properties.as_object_mut().into_iter().flat_map(Map::values_mut) {
        // A member of any type has the schema `true`, which has no members.
        let Some(property) = property.as_object_mut() else { continue };
        property.remove("format");
        if let Some(description) = property.remove("description") {
            property.insert("description".to_owned(), Value::String(single_line(Some(&description))));
        }
        if let Some(Value::Array(types)) = property.get_mut("type") {
            types.retain(|name| name != "null");
            if let [only] = types.as_slice() {
                let only = only.clone();
                property.insert("type".to_owned(), only);
            }
        }
        if let Some(items) = property.get_mut("items").and_then(Value::as_object_mut)
            && items.contains_key("properties")
        {
            items.remove("description");
            normalize_schema(items);
        }
    }
}

/// Joins a doc comment to one line.
fn single_line(comment: Option<&Value>) -> String {
    let comment = comment.and_then(Value::as_str).unwrap_or_default();
    comment.split_whitespace().collect::<Vec<_>>().join(" ")
}
