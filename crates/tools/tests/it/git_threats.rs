//! Hostile repositories: no command of theirs runs, nothing outside the grant is read.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::git_repository::{Repository, run_git};

/// Settings that name a command; `CANARY` becomes a command that leaves a file with the name of the setting.
const COMMAND_SETTINGS: &[&str] = &[
    "core.fsmonitor",
    "core.pager",
    "pager.log",
    "core.sshCommand",
    "core.editor",
    "core.askPass",
    "core.gitProxy",
    "core.alternateRefsCommand",
    "diff.external",
    "diff.evil.textconv",
    "diff.evil.command",
    "filter.evil.clean",
    "filter.evil.smudge",
    "filter.evil.process",
    "merge.evil.driver",
    "gpg.program",
    "gpg.ssh.program",
    "interactive.diffFilter",
    "sequence.editor",
    "remote.origin.uploadpack",
    "uploadpack.packObjectsHook",
    "trailer.evil.command",
];

/// The same behind a `!`, as shell commands.
const SHELL_SETTINGS: &[&str] = &["alias.status", "alias.log", "credential.helper", "submodule.sub.update"];

const HOOKS: [&str; 5] =
    ["post-index-change", "pre-commit", "post-checkout", "reference-transaction", "fsmonitor-watchman"];

/// Writes a script that leaves a canary and returns its path.
fn canary(repository: &Repository, name: &str) -> String {
    let script = repository.tree.join(format!("scripts/{name}"));
    std::fs::create_dir_all(script.parent().unwrap()).unwrap();
    let canaries = repository.base.join("canaries");
    std::fs::create_dir_all(&canaries).unwrap();
    let text = format!("#!/bin/sh\ntouch '{}/{name}'\ncat 2>/dev/null\n", canaries.display());
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    script.to_str().unwrap().to_owned()
}

