//! `nexus3 backup`, `check` and `audit verify`: maintenance of a store's file, also while a daemon uses it. The crate
//! `store` does the work; this module prints the reports.

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use store::{BackupReport, ChainReport, CheckReport};

use crate::assemble::{store_maintenance, store_path};
use crate::cli::{BackupArgs, CheckArgs};
use crate::{Failure, print_stdout};

/// Interval of progress messages during long work.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

/// Exit code for a damaged store or a broken chain.
const EXIT_UNSOUND: u8 = 1;

/// Copies the home's store.
pub(crate) fn backup(args: &BackupArgs, home: &Path) -> Result<u8, Failure> {
    let from = store_path(home);
    let store = store_maintenance(&from)?;
    let report = with_progress(&from, "copying", || store.backup(&args.file))?.map_err(run_failure)?;
    print_report(&report, args.json.then(|| backup_json(&report)))
}

/// Checks a store for damage.
pub(crate) fn check(args: &CheckArgs, home: &Path) -> Result<u8, Failure> {
    let path = store_file(args, home);
    let store = store_maintenance(&path)?;
    let report = with_progress(&path, "checking", || store.check())?.map_err(run_failure)?;
    print_report(&report, args.json.then(|| check_json(&report)))?;
    Ok(if report.is_sound() { 0 } else { EXIT_UNSOUND })
}

/// Verifies the hash chain of the journal.
pub(crate) fn verify(args: &CheckArgs, home: &Path) -> Result<u8, Failure> {
    let path = store_file(args, home);
    let store = store_maintenance(&path)?;
    let report = with_progress(&path, "reading", || store.verify_chain())?.map_err(run_failure)?;
    print_report(&report, args.json.then(|| chain_json(&report)))?;
    Ok(if report.is_intact() { 0 } else { EXIT_UNSOUND })
}

fn store_file(args: &CheckArgs, home: &Path) -> PathBuf {
    args.file.clone().unwrap_or_else(|| store_path(home))
}

fn run_failure(fault: impl Display) -> Failure {
    Failure::Run(fault.to_string())
}

fn print_report(report: &dyn Display, as_json: Option<Value>) -> Result<u8, Failure> {
    match as_json {
        Some(value) => print_stdout(&format!("{value:#}\n")),
        None => print_stdout(&format!("{report}\n")),
    }
}

/// Runs `work` and prints progress every few seconds: a large store takes long.
fn with_progress<T: Send>(path: &Path, action: &str, work: impl FnOnce() -> T + Send) -> Result<T, Failure> {
    let started = Instant::now();
    std::thread::scope(|scope| {
        let (done, waiting) = channel::<()>();
        let worker = scope.spawn(move || {
            let result = work();
            drop(done);
            result
        });
        while let Err(RecvTimeoutError::Timeout) = waiting.recv_timeout(PROGRESS_INTERVAL) {
            let seconds = started.elapsed().as_secs();
            // A closed standard error is not an error.
            let _ = writeln!(std::io::stderr(), "{action} {} for {seconds} s", path.display());
        }
        worker.join().map_err(|_| Failure::Run(format!("{action} {} failed: internal error", path.display())))
    })
}

fn backup_json(report: &BackupReport) -> Value {
    let BackupReport { path, bytes, agents, chain } = report;
    json!({ "file": path.to_string_lossy(), "bytes": bytes, "agents": agents, "chain": chain_json(chain) })
}

fn check_json(report: &CheckReport) -> Value {
    let problem = |problem: &store::Problem| json!({ "what": problem.what, "repair": problem.repair });
    json!({
        "file": report.path.to_string_lossy(),
        "sound": report.is_sound(),
        "schema_version": report.version,
        "bytes": report.bytes,
        "wal_bytes": report.wal_bytes,
        "agents": report.agents,
        "destroyed": report.destroyed,
        "turns": report.turns,
        "open_turns": report.open_turns,
        "chain": report.chain.as_ref().map(chain_json),
        "problems": report.problems.iter().map(problem).collect::<Vec<_>>(),
    })
}

fn chain_json(report: &ChainReport) -> Value {
    let head: String = report.head.iter().map(|byte| format!("{byte:02x}")).collect();
    let chain_break = |found: &store::ChainBreak| json!({ "sequence": found.sequence, "why": found.why });
    json!({
        "file": report.path.to_string_lossy(),
        "intact": report.is_intact(),
        "entries": report.entries,
        "first": report.first,
        "last": report.last,
        "head": head,
        "breaks": report.breaks.iter().map(chain_break).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_store_is_named_in_the_error() {
        let home = tempfile::tempdir().unwrap();
        let args = CheckArgs { file: None, json: false };
        for result in [check(&args, home.path()), verify(&args, home.path())] {
            let failure = result.unwrap_err();
            assert_eq!(failure.exit_code(), 1);
            assert!(failure.to_string().contains("nexus3.db"), "{failure}");
        }
        let args = BackupArgs { file: home.path().join("copy.db"), json: false };
        assert!(backup(&args, home.path()).unwrap_err().to_string().contains("nexus3.db"));
        assert!(!args.file.exists());
    }

    #[test]
    fn a_new_store_is_intact_and_can_be_copied() {
        let home = tempfile::tempdir().unwrap();
        drop(store::open(&store::StoreOptions::sqlite(store_path(home.path()))).unwrap());
        let copy = home.path().join("copy.db");
        assert_eq!(backup(&BackupArgs { file: copy.clone(), json: true }, home.path()).unwrap(), 0);
        let second = backup(&BackupArgs { file: copy.clone(), json: false }, home.path()).unwrap_err();
        assert_eq!(second.exit_code(), 1);
        for file in [None, Some(copy)] {
            let args = CheckArgs { file, json: true };
            assert_eq!((check(&args, home.path()).unwrap(), verify(&args, home.path()).unwrap()), (0, 0));
        }
    }
}
