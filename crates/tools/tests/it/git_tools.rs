//! The git tools through the sandbox: permissions, discovery of the repository, refusals.

use std::io::Write;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use agent::ToolOutcome;
use agent::permission::{DirectorySet, Grant};
use sandbox::{
    BuiltInLaunch, CommandExit, GrantedDirectory, Launcher, ResourceLimits, SystemDirectories, Tier,
};
use serde_json::{Value, json};

use crate::fixture::{Fixture, done, helper, path};
use crate::git_repository::{Repository, run_git};

fn agent(repository: &Repository) -> Fixture {
    Fixture::confined_to(repository.path()).running_commands()
}

async fn text(fixture: &Fixture, tool: &str, arguments: Value) -> String {
    let outcome = fixture.call(tool, &arguments).await;
    assert!(matches!(outcome, ToolOutcome::Done(_)), "{tool} {arguments}: {outcome:?}");
    outcome.text().to_owned()
}

#[tokio::test]
async fn every_git_tool_reads_the_repository() {
    let repository = Repository::new();
    let fixture = agent(&repository);
    assert_eq!(text(&fixture, "git.status", json!({})).await, "## main\n M a.txt");
    assert_eq!(
        text(&fixture, "git_status", json!({"path": "src"})).await,
        "## main\nnothing to commit, working tree clean"
    );
    let patch = repository.git(&["diff"]);
    assert_eq!(text(&fixture, "git.diff", json!({})).await, patch.trim_end());
    assert_eq!(text(&fixture, "git.diff", json!({"from": "HEAD", "path": "a.txt"})).await, patch.trim_end());
    let log = text(&fixture, "git.log", json!({"path": "src/b.txt", "count": 5})).await;
    assert!(log.ends_with("\n\n    first") && log.starts_with("commit "), "{log}");
    assert_eq!(text(&fixture, "git.show", json!({"rev": "HEAD", "path": "a.txt"})).await, "one\ntwo");
    let shown = text(&fixture, "git.show", json!({"rev": "main"})).await;
    assert!(shown.contains("+++ b/src/b.txt\n@@ -0,0 +1 @@\n+b"), "{shown}");
    let blamed = text(&fixture, "git.blame", json!({"path": "a.txt", "start_line": 2})).await;
    assert!(blamed.starts_with("00000000 (Not Committed Yet ") && blamed.ends_with(" 2) 2"), "{blamed}");
}

/// The tools choose the strongest tier of the machine; the built-in has to work in each.
#[tokio::test]
async fn git_built_in_answers_in_every_tier() {
    let repository = Repository::new();
    for tier in [Tier::Landlock, Tier::Namespaces] {
        let launcher = Launcher::new(helper(), tier, Arc::new(SystemDirectories::new("/usr/bin", &[])));
        let handle = Arc::new(std::fs::File::open(&repository.tree).unwrap().into());
        let path = repository.path().to_owned();
        let root = GrantedDirectory { path: path.clone(), handle, is_writable: false };
        let limits = ResourceLimits { file_bytes_max: 0, ..ResourceLimits::default() };
        let launch = BuiltInLaunch { name: "git".to_owned(), roots: vec![root], hidden: Vec::new(), limits };
        let mut running = launcher.start_built_in(launch).unwrap();
        let request = json!({
            "worktree": path, "roots": [path], "path": "", "blocked": [], "operation": {"status": {"offset": 0}},
        });
        running.take_stdin().unwrap().write_all(request.to_string().as_bytes()).unwrap();
        let mut output = Vec::new();
        while let Some((_, bytes)) = running.next_output().await {
            output.extend(bytes);
        }
        assert_eq!(running.exit(), Some(&CommandExit::Exited(0)), "{tier:?}");
        assert_eq!(String::from_utf8_lossy(&output), "## main\n M a.txt", "{tier:?}");
    }
}

#[tokio::test]
async fn git_tools_need_only_the_permission_to_read() {
    let repository = Repository::new();
    let mut fixture = agent(&repository);
    fixture.grant = Grant {
        read: DirectorySet::from_roots([path(repository.path())]),
        identities: fixture.grant.identities.clone(),
        ..Grant::nothing()
    };
    fixture.grant.tools = Grant::everything().tools;
    assert_eq!(fixture.call("git.status", &json!({})).await, done("## main\n M a.txt"));
    let denied = fixture.call("git.status", &json!({"path": repository.outside})).await;
    assert!(
        matches!(&denied, ToolOutcome::Denied(text) if text.contains("Path outside allowed directories"))
    );
}

#[tokio::test]
async fn git_tools_are_refused_like_commands_without_a_sandbox() {
    let repository = Repository::new();
    let fixture = Fixture::confined_to(repository.path());
    let refused = fixture.call("git.status", &json!({})).await;
    let command = fixture.call("cmd.exec", &json!({"command": "true"})).await;
    assert!(refused.text().contains("commands are refused because the kernel does not confine them"));
    assert_eq!(refused, command);
}

