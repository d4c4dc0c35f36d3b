//! The commands that list, fork, roll back, rename, export and import stored agents.

use std::path::Path;

use nexus3_client::ClientFault;
use nexus3_protocol::methods::{
    ExportAgentParams, ForkAgentParams, ImportAgentParams, ListSessionsParams, PageOffset, PageSize,
    RenameAgentParams, RollbackAgentParams, UndoTurnParams, spec,
};

use crate::Streams;
use crate::commands::{print, print_text};
use crate::connection::{ConnectionOptions, Failure};
use crate::snapshot_file::{input_label, read_snapshot};

pub(crate) async fn list(
    connection: &ConnectionOptions,
    offset: Option<u64>,
    limit: Option<u64>,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let page = ListSessionsParams { offset: offset.map(PageOffset), limit: limit.map(PageSize) };
    print::<spec::ListSessions>(streams, &connection.client().list_sessions(&page).await?)
}

pub(crate) async fn fork(
    connection: &ConnectionOptions,
    agent_id: String,
    new_agent_id: Option<String>,
    messages: Option<u64>,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let params = ForkAgentParams { agent_id, new_agent_id, messages };
    print::<spec::ForkAgent>(streams, &connection.client().fork_agent(&params).await?)
}

pub(crate) async fn rollback(
    connection: &ConnectionOptions,
    agent_id: String,
    messages: u64,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let params = RollbackAgentParams { agent_id, messages };
    print::<spec::RollbackAgent>(streams, &connection.client().rollback_agent(&params).await?)
}

pub(crate) async fn undo(
    connection: &ConnectionOptions,
    agent_id: String,
    turn: Option<u64>,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let params = UndoTurnParams { agent_id, turn };
    print::<spec::UndoTurn>(streams, &connection.client().undo_turn(&params).await?)
}

pub(crate) async fn rename(
    connection: &ConnectionOptions,
    agent_id: String,
    new_agent_id: String,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let params = RenameAgentParams { agent_id, new_agent_id };
    print::<spec::RenameAgent>(streams, &connection.client().rename_agent(&params).await?)
}

/// Prints only the document, so that the output can be imported.
pub(crate) async fn export(
    connection: &ConnectionOptions,
    agent_id: String,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let output = connection.client().export_agent(&ExportAgentParams { agent_id }).await?;
    let text = serde_json::to_string_pretty(&output.snapshot).map_err(Failure::write_failed)?;
    print_text(streams, &text)
}

pub(crate) async fn import(
    connection: &ConnectionOptions,
    file: &Path,
    name: Option<String>,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let label = input_label(file);
    let document = read_snapshot(file, streams.input).map_err(|fault| Failure::Message(fault.to_string()))?;
    let params = ImportAgentParams { snapshot: document, agent_id: name };
    let imported = connection.client().import_agent(&params).await.map_err(|fault| match fault {
        ClientFault::Rpc { status: 413, error } => Failure::Message(format!(
            "{label}: {error}; stop the daemon and use nexus3 import, or raise limits.body_bytes_max"
        )),
        ClientFault::Rpc { status: 200, error } => Failure::Message(format!("{label}: {error}")),
        other => Failure::Call(other),
    })?;
    print::<spec::ImportAgent>(streams, &imported)
}
