//! The build tool, started as `cargo xtask <command>`: the list of commands, and their dispatch by name.
//! Each command has its own module.

mod advisories;
mod bench;
mod cargo;
mod ci;
mod command;
mod llama_cpp;
mod schema;
mod soak;
mod tidy;
mod weights;

use std::process::ExitCode;

use command::{Command, Failure};

/// All commands, in the order of the help; typo suggestions use this list too.
const COMMANDS: &[Command] = &[
    ci::COMMAND,
    tidy::COMMAND,
    schema::COMMAND,
    advisories::COMMAND,
    bench::COMMAND,
    soak::COMMAND,
    llama_cpp::COMMAND,
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{}", failure.message());
            failure.exit_code()
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<(), Failure> {
    let Some((name, rest)) = arguments.split_first() else {
        return Err(Failure::Usage(command::overview(COMMANDS)));
    };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        println!("{}", command::overview(COMMANDS));
        return Ok(());
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        return Err(Failure::Usage(command::unknown_command(COMMANDS, name)));
    };
    if rest.iter().any(|argument| matches!(argument.as_str(), "--help" | "-h")) {
        println!("{}", command.help);
        return Ok(());
    }
    (command.run)(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage_error(arguments: &[&str]) -> String {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        match dispatch(&arguments) {
            Err(Failure::Usage(message)) => message,
            other => panic!("{arguments:?} should be a usage error, not {other:?}"),
        }
    }

    #[test]
    fn missing_command_prints_the_overview() {
        let message = usage_error(&[]);
        for command in COMMANDS {
            assert!(message.contains(command.summary), "{message}");
        }
    }

    #[test]
    fn typo_suggests_the_closest_command() {
        assert!(usage_error(&["tydi"]).contains("did you mean `tidy`?"));
        assert!(usage_error(&["shema"]).contains("did you mean `schema`?"));
        assert!(!usage_error(&["publish"]).contains("did you mean"));
    }

    #[test]
    fn every_command_rejects_unknown_arguments() {
        for command in COMMANDS {
            let message = usage_error(&[command.name, "--wrong"]);
            assert!(message.contains("`--wrong`") && message.contains("--help"), "{message}");
        }
    }

    #[test]
    fn every_help_text_starts_with_its_usage() {
        for command in COMMANDS {
            let usage = format!("usage: cargo xtask {}", command.name);
            assert!(command.help.starts_with(&usage), "{}", command.help);
        }
    }
}
