//! How many tokens a text is for a model of this machine, without its weights: for whoever only counts.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use crate::chat::words::Words;
use crate::engine::gguf::Gguf;
use crate::generation::LoadFault;

/// The vocabulary is in the head of a file, and a head is not longer than one of these. Read, not mapped: whoever only
/// counts must not fall when the file is cut.
const HEAD_BYTES: [u64; 3] = [2 << 20, 8 << 20, 64 << 20];

/// The tokenizer of a model's file, and nothing else of it.
#[derive(Debug)]
pub struct Counter {
    words: Words,
}

impl Counter {
    /// Reads the tokenizer of the file at `path`.
    ///
    /// # Errors
    /// When the file cannot be read, or has no tokenizer that is read here.
    pub fn open(path: &Path) -> Result<Self, LoadFault> {
        let unusable = |reason| LoadFault::Unusable { path: path.to_path_buf(), reason };
        let mut read = Err("it has no head".to_owned());
        for bytes_max in HEAD_BYTES {
            let bytes = head(path, bytes_max)
                .map_err(|cause| LoadFault::Unreadable { path: path.to_path_buf(), cause })?;
            read = Gguf::facts(&bytes).and_then(|file| Words::read(&file));
            if read.is_ok() {
                break;
            }
        }
        Ok(Self { words: read.map_err(unusable)? })
    }

    /// How many tokens a plain text is.
    #[must_use]
    pub fn count(&self, text: &str) -> usize {
        self.words.count(text)
    }
}

fn head(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_model_says_so() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"no model").unwrap();
        assert!(Counter::open(file.path()).unwrap_err().to_string().contains("not a GGUF file"));
        assert!(Counter::open(Path::new("/nowhere.gguf")).is_err());
    }
}
