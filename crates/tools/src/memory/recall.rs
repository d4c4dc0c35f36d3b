//! `memory.recall`: reads the value of a key.

use agent::ToolClass;
use agent::outside::{CallSite, KeyValues, StoredValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fault_outcome;
use crate::definition::{Invocation, SortedKeys, ToolDefinition, ToolResult, compact_json, execution_failed};
use crate::effects::{ValueEffects, ValueRead};
use crate::time::rfc3339;

pub(crate) struct Recall;

/// Reads the value that was stored under a key.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The key.
    key: String,
}

#[derive(Serialize)]
struct Found<'a> {
    created_at: String,
    found: bool,
    key: &'a str,
    updated_at: String,
    value: SortedKeys<'a>,
}

#[derive(Serialize)]
struct Missing<'a> {
    found: bool,
    key: &'a str,
}

impl ToolDefinition for Recall {
    type Input = Input;
    type Effects = ValueRead;
    const NAME: &'static str = "memory.recall";
    const CLASS: ToolClass = ToolClass::Pure;

    fn effects(_input: &Input, _site: &CallSite<'_>) -> Result<ValueRead, String> {
        Ok(ValueEffects)
    }

    async fn run(input: Input, values: KeyValues, call: Invocation) -> ToolResult {
        let (key, at) = (input.key, call.dependencies.clock.now());
        let found = values.recall(key.clone(), at).await.map_err(|fault| fault_outcome(&fault))?;
        let Some(StoredValue { json, created_at, updated_at, .. }) = found else {
            return compact_json(&Missing { found: false, key: &key });
        };
        let value: Value = serde_json::from_str(&json).map_err(execution_failed)?;
        let (created_at, updated_at) = (rfc3339(created_at)?, rfc3339(updated_at)?);
        compact_json(&Found { created_at, found: true, key: &key, updated_at, value: SortedKeys(&value) })
    }
}
