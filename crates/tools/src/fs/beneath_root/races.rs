//! Swap races of every tool that writes: while one thread calls it, another exchanges the directory of its path with a
//! link that leads out. The calls begin where the files are opened, below parsing, judging and the thread pool.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use agent::outside::Entropy;
use agent::permission::{DirectorySet, Effect, FilePath, Grant, Permit, Verdict, judge};
use agent::{Fault, ToolOutcome};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use serde_json::json;
use tempfile::TempDir;

use super::{Content, ReadableFile, RemovableEntry, WritableFile, identify_directory, open_directory};
use crate::blocking::CancelFlag;
use crate::effects::EditableFile;
use crate::fs::{edit, patch};

/// Tries per tool where a sync to disk costs nothing; fewer elsewhere.
const TRIES: usize = 100_000;
const TRIES_ON_DISK: usize = 1_000;

/// `inside/door` is exchanged with the link `inside/link`, which leads to `outside`. Both have equal names, so that a
/// call that escapes succeeds.
struct Arena {
    _directory: TempDir,
    base: String,
    /// The real directory, whatever its name is at the moment.
    door: OwnedFd,
    tries: usize,
}

/// Unguessable names are not needed here, only different ones.
struct Counter(AtomicU64);

impl Entropy for Counter {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), Fault> {
        let number = self.0.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        bytes.iter_mut().zip(number.iter().cycle()).for_each(|(byte, digit)| *byte = *digit);
        Ok(())
    }
}

impl Arena {
    fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let directory = TempDir::new_in(memory).or_else(|_| TempDir::new()).unwrap();
        let tries = if directory.path().starts_with(memory) { TRIES } else { TRIES_ON_DISK };
        let base = directory.path().canonicalize().unwrap().to_str().unwrap().to_owned();
        for tree in ["inside/door", "outside"] {
            fs::create_dir_all(format!("{base}/{tree}/tree/deep")).unwrap();
            for (name, content) in
                [("file", "a\nb\n"), ("one", "a\nb\n"), ("two", "a\nb\n"), ("m", "m"), ("n", "n")]
            {
                let content = if tree == "outside" { content.to_owned() } else { content.replace("b\n", "") };
                fs::write(format!("{base}/{tree}/{name}"), content).unwrap();
            }
            fs::write(format!("{base}/{tree}/tree/deep/file"), tree).unwrap();
        }
        symlink("../outside", format!("{base}/inside/link")).unwrap();
        let door = open_directory(&format!("{base}/inside/door")).unwrap();
        Self { _directory: directory, base, door, tries }
    }

    fn permit(&self, effects: &[(&str, bool)]) -> Permit {
        let path = |name: &str| FilePath::resolve(name, &FilePath::root()).unwrap();
        let root = path(&format!("{}/inside", self.base));
        let roots = DirectorySet::from_roots([root.clone()]);
        let identities = identify_directory(&root).into_iter().collect();
        let grant = Grant { read: roots.clone(), write: roots, identities, ..Grant::everything() };
        let effect = |(name, is_write): &(&str, bool)| {
            let path = path(&format!("{root}/{name}"));
            if *is_write { Effect::Write(path) } else { Effect::Read(path) }
        };
        let effects: Vec<_> = effects.iter().map(effect).collect();
        let Verdict::Allowed(permit) = judge(&effects, &grant) else { panic!("{effects:?}") };
        permit
    }

    fn writable(&self, name: &str) -> WritableFile {
        WritableFile::from_permit(&self.permit(&[(name, true)]), name).unwrap()
    }

    fn readable(&self, name: &str) -> ReadableFile {
        ReadableFile::from_permit(&self.permit(&[(name, false)]), name).unwrap()
    }

    fn removable(&self, name: &str) -> RemovableEntry {
        RemovableEntry::nth_of_permit(&self.permit(&[(name, true)]), 0, name).unwrap()
    }

    fn editable(&self, name: &str) -> EditableFile {
        EditableFile { readable: self.readable(name), writable: self.writable(name) }
    }

    /// The content of a file in the real directory.
    fn content(&self, name: &str) -> String {
        let file = rustix::fs::openat(&self.door, name, OFlags::RDONLY, Mode::empty()).unwrap();
        std::io::read_to_string(fs::File::from(file)).unwrap()
    }

    fn remove(&self, name: &str, flags: AtFlags) {
        rustix::fs::unlinkat(&self.door, name, flags).unwrap();
    }

    /// Everything that a call outside would change.
    fn outside(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut pending = vec![format!("{}/outside", self.base)];
        while let Some(path) = pending.pop() {
            let stat = fs::metadata(&path).unwrap();
            let content = if stat.is_dir() {
                let entries = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
                pending.extend(entries.map(|path| path.to_str().unwrap().to_owned()));
                String::new()
            } else {
                fs::read_to_string(&path).unwrap()
            };
            found.push(format!(
                "{path} {} {} {} {content}",
                stat.ino(),
                stat.mtime_nsec(),
                stat.ctime_nsec()
            ));
        }
        found.sort();
        found
    }
}

