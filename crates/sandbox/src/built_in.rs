//! Built-ins: functions of the helper's own executable that run in the sandbox instead of a program. They read their
//! directories and execute, write and connect to nothing, so that they may parse hostile data.

use std::io::{self, Read, Write};
use std::panic::catch_unwind;

/// A function that the helper runs in the sandbox: from its standard input to its standard output. The error is written to
/// standard error.
#[derive(Debug, Clone, Copy)]
pub struct BuiltIn {
    /// The name in requests.
    pub name: &'static str,
    /// The function. It may start threads, but no process.
    pub run: fn(&[u8]) -> Result<Vec<u8>, String>,
}

/// Maximum length of the input.
const INPUT_BYTES_MAX: u64 = 1 << 20;

/// The exit codes: an error of the built-in, and a panic.
const FAILED: i32 = 1;
const PANICKED: i32 = 101;

impl BuiltIn {
    /// Runs the function in this process; returns the exit code. A panic ends here: this process is a fork of the helper,
    /// whose code must not go on in it.
    pub(crate) fn execute(&self) -> i32 {
        let result = catch_unwind(|| read_input().and_then(|input| (self.run)(&input)));
        let written = match &result {
            Err(_) => return PANICKED,
            Ok(Ok(output)) => write_all(io::stdout().lock(), output),
            Ok(Err(why)) => write_all(io::stderr().lock(), why.as_bytes()),
        };
        if written.is_ok() && matches!(result, Ok(Ok(_))) { 0 } else { FAILED }
    }
}

fn read_input() -> Result<Vec<u8>, String> {
    let mut input = Vec::new();
    let read = io::stdin().lock().take(INPUT_BYTES_MAX + 1).read_to_end(&mut input);
    match read {
        Err(error) => Err(format!("cannot read the request: {error}")),
        Ok(count) if count as u64 > INPUT_BYTES_MAX => {
            Err(format!("the request is longer than {INPUT_BYTES_MAX} bytes"))
        }
        Ok(_) => Ok(input),
    }
}

fn write_all(mut stream: impl Write, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}
