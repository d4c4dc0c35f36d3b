//! Benchmark of durability in one process, with a model that responds at once: durable sends, long histories, many
//! stored agents. `cargo xtask bench store` runs it and parses its output, one line per round. Arguments: `turns FILE
//! full|normal AGENTS SECONDS`, `history FILE|memory ROUNDS`, `fill FILE AGENTS` or `wake FILE AGENTS`.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use agent::outside::{
    Clock, Entropy, ModelEvent, ModelRequest, ModelSpec, ModelStream, Models, Provider, Store, Timestamp,
};
use agent::permission::Presets;
use agent::{AgentId, Fault, FaultKind};
use futures_util::StreamExt;
use futures_util::stream;
use jiff::tz::TimeZone;
use nexus3_protocol::AgentApi;
use nexus3_protocol::methods::{CreateAgentParams, SendParams};
use rpc::{Dispatcher, DispatcherOptions, InProcessApi};
use runtime::{Limits, Outside, PoolHandle, PoolOptions};
use store::{Durability, SqliteOptions, StoreOptions};
use tokio::task::JoinSet;
use tools::{LocalWorkspace, ToolDependencies, ToolRegistry};

type BoxError = Box<dyn Error + Send + Sync>;

/// Maximum number of concurrent agent creations.
const CREATES_IN_FLIGHT_MAX: usize = 256;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["turns", file, durability, agents, seconds] => {
            let durability = if durability == "normal" { Durability::Normal } else { Durability::Full };
            measure_turns(&InProcessDaemon::open(file, durability).await?, agents.parse()?, seconds.parse()?)
                .await
        }
        ["history", file, rounds] => {
            measure_history(&InProcessDaemon::open(file, Durability::Full).await?, rounds.parse()?).await
        }
        ["fill", file, agents] => {
            fill(&InProcessDaemon::open(file, Durability::Normal).await?, agents.parse()?).await
        }
        ["wake", file, agents] => {
            measure_wake(&InProcessDaemon::open(file, Durability::Full).await?, agents.parse()?).await
        }
        _ => Err("wrong arguments: see the first lines of crates/nexus3/examples/durable.rs".into()),
    }
}

/// A daemon without an HTTP server.
struct InProcessDaemon {
    pool: PoolHandle,
    api: InProcessApi,
}

impl InProcessDaemon {
    async fn open(file: &str, durability: Durability) -> Result<Self, BoxError> {
        let store = store::open(&match file {
            "memory" => StoreOptions::Memory,
            file => StoreOptions::Sqlite(SqliteOptions { durability, ..SqliteOptions::new(file) }),
        })?;
        let limits = Limits { agents_max: 1_000_000, live_agents_max: 100_000, ..Limits::default() };
        let options = PoolOptions { limits, presets: Presets::builtin(&[]), ..PoolOptions::default() };
        let pool = PoolHandle::open(options, outside(store)).await?;
        let dispatcher = Dispatcher::new(pool.clone(), DispatcherOptions { zone: TimeZone::UTC });
        Ok(Self { pool, api: InProcessApi::new(dispatcher) })
    }

    async fn create(&self, name: &str) -> Result<(), BoxError> {
        let params = CreateAgentParams { agent_id: Some(name.to_owned()), ..CreateAgentParams::default() };
        self.api.create_agent(&params).await?;
        Ok(())
    }

    async fn send(&self, name: &str) -> Result<(), BoxError> {
        send(&self.api, name).await
    }

    async fn close(&self) {
        self.pool.stop(Duration::from_secs(10)).await;
    }
}

async fn send(api: &InProcessApi, name: &str) -> Result<(), BoxError> {
    let output =
        api.send(name, &SendParams { content: "Hello!".to_owned(), ..SendParams::default() }).await?;
    if output.content == "Hello!" {
        Ok(())
    } else {
        Err(format!("wrong response of {name}: {:?}", output.content).into())
    }
}

/// Sends to each agent again as soon as it has responded. Prints turns per second, and p50 and p99 of a send in
/// milliseconds.
async fn measure_turns(daemon: &InProcessDaemon, agents: usize, seconds: f64) -> Result<(), BoxError> {
    for agent in 0..agents {
        daemon.create(&format!("agent-{agent}")).await?;
    }
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(seconds);
    let mut sending = JoinSet::new();
    for agent in 0..agents {
        let api = daemon.api.clone();
        sending.spawn(async move {
            let name = format!("agent-{agent}");
            let mut times = Vec::new();
            while Instant::now() < end {
                let started = Instant::now();
                send(&api, &name).await?;
                times.push(started.elapsed());
            }
            Ok::<_, BoxError>(times)
        });
    }
    let mut times = Vec::new();
    while let Some(sent) = sending.join_next().await {
        times.extend(sent??);
    }
    let rate = times.len() as f64 / start.elapsed().as_secs_f64();
    let (p50, p99) = percentiles(&mut times);
    println!("{rate} {p50} {p99}");
    daemon.close().await;
    Ok(())
}

