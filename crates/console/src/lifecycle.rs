//! The commands about what is kept of agents: listing, forking, taking back, renaming, and documents in and out.

use std::path::Path;

use nexus3_client::ClientFault;
use nexus3_protocol::methods::{
    ExportAgentParams, ForkAgentParams, ImportAgentParams, ListSessionsParams, PageOffset, PageSize,
    RenameAgentParams, RollbackAgentParams, spec,
};

use crate::Streams;
use crate::commands::{print, print_text};
use crate::connection::{ConnectionOptions, Failure};
use crate::snapshot_file::{input_label, read_snapshot};

pub(crate) async fn list(
    session: &ConnectionOptions,
    offset: Option<u64>,
    limit: Option<u64>,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let page = ListSessionsParams { offset: offset.map(PageOffset), limit: limit.map(PageSize) };
    print::<spec::ListSessions>(streams, &session.client().list_sessions(&page).await?)
}

pub(crate) async fn fork(
    session: &ConnectionOptions,
    agent_id: String,
    new_agent_id: Option<String>,
    messages: Option<u64>,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let params = ForkAgentParams { agent_id, new_agent_id, messages };
    print::<spec::ForkAgent>(streams, &session.client().fork_agent(&params).await?)
}

pub(crate) async fn rollback(
    session: &ConnectionOptions,
    agent_id: String,
    messages: u64,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let params = RollbackAgentParams { agent_id, messages };
    print::<spec::RollbackAgent>(streams, &session.client().rollback_agent(&params).await?)
}

pub(crate) async fn rename(
    session: &ConnectionOptions,
    agent_id: String,
    new_agent_id: String,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let params = RenameAgentParams { agent_id, new_agent_id };
    print::<spec::RenameAgent>(streams, &session.client().rename_agent(&params).await?)
}

/// Prints the document alone, so that what was printed can be imported.
pub(crate) async fn export(
    session: &ConnectionOptions,
    agent_id: String,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let output = session.client().export_agent(&ExportAgentParams { agent_id }).await?;
    let text = serde_json::to_string_pretty(&output.snapshot).map_err(Failure::write_failed)?;
    print_text(streams, &text)
}

pub(crate) async fn import(
    session: &ConnectionOptions,
    file: &Path,
    name: Option<String>,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let shown = input_label(file);
    let document = read_snapshot(file, streams.input).map_err(|fault| Failure::Message(fault.to_string()))?;
    let params = ImportAgentParams { snapshot: document, agent_id: name };
    let imported = session.client().import_agent(&params).await.map_err(|fault| match fault {
        ClientFault::Rpc { status: 413, error } => Failure::Message(format!(
            "{shown}: {error}; stop the daemon and use nexus3 import, or raise limits.body_bytes_max"
        )),
        ClientFault::Rpc { status: 200, error } => Failure::Message(format!("{shown}: {error}")),
        other => Failure::Call(other),
    })?;
    print::<spec::ImportAgent>(streams, &imported)
}