fn canaries(repository: &Repository) -> Vec<String> {
    let entries = std::fs::read_dir(repository.base.join("canaries")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A repository whose every setting that names a command or a file is hostile.
fn hostile_repository() -> Repository {
    let repository = Repository::new();
    let sub = repository.base.join("sub");
    std::fs::create_dir(&sub).unwrap();
    assert!(run_git(&sub, &["clone", "--quiet", repository.path(), "."]).status.success());
    repository.git(&["submodule", "--quiet", "add", sub.to_str().unwrap(), "sub"]);
    repository.write(".gitattributes", "*.txt diff=evil filter=evil merge=evil\n");
    repository.commit("attributes");
    sign_last_commit(&repository);
    let set = |key: &str, value: &str| drop(repository.git(&["config", key, value]));
    std::fs::write(repository.outside.join("secret"), "outside-secret\n").unwrap();
    std::fs::write(repository.outside.join("ignore"), "a.txt\nnew.txt\n").unwrap();
    let included = canary(&repository, "included");
    let include = format!("[core]\n\tfsmonitor = {included}\n[user]\n\tname = outside-secret\n");
    std::fs::write(repository.outside.join("config"), include).unwrap();
    for name in HOOKS {
        let script = canary(&repository, &format!("hook-{name}"));
        std::fs::copy(&script, repository.tree.join(".git/hooks").join(name)).unwrap();
    }
    let outside = |name: &str| repository.outside.join(name).to_str().unwrap().to_owned();
    set("core.excludesFile", &outside("ignore"));
    set("core.attributesFile", &outside("secret"));
    set("mailmap.file", &outside("secret"));
    set("commit.template", &outside("secret"));
    set("log.showSignature", "true");
    set("filter.evil.required", "true");
    for key in SHELL_SETTINGS {
        let script = canary(&repository, key);
        set(key, &format!("!{script}"));
    }
    for key in COMMAND_SETTINGS {
        let script = canary(&repository, key);
        set(key, &script);
    }
    set("include.path", &outside("config"));
    let module = repository.tree.join(".git/modules/sub");
    for key in ["core.fsmonitor", "filter.evil.clean"] {
        let script = canary(&repository, &format!("sub-{key}"));
        let module = module.to_str().unwrap();
        assert!(run_git(&repository.tree, &["--git-dir", module, "config", key, &script]).status.success());
    }
    repository.write("a.txt", "changed\n");
    repository.write("new.txt", "new\n");
    repository.write("sub/a.txt", "changed\n");
    let _ = std::fs::remove_dir_all(repository.base.join("canaries"));
    std::fs::create_dir(repository.base.join("canaries")).unwrap();
    repository
}

/// Gives the last commit a signature, which `git log` checks with `gpg.program`.
fn sign_last_commit(repository: &Repository) {
    let commit = repository.git(&["cat-file", "commit", "HEAD"]);
    let signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\n";
    let signed = commit.replacen("\n\n", &format!("\n{signature}"), 1);
    let file = repository.base.join("signed");
    std::fs::write(&file, signed).unwrap();
    let id = repository.git(&["hash-object", "-t", "commit", "-w", file.to_str().unwrap()]);
    repository.git(&["update-ref", "HEAD", id.trim()]);
}

fn calls() -> Vec<(&'static str, Value)> {
    vec![
        ("git.status", json!({})),
        ("git.status", json!({"path": "sub"})),
        ("git.diff", json!({})),
        ("git.diff", json!({"staged": true})),
        ("git.diff", json!({"from": "HEAD~1"})),
        ("git.diff", json!({"from": "HEAD~1", "to": "HEAD"})),
        ("git.log", json!({})),
        ("git.log", json!({"path": "a.txt"})),
        ("git.show", json!({"rev": "HEAD"})),
        ("git.show", json!({"rev": "HEAD", "path": "a.txt"})),
        ("git.blame", json!({"path": "a.txt"})),
        ("git.blame", json!({"path": "a.txt", "rev": "HEAD"})),
    ]
}

#[tokio::test]
async fn threat_87_commands_of_a_hostile_repository_do_not_run() {
    let repository = hostile_repository();
    let fixture = Fixture::confined_to(repository.path()).running_commands();
    for (tool, arguments) in calls() {
        let outcome = fixture.call(tool, &arguments).await;
        let text = outcome.text();
        assert!(matches!(outcome, agent::ToolOutcome::Done(_)), "{tool} {arguments}: {text}");
        assert!(!text.contains("outside-secret"), "{tool} {arguments}: {text}");
    }
    // The excludes outside would hide it.
    let status = fixture.call("git.status", &json!({})).await;
    assert!(status.text().contains("?? new.txt"), "{status:?}");
    assert_eq!(canaries(&repository), Vec::<String>::new());
    assert_traps_work(&repository);
}

/// The control: git itself runs commands of the repository.
fn assert_traps_work(repository: &Repository) {
    let single = ["-c", "filter.evil.process=", "-c", "filter.evil.required=false"];
    for arguments in [
        &["status"][..],
        &["diff"],
        &["log", "-p"],
        &["diff", "--textconv", "--no-ext-diff"],
        &["-c", "diff.external=", "diff"],
        &["add", "a.txt"],
        &["log"],
    ] {
        for prefix in [&[][..], &single] {
            let _ = run_git(&repository.tree, &[prefix, arguments].concat());
        }
    }
    let fired = canaries(repository);
    let expected = [
        "diff.evil.command",
        "diff.evil.textconv",
        "diff.external",
        "filter.evil.process",
        "gpg.program",
        "hook-post-index-change",
        "included",
        "sub-core.fsmonitor",
    ];
    let is_fired = |name: &&str| fired.iter().any(|fired| fired == name);
    assert!(expected.iter().all(is_fired), "{fired:?}");
}

#[tokio::test]
async fn threat_87_missing_objects_are_not_fetched() {
    let repository = hostile_repository();
    let script = canary(&repository, "fetch");
    for (key, value) in [
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", &*format!("ext::{script}")),
        ("protocol.ext.allow", "always"),
    ] {
        repository.git(&["config", key, value]);
    }
    let blob = repository.git(&["rev-parse", "HEAD:src/b.txt"]);
    let (directory, file) = blob.trim().split_at(2);
    std::fs::remove_file(repository.tree.join(".git/objects").join(directory).join(file)).unwrap();
    let fixture = Fixture::confined_to(repository.path()).running_commands();
    let outcome = fixture.call("git.show", &json!({"rev": "HEAD", "path": "src/b.txt"})).await;
    assert!(matches!(outcome, agent::ToolOutcome::Failed(_)), "{outcome:?}");
    assert_eq!(canaries(&repository), Vec::<String>::new());
}

/// Makes a part of the repository lead to another one, which has a secret.
type Trick = fn(&Repository, &Path);

#[tokio::test]
async fn threat_87_nothing_outside_the_grant_is_read() {
    let tricks: [(&str, Trick); 10] = [
        ("git file", |repository, other| {
            std::fs::remove_dir_all(repository.tree.join(".git")).unwrap();
            repository.write(".git", &format!("gitdir: {}/.git\n", other.display()));
        }),
        ("git link", |repository, other| replace_by_link(repository, other, ".git")),
        ("objects", |repository, other| replace_by_link(repository, other, ".git/objects")),
        ("references", |repository, other| replace_by_link(repository, other, ".git/refs")),
        ("index", |repository, other| replace_by_link(repository, other, ".git/index")),
        ("configuration", |repository, other| replace_by_link(repository, other, ".git/config")),
        ("alternates", |repository, other| {
            repository.write(".git/objects/info/alternates", &format!("{}/.git/objects\n", other.display()));
        }),
        ("common directory", |repository, other| {
            repository.write(".git/commondir", &format!("{}/.git\n", other.display()));
        }),
        ("working tree", |repository, other| {
            repository.git(&["config", "core.worktree", other.to_str().unwrap()]);
        }),
        ("attributes", |repository, other| {
            symlink(other.join("secret"), repository.tree.join(".gitattributes")).unwrap();
        }),
    ];
    for (name, trick) in tricks {
        let repository = Repository::new();
        let other = repository.outside.join("other");
        std::fs::create_dir(&other).unwrap();
        run_git(&other, &["init", "--quiet", "--initial-branch=main"]);
        std::fs::write(other.join("outside-secret"), "outside-secret\n").unwrap();
        std::fs::write(other.join("secret"), "outside-secret\n").unwrap();
        run_git(&other, &["add", "--all"]);
        run_git(&other, &["commit", "--quiet", "--message", "outside-secret"]);
        let secret = run_git(&other, &["rev-parse", "HEAD"]).stdout;
        let secret = String::from_utf8(secret).unwrap().trim().to_owned();
        trick(&repository, &other);
        let fixture = Fixture::confined_to(repository.path()).running_commands();
        let mut calls = calls();
        calls.push(("git.show", json!({"rev": secret})));
        for (tool, arguments) in calls {
            let text = fixture.call(tool, &arguments).await.text().to_owned();
            assert!(!text.contains("outside-secret"), "{name}: {tool} {arguments}: {text}");
        }
    }
}

fn replace_by_link(repository: &Repository, other: &Path, name: &str) {
    let path = repository.tree.join(name);
    let _ = std::fs::remove_dir_all(&path).or_else(|_| std::fs::remove_file(&path));
    symlink(other.join(name), path).unwrap();
}
