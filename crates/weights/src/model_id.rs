//! Validated model id. It becomes part of file names.

use std::fmt;
use std::str::FromStr;

use crate::fault::WeightsFault;

/// Longest id.
const CHARS_MAX: usize = 64;

/// Suffixes of a model's files, which no id may have.
const RESERVED_SUFFIXES: &[&str] = &[".part", ".json", ".lock", ".wheels", ".gguf", ".onnx"];

/// Id of a model in the model directory: lowercase letters, digits, `.`, `-` and `_`, never a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelId(String);

impl ModelId {
    /// Returns the id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Derives an id from a file name: `Qwen2.5 Coder.gguf` becomes `qwen2.5-coder`.
    ///
    /// # Errors
    /// When the file name has no usable characters, or the result is reserved.
    pub fn from_file_name(file: &str) -> Result<Self, WeightsFault> {
        let last = file.rsplit('/').next().unwrap_or(file);
        let stem = last.rsplit_once('.').map_or(last, |(stem, _)| stem);
        let mut name = String::new();
        for character in stem.chars().map(|character| character.to_ascii_lowercase()) {
            let is_valid =
                is_id_char(character) || (matches!(character, '.' | '_') && !name.ends_with(['.', '-']));
            match character {
                _ if is_valid => name.push(character),
                _ if name.is_empty() || name.ends_with('-') => {}
                _ => name.push('-'),
            }
        }
        let name = name.trim_matches(['-', '.', '_']);
        name.get(..name.len().min(CHARS_MAX)).unwrap_or_default().trim_end_matches(['-', '.', '_']).parse()
    }
}

fn is_id_char(character: char) -> bool {
    character.is_ascii_lowercase() || character.is_ascii_digit()
}

impl FromStr for ModelId {
    type Err = WeightsFault;

    fn from_str(text: &str) -> Result<Self, WeightsFault> {
        let is_first_valid = text.chars().next().is_some_and(is_id_char);
        let are_all_valid =
            text.chars().all(|character| is_id_char(character) || matches!(character, '.' | '-' | '_'));
        let is_reserved = RESERVED_SUFFIXES.iter().any(|ending| text.ends_with(ending));
        if is_first_valid && are_all_valid && text.len() <= CHARS_MAX && !text.contains("..") && !is_reserved
        {
            return Ok(Self(text.to_owned()));
        }
        Err(WeightsFault::InvalidName(text.chars().take(CHARS_MAX).collect()))
    }
}

impl fmt::Display for ModelId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_never_a_path_or_a_reserved_file_name() {
        for good in ["smollm2-135m", "qwen2.5-coder-1.5b", "a", "0_b"] {
            assert_eq!(good.parse::<ModelId>().unwrap().as_str(), good);
        }
        let long = "a".repeat(CHARS_MAX + 1);
        for bad in [
            "", ".", "..", "a/b", "../a", "a..b", "-a", ".a", "A", "ä", "a b", "a\0", "a.part", "a.json",
            "a.lock", &long,
        ] {
            assert!(bad.parse::<ModelId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn id_is_derived_from_a_file_name() {
        for (file, name) in [
            ("/models/Qwen2.5 Coder__7B.Q4_K_M.gguf", "qwen2.5-coder__7b.q4_k_m"),
            ("../../..weird...name.gguf", "weird.-name"),
            ("plain", "plain"),
            ("a.part.gguf", "a.part"),
        ] {
            let id = ModelId::from_file_name(file);
            if name == "a.part" {
                assert!(id.is_err());
            } else {
                assert_eq!(id.unwrap().as_str(), name);
            }
        }
        assert!(ModelId::from_file_name("ß.gguf").is_err());
    }
}
