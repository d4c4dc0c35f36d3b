//! Prints the files that `cargo xtask schema` writes: `json` for openrpc.json, `markdown` and `events` for the
//! reference pages of methods and events.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("json") => println!("{:#}", nexus3_protocol::schema::openrpc()),
        Some("markdown") => print!("{}", nexus3_protocol::schema::methods_markdown()),
        Some("events") => print!("{}", nexus3_protocol::schema::events_markdown()),
        _ => {
            eprintln!("usage: openrpc json|markdown|events");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
