//! `process.list`: the background processes of the agent.

use agent::outside::CallSite;
use agent::{Concurrency, ToolClass};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::background::BackgroundProcess;
use super::result::Status;
use crate::definition::{Invocation, ToolDefinition, ToolResult, compact_json};
use crate::effects::NoEffects;

pub(crate) struct List;

/// Lists your background processes, oldest first: those that run, and the last that ended.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {}

#[derive(Serialize)]
struct Row<'a> {
    command: &'a str,
    id: &'a str,
    #[serde(flatten)]
    status: Status,
    unread_bytes: u64,
}

impl ToolDefinition for List {
    type Input = Input;
    type Effects = NoEffects;
    const NAME: &'static str = "process.list";
    const CONCURRENCY: Concurrency = Concurrency::Ordered;
    const CLASS: ToolClass = ToolClass::Pure;

    fn effects(_input: &Input, _site: &CallSite<'_>) -> Result<NoEffects, String> {
        Ok(NoEffects)
    }

    async fn run(_input: Input, _handle: (), call: Invocation) -> ToolResult {
        let processes = call.dependencies.commands.processes().processes_of(call.agent);
        let rows: Vec<Row<'_>> = processes.iter().map(|process| row(process)).collect();
        compact_json(&rows)
    }
}

fn row(process: &BackgroundProcess) -> Row<'_> {
    Row {
        command: &process.line.summary,
        id: &process.id,
        status: Status::of(process.exit().as_ref()),
        unread_bytes: process.unread_bytes(),
    }
}
