//! Grammars that an answer has to follow: a JSON schema, or a call of one of the offered tools. Which tokens
//! they allow is llguidance's work; this file says what it gets.

use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};

use super::ChatTool;
use crate::chat::vocabulary::Vocabulary;

/// Makes grammars over a model's vocabulary.
pub(crate) struct GrammarFactory {
    factory: ParserFactory,
}

impl std::fmt::Debug for GrammarFactory {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Grammars").finish_non_exhaustive()
    }
}

/// Bytes of a schema that is still turned into a grammar.
const SCHEMA_BYTES_MAX: usize = 256 * 1024;

impl GrammarFactory {
    /// Prepares the vocabulary: some milliseconds, once per model.
    pub(crate) fn new(vocabulary: &Vocabulary) -> Result<Self, String> {
        let mut words: Vec<Vec<u8>> = (0..vocabulary.len())
            .zip(0u32..)
            .map(|(_, token)| vocabulary.token_bytes(token).to_vec())
            .collect();
        for (name, token) in vocabulary.control_tokens() {
            words[*token as usize] = [&[TokTrie::SPECIAL_TOKEN_MARKER], name.as_bytes()].concat();
        }
        let size = u32::try_from(words.len()).map_err(|fault| fault.to_string())?;
        let end = *vocabulary.end_tokens().first().ok_or("the vocabulary has no end")?;
        let trie = TokTrie::from(&TokRxInfo::new(size, end), &words);
        let mut factory = ParserFactory::new_simple(&(Arc::new(ApproximateTokEnv::new(trie)) as _))
            .map_err(|fault| fault.to_string())?;
        factory.quiet();
        Ok(Self { factory })
    }

    /// A grammar for `schema`.
    pub(crate) fn schema(&self, schema: &Value) -> Result<Matcher, String> {
        self.matcher(schema.clone(), Strictness::AllKeywords)
            .map_err(|why| format!("the answer's schema cannot be held to: {why}"))
    }

    /// A grammar for a call of one of `tools`.
    pub(crate) fn calls(&self, tools: &[ChatTool]) -> Result<Matcher, String> {
        let any = json!({"anyOf": call_schemas(tools)});
        // A keyword that no grammar can hold must not make a tool useless: the tool checks its own input.
        self.matcher(any.clone(), Strictness::AllKeywords)
            .or_else(|_| self.matcher(any, Strictness::KnownKeywords))
            .map_err(|why| format!("the offered tools' schemas cannot be held to: {why}"))
    }

    /// A grammar for either.
    pub(crate) fn schema_or_calls(&self, schema: &Value, tools: &[ChatTool]) -> Result<Matcher, String> {
        let mut all = call_schemas(tools);
        let mut schema = schema.clone();
        rebase_references(&mut schema, &format!("#/anyOf/{}", all.len()));
        all.push(schema);
        self.matcher(json!({"anyOf": all}), Strictness::KnownKeywords)
            .map_err(|why| format!("the answer's schema cannot be held to: {why}"))
    }

    fn matcher(&self, mut schema: Value, strictness: Strictness) -> Result<Matcher, String> {
        if !schema.is_object() {
            return Err("a schema is an object".to_owned());
        }
        let size = schema.to_string().len();
        if size > SCHEMA_BYTES_MAX {
            return Err(format!("it has {size} bytes, and {SCHEMA_BYTES_MAX} are the most"));
        }
        // One way to write it: a small model would lose itself in blanks.
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

#[derive(Clone, Copy)]
enum Strictness {
    AllKeywords,
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

/// References inside a schema that moved to `place` point to where their target is now.
fn rebase_references(schema: &mut Value, place: &str) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get_mut("$ref")
                && let Some(rest) = reference.strip_prefix('#')
            {
                *reference = format!("{place}{rest}");
            }
            map.values_mut().for_each(|value| rebase_references(value, place));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| rebase_references(value, place)),
        _ => {}
    }
}