type Tried = Result<(), ToolOutcome>;

/// Ends the swapping thread, also if a try panics: the scope waits for the thread.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Calls a tool while the directory is swapped. The call gets the number of its try.
fn race(
    tool: &str,
    prepare: impl for<'a> FnOnce(&'a Arena, &'a Counter) -> Box<dyn FnMut(usize) -> Tried + 'a>,
) {
    // One at a time: each has a thread that swaps without a pause.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (arena, entropy) = (Arena::new(), Counter(AtomicU64::new(0)));
    let mut call = prepare(&arena, &entropy);
    let before = arena.outside();
    let (stop, began) = (AtomicBool::new(false), std::time::Instant::now());
    let (mut done, mut denied, mut failed) = (0, 0, 0);
    let swaps = std::thread::scope(|scope| {
        let swapper = scope.spawn(|| {
            let [door, link] = ["door", "link"].map(|name| format!("{}/inside/{name}", arena.base));
            let mut swaps = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(CWD, &door, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                swaps += 1;
            }
            swaps
        });
        let stop_on_drop = StopOnDrop(&stop);
        for number in 0..arena.tries {
            match call(number) {
                Ok(()) => done += 1,
                Err(ToolOutcome::Denied(_)) => denied += 1,
                Err(_) => failed += 1,
            }
        }
        drop(stop_on_drop);
        swapper.join().unwrap()
    });
    let tries = arena.tries;
    eprintln!(
        "{tool}: {tries} tries, {done} done, {denied} denied, {failed} failed, {swaps} swaps, {:?}",
        began.elapsed()
    );
    assert_eq!(arena.outside(), before, "{tool} escaped");
    assert!(done > 0 && denied > 0, "{tool}: the swaps did not meet the calls: {done} done, {denied} denied");
}

#[test]
fn threat_69_write_file_stays_inside_during_swaps() {
    race("fs.write_file", |arena, entropy| {
        let (old, new, stop) =
            (arena.writable("door/file"), arena.writable("door/new/file"), CancelFlag::new());
        Box::new(move |number| {
            let content = Content { text: "mine", is_appended: number % 4 == 0 };
            if number % 2 == 0 {
                return old.lock()?.replace(&content, entropy, &stop);
            }
            new.lock()?.replace(&content, entropy, &stop)?;
            arena.remove("new/file", AtFlags::empty());
            arena.remove("new", AtFlags::REMOVEDIR);
            Ok(())
        })
    });
}

#[test]
fn threat_69_append_file_stays_inside_during_swaps() {
    race("fs.append_file", |arena, entropy| {
        let (old, new, stop) = (arena.writable("door/file"), arena.writable("door/new"), CancelFlag::new());
        Box::new(move |number| {
            if number % 2 == 0 {
                return old.lock()?.append("x".to_owned(), true, entropy, &stop).map(drop);
            }
            new.lock()?.append("x".to_owned(), true, entropy, &stop)?;
            arena.remove("new", AtFlags::empty());
            Ok(())
        })
    });
}

