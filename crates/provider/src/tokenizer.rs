//! Token counting per model: by the model's tokenizer if known, else by an estimate. The runtime calibrates both with
//! the usage that models report.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use agent::{TokenCount, estimate_tokens};
use tiktoken::CoreBpe;

/// Longest text that is tokenized at once.
const PIECE_BYTES: usize = 16 * 1024;

/// Counts the tokens of a text.
pub type TokenCounter = Box<dyn Fn(&str) -> TokenCount + Send + Sync>;

/// Creates a token counter from a model file.
pub type TokenCounterFactory = fn(&Path) -> Result<TokenCounter, String>;

/// Token counting method of a model.
#[derive(Debug, Clone)]
pub(crate) enum Tokenizer {
    /// Estimate for an unknown tokenizer.
    Estimate,
    /// Built-in tiktoken encoding, loaded at first use.
    Builtin(&'static str),
    /// Tokenizer of a model file.
    FromFile(Arc<FileTokenizer>),
}

/// Tokenizer of a model file, loaded at first use.
pub(crate) struct FileTokenizer {
    file: PathBuf,
    open: TokenCounterFactory,
    counter: OnceLock<TokenCounter>,
}

impl fmt::Debug for FileTokenizer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("FileTokenizer").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Returns the tokenizer for a model name; a `vendor/` prefix is ignored.
    pub(crate) fn for_model(name: &str) -> Self {
        let base_name = name.rsplit('/').next().unwrap_or(name);
        tiktoken::model_to_encoding(base_name).map_or(Self::Estimate, Self::Builtin)
    }

    pub(crate) fn from_file(file: PathBuf, open: TokenCounterFactory) -> Self {
        Self::FromFile(Arc::new(FileTokenizer { file, open, counter: OnceLock::new() }))
    }

    pub(crate) fn count(&self, text: &str) -> TokenCount {
        match self {
            Self::Estimate => estimate_tokens(text),
            Self::Builtin(name) => encoding(name).map_or_else(
                || estimate_tokens(text),
                |bpe| pieces(text).map(|piece| bpe.count(piece) as TokenCount).sum(),
            ),
            Self::FromFile(tokenizer) => {
                let count = tokenizer.counter.get_or_init(|| tokenizer.open_counter());
                pieces(text).map(count).sum()
            }
        }
    }
}

/// Splits a text into pieces to be counted one after another. The memory and time of a tokenizer grow faster than a
/// text without spaces; a boundary between pieces adds at most a few tokens.
fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (piece, rest) = text.split_at(text.floor_char_boundary(PIECE_BYTES));
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

fn encoding(name: &str) -> Option<&'static CoreBpe> {
    tiktoken::get_encoding(name)
}

impl FileTokenizer {
    /// Loads the counter, or falls back to the estimate: the model server reports an unreadable file.
    fn open_counter(&self) -> TokenCounter {
        (self.open)(&self.file).unwrap_or_else(|fault| {
            tracing::warn!(
                "token counts of the embedded model are estimates: cannot load its tokenizer: {fault}"
            );
            Box::new(estimate_tokens)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Grüße: the quick brown fox jumps over 1,234 lazy dogs.\n\n    fn main() {}\n";

    /// The first two counts come from another implementation, the third from the publisher's tokenizer file.
    #[test]
    fn tokenizer_is_found_with_or_without_vendor_prefix() {
        for (names, tokens) in [
            (["gpt-4o-mini", "openai/gpt-4.1", "o3-mini"], 22),
            (["gpt-4", "gpt-3.5-turbo", "openai/gpt-4-turbo"], 22),
            (["qwen2.5-coder:1.5b", "qwen/qwen3-8b", "qwen-max"], 24),
        ] {
            for name in names {
                assert_eq!(Tokenizer::for_model(name).count(TEXT), tokens, "{name}");
            }
        }
        assert!(matches!(Tokenizer::for_model("claude-sonnet-4-5"), Tokenizer::Estimate));
        assert!(matches!(Tokenizer::for_model("scripted"), Tokenizer::Estimate));
    }

    #[test]
    fn text_without_spaces_is_counted_in_pieces() {
        let text = "x".repeat(4 << 20);
        let pieces = text.len() / PIECE_BYTES;
        let tokens = Tokenizer::for_model("gpt-4o").count(&text);
        let of_piece = Tokenizer::for_model("gpt-4o").count(&text[..PIECE_BYTES]);
        assert_eq!(tokens, of_piece * pieces as TokenCount);
        let wide = "\u{1f980}".repeat(PIECE_BYTES);
        assert_eq!(pieces_of(&wide), wide, "cut at character boundaries");
    }

    fn pieces_of(text: &str) -> String {
        pieces(text).collect()
    }

    #[test]
    fn empty_text_has_no_tokens() {
        for name in ["gpt-4o", "scripted"] {
            assert_eq!(Tokenizer::for_model(name).count(""), 0, "{name}");
        }
    }

    #[test]
    fn unreadable_tokenizer_file_falls_back_to_the_estimate() {
        let count: TokenCounterFactory = |_| Ok(Box::new(|text| text.len() as TokenCount));
        assert_eq!(Tokenizer::from_file(PathBuf::new(), count).count("four"), 4);
        let broken: TokenCounterFactory = |file| Err(format!("{} is not there", file.display()));
        let tokenizer = Tokenizer::from_file(PathBuf::from("x.gguf"), broken);
        assert_eq!((tokenizer.count("twelve chars"), tokenizer.count("")), (3, 0));
    }
}
