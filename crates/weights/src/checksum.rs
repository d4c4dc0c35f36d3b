//! SHA-256 checksum and its incremental hasher.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::fault::WeightsFault;

/// A SHA-256 checksum, displayed as lowercase hex.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Checksum([u8; 32]);

impl fmt::Display for Checksum {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Checksum({self})")
    }
}

impl FromStr for Checksum {
    type Err = WeightsFault;

    fn from_str(text: &str) -> Result<Self, WeightsFault> {
        let invalid = || WeightsFault::InvalidChecksum(text.chars().take(80).collect());
        let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
        let digits = digits.filter(|digits| digits.len() == 64).ok_or_else(invalid)?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            let value = pair.iter().fold(0, |value, digit| value * 16 + digit);
            *byte = u8::try_from(value).map_err(|_| invalid())?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Checksum {
    type Error = WeightsFault;

    fn try_from(text: String) -> Result<Self, WeightsFault> {
        text.parse()
    }
}

impl From<Checksum> for String {
    fn from(checksum: Checksum) -> Self {
        checksum.to_string()
    }
}

/// Incremental SHA-256 hasher.
#[derive(Clone, Default)]
pub(crate) struct ChecksumHasher(Sha256);

impl ChecksumHasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn checksum(&self) -> Checksum {
        let mut bytes = [0; 32];
        for (byte, digest) in bytes.iter_mut().zip(self.0.clone().finalize()) {
            *byte = digest;
        }
        Checksum(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn checksum_is_parsed_and_displayed_as_hex() {
        assert_eq!(ChecksumHasher::default().checksum().to_string(), EMPTY);
        assert_eq!(EMPTY.to_uppercase().parse::<Checksum>().unwrap(), ChecksumHasher::default().checksum());
        for invalid in ["", "e3b0", &EMPTY[1..], &format!("{EMPTY}0"), &format!("{}g", &EMPTY[1..])] {
            assert!(invalid.parse::<Checksum>().is_err(), "{invalid}");
        }
    }
}
