//! Migrations: a backup first, each migration atomic, and a crash leaves either the old or the new version.

use rusqlite::Connection;

use super::*;
use crate::sqlite::failpoints::Failpoints;
use crate::sqlite::migrate::migrate;
use crate::sqlite::schema::{MIGRATIONS, Migration};

const SECOND: Migration = "CREATE TABLE later (a INTEGER) STRICT; INSERT INTO later VALUES (1)";
const BROKEN: Migration = "CREATE TABLE later (a INTEGER) STRICT; INSERT INTO nowhere VALUES (1)";

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
    run_migrations(&home, &[MIGRATIONS[0], SECOND], None).unwrap();
    assert_eq!(schema_version(&home.path()), 2);
    let backup = home.folder.path().join("nexus3.db.v1.bak");
    assert_eq!(schema_version(&backup), 1);
    assert!(check(&backup).unwrap().is_sound(), "{}", check(&backup).unwrap());
    let text = home.open_fault().to_string();
    assert!(text.contains("schema version 2"), "this program supports version 1 only: {text}");
}

#[tokio::test]
async fn migration_backup_is_never_overwritten() {
    let home = Home::with_messages(1).await;
    std::fs::write(home.folder.path().join("nexus3.db.v1.bak"), b"precious").unwrap();
    run_migrations(&home, &[MIGRATIONS[0], SECOND], None).unwrap();
    assert_eq!(std::fs::read(home.folder.path().join("nexus3.db.v1.bak")).unwrap(), b"precious");
    assert_eq!(schema_version(&home.folder.path().join("nexus3.db.v1.1.bak")), 1);
}

#[tokio::test]
async fn failed_migration_changes_nothing() {
    let home = Home::with_messages(3).await;
    run_migrations(&home, &[MIGRATIONS[0], BROKEN], None).unwrap_err();
    assert_eq!(schema_version(&home.path()), 1);
    assert_eq!(last_sequence(&home.open()).await, 4);
    assert!(home.is_sound().await);
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
        run_migrations(&home, &[MIGRATIONS[0], SECOND], Some(failpoint)).unwrap_err();
        assert_eq!(schema_version(&home.path()), 1, "{failpoint}");
        run_migrations(&home, &[MIGRATIONS[0], SECOND], None).unwrap();
        assert_eq!(schema_version(&home.path()), 2, "{failpoint}");
    }
}
