//! Digests: the chain that ties each entry of the journal to all before it, the short keys of sends, and their spelling.

use agent::journal::Serial;
use agent::{Message, RequestId, content_digest_input};
use sha2::{Digest as _, Sha256};

/// A SHA-256.
pub(crate) type Digest = [u8; 32];

/// The first bytes of a digest; nobody finds two sends that share them.
pub(crate) type RequestKey = [u8; 16];

/// What tells one database from all others.
pub(crate) type DatabaseId = [u8; 16];

const GENESIS: &[u8] = b"nexus3 journal, version 1";

/// The link before the first entry.
pub(crate) fn genesis(database: &DatabaseId) -> Digest {
    Sha256::new().chain_update(GENESIS).chain_update(database).finalize().into()
}

/// What an entry says, wherever it comes to stand.
pub(crate) struct EntryContent<'a> {
    pub(crate) agent: Serial,
    pub(crate) at: i64,
    /// The agent's name; empty for the daemon, and no agent's name is.
    pub(crate) name: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) body: &'a str,
}

impl EntryContent<'_> {
    pub(crate) fn digest(&self) -> Digest {
        digest_parts(&[
            &self.agent.to_be_bytes(),
            &self.at.to_be_bytes(),
            self.name.as_bytes(),
            self.kind.as_bytes(),
            self.body.as_bytes(),
        ])
    }
}

/// The hash of an entry: of its place, of what it says, and of the entry before it.
pub(crate) fn chain_hash(previous: &Digest, sequence: u64, number: u64, content: &Digest) -> Digest {
    let mut hash = Sha256::new();
    hash.update(previous);
    hash.update(sequence.to_be_bytes());
    hash.update(number.to_be_bytes());
    hash.update(content);
    hash.finalize().into()
}

/// Every part bears its length, so that no two lists of parts are the same bytes.
fn digest_parts(parts: &[&[u8]]) -> Digest {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// A short sum that tells when a row is not as it was written. It guards against disks, not against people.
pub(crate) fn checksum(digest: &Digest) -> i64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(bytes)
}

/// The sum of a row's columns.
pub(crate) fn checksum_parts(parts: &[&[u8]]) -> i64 {
    checksum(&digest_parts(parts))
}

/// The digest of a text.
pub(crate) fn digest_text(text: &str) -> Digest {
    Sha256::digest(text.as_bytes()).into()
}

/// The digest by which a send is known again.
pub(crate) fn digest_content(message: &Message) -> Digest {
    Sha256::digest(content_digest_input(&message.text, &message.images)).into()
}

/// The key of a send. A text and a number have different keys, whatever they look like.
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

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// Reads what [`hex`] wrote.
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
    fn hexadecimal_reads_back_and_nothing_else_does() {
        assert_eq!(hex(&[0, 0xab, 0xff]), "00abff");
        assert_eq!(unhex::<3>("00abff"), Some([0, 0xab, 0xff]));
        for bad in ["", "00abf", "00abff0", "00ABFF", "00abfg", "00äff"] {
            assert_eq!(unhex::<3>(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn moving_a_letter_from_one_part_to_the_next_changes_the_digest() {
        let content = |name, kind, body| EntryContent { agent: 2, at: 4, name, kind, body };
        let digests = [
            content("ab", "c", "d"),
            content("a", "bc", "d"),
            content("", "abc", "d"),
            content("ab", "", "cd"),
        ]
        .map(|content| content.digest());
        for (place, digest) in digests.iter().enumerate() {
            assert!(!digests[place + 1..].contains(digest), "{place}");
        }
    }

    #[test]
    fn a_link_depends_on_its_place_and_on_the_link_before_it() {
        let links = [
            chain_hash(&[0; 32], 1, 2, &[3; 32]),
            chain_hash(&[1; 32], 1, 2, &[3; 32]),
            chain_hash(&[0; 32], 2, 1, &[3; 32]),
            chain_hash(&[0; 32], 1, 2, &[4; 32]),
        ];
        for (place, hash) in links.iter().enumerate() {
            assert!(!links[place + 1..].contains(hash), "{place}");
        }
    }

    #[test]
    fn a_number_and_its_text_have_different_keys() {
        assert_ne!(request_key(&RequestId::Number(5)), request_key(&RequestId::Text("5".into())));
        let eight_bytes = "\0\0\0\0\0\0\0\u{5}".to_owned();
        assert_ne!(request_key(&RequestId::Number(5)), request_key(&RequestId::Text(eight_bytes)));
    }
}
