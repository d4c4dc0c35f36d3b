//! `nexus3 import`: creates agents from snapshot files, through the daemon that holds the home's store or, without one,
//! on the store itself. Imports all files or none.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent::outside::Store;
use console::{input_label, read_snapshot};
use jiff::tz::TimeZone;
use nexus3_client::{Client, ClientFault, Endpoint, discover_token};
use nexus3_protocol::AgentApi;
use nexus3_protocol::methods::{DestroyAgentParams, ImportAgentOutput, ImportAgentParams, SnapshotDocument};
use rpc::{Dispatcher, DispatcherOptions, InProcessApi};
use serde_json::{Value, json};

use crate::assemble::{Assembly, open_store};
use crate::cli::ImportArgs;
use crate::config::Config;
use crate::home::{self, Environment};
use crate::{Failure, print_stdout, runtime_failure};

/// A parsed snapshot file.
struct SnapshotFile {
    display_name: String,
    document: SnapshotDocument,
}

/// Imports the files and prints the result.
pub(crate) fn run(
    args: &ImportArgs,
    home: PathBuf,
    config: &Config,
    environment: &Environment,
) -> Result<u8, Failure> {
    if args.name.is_some() && args.files.len() > 1 {
        return Err(Failure::Usage("--as names one agent: pass only one file with it".to_owned()));
    }
    let mut input = std::io::stdin();
    let snapshots = args.files.iter().map(|file| {
        let document = read_snapshot(file, &mut input).map_err(|fault| Failure::Run(fault.to_string()))?;
        Ok(SnapshotFile { display_name: input_label(file), document })
    });
    let snapshots = snapshots.collect::<Result<Vec<_>, Failure>>()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|fault| runtime_failure(&fault))?;
    let importer = Importer { args, home, config, environment, snapshots };
    let imported = runtime.block_on(importer.run())?;
    print_stdout(&report(&importer.snapshots, &imported, args.json))
}

struct Importer<'a> {
    args: &'a ImportArgs,
    home: PathBuf,
    config: &'a Config,
    environment: &'a Environment,
    snapshots: Vec<SnapshotFile>,
}

