//! Grammars for constrained decoding: a JSON schema, or a call of one of the request's tools. This file builds the
//! schemas; llguidance computes which tokens they allow.

use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};

use super::ChatTool;
use crate::chat::vocabulary::Vocabulary;

/// Compiles grammars over a model's vocabulary.
pub(crate) struct GrammarFactory {
    factory: ParserFactory,
}

impl std::fmt::Debug for GrammarFactory {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("GrammarFactory").finish_non_exhaustive()
    }
}

/// Largest schema that is compiled.
const SCHEMA_BYTES_MAX: usize = 256 * 1024;

impl GrammarFactory {
    /// Builds the token trie of the vocabulary, once per model; takes some milliseconds.
    pub(crate) fn new(vocabulary: &Vocabulary) -> Result<Self, String> {
        let mut token_bytes: Vec<Vec<u8>> = (0..vocabulary.len())
            .zip(0u32..)
            .map(|(_, token)| vocabulary.token_bytes(token).to_vec())
            .collect();
        for (name, token) in vocabulary.control_tokens() {
            token_bytes[*token as usize] = [&[TokTrie::SPECIAL_TOKEN_MARKER], name.as_bytes()].concat();
        }
        let size = u32::try_from(token_bytes.len()).map_err(|fault| fault.to_string())?;
        let end = *vocabulary.end_tokens().first().ok_or("the vocabulary has no end token")?;
        let trie = TokTrie::from(&TokRxInfo::new(size, end), &token_bytes);
        let mut factory = ParserFactory::new_simple(&(Arc::new(ApproximateTokEnv::new(trie)) as _))
            .map_err(|fault| fault.to_string())?;
        factory.quiet();
        Ok(Self { factory })
    }

    /// Compiles a grammar for `schema`.
    pub(crate) fn schema(&self, schema: &Value) -> Result<Matcher, String> {
        self.matcher(schema.clone(), Strictness::AllKeywords)
            .map_err(|reason| format!("the response schema is not supported: {reason}"))
    }

    /// Compiles a grammar for a call of one of `tools`.
    pub(crate) fn calls(&self, tools: &[ChatTool]) -> Result<Matcher, String> {
        let any = json!({"anyOf": call_schemas(tools)});
        // An unsupported keyword must not make a tool unusable: the tool validates its own input.
        self.matcher(any.clone(), Strictness::AllKeywords)
            .or_else(|_| self.matcher(any, Strictness::KnownKeywords))
            .map_err(|reason| format!("the tools' schemas are not supported: {reason}"))
    }

    /// Compiles a grammar for `schema` or a call of one of `tools`.
    pub(crate) fn schema_or_calls(&self, schema: &Value, tools: &[ChatTool]) -> Result<Matcher, String> {
        let mut all = call_schemas(tools);
        let mut schema = schema.clone();
        rebase_references(&mut schema, &format!("#/anyOf/{}", all.len()));
        all.push(schema);
        self.matcher(json!({"anyOf": all}), Strictness::KnownKeywords)
            .map_err(|reason| format!("the response schema is not supported: {reason}"))
    }

    fn matcher(&self, mut schema: Value, strictness: Strictness) -> Result<Matcher, String> {
        if !schema.is_object() {
            return Err("a schema must be an object".to_owned());
        }
        let size = schema.to_string().len();
        if size > SCHEMA_BYTES_MAX {
            return Err(format!("it has {size} bytes; at most {SCHEMA_BYTES_MAX} are allowed"));
        }
        // Fixed whitespace: with flexible whitespace a small model may generate blanks without end.
        schema["x-guidance"] = json!({
            "whitespace_flexible": false,
            "item_separator": ", ",
            "key_separator": ": ",
            "lenient": matches!(strictness, Strictness::KnownKeywords),
        });
        let parser = self.factory.create_parser(TopLevelGrammar::from_json_schema(schema));
        let matcher = Matcher::new(parser);
        match matcher.get_error() {
            Some(fault) => Err(fault),
            None => Ok(matcher),
        }
    }
}

/// How a schema with keywords that llguidance does not support is compiled.
#[derive(Clone, Copy)]
enum Strictness {
    /// It is rejected.
    AllKeywords,
    /// Its unsupported keywords are ignored.
    KnownKeywords,
}

fn call_schemas(tools: &[ChatTool]) -> Vec<Value> {
    let call = |(at, tool): (usize, &ChatTool)| {
        let mut parameters = tool.parameters.clone();
        if !parameters.is_object() {
            parameters = json!({});
        }
        if parameters.get("type").is_none() {
            parameters["type"] = json!("object");
        }
        rebase_references(&mut parameters, &format!("#/anyOf/{at}/properties/arguments"));
        json!({
            "type": "object",
            "properties": {"name": {"const": tool.name}, "arguments": parameters},
            "required": ["name", "arguments"],
            "additionalProperties": false,
        })
    };
    tools.iter().enumerate().map(call).collect()
}

/// Rewrites the `$ref`s of a schema that was moved to the JSON pointer `base`.
fn rebase_references(schema: &mut Value, base: &str) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get_mut("$ref")
                && let Some(rest) = reference.strip_prefix('#')
            {
                *reference = format!("{base}{rest}");
            }
            map.values_mut().for_each(|value| rebase_references(value, base));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| rebase_references(value, base)),
        _ => {}
    }
}
