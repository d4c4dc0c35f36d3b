//! The daemon's token: made fresh at each start, left in a file that only its user can read, taken away at the end.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use agent::outside::Entropy;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nexus3_protocol::discovery::{TOKEN_BYTES, TOKEN_PREFIX, token_file_name};

use crate::Failure;

/// A new token.
pub(crate) fn generate(entropy: &dyn Entropy) -> Result<String, Failure> {
    let mut bytes = [0; TOKEN_BYTES];
    entropy.fill(&mut bytes).map_err(|fault| Failure::Run(format!("cannot make a token: {fault}")))?;
    Ok(format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
}

/// A token file on disk. Dropping it removes the file, unless another daemon has replaced it since.
#[derive(Debug)]
pub(crate) struct TokenFile {
    path: PathBuf,
    file_id: (u64, u64),
}

impl TokenFile {
    /// Writes the token of the daemon on this port. A file or link that was there is replaced, never followed.
    pub(crate) fn write(home: &Path, port: u16, token: &str) -> Result<Self, Failure> {
        let path = home.join(token_file_name(port));
        let fresh = home.join(format!(".{}.{}", token_file_name(port), std::process::id()));
        let written = write_atomically(&path, &fresh, token);
        if written.is_err() {
            // Nothing half-written stays behind; there may be nothing to remove.
            let _ = fs::remove_file(&fresh);
        }
        let identity =
            written.map_err(|fault| Failure::Run(format!("cannot write {}: {fault}", path.display())))?;
        Ok(Self { path, file_id: identity })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn write_atomically(path: &Path, fresh: &Path, token: &str) -> io::Result<(u64, u64)> {
    match fs::remove_file(fresh) {
        Err(fault) if fault.kind() != io::ErrorKind::NotFound => return Err(fault),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(fresh)?;
    file.write_all(token.as_bytes())?;
    let metadata = file.metadata()?;
    fs::rename(fresh, path)?;
    Ok((metadata.dev(), metadata.ino()))
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|now| (now.dev(), now.ino()) == self.file_id);
        if ours && let Err(fault) = fs::remove_file(&self.path) {
            tracing::warn!(%fault, "the token file could not be removed: {}", self.path.display());
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
    fn the_file_is_private_and_goes_with_its_owner() {
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
    fn a_planted_link_is_replaced_and_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let victim = home.path().join("victim");
        fs::write(&victim, "keep").unwrap();
        symlink(&victim, home.path().join("rpc.token")).unwrap();
        let file = TokenFile::write(home.path(), 8765, "nxk_x").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "keep");
        assert!(fs::symlink_metadata(file.path()).unwrap().is_file());
    }

    #[test]
    fn a_file_that_another_daemon_wrote_stays() {
        let home = tempfile::tempdir().unwrap();
        let first = TokenFile::write(home.path(), 8765, "nxk_1").unwrap();
        let second = TokenFile::write(home.path(), 8765, "nxk_2").unwrap();
        drop(first);
        assert_eq!(fs::read_to_string(second.path()).unwrap(), "nxk_2");
    }

    #[test]
    fn a_directory_in_its_place_is_a_clear_failure() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("rpc.token")).unwrap();
        let failure = TokenFile::write(home.path(), 8765, "nxk_x").unwrap_err();
        assert!(failure.to_string().contains("cannot write"), "{failure}");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "nothing is left beside it");
    }
}
