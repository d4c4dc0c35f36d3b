//! Symbolic links: those that stay inside are followed, escaping ones are denied, for reading and writing alike.

use std::fs;
use std::os::unix::fs::symlink;

use agent::ToolOutcome;
use agent::permission::{DirectorySet, Grant};

use crate::fixture::{Fixture, done, path};
use crate::sandbox::{SECRET, Sandbox, append, append_file, path_denied, read, write, written_outcome};

/// A sandbox with links of every kind.
fn sandbox_with_links() -> Sandbox {
    let sandbox = Sandbox::new();
    let link = |target: &str, name: &str| {
        let target = target.replace("BASE", &sandbox.base);
        symlink(target, sandbox.path(&format!("inside/{name}"))).unwrap();
    };
    link("../outside/secret.txt", "leaf");
    link("BASE/outside/secret.txt", "absolute-leaf");
    link("../outside", "middle");
    link("BASE/outside", "absolute-middle");
    link("sub/../../outside", "winding");
    link("../../../../../../../../../../../../etc/passwd", "far");
    link("../outside/new.txt", "dangling-out");
    link("BASE/outside/new.txt", "absolute-dangling-out");
    link("../outside/no/new.txt", "dangling-out-deep");
    link("/proc/self/root", "magic");
    link("/proc/self/cwd", "magic-cwd");
    link("/dev/fd/0", "magic-fd");
    link("loop-b", "loop-a");
    link("loop-a", "loop-b");
    link("self", "self");
    link("BASE/inside/ok.txt", "absolute-inside");
    link("..", "up");
    link("../inside/ok.txt", "out-and-in");
    link("ok.txt", "good");
    link("sub/deep.txt", "good-deep");
    link("sub", "good-folder");
    link("sub/../ok.txt", "good-winding");
    link("nothing", "dangling-in");
    chain(&sandbox, "out", 40, "../outside/secret.txt");
    chain(&sandbox, "in", 40, "ok.txt");
    chain(&sandbox, "long", 41, "ok.txt");
    sandbox
}

/// A chain of links `name-1` to `name-2` and so on; the last one links to the target.
fn chain(sandbox: &Sandbox, name: &str, length: usize, target: &str) {
    for index in 1..=length {
        let next = if index == length { target.to_owned() } else { format!("{name}-{}", index + 1) };
        symlink(next, sandbox.path(&format!("inside/{name}-{index}"))).unwrap();
    }
}

const ESCAPING_LINKS: &[&str] = &[
    "leaf",
    "absolute-leaf",
    "middle/secret.txt",
    "middle/sub/deep.txt",
    "absolute-middle/secret.txt",
    "winding/secret.txt",
    "far",
    "dangling-out",
    "absolute-dangling-out",
    "dangling-out-deep",
    "magic/etc/passwd",
    "magic-cwd/Cargo.toml",
    "magic-fd",
    "loop-a",
    "self",
    "self/x",
    "out-1",
    "long-1",
    "absolute-inside",
    "up/outside/secret.txt",
    "out-and-in",
    "good-folder/../middle/secret.txt",
];

#[tokio::test]
async fn threat_66_links_out_are_denied() {
    let sandbox = sandbox_with_links();
    let fixture = sandbox.fixture();
    for link in ESCAPING_LINKS {
        assert_eq!(read(&fixture, link).await, path_denied(link), "reading {link}");
        assert_eq!(write(&fixture, link, "mine").await, path_denied(link), "writing {link}");
        assert_eq!(append(&fixture, link, "mine").await, path_denied(link), "appending to {link}");
        assert_eq!(append_file(&fixture, link, "mine").await, path_denied(link), "append_file {link}");
    }
    for new in ["middle/new.txt", "middle/new/new.txt", "absolute-middle/new.txt", "winding/a/b/c"] {
        assert_eq!(write(&fixture, new, "mine").await, path_denied(new));
        assert_eq!(append_file(&fixture, new, "mine").await, path_denied(new));
    }
    assert_eq!(sandbox.file_names("outside"), ["secret.txt", "sub"]);
    assert_eq!(sandbox.content("outside/secret.txt"), SECRET);
}

#[tokio::test]
async fn links_that_stay_inside_are_followed() {
    let sandbox = sandbox_with_links();
    let fixture = sandbox.fixture();
    for (link, expected) in [
        ("good", "inside"),
        ("good-deep", "deep"),
        ("good-folder/deep.txt", "deep"),
        ("good-winding", "inside"),
        ("in-1", "inside"),
    ] {
        assert_eq!(read(&fixture, link).await, done(expected), "{link}");
    }
    let outcome = read(&fixture, "dangling-in").await;
    assert_eq!(outcome.text(), "Execution failed: File not found: dangling-in");
}

