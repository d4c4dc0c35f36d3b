//! `memory.list`: lists the stored keys.

use agent::ToolClass;
use agent::outside::{CallSite, KeyValues};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fault_outcome;
use crate::definition::{Invocation, ToolDefinition, ToolResult, compact_json};
use crate::effects::{ValueEffects, ValueRead};

pub(crate) struct List;

/// Lists the stored keys in order, at most 500 at a time. If the result has `next`, pass it as `after` to read on.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// Only keys that begin with this text.
    prefix: Option<String>,
    /// Only keys after this one.
    after: Option<String>,
}

#[derive(Serialize)]
struct Output {
    count: usize,
    keys: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl ToolDefinition for List {
    type Input = Input;
    type Effects = ValueRead;
    const NAME: &'static str = "memory.list";
    const CLASS: ToolClass = ToolClass::Pure;

    fn effects(_input: &Input, _site: &CallSite<'_>) -> Result<ValueRead, String> {
        Ok(ValueEffects)
    }

    async fn run(input: Input, values: KeyValues, call: Invocation) -> ToolResult {
        let at = call.dependencies.clock.now();
        let page = values.list(input.prefix.unwrap_or_default(), input.after, at).await;
        let page = page.map_err(|fault| fault_outcome(&fault))?;
        let next = page.keys.last().filter(|_| page.has_more).cloned();
        compact_json(&Output { count: page.keys.len(), keys: page.keys, next })
    }
}
