//! Refusals when opening a store: the text names the file and the remedy, and the file is left unchanged.

use std::os::unix::fs::PermissionsExt as _;

use agent::outside::Store as _;
use rusqlite::Connection;

use super::*;

/// Returns the text of a refusal, and asserts that the database file is unchanged.
fn refusal_text(home: &Home) -> String {
    let before = std::fs::read(home.path()).ok();
    let text = home.open_fault().to_string();
    assert!(text.starts_with(home.folder.path().to_str().unwrap()), "{text}");
    assert_eq!(std::fs::read(home.path()).ok(), before, "{text}");
    text
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn store_in_use_is_refused() {
    let home = Home::new();
    let store = home.open();
    let text = refusal_text(&home);
    let holder = format!("another daemon (process {}) uses this store", std::process::id());
    assert!(
        text.contains("nexus3.db: another daemon") && text.contains(&holder) && text.contains("another home"),
        "{text}"
    );
    append_records(&store, [created("main", None)]).await.unwrap();
    store.close().await;
    assert_eq!(last_sequence(&home.open()).await, 1, "a closed store can be opened");
}

#[tokio::test]
async fn database_in_use_under_another_name_is_refused() {
    let (home, other) = (Home::new(), Home::new());
    let store = home.open();
    // From the descriptors of this process: the list of all locks of the machine is not read at one moment.
    let posix_locks = || {
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap());
        let path = std::fs::canonicalize(home.path()).unwrap();
        let opened =
            descriptors.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|link| link == path));
        let info = |entry: std::fs::DirEntry| {
            std::fs::read_to_string(format!("/proc/self/fdinfo/{}", entry.file_name().display())).unwrap()
        };
        opened.map(info).map(|info| info.matches("POSIX").count()).sum::<usize>()
    };
    let locks_before = posix_locks();
    assert!(locks_before > 0);
    std::fs::hard_link(home.path(), other.path()).unwrap();
    assert!(matches!(other.open_fault(), SqliteOpenFault::Locked { .. }), "a hard link");
    std::fs::remove_file(other.path()).unwrap();
    std::os::unix::fs::symlink(home.path(), other.path()).unwrap();
    assert!(matches!(other.open_fault(), SqliteOpenFault::Locked { .. }), "a symlink");
    assert_eq!(posix_locks(), locks_before, "SQLite's own locks are still held");
    append_records(&store, [created("main", None)]).await.unwrap();
    store.close().await;
    assert_eq!(last_sequence(&other.open()).await, 1, "a symlink to a free database can be opened");
    assert!(home.is_sound().await);
}

#[tokio::test]
async fn database_locked_by_another_process_is_refused() {
    let (home, other) = (Home::with_messages(1).await, Home::new());
    std::fs::hard_link(home.path(), other.path()).unwrap();
    // A lock belongs to an open file, so that of another process conflicts in the same way.
    let file = std::fs::File::open(home.path()).unwrap();
    file.try_lock().unwrap();
    let text = refusal_text(&other);
    assert!(text.contains(&format!("(process {}) uses this store", std::process::id())), "{text}");
    drop(file);
    assert_eq!(last_sequence(&other.open()).await, 2);
}

#[tokio::test]
async fn symlink_to_a_missing_database_is_refused() {
    let (home, other) = (Home::new(), Home::new());
    std::os::unix::fs::symlink(other.path(), home.path()).unwrap();
    assert!(refusal_text(&home).contains("cannot be found"));
    assert_eq!(file_names(other.folder.path()), [""; 0]);
}

