//! Builds what is measured, as it is shipped, and says where it is. Other commands build their programs here too.

use std::path::PathBuf;

use cargo_metadata::Message;

use crate::cargo;
use crate::command::Failure;

/// The release binaries.
pub(crate) struct Programs {
    pub(crate) nexus3: PathBuf,
    pub(crate) scripted_model: PathBuf,
    pub(crate) baseline: PathBuf,
    pub(crate) relay: PathBuf,
    pub(crate) embed: PathBuf,
    pub(crate) durable: PathBuf,
    pub(crate) speed: PathBuf,
    pub(crate) embed_speed: PathBuf,
}

/// Builds one after the other: in one call cargo would join the features that they ask of common crates, and the
/// daemon would not be the one that is shipped.
pub(crate) fn build() -> Result<Programs, Failure> {
    Ok(Programs {
        nexus3: build_one(Profile::Release, "nexus3", "--package nexus3 --bin nexus3")?,
        scripted_model: build_one(
            Profile::Release,
            "scripted-model",
            "--package testkit --bin scripted-model",
        )?,
        baseline: build_one(Profile::Release, "floor", "--package server --example floor")?,
        relay: build_one(Profile::Release, "relay", "--package testkit --bin relay")?,
        embed: build_one(Profile::Release, "embed", "--package nexus3 --example embed")?,
        durable: build_one(Profile::Release, "durable", "--package nexus3 --example durable")?,
        speed: build_one(Profile::Release, "speed", "--package local --example speed")?,
        embed_speed: build_one(Profile::Release, "embed_speed", "--package local --example embed_speed")?,
    })
}

/// How a program is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    Debug,
    Release,
}

/// Builds a program and says where it is.
pub(crate) fn build_one(profile: Profile, name: &str, target: &str) -> Result<PathBuf, Failure> {
    let profile = match profile {
        Profile::Debug => "",
        Profile::Release => "--release",
    };
    let call = format!("build {profile} --locked {target} --message-format json-render-diagnostics");
    let printed = cargo::stdout_of(&call)?;
    // A line that is no message of cargo's is of no interest, whatever it is.
    let built = Message::parse_stream(printed.as_bytes()).find_map(|message| match message {
        Ok(Message::CompilerArtifact(artifact)) if artifact.target.name == name => artifact.executable,
        _ => None,
    });
    built
        .map(PathBuf::from)
        .ok_or_else(|| Failure::Failed(format!("`{}` built no {name}", cargo::command_line(&call))))
}
