//! The model's vocabulary: text to tokens and tokens to bytes. Control tokens are made only from the
//! template's own text; what people and tools say stays plain text, whatever it looks like.

use super::template::{CALL_END_TAG, CALL_START_TAG};
use super::tokenizer::{BpeTokenizer, byte_for_character};
use crate::engine::gguf::{Gguf, MetadataValue, ModelFileError};

/// Put behind characters of said text that could begin a control token. It is no character of any
/// script, and it is taken out again before the text becomes tokens.
const ESCAPE_MARK: char = '\u{fdd0}';

/// A model's vocabulary.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    tokenizer: BpeTokenizer,
    /// The bytes of all tokens, one after the other, and where each ends.
    bytes: Vec<u8>,
    token_ends: Vec<usize>,
    /// Texts that are single tokens in a template, longest first.
    control_tokens: Vec<(String, u32)>,
    /// Tokens that end an answer.
    end_tokens: Vec<u32>,
    /// The name of the token a text begins with, where the file says so.
    bos_token: Option<(String, u32)>,
    eos_name: String,
    adds_bos: bool,
}

/// Kinds of tokens that no plain text becomes.
pub(super) const CONTROL_TYPE: i64 = 3;
pub(super) const USER_DEFINED_TYPE: i64 = 4;

impl Vocabulary {
    /// Reads the vocabulary of `file`.
    pub(crate) fn read(file: &Gguf<'_>) -> Result<Self, ModelFileError> {
        let words = BpeTokenizer::read(file)?;
        let names = file.text_array("tokenizer.ggml.tokens").ok_or("it holds no vocabulary")?;
        let kinds: &[i64] = match file.metadata_value("tokenizer.ggml.token_type") {
            Some(MetadataValue::IntegerArray(kinds)) if kinds.len() == names.len() => kinds,
            None => &[],
            Some(_) => return Err("its token types do not match its vocabulary".to_owned()),
        };
        let special = |at: usize| matches!(kinds.get(at), Some(&(CONTROL_TYPE | USER_DEFINED_TYPE)));
        let ids = 0..u32::try_from(names.len()).map_err(|_| "its vocabulary is too large".to_owned())?;
        let mut controls: Vec<(String, u32)> = ids
            .zip(names)
            .enumerate()
            .filter(|(at, _)| special(*at))
            .map(|(_, (id, name))| ((*name).to_owned(), id))
            .collect();
        controls.retain(|(name, _)| !name.is_empty());
        controls.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        let (bytes, ends) = collect_token_bytes(names, kinds);
        let named = |key: &str| {
            file.integer(key).and_then(|id| Some(((*names.get(id)?).to_owned(), u32::try_from(id).ok()?)))
        };
        let end = named("tokenizer.ggml.eos_token_id").ok_or("it names no token that ends an answer")?;
        Ok(Self {
            tokenizer: words,
            bytes,
            token_ends: ends,
            end_tokens: find_end_tokens(&controls, end.1),
            control_tokens: controls,
            bos_token: named("tokenizer.ggml.bos_token_id"),
            eos_name: end.0,
            adds_bos: matches!(
                file.metadata_value("tokenizer.ggml.add_bos_token"),
                Some(MetadataValue::Bool(true))
            ),
        })
    }

    /// How many tokens there are.
    pub(crate) fn len(&self) -> usize {
        self.token_ends.len()
    }

    /// The bytes of `token`; none for control tokens but the marks of a call.
    pub(crate) fn token_bytes(&self, token: u32) -> &[u8] {
        let at = token as usize;
        let from = if at == 0 { 0 } else { self.token_ends[at - 1] };
        &self.bytes[from..self.token_ends[at]]
    }

    /// Whether `token` ends an answer.
    pub(crate) fn is_end_token(&self, token: u32) -> bool {
        self.end_tokens.contains(&token)
    }

    /// The tokens that end an answer.
    pub(crate) fn end_tokens(&self) -> &[u32] {
        &self.end_tokens
    }

