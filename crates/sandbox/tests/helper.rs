//! The helper and the probe program as an executable of their own, for the tests of this room. The daemon is its own
//! helper.

mod built_ins;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((first, rest)) if first == sandbox::PROBE_ARGUMENT => sandbox::run_probes(rest),
        _ => sandbox::run_helper(built_ins::BUILT_INS),
    }
}
