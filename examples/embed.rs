//! Embeds the daemon in another program: agents run in this process and are called through the in-process API. The same
//! code then calls them over HTTP, since both implement `AgentApi`. Run it with `cargo run -p nexus3 --example embed`;
//! with `-- measure` it prints the time of a call both ways in microseconds, one line per round. Agents are stored in
//! memory; `outside` shows how to store them in a file.

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
use server::http::{HttpLimits, HttpOptions, HttpTransport};
use server::{Doors, Host, bind};
use tools::{LocalWorkspace, ToolDependencies, ToolRegistry};

/// Creates an agent and its child, sends the child a message and reads its permissions; generic over the transport.
async fn delegate<A: AgentApi>(api: &A, lead: &str, helper: &str) -> Result<String, A::Fault> {
    let named =
        |id: &str| CreateAgentParams { agent_id: Some(id.to_owned()), ..CreateAgentParams::default() };
    api.create_agent(&CreateAgentParams { preset: Some("trusted".to_owned()), ..named(lead) }).await?;
    api.create_agent(&CreateAgentParams { parent_agent_id: Some(lead.to_owned()), ..named(helper) }).await?;
    let agent = api.for_agent(helper);
    let output = agent.send(&SendParams { content: "Hello!".to_owned(), ..SendParams::default() }).await?;
    let permissions = agent.get_permissions(&NoParams {}).await?;
    let reads = permissions.may.read.join(", ");
    Ok(format!("{helper} responded {:?}; it may read {reads}", output.content))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let pool = PoolHandle::open(pool_options()?, outside()).await?;
    let dispatcher = Dispatcher::new(pool.clone(), DispatcherOptions { zone: TimeZone::system() });

    let in_process = InProcessApi::new(dispatcher.clone());
    // The HTTP transport is only needed for other processes. Without a token, every program on this machine may call.
    let listener = bind(Host::parse("127.0.0.1").ok_or("no loopback")?, 0)?.listen()?;
    let port = listener.address().port();
    let options = HttpOptions { allowed_origins: Vec::new(), token: None, limits: HttpLimits::default() };
    let doors = Doors::open(vec![Box::new(HttpTransport::new(listener, options))], &dispatcher)?;
    let client = Client::new(Endpoint::new("127.0.0.1", port), None);
    if std::env::args().any(|argument| argument == "measure") {
        measure(&in_process, &client).await?;
    } else {
        println!("in process: {}", delegate(&in_process, "lead", "helper").await?);
        println!("over HTTP:  {}", delegate(&client, "lead-2", "helper-2").await?);
    }
    doors.close();
    pool.stop(std::time::Duration::from_secs(1)).await;
    Ok(())
}

/// Measures the same call both ways, alternating.
async fn measure(in_process: &InProcessApi, client: &Client) -> Result<(), Box<dyn Error>> {
    let id = in_process.create_agent(&CreateAgentParams::default()).await?.agent_id;
    for _ in 0..15 {
        let in_process_us = measure_calls(in_process, &id, 20_000).await?;
        let http_us = measure_calls(client, &id, 1_000).await?;
        println!("{in_process_us} {http_us}");
    }
    Ok(())
}

/// Returns the mean time of a call in microseconds.
async fn measure_calls<A: AgentApi>(api: &A, agent_id: &str, calls: u32) -> Result<f64, A::Fault> {
    let started = Instant::now();
    for _ in 0..calls {
        api.get_context(agent_id, &NoParams {}).await?;
    }
    Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(calls))
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
    let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
    let dependencies = ToolDependencies {
        clock: clock.clone(),
        entropy: entropy.clone(),
        commands: Arc::new(tools::CommandRunner::refusing("this program runs no commands")),
        network: Arc::default(),
    };
    Outside {
        models: Arc::new(SingleModel),
        tools: Arc::new(ToolRegistry::new(dependencies)),
        workspace: Arc::new(LocalWorkspace::new(None)),
        clock,
        entropy,
        // Agents in memory are lost when the program ends. To store them in a file:
        // store::open(&store::SqliteOptions::new("agents.db"))?
        store: store::memory(),
    }
}

/// A model that echoes the last message. `provider::ModelRegistry` provides real models.
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
        const SPEC: ModelSpec = ModelSpec::with_window(8_000);
        &SPEC
    }
}

struct SingleModel;

impl Models for SingleModel {
    fn default_model(&self) -> Arc<dyn Provider> {
        Arc::new(EchoModel)
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