#[test]
fn threat_69_edit_stays_inside_during_swaps() {
    race("fs.edit", |arena, entropy| {
        let (file, stop) = (arena.editable("door/file"), CancelFlag::new());
        let mut texts = ("a", "b");
        Box::new(move |_| {
            let input = json!({"path": "door/file", "old": texts.0, "new": texts.1});
            edit::edit(serde_json::from_value(input).unwrap(), &file, entropy, &stop)?;
            texts = (texts.1, texts.0);
            Ok(())
        })
    });
}

#[test]
fn threat_69_patch_stays_inside_during_swaps() {
    race("fs.patch", |arena, entropy| {
        let (files, stop) = (["door/one", "door/two"].map(|name| arena.editable(name)), CancelFlag::new());
        let mut texts = ("a", "b");
        Box::new(move |_| {
            let (old, new) = texts;
            let hunks = ["door/one", "door/two"]
                .map(|name| format!("--- {name}\n+++ {name}\n@@ -1 +1 @@\n-{old}\n+{new}\n"));
            let input = serde_json::from_value(json!({"patch": hunks.concat()})).unwrap();
            let outcome = patch::patch(&input, &files, entropy, &stop);
            let expected = if outcome.is_ok() { new } else { old };
            for name in ["one", "two"] {
                assert_eq!(arena.content(name).trim_end(), expected, "both files or none: {outcome:?}");
            }
            outcome?;
            texts = (new, old);
            Ok(())
        })
    });
}

#[test]
fn threat_69_mkdir_stays_inside_during_swaps() {
    race("fs.mkdir", |arena, _| {
        let directory = arena.writable("door/new/deep");
        Box::new(move |_| {
            directory.create_directory()?;
            arena.remove("new/deep", AtFlags::REMOVEDIR);
            arena.remove("new", AtFlags::REMOVEDIR);
            Ok(())
        })
    });
}

#[test]
fn threat_69_move_stays_inside_during_swaps() {
    race("fs.move", |arena, _| {
        arena.remove("n", AtFlags::empty());
        let mut ends = ["door/m", "door/n"]
            .map(|name| (arena.readable(name), arena.removable(name), arena.writable(name)));
        let stop = CancelFlag::new();
        Box::new(move |_| {
            let [(readable, from, _), (_, _, to)] = &ends;
            from.move_to(readable, to, true, &stop)?;
            ends.swap(0, 1);
            Ok(())
        })
    });
}

#[test]
fn threat_69_copy_stays_inside_during_swaps() {
    race("fs.copy", |arena, entropy| {
        let (file, tree) = (arena.readable("door/tree/deep/file"), arena.readable("door/tree"));
        let (new, new_tree) = (arena.writable("door/m"), arena.writable("door/new"));
        let stop = CancelFlag::new();
        Box::new(move |number| {
            if number % 4 != 0 {
                file.copy_to(&new, true, entropy, &stop)?;
                assert_eq!(arena.content("m"), "inside/door", "the source escaped");
                return Ok(());
            }
            tree.copy_to(&new_tree, false, entropy, &stop)?;
            assert_eq!(arena.content("new/deep/file"), "inside/door", "the source escaped");
            arena.remove("new/deep/file", AtFlags::empty());
            arena.remove("new/deep", AtFlags::REMOVEDIR);
            arena.remove("new", AtFlags::REMOVEDIR);
            Ok(())
        })
    });
}

#[test]
fn threat_69_delete_stays_inside_during_swaps() {
    race("fs.delete", |arena, _| {
        let (file, tree, stop) =
            (arena.removable("door/file"), arena.removable("door/tree"), CancelFlag::new());
        let create = |name: &str| {
            let flags = OFlags::CREATE | OFlags::WRONLY;
            rustix::fs::openat(arena.door.as_fd(), name, flags, Mode::RUSR | Mode::WUSR).map(drop).unwrap();
        };
        Box::new(move |number| {
            if number % 2 == 0 {
                file.remove(false, &stop)?;
                create("file");
                return Ok(());
            }
            tree.remove(true, &stop)?;
            for directory in ["tree", "tree/deep"] {
                rustix::fs::mkdirat(arena.door.as_fd(), directory, Mode::RWXU).unwrap();
            }
            create("tree/deep/file");
            Ok(())
        })
    });
}
