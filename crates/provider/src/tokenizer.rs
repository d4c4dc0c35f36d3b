//! How many tokens a text is for a model: by its own tokenizer where that is known, else an estimate. What models report
//! corrects both.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use agent::{TokenCount, estimate_tokens};
use tiktoken::CoreBpe;

/// Counts the tokens of a text.
pub type TokenCounter = Box<dyn Fn(&str) -> TokenCount + Send + Sync>;

/// Makes a counter of a model's file.
pub type TokenCounterFactory = fn(&Path) -> Result<TokenCounter, String>;

/// A model's way to count.
#[derive(Debug, Clone)]
pub(crate) enum Tokenizer {
    /// Not known.
    Estimate,
    /// One of those that are built in; read at first use.
    Builtin(&'static str),
    /// That of the model's own file.
    FromFile(Arc<FileTokenizer>),
}

/// The tokenizer of a file; read at first use.
pub(crate) struct FileTokenizer {
    file: PathBuf,
    open: TokenCounterFactory,
    counter: OnceLock<TokenCounter>,
}

impl fmt::Debug for FileTokenizer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("OwnTokenizer").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// The tokenizer of a model by the name its provider knows it by; `maker/name` is the name of the maker's model.
    pub(crate) fn for_model(name: &str) -> Self {
        let own = name.rsplit('/').next().unwrap_or(name);
        tiktoken::model_to_encoding(own).map_or(Self::Estimate, Self::Builtin)
    }

    pub(crate) fn from_file(file: PathBuf, open: TokenCounterFactory) -> Self {
        Self::FromFile(Arc::new(FileTokenizer { file, open, counter: OnceLock::new() }))
    }

    pub(crate) fn count(&self, text: &str) -> TokenCount {
        match self {
            Self::Estimate => estimate_tokens(text),
            Self::Builtin(name) => {
                encoding(name).map_or_else(|| estimate_tokens(text), |bpe| bpe.count(text) as TokenCount)
            }
            Self::FromFile(own) => own.counter.get_or_init(|| own.open_counter())(text),
        }
    }
}

fn encoding(name: &str) -> Option<&'static CoreBpe> {
    tiktoken::get_encoding(name)
}

impl FileTokenizer {
    /// A file that cannot be read keeps nobody from talking: the child that runs it will say what is wrong.
    fn open_counter(&self) -> TokenCounter {
        (self.open)(&self.file).unwrap_or_else(|fault| {
            tracing::warn!("tokens of the embedded model are estimated: {fault}");
            Box::new(estimate_tokens)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Grüße: the quick brown fox jumps over 1,234 lazy dogs.\n\n    fn main() {}\n";

    /// The counts of the first two are those of another implementation, those of the third of the publisher's own file.
    #[test]
    fn models_are_counted_by_their_own_tokenizer_however_they_are_reached() {
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
    fn an_empty_text_costs_nothing() {
        for name in ["gpt-4o", "scripted"] {
            assert_eq!(Tokenizer::for_model(name).count(""), 0, "{name}");
        }
    }

    #[test]
    fn a_file_is_opened_once_and_one_that_cannot_be_is_estimated() {
        let count: TokenCounterFactory = |_| Ok(Box::new(|text| text.len() as TokenCount));
        assert_eq!(Tokenizer::from_file(PathBuf::new(), count).count("four"), 4);
        let broken: TokenCounterFactory = |file| Err(format!("{} is not there", file.display()));
        let tokenizer = Tokenizer::from_file(PathBuf::from("x.gguf"), broken);
        assert_eq!((tokenizer.count("twelve chars"), tokenizer.count("")), (3, 0));
    }
}
