//! Folders and places on a real disk.

use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

struct WorkspaceFixture {
    _folder: TempDir,
    base: FilePath,
    workspace: LocalWorkspace,
}

/// `base/` with `real/`, a file, links to both, and a dangling link.
fn workspace_fixture() -> WorkspaceFixture {
    let folder = TempDir::new().unwrap();
    let base = to_file_path(&folder.path().canonicalize().unwrap()).unwrap();
    let at = |name: &str| format!("{base}/{name}");
    fs::create_dir_all(at("real/sub")).unwrap();
    fs::write(at("file"), "x").unwrap();
    symlink(at("real"), at("link")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    symlink("loop", at("loop")).unwrap();
    let home = FilePath::resolve("real", &base).unwrap();
    WorkspaceFixture { _folder: folder, workspace: LocalWorkspace::new(Some(home)), base }
}

impl WorkspaceFixture {
    fn path(&self, name: &str) -> FilePath {
        FilePath::resolve(name, &self.base).unwrap()
    }
}

#[test]
fn a_folder_is_found_without_links() {
    let tree = workspace_fixture();
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
        assert_eq!(tree.workspace.resolve_directory(given, &tree.base), Ok(tree.path(expected)), "{given:?}");
    }
    let absolute = format!("{}/link", tree.base);
    assert_eq!(tree.workspace.resolve_directory(&absolute, &FilePath::root()), Ok(tree.path("real")));
}

#[test]
fn what_is_no_folder_is_named_as_given() {
    let tree = workspace_fixture();
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
            tree.workspace.resolve_directory(given, &tree.base),
            Err(expected.to_owned()),
            "{given:?}"
        );
    }
    for given in ["loop".to_owned(), "x".repeat(300), "x/".repeat(3000)] {
        let said = tree.workspace.resolve_directory(&given, &tree.base).unwrap_err();
        assert!(said.starts_with("cwd invalid: "), "{said}");
    }
    let homeless = LocalWorkspace::new(None).resolve_directory("~", &tree.base);
    assert_eq!(homeless, Err("cwd invalid: no home folder is known".to_owned()));
}

#[test]
fn a_place_is_real_as_far_as_it_is_there() {
    let tree = workspace_fixture();
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
        assert_eq!(tree.workspace.resolve_path(given, &tree.base), Ok(tree.path(expected)), "{given:?}");
    }
    assert_eq!(tree.workspace.resolve_path("", &tree.base), Err("the path is empty".to_owned()));
    assert_eq!(tree.workspace.resolve_path("a\0b", &tree.base), Err("the path contains a NUL byte".to_owned()));
    assert!(tree.workspace.resolve_path("loop/x", &tree.base).is_err());
}
