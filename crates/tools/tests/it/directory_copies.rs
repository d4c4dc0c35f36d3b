//! Copying directories: the whole tree or nothing, without following links.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use agent::ToolOutcome;
use serde_json::json;

use crate::blocked_aliases::{BindMount, trusted};
use crate::fixture::{Fixture, done, failed, path};
use crate::sandbox::{SECRET, Sandbox, path_denied};
use crate::small_disk::SmallDisk;

async fn copy(fixture: &Fixture, from: &str, to: &str) -> ToolOutcome {
    fixture.call("fs.copy", &json!({ "from": from, "to": to })).await
}

#[tokio::test]
async fn directory_is_copied_with_links_and_modes() {
    let sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.path("inside/sub/a/b")).unwrap();
    fs::write(sandbox.path("inside/sub/a/tool"), "#!").unwrap();
    fs::set_permissions(sandbox.path("inside/sub/a/tool"), fs::Permissions::from_mode(0o4755)).unwrap();
    fs::set_permissions(sandbox.path("inside/sub/a"), fs::Permissions::from_mode(0o500)).unwrap();
    symlink("../../outside/secret.txt", sandbox.path("inside/sub/way")).unwrap();
    let outcome = copy(&sandbox.fixture(), "sub", "new/place").await;
    let expected = r#"{"bytes_written":6,"entries":6,"from":"sub","success":true,"to":"new/place"}"#;
    assert_eq!(outcome, done(expected));
    assert_eq!(sandbox.file_names("inside"), ["new", "ok.txt", "sub"]);
    assert_eq!(sandbox.file_names("inside/new"), ["place"], "no temporary directory is left");
    assert_eq!(sandbox.file_names("inside/new/place"), ["a", "deep.txt", "way"]);
    assert_eq!(sandbox.file_names("inside/new/place/a"), ["b", "tool"]);
    assert_eq!(sandbox.content("inside/new/place/deep.txt"), "deep");
    let link = fs::read_link(sandbox.path("inside/new/place/way")).unwrap();
    assert_eq!(link.to_str(), Some("../../outside/secret.txt"), "the link, not its target");
    let mode = |name: &str| fs::metadata(sandbox.path(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode("inside/new/place/a/tool"), 0o755, "without set-id bits");
    assert_eq!(mode("inside/new/place/a"), 0o700, "always open to its owner");
    fs::set_permissions(sandbox.path("inside/sub/a"), fs::Permissions::from_mode(0o700)).unwrap();
}

#[tokio::test]
async fn directory_is_copied_to_a_new_path_outside_itself() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    symlink("sub", sandbox.path("inside/way")).unwrap();
    let itself =
        |to: &str| failed(format!("Execution failed: {to}: a directory cannot be copied into itself"));
    for to in ["sub/new", "sub/a/b", "way/new"] {
        assert_eq!(copy(&fixture, "sub", to).await, itself(to));
    }
    for overwrite in [false, true] {
        for existing in ["ok.txt", "way", "."] {
            let over = json!({"from": "sub", "to": existing, "overwrite": overwrite});
            assert_eq!(fixture.call("fs.copy", &over).await.name(), "failed", "{existing} {overwrite}");
        }
    }
    assert_eq!(sandbox.file_names("inside/sub"), ["deep.txt"]);
    assert_eq!(sandbox.content("inside/ok.txt"), "inside");
    assert_eq!(copy(&fixture, "way", "new").await.name(), "done", "a link that stays inside is followed");
    assert_eq!(copy(&fixture, "../outside", "x").await.name(), "denied");
    symlink("../outside", sandbox.path("inside/out")).unwrap();
    assert_eq!(copy(&fixture, "out", "x").await, path_denied("out"));
    assert_eq!(copy(&fixture, "sub", "out/x").await, path_denied("out/x"));
    assert_eq!(sandbox.file_names("outside"), ["secret.txt", "sub"]);
}

