//! git in the sandbox: it works, and a command changes neither hooks nor settings of the repository that it works in.

use std::fs;
use std::process::Command;

use agent::ToolOutcome;
use agent::permission::{DirectorySet, Grant};
use sandbox::Tier;
use serde_json::json;

use crate::fixture::{Fixture, path};
use crate::sandbox::Sandbox;

/// A repository in `inside/` with a hook, and an agent that writes in it; none without git or the tier `namespaces`.
async fn repository(sandbox: &Sandbox) -> Option<Fixture> {
    let inside = sandbox.path("inside");
    let created = Command::new("git").args(["init", "-q", "-b", "main", &inside]).status();
    if !created.is_ok_and(|status| status.success()) {
        eprintln!("skipped: git is not installed");
        return None;
    }
    fs::create_dir_all(sandbox.path("inside/.git/hooks")).unwrap();
    fs::write(sandbox.path("inside/.git/hooks/pre-commit"), "#!/bin/sh\nexit 0\n").unwrap();
    let directories = DirectorySet::from_roots([path(&inside)]);
    let grant = Grant { read: directories.clone(), write: directories, ..Grant::everything() };
    let fixture = Fixture::with_commands(&inside, grant);
    if fixture.commands.report().await.tier() != Some(Tier::Namespaces) {
        eprintln!("skipped: only the tier namespaces protects a part of a writable directory");
        return None;
    }
    Some(fixture)
}

async fn shell(fixture: &Fixture, line: &str) -> ToolOutcome {
    fixture.call("shell.exec", &json!({ "command": line })).await
}

#[tokio::test]
async fn threat_72_commands_do_not_change_hooks_and_config() {
    let sandbox = Sandbox::new();
    let Some(fixture) = repository(&sandbox).await else { return };
    let state = || {
        let names = sandbox.file_names("inside/.git/hooks");
        (names, sandbox.content("inside/.git/hooks/pre-commit"), sandbox.content("inside/.git/config"))
    };
    let before = state();
    for line in [
        "echo evil > .git/hooks/pre-commit",
        "echo evil > .git/hooks/post-checkout",
        "echo evil >> .git/config",
        "echo evil | tee .git/config",
        "ln -sf /bin/true .git/hooks/pre-commit",
        "ln -sf ../evil .git/config",
        "rm -f .git/hooks/pre-commit",
        "rm -f .git/config",
        "rm -r .git/hooks",
        "mv .git/hooks moved",
        "mv .git/config moved",
        "mv .git moved",
        "cp ok.txt .git/config.new && mv -f .git/config.new .git/config",
        "chmod 755 .git/hooks/pre-commit",
        "chmod 666 .git/config",
        "touch .git/hooks/pre-commit",
        "truncate -s 0 .git/config",
        "mkdir .git/hooks/new",
        "sed -i s/bare/x/ .git/config",
        "git config core.fsmonitor evil",
        "git config core.hooksPath .",
        "git remote add origin evil",
        "umount .git/hooks",
        "mount -o remount,rw .git/hooks",
        "perl -e 'rename \".git\", \"x\" or exit 1'",
    ] {
        let outcome = shell(&fixture, line).await;
        assert_ne!(outcome.name(), "done", "{line}: {outcome:?}");
        assert_eq!(state(), before, "{line}");
    }
    // The rest of the repository is theirs.
    let outcome = shell(&fixture, "rm -rf .git; ls -A .git").await;
    assert!(outcome.text().contains("hooks"), "{outcome:?}");
    assert_eq!(state(), before);
}

#[tokio::test]
async fn git_works_in_a_repository_of_the_agent() {
    let sandbox = Sandbox::new();
    let Some(fixture) = repository(&sandbox).await else { return };
    let line = "set -e; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a \
        GIT_COMMITTER_EMAIL=a@example.org; git add . && git commit -q -m first && git checkout -q -b other \
        && echo more >> ok.txt && git stash -q && git stash pop -q && git commit -q -a -m second && git tag v1 \
        && git checkout -q main && git merge -q other && git rm -q sub/deep.txt && git reset -q --hard \
        && git branch -q -D other && git worktree add -q tree && git clone -q . copy && git gc -q \
        && git init -q new && cd new && git config user.name b && touch f && git add f && git commit -q -m third \
        && cd .. && git log --format=%s && git -C new log --format=%s && git -C copy status --short && ls tree";
    let outcome = shell(&fixture, line).await;
    assert!(outcome.text().contains(r#""stdout":"second\nfirst\nthird\nok.txt\nsub\n""#), "{outcome:?}");
}