#[tokio::test]
async fn missing_database_with_a_mark_is_refused() {
    let home = Home::with_messages(3).await;
    let mark = std::fs::read(home.files().high_water_mark()).unwrap();
    let away = home.folder.path().join("away.db");
    std::fs::rename(home.path(), &away).unwrap();
    for is_empty in [false, true] {
        if is_empty {
            std::fs::write(home.path(), b"").unwrap();
        }
        let text = refusal_text(&home);
        for part in
            ["nexus3.db.mark says that 4 entries were committed", "put it back", "move its .mark away"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(std::fs::read(home.files().high_water_mark()).unwrap(), mark);
    }
    std::fs::rename(&away, home.path()).unwrap();
    assert_eq!(last_sequence(&home.open()).await, 4, "nothing was lost");
    std::fs::remove_file(home.path()).unwrap();
    std::fs::remove_file(home.files().high_water_mark()).unwrap();
    assert_eq!(last_sequence(&home.open()).await, 0, "the way to an empty store");
}

#[tokio::test]
async fn links_and_pipes_in_place_of_companions_are_refused() {
    let target = crate::conformance::folder();
    let victim = target.path().join("victim");
    for name in ["mark", "wal", "index"] {
        let home = Home::with_messages(1).await;
        let files = home.files();
        let path = match name {
            "mark" => files.high_water_mark(),
            "wal" => files.wal(),
            _ => files.wal_index(),
        };
        let _ = std::fs::remove_file(&path);
        std::fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        let text = refusal_text(&home);
        assert!(text.starts_with(path.to_str().unwrap()) && text.contains("not a regular file"), "{text}");
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
        assert!(refusal_text(&home).contains("move it away"));
        if name == "mark" {
            assert!(check(&home.path()).unwrap_err().to_string().contains("not a regular file"));
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(last_sequence(&home.open()).await, 2);
    }
}

#[tokio::test]
async fn read_only_file_or_folder_is_refused() {
    let home = Home::with_messages(1).await;
    set_mode(&home.path(), 0o400);
    assert!(refusal_text(&home).contains("read-only; make it writable for the daemon's user (chmod u+w)"));
    set_mode(&home.path(), 0o600);
    set_mode(home.folder.path(), 0o500);
    assert!(refusal_text(&home).contains("read-only"));
    set_mode(home.folder.path(), 0o700);
    assert_eq!(last_sequence(&home.open()).await, 2);
}

#[tokio::test]
async fn missing_folder_is_refused() {
    let home = Home::new();
    let path = home.folder.path().join("none").join("nexus3.db");
    let text = open(&SqliteOptions::new(path)).unwrap_err().to_string();
    assert!(text.contains("/none: cannot be found"), "{text}");
}

#[test]
fn file_that_is_not_a_database_is_refused() {
    for bytes in [&b"hello"[..], &[0; 4096], &[b'x'; 100_000], b"SQLite format 3"] {
        let home = Home::new();
        std::fs::write(home.path(), bytes).unwrap();
        let text = refusal_text(&home);
        assert!(
            text.contains("not a database; restore a backup, or move the file and its -wal and .mark away"),
            "{text}"
        );
    }
    let home = Home::new();
    std::fs::create_dir(home.path()).unwrap();
    assert!(matches!(home.open_fault(), SqliteOpenFault::NotADatabase { .. }));
}

#[test]
fn database_of_another_program_is_refused() {
    for sql in
        ["PRAGMA application_id = 77; CREATE TABLE a (b)", "CREATE TABLE a (b)", "PRAGMA user_version = 3"]
    {
        let home = Home::new();
        Connection::open(home.path()).unwrap().execute_batch(sql).unwrap();
        let text = refusal_text(&home);
        assert!(text.contains("a database of another program") && text.contains("move it away"), "{text}");
    }
}

#[tokio::test]
async fn newer_schema_is_refused() {
    let home = Home::with_messages(1).await;
    Connection::open(home.path()).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let text = refusal_text(&home);
    for part in ["schema version 99", "versions up to 4", "an older binary cannot read", ".v4.bak"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[tokio::test]
async fn empty_file_becomes_a_new_store() {
    let home = Home::new();
    std::fs::write(home.path(), b"").unwrap();
    assert_eq!(last_sequence(&home.open()).await, 0);
}

#[tokio::test]
async fn wal_without_its_database_is_refused() {
    let home = Home::new();
    let store = home.open();
    append_records(&store, [created("main", None)]).await.unwrap();
    let crashed = home.crash_copy();
    std::fs::remove_file(crashed.path()).unwrap();
    let wal = std::fs::read(crashed.files().wal()).unwrap();
    assert!(refusal_text(&crashed).contains("put the database back, or move its -wal and .mark away"));
    assert_eq!(std::fs::read(crashed.files().wal()).unwrap(), wal);
    std::fs::copy(home.path(), crashed.path()).unwrap();
    assert_eq!(last_sequence(&crashed.open()).await, 1, "nothing was lost");
}

#[tokio::test]
async fn truncated_or_removed_wal_is_refused() {
    let home = Home::new();
    let store = home.open();
    append_records(&store, [created("main", None)]).await.unwrap();
    for turn in 0..20 {
        append_records(&store, [begun(turn)]).await.unwrap();
    }
    let wal = std::fs::read(home.files().wal()).unwrap();
    let changed = |change: fn(&mut Vec<u8>)| {
        let crashed = home.crash_copy();
        edit_bytes(&crashed.files().wal(), change);
        crashed
    };
    let removed = home.crash_copy();
    std::fs::remove_file(removed.files().wal()).unwrap();
    for (what, crashed) in [
        ("cut in the middle", changed(|bytes| bytes.truncate(bytes.len() / 2))),
        ("cut by a byte", changed(|bytes| bytes.truncate(bytes.len() - 1))),
        ("a bit flipped", changed(|bytes| bytes[100_000] ^= 1)),
        ("emptied", changed(Vec::clear)),
        ("zeroed", changed(|bytes| bytes.fill(0))),
    ] {
        let text = refusal_text(&crashed);
        for part in ["but 21 were committed", "-wal was cut, changed or removed", "put it back", ".mark"] {
            assert!(text.contains(part), "{what}: {part}: {text}");
        }
        assert!(!crashed.is_sound().await, "{what}");
        // With the original WAL the store opens again.
        std::fs::write(crashed.files().wal(), &wal).unwrap();
        assert_eq!(last_sequence(&crashed.open()).await, 21, "{what}");
    }
    // Without its WAL the database is as of the last checkpoint: empty.
    let text = removed.open_fault().to_string();
    assert!(text.contains("nexus3.db"), "{text}");
    store.close().await;
}

#[tokio::test]
async fn older_file_is_accepted_without_its_mark() {
    let home = Home::with_messages(3).await;
    let old = std::fs::read(home.path()).unwrap();
    let store = home.open();
    append_records(&store, [begun(1)]).await.unwrap();
    store.close().await;
    std::fs::write(home.path(), old).unwrap();
    assert!(matches!(home.open_fault(), SqliteOpenFault::JournalTruncated { last: 4, marked: 5, .. }));
    std::fs::remove_file(home.files().high_water_mark()).unwrap();
    assert_eq!(last_sequence(&home.open()).await, 4);
}

#[tokio::test]
async fn mark_of_another_database_is_ignored() {
    let (home, other) = (Home::with_messages(30).await, Home::with_messages(3).await);
    std::fs::copy(other.path(), home.path()).unwrap();
    assert_eq!(last_sequence(&home.open()).await, 4);
}

#[tokio::test]
async fn truncated_mark_is_ignored() {
    let home = Home::with_messages(3).await;
    edit_bytes(&home.files().high_water_mark(), |bytes| bytes.truncate(20));
    assert_eq!(last_sequence(&home.open()).await, 4);
    assert_eq!(
        HighWaterMark::read(&home.files().high_water_mark()).unwrap(),
        None,
        "not rewritten before the next commit"
    );
}

#[cfg(debug_assertions)]
#[test]
fn invalid_failpoints_are_refused() {
    let home = Home::new();
    let options =
        SqliteOptions { failpoints: Some("nonsense".to_owned()), ..SqliteOptions::new(home.path()) };
    assert!(open(&options).unwrap_err().to_string().contains("has no `=`"));
    assert!(!home.path().exists());
}

#[cfg(not(debug_assertions))]
#[test]
fn release_build_refuses_failpoints() {
    let home = Home::new();
    let failpoints = Some("commit.before=abort".to_owned());
    let options = SqliteOptions { failpoints, ..SqliteOptions::new(home.path()) };
    assert!(open(&options).unwrap_err().to_string().contains("this is a release build"));
}
