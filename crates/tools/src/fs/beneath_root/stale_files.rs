//! Temporary entries that a killed process has left beside its targets: their names, and their removal before the next
//! write in the same directory.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use agent::ToolOutcome;
use agent::outside::Entropy;
use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use super::entry::{EntryKind, EntryNames, EntryStat, open_listing};
use super::proc_fd_path;
use crate::definition::execution_failed;

/// A temporary name: this, the id of the process, `-`, 32 hexadecimal digits and a suffix.
const PREFIX: &str = ".nexus3-";

/// The suffix of what can be removed when its process has ended: content that is not published yet, or was replaced.
const REMOVABLE: &str = ".tmp";

/// The suffix of the only copy of a file, on file systems without hard links. It is never removed.
const ONLY_COPY: &str = ".old";

/// A directory: device, inode and time of birth. The number of a removed inode is used again.
type DirectoryId = (u32, u32, u64, i64, u32);

/// Maximum number of directories that one process looks through.
const DIRECTORIES_MAX: usize = 10_000;

/// An unguessable name for a temporary entry.
pub(super) fn temporary_name(entropy: &dyn Entropy) -> Result<String, ToolOutcome> {
    unguessable_name(entropy, REMOVABLE)
}

/// An unguessable name for a file that has no other one until it is replaced.
pub(super) fn name_of_only_copy(entropy: &dyn Entropy) -> Result<String, ToolOutcome> {
    unguessable_name(entropy, ONLY_COPY)
}

fn unguessable_name(entropy: &dyn Entropy, suffix: &str) -> Result<String, ToolOutcome> {
    let mut random = [0; 16];
    entropy.fill(&mut random).map_err(|fault| execution_failed(fault.public))?;
    Ok(format!("{PREFIX}{}-{:032x}{suffix}", std::process::id(), u128::from_be_bytes(random)))
}

/// Removes stale entries from a directory, once per process; one that the call has created has none. Errors are ignored:
/// the write does not depend on it.
///
/// Every write calls this first. So whatever has the id of this process in its name when the directory is looked through
/// for the first time is of an earlier process with the same id, as containers have it.
pub(super) fn remove_stale(directory: &OwnedFd, is_new: bool) {
    static DONE: Mutex<Option<HashSet<DirectoryId>>> = Mutex::new(None);
    let Ok(id) = directory_id(directory) else { return };
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    let done = done.get_or_insert_default();
    if done.len() < DIRECTORIES_MAX && done.insert(id) && !is_new {
        let _ = remove_all_stale(directory);
    }
}

fn directory_id(directory: &OwnedFd) -> Result<DirectoryId, Errno> {
    let stat = rustix::fs::statx(directory, "", AtFlags::EMPTY_PATH, StatxFlags::INO | StatxFlags::BTIME)?;
    let born = stat.stx_btime;
    Ok((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino, born.tv_sec, born.tv_nsec))
}

