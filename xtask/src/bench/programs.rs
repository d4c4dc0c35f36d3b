//! Builds the programs under test as they are released and returns their paths. `soak` builds its programs here too.

use std::path::PathBuf;

use cargo_metadata::Message;

use crate::cargo;
use crate::command::Failure;

/// Paths of the release binaries.
pub(crate) struct Programs {
    pub(crate) nexus3: PathBuf,
    pub(crate) scripted_model: PathBuf,
    pub(crate) baseline: PathBuf,
    pub(crate) relay: PathBuf,
    pub(crate) embed: PathBuf,
    pub(crate) durable: PathBuf,
    pub(crate) speed: PathBuf,
    pub(crate) embed_speed: PathBuf,
    pub(crate) commands: PathBuf,
}

/// Builds all programs, each with its own cargo call: in one call cargo would unify the features of shared
/// dependencies, and the daemon would differ from the released one.
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
        commands: build_one(Profile::Release, "commands", "--package sandbox --example commands")?,
    })
}

/// The build profile of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    Debug,
    Release,
}

/// Builds a program and returns its path.
pub(crate) fn build_one(profile: Profile, name: &str, target: &str) -> Result<PathBuf, Failure> {
    let profile = match profile {
        Profile::Debug => "",
        Profile::Release => "--release",
    };
    let arguments = format!("build {profile} --locked {target} --message-format json-render-diagnostics");
    let printed = cargo::stdout_of(&arguments)?;
    // Lines that are not cargo messages are ignored.
    let built = Message::parse_stream(printed.as_bytes()).find_map(|message| match message {
        Ok(Message::CompilerArtifact(artifact)) if artifact.target.name == name => artifact.executable,
        _ => None,
    });
    built.map(PathBuf::from).ok_or_else(|| {
        Failure::Failed(format!("`{}` built no executable {name}", cargo::command_line(&arguments)))
    })
}
