//! The result of a custom tool: the output of its command, as text or JSON.

use std::time::Duration;

use serde::de::IgnoredAny;

use super::OutputMode;
use crate::commands::result::exit_code;
use crate::commands::runner::FinishedCommand;
use crate::definition::{ToolResult, execution_failed};

/// Characters of an invalid output that a message quotes.
const HEAD_CHARS_MAX: usize = 400;

/// Formats the result. A command that fails is a failed call with its errors.
pub(super) fn format(finished: &FinishedCommand, timeout: Duration, mode: OutputMode) -> ToolResult {
    let (code, signal) = exit_code(finished, timeout)?;
    if code != 0 {
        let errors = match finished.stderr.trim() {
            "" => finished.stdout.trim(),
            errors => errors,
        };
        let how = signal.map_or_else(
            || format!("exited with status {code}"),
            |signal| format!("was killed by signal {signal}"),
        );
        return Err(execution_failed(format!("Command {how}: {errors}")));
    }
    let text = finished.stdout.trim();
    match mode {
        OutputMode::Text => Ok(text.to_owned()),
        OutputMode::Json => compact(text).map_err(|fault| {
            let head: String = text.chars().take(HEAD_CHARS_MAX).collect();
            let rest = if head.len() < text.len() { "…" } else { "" };
            execution_failed(format!(
                "the command's output is not valid JSON: {fault}; output of {} bytes: {head}{rest}",
                text.len()
            ))
        }),
    }
}

/// Removes the whitespace between tokens. Numbers, escapes and the order of members stay as the command wrote them.
fn compact(text: &str) -> Result<String, serde_json::Error> {
    serde_json::from_str::<IgnoredAny>(text)?;
    let (mut is_in_string, mut is_escaped) = (false, false);
    let is_retained = |char: &char| {
        let is_retained = is_in_string || !char.is_ascii_whitespace();
        is_in_string ^= *char == '"' && !is_escaped;
        is_escaped = is_in_string && *char == '\\' && !is_escaped;
        is_retained
    };
    Ok(text.chars().filter(is_retained).collect())
}

#[cfg(test)]
mod tests {
    use sandbox::CommandExit;

    use super::*;

    fn json(stdout: &str) -> ToolResult {
        let exit = Some(CommandExit::Exited(0));
        let finished = FinishedCommand { exit, stdout: stdout.to_owned(), stderr: "noise".to_owned() };
        format(&finished, Duration::from_secs(1), OutputMode::Json)
    }

    #[test]
    fn json_is_compact_and_otherwise_unchanged() {
        for (output, expected) in [
            (
                " { \"b\" : 1 ,\n\t\"a\" : [ 1.10, 123456789012345678901234567890 ] }\n",
                r#"{"b":1,"a":[1.10,123456789012345678901234567890]}"#,
            ),
            (r#"{"a \" b" : "x \\" , "c" : " \u00e4 "}"#, r#"{"a \" b":"x \\","c":" \u00e4 "}"#),
            ("null", "null"),
            ("\" \"", "\" \""),
        ] {
            assert_eq!(json(output).unwrap(), expected);
        }
    }

    #[test]
    fn invalid_json_fails_with_its_beginning() {
        for output in ["", "hello", "{} {}", "{\"a\":}"] {
            let failed = json(output).unwrap_err();
            let text = failed.text();
            assert!(text.starts_with("Execution failed: the command's output is not valid JSON"), "{text}");
            assert!(text.ends_with(output), "{text}");
        }
        assert!(json(&"x".repeat(1000)).unwrap_err().text().len() < 600);
    }
}
