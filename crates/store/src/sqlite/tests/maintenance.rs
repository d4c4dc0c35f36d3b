//! Backups and checks of stores that are in use, closed, or damaged.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use agent::outside::{
    ChangeWrite, FileChange, FileChangeStore as _, FileState, KeyValueStore as _, Namespace, NewChanges,
    Store as _, StoreFault,
};
use agent::permission::FilePath;
use rusqlite::Connection;

use super::*;
use crate::conformance::samples::destroyed;
use crate::conformance::values::store_value;
use crate::conformance::{accepted, folder};

#[tokio::test]
async fn backup_is_complete_private_and_a_single_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let (home, target) = (Home::with_messages(49).await, folder());
    let to = target.path().join("odd ?#%name \u{1f980}.db");
    let report = backup(&home.path(), &to).unwrap();
    assert_eq!((report.chain.entries, report.agents), (50, 1));
    assert_eq!(report.bytes, std::fs::metadata(&to).unwrap().len());
    assert_eq!(std::fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(file_names(target.path()).len(), 1, "{:?}", file_names(target.path()));
    assert!(report.to_string().contains("50 entries, 1 to 50, head "), "{report}");
    assert!(report.to_string().contains("To restore it: stop the daemon"), "{report}");
    assert_eq!(verify_chain(&to).unwrap().head, verify_chain(&home.path()).unwrap().head);
}

#[tokio::test]
async fn failed_backup_overwrites_and_leaves_nothing() {
    let (home, target) = (Home::with_messages(4).await, folder());
    let store = home.open();
    let (from, to) = (home.path(), target.path().join("copy.db"));
    std::fs::write(&to, b"precious").unwrap();
    let fault = backup(&from, &to).unwrap_err();
    assert!(matches!(fault, MaintenanceFault::Exists(_)) && fault.to_string().contains("copy.db"), "{fault}");
    assert_eq!(std::fs::read(&to).unwrap(), b"precious");
    let fault = backup(&target.path().join("none.db"), &target.path().join("b.db")).unwrap_err();
    assert!(matches!(fault, MaintenanceFault::Missing(_)), "{fault}");
    let fault = backup(&from, &target.path().join("none").join("b.db")).unwrap_err();
    assert!(matches!(fault, MaintenanceFault::Io { .. }), "{fault}");
    assert!(matches!(
        backup(&to, &target.path().join("b.db")).unwrap_err(),
        MaintenanceFault::Database { .. }
    ));
    store.close().await;
    Connection::open(&from).unwrap().execute_batch("UPDATE journal SET at = 7 WHERE sequence = 2").unwrap();
    let fault = backup(&from, &target.path().join("b.db")).unwrap_err();
    assert!(fault.to_string().contains("nexus3 check"), "{fault}");
    assert_eq!(file_names(target.path()), ["copy.db"]);
}

