//! Bytes that a disk has changed: found when the store is opened, when it is read, or by a check. Never silent.

use agent::outside::Store as _;

use super::*;
use crate::conformance::samples::{entry_range, ledger, request_id, state};
use crate::conformance::{accepted, ended};

/// A store with something in every table.
async fn populated_store() -> Home {
    let home = Home::new();
    let store = home.open();
    append_records(&store, [created("main", None)]).await.unwrap();
    store.append(vec![append(2, "child", [created("child", Some(1))])]).await.unwrap();
    for turn in 0..30 {
        let request = format!("send {turn}");
        let mut call =
            append(1, "main", [accepted(turn, &request), message(&request), ended(turn, &request)]);
        call.state = Some(state(turn));
        call.ledgers = vec![(1, ledger(turn + 1))];
        store.append(vec![call]).await.unwrap();
    }
    store.append(vec![append(2, "child", [accepted(1, "open")])]).await.unwrap();
    store.close().await;
    home
}

/// Everything that can be read, or the first fault.
async fn read_everything(store: &Arc<SqliteStore>) -> Result<String, StoreFault> {
    let mut turns = Vec::new();
    for turn in 0..30 {
        turns.push(store.turn(1, request_id(&format!("send {turn}"))).await?);
    }
    turns.push(store.turn(2, request_id("open")).await?);
    let index = store.index().await?;
    let agents = store.agents(vec![1, 2]).await?;
    let entries = store.read(entry_range(None, 0)).await?;
    let own = [store.read(entry_range(Some(1), 0)).await?, store.read(entry_range(Some(2), 0)).await?];
    let history = [store.history(1).await?, store.history(2).await?];
    let ends = (store.agents_with_open_turns().await?, store.bounds().await?, store.last_serial().await?);
    Ok(format!("{turns:?}{index:?}{agents:?}{entries:?}{own:?}{history:?}{ends:?}"))
}

/// Opens and reads a damaged store: it is refused, faults are told, or nothing that counts has changed.
async fn is_reported_or_harmless(home: &Home, truth: &str, what: &str) -> bool {
    let Ok(store) = open(&SqliteOptions::new(home.path())) else { return true };
    let read = read_everything(&store).await;
    let is_told = match &read {
        Ok(read) => {
            assert_eq!(read, truth, "{what}");
            false
        }
        Err(fault) => {
            assert!(matches!(fault, StoreFault::Corrupt(_)), "{what}: {fault}");
            true
        }
    };
    store.close().await;
    is_told
}

#[tokio::test]
async fn no_changed_byte_is_read_as_if_it_were_whole() {
    let home = populated_store().await;
    let truth = read_everything(&home.open()).await.unwrap();
    let whole = std::fs::read(home.path()).unwrap();
    let mut told = 0;
    // Places all over the file, the same at every run.
    let places = (0..whole.len()).step_by((whole.len() / 250) | 1);
    for (number, place) in places.enumerate() {
        let mut bytes = whole.clone();
        bytes[place] ^= 1 << (number % 8);
        std::fs::write(home.path(), bytes).unwrap();
        let what = format!("bit {} of byte {place}", number % 8);
        // A check never panics, whatever it finds.
        let report = crate::check(&home.path()).unwrap();
        let is_told = is_reported_or_harmless(&home, &truth, &what).await;
        assert!(!is_told || !report.is_sound(), "{what}: what is told is found by a check");
        told += u32::from(is_told);
        for leftover in [home.files().wal(), home.files().high_water_mark()] {
            let _ = std::fs::remove_file(leftover);
        }
    }
    assert!(told > 60, "{told}");
}

