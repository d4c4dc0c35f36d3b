//! Byte-level BPE tokenizer: splits a text into words with the model's pre-tokenizer, then merges the bytes of each
//! word by the file's merge table. The daemon uses it for token counts, so its tables and working memory are small.
//! Tests compare it with the crate `tokenizers`.

mod merges;

use std::borrow::Cow;

use fancy_regex::Regex;
use tokenizers::normalizers::NFC;
use tokenizers::{NormalizedString, Normalizer as _};

use self::merges::{MergeScratch, MergeTable};
use super::vocabulary::{CONTROL_TYPE, USER_DEFINED_TYPE};
use crate::engine::gguf::{Gguf, MetadataValue, ModelFileError};

const GPT2_PATTERN: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const QWEN_PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const LLAMA_PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Byte-level BPE encoder for plain text.
#[derive(Debug)]
pub(crate) struct BpeTokenizer {
    rule: PreTokenizerRule,
    word_regex: Regex,
    merge_table: MergeTable,
}

/// Pre-tokenizer settings of a model family.
#[derive(Debug, Clone, Copy)]
struct PreTokenizerRule {
    /// Regular expression of a word.
    pattern: &'static str,
    /// Whether the text is normalized to Unicode NFC first.
    normalizes_nfc: bool,
    /// Whether each digit is a word of its own.
    splits_digits: bool,
    /// Whether a word that is a token becomes that token even if no merge produces it.
    ignores_merges: bool,
}

impl PreTokenizerRule {
    /// Returns the settings for a value of `tokenizer.ggml.pre`, if supported.
    fn from_name(pre: &str) -> Option<Self> {
        let plain = Self {
            pattern: GPT2_PATTERN,
            normalizes_nfc: false,
            splits_digits: false,
            ignores_merges: false,
        };
        Some(match pre {
            "smollm" => Self { splits_digits: true, ..plain },
            "qwen2" => Self { pattern: QWEN_PATTERN, normalizes_nfc: true, ..plain },
            "llama-bpe" | "llama3" => Self { pattern: LLAMA_PATTERN, ignores_merges: true, ..plain },
            "gpt-2" | "gpt2" | "default" => plain,
            _ => return None,
        })
    }
}

impl BpeTokenizer {
    /// Reads the tokenizer of `file`.
    pub(crate) fn read(file: &Gguf<'_>) -> Result<Self, ModelFileError> {
        match file.text("tokenizer.ggml.model") {
            Some("gpt2") => {}
            Some(other) => {
                return Err(format!("its tokenizer is {other}; supported is byte-level BPE (gpt2)"));
            }
            None => return Err("it holds no tokenizer".to_owned()),
        }
        let names = file.text_array("tokenizer.ggml.tokens").ok_or("it holds no vocabulary")?;
        let pairs = file.text_array("tokenizer.ggml.merges").ok_or("its tokenizer holds no merges")?;
        let pre = file.text("tokenizer.ggml.pre").unwrap_or("gpt-2");
        let rule = PreTokenizerRule::from_name(pre)
            .ok_or_else(|| format!("its pre-tokenizer {pre} is not supported"))?;
        let word_regex = Regex::new(rule.pattern)
            .map_err(|fault| format!("its pre-tokenizer {pre} cannot be compiled: {fault}"))?;
        let mut merges = MergeTable::read(names, pairs)?;
        if rule.ignores_merges {
            let kinds: &[i64] = match file.metadata_value("tokenizer.ggml.token_type") {
                Some(MetadataValue::IntegerArray(kinds)) => kinds,
                _ => &[],
            };
            let is_plain =
                |token: usize| !matches!(kinds.get(token), Some(&(CONTROL_TYPE | USER_DEFINED_TYPE)));
            merges.add_whole_words((0..).zip(names).filter(|(token, _)| is_plain(*token as usize)));
        }
        Ok(Self { rule, word_regex, merge_table: merges })
    }

    /// Encodes a plain text.
    pub(crate) fn encode(&self, text: &str) -> Vec<u32> {
        let (mut tokens, mut scratch) = (Vec::with_capacity(text.len() / 4), MergeScratch::default());
        self.for_each_word(text, |word| self.merge_table.encode_word_into(word, &mut scratch, &mut tokens));
        tokens
    }

    /// Counts the tokens of a text without collecting them.
    pub(crate) fn count_tokens(&self, text: &str) -> usize {
        let (mut count, mut tokens, mut scratch) = (0, Vec::new(), MergeScratch::default());
        self.for_each_word(text, |word| {
            self.merge_table.encode_word_into(word, &mut scratch, &mut tokens);
            count += tokens.len();
            tokens.clear();
        });
        count
    }

    fn for_each_word(&self, text: &str, mut each: impl FnMut(&[u8])) {
        let text = if self.rule.normalizes_nfc { normalize_nfc(text) } else { Cow::Borrowed(text) };
        let mut from = 0;
        if self.rule.splits_digits {
            for (at, digit) in text.match_indices(char::is_numeric) {
                self.split_words(&text[from..at], &mut each);
                each(digit.as_bytes());
                from = at + digit.len();
            }
        }
        self.split_words(&text[from..], &mut each);
    }

    fn split_words(&self, text: &str, each: &mut impl FnMut(&[u8])) {
        let mut from = 0;
        // After about a million blanks the regex reaches its backtracking limit; the remaining text is then one word.
        for word in self.word_regex.find_iter(text).map_while(Result::ok) {
            if from < word.start() {
                each(&text.as_bytes()[from..word.start()]);
            }
            each(word.as_str().as_bytes());
            from = word.end();
        }
        if from < text.len() {
            each(&text.as_bytes()[from..]);
        }
    }
}

fn normalize_nfc(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let mut composed = NormalizedString::from(text);
    match NFC.normalize(&mut composed) {
        Ok(()) => Cow::Owned(composed.get().to_owned()),
        Err(_) => Cow::Borrowed(text),
    }
}

/// Returns the byte that a character of a byte-level vocabulary stands for.
pub(super) fn byte_for_character(character: char) -> Option<u8> {
    let code = u32::from(character);
    match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => u8::try_from(code).ok(),
        0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        0x121..=0x142 => u8::try_from(code - 0x121 + 0x7f).ok(),
        0x143 => Some(0xad),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
