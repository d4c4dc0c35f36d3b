//! Files that are moved, removed or truncated under an open store: the next commit fails and names the file.

use std::fs::OpenOptions;

use agent::outside::Store as _;

use super::*;

type Damage = fn(&Path);

fn rename_away(path: &Path) {
    std::fs::rename(path, path.with_extension("away")).unwrap();
}

fn replace(path: &Path) {
    let bytes = std::fs::read(path).unwrap();
    rename_away(path);
    std::fs::write(path, bytes).unwrap();
}

fn remove(path: &Path) {
    std::fs::remove_file(path).unwrap();
}

fn truncate(path: &Path, bytes: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

/// Opens a store with 12 committed entries in the database or its log, damages a file, and asserts that the store
/// refuses all further appends with an error that names the file.
async fn assert_commit_refused(home: &Home, path: &Path, damage: Damage, part: &str) {
    let store = home.open();
    append_records(&store, [created("main", None)]).await.unwrap();
    for turn in 0..11 {
        append_records(&store, [begun(turn)]).await.unwrap();
    }
    damage(path);
    for _ in 0..2 {
        let refused = append_records(&store, [begun(99)]).await;
        let Err(StoreFault::Failed(why)) = refused else { panic!("{part}: {refused:?}") };
        assert!(why.starts_with(path.to_str().unwrap()), "{why}");
        assert!(why.contains(part) && why.contains("start"), "{part}: {why}");
    }
    store.close().await;
}

#[tokio::test]
async fn moved_or_truncated_database_refuses_commits() {
    let cases: [(Damage, &str); 4] = [
        (rename_away, "was moved or removed while the daemon uses it; put it back beside its -wal"),
        (replace, "was replaced by another file"),
        (remove, "was moved or removed"),
        (|path| truncate(path, 4096 - 1), "was truncated to 4095 bytes"),
    ];
    for (damage, part) in cases {
        let home = Home::new();
        assert_commit_refused(&home, &home.path(), damage, part).await;
        let away = home.path().with_extension("away");
        if away.exists() {
            std::fs::rename(away, home.path()).unwrap();
            assert_eq!(last_sequence(&home.open()).await, 12, "{part}: the database was put back");
            assert!(home.is_sound().await, "{part}");
        }
    }
}

#[tokio::test]
async fn moved_log_refuses_commits_and_loses_none() {
    let cases: [(Damage, &str); 3] = [
        (rename_away, "was moved or removed while the daemon uses it; the daemon saves its commits"),
        (replace, "was replaced by another file"),
        (remove, "was moved or removed"),
    ];
    for (damage, part) in cases {
        let home = Home::new();
        assert_commit_refused(&home, &home.files().wal(), damage, part).await;
        assert_eq!(last_sequence(&home.open()).await, 12, "{part}: all commits are in the database");
        assert!(home.is_sound().await, "{part}");
    }
}

#[tokio::test]
async fn truncated_log_refuses_commits_and_the_next_start() {
    let cases: [(Damage, &str); 2] = [
        (|path| truncate(path, 0), "was truncated to 0 bytes"),
        (|path| truncate(path, std::fs::metadata(path).unwrap().len() - 1), "was truncated to"),
    ];
    for (damage, part) in cases {
        let home = Home::new();
        assert_commit_refused(&home, &home.files().wal(), damage, part).await;
        let fault = home.open_fault();
        assert!(matches!(fault, SqliteOpenFault::JournalTruncated { marked: 12, .. }), "{part}: {fault}");
    }
}

/// The log that a crashed daemon has left counts from the start, also before the first commit.
#[tokio::test]
async fn log_truncated_before_the_first_commit_is_noticed() {
    let home = Home::new();
    let store = home.open();
    append_records(&store, [created("main", None)]).await.unwrap();
    let crashed = home.crash_copy();
    let restarted = crashed.open();
    truncate(&crashed.files().wal(), 0);
    assert!(matches!(append_records(&restarted, [begun(1)]).await, Err(StoreFault::Failed(_))));
}
