//! Path resolution on a real file system.

use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

struct WorkspaceFixture {
    _directory: TempDir,
    base: FilePath,
    workspace: LocalWorkspace,
}

/// `base/` with `real/`, a file, links to both, and a dangling link.
fn workspace_fixture() -> WorkspaceFixture {
    let directory = TempDir::new().unwrap();
    let base = to_file_path(&directory.path().canonicalize().unwrap()).unwrap();
    let at = |name: &str| format!("{base}/{name}");
    fs::create_dir_all(at("real/sub")).unwrap();
    fs::write(at("file"), "x").unwrap();
    symlink(at("real"), at("link")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    symlink("loop", at("loop")).unwrap();
    let home = FilePath::resolve("real", &base).unwrap();
    WorkspaceFixture { _directory: directory, workspace: LocalWorkspace::new(Some(home)), base }
}

impl WorkspaceFixture {
    fn path(&self, name: &str) -> FilePath {
        FilePath::resolve(name, &self.base).unwrap()
    }
}

#[test]
fn directory_is_resolved_without_links() {
    let fixture = workspace_fixture();
    for (given, expected) in [
        ("", "."),
        (".", "."),
        ("real", "real"),
        ("link", "real"),
        ("link/sub/", "real/sub"),
        ("link/..", "."),
        ("real/../real", "real"),
        ("real\\sub", "real/sub"),
        ("~", "real"),
        ("~/sub", "real/sub"),
        ("~\\sub", "real/sub"),
    ] {
        assert_eq!(
            fixture.workspace.resolve_directory(given, &fixture.base),
            Ok(fixture.path(expected)),
            "{given:?}"
        );
    }
    let absolute = format!("{}/link", fixture.base);
    assert_eq!(fixture.workspace.resolve_directory(&absolute, &FilePath::root()), Ok(fixture.path("real")));
}

#[test]
fn invalid_directory_is_named_as_given() {
    let fixture = workspace_fixture();
    for (given, expected) in [
        ("missing", "cwd does not exist: missing"),
        ("./missing\\x", "cwd does not exist: ./missing\\x"),
        ("dangling", "cwd does not exist: dangling"),
        ("~x", "cwd does not exist: ~x"),
        ("file", "cwd is not a directory: file"),
        ("file/x", "cwd is not a directory: file/x"),
        ("a\0b", "cwd invalid: the path contains a NUL byte"),
    ] {
        assert_eq!(
            fixture.workspace.resolve_directory(given, &fixture.base),
            Err(expected.to_owned()),
            "{given:?}"
        );
    }
    for given in ["loop".to_owned(), "x".repeat(300), "x/".repeat(3000)] {
        let error = fixture.workspace.resolve_directory(&given, &fixture.base).unwrap_err();
        assert!(error.starts_with("cwd invalid: "), "{error}");
    }
    let without_home = LocalWorkspace::new(None).resolve_directory("~", &fixture.base);
    assert_eq!(without_home, Err("cwd invalid: the home directory is unknown".to_owned()));
}

#[test]
fn existing_prefix_of_a_path_is_resolved() {
    let fixture = workspace_fixture();
    for (given, expected) in [
        ("real", "real"),
        ("link/new", "real/new"),
        ("link/new/file.txt", "real/new/file.txt"),
        ("link/sub/../new", "real/new"),
        ("new/../link/x", "real/x"),
        ("file", "file"),
        ("file/x", "file/x"),
        ("dangling/x", "dangling/x"),
        ("~/out", "real/out"),
        (".", "."),
    ] {
        assert_eq!(
            fixture.workspace.resolve_path(given, &fixture.base),
            Ok(fixture.path(expected)),
            "{given:?}"
        );
    }
    assert_eq!(fixture.workspace.resolve_path("", &fixture.base), Err("the path is empty".to_owned()));
    assert_eq!(
        fixture.workspace.resolve_path("a\0b", &fixture.base),
        Err("the path contains a NUL byte".to_owned())
    );
    assert!(fixture.workspace.resolve_path("loop/x", &fixture.base).is_err());
}
