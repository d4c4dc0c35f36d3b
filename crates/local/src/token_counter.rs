//! How many tokens a text is for a model of this machine, without its weights: for whoever only counts.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::chat::tokenizer::BpeTokenizer;
use crate::engine::gguf::Gguf;
use crate::generation::LoadFault;

/// The vocabulary is in the head of a file, and a head is not longer than one of these. Read, not mapped: whoever only
/// counts must not fall when the file is cut.
const HEADER_BYTES: [u64; 3] = [2 << 20, 8 << 20, 64 << 20];

/// The tokenizer of a model's file, and nothing else of it.
#[derive(Debug)]
pub struct GgufTokenCounter {
    tokenizer: BpeTokenizer,
}

impl GgufTokenCounter {
    /// Reads the tokenizer of the file at `path`.
    ///
    /// # Errors
    /// When the file cannot be read, or has no tokenizer that is read here.
    pub fn open(path: &Path) -> Result<Self, LoadFault> {
        Self::open_within(path, &HEADER_BYTES)
    }

    /// Reads more of the file where less does not hold its facts.
    fn open_within(path: &Path, head_bytes: &[u64]) -> Result<Self, LoadFault> {
        let unusable = |reason| LoadFault::Unusable { path: path.to_path_buf(), reason };
        let unreadable = |cause| LoadFault::Unreadable { path: path.to_path_buf(), cause };
        let mut file = File::open(path).map_err(unreadable)?;
        let (mut bytes, mut cut) = (Vec::new(), "it has no head".to_owned());
        for bytes_max in head_bytes {
            let more = bytes_max.saturating_sub(bytes.len() as u64);
            let read = file.by_ref().take(more).read_to_end(&mut bytes).map_err(unreadable)?;
            match Gguf::read_metadata(&bytes) {
                Ok(facts) => return Ok(Self { tokenizer: BpeTokenizer::read(&facts).map_err(unusable)? }),
                Err(fault) => cut = fault,
            }
            if read == 0 {
                break;
            }
        }
        Err(unusable(cut))
    }

    /// How many tokens a plain text is.
    #[must_use]
    pub fn count_tokens(&self, text: &str) -> usize {
        self.tokenizer.count_tokens(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::vocabulary::Vocabulary;
    use crate::engine::fixture::{self, ModelFixture};
    use crate::engine::mmap::map_file;

    #[test]
    fn a_file_that_is_no_model_says_so() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"no model").unwrap();
        assert!(GgufTokenCounter::open(file.path()).unwrap_err().to_string().contains("not a GGUF file"));
        assert!(GgufTokenCounter::open(Path::new("/nowhere.gguf")).is_err());
    }

    #[test]
    fn as_much_of_a_file_is_read_as_its_vocabulary_needs() {
        let file = fixture::write(&ModelFixture::default());
        let bytes = map_file(&file.path).unwrap();
        let vocabulary = Vocabulary::read(&Gguf::read(&bytes).unwrap()).unwrap();
        let text = "hello hello, said the fox of 1984";
        for head_bytes in [&[100, 1_000, 1 << 20][..], &[1 << 20], &[1 << 30]] {
            let counter = GgufTokenCounter::open_within(&file.path, head_bytes).unwrap();
            assert_eq!(counter.count_tokens(text), vocabulary.encode_plain(text).len(), "{head_bytes:?}");
        }
        let fault = GgufTokenCounter::open_within(&file.path, &[100, 1_000]).unwrap_err();
        assert!(fault.to_string().contains("is cut in its head"), "{fault}");
    }
}
