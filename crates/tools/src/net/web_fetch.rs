//! `web.fetch`: a web page as Markdown.

use agent::ToolClass;
use agent::outside::CallSite;
use schemars::JsonSchema;
use serde::Deserialize;

use super::egress::{FetchedResponse, OutgoingRequest};
use super::{PermittedConnection, markdown, media};
use crate::blocking::{CancelFlag, run_blocking};
use crate::definition::{Invocation, ToolDefinition, ToolResult, execution_failed};
use crate::effects::HostConnection;

pub(crate) struct Fetch;

/// Fetches a web page from an allowed host and returns it as Markdown; other text as it is. A long page is returned in
/// parts: the end of each says which offset comes next.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The URL: http or https.
    url: String,
    /// The byte of the page to start at.
    #[serde(default)]
    #[schemars(extend("default" = 0))]
    offset: usize,
    /// The most bytes to return: at least 1000, at most 200000.
    #[schemars(extend("default" = 30000))]
    max_bytes: Option<usize>,
}

const PART_BYTES_DEFAULT: usize = 30_000;
const PART_BYTES_MIN: usize = 1_000;
const PART_BYTES_MAX: usize = 200_000;

const ACCEPT: &str = "text/html, application/xhtml+xml;q=0.9, text/*;q=0.8, */*;q=0.1";

impl ToolDefinition for Fetch {
    type Input = Input;
    type Effects = HostConnection;
    const NAME: &'static str = "web.fetch";
    const CLASS: ToolClass = ToolClass::Pure;
    const TIME_MS_MAX: u64 = 45_000;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<HostConnection, String> {
        HostConnection::new(&input.url, site)
    }

    async fn run(input: Input, connection: PermittedConnection, call: Invocation) -> ToolResult {
        let mut request = OutgoingRequest::get();
        request.set_default_header("accept", ACCEPT);
        let response = connection.fetch(&call.dependencies.network, request).await?;
        if response.status >= 400 {
            let (status, text) = (response.status, response.status_text);
            return Err(execution_failed(format!("{} responded {status} {text}", response.url)));
        }
        let (offset, max) = (input.offset, input.max_bytes.unwrap_or(PART_BYTES_DEFAULT));
        run_blocking(move |stop| part(&response, offset, max.clamp(PART_BYTES_MIN, PART_BYTES_MAX), stop))
            .await
    }
}

/// The part of a page from an offset on.
fn part(response: &FetchedResponse, offset: usize, bytes_max: usize, stop: &CancelFlag) -> ToolResult {
    let media_type = response.header("content-type");
    let essence = media::essence(media_type);
    let Some(text) = media::decode_text(media_type, &response.body) else {
        let shown = if essence.is_empty() { "unknown type" } else { &essence };
        return Ok(format!("{}\n[binary: {shown}, {} bytes; not shown]", response.url, response.body.len()));
    };
    let (title, text) = if media::is_html(media_type, &response.body) {
        let page = markdown::convert(&text, &response.url, stop)?;
        (page.title, page.markdown)
    } else {
        (String::new(), text)
    };
    if offset > 0 && offset >= text.len() {
        return Err(execution_failed(format!(
            "offset {offset} is beyond the end: the page has {} bytes",
            text.len()
        )));
    }
    let start = text.floor_char_boundary(offset);
    let end = text.floor_char_boundary(start.saturating_add(bytes_max));
    let heading = if title.is_empty() { response.url.clone() } else { format!("{title}\n{}", response.url) };
    let note = match end < text.len() {
        true => format!("\n\n[bytes {start} to {end} of {}; continue with offset {end}]", text.len()),
        false => String::new(),
    };
    Ok(format!("{heading}\n\n{}{note}", &text[start..end]))
}
