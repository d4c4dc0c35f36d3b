//! Runs cargo in the root of the workspace; the commands decide what to run.
//! Arguments are one string as typed in a shell; no argument contains a space.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::command::Failure;

/// Returns the root of the workspace that this tool was built in.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_path_buf()
}

/// Runs `cargo <arguments>`; it inherits stdout and stderr.
pub(crate) fn run(arguments: &str) -> Result<(), Failure> {
    run_with_variables(arguments, &[])
}

/// Runs `cargo <arguments>` with additional environment variables.
pub(crate) fn run_with_variables(
    arguments: &str,
    variables: &[(&'static str, PathBuf)],
) -> Result<(), Failure> {
    let variables = variables.iter().map(|(name, path)| (name, path));
    let status =
        command(arguments).envs(variables).status().map_err(|cause| start_failure(arguments, &cause))?;
    if status.success() { Ok(()) } else { Err(exit_failure(arguments, &status.to_string())) }
}

/// Returns cargo's target directory.
pub(crate) fn target_folder() -> Result<PathBuf, Failure> {
    let metadata = cargo_metadata::MetadataCommand::new().current_dir(root()).no_deps().exec();
    let metadata = metadata.map_err(|cause| Failure::Failed(format!("cargo metadata: {cause}")))?;
    Ok(metadata.target_directory.into_std_path_buf())
}

/// Runs `cargo <arguments>` and returns its stdout; it inherits stderr.
pub(crate) fn stdout_of(arguments: &str) -> Result<String, Failure> {
    let output = command(arguments)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|cause| start_failure(arguments, &cause))?;
    if !output.status.success() {
        return Err(exit_failure(arguments, &output.status.to_string()));
    }
    String::from_utf8(output.stdout)
        .map_err(|_| Failure::Failed(format!("`{}` printed invalid UTF-8", command_line(arguments))))
}

/// The command line as typed in a shell, for messages.
pub(crate) fn command_line(arguments: &str) -> String {
    format!("cargo {arguments}")
}

pub(crate) fn command(arguments: &str) -> Command {
    let mut command = Command::new("cargo");
    command.args(arguments.split_whitespace()).current_dir(root());
    command
}

/// Fails with installation instructions when cargo-deny, which is not part of the toolchain, is missing.
pub(crate) fn require_cargo_deny() -> Result<(), Failure> {
    let probe = command("deny --version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if probe.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    Err(Failure::Failed(
        "cargo-deny is missing; run `./scripts/test`, which installs the pinned version, \
         or `cargo install cargo-deny --locked`"
            .to_owned(),
    ))
}

pub(crate) fn start_failure(arguments: &str, cause: &std::io::Error) -> Failure {
    Failure::Failed(format!("`{}` did not start: {cause}", command_line(arguments)))
}

fn exit_failure(arguments: &str, status: &str) -> Failure {
    Failure::Failed(format!("`{}` failed ({status})", command_line(arguments)))
}
