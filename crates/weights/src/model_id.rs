//! What a model is called on the shelf. The name is part of file names, so it is checked once, here.

use std::fmt;
use std::str::FromStr;

use crate::fault::WeightsFault;

/// The longest name.
const CHARS_MAX: usize = 64;

/// Endings that our own files beside the weights have.
const RESERVED_SUFFIXES: &[&str] = &[".part", ".json", ".lock", ".wheels", ".gguf", ".onnx"];

/// The name of a model on the shelf: small letters, digits, `.`, `-` and `_`, never a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelId(String);

impl ModelId {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A name made of a file's: `Qwen2.5 Coder.gguf` is `qwen2.5-coder`.
    ///
    /// # Errors
    /// When nothing of the file's name can be part of one.
    pub fn from_file_name(file: &str) -> Result<Self, WeightsFault> {
        let last = file.rsplit('/').next().unwrap_or(file);
        let stem = last.rsplit_once('.').map_or(last, |(stem, _)| stem);
        let mut name = String::new();
        for letter in stem.chars().map(|letter| letter.to_ascii_lowercase()) {
            let fits = is_id_char(letter) || (matches!(letter, '.' | '_') && !name.ends_with(['.', '-']));
            match letter {
                _ if fits => name.push(letter),
                _ if name.is_empty() || name.ends_with('-') => {}
                _ => name.push('-'),
            }
        }
        let name = name.trim_matches(['-', '.', '_']);
        name.get(..name.len().min(CHARS_MAX)).unwrap_or_default().trim_end_matches(['-', '.', '_']).parse()
    }
}

fn is_id_char(letter: char) -> bool {
    letter.is_ascii_lowercase() || letter.is_ascii_digit()
}

impl FromStr for ModelId {
    type Err = WeightsFault;

    fn from_str(text: &str) -> Result<Self, WeightsFault> {
        let first_fits = text.chars().next().is_some_and(is_id_char);
        let rest_fits = text.chars().all(|letter| is_id_char(letter) || matches!(letter, '.' | '-' | '_'));
        let taken = RESERVED_SUFFIXES.iter().any(|ending| text.ends_with(ending));
        if first_fits && rest_fits && text.len() <= CHARS_MAX && !text.contains("..") && !taken {
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
    fn a_name_is_never_a_path_nor_one_of_our_own_files() {
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
    fn a_file_gives_a_name() {
        for (file, name) in [
            ("/models/Qwen2.5 Coder__7B.Q4_K_M.gguf", "qwen2.5-coder__7b.q4_k_m"),
            ("../../..weird...name.gguf", "weird.-name"),
            ("plain", "plain"),
            ("a.part.gguf", "a.part"),
        ] {
            let made = ModelId::from_file_name(file);
            if name == "a.part" {
                assert!(made.is_err());
            } else {
                assert_eq!(made.unwrap().as_str(), name);
            }
        }
        assert!(ModelId::from_file_name("ß.gguf").is_err());
    }
}
