//! `fs.read_file`: reads a text file, or a range of its lines.

use std::io::{BufRead, BufReader};

use agent::ToolClass;
use agent::outside::CallSite;
use schemars::JsonSchema;
use serde::Deserialize;

use super::CONTENT_BYTES_MAX;
use super::beneath_root::{ReadableFile, binary_file, is_binary};
use crate::blocking::{CancelFlag, run_blocking};
use crate::definition::{Invocation, ToolDefinition, ToolResult, execution_failed};
use crate::effects::FileRead;

pub(crate) struct ReadFile;

/// Reads a text file, or some of its lines. A long result is cut between two lines and ends with the offset to continue
/// with.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The file, relative to your working directory or absolute.
    path: String,
    /// The first line to return, counted from 1.
    offset: Option<u64>,
    /// How many lines to return. Default: as many as fit into 1 MB.
    limit: Option<u64>,
}

const CHUNK_BYTES: usize = 64 << 10;

/// Maximum size of a result without `limit`. Smaller than the runtime's limit of results, which cuts at any byte and
/// knows no line numbers.
const UNLIMITED_BYTES_MAX: usize = 1_000_000;

impl ToolDefinition for ReadFile {
    type Input = Input;
    type Effects = FileRead;
    const NAME: &'static str = "fs.read_file";
    const ALIASES: &'static [&'static str] = &["read_file"];
    const CLASS: ToolClass = ToolClass::Pure;

    fn effects(input: &Input, site: &CallSite<'_>) -> Result<FileRead, String> {
        if input.offset == Some(0) {
            return Err("Invalid input: field `offset`: lines are counted from 1".to_owned());
        }
        FileRead::new(&input.path, site)
    }

    async fn run(input: Input, file: ReadableFile, _call: Invocation) -> ToolResult {
        run_blocking(move |stop| read_lines(&file, LineSelection::from_input(&input), stop)).await
    }
}

fn read_lines(file: &ReadableFile, mut selection: LineSelection, stop: &CancelFlag) -> ToolResult {
    let mut reader = BufReader::with_capacity(CHUNK_BYTES, file.open()?);
    while !selection.is_done() {
        stop.check()?;
        let chunk = reader.fill_buf().map_err(|fault| file.io_outcome(&fault))?;
        if chunk.is_empty() {
            break;
        }
        let used = selection.consume(chunk);
        reader.consume(used);
    }
    selection.into_text(file.requested_path(), || reader.get_ref().size())
}

/// Selects a range of lines from a file that may be far longer.
struct LineSelection {
    first: u64,
    /// The exclusive end of the range.
    end: u64,
    /// The number of the current line.
    line: u64,
    /// Whether a part of the current line was consumed.
    is_mid_line: bool,
    bytes: Vec<u8>,
    bytes_max: usize,
    /// Where the current line begins in the bytes.
    line_start: usize,
    is_truncated: bool,
    /// Whether the part before the range is binary.
    is_binary: bool,
}

impl LineSelection {
    fn from_input(input: &Input) -> Self {
        let first = input.offset.unwrap_or(1);
        Self {
            first,
            end: input.limit.map_or(u64::MAX, |limit| first.saturating_add(limit)),
            line: 1,
            is_mid_line: false,
            bytes: Vec::new(),
            bytes_max: if input.limit.is_some() { CONTENT_BYTES_MAX } else { UNLIMITED_BYTES_MAX },
            line_start: 0,
            is_truncated: false,
            is_binary: false,
        }
    }

    fn is_done(&self) -> bool {
        self.is_truncated || self.is_binary || self.line >= self.end
    }

    /// Consumes at most one line of the chunk. Returns the number of bytes consumed.
    fn consume(&mut self, chunk: &[u8]) -> usize {
        let newline = chunk.iter().position(|byte| *byte == b'\n');
        let used = newline.map_or(chunk.len(), |position| position + 1);
        if self.line >= self.first {
            let remaining = self.bytes_max - self.bytes.len();
            self.is_truncated = used > remaining;
            self.bytes.extend_from_slice(&chunk[..used.min(remaining)]);
        } else {
            self.is_binary = is_binary(&chunk[..used]);
        }
        if self.is_truncated {
            return used;
        }
        self.is_mid_line = newline.is_none();
        if newline.is_some() {
            self.line += 1;
            self.line_start = self.bytes.len();
        }
        used
    }

    fn into_text(mut self, requested: &str, size: impl FnOnce() -> u64) -> ToolResult {
        if self.is_binary || is_binary(&self.bytes) {
            return Err(binary_file(requested));
        }
        let lines = self.line - u64::from(!self.is_mid_line && !self.is_truncated);
        if self.first > lines.max(1) && self.first < self.end {
            return Err(execution_failed(format!(
                "offset {} is beyond the end of {requested}: it has {lines} lines",
                self.first
            )));
        }
        if self.line_start > 0 && self.is_truncated {
            self.bytes.truncate(self.line_start);
        }
        let mut text = decode_utf8(self.bytes, self.is_truncated).ok_or_else(|| binary_file(requested))?;
        if self.is_truncated {
            let (shown, line) = (text.len(), self.line);
            let size = size().max(shown as u64);
            let read_on = match self.line_start {
                0 => format!("line {line} is too long to be read; continue with offset {}", line + 1),
                _ => format!("continue with offset {line}"),
            };
            let separator = if text.ends_with('\n') { "" } else { "\n" };
            text.push_str(&format!("{separator}[truncated: {shown} of {size} bytes shown; {read_on}]"));
        }
        Ok(text)
    }
}

/// Decodes the bytes as UTF-8; a truncated text may end with an incomplete character, which is dropped.
fn decode_utf8(bytes: Vec<u8>, is_truncated: bool) -> Option<String> {
    String::from_utf8(bytes)
        .or_else(|fault| {
            let valid_bytes = fault.utf8_error().valid_up_to();
            let is_incomplete = is_truncated && fault.utf8_error().error_len().is_none();
            let mut bytes = fault.into_bytes();
            bytes.truncate(valid_bytes);
            if is_incomplete { String::from_utf8(bytes).map_err(drop) } else { Err(()) }
        })
        .ok()
}