#[tokio::test]
async fn refused_backup_says_why_in_plain_text() {
    for (sql, why) in [
        ("DROP INDEX turns_open", "the index turns_open is missing"),
        ("DELETE FROM journal WHERE sequence > 3", "the journal ends at entry 3, but 5 were committed"),
        ("PRAGMA user_version = 7", "schema version 7 is newer than 4"),
        ("PRAGMA application_id = 5", "a database of another program (application id 0x5)"),
    ] {
        let home = Home::with_messages(4).await;
        Connection::open(home.path()).unwrap().execute_batch(sql).unwrap();
        let text = backup(&home.path(), &home.folder.path().join("copy.db")).unwrap_err().to_string();
        assert!(text.contains(&format!("nexus3.db: cannot be backed up: {why}")), "{text}");
        assert!(text.ends_with("; run nexus3 check"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_and_check_of_a_store_in_use_are_consistent() {
    let (home, target) = (Home::with_messages(1).await, folder());
    let store = home.open();
    let (committed, is_over) = (Arc::new(AtomicU64::new(2)), Arc::new(AtomicBool::new(false)));
    let writer = {
        let (store, committed, is_over) = (Arc::clone(&store), Arc::clone(&committed), Arc::clone(&is_over));
        tokio::spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                store.append(vec![append(1, "main", [begun(1), begun(2)])]).await.unwrap();
                committed.fetch_add(2, Ordering::Relaxed);
            }
        })
    };
    let from = home.path();
    let copies: Vec<PathBuf> = (0..8).map(|number| target.path().join(format!("{number}.db"))).collect();
    let work = {
        let (from, copies, committed) = (from.clone(), copies.clone(), Arc::clone(&committed));
        move || {
            for to in &copies {
                let before = committed.load(Ordering::Relaxed);
                let report = backup(&from, to).unwrap();
                assert!(report.chain.entries >= before, "earlier commits are in the backup");
                assert_eq!(report.chain.entries % 2, 0, "batches are in the backup as a whole");
                let checked = check(&from).unwrap();
                assert!(checked.is_sound(), "{checked}");
                assert!(verify_chain(&from).unwrap().is_intact());
            }
        }
    };
    tokio::task::spawn_blocking(work).await.unwrap();
    is_over.store(true, Ordering::Relaxed);
    writer.await.unwrap();
    store.close().await;
    for to in copies {
        let restored = Home::new();
        std::fs::copy(&to, restored.path()).unwrap();
        let store = restored.open();
        let entries = verify_chain(&to).unwrap().entries;
        append_records(&store, [begun(9)]).await.unwrap();
        assert_eq!(last_sequence(&store).await, entries + 1, "a restored store accepts appends");
        store.close().await;
        assert!(restored.is_sound().await);
    }
}

#[tokio::test]
async fn check_counts_rows_and_changes_nothing() {
    let home = Home::with_messages(19).await;
    let store = home.open();
    store.append(vec![append(2, "child", [created("child", Some(1))])]).await.unwrap();
    store.append(vec![append(2, "child", [accepted(1, "open")])]).await.unwrap();
    append_records(&store, [destroyed()]).await.unwrap();
    store.write_value(store_value(Namespace::User, "k", "1", None, 0)).await.unwrap();
    store.close().await;
    let before = std::fs::read(home.path()).unwrap();
    let report = check(&home.path()).unwrap();
    assert!(report.is_sound(), "{report}");
    assert_eq!((report.version, report.agents, report.destroyed, report.values), (4, 1, 1, 1));
    assert_eq!((report.turns, report.open_turns, report.chain.as_ref().unwrap().entries), (1, 1, 23));
    assert!(report.to_string().ends_with("sound"), "{report}");
    assert_eq!(std::fs::read(home.path()).unwrap(), before);
    assert_eq!(file_names(home.folder.path()), ["nexus3.db", "nexus3.db.mark"]);
    let missing = home.folder.path().join("none.db");
    assert!(matches!(check(&missing).unwrap_err(), MaintenanceFault::Missing(_)));
}

#[tokio::test]
async fn check_reports_damaged_values() {
    for (sql, why) in [
        ("UPDATE key_values SET value = '2'", "value \"k\" of agent 1: row checksum mismatch"),
        ("UPDATE key_values SET expires_at = 5", "value \"k\" of agent 1: row checksum mismatch"),
        ("DELETE FROM agents", "value \"k\" of agent 1: its agent does not exist"),
    ] {
        let home = Home::with_messages(1).await;
        let store = home.open();
        store.write_value(store_value(Namespace::Tree(1), "k", "1", None, 0)).await.unwrap();
        store.close().await;
        Connection::open(home.path()).unwrap().execute_batch(sql).unwrap();
        let report = check(&home.path()).unwrap();
        assert!(report.problems.iter().any(|problem| problem.what == why), "{sql}: {report}");
    }
}

#[tokio::test]
async fn check_reports_damaged_file_changes() {
    for (sql, why) in [
        ("UPDATE file_changes SET content = x'01'", "file change \"/a\" of agent 1: row checksum mismatch"),
        ("DELETE FROM agents", "file change \"/a\" of agent 1: its agent does not exist"),
    ] {
        let home = Home::with_messages(1).await;
        let store = home.open();
        let path = FilePath::resolve("/a", &FilePath::root()).unwrap();
        let before = FileState::File { mode: 0o600, content: b"old".to_vec() };
        let change = FileChange { path, before, last_before: [1; 32], after: [2; 32] };
        let changes = NewChanges::Recorded(vec![change]);
        store.record_changes(ChangeWrite { agent: 1, turn: 1, changes }).await.unwrap();
        store.close().await;
        Connection::open(home.path()).unwrap().execute_batch(sql).unwrap();
        let report = check(&home.path()).unwrap();
        assert!(report.problems.iter().any(|problem| problem.what == why), "{sql}: {report}");
        let refused = matches!(home.open().turn_changes(1, None).await, Err(StoreFault::Corrupt(_)));
        assert_eq!(refused, sql.starts_with("UPDATE"), "{sql}");
    }
}

#[test]
fn check_of_other_files_reports_what_they_are() {
    let home = Home::new();
    let path = home.path();
    for (bytes, part) in
        [(&b"hello, this is a text and no database at all"[..], "not a database"), (b"", "empty: no schema")]
    {
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let report = check(&path).unwrap();
        assert_eq!(report.problems.len(), 1, "{report}");
        assert!(report.problems[0].what.contains(part), "{report}");
    }
    for (sql, part) in [
        ("PRAGMA application_id = 5; PRAGMA user_version = 1", "another program"),
        ("PRAGMA application_id = 0x6e783373; PRAGMA user_version = 7", "newer than 4"),
    ] {
        std::fs::remove_file(&path).unwrap();
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let report = check(&path).unwrap();
        assert!(report.problems.iter().any(|problem| problem.what.contains(part)), "{report}");
        assert!(verify_chain(&path).is_err());
    }
}

/// A corrupted sequence could lead a reader back to earlier entries. Tries every byte that may be the last entry's
/// sequence.
#[tokio::test]
async fn decreasing_sequence_is_reported_and_ends_the_walk() {
    const ENTRIES: u8 = 40;
    let home = Home::with_messages(u32::from(ENTRIES) - 1).await;
    let file = home.path();
    let intact = std::fs::read(&file).unwrap();
    let mut out_of_order = 0;
    for offset in (0..intact.len()).filter(|offset| intact[*offset] == ENTRIES) {
        let mut changed = intact.clone();
        changed[offset] = 3;
        std::fs::write(&file, &changed).unwrap();
        let Ok(report) = verify_chain(&file) else { continue };
        out_of_order += u64::from(report.to_string().contains("out of order: follows entry 39"));
        assert!(report.entries <= u64::from(ENTRIES), "{report}");
    }
    assert_eq!(out_of_order, 1, "exactly one offset is the last entry's sequence");
}
