//! JSON files beside the weights: the manifest of an installed model and the resume state of a partial download.
//! Written atomically.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::checksum::Checksum;
use crate::fault::WeightsFault;

/// Most bytes read of one of these files; real ones are far smaller.
const MANIFEST_BYTES_MAX: u64 = 65_536;

/// Manifest of an installed model.
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
    /// Modification time of the file at its last successful verification, in nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "written_ns")]
    pub(crate) modified_ns: Option<i64>,
}

/// Resume state of a partial download. Bytes beyond `synced_bytes` in the partial file are discarded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ResumeState {
    pub(crate) source: String,
    #[serde(rename = "kept_bytes")]
    pub(crate) synced_bytes: u64,
    /// Number of wheels completely unpacked into the partial file.
    #[serde(default)]
    pub(crate) wheels_done: usize,
    /// `ETag` of the server's file.
    #[serde(default)]
    pub(crate) etag: Option<String>,
    /// Size of the complete file, if known.
    #[serde(default)]
    pub(crate) total_bytes: Option<u64>,
    /// Checksum of the complete file, if the hub reported one.
    #[serde(default)]
    #[serde(rename = "told_sum")]
    pub(crate) reported_checksum: Option<Checksum>,
}

/// Returns the modification time of a file in nanoseconds since 1970.
pub(crate) fn modified_ns(metadata: &fs::Metadata) -> Option<i64> {
    metadata.mtime().checked_mul(1_000_000_000)?.checked_add(metadata.mtime_nsec())
}

/// Reads a JSON file; `None` if it is absent or invalid.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let mut text = String::new();
    File::open(path).ok()?.take(MANIFEST_BYTES_MAX).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Writes a JSON file atomically: a crash leaves the old or the new content.
pub(crate) fn write_json_atomic<T: Serialize>(path: &Path, value: &T) -> Result<(), WeightsFault> {
    let text = serde_json::to_vec_pretty(value).map_err(io::Error::other);
    let mut text = text.map_err(WeightsFault::file("write", path))?;
    text.push(b'\n');
    let temporary = path.with_added_extension("new");
    let written = (|| {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    written.map_err(WeightsFault::file("write", path))
}

/// Fsyncs a directory, which makes renames in it durable.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), WeightsFault> {
    File::open(folder).and_then(|open| open.sync_all()).map_err(WeightsFault::file("write", folder))
}

/// Removes a file if it exists.
pub(crate) fn remove_if_exists(path: &Path) -> Result<(), WeightsFault> {
    match fs::remove_file(path) {
        Err(fault) if fault.kind() != io::ErrorKind::NotFound => {
            Err(WeightsFault::file("remove", path)(fault))
        }
        _ => Ok(()),
    }
}
