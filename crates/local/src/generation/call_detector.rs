//! Where a free answer turns into a call without its marker: models write `{"name": "tool", …}` bare or in a code
//! fence, first thing or on a line of its own, and now and then with a tool that nobody offered. Only what may
//! still become a call is held back; everything else is said at once.

use super::ChatTool;

/// The longest name of a tool that is waited for.
const NAME_BYTES_MAX: usize = 128;
/// The longest word behind a fence.
const INFO_STRING_BYTES_MAX: usize = 16;
const FENCE: &str = "```";
/// What models call the arguments of a call.
const ARGUMENT_KEYS: [&str; 4] = ["\"arguments\"", "\"parameters\"", "\"args\"", "\"input\""];

/// Watches the text of an answer, line by line.
#[derive(Debug)]
pub(crate) struct CallDetector<'a> {
    tools: &'a [ChatTool],
    /// What may begin a call.
    pending: String,
    is_inside_line: bool,
    is_inside_code: bool,
}

/// What came of some text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DetectorOutput {
    /// This text is certain.
    Text(String),
    /// This text is certain, and what follows it, so many bytes, begins a call.
    Call(String, usize),
}

/// From what is certain to what is out of the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CallMatch {
    Certain,
    Possible,
    Impossible,
}

impl<'a> CallDetector<'a> {
    /// Watches for calls; without `tools` there are none.
    pub(crate) fn new(tools: &'a [ChatTool]) -> Self {
        Self { tools, pending: String::new(), is_inside_line: false, is_inside_code: false }
    }

    /// Takes the next text.
    pub(crate) fn push(&mut self, text: &str) -> DetectorOutput {
        self.pending.push_str(text);
        let mut said = String::new();
        if self.tools.is_empty() {
            return DetectorOutput::Text(self.drain_pending());
        }
        loop {
            if self.is_inside_line {
                let Some(at) = self.pending.find('\n') else {
                    return DetectorOutput::Text(said + &self.drain_pending());
                };
                said.extend(self.pending.drain(..=at));
                self.is_inside_line = false;
            }
            match self.match_pending() {
                CallMatch::Certain => return DetectorOutput::Call(said, self.drain_pending().len()),
                CallMatch::Possible => return DetectorOutput::Text(said),
                CallMatch::Impossible => self.is_inside_line = true,
            }
            if self.pending.trim_start_matches(' ').starts_with(FENCE) {
                self.is_inside_code = !self.is_inside_code;
            }
        }
    }

    /// What is held back, at the end.
    pub(crate) fn drain_pending(&mut self) -> String {
        std::mem::take(&mut self.pending)
    }

    fn match_pending(&self) -> CallMatch {
        if !self.is_inside_code {
            return match_call_start(&self.pending, self.tools).err().unwrap_or(CallMatch::Certain);
        }
        // Code stays what it is; only its end is looked for.
        match strip_literal(self.pending.trim_start_matches(' '), FENCE) {
            Err(CallMatch::Possible) => CallMatch::Possible,
            _ => CallMatch::Impossible,
        }
    }
}

/// Whether `text` begins a call: a known tool's name is enough, any other one needs arguments behind it.
fn match_call_start(text: &str, tools: &[ChatTool]) -> Result<(), CallMatch> {
    let text = text.trim_start();
    let text = match strip_literal(text, FENCE) {
        Ok(info) => skip_info_string(info)?,
        Err(CallMatch::Possible) => return Err(CallMatch::Possible),
        Err(_) => text,
    };
    let text = text.strip_prefix('[').unwrap_or(text).trim_start();
    let text = strip_literal(text, "{")?;
    // Some double the braces, as templates of programs do.
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
    let guesses = ARGUMENT_KEYS.map(|key| strip_literal(text, key).err().unwrap_or(CallMatch::Certain));
    match guesses.into_iter().min() {
        Some(CallMatch::Certain) => Ok(()),
        guess => Err(guess.unwrap_or(CallMatch::Impossible)),
    }
}

/// What follows the word behind a fence.
fn skip_info_string(text: &str) -> Result<&str, CallMatch> {
    let is_info = |character: char| character.is_ascii_alphanumeric() || "_-+".contains(character);
    let rest = text.trim_start_matches(is_info);
    match rest.chars().next() {
        _ if text.len() - rest.len() > INFO_STRING_BYTES_MAX => Err(CallMatch::Impossible),
        None => Err(CallMatch::Possible),
        Some(character) if character.is_whitespace() || "[{".contains(character) => Ok(rest.trim_start()),
        Some(_) => Err(CallMatch::Impossible),
    }
}

/// What follows `literal` at the beginning of `text`.
fn strip_literal<'a>(text: &'a str, literal: &str) -> Result<&'a str, CallMatch> {
    match text.strip_prefix(literal) {
        Some(rest) => Ok(rest),
        None if literal.starts_with(text) => Err(CallMatch::Possible),
        None => Err(CallMatch::Impossible),
    }
}

#[cfg(test)]
mod tests;
