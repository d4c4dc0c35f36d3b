//! The daemon's token: generated at each start, stored in a file that only its user can read, removed at shutdown.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use agent::outside::Entropy;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nexus3_protocol::discovery::{TOKEN_BYTES, TOKEN_PREFIX, token_file_name};
use rustix::fs::OFlags;

use crate::Failure;

/// Generates a new token.
pub(crate) fn generate(entropy: &dyn Entropy) -> Result<String, Failure> {
    let mut bytes = [0; TOKEN_BYTES];
    entropy.fill(&mut bytes).map_err(|fault| Failure::Run(format!("cannot generate a token: {fault}")))?;
    Ok(format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
}

/// A token file on disk. Dropping it removes the file, unless it was replaced or overwritten since.
pub(crate) struct TokenFile {
    path: PathBuf,
    /// Open, so that no other file gets its inode.
    file: File,
    token: String,
}

impl TokenFile {
    /// Writes the token of the daemon on this port. Replaces an existing file or link and never follows a link.
    pub(crate) fn write(home: &Path, port: u16, token: &str) -> Result<Self, Failure> {
        let path = home.join(token_file_name(port));
        let temporary = home.join(format!(".{}.{}", token_file_name(port), std::process::id()));
        let written = write_atomically(&path, &temporary, token);
        if written.is_err() {
            // Remove a partial file, if there is one.
            let _ = fs::remove_file(&temporary);
        }
        let file =
            written.map_err(|fault| Failure::Run(format!("cannot write {}: {fault}", path.display())))?;
        Ok(Self { path, file, token: token.to_owned() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the path still leads to the file that was written, with its token.
    fn is_own(&self) -> io::Result<bool> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let found = OpenOptions::new().read(true).custom_flags(flags).open(&self.path)?;
        let file_id = |file: &File| file.metadata().map(|metadata| (metadata.dev(), metadata.ino()));
        if file_id(&found)? != file_id(&self.file)? {
            return Ok(false);
        }
        let mut content = Vec::new();
        found.take(self.token.len() as u64 + 1).read_to_end(&mut content)?;
        Ok(content == self.token.as_bytes())
    }
}

fn write_atomically(path: &Path, temporary: &Path, token: &str) -> io::Result<File> {
    match fs::remove_file(temporary) {
        Err(fault) if fault.kind() != io::ErrorKind::NotFound => return Err(fault),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(temporary)?;
    file.write_all(token.as_bytes())?;
    fs::rename(temporary, path)?;
    Ok(file)
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        if self.is_own().unwrap_or(false)
            && let Err(fault) = fs::remove_file(&self.path)
        {
            tracing::warn!(%fault, "cannot remove the token file {}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::process::SystemEntropy;

    #[test]
    fn a_token_has_its_prefix_and_32_random_bytes() {
        let token = generate(&SystemEntropy).unwrap();
        let random = URL_SAFE_NO_PAD.decode(token.strip_prefix("nxk_").unwrap()).unwrap();
        assert_eq!((token.len(), random.len()), (47, 32));
        assert_ne!(token, generate(&SystemEntropy).unwrap());
    }

    #[test]
    fn the_file_is_private_and_removed_on_drop() {
        let home = tempfile::tempdir().unwrap();
        let file = TokenFile::write(home.path(), 9000, "nxk_x").unwrap();
        let path = home.path().join("rpc-9000.token");
        assert_eq!(file.path(), path);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&path).unwrap(), "nxk_x");
        drop(file);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_planted_link_is_replaced_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let victim = home.path().join("victim");
        fs::write(&victim, "unchanged").unwrap();
        symlink(&victim, home.path().join("rpc.token")).unwrap();
        let file = TokenFile::write(home.path(), 8765, "nxk_x").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "unchanged");
        assert!(fs::symlink_metadata(file.path()).unwrap().is_file());
    }

    #[test]
    fn drop_keeps_the_file_of_another_daemon() {
        let home = tempfile::tempdir().unwrap();
        let first = TokenFile::write(home.path(), 8765, "nxk_1").unwrap();
        let second = TokenFile::write(home.path(), 8765, "nxk_2").unwrap();
        drop(first);
        assert_eq!(fs::read_to_string(second.path()).unwrap(), "nxk_2");
    }

    #[test]
    fn drop_keeps_a_file_with_other_content() {
        let home = tempfile::tempdir().unwrap();
        for content in ["", "nxk_2", "nxk_1 and a note"] {
            let file = TokenFile::write(home.path(), 8765, "nxk_1").unwrap();
            let path = file.path().to_owned();
            fs::write(&path, content).unwrap();
            drop(file);
            assert_eq!(fs::read_to_string(&path).unwrap(), content, "overwritten in place");
        }
        let file = TokenFile::write(home.path(), 8765, "nxk_1").unwrap();
        let path = file.path().to_owned();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "nxk_1").unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "nxk_1", "another file with the same token");
    }

    #[test]
    fn a_directory_in_place_of_the_file_is_an_error() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("rpc.token")).unwrap();
        let Err(failure) = TokenFile::write(home.path(), 8765, "nxk_x") else { panic!("it was written") };
        assert!(failure.to_string().contains("cannot write"), "{failure}");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "no temporary file is left");
    }
}
