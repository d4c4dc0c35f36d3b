//! SHA-256 digests: the hash chain of the journal, request keys, row checksums, and their hexadecimal form.

use agent::journal::Serial;
use agent::{Message, RequestId, content_digest_input};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest.
pub(crate) type Digest = [u8; 32];

/// The first 16 bytes of a request id's SHA-256: enough that collisions cannot be found.
pub(crate) type RequestKey = [u8; 16];

/// The random id of a database.
pub(crate) type DatabaseId = [u8; 16];

const GENESIS: &[u8] = b"nexus3 journal, version 1";

/// Returns the hash that precedes the first entry.
pub(crate) fn genesis(database: &DatabaseId) -> Digest {
    Sha256::new().chain_update(GENESIS).chain_update(database).finalize().into()
}

/// The content of a journal entry, independent of its position.
pub(crate) struct EntryContent<'a> {
    pub(crate) agent: Serial,
    pub(crate) at: i64,
    /// The agent's id at that time; empty for the daemon, and never for an agent.
    pub(crate) agent_id: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) body: &'a str,
}

impl EntryContent<'_> {
    pub(crate) fn digest(&self) -> Digest {
        digest_parts(&[
            &self.agent.to_be_bytes(),
            &self.at.to_be_bytes(),
            self.agent_id.as_bytes(),
            self.kind.as_bytes(),
            self.body.as_bytes(),
        ])
    }
}

/// Returns the hash of an entry, which covers its position, its content and the hash of the entry before it.
pub(crate) fn chain_hash(previous: &Digest, sequence: u64, agent_sequence: u64, content: &Digest) -> Digest {
    let mut hash = Sha256::new();
    hash.update(previous);
    hash.update(sequence.to_be_bytes());
    hash.update(agent_sequence.to_be_bytes());
    hash.update(content);
    hash.finalize().into()
}

/// Hashes parts with their lengths, so that no two lists of parts hash the same bytes.
fn digest_parts(parts: &[&[u8]]) -> Digest {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// Returns the 64-bit checksum stored with a row. It detects disk corruption, not tampering.
pub(crate) fn checksum(digest: &Digest) -> i64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(bytes)
}

/// Returns the checksum of a row's columns.
pub(crate) fn checksum_parts(parts: &[&[u8]]) -> i64 {
    checksum(&digest_parts(parts))
}

/// Returns the digest of a text.
pub(crate) fn digest_text(text: &str) -> Digest {
    Sha256::digest(text.as_bytes()).into()
}

/// Returns the digest that decides whether a request with a known id has equal content.
pub(crate) fn digest_content(message: &Message) -> Digest {
    Sha256::digest(content_digest_input(&message.text, &message.images)).into()
}

/// Returns the key of a request id. A string and a number never share a key: `"5"` and `5` differ.
pub(crate) fn request_key(id: &RequestId) -> RequestKey {
    let digest: Digest = match id {
        RequestId::Text(text) => Sha256::new().chain_update([0]).chain_update(text.as_bytes()).finalize(),
        RequestId::Number(number) => {
            Sha256::new().chain_update([1]).chain_update(number.to_be_bytes()).finalize()
        }
    }
    .into();
    let mut key = RequestKey::default();
    key.copy_from_slice(&digest[..16]);
    key
}

/// Encodes bytes as lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// Decodes lower-case hexadecimal of exactly `N` bytes.
pub(crate) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |letter: u8| match letter {
        b'0'..=b'9' => Some(letter - b'0'),
        b'a'..=b'f' => Some(letter - b'a' + 10),
        _ => None,
    };
    let letters = text.as_bytes();
    if letters.len() != N * 2 {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(letters.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_round_trips_and_rejects_other_text() {
        assert_eq!(hex(&[0, 0xab, 0xff]), "00abff");
        assert_eq!(unhex::<3>("00abff"), Some([0, 0xab, 0xff]));
        for bad in ["", "00abf", "00abff0", "00ABFF", "00abfg", "00äff"] {
            assert_eq!(unhex::<3>(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn moving_a_character_between_parts_changes_the_digest() {
        let content = |agent_id, kind, body| EntryContent { agent: 2, at: 4, agent_id, kind, body };
        let digests = [
            content("ab", "c", "d"),
            content("a", "bc", "d"),
            content("", "abc", "d"),
            content("ab", "", "cd"),
        ]
        .map(|content| content.digest());
        for (index, digest) in digests.iter().enumerate() {
            assert!(!digests[index + 1..].contains(digest), "{index}");
        }
    }

    #[test]
    fn chain_hash_depends_on_position_and_previous_hash() {
        let hashes = [
            chain_hash(&[0; 32], 1, 2, &[3; 32]),
            chain_hash(&[1; 32], 1, 2, &[3; 32]),
            chain_hash(&[0; 32], 2, 1, &[3; 32]),
            chain_hash(&[0; 32], 1, 2, &[4; 32]),
        ];
        for (index, hash) in hashes.iter().enumerate() {
            assert!(!hashes[index + 1..].contains(hash), "{index}");
        }
    }

    #[test]
    fn numeric_and_text_request_ids_have_different_keys() {
        assert_ne!(request_key(&RequestId::Number(5)), request_key(&RequestId::Text("5".into())));
        let eight_bytes = "\0\0\0\0\0\0\0\u{5}".to_owned();
        assert_ne!(request_key(&RequestId::Number(5)), request_key(&RequestId::Text(eight_bytes)));
    }
}
