//! Calls of cargo from the root of the workspace. What to call is the commands' business.
//! Arguments are one line as a person would type it; none of them holds a space.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::command::Failure;

/// The root of the workspace that this tool was built in.
pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_path_buf()
}

/// Runs `cargo <arguments>`; its output goes where ours goes.
pub(crate) fn run(arguments: &str) -> Result<(), Failure> {
    run_with_variables(arguments, &[])
}

/// The same with variables around it.
pub(crate) fn run_with_variables(
    arguments: &str,
    variables: &[(&'static str, PathBuf)],
) -> Result<(), Failure> {
    let variables = variables.iter().map(|(name, path)| (name, path));
    let status =
        command(arguments).envs(variables).status().map_err(|cause| start_failure(arguments, &cause))?;
    if status.success() { Ok(()) } else { Err(exit_failure(arguments, &status.to_string())) }
}

/// Where cargo builds.
pub(crate) fn target_folder() -> Result<PathBuf, Failure> {
    let metadata = cargo_metadata::MetadataCommand::new().current_dir(root()).no_deps().exec();
    let metadata = metadata.map_err(|cause| Failure::Failed(format!("cargo metadata: {cause}")))?;
    Ok(metadata.target_directory.into_std_path_buf())
}

/// Runs `cargo <arguments>` and returns what it printed; its messages go where ours go.
pub(crate) fn stdout_of(arguments: &str) -> Result<String, Failure> {
    let output = command(arguments)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|cause| start_failure(arguments, &cause))?;
    if !output.status.success() {
        return Err(exit_failure(arguments, &output.status.to_string()));
    }
    String::from_utf8(output.stdout)
        .map_err(|_| Failure::Failed(format!("`{}` printed what is not UTF-8", command_line(arguments))))
}

/// The call as a person would type it.
pub(crate) fn command_line(arguments: &str) -> String {
    format!("cargo {arguments}")
}

pub(crate) fn command(arguments: &str) -> Command {
    let mut command = Command::new("cargo");
    command.args(arguments.split_whitespace()).current_dir(root());
    command
}

/// cargo-deny is no part of the toolchain, so its absence needs its own words.
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
