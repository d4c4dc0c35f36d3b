//! Text to tokens by byte-level BPE: a text is cut into words as the model was trained, and the bytes of a word are put
//! together in the order of the file's merges. The daemon counts with it too, so it is small, and so is what it takes on
//! the way. Tests hold it against `tokenizers`.

mod merges;

use std::borrow::Cow;

use fancy_regex::Regex;
use tokenizers::normalizers::NFC;
use tokenizers::{NormalizedString, Normalizer as _};

use self::merges::{Merges, Workbench};
use super::tokens::{CONTROL, GIVEN};
use crate::engine::gguf::{Fact, Gguf, Wrong};

const OF_GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const OF_QWEN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const OF_LLAMA: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Makes tokens of plain text.
#[derive(Debug)]
pub(crate) struct Words {
    rule: Rule,
    cut: Regex,
    merges: Merges,
}

/// How the words of a kind of model are made.
#[derive(Debug, Clone, Copy)]
struct Rule {
    /// What a word is.
    cut: &'static str,
    /// Letters and their accents become one before all else.
    composes: bool,
    /// Each digit is a word, whatever the rest says.
    parts_digits: bool,
    /// A word that is a token stays whole, also where no merge leads to it.
    keeps_whole: bool,
}

impl Rule {
    /// By the name that files have for it.
    fn of(pre: &str) -> Option<Self> {
        let plain = Self { cut: OF_GPT2, composes: false, parts_digits: false, keeps_whole: false };
        Some(match pre {
            "smollm" => Self { parts_digits: true, ..plain },
            "qwen2" => Self { cut: OF_QWEN, composes: true, ..plain },
            "llama-bpe" | "llama3" => Self { cut: OF_LLAMA, keeps_whole: true, ..plain },
            "gpt-2" | "gpt2" | "default" => plain,
            _ => return None,
        })
    }
}

impl Words {
    /// Reads the words of `file`.
    pub(crate) fn read(file: &Gguf<'_>) -> Result<Self, Wrong> {
        match file.text("tokenizer.ggml.model") {
            Some("gpt2") => {}
            Some(other) => {
                return Err(format!("its tokenizer is {other}; byte-level BPE (gpt2) is read here"));
            }
            None => return Err("it holds no tokenizer".to_owned()),
        }
        let names = file.texts("tokenizer.ggml.tokens").ok_or("it holds no vocabulary")?;
        let pairs = file.texts("tokenizer.ggml.merges").ok_or("its tokenizer holds no merges")?;
        let pre = file.text("tokenizer.ggml.pre").unwrap_or("gpt-2");
        let rule = Rule::of(pre)
            .ok_or_else(|| format!("its words are cut by the rule {pre}, which is not known here"))?;
        let cut = Regex::new(rule.cut).map_err(|fault| format!("its words cannot be cut: {fault}"))?;
        let mut merges = Merges::read(names, pairs)?;
        if rule.keeps_whole {
            let kinds: &[i64] = match file.fact("tokenizer.ggml.token_type") {
                Some(Fact::Wholes(kinds)) => kinds,
                _ => &[],
            };
            let is_plain = |token: usize| !matches!(kinds.get(token), Some(&(CONTROL | GIVEN)));
            merges.keep_whole((0..).zip(names).filter(|(token, _)| is_plain(*token as usize)));
        }
        Ok(Self { rule, cut, merges })
    }

    /// The tokens of a text.
    pub(crate) fn tokens(&self, text: &str) -> Vec<u32> {
        let (mut tokens, mut bench) = (Vec::with_capacity(text.len() / 4), Workbench::default());
        self.each_word(text, |word| self.merges.push_tokens(word, &mut bench, &mut tokens));
        tokens
    }

    /// How many tokens a text is.
    pub(crate) fn count(&self, text: &str) -> usize {
        let (mut count, mut tokens, mut bench) = (0, Vec::new(), Workbench::default());
        self.each_word(text, |word| {
            self.merges.push_tokens(word, &mut bench, &mut tokens);
            count += tokens.len();
            tokens.clear();
        });
        count
    }

    fn each_word(&self, text: &str, mut each: impl FnMut(&[u8])) {
        let text = if self.rule.composes { composed(text) } else { Cow::Borrowed(text) };
        let mut from = 0;
        if self.rule.parts_digits {
            for (at, digit) in text.match_indices(char::is_numeric) {
                self.cut(&text[from..at], &mut each);
                each(digit.as_bytes());
                from = at + digit.len();
            }
        }
        self.cut(&text[from..], &mut each);
    }

    fn cut(&self, text: &str, each: &mut impl FnMut(&[u8])) {
        let mut from = 0;
        // Where the rule gives up, which it does behind a million blanks, the rest is one word.
        for word in self.cut.find_iter(text).map_while(Result::ok) {
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

fn composed(text: &str) -> Cow<'_, str> {
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
pub(super) fn byte_of(character: char) -> Option<u8> {
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
