//! Loads instruction files for agents: the owner's `NEXUS.md`, and the first matching file of a directory and of the
//! two above it. Follows no symbolic links and reads only regular files.

use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;

use agent::permission::FilePath;
use agent::prompt::{Note, Trust};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use crate::fs::{is_blocked_alias, real_path};

/// File names by priority; only the first existing one of a directory is read.
const FILE_NAMES: [&str; 3] = ["NEXUS.md", "AGENTS.md", "CLAUDE.md"];

/// Subdirectories in which each name is looked up.
const SUBDIRECTORIES: [&str; 2] = [".nexus3/", ""];

/// Number of parent directories whose notes are read too.
const ANCESTORS_MAX: usize = 2;

/// Maximum number of bytes read from one file, more than a prompt uses.
const BYTES_MAX: u64 = 256 << 10;

/// Loads the owner's notes, then those of the directories, from the outermost to the working directory.
pub(super) fn load_notes(owner: Option<&FilePath>, cwd: &FilePath) -> Vec<Note> {
    let mut notes: Vec<_> =
        owner.and_then(|owner| load_note(owner.as_str(), FILE_NAMES[0], None)).into_iter().collect();
    let directories = Path::new(cwd.as_str()).ancestors().take(ANCESTORS_MAX + 1);
    let mut directories: Vec<_> = directories.filter_map(Path::to_str).collect();
    directories.reverse();
    // The owner's notes do not count as project notes, even if the working directory is next to them.
    let has_owner_notes = |directory: &str| {
        owner.is_some_and(|owner| owner.as_str() == format!("{}/.nexus3", directory.trim_end_matches('/')))
    };
    // The owner's directory is the daemon's home: a link to one of its files is no note.
    let blocked: Vec<_> = owner.cloned().into_iter().collect();
    notes.extend(
        directories
            .into_iter()
            .filter_map(|directory| directory_note(directory, has_owner_notes(directory), &blocked)),
    );
    notes
}

fn directory_note(directory: &str, has_owner_notes: bool, blocked: &[FilePath]) -> Option<Note> {
    let subdirectories = SUBDIRECTORIES.iter().filter(|path| !has_owner_notes || path.is_empty());
    let subdirectories: Vec<_> = subdirectories.collect();
    let names =
        FILE_NAMES.iter().flat_map(|name| subdirectories.iter().map(move |path| format!("{path}{name}")));
    names.into_iter().find_map(|name| load_note(directory, &name, Some(blocked)))
}

/// Loads a note, if there is a regular file of that name beneath the directory: the owner's, or a project's that is in no
/// blocked directory.
fn load_note(directory: &str, name: &str, blocked: Option<&[FilePath]>) -> Option<Note> {
    let trust = if blocked.is_some() { Trust::Project } else { Trust::Owner };
    let source = format!("{}/{name}", directory.trim_end_matches('/'));
    match read_note_file(directory, name, blocked.unwrap_or_default()) {
        Ok(text) => text.map(|text| Note { source, trust, text }),
        Err(fault) => {
            tracing::warn!(file = source, "cannot read instruction file: {fault}");
            None
        }
    }
}

