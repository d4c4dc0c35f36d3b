//! A program that tries to leave its sandbox. It prints one line of JSON for each attempt: its number, what it tried, and
//! `ok` or the error. Each attempt runs in a process of its own.

#![expect(unsafe_code, reason = "attacks are system calls with arguments that no safe function takes")]
#![expect(clippy::panic, clippy::unwrap_used, reason = "a program of the tests fails by panicking")]

mod abuse;
mod files;
mod kernel;
mod missing_call;
mod network;
mod processes;
mod sys;

use serde::Deserialize;

use crate::sys::Outcome;

/// What the attempts aim at; the second argument, as JSON.
#[derive(Deserialize)]
struct Targets {
    /// The granted directory.
    inside: String,
    /// A directory beside it.
    outside: String,
    /// The process that started the sandbox.
    daemon: String,
    tcp_port: u16,
    udp_port: u16,
    abstract_name: String,
    /// The parent of this program.
    #[serde(skip)]
    supervisor: i32,
}

impl Targets {
    fn inside(&self, name: &str) -> String {
        format!("{}/{name}", self.inside)
    }

    fn outside(&self, name: &str) -> String {
        format!("{}/{name}", self.outside)
    }

    fn daemon(&self) -> i32 {
        self.daemon.parse().unwrap()
    }
}

/// One attempt: its number in the table of the test, what it tries, and how.
type Attempt = (&'static str, &'static str, fn(&Targets) -> Outcome);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rest = &arguments[1..];
    match arguments[0].as_str() {
        "attempts" => attempt_all(&targets(&rest[0])),
        // Reports by its exit code: run again from another file.
        "read" => sys::exit(std::fs::read(&rest[0]).map(drop).map_err(|error| sys::code(&error))),
        "capabilities" => sys::exit(processes::has_capabilities()),
        "hide" => abuse::hide_from_signals(&rest[0]),
        "hop" => abuse::hop(&rest[0]),
        "forks" => abuse::fork_without_end(),
        "threads" => abuse::start_threads_without_end(),
        "memory" => abuse::allocate(rest[0].parse().unwrap()),
        "shared-memory" => abuse::map_shared(rest[0].parse().unwrap()),
        "without" => missing_call::execute(&rest[0], rest[1].parse().unwrap(), &rest[2..]),
        "file" => abuse::fill_file(&rest[0], rest[1].parse().unwrap()),
        other => panic!("unknown mode {other}"),
    }
}

fn targets(json: &str) -> Targets {
    let supervisor = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    Targets { supervisor, ..serde_json::from_str(json).unwrap() }
}

fn attempt_all(targets: &Targets) {
    let lists = [files::ATTEMPTS, processes::ATTEMPTS, network::ATTEMPTS, kernel::ATTEMPTS];
    for (number, tried, attempt) in lists.into_iter().flatten() {
        report(number, tried, &sys::in_child(|| attempt(targets)));
    }
    for (name, number) in kernel::CALLS {
        let call = || sys::call(*number, [usize::MAX; 6]);
        report(&format!("call {name}"), "a system call without a use for commands", &sys::in_child(call));
    }
}

fn report(number: &str, tried: &str, result: &str) {
    println!("{}", serde_json::json!({ "number": number, "tried": tried, "result": result }));
}
