//! Text to tokens by byte-level BPE: a text is cut into words as the model was trained, and the pieces of a word are put
//! together in the order of the file's merges. The cutting is that of `tokenizers`; the merges lie here in a tenth of the
//! memory, because the daemon counts with them too and has to stay small.

mod merges;

use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{
    NormalizedString, Normalizer as _, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _,
    SplitDelimiterBehavior,
};

use self::merges::Merges;
use crate::engine::gguf::{Gguf, Wrong};

const OF_QWEN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const OF_LLAMA: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Makes tokens of plain text.
#[derive(Debug)]
pub(crate) struct Words {
    /// Whether letters and their accents become one before all else.
    composes: bool,
    cut: PreTokenizerWrapper,
    merges: Merges,
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
        let cut = cut(pre).map_err(|fault| format!("its tokenizer cannot be built: {fault}"))?;
        let cut =
            cut.ok_or_else(|| format!("its words are cut by the rule {pre}, which is not known here"))?;
        Ok(Self { composes: pre == "qwen2", cut, merges: Merges::read(names, pairs)? })
    }

    /// The tokens of a text; none where it cannot be cut.
    pub(crate) fn tokens(&self, text: &str) -> Vec<u32> {
        let mut tokens = Vec::with_capacity(text.len() / 4);
        self.each_word(text, |word| self.merges.push_tokens(word, &mut tokens));
        tokens
    }

    /// How many tokens a text is.
    pub(crate) fn count(&self, text: &str) -> usize {
        let (mut count, mut tokens) = (0, Vec::new());
        self.each_word(text, |word| {
            self.merges.push_tokens(word, &mut tokens);
            count += tokens.len();
            tokens.clear();
        });
        count
    }

    fn each_word(&self, text: &str, mut each: impl FnMut(&str)) {
        let mut cut = if self.composes {
            let mut text = NormalizedString::from(text);
            if NFC.normalize(&mut text).is_err() {
                return;
            }
            PreTokenizedString::from(text)
        } else {
            PreTokenizedString::from(text)
        };
        if self.cut.pre_tokenize(&mut cut).is_ok() {
            for (word, ..) in cut.get_splits(OffsetReferential::Normalized, OffsetType::None) {
                each(word);
            }
        }
    }
}

/// The rule of this name, where it is known. Words come out of it with a character for each byte.
fn cut(pre: &str) -> Result<Option<PreTokenizerWrapper>, tokenizers::Error> {
    let words = ByteLevel::new(false, true, true);
    let bytes = ByteLevel::new(false, true, false);
    let by = |rule: &str| {
        Split::new(SplitPattern::Regex(rule.to_owned()), SplitDelimiterBehavior::Isolated, false)
    };
    Ok(Some(match pre {
        "smollm" => Sequence::new(vec![Digits::new(true).into(), words.into()]).into(),
        "qwen2" => Sequence::new(vec![by(OF_QWEN)?.into(), bytes.into()]).into(),
        "llama-bpe" | "llama3" => Sequence::new(vec![by(OF_LLAMA)?.into(), bytes.into()]).into(),
        "gpt-2" | "gpt2" | "default" => words.into(),
        _ => return Ok(None),
    }))
}

#[cfg(test)]
mod tests;