#[tokio::test]
async fn a_page_that_was_zeroed_is_refused_and_every_problem_is_told() {
    let home = populated_store().await;
    let pages = std::fs::metadata(home.path()).unwrap().len() / 4096;
    for page in 0..pages {
        let damaged = home.crash_copy();
        edit_bytes(&damaged.path(), |bytes| bytes[usize::try_from(page * 4096).unwrap()..][..4096].fill(0));
        let fault = damaged.open_fault();
        assert!(
            matches!(fault, OpenFault::Damaged { .. } | OpenFault::NotADatabase { .. }),
            "{page}: {fault}"
        );
        assert!(fault.to_string().contains("restore a backup"), "{fault}");
        let report = crate::check(&damaged.path()).unwrap();
        assert!(!report.is_sound(), "{page}");
        assert!(report.problems.iter().all(|problem| !problem.repair.is_empty()));
    }
}

#[tokio::test]
async fn a_file_that_was_cut_is_refused() {
    let home = populated_store().await;
    let length = usize::try_from(std::fs::metadata(home.path()).unwrap().len()).unwrap();
    for cut in [1, 4096, length / 2, length - 4096, length - 100] {
        let damaged = home.crash_copy();
        edit_bytes(&damaged.path(), |bytes| bytes.truncate(length - cut));
        let fault = damaged.open_fault();
        assert!(
            matches!(fault, OpenFault::Damaged { .. } | OpenFault::NotADatabase { .. }),
            "{cut}: {fault}"
        );
        assert!(!crate::check(&damaged.path()).unwrap().is_sound(), "{cut}");
    }
}

#[tokio::test]
async fn an_entry_that_somebody_changed_is_found() {
    let home = populated_store().await;
    let db = rusqlite::Connection::open(home.path()).unwrap();
    // Somebody who knows SQL, not only a disk.
    db.execute("UPDATE journal SET body = replace(body, 'send 7', 'sent 7') WHERE sequence = 24", ())
        .unwrap();
    drop(db);
    let chain = crate::verify_chain(&home.path()).unwrap();
    assert!(!chain.is_intact());
    assert_eq!(chain.breaks.iter().map(|place| place.sequence).collect::<Vec<_>>(), [24]);
    assert!(chain.to_string().contains("BROKEN") && chain.to_string().contains("entry 24"), "{chain}");
    let store = home.open();
    let read = store.read(entry_range(None, 20)).await;
    assert!(matches!(&read, Err(StoreFault::Corrupt(why)) if why.contains("entry 24")), "{read:?}");
    assert!(store.read(entry_range(None, 24)).await.is_ok());
}

#[tokio::test]
async fn an_entry_that_somebody_removed_or_put_in_is_found() {
    for (sql, place) in [
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
        let chain = crate::verify_chain(&home.path()).unwrap();
        assert_eq!(chain.breaks[0].sequence, place, "{sql}: {chain}");
        assert!(!home.is_sound().await, "{sql}");
    }
    let home = populated_store().await;
    let head = crate::verify_chain(&home.path()).unwrap();
    assert!(head.is_intact() && head.to_string().contains("whole, 93 entries, 1 to 93"), "{head}");
    rusqlite::Connection::open(home.path())
        .unwrap()
        .execute_batch("DELETE FROM journal WHERE sequence > 90")
        .unwrap();
    let shorter = crate::verify_chain(&home.path()).unwrap();
    assert_eq!(shorter.breaks[0].sequence, 91, "the mark knows of them: {shorter}");
}

#[tokio::test]
async fn rows_that_do_not_follow_from_the_journal_are_found() {
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
        let report = crate::check(&home.path()).unwrap();
        assert!(!report.is_sound(), "{sql}");
    }
}

#[tokio::test]
async fn a_missing_index_of_the_log_is_made_again() {
    let home = Home::new();
    let store = home.open();
    append_records(&store, [created("main", None)]).await.unwrap();
    // A crash leaves no use for the file of shared memory; `crash` does not copy it.
    let crashed = home.crash_copy();
    assert!(crashed.is_sound().await);
    assert_eq!(last_sequence(&crashed.open()).await, 1);
    store.close().await;
}