#[tokio::test]
async fn writing_through_a_link_retains_the_link() {
    let sandbox = sandbox_with_links();
    let fixture = sandbox.fixture();
    assert_eq!(write(&fixture, "good-deep", "new").await, written_outcome("good-deep", 3));
    assert_eq!(append(&fixture, "in-1", "!").await, written_outcome("in-1", 1));
    assert_eq!(write(&fixture, "good-folder/made/x", "x").await, written_outcome("good-folder/made/x", 1));
    assert!(fs::symlink_metadata(sandbox.path("inside/good-deep")).unwrap().is_symlink());
    assert!(fs::symlink_metadata(sandbox.path("inside/in-40")).unwrap().is_symlink());
    assert_eq!(sandbox.content("inside/sub/deep.txt"), "new");
    assert_eq!(sandbox.content("inside/ok.txt"), "inside!");
    assert_eq!(sandbox.content("inside/sub/made/x"), "x");
}

#[tokio::test]
async fn threat_66_dangling_link_is_not_written() {
    let sandbox = sandbox_with_links();
    assert_eq!(write(&sandbox.fixture(), "dangling-in", "x").await, path_denied("dangling-in"));
    assert!(fs::symlink_metadata(sandbox.path("inside/dangling-in")).unwrap().is_symlink());
    // The target of a link that led nowhere is created meanwhile.
    fs::write(sandbox.path("outside/new.txt"), SECRET).unwrap();
    for link in ["dangling-out", "absolute-dangling-out"] {
        assert_eq!(read(&sandbox.fixture(), link).await, path_denied(link));
        assert_eq!(write(&sandbox.fixture(), link, "x").await, path_denied(link));
    }
    assert_eq!(sandbox.content("outside/new.txt"), SECRET);
}

#[tokio::test]
async fn threat_68_link_into_a_blocked_directory_is_denied() {
    let sandbox = Sandbox::new();
    symlink("sub", sandbox.path("inside/way")).unwrap();
    symlink("sub/deep.txt", sandbox.path("inside/file")).unwrap();
    let mut fixture = sandbox.fixture();
    fixture.grant.blocked = vec![path(&sandbox.path("inside/sub"))];
    for link in ["way/deep.txt", "file"] {
        assert_eq!(read(&fixture, link).await, path_denied(link));
        assert_eq!(write(&fixture, link, "x").await, path_denied(link));
    }
    for new in ["way/new.txt", "way/new/new.txt"] {
        assert_eq!(write(&fixture, new, "x").await, path_denied(new));
    }
    assert!(matches!(read(&fixture, "sub/deep.txt").await, ToolOutcome::Denied(_)));
    assert_eq!(sandbox.file_names("inside/sub"), ["deep.txt"]);
    assert_eq!(sandbox.content("inside/sub/deep.txt"), "deep");
    assert_eq!(read(&fixture, "ok.txt").await, done("inside"));
}

#[tokio::test]
async fn root_replaced_by_a_link_is_denied() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    fs::rename(sandbox.path("inside"), sandbox.path("moved")).unwrap();
    symlink("outside", sandbox.path("inside")).unwrap();
    assert_eq!(read(&fixture, "secret.txt").await, sandbox.replaced("inside"));
    assert_eq!(write(&fixture, "new.txt", "x").await, sandbox.replaced("inside"));
    assert_eq!(sandbox.file_names("outside"), ["secret.txt", "sub"]);
}

#[tokio::test]
async fn single_file_can_be_granted() {
    let sandbox = Sandbox::new();
    let file = DirectorySet::from_roots([path(&sandbox.path("inside/ok.txt"))]);
    let grant = Grant { read: file.clone(), write: file, ..Grant::everything() };
    let fixture = Fixture::with_grant(&sandbox.path("inside"), grant);
    assert_eq!(read(&fixture, "ok.txt").await, done("inside"));
    assert_eq!(write(&fixture, "ok.txt", "new").await, written_outcome("ok.txt", 3));
    assert_eq!(append(&fixture, "ok.txt", "er").await, written_outcome("ok.txt", 2));
    assert_eq!(sandbox.content("inside/ok.txt"), "newer");
    fs::remove_file(sandbox.path("inside/ok.txt")).unwrap();
    assert_eq!(read(&fixture, "ok.txt").await.text(), "Execution failed: File not found: ok.txt");
    assert_eq!(write(&fixture, "ok.txt", "again").await, written_outcome("ok.txt", 5));
    assert!(matches!(read(&fixture, "sub/deep.txt").await, ToolOutcome::Denied(_)));
    let below = read(&fixture, "ok.txt/x").await;
    assert_eq!(below.text(), "Execution failed: ok.txt/x: Not a directory (os error 20)");

    fs::remove_file(sandbox.path("inside/ok.txt")).unwrap();
    symlink("sub/deep.txt", sandbox.path("inside/ok.txt")).unwrap();
    assert_eq!(read(&fixture, "ok.txt").await, path_denied("ok.txt"));
    assert_eq!(write(&fixture, "ok.txt", "x").await, path_denied("ok.txt"));
    assert_eq!(sandbox.content("inside/sub/deep.txt"), "deep");
}
