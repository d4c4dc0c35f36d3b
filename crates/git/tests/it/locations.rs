//! Repositories of which a part is elsewhere: what is in the directories of the request works, the rest is refused.

use std::path::Path;

use crate::fixture::{Fixture, log, run_git, show, status};

#[track_caller]
fn assert_refused(answer: Result<String, String>, why: &str) {
    let text = answer.unwrap_err();
    assert!(text.contains(why), "{text}");
}

/// A repository beside that of the fixture, which a request does not name.
fn other_repository(fixture: &Fixture) -> std::path::PathBuf {
    let other = fixture.base.join("other");
    std::fs::create_dir(&other).unwrap();
    run_git(&other, 0, &["init", "--quiet", "--initial-branch=main"]);
    std::fs::write(other.join("secret"), "secret").unwrap();
    run_git(&other, 1, &["add", "secret"]);
    run_git(&other, 1, &["commit", "--quiet", "--message", "secret"]);
    other
}

#[test]
fn linked_worktree_is_read_with_its_common_directory() {
    let fixture = Fixture::with_history();
    fixture.git(&["worktree", "add", "--quiet", "-b", "linked", "../linked"]);
    let linked = fixture.base.join("linked");
    std::fs::write(linked.join("a.txt"), "changed\n").unwrap();
    let git_dir = fixture.path(".git");
    let own = fixture.ask_in(&linked, &[&linked, &git_dir], "", &status()).unwrap();
    assert_eq!(own.trim_end(), run_git(&linked, 0, &["status", "--short", "--branch"]).trim_end());
    let worktrees = git_dir.join("worktrees/linked");
    assert_refused(
        fixture.ask_in(&linked, &[&linked, &worktrees], "", &status()),
        "the common git directory of the repository is",
    );
    assert_refused(
        fixture.ask_in(&linked, &[&linked], "", &status()),
        "the git directory of the repository is",
    );
}

#[test]
fn submodule_is_a_repository_of_its_own() {
    let fixture = Fixture::with_history();
    let other = other_repository(&fixture);
    fixture.git(&["submodule", "--quiet", "add", other.to_str().unwrap(), "sub"]);
    let sub = fixture.path("sub");
    let own = fixture.ask_in(&sub, &[&fixture.worktree], "", &log(None, 5, 0)).unwrap();
    assert!(own.contains("    secret"), "{own}");
    // Its own changes are not shown in the status of the outer one.
    std::fs::write(sub.join("secret"), "changed").unwrap();
    fixture.commit("a submodule", 6);
    assert!(fixture.ask(&status()).unwrap().contains("nothing to commit"));
}

#[test]
fn repository_that_leads_elsewhere_is_refused() {
    let link = |from: &Path, to: &Path| std::os::unix::fs::symlink(to, from).unwrap();
    type Trick = fn(&Fixture, &Path);
    let tricks: [(&str, Trick, &str); 6] = [
        (
            "git file",
            |fixture, other| {
                std::fs::remove_dir_all(fixture.path(".git")).unwrap();
                fixture.write(".git", &format!("gitdir: {}/.git\n", other.display()));
            },
            "refused",
        ),
        (
            "worktree",
            |fixture, other| drop(fixture.git(&["config", "core.worktree", other.to_str().unwrap()])),
            "core.worktree of the repository leads to",
        ),
        (
            "alternates",
            |fixture, other| {
                fixture.write(".git/objects/info/alternates", &format!("{}/.git/objects\n", other.display()));
            },
            "an alternate object directory of the repository is",
        ),
        (
            "relative alternates",
            |fixture, _| fixture.write(".git/objects/info/alternates", "../../../other/.git/objects\n"),
            "an alternate object directory of the repository is",
        ),
        (
            "common directory",
            |fixture, other| fixture.write(".git/commondir", &format!("{}/.git\n", other.display())),
            "refused",
        ),
        ("bare", |fixture, _| drop(fixture.git(&["config", "core.bare", "true"])), "the repository is bare"),
    ];
    for (name, trick, why) in tricks {
        let fixture = Fixture::with_history();
        let other = other_repository(&fixture);
        trick(&fixture, &other);
        let text = fixture.ask(&log(None, 5, 0)).expect_err(name);
        assert!(text.contains(why), "{name}: {text}");
    }
    for part in [".git", ".git/objects"] {
        let fixture = Fixture::with_history();
        let other = other_repository(&fixture);
        std::fs::remove_dir_all(fixture.path(part)).unwrap();
        link(&fixture.path(part), &other.join(part));
        assert_refused(fixture.ask(&log(None, 5, 0)), "outside of the repository's own directories");
    }
}

#[test]
fn named_pipe_in_the_place_of_a_file_is_refused() {
    for name in
        [".gitignore", ".gitattributes", ".git/info/exclude", ".git/HEAD", ".git/index", ".git/packed-refs"]
    {
        let fixture = Fixture::with_history();
        let _ = std::fs::remove_file(fixture.path(name));
        std::fs::create_dir_all(fixture.path(name).parent().unwrap()).unwrap();
        let made = std::process::Command::new("mkfifo").arg(fixture.path(name)).status().unwrap();
        assert!(made.success());
        assert_refused(fixture.ask(&status()), "is not a regular file");
    }
}

#[test]
fn named_pipe_in_the_place_of_a_tracked_file_is_not_opened() {
    let fixture = Fixture::with_history();
    std::fs::remove_file(fixture.path("a.txt")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(fixture.path("a.txt")).status().unwrap();
    assert!(made.success());
    assert!(fixture.ask(&status()).unwrap().contains(" T a.txt"));
    let patch = fixture.ask(&crate::fixture::diff(None, None, false)).unwrap();
    assert!(patch.contains("[not shown: it is not a regular file]"), "{patch}");
    let fault = fixture.ask_path("a.txt", &crate::fixture::blame(None, None, None)).unwrap_err();
    assert_eq!(fault, "a.txt is not a regular file");
    assert!(fixture.ask_path("a.txt", &show("HEAD")).is_ok());
}
