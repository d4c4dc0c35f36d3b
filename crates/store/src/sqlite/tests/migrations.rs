//! Migrations: a backup first, each migration atomic, and a crash leaves either the old or the new version.

use agent::outside::{FileChangeStore as _, KeyValueStore as _, Namespace};
use rusqlite::Connection;

use super::*;
use crate::conformance::values::store_value;
use crate::sqlite::failpoints::Failpoints;
use crate::sqlite::migrate::migrate;
use crate::sqlite::schema::{MIGRATIONS, Migration, current_version};

const LATER: Migration = "CREATE TABLE later (a INTEGER) STRICT; INSERT INTO later VALUES (1)";
const BROKEN: Migration = "CREATE TABLE later (a INTEGER) STRICT; INSERT INTO nowhere VALUES (1)";

/// The migrations of this program and a later one.
fn followed_by(later: Migration) -> Vec<Migration> {
    [MIGRATIONS, &[later]].concat()
}

fn run_migrations(
    home: &Home,
    migrations: &[Migration],
    failpoints: Option<&str>,
) -> Result<(), SqliteOpenFault> {
    let mut db = Connection::open(home.path()).unwrap();
    let version = schema_version(&home.path());
    let mut failpoints = Failpoints::parse(failpoints).unwrap();
    migrate(&mut db, &home.files(), version, migrations, &mut failpoints)
}

fn schema_version(path: &Path) -> u32 {
    let db = Connection::open(path).unwrap();
    db.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn backup_is_made_before_migration() {
    let home = Home::with_messages(5).await;
    run_migrations(&home, &followed_by(LATER), None).unwrap();
    assert_eq!(schema_version(&home.path()), current_version() + 1);
    let backup = home.folder.path().join("nexus3.db.v4.bak");
    assert_eq!(schema_version(&backup), current_version());
    assert!(check(&backup).unwrap().is_sound(), "{}", check(&backup).unwrap());
    let text = home.open_fault().to_string();
    assert!(text.contains("schema version 5"), "this program supports versions up to 4: {text}");
}

#[tokio::test]
async fn migration_backup_is_never_overwritten() {
    let home = Home::with_messages(1).await;
    std::fs::write(home.folder.path().join("nexus3.db.v4.bak"), b"precious").unwrap();
    run_migrations(&home, &followed_by(LATER), None).unwrap();
    assert_eq!(std::fs::read(home.folder.path().join("nexus3.db.v4.bak")).unwrap(), b"precious");
    assert_eq!(schema_version(&home.folder.path().join("nexus3.db.v4.1.bak")), current_version());
}

#[tokio::test]
async fn failed_migration_changes_nothing() {
    let home = Home::with_messages(3).await;
    run_migrations(&home, &followed_by(BROKEN), None).unwrap_err();
    assert_eq!(schema_version(&home.path()), current_version());
    assert_eq!(last_sequence(&home.open()).await, 4);
    assert!(home.is_sound().await);
}

#[tokio::test]
async fn store_of_the_first_version_is_migrated() {
    let home = Home::with_messages(3).await;
    let first_version = "DROP TABLE key_values; DROP TABLE file_changes; DROP TABLE changed_turns; DROP INDEX journal_records; PRAGMA user_version = 1";
    Connection::open(home.path()).unwrap().execute_batch(first_version).unwrap();
    let store = home.open();
    assert_eq!(store.agents(vec![1]).await.unwrap().len(), 1);
    store.close().await;
    assert_eq!(schema_version(&home.path()), current_version());
    assert_eq!(schema_version(&home.folder.path().join("nexus3.db.v1.bak")), 1);
    assert!(home.is_sound().await);
}

#[tokio::test]
async fn store_without_key_values_is_migrated() {
    let home = Home::with_messages(3).await;
    let second_version =
        "DROP TABLE key_values; DROP TABLE file_changes; DROP TABLE changed_turns; PRAGMA user_version = 2";
    Connection::open(home.path()).unwrap().execute_batch(second_version).unwrap();
    let store = home.open();
    let write = store_value(Namespace::Tree(1), "a", "1", None, 0);
    assert_eq!(store.write_value(write).await, Ok(false));
    store.close().await;
    assert_eq!(schema_version(&home.folder.path().join("nexus3.db.v2.bak")), 2);
    assert!(home.is_sound().await);
}

#[tokio::test]
async fn store_without_file_changes_is_migrated() {
    let home = Home::with_messages(3).await;
    let third_version = "DROP TABLE file_changes; DROP TABLE changed_turns; PRAGMA user_version = 3";
    Connection::open(home.path()).unwrap().execute_batch(third_version).unwrap();
    let store = home.open();
    assert_eq!(store.turn_changes(1, None).await, Ok(None));
    store.close().await;
    assert_eq!(schema_version(&home.folder.path().join("nexus3.db.v3.bak")), 3);
    assert!(home.is_sound().await);
}

/// A lost WAL may leave a database between two migrations.
#[tokio::test]
async fn older_schema_with_missing_entries_is_not_migrated() {
    let home = Home::with_messages(3).await;
    let before = "DELETE FROM journal WHERE sequence > 2; DROP TABLE key_values; DROP TABLE file_changes; DROP TABLE changed_turns; DROP INDEX journal_records; PRAGMA user_version = 1";
    Connection::open(home.path()).unwrap().execute_batch(before).unwrap();
    assert!(matches!(home.open_fault(), SqliteOpenFault::JournalTruncated { last: 2, marked: 4, .. }));
    assert_eq!(schema_version(&home.path()), 1);
    assert_eq!(file_names(home.folder.path()), ["nexus3.db", "nexus3.db.mark"], "no backup was made");
}

#[cfg(debug_assertions)]
#[tokio::test]
async fn interrupted_migration_is_repeated() {
    for failpoint in ["migrate.before=full", "migrate.middle=full", "migrate.middle=fsync"] {
        let home = Home::new();
        let failpoints = Some(failpoint.to_owned());
        open(&SqliteOptions { failpoints, ..SqliteOptions::new(home.path()) }).unwrap_err();
        let store = home.open();
        append_records(&store, [created("main", None)]).await.unwrap();
        store.close().await;
        run_migrations(&home, &followed_by(LATER), Some(failpoint)).unwrap_err();
        assert_eq!(schema_version(&home.path()), current_version(), "{failpoint}");
        run_migrations(&home, &followed_by(LATER), None).unwrap();
        assert_eq!(schema_version(&home.path()), current_version() + 1, "{failpoint}");
    }
}
