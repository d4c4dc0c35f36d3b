//! Wire format of a chat request. `request` validates it.

use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
pub(super) struct ChatIn {
    pub(super) model: Option<String>,
    pub(super) messages: Vec<MessageIn>,
    pub(super) tools: Option<Vec<ToolIn>>,
    pub(super) tool_choice: Option<ToolChoiceIn>,
    pub(super) response_format: Option<ResponseFormatIn>,
    pub(super) max_tokens: Option<u64>,
    pub(super) max_completion_tokens: Option<u64>,
    pub(super) temperature: Option<f64>,
    pub(super) top_p: Option<f64>,
    pub(super) seed: Option<i64>,
    pub(super) stop: Option<StopIn>,
    pub(super) stream: Option<bool>,
    pub(super) stream_options: Option<StreamOptionsIn>,
    pub(super) n: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct MessageIn {
    pub(super) role: String,
    pub(super) content: Option<ContentIn>,
    pub(super) tool_calls: Option<Vec<CallIn>>,
    pub(super) tool_call_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "content must be a string or an array of parts, each with a type")]
pub(super) enum ContentIn {
    Text(String),
    Parts(Vec<PartIn>),
}

#[derive(Deserialize)]
pub(super) struct PartIn {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) text: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct CallIn {
    pub(super) id: String,
    pub(super) function: CalledFunctionIn,
}

#[derive(Deserialize)]
pub(super) struct CalledFunctionIn {
    pub(super) name: String,
    pub(super) arguments: String,
}

#[derive(Deserialize)]
pub(super) struct ToolIn {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) function: Option<FunctionIn>,
}

#[derive(Deserialize)]
pub(super) struct FunctionIn {
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) parameters: Option<Value>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "tool_choice must be auto, none, required or a function with its name")]
pub(super) enum ToolChoiceIn {
    Mode(String),
    Named { function: NameIn },
}

#[derive(Deserialize)]
pub(super) struct NameIn {
    pub(super) name: String,
}

#[derive(Deserialize)]
pub(super) struct ResponseFormatIn {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) json_schema: Option<NamedSchemaIn>,
}

#[derive(Deserialize)]
pub(super) struct NamedSchemaIn {
    pub(super) schema: Option<Value>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "stop must be a string or an array of strings")]
pub(super) enum StopIn {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
pub(super) struct StreamOptionsIn {
    pub(super) include_usage: Option<bool>,
}
