//! `memory.store`: stores a value under a key.

use agent::ToolClass;
use agent::outside::{CallSite, KeyValues};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fault_outcome;
use crate::definition::{Invocation, SortedKeys, ToolDefinition, ToolResult, compact_json};
use crate::effects::{ValueChange, ValueEffects};

pub(crate) struct Store;

/// Stores a value under a key, for you and all agents of your tree, beyond this conversation. Replaces an earlier value.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The key, of at most 512 bytes.
    key: String,
    /// Any JSON value, of at most 64 KiB.
    value: Value,
    /// Seconds until the entry expires; never by default.
    ttl_secs: Option<u64>,
}

#[derive(Serialize)]
struct Output {
    key: String,
    stored: bool,
    success: bool,
}

impl ToolDefinition for Store {
    type Input = Input;
    type Effects = ValueChange;
    const NAME: &'static str = "memory.store";
    const CLASS: ToolClass = ToolClass::Keyed;

    fn effects(_input: &Input, _site: &CallSite<'_>) -> Result<ValueChange, String> {
        Ok(ValueEffects)
    }

    async fn run(input: Input, values: KeyValues, call: Invocation) -> ToolResult {
        let Input { key, value, ttl_secs } = input;
        let (json, at) = (compact_json(&SortedKeys(&value))?, call.dependencies.clock.now());
        values.store(key.clone(), json, ttl_secs, at).await.map_err(|fault| fault_outcome(&fault))?;
        compact_json(&Output { key, stored: true, success: true })
    }
}
