//! Text to tokens by byte-level BPE: a text is cut into words as the model was trained, and the bytes of a word are put
//! together in the order of the file's merges. The daemon counts with it too, so it is small, and so is what it takes on
//! the way. Tests hold it against `tokenizers`.

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

/// Makes tokens of plain text.
#[derive(Debug)]
pub(crate) struct BpeTokenizer {
    rule: PreTokenizerRule,
    word_regex: Regex,
    merge_table: MergeTable,
}

/// How the words of a kind of model are made.
#[derive(Debug, Clone, Copy)]
struct PreTokenizerRule {
    /// What a word is.
    pattern: &'static str,
    /// Letters and their accents become one before all else.
    normalizes_nfc: bool,
    /// Each digit is a word, whatever the rest says.
    splits_digits: bool,
    /// A word that is a token stays whole, also where no merge leads to it.
    ignores_merges: bool,
}

impl PreTokenizerRule {
    /// By the name that files have for it.
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
    /// Reads the words of `file`.
    pub(crate) fn read(file: &Gguf<'_>) -> Result<Self, ModelFileError> {
        match file.text("tokenizer.ggml.model") {
            Some("gpt2") => {}
            Some(other) => {
                return Err(format!("its tokenizer is {other}; byte-level BPE (gpt2) is read here"));
            }
            None => return Err("it holds no tokenizer".to_owned()),
        }
        let names = file.text_array("tokenizer.ggml.tokens").ok_or("it holds no vocabulary")?;
        let pairs = file.text_array("tokenizer.ggml.merges").ok_or("its tokenizer holds no merges")?;
        let pre = file.text("tokenizer.ggml.pre").unwrap_or("gpt-2");
        let rule = PreTokenizerRule::from_name(pre)
            .ok_or_else(|| format!("its words are cut by the rule {pre}, which is not known here"))?;
        let cut = Regex::new(rule.pattern).map_err(|fault| format!("its words cannot be cut: {fault}"))?;
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
        Ok(Self { rule, word_regex: cut, merge_table: merges })
    }

    /// The tokens of a text.
    pub(crate) fn encode(&self, text: &str) -> Vec<u32> {
        let (mut tokens, mut bench) = (Vec::with_capacity(text.len() / 4), MergeScratch::default());
        self.for_each_word(text, |word| self.merge_table.encode_word_into(word, &mut bench, &mut tokens));
        tokens
    }

    /// How many tokens a text is.
    pub(crate) fn count_tokens(&self, text: &str) -> usize {
        let (mut count, mut tokens, mut bench) = (0, Vec::new(), MergeScratch::default());
        self.for_each_word(text, |word| {
            self.merge_table.encode_word_into(word, &mut bench, &mut tokens);
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
        // Where the rule gives up, which it does behind a million blanks, the rest is one word.
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

/// The byte that a character of a byte-level vocabulary stands for.
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
