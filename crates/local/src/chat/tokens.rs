//! The model's vocabulary: text to tokens and tokens to bytes. Control tokens are made only from the
//! template's own text; what people and tools say stays plain text, whatever it looks like.

use super::template::{CALL_BEGINS, CALL_ENDS};
use super::words::{Words, byte_of};
use crate::engine::gguf::{Fact, Gguf, Wrong};

/// Put behind characters of said text that could begin a control token. It is no character of any
/// script, and it is taken out again before the text becomes tokens.
const MARK: char = '\u{fdd0}';

/// A model's vocabulary.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    words: Words,
    /// The bytes of all tokens, one after the other, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Texts that are single tokens in a template, longest first.
    controls: Vec<(String, u32)>,
    /// Tokens that end an answer.
    enders: Vec<u32>,
    /// The name of the token a text begins with, where the file says so.
    begin: Option<(String, u32)>,
    end_name: String,
    begins_every_text: bool,
}

/// Kinds of tokens that no plain text becomes.
pub(super) const CONTROL: i64 = 3;
pub(super) const GIVEN: i64 = 4;

impl Vocabulary {
    /// Reads the vocabulary of `file`.
    pub(crate) fn read(file: &Gguf<'_>) -> Result<Self, Wrong> {
        let words = Words::read(file)?;
        let names = file.texts("tokenizer.ggml.tokens").ok_or("it holds no vocabulary")?;
        let kinds: &[i64] = match file.fact("tokenizer.ggml.token_type") {
            Some(Fact::Wholes(kinds)) if kinds.len() == names.len() => kinds,
            None => &[],
            Some(_) => return Err("its token types do not match its vocabulary".to_owned()),
        };
        let special = |at: usize| matches!(kinds.get(at), Some(&(CONTROL | GIVEN)));
        let ids = 0..u32::try_from(names.len()).map_err(|_| "its vocabulary is too large".to_owned())?;
        let mut controls: Vec<(String, u32)> = ids
            .zip(names)
            .enumerate()
            .filter(|(at, _)| special(*at))
            .map(|(_, (id, name))| ((*name).to_owned(), id))
            .collect();
        controls.retain(|(name, _)| !name.is_empty());
        controls.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        let (bytes, ends) = token_bytes(names, kinds);
        let named = |key: &str| {
            file.whole(key).and_then(|id| Some(((*names.get(id)?).to_owned(), u32::try_from(id).ok()?)))
        };
        let end = named("tokenizer.ggml.eos_token_id").ok_or("it names no token that ends an answer")?;
        Ok(Self {
            words,
            bytes,
            ends,
            enders: enders(&controls, end.1),
            controls,
            begin: named("tokenizer.ggml.bos_token_id"),
            end_name: end.0,
            begins_every_text: matches!(file.fact("tokenizer.ggml.add_bos_token"), Some(Fact::Flag(true))),
        })
    }

    /// How many tokens there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The bytes of `token`; none for control tokens but the marks of a call.
    pub(crate) fn bytes(&self, token: u32) -> &[u8] {
        let at = token as usize;
        let from = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.bytes[from..self.ends[at]]
    }

    /// Whether `token` ends an answer.
    pub(crate) fn ends_answer(&self, token: u32) -> bool {
        self.enders.contains(&token)
    }

    /// The tokens that end an answer.
    pub(crate) fn enders(&self) -> &[u32] {
        &self.enders
    }

    /// The texts that are control tokens.
    pub(crate) fn controls(&self) -> &[(String, u32)] {
        &self.controls
    }

    /// What templates call the first and the last token.
    pub(crate) fn edge_names(&self) -> (&str, &str) {
        (self.begin.as_ref().map_or("", |(name, _)| name), &self.end_name)
    }

    /// `text` as plain text: nothing in it becomes a control token.
    pub(crate) fn plain(&self, text: &str) -> Vec<u32> {
        self.words.tokens(text)
    }

    /// Said text for a template: it can no longer be taken for control tokens.
    pub(crate) fn guard(&self, text: &str) -> String {
        let mut guarded = String::with_capacity(text.len());
        for character in text.chars().filter(|character| *character != MARK) {
            guarded.push(character);
            if self.controls.iter().any(|(name, _)| name.starts_with(character)) {
                guarded.push(MARK);
            }
        }
        guarded
    }

    /// A rendered template as tokens, its control tokens included.
    pub(crate) fn rendered(&self, text: &str) -> Vec<u32> {
        let mut tokens = Vec::new();
        if let (true, Some((name, id))) = (self.begins_every_text, &self.begin)
            && !text.starts_with(name.as_str())
        {
            tokens.push(*id);
        }
        let (mut plain_from, mut at) = (0, 0);
        while at < text.len() {
            let rest = &text[at..];
            if let Some((name, id)) = self.controls.iter().find(|(name, _)| rest.starts_with(name.as_str())) {
                self.push_plain(&text[plain_from..at], &mut tokens);
                tokens.push(*id);
                at += name.len();
                plain_from = at;
            } else {
                at += rest.chars().next().map_or(1, char::len_utf8);
            }
        }
        self.push_plain(&text[plain_from..], &mut tokens);
        tokens
    }

    fn push_plain(&self, text: &str, tokens: &mut Vec<u32>) {
        if text.contains(MARK) {
            tokens.extend(self.plain(&text.replace(MARK, "")));
        } else if !text.is_empty() {
            tokens.extend(self.plain(text));
        }
    }
}

/// Every token that stands for "my turn is over", or begins somebody else's: files name one, models use several.
fn enders(controls: &[(String, u32)], end: u32) -> Vec<u32> {
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
fn token_bytes(names: &[&str], kinds: &[i64]) -> (Vec<u8>, Vec<usize>) {
    let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(names.len()));
    for (at, name) in names.iter().enumerate() {
        match kinds.get(at) {
            Some(&GIVEN) => bytes.extend_from_slice(name.as_bytes()),
            // The marks of a call are looked for in the text, whatever the file makes of them.
            Some(&CONTROL) if [CALL_BEGINS, CALL_ENDS].contains(name) => {
                bytes.extend_from_slice(name.as_bytes());
            }
            Some(&CONTROL) => {}
            _ => bytes.extend(name.chars().filter_map(byte_of)),
        }
        ends.push(bytes.len());
    }
    (bytes, ends)
}

#[cfg(test)]
mod tests;
