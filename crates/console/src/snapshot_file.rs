//! A session document as it lies in a file, checked before anybody is asked to import it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use nexus3_protocol::json::{self, Json};
use nexus3_protocol::methods::SnapshotDocument;

/// A document longer than this is not read to its end.
const SNAPSHOT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// What stands for standard input.
const STANDARD_INPUT_ARGUMENT: &str = "-";

/// Why a file is no session document; the text names the file, and the member when one is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotFileFault(String);

impl std::fmt::Display for SnapshotFileFault {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for SnapshotFileFault {}

/// Reads a session document: an export of ours or a session file of the original. `-` is standard input.
///
/// # Errors
/// When it cannot be read or is no session document.
pub fn read_snapshot(file: &Path, input: &mut dyn Read) -> Result<SnapshotDocument, SnapshotFileFault> {
    let shown = input_label(file);
    let bytes =
        read_bytes(file, input).map_err(|why| SnapshotFileFault(format!("{shown} cannot be read: {why}")))?;
    parse(&bytes).map_err(|why| SnapshotFileFault(format!("{shown} is no session document: {why}")))
}

/// How messages call it.
#[must_use]
pub fn input_label(file: &Path) -> String {
    if file == Path::new(STANDARD_INPUT_ARGUMENT) {
        "standard input".to_owned()
    } else {
        file.display().to_string()
    }
}

fn read_bytes(file: &Path, input: &mut dyn Read) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = if file == Path::new(STANDARD_INPUT_ARGUMENT) {
        input.take(SNAPSHOT_BYTES_MAX + 1).read_to_end(&mut bytes)
    } else {
        File::open(file).and_then(|file| file.take(SNAPSHOT_BYTES_MAX + 1).read_to_end(&mut bytes))
    };
    read.map_err(|fault| fault.to_string())?;
    if bytes.len() as u64 > SNAPSHOT_BYTES_MAX {
        return Err(format!("it is longer than {SNAPSHOT_BYTES_MAX} bytes"));
    }
    Ok(bytes)
}

/// As strictly as the daemon reads, in the same words.
fn parse(bytes: &[u8]) -> Result<SnapshotDocument, String> {
    let document = json::parse(bytes).map_err(|fault| fault.to_string())?;
    if let Some(key) = document.duplicate {
        return Err(format!("the key {key:?} stands twice in one object"));
    }
    match &document.value {
        Json::Object(members) if members.is_empty() => Err("it is empty".to_owned()),
        Json::Object(_) => json::from_json(&document.value).map_err(|fault| fault.to_string()),
        other => Err(format!("it must be a JSON object, got: {}", other.type_name())),
    }
}
