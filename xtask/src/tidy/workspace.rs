//! The workspace as cargo sees it: our crates and what each depends on.

use std::fs;
use std::path::Path;

use cargo_metadata::{DependencyKind, MetadataCommand, Package};

use crate::command::Failure;

/// One crate of ours.
pub(crate) struct Member {
    pub(crate) name: String,
    /// Its folder relative to the root, with `/`.
    pub(crate) folder: String,
    pub(crate) dependencies: Vec<Dependency>,
}

impl Member {
    pub(crate) fn manifest(&self) -> String {
        format!("{}/Cargo.toml", self.folder)
    }
}

pub(crate) struct Dependency {
    /// The name of the package, whatever the manifest calls it.
    pub(crate) name: String,
    /// Where the member's manifest names it.
    pub(crate) line: usize,
    pub(crate) purpose: Purpose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// For the crate itself or its build script.
    Build,
    /// For its tests.
    Test,
}

/// Asks cargo about the workspace at `root`. Needs no network and no lock file.
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

/// The first line that sets `key`, as `key = …`, `key.workspace = …` or `[dependencies.key]`.
fn line_of(manifest: &str, key: &str) -> usize {
    let names_it = |line: &str| {
        let heading = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let last = heading.and_then(|heading| heading.rsplit('.').next());
        let set = line.split(['=', '.']).next().map(|start| start.trim().trim_matches('"'));
        last == Some(key) || (heading.is_none() && set == Some(key))
    };
    // An inherited key could also be found nowhere: then the manifest as a whole is the place.
    manifest.lines().position(|line| names_it(line.trim())).map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::line_of;

    #[test]
    fn a_dependency_is_found_in_every_spelling() {
        let manifest = "[package]\nname = \"a\"\n[dependencies]\ntokio-util = \"1\"\ntokio.workspace = true\n\
            \"hyper\" = \"1\"\n[dependencies.syn]\nversion = \"2\"\n";
        for (key, line) in [("tokio", 5), ("tokio-util", 4), ("hyper", 6), ("syn", 7), ("absent", 1)] {
            assert_eq!(line_of(manifest, key), line, "{key}");
        }
    }
}
