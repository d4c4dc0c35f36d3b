//! Finds what people have written down for agents: the owner's `NEXUS.md`, and the first file of its kind in a folder and
//! the two above it. Nothing is read through a link, and nothing but plain files.

use std::io::Read;
use std::path::Path;

use agent::permission::FilePath;
use agent::prompt::{Note, Trust};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

/// In this order; the first that is there is read.
const FILE_NAMES: [&str; 3] = ["NEXUS.md", "AGENTS.md", "CLAUDE.md"];

/// Where in a folder each name is looked for.
const SUBDIRECTORIES: [&str; 2] = [".nexus3/", ""];

/// Folders above the working directory whose notes are read too.
const ANCESTORS_MAX: usize = 2;

/// The most that is read of one file; more than a prompt takes of it.
const BYTES_MAX: u64 = 256 << 10;

/// The owner's notes, then those of the folders, from the farthest to the nearest.
pub(super) fn load_notes(own: Option<&FilePath>, cwd: &FilePath) -> Vec<Note> {
    let mut notes: Vec<_> =
        own.and_then(|own| load_note(own.as_str(), FILE_NAMES[0], Trust::Owner)).into_iter().collect();
    let folders = Path::new(cwd.as_str()).ancestors().take(ANCESTORS_MAX + 1);
    let mut folders: Vec<_> = folders.filter_map(Path::to_str).collect();
    folders.reverse();
    // The owner's notes are not the project's, when somebody works beside them.
    let is_own = |folder: &str| {
        own.is_some_and(|own| own.as_str() == format!("{}/.nexus3", folder.trim_end_matches('/')))
    };
    notes.extend(folders.into_iter().filter_map(|folder| directory_note(folder, is_own(folder))));
    notes
}

fn directory_note(folder: &str, holds_own: bool) -> Option<Note> {
    let places = SUBDIRECTORIES.iter().filter(|place| !holds_own || place.is_empty());
    let places: Vec<_> = places.collect();
    let names = FILE_NAMES.iter().flat_map(|name| places.iter().map(move |place| format!("{place}{name}")));
    names.into_iter().find_map(|name| load_note(folder, &name, Trust::Project))
}

/// A note, if there is a plain file of that name beneath the folder.
fn load_note(folder: &str, name: &str, trust: Trust) -> Option<Note> {
    let source = format!("{}/{name}", folder.trim_end_matches('/'));
    match read_note_file(folder, name) {
        Ok(text) => text.map(|text| Note { source, trust, text }),
        Err(fault) => {
            tracing::warn!(file = source, "a note for agents cannot be read: {fault}");
            None
        }
    }
}

/// None when it is not there, or is no plain file.
fn read_note_file(folder: &str, name: &str) -> std::io::Result<Option<String>> {
    let none_of_these = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::XDEV, Errno::NXIO];
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let beneath = match rustix::fs::openat(CWD, folder, flags | OFlags::DIRECTORY, Mode::empty()) {
        Err(errno) if none_of_these.contains(&errno) => return Ok(None),
        opened => opened?,
    };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // Not waiting: a pipe of that name must not stop whoever makes an agent.
    let file = match openat2(&beneath, name, flags | OFlags::NONBLOCK, Mode::empty(), resolve) {
        Err(errno) if none_of_these.contains(&errno) => return Ok(None),
        opened => std::fs::File::from(opened?),
    };
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(path: &Path) -> FilePath {
        let path = std::fs::canonicalize(path).expect("it is there");
        FilePath::resolve(path.to_str().expect("text"), &FilePath::root()).expect("a path")
    }

    fn write(root: &Path, name: &str, text: &str) {
        let file = root.join(name);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("it can be made");
        std::fs::write(file, text).expect("it can be written");
    }

    fn loaded_notes(own: Option<&Path>, cwd: &Path) -> Vec<(Trust, String)> {
        let own = own.map(path);
        load_notes(own.as_ref(), &path(cwd)).into_iter().map(|note| (note.trust, note.text)).collect()
    }

    #[test]
    fn the_first_of_each_folder_is_read_from_the_farthest_to_the_nearest() {
        let root = tempfile::tempdir().expect("a folder");
        let (own, cwd) = (root.path().join("own"), root.path().join("a/b/c"));
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
        assert_eq!(loaded_notes(Some(&own), &cwd), expected);
    }

    #[test]
    fn links_folders_and_pipes_are_no_notes() {
        let root = tempfile::tempdir().expect("a folder");
        let cwd = root.path().join("a/b/c");
        write(root.path(), "secret", "not for agents");
        std::fs::create_dir_all(cwd.join("NEXUS.md")).expect("it can be made");
        std::os::unix::fs::symlink("../../../secret", cwd.join("AGENTS.md")).expect("it can be made");
        std::os::unix::fs::symlink("../../..", cwd.join(".nexus3")).expect("it can be made");
        let pipe = cwd.join("CLAUDE.md");
        rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .expect("a pipe");
        assert_eq!(loaded_notes(None, &cwd), []);
    }

    #[test]
    fn what_is_too_long_is_read_in_part() {
        let root = tempfile::tempdir().expect("a folder");
        write(root.path(), "a/b/c/NEXUS.md", &"x".repeat(1 << 20));
        let notes = loaded_notes(None, &root.path().join("a/b/c"));
        assert_eq!(notes[0].1.len() as u64, BYTES_MAX);
    }

    #[test]
    fn the_owners_notes_are_not_read_twice() {
        let root = tempfile::tempdir().expect("a folder");
        write(root.path(), "home/.nexus3/NEXUS.md", "own");
        let home = root.path().join("home");
        assert_eq!(loaded_notes(Some(&home.join(".nexus3")), &home), [(Trust::Owner, "own".to_owned())]);
    }
}
