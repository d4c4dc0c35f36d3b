//! `agent_create`: creates a child.

use std::sync::Arc;

use agent::outside::{CallSite, CreatedPeer, NewPeer};
use agent::permission::Effect;
use agent::{Concurrency, ToolClass};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::json_types::{AgentIdArgument, MessageReply, QUEUED, RequestIdArgument};
use super::{WAIT_MS_MAX, fault_outcome};
use crate::definition::{Invocation, ToolDefinition, ToolResult, compact_json};

pub(crate) struct Create;

/// Creates a child agent that works for you, and can give it a first message.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The child's name: 1 to 63 letters, digits, dots, underscores and hyphens. Made up when left out.
    agent_id: Option<AgentIdArgument>,
    /// What the child may do: the name of a permission preset.
    preset: Option<String>,
    /// The child's system prompt.
    system_prompt: Option<String>,
    /// Tools that the child may not call.
    disable_tools: Option<Vec<String>>,
    /// The child's working directory; yours when left out.
    cwd: Option<String>,
    /// Folders and files that the child may write.
    allowed_write_paths: Option<Vec<String>>,
    /// The child's model.
    model: Option<String>,
    /// The child's first message.
    initial_message: Option<String>,
    /// Whether to wait for the answer to the first message.
    #[schemars(extend("default" = false))]
    wait_for_initial_response: Option<bool>,
}

#[derive(Serialize)]
struct Output {
    agent_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    initial_request_id: Option<RequestIdArgument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    initial_status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<Response>,
    url: String,
}

/// The child is there even when its first turn failed, so the failure is a part of the answer.
#[derive(Serialize)]
#[serde(untagged)]
enum Response {
    Reply(MessageReply),
    Failure { error: String },
}

impl ToolDefinition for Create {
    type Input = Input;
    const NAME: &'static str = "agent_create";
    const ALIASES: &'static [&'static str] = &["nexus_create"];
    const CONCURRENCY: Concurrency = Concurrency::Waiting;
    const CLASS: ToolClass = ToolClass::Once;
    const TIME_MS_MAX: u64 = WAIT_MS_MAX;

    fn effects(input: &Input, scene: &CallSite<'_>) -> Result<Vec<Effect>, String> {
        let lineage = (scene.preset_inheritance)(input.preset.as_deref());
        if lineage.is_empty() {
            let preset = input.preset.as_deref().unwrap_or_default();
            let shown: String = preset.chars().take(64).collect();
            return Err(format!("Invalid input: unknown preset '{shown}'"));
        }
        Ok(vec![Effect::Create(lineage)])
    }

    async fn run(input: Input, call: Invocation) -> ToolResult {
        let peers = Arc::clone(&call.context.peers);
        let new = NewPeer {
            id: input.agent_id.map(|name| name.0),
            preset: input.preset,
            system_prompt: input.system_prompt,
            disable_tools: input.disable_tools.unwrap_or_default(),
            cwd: input.cwd,
            write_paths: input.allowed_write_paths,
            model: input.model,
            initial_message: input.initial_message,
            wait: input.wait_for_initial_response.unwrap_or(false),
        };
        compact_json(&output(peers.create(new).await.map_err(fault_outcome)?))
    }
}

fn output(created: CreatedPeer) -> Output {
    let is_left = created.initial_request_id.is_some() && created.response.is_none();
    let response = created.response.map(|response| match response {
        Ok(answer) => Response::Reply(answer.into()),
        Err(fault) => Response::Failure { error: fault.public.into_owned() },
    });
    Output {
        url: format!("/agent/{}", created.id),
        agent_id: created.id.to_string(),
        initial_request_id: created.initial_request_id.map(RequestIdArgument::from),
        initial_status: is_left.then_some(QUEUED),
        response,
    }
}
