//! Token counting with a GGUF file's tokenizer, without loading its weights. The daemon uses it for token estimates.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::chat::tokenizer::BpeTokenizer;
use crate::engine::gguf::Gguf;
use crate::generation::LoadFault;

/// Prefix sizes to try, in order, until one holds the file's whole metadata. The file is read and not mapped, so that
/// the process does not get SIGBUS when another process truncates it.
const HEADER_BYTES: [u64; 3] = [2 << 20, 8 << 20, 64 << 20];

/// Token counter that holds a GGUF file's tokenizer and nothing else of the file.
#[derive(Debug)]
pub struct GgufTokenCounter {
    tokenizer: BpeTokenizer,
}

impl GgufTokenCounter {
    /// Reads the tokenizer of the file at `path`.
    ///
    /// # Errors
    /// When the file cannot be read, or has no supported tokenizer.
    pub fn open(path: &Path) -> Result<Self, LoadFault> {
        Self::open_within(path, &HEADER_BYTES)
    }

    /// Reads growing prefixes of the file until its metadata parses.
    fn open_within(path: &Path, prefix_bytes: &[u64]) -> Result<Self, LoadFault> {
        let unusable = |reason| LoadFault::Unusable { path: path.to_path_buf(), reason };
        let unreadable = |cause| LoadFault::Unreadable { path: path.to_path_buf(), cause };
        let mut file = File::open(path).map_err(unreadable)?;
        let (mut bytes, mut reason) = (Vec::new(), "it has no header".to_owned());
        for bytes_max in prefix_bytes {
            let more = bytes_max.saturating_sub(bytes.len() as u64);
            let read = file.by_ref().take(more).read_to_end(&mut bytes).map_err(unreadable)?;
            match Gguf::read_metadata(&bytes) {
                Ok(metadata) => {
                    return Ok(Self { tokenizer: BpeTokenizer::read(&metadata).map_err(unusable)? });
                }
                Err(fault) => reason = fault,
            }
            if read == 0 {
                break;
            }
        }
        Err(unusable(reason))
    }

    /// Counts the tokens of a plain text; control tokens in it count as plain text.
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
    fn file_that_is_not_gguf_is_rejected() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"no model").unwrap();
        assert!(GgufTokenCounter::open(file.path()).unwrap_err().to_string().contains("not a GGUF file"));
        assert!(GgufTokenCounter::open(Path::new("/nowhere.gguf")).is_err());
    }

    #[test]
    fn prefix_grows_until_the_metadata_parses() {
        let file = fixture::write(&ModelFixture::default());
        let bytes = map_file(&file.path).unwrap();
        let vocabulary = Vocabulary::read(&Gguf::read(&bytes).unwrap()).unwrap();
        let text = "hello hello, said the fox of 1984";
        for prefix_bytes in [&[100, 1_000, 1 << 20][..], &[1 << 20], &[1 << 30]] {
            let counter = GgufTokenCounter::open_within(&file.path, prefix_bytes).unwrap();
            assert_eq!(counter.count_tokens(text), vocabulary.encode_plain(text).len(), "{prefix_bytes:?}");
        }
        let fault = GgufTokenCounter::open_within(&file.path, &[100, 1_000]).unwrap_err();
        assert!(fault.to_string().contains("its header is truncated"), "{fault}");
    }
}
