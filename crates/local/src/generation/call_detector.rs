//! Detects tool calls without the `<tool_call>` tag: models write `{"name": "tool", …}` bare or in a code fence, at the
//! start of a response or of a line, and sometimes with an unknown tool. Only text that may still become a call is held
//! back; all other text is emitted at once.

use super::ChatTool;

/// Longest tool name; a longer one is not a call.
const NAME_BYTES_MAX: usize = 128;
/// Longest info string of a code fence.
const INFO_STRING_BYTES_MAX: usize = 16;
const FENCE: &str = "```";
/// Keys that models use for a call's arguments.
const ARGUMENT_KEYS: [&str; 4] = ["\"arguments\"", "\"parameters\"", "\"args\"", "\"input\""];

/// Line-based detector of untagged tool calls in generated text.
#[derive(Debug)]
pub(crate) struct CallDetector<'a> {
    tools: &'a [ChatTool],
    /// Held-back text that may begin a call.
    pending: String,
    is_inside_line: bool,
    is_inside_code: bool,
}

/// Output of the detector.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DetectorOutput {
    /// Text that is not part of a call.
    Text(String),
    /// Text before a call, and the number of bytes after it that begin the call.
    Call(String, usize),
}

/// Whether a text begins a call; ordered from best to worst match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CallMatch {
    Certain,
    Possible,
    Impossible,
}

impl<'a> CallDetector<'a> {
    /// Creates a detector; without `tools` it passes all text through.
    pub(crate) fn new(tools: &'a [ChatTool]) -> Self {
        Self { tools, pending: String::new(), is_inside_line: false, is_inside_code: false }
    }

    /// Processes the next text.
    pub(crate) fn push(&mut self, text: &str) -> DetectorOutput {
        self.pending.push_str(text);
        let mut text = String::new();
        if self.tools.is_empty() {
            return DetectorOutput::Text(self.flush());
        }
        loop {
            if self.is_inside_line {
                let Some(at) = self.pending.find('\n') else {
                    return DetectorOutput::Text(text + &self.flush());
                };
                text.extend(self.pending.drain(..=at));
                self.is_inside_line = false;
            }
            match self.match_pending() {
                CallMatch::Certain => return DetectorOutput::Call(text, self.flush().len()),
                CallMatch::Possible => return DetectorOutput::Text(text),
                CallMatch::Impossible => self.is_inside_line = true,
            }
            if self.pending.trim_start_matches(' ').starts_with(FENCE) {
                self.is_inside_code = !self.is_inside_code;
            }
        }
    }

    /// Returns and clears the held-back text.
    pub(crate) fn flush(&mut self) -> String {
        std::mem::take(&mut self.pending)
    }

    fn match_pending(&self) -> CallMatch {
        if !self.is_inside_code {
            return match_call_start(&self.pending, self.tools).err().unwrap_or(CallMatch::Certain);
        }
        // Inside a code block only the closing fence matters.
        match strip_literal(self.pending.trim_start_matches(' '), FENCE) {
            Err(CallMatch::Possible) => CallMatch::Possible,
            _ => CallMatch::Impossible,
        }
    }
}

/// Checks whether `text` begins a call: `Ok` if it certainly does. A known tool's name suffices; an unknown name must
/// be followed by arguments.
fn match_call_start(text: &str, tools: &[ChatTool]) -> Result<(), CallMatch> {
    let text = text.trim_start();
    let text = match strip_literal(text, FENCE) {
        Ok(info) => strip_info_string(info)?,
        Err(CallMatch::Possible) => return Err(CallMatch::Possible),
        Err(_) => text,
    };
    let text = text.strip_prefix('[').unwrap_or(text).trim_start();
    let text = strip_literal(text, "{")?;
    // Some models double the braces, as in escaped format strings.
    let text = text.strip_prefix('{').unwrap_or(text);
    let text = strip_literal(text.trim_start(), "\"name\"")?;
    let text = strip_literal(text.trim_start(), ":")?;
    let text = strip_literal(text.trim_start(), "\"")?;
    let name = text.split('"').next().unwrap_or_default();
    if name.len() > NAME_BYTES_MAX || name.contains('\n') {
        return Err(CallMatch::Impossible);
    }
    let text = strip_literal(&text[name.len()..], "\"")?;
    if tools.iter().any(|tool| tool.name == name) {
        return Ok(());
    }
    let text = strip_literal(text.trim_start(), ",")?.trim_start();
    let matches = ARGUMENT_KEYS.map(|key| strip_literal(text, key).err().unwrap_or(CallMatch::Certain));
    match matches.into_iter().min() {
        Some(CallMatch::Certain) => Ok(()),
        best => Err(best.unwrap_or(CallMatch::Impossible)),
    }
}

/// Strips the info string after a code fence; `Possible` if the text ends within it.
fn strip_info_string(text: &str) -> Result<&str, CallMatch> {
    let is_info = |character: char| character.is_ascii_alphanumeric() || "_-+".contains(character);
    let rest = text.trim_start_matches(is_info);
    match rest.chars().next() {
        _ if text.len() - rest.len() > INFO_STRING_BYTES_MAX => Err(CallMatch::Impossible),
        None => Err(CallMatch::Possible),
        Some(character) if character.is_whitespace() || "[{".contains(character) => Ok(rest.trim_start()),
        Some(_) => Err(CallMatch::Impossible),
    }
}

/// Strips `literal` from the start of `text`; `Possible` if the text ends within the literal.
fn strip_literal<'a>(text: &'a str, literal: &str) -> Result<&'a str, CallMatch> {
    match text.strip_prefix(literal) {
        Some(rest) => Ok(rest),
        None if literal.starts_with(text) => Err(CallMatch::Possible),
        None => Err(CallMatch::Impossible),
    }
}

#[cfg(test)]
mod tests;
