//! `nexus3 import`: agents from session files, by the daemon that has the home's store, or without one. All files or
//! none.

use std::path::PathBuf;
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
use crate::{Failure, print_stdout};

/// A file that was read and found to be a session.
struct SnapshotFile {
    display_name: String,
    document: SnapshotDocument,
}

/// Imports the files and says what became of them.
pub(crate) fn run(
    args: &ImportArgs,
    home: PathBuf,
    config: &Config,
    environment: &Environment,
) -> Result<u8, Failure> {
    if args.name.is_some() && args.files.len() > 1 {
        return Err(Failure::Usage("--as gives one agent its name: import one file with it".to_owned()));
    }
    let mut input = std::io::stdin();
    let read = args.files.iter().map(|file| {
        let document = read_snapshot(file, &mut input).map_err(|fault| Failure::Run(fault.to_string()))?;
        Ok(SnapshotFile { display_name: input_label(file), document })
    });
    let sessions = read.collect::<Result<Vec<_>, Failure>>()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|fault| Failure::Run(format!("cannot start: {fault}")))?;
    let importing = Importer { args, home, config, environment, snapshots: sessions };
    let imported = runtime.block_on(importing.run())?;
    print_stdout(&report(&importing.snapshots, &imported, args.json))
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
            Err(Failure::StoreLocked(taken)) => {
                let port = self.config.port;
                self.import_via_daemon(port).await.map_err(|fault| match fault {
                    ImportFault::NoDaemon(_) => Failure::StoreLocked(format!(
                        "{taken}; it does not answer on port {port}: if it serves on another one, use nexus3 import -p PORT"
                    )),
                    other => Failure::Run(other.to_string()),
                })
            }
            Err(failure) => Err(failure),
        }
    }

    async fn import_via_daemon(&self, port: u16) -> Result<Vec<ImportAgentOutput>, ImportFault> {
        let said = |fault: &dyn std::fmt::Display| ImportFault::Failed(fault.to_string());
        let endpoint = Endpoint::new(&self.config.host, port);
        let api_key =
            home::environment_variable(self.environment, "NEXUS3_API_KEY").map_err(|fault| said(&fault))?;
        let token =
            discover_token(&self.home, api_key.as_deref(), &endpoint).map_err(|fault| said(&fault))?;
        let client = Client::new(endpoint, token);
        self.import_all(&client, |fault| match fault {
            ClientFault::Connect { .. } => ImportFault::NoDaemon(fault.to_string()),
            ClientFault::Rpc { status: 413, .. } => ImportFault::Failed(format!(
                "{fault}; stop the daemon and import without it, or raise limits.body_bytes_max"
            )),
            other => said(&other),
        })
        .await
    }

    async fn import_offline(
        &self,
        store: std::sync::Arc<store::SqliteStore>,
    ) -> Result<Vec<ImportAgentOutput>, Failure> {
        let unsettled =
            store.agents_with_open_turns().await.map_err(|fault| Failure::Run(fault.to_string()))?;
        if !unsettled.is_empty() {
            store.close().await;
            // A pool would go on with them, and nobody would be there for their answers.
            return Err(Failure::Run(format!(
                "agents with turns that were cut off: {}; start the daemon, which settles them, and import then",
                unsettled.len()
            )));
        }
        let pool = Assembly::prepare(&self.home, self.config, self.environment)?.open(store.clone()).await?;
        let desk = Dispatcher::new(pool.clone(), DispatcherOptions { zone: TimeZone::system() });
        let imported =
            self.import_all(&InProcessApi::new(desk), |fault| ImportFault::Failed(fault.to_string())).await;
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
        for SnapshotFile { display_name: shown, document } in &self.snapshots {
            let params = ImportAgentParams { snapshot: document.clone(), agent_id: self.args.name.clone() };
            match api.import_agent(&params).await {
                Ok(output) => imported.push(output),
                Err(fault) => {
                    let left = roll_back(api, &imported).await;
                    return Err(explain(fault).with_context(shown, &left));
                }
            }
        }
        Ok(imported)
    }
}

/// Destroys what was imported before a file was refused; gives the names of those that are still there.
async fn roll_back<A: AgentApi>(api: &A, imported: &[ImportAgentOutput]) -> Vec<String> {
    let mut left = Vec::new();
    for ImportAgentOutput { agent_id, .. } in imported {
        let params = DestroyAgentParams { agent_id: agent_id.clone(), orphan: None };
        if api.destroy_agent(&params).await.is_err() {
            left.push(agent_id.clone());
        }
    }
    left
}

/// Why nothing was imported.
#[derive(Debug, thiserror::Error)]
enum ImportFault {
    /// Nobody answers.
    #[error("{0}")]
    NoDaemon(String),
    /// Refused, or broken.
    #[error("{0}")]
    Failed(String),
}

impl ImportFault {
    fn with_context(self, shown: &str, left: &[String]) -> Self {
        match (self, left) {
            (no_daemon @ ImportFault::NoDaemon(_), []) => no_daemon,
            (fault, []) => ImportFault::Failed(format!("{shown}: {fault}; nothing was imported")),
            (fault, left) => ImportFault::Failed(format!(
                "{shown}: {fault}; imported before it and still there: {}",
                left.join(", ")
            )),
        }
    }
}

fn report(sessions: &[SnapshotFile], imported: &[ImportAgentOutput], as_json: bool) -> String {
    let pairs = sessions.iter().zip(imported);
    if as_json {
        let all: Vec<Value> =
            pairs.map(|(session, output)| json!({ "file": session.display_name, "agent": output })).collect();
        return format!("{:#}\n", Value::from(all));
    }
    let lines = pairs.map(|(session, output)| {
        let ImportAgentOutput { agent_id, message_count, notes, .. } = output;
        let notes: String = notes.iter().map(|note| format!("  {note}\n")).collect();
        format!("{}: imported as {agent_id}, {message_count} messages\n{notes}", session.display_name)
    });
    lines.collect()
}
