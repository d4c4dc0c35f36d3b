//! The members of the workspace and their dependencies, from cargo's metadata.

use std::fs;
use std::path::Path;

use cargo_metadata::{DependencyKind, MetadataCommand, Package};

use crate::command::Failure;

/// A member of the workspace.
pub(crate) struct Member {
    pub(crate) name: String,
    /// Its directory relative to the root, with `/` as separator.
    pub(crate) folder: String,
    pub(crate) dependencies: Vec<Dependency>,
}

impl Member {
    pub(crate) fn manifest(&self) -> String {
        format!("{}/Cargo.toml", self.folder)
    }
}

/// A dependency of a member.
pub(crate) struct Dependency {
    /// The package name, also where the manifest renames the dependency.
    pub(crate) name: String,
    /// The line of the member's manifest that declares it.
    pub(crate) line: usize,
    pub(crate) purpose: Purpose,
}

/// Whether a dependency is part of the build or only of the tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The crate itself or its build script.
    Build,
    /// Its tests.
    Test,
}

/// Reads the members of the workspace at `root` with `cargo metadata`. Needs no network and no lock file.
pub(crate) fn read(root: &Path) -> Result<Vec<Member>, Failure> {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .current_dir(root)
        .no_deps()
        .other_options(["--offline".to_owned()])
        .exec()
        .map_err(|cause| Failure::Failed(format!("cargo metadata: {cause}")))?;
    let base = metadata.workspace_root.as_std_path();
    metadata.packages.iter().map(|package| member(base, package)).collect()
}

fn member(base: &Path, package: &Package) -> Result<Member, Failure> {
    let manifest = package.manifest_path.as_std_path();
    let text = fs::read_to_string(manifest)
        .map_err(|cause| Failure::Failed(format!("{}: {cause}", manifest.display())))?;
    let folder = manifest.parent().unwrap_or(base);
    let dependencies = package
        .dependencies
        .iter()
        .map(|dependency| Dependency {
            name: dependency.name.clone(),
            line: line_of(&text, dependency.rename.as_deref().unwrap_or(&dependency.name)),
            purpose: match dependency.kind {
                DependencyKind::Development => Purpose::Test,
                DependencyKind::Normal | DependencyKind::Build | DependencyKind::Unknown => Purpose::Build,
            },
        })
        .collect();
    Ok(Member {
        name: package.name.to_string(),
        folder: folder.strip_prefix(base).unwrap_or(folder).to_string_lossy().replace('\\', "/"),
        dependencies,
    })
}

/// Returns the first line that sets `key`: `key = …`, `key.workspace = …` or `[dependencies.key]`.
fn line_of(manifest: &str, key: &str) -> usize {
    let sets_key = |line: &str| {
        let heading = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let last = heading.and_then(|heading| heading.rsplit('.').next());
        let name = line.split(['=', '.']).next().map(|start| start.trim().trim_matches('"'));
        last == Some(key) || (heading.is_none() && name == Some(key))
    };
    // An inherited key may not be in the manifest; then line 1 stands for the whole manifest.
    manifest.lines().position(|line| sets_key(line.trim())).map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::line_of;

    #[test]
    fn dependency_is_found_in_every_notation() {
        let manifest = "[package]\nname = \"a\"\n[dependencies]\ntokio-util = \"1\"\ntokio.workspace = true\n\
            \"hyper\" = \"1\"\n[dependencies.syn]\nversion = \"2\"\n";
        for (key, line) in [("tokio", 5), ("tokio-util", 4), ("hyper", 6), ("syn", 7), ("absent", 1)] {
            assert_eq!(line_of(manifest, key), line, "{key}");
        }
    }
}
