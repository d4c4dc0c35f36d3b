//! Reads the text files of the source tree; the rules check their content.

use std::fs;
use std::path::Path;

use crate::command::Failure;

/// Directories with generated files.
const SKIPPED: &[&str] = &[".git", "target", "node_modules", "__pycache__", ".venv"];

/// A UTF-8 file of the source tree.
pub(crate) struct TextFile {
    /// Relative to the root, with `/` as separator.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl TextFile {
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// Returns all UTF-8 files under `root`, ordered by path.
pub(crate) fn read(root: &Path) -> Result<Vec<TextFile>, Failure> {
    let mut files = Vec::new();
    walk(root, "", &mut files)?;
    files.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(files)
}

fn walk(folder: &Path, prefix: &str, files: &mut Vec<TextFile>) -> Result<(), Failure> {
    let unreadable = |cause: std::io::Error| Failure::Failed(format!("{}: {cause}", folder.display()));
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = format!("{prefix}{name}");
        // Symbolic links are skipped: their target is read where it is, or is outside the tree.
        let kind = entry.file_type().map_err(unreadable)?;
        if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
            walk(&entry.path(), &format!("{path}/"), files)?;
        } else if kind.is_file() {
            files.extend(read_text(&entry.path(), path)?);
        }
    }
    Ok(())
}

fn read_text(file: &Path, path: String) -> Result<Option<TextFile>, Failure> {
    match fs::read(file) {
        Ok(bytes) => Ok(String::from_utf8(bytes).ok().map(|text| TextFile { path, text })),
        // An editor's swap file may disappear after the directory was listed.
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(Failure::Failed(format!("{path}: {cause}"))),
    }
}