fn remove_all_stale(directory: &OwnedFd) -> Result<(), Errno> {
    let listing = open_listing(directory.as_fd(), ".")?;
    for name in EntryNames::read(&listing)?.names.iter().filter(|name| is_stale(name)) {
        match EntryStat::read(listing.as_fd(), name)?.kind {
            EntryKind::File => rustix::fs::unlinkat(&listing, name, AtFlags::empty())?,
            // Removes no link's target.
            EntryKind::Directory => {
                let _ = std::fs::remove_dir_all(format!("{}/{name}", proc_fd_path(listing.as_fd())));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether this is a removable temporary name of a process that has ended.
fn is_stale(name: &str) -> bool {
    let parts = || name.strip_prefix(PREFIX)?.strip_suffix(REMOVABLE)?.split_once('-');
    let Some((process, random)) = parts() else { return false };
    let is_random = random.len() == 32 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    let Some(process) = process.parse().ok().and_then(Pid::from_raw) else { return false };
    let is_own = process == rustix::process::getpid();
    is_random && (is_own || rustix::process::test_kill_process(process) == Err(Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use agent::Fault;
    use agent::permission::{Effect, FilePath, Grant, Verdict, judge};

    use super::*;
    use crate::blocking::CancelFlag;
    use crate::fs::WritableFile;
    use crate::fs::beneath_root::Content;

    struct ZeroEntropy;

    impl Entropy for ZeroEntropy {
        fn fill(&self, _bytes: &mut [u8]) -> Result<(), Fault> {
            Ok(())
        }
    }

    const NEW: Content<'static> = Content { text: "new", is_appended: false };

    fn writable(file: &std::path::Path) -> WritableFile {
        let path = FilePath::resolve(file.to_str().unwrap(), &FilePath::root()).unwrap();
        let verdict = judge(&[Effect::Write(path)], &Grant::everything());
        let Verdict::Allowed(permit) = verdict else { panic!("{verdict:?}") };
        WritableFile::from_permit(&permit, "file").unwrap()
    }

    fn names(directory: &std::path::Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A process that is killed drops nothing.
    #[test]
    fn threat_73_write_that_is_killed_leaves_the_old_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().canonicalize().unwrap().join("file");
        fs::write(&file, "old").unwrap();
        let writable = writable(&file);
        let target = writable.lock().unwrap();
        std::mem::forget(target.prepare(&NEW, &ZeroEntropy, &CancelFlag::new()).unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        let left = format!(".nexus3-{}-{:032x}.tmp", std::process::id(), 0);
        assert_eq!(names(directory.path()), [left.as_str(), "file"]);
        assert_eq!(fs::read_to_string(directory.path().join(left)).unwrap(), "new");
    }

    #[test]
    fn threat_73_files_of_killed_processes_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        let (random, own, ended) = ("1".repeat(32), std::process::id(), i32::MAX);
        let stale_directory = base.join(format!(".nexus3-{ended}-{random}.tmp"));
        fs::create_dir_all(stale_directory.join("deep")).unwrap();
        fs::write(base.join("outside"), "stays").unwrap();
        symlink("../../outside", stale_directory.join("deep/link")).unwrap();
        let stays = [
            format!(".nexus3-1-{random}.tmp"),
            format!(".nexus3-{ended}-{random}.old"),
            format!(".nexus3-{ended}.tmp"),
        ];
        let other = "2".repeat(32);
        let stale = [format!(".nexus3-{own}-{random}.tmp"), format!(".nexus3-{ended}-{other}.tmp")];
        for name in stays.iter().chain(&stale) {
            fs::write(base.join(name), "left").unwrap();
        }
        remove_all_stale(&fs::File::open(&base).unwrap().into()).unwrap();
        let mut expected = stays.to_vec();
        expected.push("outside".to_owned());
        expected.sort();
        assert_eq!(names(&base), expected);
    }

    #[test]
    fn only_names_of_ended_processes_are_stale() {
        let (random, own) = ("0".repeat(32), std::process::id());
        // Above the largest process id.
        let ended = i32::MAX;
        for (name, expected) in [
            (format!(".nexus3-{ended}-{random}.tmp"), true),
            (format!(".nexus3-{own}-{random}.tmp"), true),
            (format!(".nexus3-1-{random}.tmp"), false),
            (format!(".nexus3-{ended}-{random}.old"), false),
            (format!(".nexus3-{ended}-{random}"), false),
            (format!(".nexus3-{ended}-{}.tmp", &random[1..]), false),
            (format!(".nexus3-{ended}-{}z.tmp", &random[1..]), false),
            (format!(".nexus3-0-{random}.tmp"), false),
            (format!(".nexus3--{ended}-{random}.tmp"), false),
            (format!(".nexus3-x-{random}.tmp"), false),
            (format!("nexus3-{ended}-{random}.tmp"), false),
        ] {
            assert_eq!(is_stale(&name), expected, "{name}");
        }
    }
}
