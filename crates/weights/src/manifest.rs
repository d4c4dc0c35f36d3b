//! Small JSON files beside the weights: what was pulled, and how far a pull has come. Written whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::checksum::Checksum;
use crate::fault::WeightsFault;

/// Our own records are far smaller.
const MANIFEST_BYTES_MAX: u64 = 65_536;

/// What is known of weights that were pulled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) id: String,
    pub(crate) file: String,
    pub(crate) bytes: u64,
    pub(crate) sha256: Checksum,
    pub(crate) source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) licence: Option<String>,
    pub(crate) pulled_at: String,
    /// When the file was last written to, in nanoseconds since 1970, as it was when its sum was last right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "written_ns")]
    pub(crate) modified_ns: Option<i64>,
}

/// How far a pull has come: what lies beyond `kept_bytes` in the part file counts for nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ResumeState {
    pub(crate) source: String,
    #[serde(rename = "kept_bytes")]
    pub(crate) synced_bytes: u64,
    /// Wheels that are wholly in the part file.
    #[serde(default)]
    pub(crate) wheels_done: usize,
    /// What the server called this version of the file.
    #[serde(default)]
    pub(crate) etag: Option<String>,
    /// The size of the whole file, when it was told.
    #[serde(default)]
    pub(crate) total_bytes: Option<u64>,
    /// The sum of the whole file, when the hub told it.
    #[serde(default)]
    #[serde(rename = "told_sum")]
    pub(crate) reported_checksum: Option<Checksum>,
}

/// When a file was last written to, in nanoseconds since 1970.
pub(crate) fn modified_ns(metadata: &fs::Metadata) -> Option<i64> {
    metadata.mtime().checked_mul(1_000_000_000)?.checked_add(metadata.mtime_nsec())
}

/// Reads a record; none when it is not there or cannot be understood.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let mut text = String::new();
    File::open(path).ok()?.take(MANIFEST_BYTES_MAX).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Writes a record so that a crash leaves the old one or the new one.
pub(crate) fn write_json_atomic<T: Serialize>(path: &Path, record: &T) -> Result<(), WeightsFault> {
    let text = serde_json::to_vec_pretty(record).map_err(io::Error::other);
    let mut text = text.map_err(WeightsFault::file("write", path))?;
    text.push(b'\n');
    let fresh = path.with_added_extension("new");
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&fresh, path)
    })();
    written.map_err(WeightsFault::file("write", path))
}

/// Makes renames in the folder last.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), WeightsFault> {
    File::open(folder).and_then(|open| open.sync_all()).map_err(WeightsFault::file("write", folder))
}

/// Removes a file; one that is not there is fine.
pub(crate) fn remove_if_exists(path: &Path) -> Result<(), WeightsFault> {
    match fs::remove_file(path) {
        Err(fault) if fault.kind() != io::ErrorKind::NotFound => {
            Err(WeightsFault::file("remove", path)(fault))
        }
        _ => Ok(()),
    }
}
