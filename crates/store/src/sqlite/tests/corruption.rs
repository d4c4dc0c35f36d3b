//! Corrupted bytes are detected when the store is opened, read or checked, and never returned as valid.
// tidy: allow retired-word because the stored format names a field `rights`

use agent::journal::Record;
use agent::outside::{KeyRange, KeyValueStore as _, Namespace, Store as _, Timestamp};

use super::*;
use crate::conformance::samples::{entry_range, ledger, request_id, state};
use crate::conformance::values::store_value;
use crate::conformance::{accepted, ended};

/// A store with rows in every table.
async fn populated_store() -> Home {
    let home = Home::new();
    let store = home.open();
    append_records(&store, [created("main", None)]).await.unwrap();
    store.append(vec![append(2, "child", [created("child", Some(1))])]).await.unwrap();
    for turn in 0..30 {
        let request = format!("send {turn}");
        let mut append =
            append(1, "main", [accepted(turn, &request), message(&request), ended(turn, &request)]);
        append.state = Some(state(turn));
        append.ledgers = vec![(1, ledger(turn + 1))];
        store.append(vec![append]).await.unwrap();
    }
    store.append(vec![append(2, "child", [accepted(1, "open")])]).await.unwrap();
    for (key, expires_at) in [("a", None), ("b", Some(5))] {
        store.write_value(store_value(Namespace::Tree(1), key, r#""text""#, expires_at, 0)).await.unwrap();
    }
    store.close().await;
    home
}

/// Runs every query; returns all results, or the first fault.
async fn read_everything(store: &Arc<SqliteStore>) -> Result<String, StoreFault> {
    let mut turns = Vec::new();
    for turn in 0..30 {
        turns.push(store.turn(1, request_id(&format!("send {turn}"))).await?);
    }
    turns.push(store.turn(2, request_id("open")).await?);
    let index = store.index().await?;
    let agents = store.agents(vec![1, 2]).await?;
    let entries = store.read(entry_range(None, 0)).await?;
    let by_agent = [store.read(entry_range(Some(1), 0)).await?, store.read(entry_range(Some(2), 0)).await?];
    let history = [store.history(1).await?, store.history(2).await?];
    let ends = (store.agents_with_open_turns().await?, store.bounds().await?, store.last_serial().await?);
    let (namespace, at) = (Namespace::Tree(1), Timestamp(0));
    let range = KeyRange { namespace, prefix: String::new(), after: None, limit: 9, at };
    let keys = store.keys(range).await?;
    let value = store.value(namespace, "b".to_owned(), at).await?;
    Ok(format!("{turns:?}{index:?}{agents:?}{entries:?}{by_agent:?}{history:?}{ends:?}{keys:?}{value:?}"))
}

/// Opens and reads a damaged store; returns whether the damage was reported. If not, the results must be unchanged.
async fn is_damage_reported(home: &Home, expected: &str, what: &str) -> bool {
    let Ok(store) = open(&SqliteOptions::new(home.path())) else { return true };
    let read = read_everything(&store).await;
    let is_reported = match &read {
        Ok(read) => {
            assert_eq!(read, expected, "{what}");
            false
        }
        Err(fault) => {
            assert!(matches!(fault, StoreFault::Corrupt(_)), "{what}: {fault}");
            true
        }
    };
    store.close().await;
    is_reported
}

#[tokio::test]
async fn flipped_bits_are_never_read_as_intact() {
    let home = populated_store().await;
    let expected = read_everything(&home.open()).await.unwrap();
    let intact = std::fs::read(home.path()).unwrap();
    let mut reported = 0;
    // Offsets all over the file, the same in every run.
    let offsets = (0..intact.len()).step_by((intact.len() / 250) | 1);
    for (number, offset) in offsets.enumerate() {
        let mut bytes = intact.clone();
        bytes[offset] ^= 1 << (number % 8);
        std::fs::write(home.path(), bytes).unwrap();
        let what = format!("bit {} of byte {offset}", number % 8);
        // A check never panics, whatever it finds.
        let report = check(&home.path()).unwrap();
        let is_reported = is_damage_reported(&home, &expected, &what).await;
        assert!(!is_reported || !report.is_sound(), "{what}: reported damage is also found by a check");
        reported += u32::from(is_reported);
        for leftover in [home.files().wal(), home.files().high_water_mark()] {
            let _ = std::fs::remove_file(leftover);
        }
    }
    assert!(reported > 60, "{reported}");
}

#[tokio::test]
async fn zeroed_page_is_refused_and_reported_by_check() {
    let home = populated_store().await;
    let pages = std::fs::metadata(home.path()).unwrap().len() / 4096;
    for page in 0..pages {
        let damaged = home.crash_copy();
        edit_bytes(&damaged.path(), |bytes| bytes[usize::try_from(page * 4096).unwrap()..][..4096].fill(0));
        let fault = damaged.open_fault();
        assert!(
            matches!(fault, SqliteOpenFault::Damaged { .. } | SqliteOpenFault::NotADatabase { .. }),
            "{page}: {fault}"
        );
        assert!(fault.to_string().contains("restore a backup"), "{fault}");
        let report = check(&damaged.path()).unwrap();
        assert!(!report.is_sound(), "{page}");
        assert!(report.problems.iter().all(|problem| !problem.repair.is_empty()));
    }
}

#[tokio::test]
async fn truncated_database_is_refused() {
    let home = populated_store().await;
    let length = usize::try_from(std::fs::metadata(home.path()).unwrap().len()).unwrap();
    for cut in [1, 4096, length / 2, length - 4096, length - 100] {
        let damaged = home.crash_copy();
        edit_bytes(&damaged.path(), |bytes| bytes.truncate(length - cut));
        let fault = damaged.open_fault();
        assert!(
            matches!(fault, SqliteOpenFault::Damaged { .. } | SqliteOpenFault::NotADatabase { .. }),
            "{cut}: {fault}"
        );
        assert!(!check(&damaged.path()).unwrap().is_sound(), "{cut}");
    }
}

#[tokio::test]
async fn changed_entry_breaks_the_chain() {
    let home = populated_store().await;
    let db = rusqlite::Connection::open(home.path()).unwrap();
    // Tampering by SQL, not a disk fault.
    db.execute("UPDATE journal SET body = replace(body, 'send 7', 'sent 7') WHERE sequence = 24", ())
        .unwrap();
    drop(db);
    let chain = verify_chain(&home.path()).unwrap();
    assert!(!chain.is_intact());
    assert_eq!(chain.breaks.iter().map(|chain_break| chain_break.sequence).collect::<Vec<_>>(), [24]);
    assert!(chain.to_string().contains("BROKEN") && chain.to_string().contains("entry 24"), "{chain}");
    let store = home.open();
    let read = store.read(entry_range(None, 20)).await;
    assert!(matches!(&read, Err(StoreFault::Corrupt(why)) if why.contains("entry 24")), "{read:?}");
    assert!(store.read(entry_range(None, 24)).await.is_ok());
}

#[tokio::test]
async fn removed_or_edited_entries_break_the_chain() {
    for (sql, sequence) in [
        ("DELETE FROM journal WHERE sequence = 10", 11),
        ("UPDATE journal SET number = 77 WHERE sequence = 12", 12),
        ("UPDATE journal SET hash = zeroblob(32) WHERE sequence = 12", 12),
        ("UPDATE journal SET agent = 2 WHERE sequence = 9", 9),
        ("UPDATE journal SET at = at + 1 WHERE sequence = 1", 1),
        ("UPDATE journal SET name = NULL WHERE sequence = 5", 5),
        ("UPDATE journal SET kind = 'steered' WHERE sequence = 5", 5),
    ] {
        let home = populated_store().await;
        rusqlite::Connection::open(home.path()).unwrap().execute_batch(sql).unwrap();
        let chain = verify_chain(&home.path()).unwrap();
        assert_eq!(chain.breaks[0].sequence, sequence, "{sql}: {chain}");
        assert!(!home.is_sound().await, "{sql}");
    }
    let home = populated_store().await;
    let intact = verify_chain(&home.path()).unwrap();
    assert!(intact.is_intact() && intact.to_string().contains("intact, 93 entries, 1 to 93"), "{intact}");
    rusqlite::Connection::open(home.path())
        .unwrap()
        .execute_batch("DELETE FROM journal WHERE sequence > 90")
        .unwrap();
    let shorter = verify_chain(&home.path()).unwrap();
    assert_eq!(shorter.breaks[0].sequence, 91, "the high-water mark reveals them: {shorter}");
}

/// Opening refuses these stores, so a check must not call them sound.
#[tokio::test]
async fn check_reports_all_that_opening_refuses() {
    let replaced = populated_store().await;
    edit_bytes(&replaced.files().high_water_mark(), |bytes| {
        let last_digit = bytes.len() - 2;
        bytes[last_digit] = if bytes[last_digit] == b'0' { b'1' } else { b'0' };
    });
    let nameless = Home::new();
    nameless.open().close().await;
    rusqlite::Connection::open(nameless.path()).unwrap().execute_batch("DELETE FROM meta").unwrap();
    for (home, refusal, chain_break) in [
        (replaced, "entry 93 of the journal is not the one committed", "entry 93: not the one committed"),
        (nameless, "its database id is missing", "entry 1: the database id"),
    ] {
        let fault = home.open_fault().to_string();
        assert!(fault.contains(refusal), "{fault}");
        let report = check(&home.path()).unwrap();
        assert!(report.problems.iter().any(|problem| problem.what.contains(chain_break)), "{report}");
        assert_eq!(report.problems.len(), 1, "{report}");
        let chain = verify_chain(&home.path()).unwrap();
        assert!(!chain.is_intact() && chain.to_string().contains(chain_break), "{chain}");
    }
}

#[tokio::test]
async fn check_finds_rows_that_contradict_the_journal() {
    for sql in [
        "UPDATE states SET state = replace(state, '2', '3') WHERE serial = 1",
        "UPDATE states SET ledger_version = 99 WHERE serial = 1",
        "UPDATE states SET is_finished = 1 WHERE serial = 1",
        "UPDATE states SET last = 1, number = 1 WHERE serial = 1",
        "UPDATE agents SET gone = 1 WHERE serial = 2",
        "UPDATE agents SET capability = zeroblob(32) WHERE serial = 2",
        "UPDATE agents SET rights = replace(rights, 'sandboxed', 'boxed') WHERE serial = 2",
        "UPDATE turns SET ended = 1 WHERE turn = 3",
        "UPDATE turns SET turn = 99 WHERE turn = 3",
        "UPDATE turns SET ended = NULL WHERE turn = 3",
        "UPDATE turns SET agent = 9 WHERE turn = 3",
        "DELETE FROM states WHERE serial = 1",
        "DROP INDEX turns_open",
    ] {
        let home = populated_store().await;
        rusqlite::Connection::open(home.path()).unwrap().execute_batch(sql).unwrap();
        let report = check(&home.path()).unwrap();
        assert!(!report.is_sound(), "{sql}");
    }
}

/// Changes agent 2 by SQL and recomputes the checksum of its row, as another program could.
fn tamper(home: &Home, sql: &str) {
    use crate::sqlite::checksums::{AGENT_CHECKSUM_COLUMNS, agent_checksum};
    let db = rusqlite::Connection::open(home.path()).unwrap();
    db.execute_batch(&format!("PRAGMA foreign_keys = off; {sql}")).unwrap();
    let query = format!("SELECT {AGENT_CHECKSUM_COLUMNS} FROM agents WHERE serial = 2");
    let sum = db.query_row(&query, (), |row| agent_checksum(row, 0)).unwrap();
    db.execute("UPDATE agents SET sum = ?1 WHERE serial = 2", [sum]).unwrap();
}

#[tokio::test]
async fn row_that_differs_from_the_journal_is_not_loaded() {
    for (sql, problem) in [
        (
            "UPDATE agents SET rights = replace(rights, 'sandboxed', 'trusted')",
            "its permissions are not those",
        ),
        (
            "UPDATE agents SET parent = NULL, record = replace(record, '\"parent\":1', '\"parent\":null')",
            "its record",
        ),
        ("UPDATE agents SET record = replace(record, '\"cwd\":\"/', '\"cwd\":\"/etc')", "its record"),
    ] {
        let home = populated_store().await;
        tamper(&home, &format!("{sql} WHERE serial = 2"));
        let report = check(&home.path()).unwrap();
        let found = |what: &str| report.problems.iter().any(|found| found.what.contains(what));
        assert!(found(&format!("agent 2: {problem}")), "{sql}: {report}");
        let store = home.open();
        assert_eq!(store.agents(vec![1]).await.unwrap().len(), 1, "{sql}: others can be loaded");
        let loaded = store.agents(vec![2]).await;
        assert!(
            matches!(&loaded, Err(StoreFault::Corrupt(why)) if why.contains(problem)),
            "{sql}: {loaded:?}"
        );
    }
}

#[tokio::test]
async fn changed_permissions_agree_with_the_journal() {
    let home = populated_store().await;
    let store = home.open();
    let narrow = agent::journal::StoredPermissions {
        preset: "worker".to_owned(),
        ..store.agents(vec![2]).await.unwrap()[0].record.permissions.clone()
    };
    let change =
        Record::PermissionsChanged { by: agent::PrincipalId::Admin, permissions: Box::new(narrow.clone()) };
    store.append(vec![append(2, "child", [change])]).await.unwrap();
    assert_eq!(store.agents(vec![2]).await.unwrap()[0].record.permissions, narrow);
    store.close().await;
    assert!(home.is_sound().await);
    // The permissions of the creation are in the journal too, but they are not the last ones.
    tamper(&home, "UPDATE agents SET rights = (SELECT rights FROM agents WHERE serial = 1) WHERE serial = 2");
    assert!(!home.is_sound().await);
    assert!(home.open().agents(vec![2]).await.is_err());
}

#[tokio::test]
async fn check_finds_ids_and_trees_that_contradict_the_journal() {
    for (sql, problem) in [
        ("UPDATE agents SET id = 'other' WHERE serial = 2", "agent 2: its id is not the one in the journal"),
        (
            "UPDATE agents SET parent = 2, record = replace(record, '\"parent\":1', '\"parent\":2') WHERE serial = 2",
            "agent 2: its parent was not created before it",
        ),
    ] {
        let home = populated_store().await;
        tamper(&home, sql);
        let report = check(&home.path()).unwrap();
        assert!(report.problems.iter().any(|found| found.what.contains(problem)), "{sql}: {report}");
    }
}

#[tokio::test]
async fn missing_wal_index_is_rebuilt() {
    let home = Home::new();
    let store = home.open();
    append_records(&store, [created("main", None)]).await.unwrap();
    // After a crash the -shm file is worthless; `crash_copy` does not copy it.
    let crashed = home.crash_copy();
    assert!(crashed.is_sound().await);
    assert_eq!(last_sequence(&crashed.open()).await, 1);
    store.close().await;
}
