//! `http.request`: sends an HTTP request.

use std::collections::BTreeMap;

use agent::outside::CallSite;
use agent::{Concurrency, ToolClass};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::egress::{FetchedResponse, OutgoingRequest};
use super::{PermittedConnection, media};
use crate::definition::{Invocation, SortedKeys, ToolDefinition, ToolResult, invalid_input, pretty_json};
use crate::effects::HostConnection;

pub(crate) struct Request;

/// Sends an HTTP request to an allowed host and returns status, headers and body as JSON. Follows up to 5 redirects to
/// allowed hosts.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The URL: http or https.
    url: String,
    /// GET, POST, PUT, DELETE, PATCH or HEAD.
    #[schemars(extend("default" = "GET"))]
    method: Option<String>,
    /// Headers by name.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    headers: BTreeMap<String, String>,
    /// The body as text.
    body: Option<String>,
    /// The body as JSON, instead of `body`; sets the content type.
    json: Option<Value>,
}

/// In alphabetical order: clients of the original parse the text.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Output<'a> {
    body: Body<'a>,
    headers: BTreeMap<&'a str, String>,
    size: usize,
    status: u16,
    status_text: &'static str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Body<'a> {
    Json(SortedKeys<'a>),
    Text(String),
}

impl ToolDefinition for Request {
    type Input = Input;
    type Effects = HostConnection;
    const NAME: &'static str = "http.request";
    const CONCURRENCY: Concurrency = Concurrency::Ordered;
    const CLASS: ToolClass = ToolClass::Once;
    const TIME_MS_MAX: u64 = 45_000;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<HostConnection, String> {
        outgoing(input).map_err(|why| format!("Invalid input: {why}"))?;
        HostConnection::new(&input.url, site)
    }

    async fn run(input: Input, connection: PermittedConnection, call: Invocation) -> ToolResult {
        let request = outgoing(&input).map_err(invalid_input)?;
        let response = connection.fetch(&call.dependencies.network, request).await?;
        format(&response)
    }
}

fn outgoing(input: &Input) -> Result<OutgoingRequest, String> {
    let body = match (&input.json, &input.body) {
        (Some(json), _) => json.to_string(),
        (None, body) => body.clone().unwrap_or_default(),
    };
    let headers = input.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let mut request =
        OutgoingRequest::new(input.method.as_deref().unwrap_or("GET"), headers, Bytes::from(body))?;
    if input.json.is_some() {
        request.set_content_type("application/json");
    }
    Ok(request)
}

fn format(response: &FetchedResponse) -> ToolResult {
    let media_type = response.header("content-type");
    let json: Option<Value> = serde_json::from_slice(&response.body).ok();
    let body = match &json {
        Some(json) => Body::Json(SortedKeys(json)),
        None => Body::Text(media::decode_text(media_type, &response.body).unwrap_or_else(|| {
            format!("[binary: {}, {} bytes; not shown]", media::essence(media_type), response.body.len())
        })),
    };
    let mut headers: BTreeMap<&str, String> = BTreeMap::new();
    for (name, value) in &response.headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        let joined = headers.entry(name.as_str()).or_default();
        if !joined.is_empty() {
            joined.push_str(", ");
        }
        joined.push_str(&value);
    }
    pretty_json(&Output {
        body,
        headers,
        size: response.body.len(),
        status: response.status,
        status_text: response.status_text,
    })
}
