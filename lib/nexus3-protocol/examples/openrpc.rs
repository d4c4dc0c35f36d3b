//! Prints what `cargo xtask schema` checks in: `json` for openrpc.json, `markdown` for the reference page.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("json") => println!("{:#}", nexus3_protocol::schema::openrpc()),
        Some("markdown") => print!("{}", nexus3_protocol::schema::markdown()),
        _ => {
            eprintln!("usage: openrpc json|markdown");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