#[tokio::test]
async fn directory_with_closed_contents_is_not_copied() {
    let sandbox = Sandbox::new();
    let mut fixture = trusted(&sandbox);
    for name in ["a/.git/config", "b/x/.netrc", "c/x"] {
        let file = sandbox.path(&format!("inside/{name}"));
        fs::create_dir_all(std::path::Path::new(&file).parent().unwrap()).unwrap();
        fs::write(&file, "old").unwrap();
    }
    fs::hard_link(sandbox.path("outside/secret.txt"), sandbox.path("inside/c/leaf")).unwrap();
    fixture.grant.blocked.push(path(&sandbox.path("inside/sub")));
    for (from, why) in [
        ("a", "a/.git is protected"),
        ("b", "b/x/.netrc is protected"),
        ("c", "it contains a blocked file"),
        ("../inside", "../inside/a/.git is protected"),
    ] {
        let expected = format!("Permission denied: {from} is not copied: {why}");
        assert_eq!(copy(&fixture, from, "/tmp/nexus3-never-created").await, ToolOutcome::Denied(expected));
    }
    assert_eq!(copy(&fixture, "sub", "new").await.name(), "denied");
    assert_eq!(copy(&fixture, "c/leaf", "new").await.name(), "denied");
    assert_eq!(sandbox.file_names("inside"), ["a", "b", "c", "ok.txt", "sub"]);
}

#[tokio::test]
async fn copy_is_limited_and_leaves_nothing_behind() {
    let sandbox = Sandbox::new();
    let fixture = sandbox.fixture();
    fs::create_dir_all(sandbox.path(&format!("inside/deep/{}", "d/".repeat(70)))).unwrap();
    fs::create_dir(sandbox.path("inside/many")).unwrap();
    for index in 0..10_001 {
        fs::File::create(sandbox.path(&format!("inside/many/{index}"))).unwrap();
    }
    fs::create_dir(sandbox.path("inside/long")).unwrap();
    for name in ["a", "b"] {
        fs::File::create(sandbox.path(&format!("inside/long/{name}"))).unwrap().set_len(60 << 20).unwrap();
    }
    let pipe = sandbox.path("inside/sub/fifo");
    rustix::fs::mknodat(rustix::fs::CWD, pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    for (from, why) in [
        ("deep", "has more than 10000 entries or is more than 64 directories deep"),
        ("many", "has more than 10000 entries or is more than 64 directories deep"),
        ("long", "is longer than 104857600 bytes"),
        ("sub", "sub/fifo is a named pipe"),
    ] {
        let outcome = copy(&fixture, from, "new/copy").await;
        assert!(outcome.text().contains(why), "{from}: {outcome:?}");
        assert_eq!(sandbox.file_names("inside"), ["deep", "long", "many", "ok.txt", "sub"], "{from}");
    }
}

#[tokio::test]
async fn threat_73_copy_on_a_full_disk_leaves_nothing_behind() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("inside/small")).unwrap();
    let Some(disk) = SmallDisk::mount(sandbox.path("inside/small")) else { return };
    for index in 0..20 {
        fs::write(sandbox.path(&format!("inside/sub/{index}")), vec![b'x'; 8 << 10]).unwrap();
    }
    let fixture = sandbox.fixture();
    let outcome = copy(&fixture, "sub", "small/a/copy").await;
    assert!(outcome.text().contains("No space left on device"), "{outcome:?}");
    assert!(sandbox.file_names("inside/small").is_empty());
    drop(disk);
}

#[tokio::test]
async fn copy_does_not_cross_mounts() {
    let sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.path("inside/a/b")).unwrap();
    let Some(mount) = BindMount::create(&sandbox, "inside-sibling", "inside/a/b") else { return };
    let outcome = copy(&sandbox.fixture(), "a", "new").await;
    let expected = "Permission denied: a is not copied: a/b is on another mount";
    assert_eq!(outcome, ToolOutcome::Denied(expected.to_owned()));
    assert_eq!(sandbox.file_names("inside"), ["a", "ok.txt", "sub"]);
    assert_eq!(sandbox.content("inside-sibling/secret.txt"), SECRET);
    drop(mount);
}
