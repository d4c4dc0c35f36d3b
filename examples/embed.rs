//! The daemon inside another program: agents run in this process and are called directly. The same code then calls them
//! over HTTP, because both ways are one trait. Run it with `cargo run -p nexus3 --example embed`; with the word `measure`
//! behind it (`-- measure`) it prints what a call costs each way, in microseconds, one round a line. Agents are kept in
//! memory; see `outside` for how to keep them in a file.

use std::error::Error;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use agent::outside::{
    Clock, Entropy, ModelEvent, ModelRequest, ModelSpec, ModelStream, Models, Provider, Timestamp,
};
use agent::permission::{FilePath, Presets};
use agent::{Fault, FaultKind};
use futures_util::StreamExt;
use futures_util::stream;
use jiff::tz::TimeZone;
use nexus3_client::{Client, Endpoint};
use nexus3_protocol::AgentApi;
use nexus3_protocol::methods::{CreateAgentParams, NoParams, SendParams};
use rpc::{Dispatcher, DispatcherOptions, InProcessApi};
use runtime::{Outside, PoolHandle, PoolOptions};
use server::http::{HttpDoor, HttpLimits, HttpOptions};
use server::{Host, bind};
use tools::{LocalWorkspace, ToolDependencies, ToolRegistry};

/// Written once, runs with and without a wire: an agent under another, and what it may do.
async fn delegate<A: AgentApi>(api: &A, lead: &str, helper: &str) -> Result<String, A::Fault> {
    let named =
        |id: &str| CreateAgentParams { agent_id: Some(id.to_owned()), ..CreateAgentParams::default() };
    api.create_agent(&CreateAgentParams { preset: Some("trusted".to_owned()), ..named(lead) }).await?;
    api.create_agent(&CreateAgentParams { parent_agent_id: Some(lead.to_owned()), ..named(helper) }).await?;
    let agent = api.for_agent(helper);
    let answer = agent.send(&SendParams { content: "Hello!".to_owned(), ..SendParams::default() }).await?;
    let permissions = agent.get_permissions(&NoParams {}).await?;
    let reads = permissions.may.read.join(", ");
    Ok(format!("{helper} answered {:?}; it may read {reads}", answer.content))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let pool = PoolHandle::open(pool_options()?, outside()).await?;
    let desk = Dispatcher::new(pool.clone(), DispatcherOptions { zone: TimeZone::system() });

    let direct = InProcessApi::new(desk.clone());
    // A door is only needed for callers outside. Without a token, everybody on this machine may come in.
    let listener = bind(Host::parse("127.0.0.1").ok_or("no loopback")?, 0)?;
    let port = listener.address().port();
    let options = HttpOptions { allowed_origins: Vec::new(), token: None, limits: HttpLimits::default() };
    let door = HttpDoor::open(listener, desk, options)?;
    let client = Client::new(Endpoint::new("127.0.0.1", port), None);
    if std::env::args().any(|word| word == "measure") {
        measure(&direct, &client).await?;
    } else {
        println!("directly:  {}", delegate(&direct, "lead", "helper").await?);
        println!("over HTTP: {}", delegate(&client, "lead-2", "helper-2").await?);
    }
    door.close();
    pool.stop(std::time::Duration::from_secs(1)).await;
    Ok(())
}

/// The same call both ways, in turns.
async fn measure(direct: &InProcessApi, client: &Client) -> Result<(), Box<dyn Error>> {
    let id = direct.create_agent(&CreateAgentParams::default()).await?.agent_id;
    for _ in 0..15 {
        let direct_us = time(direct, &id, 20_000).await?;
        let http_us = time(client, &id, 1_000).await?;
        println!("{direct_us} {http_us}");
    }
    Ok(())
}

async fn time<A: AgentApi>(api: &A, agent_id: &str, calls: u32) -> Result<f64, A::Fault> {
    let before = Instant::now();
    for _ in 0..calls {
        api.get_context(agent_id, &NoParams {}).await?;
    }
    Ok(before.elapsed().as_secs_f64() * 1e6 / f64::from(calls))
}

fn pool_options() -> Result<PoolOptions, Box<dyn Error>> {
    let cwd = std::env::current_dir()?;
    let cwd = cwd.to_str().ok_or("the working directory is not UTF-8")?;
    Ok(PoolOptions {
        presets: Presets::builtin(&[]),
        cwd: FilePath::resolve(cwd, &FilePath::root())?,
        ..PoolOptions::default()
    })
}

fn outside() -> Outside {
    let (clock, entropy) = (Arc::new(MachineClock), Arc::new(MachineEntropy));
    let parts = ToolDependencies { clock: clock.clone(), entropy: entropy.clone() };
    Outside {
        models: Arc::new(OnlyParrot),
        tools: Arc::new(ToolRegistry::new(parts)),
        workspace: Arc::new(LocalWorkspace::new(None)),
        clock,
        entropy,
        // They are gone with the program. To have them again at the next start:
        // store::open(&store::SqliteOptions::new("agents.db"))?
        store: store::memory(),
    }
}

/// A model that repeats what it hears. A real one is `provider::ModelBook`.
struct Parrot;

impl Provider for Parrot {
    fn call(&self, request: ModelRequest) -> ModelStream {
        let heard = request.messages.last().map(|message| message.text.clone()).unwrap_or_default();
        stream::iter([Ok(ModelEvent::Text(heard)), Ok(ModelEvent::Done)]).boxed()
    }

    fn model(&self) -> Option<&str> {
        Some("parrot")
    }

    fn spec(&self) -> &ModelSpec {
        const TRAITS: ModelSpec = ModelSpec::with_window(8_000);
        &TRAITS
    }
}

struct OnlyParrot;

impl Models for OnlyParrot {
    fn default_model(&self) -> Arc<dyn Provider> {
        Arc::new(Parrot)
    }

    fn find(&self, name: &str) -> Result<Arc<dyn Provider>, Fault> {
        Err(Fault::new(FaultKind::Invalid, format!("Unknown model '{name}': there is only the parrot")))
    }
}

struct MachineClock;

impl Clock for MachineClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }
}

struct MachineEntropy;

impl Entropy for MachineEntropy {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), Fault> {
        getrandom::fill(bytes)
            .map_err(|fault| Fault::new(FaultKind::Internal, "no random bytes can be had").caused_by(fault))
    }
}
