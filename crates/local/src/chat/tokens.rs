//! The model's vocabulary: text to tokens and tokens to bytes. Control tokens are made only from the
//! template's own text; what people and tools say stays plain text, whatever it looks like.

use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{SplitDelimiterBehavior, Tokenizer};

use super::template::{CALL_BEGINS, CALL_ENDS};
use crate::engine::gguf::{Fact, Gguf, Wrong};

/// Put behind characters of said text that could begin a control token. It is no character of any
/// script, and it is taken out again before the text becomes tokens.
const MARK: char = '\u{fdd0}';

const WORDS_OF_QWEN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const WORDS_OF_LLAMA: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// A model's vocabulary.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    tokenizer: Tokenizer,
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

const CONTROL: i64 = 3;
const GIVEN: i64 = 4;

impl Vocabulary {
    /// Reads the vocabulary of `file`.
    pub(crate) fn read(file: &Gguf<'_>) -> Result<Self, Wrong> {
        match file.text("tokenizer.ggml.model") {
            Some("gpt2") => {}
            Some(other) => {
                return Err(format!("its tokenizer is {other}; byte-level BPE (gpt2) is read here"));
            }
            None => return Err("it holds no tokenizer".to_owned()),
        }
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
            tokenizer: tokenizer(file, names)?,
            bytes,
            ends,
            enders: enders(&controls, end.1),
            controls,
            begin: named("tokenizer.ggml.bos_token_id"),
            end_name: end.0,
            begins_every_text: matches!(file.fact("tokenizer.ggml.add_bos_token"), Some(Fact::Flag(true))),
        })
    }

    /// What makes tokens of a text, alone.
    pub(crate) fn into_tokenizer(self) -> Tokenizer {
        self.tokenizer
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
        self.tokenizer
            .encode_fast(text, false)
            .map(|encoding| encoding.get_ids().to_vec())
            .unwrap_or_default()
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

/// The byte that each character of a byte-level vocabulary stands for.
fn token_bytes(names: &[&str], kinds: &[i64]) -> (Vec<u8>, Vec<usize>) {
    let byte_of = |character: char| {
        let code = u32::from(character);
        match code {
            0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => u8::try_from(code).ok(),
            0x100..=0x120 => u8::try_from(code - 0x100).ok(),
            0x121..=0x142 => u8::try_from(code - 0x121 + 0x7f).ok(),
            0x143 => Some(0xad),
            _ => None,
        }
    };
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

fn tokenizer(file: &Gguf<'_>, names: &[&str]) -> Result<Tokenizer, Wrong> {
    let merges = file.texts("tokenizer.ggml.merges").ok_or("its tokenizer holds no merges")?;
    let merges = merges
        .iter()
        .map(|merge| merge.split_once(' ').map(|(left, right)| (left.to_owned(), right.to_owned())))
        .collect::<Option<Vec<_>>>()
        .ok_or("a merge of its tokenizer is no pair")?;
    let ids = (0u32..).zip(names);
    let vocabulary: tokenizers::models::bpe::Vocab = ids.map(|(id, name)| ((*name).to_owned(), id)).collect();
    let model = BPE::builder()
        .vocab_and_merges(vocabulary, merges)
        .cache_capacity(4_096)
        .build()
        .map_err(|fault| format!("its tokenizer cannot be built: {fault}"))?;
    let mut tokenizer = Tokenizer::new(model);
    let pre = file.text("tokenizer.ggml.pre").unwrap_or("gpt-2");
    let split = pre_tokenizer(pre).map_err(|fault| format!("its tokenizer cannot be built: {fault}"))?;
    let split =
        split.ok_or_else(|| format!("its words are cut by the rule {pre}, which is not known here"))?;
    tokenizer.with_pre_tokenizer(Some(split));
    if pre == "qwen2" {
        tokenizer
            .with_normalizer(Some(NFC))
            .map_err(|fault| format!("its tokenizer cannot be built: {fault}"))?;
    }
    Ok(tokenizer)
}

fn pre_tokenizer(pre: &str) -> Result<Option<PreTokenizerWrapper>, tokenizers::Error> {
    let words = ByteLevel::new(false, true, true);
    let bytes = ByteLevel::new(false, true, false);
    let by = |rule: &str| {
        Split::new(SplitPattern::Regex(rule.to_owned()), SplitDelimiterBehavior::Isolated, false)
    };
    Ok(Some(match pre {
        "smollm" => Sequence::new(vec![Digits::new(true).into(), words.into()]).into(),
        "qwen2" => Sequence::new(vec![by(WORDS_OF_QWEN)?.into(), bytes.into()]).into(),
        "llama-bpe" | "llama3" => Sequence::new(vec![by(WORDS_OF_LLAMA)?.into(), bytes.into()]).into(),
        "gpt-2" | "gpt2" | "default" => words.into(),
        _ => return Ok(None),
    }))
}

#[cfg(test)]
mod tests;