/// Alternates equal turns with a long and a short history. Prints the medians of each round in milliseconds, the long
/// history first.
async fn measure_history(daemon: &InProcessDaemon, rounds: usize) -> Result<(), BoxError> {
    const LONG: usize = 10_000;
    const SHORT: usize = 10;
    const SENDS: usize = 50;
    for (name, messages) in [("long", LONG), ("short", SHORT)] {
        daemon.create(name).await?;
        for _ in 0..messages / 2 {
            daemon.send(name).await?;
        }
    }
    for round in 0..rounds {
        let mut medians = Vec::new();
        // A new agent per round: one short history would grow with the rounds.
        let short = format!("short-{round}");
        daemon.create(&short).await?;
        for _ in 0..SHORT / 2 {
            daemon.send(&short).await?;
        }
        let (mut long_times, mut short_times) = (Vec::new(), Vec::new());
        for _ in 0..SENDS {
            for (name, times) in [("long", &mut long_times), (short.as_str(), &mut short_times)] {
                let started = Instant::now();
                daemon.send(name).await?;
                times.push(started.elapsed());
            }
        }
        for times in [&mut long_times, &mut short_times] {
            medians.push(percentiles(times).0.to_string());
        }
        println!("{}", medians.join(" "));
    }
    daemon.close().await;
    Ok(())
}

/// Stores agents, each with one turn in its history.
async fn fill(daemon: &InProcessDaemon, agents: usize) -> Result<(), BoxError> {
    let mut creating = JoinSet::new();
    for agent in 0..agents {
        if creating.len() >= CREATES_IN_FLIGHT_MAX
            && let Some(created) = creating.join_next().await
        {
            created??;
        }
        let api = daemon.api.clone();
        creating.spawn(async move {
            let name = format!("agent-{agent}");
            let params = CreateAgentParams { agent_id: Some(name.clone()), ..CreateAgentParams::default() };
            api.create_agent(&params).await?;
            send(&api, &name).await
        });
    }
    while let Some(created) = creating.join_next().await {
        created??;
    }
    daemon.close().await;
    Ok(())
}

/// Loads stored agents. Prints p50 and p99 in milliseconds.
async fn measure_wake(daemon: &InProcessDaemon, agents: usize) -> Result<(), BoxError> {
    let mut times = Vec::new();
    for agent in 0..agents {
        let id = AgentId::parse(&format!("agent-{}", agent * 7 % agents))?;
        let started = Instant::now();
        daemon.pool.find(&id).await?.ok_or("stored agent not found")?;
        times.push(started.elapsed());
    }
    let (p50, p99) = percentiles(&mut times);
    println!("{p50} {p99}");
    daemon.close().await;
    Ok(())
}

/// Returns p50 and p99 in milliseconds.
fn percentiles(times: &mut [Duration]) -> (f64, f64) {
    times.sort_unstable();
    let at = |percent: usize| {
        let rank = (times.len() * percent).div_ceil(100).saturating_sub(1);
        times.get(rank).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    };
    (at(50), at(99))
}

fn outside(store: Arc<dyn Store>) -> Outside {
    let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
    let dependencies = ToolDependencies {
        clock: clock.clone(),
        entropy: entropy.clone(),
        commands: Arc::new(tools::CommandRunner::refusing("this program runs no commands")),
        network: Arc::default(),
    };
    Outside {
        models: Arc::new(SingleModel(Arc::new(EchoModel))),
        tools: Arc::new(ToolRegistry::new(dependencies)),
        workspace: Arc::new(LocalWorkspace::new(None)),
        store,
        clock,
        entropy,
    }
}

/// A model that echoes the last message at once.
struct EchoModel;

impl Provider for EchoModel {
    fn call(&self, request: ModelRequest) -> ModelStream {
        let text = request.messages.last().map(|message| message.text.clone()).unwrap_or_default();
        stream::iter([Ok(ModelEvent::Text(text)), Ok(ModelEvent::Done)]).boxed()
    }

    fn model(&self) -> Option<&str> {
        Some("echo")
    }

    fn spec(&self) -> &ModelSpec {
        const SPEC: ModelSpec = ModelSpec::with_window(1_000_000);
        &SPEC
    }
}

struct SingleModel(Arc<EchoModel>);

impl Models for SingleModel {
    fn default_model(&self) -> Arc<dyn Provider> {
        self.0.clone()
    }

    fn find(&self, name: &str) -> Result<Arc<dyn Provider>, Fault> {
        Err(Fault::new(FaultKind::Invalid, format!("Unknown model '{name}': the only model is echo")))
    }
}

struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX))
    }
}

struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), Fault> {
        getrandom::fill(bytes)
            .map_err(|fault| Fault::new(FaultKind::Internal, "cannot read random bytes").caused_by(fault))
    }
}
