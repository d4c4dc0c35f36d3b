//! Builds what is measured, as it is shipped, and says where it is.

use std::path::PathBuf;

use cargo_metadata::Message;

use crate::cargo;
use crate::command::Failure;

/// The release binaries.
pub(crate) struct Programs {
    pub(crate) nexus3: PathBuf,
    pub(crate) scripted_model: PathBuf,
    pub(crate) floor: PathBuf,
    pub(crate) embed: PathBuf,
}

/// Builds one after the other: in one call cargo would join the features that they ask of common crates, and the
/// daemon would not be the one that is shipped.
pub(crate) fn build() -> Result<Programs, Failure> {
    Ok(Programs {
        nexus3: build_one("nexus3", "--package nexus3 --bin nexus3")?,
        scripted_model: build_one("scripted-model", "--package testkit --bin scripted-model")?,
        floor: build_one("floor", "--package server --example floor")?,
        embed: build_one("embed", "--package nexus3 --example embed")?,
    })
}

fn build_one(name: &str, target: &str) -> Result<PathBuf, Failure> {
    let call = format!("build --release --locked {target} --message-format json-render-diagnostics");
    let printed = cargo::printed_by(&call)?;
    // A line that is no message of cargo's is of no interest, whatever it is.
    let built = Message::parse_stream(printed.as_bytes()).find_map(|message| match message {
        Ok(Message::CompilerArtifact(artifact)) if artifact.target.name == name => artifact.executable,
        _ => None,
    });
    built
        .map(PathBuf::from)
        .ok_or_else(|| Failure::Failed(format!("`{}` built no {name}", cargo::shown(&call))))
}
