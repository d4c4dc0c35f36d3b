//! What a command of the build tool is, how it fails, and the help texts made from the list of them.

use std::process::ExitCode;

/// One entry of the list in `main.rs`.
pub(crate) struct Command {
    pub(crate) name: &'static str,
    /// One line for the overview.
    pub(crate) summary: &'static str,
    /// What `--help` prints; starts with the usage line.
    pub(crate) help: &'static str,
    pub(crate) run: fn(&[String]) -> Result<(), Failure>,
}

/// Why a command ended without success.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The call itself was wrong; exit code 2.
    Usage(String),
    /// The call was right and the answer is no; exit code 1.
    Failed(String),
}

impl Failure {
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Usage(message) | Self::Failed(message) => message,
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Failed(_) => ExitCode::from(1),
        }
    }
}

/// Refuses every argument: for commands that take none.
pub(crate) fn reject_arguments(command: &str, arguments: &[String]) -> Result<(), Failure> {
    match arguments.first() {
        None => Ok(()),
        Some(argument) => Err(unknown_argument(command, argument)),
    }
}

pub(crate) fn unknown_argument(command: &str, argument: &str) -> Failure {
    Failure::Usage(format!("`{command}` does not know `{argument}`; see `cargo xtask {command} --help`"))
}

/// The help of the whole tool.
pub(crate) fn overview(commands: &[Command]) -> String {
    let width = commands.iter().map(|command| command.name.len()).max().unwrap_or(0);
    let mut text = String::from("usage: cargo xtask <command> [--help]\n\ncommands:");
    for command in commands {
        text.push_str(&format!("\n  {:width$}  {}", command.name, command.summary));
    }
    text
}

/// The answer to a command that is not in the list.
pub(crate) fn unknown_command(commands: &[Command], name: &str) -> String {
    let hint = match closest(commands, name) {
        Some(meant) => format!("; did you mean `{meant}`?"),
        None => String::new(),
    };
    format!("no command `{name}`{hint}\n\n{}", overview(commands))
}

fn closest(commands: &[Command], name: &str) -> Option<&'static str> {
    // A swap of two letters counts as two edits; more than that is another word.
    const EDITS_MAX: usize = 2;
    commands
        .iter()
        .map(|command| (edit_distance(command.name, name), command.name))
        .filter(|(edits, _)| *edits <= EDITS_MAX)
        .min()
        .map(|(_, name)| name)
}

/// Levenshtein distance, one row at a time.
fn edit_distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (line, left) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, right) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(left != *right);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::edit_distance;

    #[test]
    fn edits_are_counted() {
        for (left, right, expected) in
            [("ci", "ci", 0), ("tidy", "tydi", 2), ("schema", "shema", 1), ("ci", "", 2), ("", "abc", 3)]
        {
            assert_eq!(edit_distance(left, right), expected, "{left} -> {right}");
        }
    }
}
