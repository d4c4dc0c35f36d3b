//! Session document files: reading, and validating before the daemon is called.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use nexus3_protocol::json::{self, Json};
use nexus3_protocol::methods::SnapshotDocument;

/// Maximum size of a session document.
const SNAPSHOT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// File argument that means standard input.
const STANDARD_INPUT_ARGUMENT: &str = "-";

/// A file that is not a session document. The text names the file and the invalid member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotFileFault(String);

impl std::fmt::Display for SnapshotFileFault {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for SnapshotFileFault {}

/// Reads a session document: an export, or a session file of the original NEXUS3. `-` is standard input.
///
/// # Errors
/// When it cannot be read or is not a session document.
pub fn read_snapshot(file: &Path, input: &mut dyn Read) -> Result<SnapshotDocument, SnapshotFileFault> {
    let label = input_label(file);
    let bytes =
        read_bytes(file, input).map_err(|why| SnapshotFileFault(format!("cannot read {label}: {why}")))?;
    parse(&bytes).map_err(|why| SnapshotFileFault(format!("{label} is not a session document: {why}")))
}

/// Returns the name of an input in messages.
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

/// Parses the document with the daemon's rules and error texts.
fn parse(bytes: &[u8]) -> Result<SnapshotDocument, String> {
    let document = json::parse(bytes).map_err(|fault| fault.to_string())?;
    if let Some(key) = document.duplicate {
        return Err(format!("duplicate key {key:?}"));
    }
    match &document.value {
        Json::Object(members) if members.is_empty() => Err("it is empty".to_owned()),
        Json::Object(_) => json::from_json(&document.value).map_err(|fault| fault.to_string()),
        other => Err(format!("it must be a JSON object, got: {}", other.type_name())),
    }
}
