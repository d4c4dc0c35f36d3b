//! Crash test: kills a daemon at random times under load and checks its data. `cargo xtask soak kill9` runs it.

use std::process::ExitCode;

use testkit::Kill9;

const HELP: &str = "Kill a daemon at random times under load and check its data after each restart.

Usage: kill9 BINARY [--cycles N] [--seed S]";

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(soak) => {
            let report = soak.progress().run();
            println!("{report}");
            if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(fault) => {
            eprintln!("kill9: {fault}\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Kill9, String> {
    let binary = args.next().ok_or("missing argument BINARY")?;
    let mut soak = Kill9::new(binary).cycles(200);
    while let Some(arg) = args.next() {
        let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
        let number = value.parse().map_err(|_| format!("{value:?} is not a number"))?;
        soak = match arg.as_str() {
            "--cycles" => soak.cycles(number),
            "--seed" => soak.seed(number),
            _ => return Err(format!("unknown argument {arg:?}")),
        };
    }
    Ok(soak)
}
