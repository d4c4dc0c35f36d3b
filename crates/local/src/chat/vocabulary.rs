//! A model's vocabulary: text to tokens, tokens to bytes. Only the template's own text encodes to control tokens; the
//! content of messages and tools always encodes as plain text.

use super::template::{CALL_END_TAG, CALL_START_TAG};
use super::tokenizer::{BpeTokenizer, byte_for_character};
use crate::engine::gguf::{Gguf, MetadataValue, ModelFileError};

/// Inserted after characters of message content that could begin a control token, and removed before encoding. It is a
/// Unicode noncharacter, so no script uses it.
const ESCAPE_MARK: char = '\u{fdd0}';

/// A model's vocabulary.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    tokenizer: BpeTokenizer,
    /// Concatenated bytes of all tokens.
    bytes: Vec<u8>,
    /// End of each token in `bytes`.
    token_ends: Vec<usize>,
    /// Control and user-defined tokens by name, longest first.
    control_tokens: Vec<(String, u32)>,
    /// Tokens that end a response.
    end_tokens: Vec<u32>,
    /// Name and id of the begin-of-sequence token, if the file names one.
    bos_token: Option<(String, u32)>,
    eos_name: String,
    adds_bos: bool,
}

/// Token type of control tokens in GGUF. Plain text never encodes to tokens of this type or of `USER_DEFINED_TYPE`.
pub(super) const CONTROL_TYPE: i64 = 3;
/// Token type of user-defined tokens in GGUF.
pub(super) const USER_DEFINED_TYPE: i64 = 4;

impl Vocabulary {
    /// Reads the vocabulary of `file`.
    pub(crate) fn read(file: &Gguf<'_>) -> Result<Self, ModelFileError> {
        let tokenizer = BpeTokenizer::read(file)?;
        let names = file.text_array("tokenizer.ggml.tokens").ok_or("it holds no vocabulary")?;
        let kinds: &[i64] = match file.metadata_value("tokenizer.ggml.token_type") {
            Some(MetadataValue::IntegerArray(kinds)) if kinds.len() == names.len() => kinds,
            None => &[],
            Some(_) => return Err("its token types do not match its vocabulary".to_owned()),
        };
        let is_control = |at: usize| matches!(kinds.get(at), Some(&(CONTROL_TYPE | USER_DEFINED_TYPE)));
        let ids = 0..u32::try_from(names.len()).map_err(|_| "its vocabulary is too large".to_owned())?;
        let mut controls: Vec<(String, u32)> = ids
            .zip(names)
            .enumerate()
            .filter(|(at, _)| is_control(*at))
            .map(|(_, (id, name))| ((*name).to_owned(), id))
            .collect();
        controls.retain(|(name, _)| !name.is_empty());
        controls.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        let (bytes, token_ends) = collect_token_bytes(names, kinds);
        let named = |key: &str| {
            file.integer(key).and_then(|id| Some(((*names.get(id)?).to_owned(), u32::try_from(id).ok()?)))
        };
        let (eos_name, eos) = named("tokenizer.ggml.eos_token_id").ok_or("it names no end token")?;
        Ok(Self {
            tokenizer,
            bytes,
            token_ends,
            end_tokens: find_end_tokens(&controls, eos),
            control_tokens: controls,
            bos_token: named("tokenizer.ggml.bos_token_id"),
            eos_name,
            adds_bos: matches!(
                file.metadata_value("tokenizer.ggml.add_bos_token"),
                Some(MetadataValue::Bool(true))
            ),
        })
    }

    /// Number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.token_ends.len()
    }

    /// Returns the bytes of `token`; empty for tokens of the control type other than the tool-call tags.
    pub(crate) fn token_bytes(&self, token: u32) -> &[u8] {
        let at = token as usize;
        let from = if at == 0 { 0 } else { self.token_ends[at - 1] };
        &self.bytes[from..self.token_ends[at]]
    }

    /// Whether `token` ends a response.
    pub(crate) fn is_end_token(&self, token: u32) -> bool {
        self.end_tokens.contains(&token)
    }

    /// Tokens that end a response.
    pub(crate) fn end_tokens(&self) -> &[u32] {
        &self.end_tokens
    }

    /// Control and user-defined tokens by name, longest first.
    pub(crate) fn control_tokens(&self) -> &[(String, u32)] {
        &self.control_tokens
    }

    /// Names of the begin- and end-of-sequence tokens, for templates.
    pub(crate) fn bos_eos_names(&self) -> (&str, &str) {
        (self.bos_token.as_ref().map_or("", |(name, _)| name), &self.eos_name)
    }

    /// Encodes `text` as plain text: nothing in it becomes a control token.
    pub(crate) fn encode_plain(&self, text: &str) -> Vec<u32> {
        self.tokenizer.encode(text)
    }

    /// Escapes message content for a template, so that `encode_rendered` finds no control token in it.
    pub(crate) fn escape_control_tokens(&self, text: &str) -> String {
        let mut escaped = String::with_capacity(text.len());
        for character in text.chars().filter(|character| *character != ESCAPE_MARK) {
            escaped.push(character);
            if self.control_tokens.iter().any(|(name, _)| name.starts_with(character)) {
                escaped.push(ESCAPE_MARK);
            }
        }
        escaped
    }

    /// Encodes a rendered template, including its control tokens.
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

/// Collects the tokens that end a turn or begin another one. A file names only one of them, but models use several.
fn find_end_tokens(controls: &[(String, u32)], eos: u32) -> Vec<u32> {
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
    let mut end_tokens: Vec<u32> = named.chain([eos]).collect();
    end_tokens.sort_unstable();
    end_tokens.dedup();
    end_tokens
}

/// Concatenates the bytes of all tokens and records where each ends.
fn collect_token_bytes(names: &[&str], kinds: &[i64]) -> (Vec<u8>, Vec<usize>) {
    let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(names.len()));
    for (at, name) in names.iter().enumerate() {
        match kinds.get(at) {
            Some(&USER_DEFINED_TYPE) => bytes.extend_from_slice(name.as_bytes()),
            // The decoder searches the text for the tool-call tags, so they keep their bytes.
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