    /// The texts that are control tokens.
    pub(crate) fn control_tokens(&self) -> &[(String, u32)] {
        &self.control_tokens
    }

    /// What templates call the first and the last token.
    pub(crate) fn bos_eos_names(&self) -> (&str, &str) {
        (self.bos_token.as_ref().map_or("", |(name, _)| name), &self.eos_name)
    }

    /// `text` as plain text: nothing in it becomes a control token.
    pub(crate) fn encode_plain(&self, text: &str) -> Vec<u32> {
        self.tokenizer.encode(text)
    }

    /// Said text for a template: it can no longer be taken for control tokens.
    pub(crate) fn escape_control_tokens(&self, text: &str) -> String {
        let mut guarded = String::with_capacity(text.len());
        for character in text.chars().filter(|character| *character != ESCAPE_MARK) {
            guarded.push(character);
            if self.control_tokens.iter().any(|(name, _)| name.starts_with(character)) {
                guarded.push(ESCAPE_MARK);
            }
        }
        guarded
    }

    /// A rendered template as tokens, its control tokens included.
    pub(crate) fn encode_rendered(&self, text: &str) -> Vec<u32> {
        let mut tokens = Vec::new();
        if let (true, Some((name, id))) = (self.adds_bos, &self.bos_token)
            && !text.starts_with(name.as_str())
        {
            tokens.push(*id);
        }
        let (mut plain_from, mut at) = (0, 0);
        while at < text.len() {
            let rest = &text[at..];
            if let Some((name, id)) =
                self.control_tokens.iter().find(|(name, _)| rest.starts_with(name.as_str()))
            {
                self.encode_plain_into(&text[plain_from..at], &mut tokens);
                tokens.push(*id);
                at += name.len();
                plain_from = at;
            } else {
                at += rest.chars().next().map_or(1, char::len_utf8);
            }
        }
        self.encode_plain_into(&text[plain_from..], &mut tokens);
        tokens
    }

    fn encode_plain_into(&self, text: &str, tokens: &mut Vec<u32>) {
        if text.contains(ESCAPE_MARK) {
            tokens.extend(self.encode_plain(&text.replace(ESCAPE_MARK, "")));
        } else if !text.is_empty() {
            tokens.extend(self.encode_plain(text));
        }
    }
}

/// Every token that stands for "my turn is over", or begins somebody else's: files name one, models use several.
fn find_end_tokens(controls: &[(String, u32)], end: u32) -> Vec<u32> {
    const NAMES: [&str; 7] = [
        "<|im_end|>",
        "<|im_start|>",
        "<|endoftext|>",
        "<|eot_id|>",
        "<|end_of_text|>",
        "<|eom_id|>",
        "</s>",
    ];
    let named = controls.iter().filter(|(name, _)| NAMES.contains(&name.as_str())).map(|(_, id)| *id);
    let mut enders: Vec<u32> = named.chain([end]).collect();
    enders.sort_unstable();
    enders.dedup();
    enders
}

/// The bytes of all tokens, one after the other, and where each ends.
fn collect_token_bytes(names: &[&str], kinds: &[i64]) -> (Vec<u8>, Vec<usize>) {
    let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(names.len()));
    for (at, name) in names.iter().enumerate() {
        match kinds.get(at) {
            Some(&USER_DEFINED_TYPE) => bytes.extend_from_slice(name.as_bytes()),
            // The marks of a call are looked for in the text, whatever the file makes of them.
            Some(&CONTROL_TYPE) if [CALL_START_TAG, CALL_END_TAG].contains(name) => {
                bytes.extend_from_slice(name.as_bytes());
            }
            Some(&CONTROL_TYPE) => {}
            _ => bytes.extend(name.chars().filter_map(byte_for_character)),
        }
        ends.push(bytes.len());
    }
    (bytes, ends)
}

#[cfg(test)]
mod tests;
