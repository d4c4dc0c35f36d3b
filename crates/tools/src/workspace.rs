//! File system access for agents' working directories: resolves user paths to paths without links. [`notes`] loads
//! instruction files, [`git`] describes the state of a repository.

mod git;
mod notes;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use agent::outside::{Entropy, FileChange, RestoreFault, Workspace};
use agent::permission::{DirectoryIdentity, FilePath, PathFault, Permit};
use agent::prompt::Note;

use crate::definition::failure_reason;
use crate::fs::{ReadableFile, identify_directory, restore};

/// The local file system.
pub struct LocalWorkspace {
    home: Option<FilePath>,
    /// The directory of the owner's own notes.
    owner_notes_directory: Option<FilePath>,
    /// For the names of temporary files.
    entropy: Option<Arc<dyn Entropy>>,
}

impl LocalWorkspace {
    /// Creates a workspace where `~` stands for `home`.
    #[must_use]
    pub fn new(home: Option<FilePath>) -> Self {
        Self { home, owner_notes_directory: None, entropy: None }
    }

    /// Sets the directory of the owner's `NEXUS.md`.
    #[must_use]
    pub fn with_owner_notes(mut self, directory: FilePath) -> Self {
        self.owner_notes_directory = Some(directory);
        self
    }

    /// Sets the source of random names, which restoring files needs.
    #[must_use]
    pub fn with_entropy(mut self, entropy: Arc<dyn Entropy>) -> Self {
        self.entropy = Some(entropy);
        self
    }

    /// Expands `~` and makes the path absolute. Leaves `..` to the file system.
    fn expand_path(&self, path: &str, base: &FilePath) -> Result<String, String> {
        let path = path.replace('\\', "/");
        let at_home = match path.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => Some(rest),
            _ => None,
        };
        let text = match (at_home, &self.home) {
            (Some(rest), Some(home)) => format!("{home}{rest}"),
            (Some(_), None) => return Err("the home directory is unknown".to_owned()),
            (None, _) if path.starts_with('/') => path,
            (None, _) => format!("{base}/{path}"),
        };
        FilePath::resolve(&text, base).map_err(|fault| fault.to_string())?;
        Ok(text)
    }
}

impl Workspace for LocalWorkspace {
    fn resolve_directory(&self, path: &str, base: &FilePath) -> Result<FilePath, String> {
        let invalid = |why: String| format!("cwd invalid: {why}");
        let text = self.expand_path(path, base).map_err(invalid)?;
        let found = std::fs::canonicalize(&text).map_err(|fault| match fault.kind() {
            ErrorKind::NotFound => format!("cwd does not exist: {path}"),
            ErrorKind::NotADirectory => format!("cwd is not a directory: {path}"),
            _ => invalid(fault.to_string()),
        })?;
        if !found.is_dir() {
            return Err(format!("cwd is not a directory: {path}"));
        }
        to_file_path(&found).map_err(invalid)
    }

    fn resolve_path(&self, path: &str, base: &FilePath) -> Result<FilePath, String> {
        // An unset variable in a script must not stand for a whole directory.
        if path.is_empty() {
            return Err(PathFault::Empty.to_string());
        }
        let text = self.expand_path(path, base)?;
        if let Ok(found) = std::fs::canonicalize(&text) {
            return to_file_path(&found);
        }
        let wanted = FilePath::resolve(&text, base).map_err(|fault| fault.to_string())?;
        canonicalize_existing_prefix(&wanted)
    }

    fn identify_directory(&self, path: &FilePath) -> Option<DirectoryIdentity> {
        identify_directory(path)
    }

    fn notes(&self, cwd: &FilePath) -> Vec<Note> {
        notes::load_notes(self.owner_notes_directory.as_ref(), cwd)
    }

    fn read_file(&self, requested: &str, permit: Permit, bytes_max: usize) -> Result<Vec<u8>, String> {
        ReadableFile::from_permit(&permit, requested)
            .and_then(|file| file.read_all(bytes_max))
            .map_err(|outcome| failure_reason(&outcome).to_owned())
    }

    fn restore_files(&self, changes: &[FileChange], permit: &Permit) -> Result<Vec<FilePath>, RestoreFault> {
        let entropy = self.entropy.as_ref();
        let entropy = entropy.ok_or_else(|| RestoreFault::Failed("no source of random names".to_owned()))?;
        restore(changes, permit, &**entropy)
    }

    fn status_line(&self, cwd: &FilePath) -> Option<String> {
        git::status_line(Path::new(cwd.as_str()))
    }
}

/// Canonicalizes the longest existing prefix and appends the rest unchanged.
fn canonicalize_existing_prefix(wanted: &FilePath) -> Result<FilePath, String> {
    let mut existing = Path::new(wanted.as_str());
    loop {
        match std::fs::canonicalize(existing) {
            Ok(found) => {
                let rest =
                    Path::new(wanted.as_str()).strip_prefix(existing).map_err(|fault| fault.to_string())?;
                return to_file_path(&found.join(rest));
            }
            Err(fault) if matches!(fault.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                existing = existing.parent().ok_or_else(|| fault.to_string())?;
            }
            Err(fault) => return Err(fault.to_string()),
        }
    }
}

fn to_file_path(path: &Path) -> Result<FilePath, String> {
    let text = path.to_str().ok_or("the path is not UTF-8 text")?;
    FilePath::resolve(text, &FilePath::root()).map_err(|fault| fault.to_string())
}

#[cfg(test)]
mod tests;
