//! The granted directory itself is exchanged, moved or removed: no call reaches the directory that took its place.

use agent::outside::Workspace;
use agent::permission::{DirectorySet, Grant};
use rustix::fs::{CWD, RenameFlags};
use tools::LocalWorkspace;

use crate::fixture::{Fixture, path};
use crate::sandbox::{SECRET, Sandbox, append, append_file, read, write};

fn exchange(sandbox: &Sandbox, first: &str, second: &str) {
    let (first, second) = (sandbox.path(first), sandbox.path(second));
    rustix::fs::renameat_with(CWD, &first, CWD, &second, RenameFlags::EXCHANGE).expect("an exchange");
}

/// An agent that writes in these directories, as they are now.
fn writer_in(sandbox: &Sandbox, directories: &[&str]) -> Fixture {
    let roots: Vec<_> = directories.iter().map(|directory| path(&sandbox.path(directory))).collect();
    let workspace = LocalWorkspace::new(None);
    let identities = roots.iter().filter_map(|root| workspace.identify_directory(root)).collect();
    let write = DirectorySet::from_roots(roots);
    let grant = Grant { read: write.clone(), write, identities, ..Grant::everything() };
    Fixture::with_grant(&sandbox.path("inside"), grant)
}

#[tokio::test]
async fn exchanged_root_is_neither_read_nor_written() {
    for is_used_before in [false, true] {
        let sandbox = Sandbox::new();
        let fixture = sandbox.fixture();
        if is_used_before {
            assert_eq!(read(&fixture, "ok.txt").await.text(), "inside");
        }
        exchange(&sandbox, "inside", "outside");
        for outcome in [
            read(&fixture, "secret.txt").await,
            write(&fixture, "secret.txt", "mine").await,
            write(&fixture, "new/file", "mine").await,
            append(&fixture, "secret.txt", "mine").await,
            append_file(&fixture, "secret.txt", "mine").await,
        ] {
            assert_eq!(outcome, sandbox.replaced("inside"), "used before: {is_used_before}");
        }
        assert_eq!(sandbox.content("inside/secret.txt"), SECRET);
        assert_eq!(sandbox.file_names("inside"), ["secret.txt", "sub"]);
        exchange(&sandbox, "inside", "outside");
        assert_eq!(write(&fixture, "ok.txt", "again").await.name(), "done", "the granted one is back");
    }
}

#[tokio::test]
async fn exchange_during_calls_never_redirects_them() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    let (first, second) = (sandbox.path("inside"), sandbox.path("outside"));
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = std::sync::Arc::clone(&stop);
    let swapper = std::thread::spawn(move || {
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            rustix::fs::renameat_with(CWD, &first, CWD, &second, RenameFlags::EXCHANGE).expect("a swap");
        }
    });
    for round in 0..500 {
        assert!(!read(&fixture, "secret.txt").await.text().contains(SECRET), "escaped in round {round}");
        write(&fixture, "sub/deep.txt", "mine").await;
        write(&fixture, &format!("new-{round}/file"), "mine").await;
        append_file(&fixture, "secret.txt", "mine").await;
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    swapper.join().expect("the swapping thread");
    let outside =
        if sandbox.file_names("inside").contains(&"ok.txt".to_owned()) { "outside" } else { "inside" };
    assert_eq!(sandbox.file_names(outside), ["secret.txt", "sub"]);
    assert_eq!(sandbox.content(&format!("{outside}/sub/deep.txt")), SECRET);
    assert_eq!(sandbox.content(&format!("{outside}/secret.txt")), SECRET);
}

#[tokio::test]
async fn replaced_directory_above_the_root_closes_it() {
    let sandbox = Sandbox::new();
    let mut fixture = writer_in(&sandbox, &["inside/sub"]);
    let parent =
        LocalWorkspace::new(None).identify_directory(&path(&sandbox.path("inside"))).expect("exists");
    fixture.grant.identities.insert(0, parent);
    assert_eq!(write(&fixture, "sub/deep.txt", "mine").await.name(), "done");
    // The root itself moves along, but not the directory that an ancestor of the agent was granted.
    exchange(&sandbox, "inside", "outside");
    exchange(&sandbox, "inside/sub", "outside/sub");
    assert_eq!(write(&fixture, "sub/deep.txt", "mine").await, sandbox.replaced("inside"));
}

#[tokio::test]
async fn removed_root_is_not_created_anew() {
    let sandbox = Sandbox::new();
    let fixture = writer_in(&sandbox, &["inside/sub"]);
    std::fs::remove_dir_all(sandbox.path("inside/sub")).unwrap();
    assert_eq!(write(&fixture, "sub/x", "mine").await, sandbox.replaced("inside/sub"));
    assert_eq!(sandbox.file_names("inside"), ["ok.txt"]);
}

#[tokio::test]
async fn root_that_is_missing_or_a_file_is_opened_beneath_its_parent() {
    let sandbox = Sandbox::new();
    let fixture = writer_in(&sandbox, &["inside/new", "inside/ok.txt"]);
    assert_eq!(write(&fixture, "new/x", "mine").await.name(), "done");
    assert_eq!(write(&fixture, "ok.txt", "mine").await.name(), "done");
    assert_eq!(
        (sandbox.content("inside/new/x"), sandbox.content("inside/ok.txt")),
        ("mine".into(), "mine".into())
    );
    exchange(&sandbox, "inside", "outside");
    for file in ["new/x", "ok.txt"] {
        assert_eq!(write(&fixture, file, "mine").await, sandbox.replaced("inside"), "{file}");
    }
    assert_eq!(sandbox.file_names("inside"), ["secret.txt", "sub"]);
}
