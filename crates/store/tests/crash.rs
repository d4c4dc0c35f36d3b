//! Kills writing processes: every commit they acknowledged is recovered, in order, and the store is sound. The child
//! processes are this test program itself, with an environment variable that selects the child role.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use agent::journal::{AgentRecord, Record, RestartPolicy, Serial, StoredGrantRequest, StoredPermissions};
use agent::outside::{Append, Store, Timestamp};
use agent::permission::{Budget, FilePath, Level};
use agent::{AgentId, Message, MessageSource, PrincipalId};
use store::{SqliteOptions, StoreOptions};

const HOME: &str = "NEXUS3_STORE_CHILD_HOME";
const FAILPOINTS: &str = "NEXUS3_STORE_CHILD_FAILPOINTS";
const AGENTS: Serial = 6;

#[expect(clippy::disallowed_methods, reason = "the environment selects the child role")]
fn env_var(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Body of the child process; does nothing when it runs as a normal test.
#[test]
fn child_process() {
    let Some(home) = env_var(HOME) else { return };
    let failpoints = env_var(FAILPOINTS);
    let options = SqliteOptions { failpoints, ..SqliteOptions::new(Path::new(&home).join("nexus3.db")) };
    let store = store::open(&StoreOptions::Sqlite(options)).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let agents: Vec<_> =
            (1..=AGENTS).map(|serial| tokio::spawn(write_forever(Arc::clone(&store), serial))).collect();
        for agent in agents {
            agent.await.unwrap();
        }
    });
}

/// Appends numbered messages for ever, and prints each number after its commit.
async fn write_forever(store: Arc<dyn Store>, serial: Serial) {
    let committed = store.history(serial).await.unwrap().len();
    if committed == 0 {
        store.append(vec![append(serial, created(serial))]).await.unwrap();
    }
    // Some of them are large, to trigger checkpoints.
    for number in committed.max(1).. {
        let text = format!("{number} {}", "x".repeat(if number % 8 == 0 { 60_000 } else { 10 }));
        let message = Record::MessageAdded(Box::new(Message::user(text, MessageSource::default())));
        store.append(vec![append(serial, message)]).await.unwrap();
        let mut out = std::io::stdout().lock();
        writeln!(out, "committed {serial} {number}").unwrap();
        out.flush().unwrap();
    }
}

fn append(agent: Serial, record: Record) -> Append {
    let name = Some(AgentId::parse(&format!("agent-{agent}")).unwrap());
    Append {
        agent,
        agent_id: name,
        at: Timestamp(0),
        records: vec![record],
        state: None,
        ledgers: Vec::new(),
    }
}

fn created(serial: Serial) -> Record {
    let permissions = StoredPermissions {
        preset: "sandboxed".to_owned(),
        level: Level::Sandboxed,
        budget: Budget::unlimited(),
        may: StoredGrantRequest::default(),
        may_grant: None,
        rules: Vec::new(),
    };
    Record::Created(Box::new(AgentRecord {
        id: AgentId::parse(&format!("agent-{serial}")).unwrap(),
        parent: None,
        created_at: Timestamp(0),
        by: PrincipalId::Admin,
        system_prompt: None,
        cwd: FilePath::root(),
        model: None,
        capability_digest: [0; 32],
        on_restart: RestartPolicy::Resume,
        permissions,
        origin: None,
    }))
}

fn spawn_child(home: &Path, failpoints: Option<&str>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["child_process", "--exact", "--nocapture", "--test-threads=1"]).env(HOME, home);
    if let Some(failpoints) = failpoints {
        command.env(FAILPOINTS, failpoints);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// Reads the commits a child acknowledges, and kills it after `kill_after` of them; `None` waits until it aborts.
fn read_commits(mut child: Child, kill_after: Option<usize>, committed: &mut BTreeMap<Serial, usize>) {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut count = 0;
    for line in lines {
        let Some(numbers) = line.strip_prefix("committed ") else { continue };
        let (serial, number) = numbers.split_once(' ').unwrap();
        committed.insert(serial.parse().unwrap(), number.parse().unwrap());
        count += 1;
        if kill_after == Some(count) {
            // Lines already in the pipe count too: those commits were acknowledged.
            child.kill().unwrap();
        }
    }
    assert!(!child.wait().unwrap().success(), "the child was killed");
}

/// Asserts that all acknowledged commits are in the store, without gaps, and that the store is sound.
fn verify_store(path: &Path, committed: &BTreeMap<Serial, usize>) {
    let options = StoreOptions::sqlite(path);
    let report = store::maintenance(&options).unwrap().check().unwrap();
    assert!(report.is_sound(), "{report}");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let store = store::open(&options).unwrap();
    for serial in 1..=AGENTS {
        let history = runtime.block_on(store.history(serial)).unwrap();
        let numbers: Vec<usize> = history.iter().skip(1).map(message_number).collect();
        assert_eq!(numbers, (1..=numbers.len()).collect::<Vec<_>>(), "agent {serial}");
        let expected = committed.get(&serial).copied().unwrap_or_default();
        assert!(numbers.len() >= expected, "agent {serial}: {} of {expected} commits found", numbers.len());
    }
    runtime.block_on(store.close());
}

fn message_number(record: &Record) -> usize {
    let Record::MessageAdded(message) = record else { panic!("{record:?}") };
    message.text.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn killed_process_loses_no_acknowledged_commit() {
    let home = tempfile::tempdir().unwrap();
    let path: PathBuf = home.path().join("nexus3.db");
    let mut committed = BTreeMap::new();
    for cycle in 0..12 {
        read_commits(spawn_child(home.path(), None), Some(1 + cycle * 37 % 200), &mut committed);
        verify_store(&path, &committed);
    }
    assert!(committed.values().sum::<usize>() > 500, "{committed:?}");
}

#[cfg(debug_assertions)]
#[test]
fn crash_at_any_failpoint_loses_no_acknowledged_commit() {
    for failpoint in [
        "commit.before@1=abort",
        "commit.before:message@5=abort",
        "commit.before:message@60=abort",
        "commit.after@1=abort",
        "commit.after:agent_created@1=abort",
        "commit.after:message@40=abort",
        "checkpoint.before@1=abort",
        "checkpoint.before@2=abort",
        "migrate.before=abort",
        "migrate.middle=abort",
    ] {
        let home = tempfile::tempdir().unwrap();
        let path: PathBuf = home.path().join("nexus3.db");
        let mut committed = BTreeMap::new();
        read_commits(spawn_child(home.path(), Some(failpoint)), None, &mut committed);
        if !failpoint.starts_with("migrate") {
            verify_store(&path, &committed);
        }
        read_commits(spawn_child(home.path(), None), Some(30), &mut committed);
        verify_store(&path, &committed);
    }
}
