//! Where a free answer turns into a call without its marker: models write `{"name": "tool", …}` bare or in a code
//! fence, first thing or on a line of its own, and now and then with a tool that nobody offered. Only what may
//! still become a call is held back; everything else is said at once.

use super::OfferedTool;

/// The longest name of a tool that is waited for.
const NAME_BYTES_MAX: usize = 128;
/// The longest word behind a fence.
const INFO_BYTES_MAX: usize = 16;
const FENCE: &str = "```";
/// What models call the arguments of a call.
const ARGUMENTS: [&str; 4] = ["\"arguments\"", "\"parameters\"", "\"args\"", "\"input\""];

/// Watches the text of an answer, line by line.
#[derive(Debug)]
pub(crate) struct Opening<'a> {
    tools: &'a [OfferedTool],
    /// What may begin a call.
    held: String,
    is_within_line: bool,
    is_within_code: bool,
}

/// What came of some text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// This text is certain.
    Text(String),
    /// This text is certain, and what follows it, so many bytes, begins a call.
    Call(String, usize),
}

/// From what is certain to what is out of the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Guess {
    Call,
    Maybe,
    No,
}

impl<'a> Opening<'a> {
    /// Watches for calls; without `tools` there are none.
    pub(crate) fn new(tools: &'a [OfferedTool]) -> Self {
        Self { tools, held: String::new(), is_within_line: false, is_within_code: false }
    }

    /// Takes the next text.
    pub(crate) fn take(&mut self, text: &str) -> Opened {
        self.held.push_str(text);
        let mut said = String::new();
        if self.tools.is_empty() {
            return Opened::Text(self.rest());
        }
        loop {
            if self.is_within_line {
                let Some(at) = self.held.find('\n') else {
                    return Opened::Text(said + &self.rest());
                };
                said.extend(self.held.drain(..=at));
                self.is_within_line = false;
            }
            match self.guess() {
                Guess::Call => return Opened::Call(said, self.rest().len()),
                Guess::Maybe => return Opened::Text(said),
                Guess::No => self.is_within_line = true,
            }
            if self.held.trim_start_matches(' ').starts_with(FENCE) {
                self.is_within_code = !self.is_within_code;
            }
        }
    }

    /// What is held back, at the end.
    pub(crate) fn rest(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    fn guess(&self) -> Guess {
        if !self.is_within_code {
            return opens_call(&self.held, self.tools).err().unwrap_or(Guess::Call);
        }
        // Code stays what it is; only its end is looked for.
        match literal(self.held.trim_start_matches(' '), FENCE) {
            Err(Guess::Maybe) => Guess::Maybe,
            _ => Guess::No,
        }
    }
}

/// Whether `text` begins a call: a known tool's name is enough, any other one needs arguments behind it.
fn opens_call(text: &str, tools: &[OfferedTool]) -> Result<(), Guess> {
    let text = text.trim_start();
    let text = match literal(text, FENCE) {
        Ok(info) => behind_info(info)?,
        Err(Guess::Maybe) => return Err(Guess::Maybe),
        Err(_) => text,
    };
    let text = text.strip_prefix('[').unwrap_or(text).trim_start();
    let text = literal(text, "{")?;
    // Some double the braces, as templates of programs do.
    let text = text.strip_prefix('{').unwrap_or(text);
    let text = literal(text.trim_start(), "\"name\"")?;
    let text = literal(text.trim_start(), ":")?;
    let text = literal(text.trim_start(), "\"")?;
    let name = text.split('"').next().unwrap_or_default();
    if name.len() > NAME_BYTES_MAX || name.contains('\n') {
        return Err(Guess::No);
    }
    let text = literal(&text[name.len()..], "\"")?;
    if tools.iter().any(|tool| tool.name == name) {
        return Ok(());
    }
    let text = literal(text.trim_start(), ",")?.trim_start();
    let guesses = ARGUMENTS.map(|key| literal(text, key).err().unwrap_or(Guess::Call));
    match guesses.into_iter().min() {
        Some(Guess::Call) => Ok(()),
        guess => Err(guess.unwrap_or(Guess::No)),
    }
}

/// What follows the word behind a fence.
fn behind_info(text: &str) -> Result<&str, Guess> {
    let is_info = |character: char| character.is_ascii_alphanumeric() || "_-+".contains(character);
    let rest = text.trim_start_matches(is_info);
    match rest.chars().next() {
        _ if text.len() - rest.len() > INFO_BYTES_MAX => Err(Guess::No),
        None => Err(Guess::Maybe),
        Some(character) if character.is_whitespace() || "[{".contains(character) => Ok(rest.trim_start()),
        Some(_) => Err(Guess::No),
    }
}

/// What follows `literal` at the beginning of `text`.
fn literal<'a>(text: &'a str, literal: &str) -> Result<&'a str, Guess> {
    match text.strip_prefix(literal) {
        Some(rest) => Ok(rest),
        None if literal.starts_with(text) => Err(Guess::Maybe),
        None => Err(Guess::No),
    }
}

#[cfg(test)]
mod tests;
