//! The sandbox helper and its probe program as an executable of their own, for the tests of this room. The daemon is its
//! own helper.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((first, rest)) if first == sandbox::PROBE_ARGUMENT => sandbox::run_probes(rest),
        _ => sandbox::run_helper(tools::BUILT_INS),
    }
}