impl Importer<'_> {
    async fn run(&self) -> Result<Vec<ImportAgentOutput>, Failure> {
        if let Some(port) = self.args.port {
            return self.import_via_daemon(port).await.map_err(|fault| Failure::Run(fault.to_string()));
        }
        home::prepare(&self.home)?;
        match open_store(&self.home, self.config, self.environment) {
            Ok(store) => self.import_offline(store).await,
            Err(Failure::StoreLocked(locked)) => {
                let port = self.config.room_options().port;
                self.import_via_daemon(port).await.map_err(|fault| match fault {
                    ImportFault::NoDaemon(_) => Failure::StoreLocked(format!(
                        "{locked}; no daemon responds on port {port}: if it listens on another port, use nexus3 import \
                         -p PORT"
                    )),
                    other => Failure::Run(other.to_string()),
                })
            }
            Err(failure) => Err(failure),
        }
    }

    async fn import_via_daemon(&self, port: u16) -> Result<Vec<ImportAgentOutput>, ImportFault> {
        let failed = |fault: &dyn std::fmt::Display| ImportFault::Failed(fault.to_string());
        let endpoint = Endpoint::new(self.config.room_options().host, port);
        let api_key =
            home::environment_variable(self.environment, "NEXUS3_API_KEY").map_err(|fault| failed(&fault))?;
        let token =
            discover_token(&self.home, api_key.as_deref(), &endpoint).map_err(|fault| failed(&fault))?;
        let client = Client::new(endpoint, token);
        self.import_all(&client, |fault| match fault {
            ClientFault::Connect { .. } => ImportFault::NoDaemon(fault.to_string()),
            ClientFault::Rpc { status: 413, .. } => ImportFault::Failed(format!(
                "{fault}; stop the daemon and import without it, or raise limits.body_bytes_max"
            )),
            other => failed(&other),
        })
        .await
    }

    async fn import_offline(&self, store: Arc<dyn Store>) -> Result<Vec<ImportAgentOutput>, Failure> {
        let open_agents =
            store.agents_with_open_turns().await.map_err(|fault| Failure::Run(fault.to_string()))?;
        if !open_agents.is_empty() {
            store.close().await;
            // A pool would resume these turns, and this command would end before their responses arrive.
            return Err(Failure::Run(format!(
                "cannot import: {} agents have interrupted turns; start the daemon to resume them, then import",
                open_agents.len()
            )));
        }
        let assembly = Assembly::prepare(&self.home, self.config, self.environment).await?;
        let pool = assembly.open(store.clone()).await?;
        let dispatcher = Dispatcher::new(pool.clone(), DispatcherOptions { zone: TimeZone::system() });
        let api = InProcessApi::new(dispatcher);
        let imported = self.import_all(&api, |fault| ImportFault::Failed(fault.to_string())).await;
        pool.stop(Duration::ZERO).await;
        store.close().await;
        imported.map_err(|fault| Failure::Run(fault.to_string()))
    }

    async fn import_all<A: AgentApi>(
        &self,
        api: &A,
        explain: impl Fn(A::Fault) -> ImportFault,
    ) -> Result<Vec<ImportAgentOutput>, ImportFault> {
        let mut imported: Vec<ImportAgentOutput> = Vec::new();
        for SnapshotFile { display_name, document } in &self.snapshots {
            let params = ImportAgentParams { snapshot: document.clone(), agent_id: self.args.name.clone() };
            match api.import_agent(&params).await {
                Ok(output) => imported.push(output),
                Err(fault) => {
                    let remaining = roll_back(api, &imported).await;
                    return Err(explain(fault).with_context(display_name, &remaining));
                }
            }
        }
        Ok(imported)
    }
}

/// Destroys the agents imported before a file failed; returns the ids of those that could not be destroyed.
async fn roll_back<A: AgentApi>(api: &A, imported: &[ImportAgentOutput]) -> Vec<String> {
    let mut remaining = Vec::new();
    for ImportAgentOutput { agent_id, .. } in imported {
        let params = DestroyAgentParams { agent_id: agent_id.clone(), orphan: None };
        if api.destroy_agent(&params).await.is_err() {
            remaining.push(agent_id.clone());
        }
    }
    remaining
}

/// Why an import failed.
#[derive(Debug, thiserror::Error)]
enum ImportFault {
    /// No daemon responds.
    #[error("{0}")]
    NoDaemon(String),
    /// A file was rejected, or a request failed.
    #[error("{0}")]
    Failed(String),
}

impl ImportFault {
    fn with_context(self, file: &str, remaining: &[String]) -> Self {
        match (self, remaining) {
            (no_daemon @ ImportFault::NoDaemon(_), []) => no_daemon,
            (fault, []) => ImportFault::Failed(format!("{file}: {fault}; nothing was imported")),
            (fault, remaining) => ImportFault::Failed(format!(
                "{file}: {fault}; these agents were already imported and could not be removed: {}",
                remaining.join(", ")
            )),
        }
    }
}

fn report(snapshots: &[SnapshotFile], imported: &[ImportAgentOutput], as_json: bool) -> String {
    let pairs = snapshots.iter().zip(imported);
    if as_json {
        let rows: Vec<Value> = pairs
            .map(|(snapshot, output)| json!({ "file": snapshot.display_name, "agent": output }))
            .collect();
        return format!("{:#}\n", Value::from(rows));
    }
    let lines = pairs.map(|(snapshot, output)| {
        let ImportAgentOutput { agent_id, message_count, notes, .. } = output;
        let notes: String = notes.iter().map(|note| format!("  {note}\n")).collect();
        format!("{}: imported as {agent_id}, {message_count} messages\n{notes}", snapshot.display_name)
    });
    lines.collect()
}
