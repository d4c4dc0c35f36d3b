//! Commands of the build tool, their failures and exit codes, and the help generated from the list of commands.

use std::process::ExitCode;

/// A command: one entry of the list in `main.rs`.
pub(crate) struct Command {
    pub(crate) name: &'static str,
    /// One line for the overview.
    pub(crate) summary: &'static str,
    /// The text of `--help`, which starts with the usage line.
    pub(crate) help: &'static str,
    pub(crate) run: fn(&[String]) -> Result<(), Failure>,
}

/// The reason why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Invalid arguments; exit code 2.
    Usage(String),
    /// A failed check or an error while the command ran; exit code 1.
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

/// Rejects every argument, for commands that take none.
pub(crate) fn reject_arguments(command: &str, arguments: &[String]) -> Result<(), Failure> {
    match arguments.first() {
        None => Ok(()),
        Some(argument) => Err(unknown_argument(command, argument)),
    }
}

pub(crate) fn unknown_argument(command: &str, argument: &str) -> Failure {
    Failure::Usage(format!(
        "unknown argument `{argument}` of `{command}`; see `cargo xtask {command} --help`"
    ))
}

/// Returns the help of the whole tool: one line per command.
pub(crate) fn overview(commands: &[Command]) -> String {
    let width = commands.iter().map(|command| command.name.len()).max().unwrap_or(0);
    let mut text = String::from("usage: cargo xtask <command> [--help]\n\ncommands:");
    for command in commands {
        text.push_str(&format!("\n  {:width$}  {}", command.name, command.summary));
    }
    text
}

/// Returns the error for an unknown command, with the closest name as a suggestion.
pub(crate) fn unknown_command(commands: &[Command], name: &str) -> String {
    let hint = match closest(commands, name) {
        Some(suggestion) => format!("; did you mean `{suggestion}`?"),
        None => String::new(),
    };
    format!("no command `{name}`{hint}\n\n{}", overview(commands))
}

fn closest(commands: &[Command], name: &str) -> Option<&'static str> {
    // Two swapped letters count as two edits.
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
    for (index, left) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
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
    fn edit_distance_counts_insertions_deletions_and_replacements() {
        for (left, right, expected) in
            [("ci", "ci", 0), ("tidy", "tydi", 2), ("schema", "shema", 1), ("ci", "", 2), ("", "abc", 3)]
        {
            assert_eq!(edit_distance(left, right), expected, "{left} -> {right}");
        }
    }
}