#[tokio::test]
async fn repository_is_looked_up_within_the_permitted_directory() {
    let repository = Repository::new();
    let source = repository.tree.join("src");
    // The repository is above the directory that the agent may read.
    let confined = Fixture::confined_to(source.to_str().unwrap()).running_commands();
    let outcome = confined.call("git.status", &json!({})).await;
    assert!(outcome.text().contains("no git repository at or above . within"), "{outcome:?}");
    // An agent that reads anywhere: the working directory is within the repository.
    let free = Fixture::with_commands(source.to_str().unwrap(), Grant::everything());
    assert_eq!(free.call("git.status", &json!({})).await, done("## main\n M a.txt"));
    assert_eq!(free.call("git.show", &json!({"rev": "HEAD", "path": "b.txt"})).await, done("b"));
    let deleted = repository.tree.join("src/b.txt");
    std::fs::remove_file(deleted).unwrap();
    assert_eq!(free.call("git.status", &json!({"path": "b.txt"})).await, done("## main\n D src/b.txt"));
    // A repository below the working directory.
    let above = Fixture::confined_to(repository.base.to_str().unwrap()).running_commands();
    assert!(above.call("git.log", &json!({"path": "tree"})).await.text().ends_with("    first"));
    assert!(above.call("git.log", &json!({})).await.text().contains("no git repository"));
}

#[tokio::test]
async fn linked_worktree_and_submodule_work_within_the_grant() {
    let repository = Repository::new();
    repository.git(&["worktree", "add", "--quiet", "-b", "linked", "../linked"]);
    let other = repository.base.join("other");
    std::fs::create_dir(&other).unwrap();
    assert!(run_git(&other, &["clone", "--quiet", repository.path(), "."]).status.success());
    repository.git(&["submodule", "--quiet", "add", other.to_str().unwrap(), "sub"]);
    let fixture = Fixture::confined_to(repository.base.to_str().unwrap()).running_commands();
    let status = text(&fixture, "git.status", json!({"path": "linked"})).await;
    assert_eq!(status, "## linked\nnothing to commit, working tree clean");
    let log = text(&fixture, "git.log", json!({"path": "tree/sub"})).await;
    assert!(log.ends_with("    first"), "{log}");
    // Without the grant for the main repository.
    let linked = repository.base.join("linked");
    let fixture = Fixture::confined_to(linked.to_str().unwrap()).running_commands();
    let outcome = fixture.call("git.status", &json!({})).await;
    assert!(
        matches!(&outcome, ToolOutcome::Denied(text) if text.contains("linked/.git leads out of")),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn git_directory_elsewhere_is_refused() {
    let repository = Repository::new();
    let elsewhere = repository.outside.join("git");
    std::fs::rename(repository.tree.join(".git"), &elsewhere).unwrap();
    let fixture = agent(&repository);
    for is_link in [false, true] {
        let dot_git = repository.tree.join(".git");
        let _ = std::fs::remove_file(&dot_git);
        if is_link {
            symlink("../outside/git", &dot_git).unwrap();
        } else {
            std::fs::write(&dot_git, format!("gitdir: {}\n", elsewhere.display())).unwrap();
        }
        let outcome = fixture.call("git.log", &json!({})).await;
        let is_expected = matches!(&outcome, ToolOutcome::Denied(text) if text.contains("leads out of"));
        assert!(is_expected, "{is_link}: {outcome:?}");
    }
    // The same within the grant works.
    let fixture = Fixture::confined_to(repository.base.to_str().unwrap()).running_commands();
    let log = fixture.call("git.log", &json!({"path": "tree"})).await;
    assert!(log.text().ends_with("    first"), "{log:?}");
}

#[tokio::test]
async fn blocked_directory_and_credentials_stay_hidden() {
    let repository = Repository::new();
    for name in ["home/token", ".npmrc", ".ssh/id_rsa", "open.txt"] {
        repository.write(name, "canary one\n");
    }
    repository.commit("all");
    for name in ["home/token", ".npmrc", ".ssh/id_rsa"] {
        repository.write(name, "canary two\n");
    }
    let mut fixture = agent(&repository);
    fixture.grant.blocked = vec![path(repository.tree.join("home").to_str().unwrap())];
    assert_eq!(text(&fixture, "git.status", json!({})).await, "## main\n M .npmrc\n M .ssh/id_rsa");
    for (tool, arguments) in [
        ("git.diff", json!({})),
        ("git.diff", json!({"from": "HEAD~1", "to": "HEAD"})),
        ("git.show", json!({"rev": "HEAD"})),
    ] {
        let shown = text(&fixture, tool, arguments).await;
        // One line of the open file.
        assert!(shown.matches("canary").count() <= 1 && shown.contains("[not shown: "), "{tool}: {shown}");
        assert!(!shown.contains("canary two") && !shown.contains("home/token"), "{tool}: {shown}");
    }
    for name in ["home/token", ".npmrc", ".ssh/id_rsa", ".SSH/Id_rsa"] {
        for (tool, arguments) in
            [("git.show", json!({"rev": "HEAD", "path": name})), ("git.blame", json!({"path": name}))]
        {
            let outcome = fixture.call(tool, &arguments).await;
            assert!(matches!(outcome, ToolOutcome::Denied(_)), "{tool} {name}: {outcome:?}");
        }
    }
}

#[tokio::test]
async fn git_reads_the_repository_that_was_granted() {
    let repository = Repository::new();
    let fixture = agent(&repository);
    std::fs::rename(&repository.tree, repository.base.join("moved")).unwrap();
    std::fs::create_dir(&repository.tree).unwrap();
    let outcome = fixture.call("git.status", &json!({})).await;
    assert!(outcome.text().contains("was replaced since it was granted"), "{outcome:?}");
}