/// Reads the file; none if it does not exist or is not a regular file.
fn read_note_file(directory: &str, name: &str, blocked: &[FilePath]) -> std::io::Result<Option<String>> {
    let not_a_note = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::XDEV, Errno::NXIO];
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let beneath = match rustix::fs::openat(CWD, directory, flags | OFlags::DIRECTORY, Mode::empty()) {
        Err(errno) if not_a_note.contains(&errno) => return Ok(None),
        opened => opened?,
    };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // Non-blocking: a named pipe of that name must not block the creation of an agent.
    let file = match openat2(&beneath, name, flags | OFlags::NONBLOCK, Mode::empty(), resolve) {
        Err(errno) if not_a_note.contains(&errno) => return Ok(None),
        opened => std::fs::File::from(opened?),
    };
    if !file.metadata()?.is_file() || is_alias(&file, blocked)? {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

fn is_alias(file: &std::fs::File, blocked: &[FilePath]) -> std::io::Result<bool> {
    let real = real_path(file.as_fd()).ok_or(Errno::NOENT)?;
    Ok(is_blocked_alias(file.as_fd(), &real, blocked)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(path: &Path) -> FilePath {
        let path = std::fs::canonicalize(path).expect("exists");
        FilePath::resolve(path.to_str().expect("text"), &FilePath::root()).expect("a path")
    }

    fn write(root: &Path, name: &str, text: &str) {
        let file = root.join(name);
        std::fs::create_dir_all(file.parent().expect("a directory")).expect("create");
        std::fs::write(file, text).expect("write");
    }

    fn loaded_notes(owner: Option<&Path>, cwd: &Path) -> Vec<(Trust, String)> {
        let owner = owner.map(path);
        load_notes(owner.as_ref(), &path(cwd)).into_iter().map(|note| (note.trust, note.text)).collect()
    }

    #[test]
    fn first_note_of_each_directory_is_read_outermost_first() {
        let root = tempfile::tempdir().expect("a directory");
        let (owner, cwd) = (root.path().join("own"), root.path().join("a/b/c"));
        write(root.path(), "own/NEXUS.md", "own");
        write(root.path(), "NEXUS.md", "too far");
        write(root.path(), "a/CLAUDE.md", "a");
        write(root.path(), "a/b/AGENTS.md", "b");
        write(root.path(), "a/b/CLAUDE.md", "not first");
        write(root.path(), "a/b/c/AGENTS.md", "not first either");
        write(root.path(), "a/b/c/.nexus3/NEXUS.md", "c");
        write(root.path(), "a/b/c/NEXUS.md", "behind the hidden one");
        let project = |text: &str| (Trust::Project, text.to_owned());
        let expected = [(Trust::Owner, "own".to_owned()), project("a"), project("b"), project("c")];
        assert_eq!(loaded_notes(Some(&owner), &cwd), expected);
    }

    #[test]
    fn hard_link_to_a_file_of_the_home_is_no_note() {
        let root = tempfile::tempdir().expect("a directory");
        let (home, cwd) = (root.path().join("home"), root.path().join("a/b/c"));
        write(root.path(), "home/run/token", "secret");
        write(root.path(), "a/b/c/AGENTS.md", "c");
        std::fs::hard_link(home.join("run/token"), cwd.join("NEXUS.md")).expect("a link");
        assert_eq!(loaded_notes(Some(&home), &cwd), [(Trust::Project, "c".to_owned())]);
    }

    #[test]
    fn links_directories_and_pipes_are_ignored() {
        let root = tempfile::tempdir().expect("a directory");
        let cwd = root.path().join("a/b/c");
        write(root.path(), "secret", "not for agents");
        std::fs::create_dir_all(cwd.join("NEXUS.md")).expect("create");
        std::os::unix::fs::symlink("../../../secret", cwd.join("AGENTS.md")).expect("create");
        std::os::unix::fs::symlink("../../..", cwd.join(".nexus3")).expect("create");
        let pipe = cwd.join("CLAUDE.md");
        rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .expect("a pipe");
        assert_eq!(loaded_notes(None, &cwd), []);
    }

    #[test]
    fn long_note_is_truncated() {
        let root = tempfile::tempdir().expect("a directory");
        write(root.path(), "a/b/c/NEXUS.md", &"x".repeat(1 << 20));
        let notes = loaded_notes(None, &root.path().join("a/b/c"));
        assert_eq!(notes[0].1.len() as u64, BYTES_MAX);
    }

    #[test]
    fn owner_notes_are_not_read_twice() {
        let root = tempfile::tempdir().expect("a directory");
        write(root.path(), "home/.nexus3/NEXUS.md", "own");
        let home = root.path().join("home");
        assert_eq!(loaded_notes(Some(&home.join(".nexus3")), &home), [(Trust::Owner, "own".to_owned())]);
    }
}
