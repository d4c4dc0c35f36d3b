//! `memory.delete`: deletes a key.

use agent::ToolClass;
use agent::outside::{CallSite, KeyValues};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fault_outcome;
use crate::definition::{Invocation, ToolDefinition, ToolResult, compact_json};
use crate::effects::{ValueChange, ValueEffects};

pub(crate) struct Delete;

/// Deletes a stored key. `deleted` says whether there was one.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The key.
    key: String,
}

#[derive(Serialize)]
struct Output {
    deleted: bool,
    key: String,
    success: bool,
}

impl ToolDefinition for Delete {
    type Input = Input;
    type Effects = ValueChange;
    const NAME: &'static str = "memory.delete";
    /// Not `Keyed`: a repeated deletion would report that there was nothing to delete.
    const CLASS: ToolClass = ToolClass::Once;

    fn effects(_input: &Input, _site: &CallSite<'_>) -> Result<ValueChange, String> {
        Ok(ValueEffects)
    }

    async fn run(input: Input, values: KeyValues, call: Invocation) -> ToolResult {
        let (key, at) = (input.key, call.dependencies.clock.now());
        let deleted = values.delete(key.clone(), at).await.map_err(|fault| fault_outcome(&fault))?;
        compact_json(&Output { deleted, key, success: true })
    }
}
