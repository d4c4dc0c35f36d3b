//! High-water mark of the journal: a file next to the database, rewritten when entries became durable, that is after
//! each commit (`Durability::Full`) or each complete checkpoint (`Normal`). SQLite cannot tell a truncated, changed or
//! removed write-ahead log from a shorter one; the mark can.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::files::open_regular;
use crate::digest::{DatabaseId, Digest, hex, unhex};

/// The last entry known to be durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HighWaterMark {
    pub(crate) database: DatabaseId,
    pub(crate) sequence: u64,
    pub(crate) hash: Digest,
}

const HEADER: &str = "nexus3 mark";
/// More than the size of a mark.
const MARK_BYTES_MAX: u64 = 1024;

impl HighWaterMark {
    /// Reads the mark; `None` if there is none, or if it is malformed, as after an interrupted write.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn read(path: &Path) -> io::Result<Option<Self>> {
        match read_settled(path) {
            Ok(bytes) => Ok(std::str::from_utf8(&bytes).ok().and_then(Self::decode)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn decode(text: &str) -> Option<Self> {
        let mut fields = text.strip_suffix('\n')?.strip_prefix(HEADER)?.split(' ').skip(1);
        let (database, sequence, hash) = (fields.next()?, fields.next()?, fields.next()?);
        let mark = Self { database: unhex(database)?, sequence: sequence.parse().ok()?, hash: unhex(hash)? };
        fields.next().is_none().then_some(mark)
    }

    /// Encodes the mark with a fixed length, so that a later mark overwrites an earlier one.
    fn encode(&self) -> String {
        format!("{HEADER} {} {:020} {}\n", hex(&self.database), self.sequence, hex(&self.hash))
    }
}

/// Reads a file until two reads are equal: the daemon overwrites the mark in place, and a single read may get a part of
/// the old and a part of the new one.
fn read_settled(path: &Path) -> io::Result<Vec<u8>> {
    let read = || {
        let mut bytes = Vec::new();
        open_regular(path, OpenOptions::new().read(true))?.take(MARK_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok::<_, io::Error>(bytes)
    };
    let mut bytes = read()?;
    loop {
        let again = read()?;
        if again == bytes {
            return Ok(bytes);
        }
        bytes = again;
    }
}

/// The file of the high-water mark, open for writing.
#[derive(Debug)]
pub(super) struct HighWaterMarkFile {
    file: File,
}

impl HighWaterMarkFile {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        Ok(Self { file: open_regular(path, &mut options)? })
    }

    /// Writes the mark without fsync: after power loss the mark may be older than the journal, which is harmless.
    pub(super) fn write(&self, mark: &HighWaterMark) -> io::Result<()> {
        self.file.write_all_at(mark.encode().as_bytes(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_round_trips_and_truncated_mark_is_none() {
        let mark = HighWaterMark { database: [7; 16], sequence: 12, hash: [9; 32] };
        let text = mark.encode();
        assert_eq!(HighWaterMark::decode(&text), Some(mark));
        assert_eq!(text.len(), HighWaterMark { sequence: u64::MAX, ..mark }.encode().len());
        for cut in 0..text.len() {
            assert_eq!(HighWaterMark::decode(&text[..cut]), None, "{cut}");
        }
        assert_eq!(HighWaterMark::decode(&text.replace('7', "g")), None);
    }
}
