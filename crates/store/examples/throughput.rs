//! Benchmark of committed turns per second: 64 concurrent agents with group commit, compared to a writer that commits
//! each row alone on the same disk. `cargo run --release -p store --example throughput [folder]`

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent::journal::{
    AcceptedTurn, AgentRecord, AgentState, Record, RestartPolicy, Serial, StoredGrantRequest, StoredLedger,
    StoredPermissions,
};
use agent::outside::{Append, Store, Timestamp};
use agent::permission::{Budget, FilePath, Level};
use agent::{AgentId, Message, MessageSource, RequestId, TurnEnd, TurnOutcome};
use rusqlite::Connection;
use store::{Durability, SqliteOptions};

const AGENTS: u64 = 64;
const RUN_TIME: Duration = Duration::from_secs(5);
/// Records of one turn.
const RECORDS_PER_TURN: u64 = 4;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "target".to_owned());
    let folder = tempfile::tempdir_in(folder)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
    for durability in [Durability::Full, Durability::Normal] {
        let path = folder.path().join(format!("{durability:?}.db"));
        let store = store::open(&SqliteOptions { durability, ..SqliteOptions::new(path) })?;
        let mut times = runtime.block_on(run_agents_concurrently(&store))?;
        times.sort();
        let rate = times.len() as f64 / RUN_TIME.as_secs_f64();
        let at = |percent: usize| times[(times.len() - 1) * percent / 100];
        println!(
            "{durability:?}: {rate:.0} turns/s, {:.0} appends/s, {:.0} records/s; a turn takes {:?} (p50), {:?} (p99), {:?} (max)",
            rate * 2.0,
            rate * RECORDS_PER_TURN as f64,
            at(50),
            at(99),
            at(100)
        );
        println!("  processor time: {:.1} us a turn, all threads", cpu_us()? / times.len() as f64);
        runtime.block_on(store.close());
    }
    let rows = one_commit_per_row(&folder.path().join("rows.db"))?;
    println!("one commit per row: {rows:.0} rows/s, {:.0} turns/s", rows / RECORDS_PER_TURN as f64);
    Ok(())
}

/// Returns the CPU time used since the last call.
fn cpu_us() -> Outcome<f64> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static BEFORE: AtomicU64 = AtomicU64::new(0);
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    let before = BEFORE.swap(ticks, Ordering::Relaxed);
    Ok((ticks - before) as f64 * 10_000.0)
}

/// Runs turns of all agents concurrently; returns the duration of each turn.
async fn run_agents_concurrently(store: &Arc<store::SqliteStore>) -> Outcome<Vec<Duration>> {
    for serial in 1..=AGENTS {
        store.append(vec![append(serial, vec![created(serial)?])?]).await?;
    }
    let end = Instant::now() + RUN_TIME;
    let agents: Vec<_> =
        (1..=AGENTS).map(|serial| tokio::spawn(run_turns(Arc::clone(store), serial, end))).collect();
    let mut times = Vec::new();
    for agent in agents {
        times.extend(agent.await??);
    }
    Ok(times)
}

async fn run_turns(
    store: Arc<store::SqliteStore>,
    serial: Serial,
    end: Instant,
) -> Result<Vec<Duration>, String> {
    let mut times = Vec::new();
    let mut turn = 0;
    while Instant::now() < end {
        turn += 1;
        let begun = Instant::now();
        for records in turn_records(serial, turn) {
            let mut append = append(serial, records).map_err(|why| why.to_string())?;
            append.state = Some(AgentState { messages: turn * 2, turns: turn, ..AgentState::default() });
            append.ledgers = vec![(serial, StoredLedger { version: turn * 2, ..StoredLedger::default() })];
            store.append(vec![append]).await.map_err(|fault| fault.to_string())?;
        }
        times.push(begun.elapsed());
    }
    Ok(times)
}

fn turn_records(serial: Serial, turn: u64) -> [Vec<Record>; 2] {
    let request_id = RequestId::Text(format!("0192f0c1-7a3b-7c55-{serial:04x}-{turn:012x}"));
    let message = Message::user(
        "What is the weather like in the north of the country today?",
        MessageSource::default(),
    );
    let answer = "It is rather cold, with rain in the morning and some sun later in the day.";
    let end =
        TurnEnd { content: answer.to_owned(), rounds: 1, ..TurnEnd::without_content(TurnOutcome::Completed) };
    let accepted = AcceptedTurn { turn, request_id: request_id.clone(), message };
    [
        vec![Record::TurnAccepted(Box::new(accepted)), Record::TurnBegun { turn }],
        vec![
            Record::MessageAdded(Box::new(Message::assistant(answer, Vec::new()))),
            Record::TurnEnded { turn, request_id, end: Box::new(end) },
        ],
    ]
}

fn append(agent: Serial, records: Vec<Record>) -> Outcome<Append> {
    let at = Timestamp(1_700_000_000_000_000);
    Ok(Append { agent, agent_id: Some(agent_id(agent)?), at, records, state: None, ledgers: Vec::new() })
}

fn agent_id(serial: Serial) -> Outcome<AgentId> {
    Ok(AgentId::parse(&format!("agent-{serial}"))?)
}

fn created(serial: Serial) -> Outcome<Record> {
    let permissions = StoredPermissions {
        preset: "sandboxed".to_owned(),
        level: Level::Sandboxed,
        budget: Budget::unlimited(),
        may: StoredGrantRequest::default(),
        may_grant: None,
    };
    Ok(Record::Created(Box::new(AgentRecord {
        id: agent_id(serial)?,
        parent: None,
        created_at: Timestamp(0),
        by: "admin".to_owned(),
        system_prompt: Some("You are a helpful agent.".repeat(20)),
        cwd: FilePath::root(),
        model: None,
        capability_digest: [0; 32],
        on_restart: RestartPolicy::Resume,
        permissions,
        origin: None,
    })))
}

/// Commits each row in its own transaction; returns rows per second.
fn one_commit_per_row(path: &Path) -> Outcome<f64> {
    let db = Connection::open(path)?;
    db.execute_batch(
        "PRAGMA journal_mode = wal; PRAGMA synchronous = full;
         CREATE TABLE journal (sequence INTEGER PRIMARY KEY, agent INTEGER, kind TEXT, body TEXT);
         CREATE INDEX journal_of_agent ON journal (agent);",
    )?;
    let body = "{\"role\":\"user\",\"text\":\"What is the weather like in the north of the country today?\"}";
    let mut insert = db.prepare("INSERT INTO journal (agent, kind, body) VALUES (?1, 'message', ?2)")?;
    let begun = Instant::now();
    let mut rows = 0_u32;
    while begun.elapsed() < RUN_TIME {
        insert.execute((i64::from(rows) % 64, body))?;
        rows += 1;
    }
    Ok(f64::from(rows) / begun.elapsed().as_secs_f64())
}
