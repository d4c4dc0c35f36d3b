//! Help texts of `rpc` and `ask`: an example for every command, and lines that fit a terminal of 80 columns.

use clap::{Command, CommandFactory};

use super::Binary;

/// `rpc`, its subcommands, and `ask`.
fn commands() -> Vec<Command> {
    let mut top = Binary::command();
    top.build();
    let rpc = top.find_subcommand("rpc").unwrap();
    let subcommands = rpc.get_subcommands().filter(|command| command.get_name() != "help");
    let ask = top.find_subcommand("ask").unwrap();
    subcommands.chain([rpc, ask]).cloned().collect()
}

#[test]
fn arguments_are_well_formed() {
    Binary::command().debug_assert();
}

#[test]
fn every_command_has_an_example() {
    for mut command in commands() {
        let help = command.render_long_help().to_string();
        let examples = help.split_once("\nExample").map(|(_, examples)| examples.to_owned());
        let call = match command.get_name() {
            top @ ("rpc" | "ask") => format!("nexus3 {top} "),
            subcommand => format!("nexus3 rpc {subcommand}"),
        };
        assert!(examples.is_some_and(|examples| examples.contains(&call)), "{help}");
    }
}

#[test]
fn help_lines_fit_80_columns() {
    for mut command in commands() {
        for help in [command.render_help(), command.render_long_help()] {
            let help = help.to_string();
            let long_line = help.lines().find(|line| line.chars().count() > 80);
            assert_eq!(long_line, None, "{}", command.get_name());
        }
    }
}
