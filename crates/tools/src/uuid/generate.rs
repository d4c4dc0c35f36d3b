//! `uuid.generate`: random UUIDs, version 4.

use agent::ToolClass;
use agent::outside::{CallSite, Entropy};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::definition::{Invocation, ToolDefinition, ToolResult, execution_failed, pretty_json};
use crate::effects::NoEffects;

pub(crate) struct Generate;

/// Returns random UUIDs (version 4): one as plain text, several as a JSON array.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// How many UUIDs to return, at most 100.
    #[schemars(extend("default" = 1))]
    count: Option<i64>,
}

const COUNT_MAX: i64 = 100;

impl ToolDefinition for Generate {
    type Input = Input;
    type Effects = NoEffects;
    const NAME: &'static str = "uuid.generate";
    const IS_OFFERED_BY_DEFAULT: bool = false;
    const CLASS: ToolClass = ToolClass::Pure;

    fn effects(_input: &Input, _site: &CallSite<'_>) -> Result<NoEffects, String> {
        Ok(NoEffects)
    }

    async fn run(input: Input, _handle: (), call: Invocation) -> ToolResult {
        let generate = || random_uuid(&*call.dependencies.entropy);
        match input.count.unwrap_or(1) {
            ..=-1 | 1 => generate(),
            count => {
                pretty_json(&(0..count.min(COUNT_MAX)).map(|_| generate()).collect::<Result<Vec<_>, _>>()?)
            }
        }
    }
}

fn random_uuid(entropy: &dyn Entropy) -> ToolResult {
    let mut bytes = [0; 16];
    entropy.fill(&mut bytes).map_err(|fault| execution_failed(fault.public))?;
    let mut number = u128::from_be_bytes(bytes);
    // RFC 9562: version 4 in bits 48 to 51, variant 0b10 in bits 64 and 65, both counted from the front.
    number = number & !(0xf << 76) | (0x4 << 76);
    number = number & !(0x3 << 62) | (0x2 << 62);
    let hex = format!("{number:032x}");
    Ok([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
}
