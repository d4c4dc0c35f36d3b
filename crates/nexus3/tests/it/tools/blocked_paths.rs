//! Paths that no grant opens: symlinks that lead out of the directory, the daemon's home, files of processes, and files
//! that the user's programs would execute later.

use std::fs;

use serde_json::json;

use super::{fixture_with, tool_result};
use crate::support::Fixture;
use crate::support::folder::{TestDirectory, read_file_script, write_file_script};

fn blocked_error(given: &str) -> String {
    format!("Permission denied: Path not in allowed directories: {given}")
}

/// Path of the daemon's token file.
fn token_file(fixture: &Fixture) -> String {
    let name = format!("rpc-{}.token", fixture.daemon.port());
    let file = fixture.daemon.home().canonicalize().unwrap().join(name);
    assert!(file.exists(), "{}", file.display());
    file.to_str().unwrap().to_owned()
}

fn assert_no_token_in_model_requests(fixture: &Fixture) {
    let token = fixture.daemon.token().unwrap();
    for request in fixture.model.requests() {
        assert!(!request.body.to_string().contains(token));
    }
}

#[test]
fn symlinks_are_followed_only_within_the_directory() {
    let (directory, outside) =
        (TestDirectory::with_files(&[("deep/a.txt", "in")]), TestDirectory::with_files(&[("b.txt", "out")]));
    directory.link("near", "deep/a.txt");
    directory.link("near-folder", "deep");
    directory.link("far", &outside.path_of("b.txt"));
    directory.link("far-folder", outside.path_str());
    directory.link("up", "../../../../../../etc/passwd");
    directory.link("round", "round");
    directory.link("chain", "far-folder/b.txt");
    let fixture = fixture_with("sandboxed", &directory);
    assert_eq!(tool_result(&fixture, &read_file_script("near")), "in");
    assert_eq!(tool_result(&fixture, &read_file_script("near-folder/a.txt")), "in");
    for name in ["far", "far-folder/b.txt", "up", "round", "chain"] {
        assert_eq!(tool_result(&fixture, &read_file_script(name)), blocked_error(name));
    }
}

#[test]
fn nothing_is_written_through_a_symlink_that_leads_out() {
    let (directory, outside) = (TestDirectory::new(), TestDirectory::with_files(&[("b.txt", "out")]));
    directory.link("far", &outside.path_of("b.txt"));
    directory.link("far-folder", outside.path_str());
    directory.link("dangling", &outside.path_of("new.txt"));
    let fixture = fixture_with("trusted", &directory);
    for name in ["far", "far-folder/b.txt", "far-folder/new.txt", "far-folder/new/c.txt"] {
        assert_eq!(tool_result(&fixture, &write_file_script(name, "gone")), blocked_error(name));
    }
    let result = tool_result(&fixture, &write_file_script("dangling", "gone"));
    let names: Vec<_> =
        fs::read_dir(outside.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["b.txt"], "{result}");
    assert_eq!(outside.read("b.txt").as_deref(), Some("out"));
}

#[test]
fn daemon_home_is_blocked_directly_and_behind_symlinks() {
    let directory = TestDirectory::new();
    let fixture = fixture_with("trusted", &directory);
    let (token, home) = (token_file(&fixture), fixture.daemon.home().canonicalize().unwrap());
    let home = home.to_str().unwrap();
    let name = token.rsplit('/').next().unwrap();
    directory.link("token", &token);
    fs::hard_link(&token, directory.path_of("hard")).unwrap();
    directory.link("home", home);
    directory.link("above", home.rsplit_once('/').unwrap().0);
    for path in
        [token.clone(), format!("{home}/logs/worker/context.md"), format!("{home}/none"), home.to_owned()]
    {
        let text = format!("Permission denied: cannot read '{path}': the path is blocked");
        assert_eq!(tool_result(&fixture, &read_file_script(&path)), text);
    }
    for path in [
        "token".to_owned(),
        "hard".to_owned(),
        format!("home/{name}"),
        format!("above/home/{name}"),
        "home/config.toml".to_owned(),
    ] {
        let result = tool_result(&fixture, &read_file_script(&path));
        let missing = format!("Execution failed: File not found: {path}");
        assert!(
            result == blocked_error(&path) || (path.ends_with(".toml") && result == missing),
            "{path}: {result}"
        );
    }
    assert_no_token_in_model_requests(&fixture);
}

#[test]
fn daemon_home_is_blocked_inside_a_granted_directory() {
    let directory = TestDirectory::new();
    let model = testkit::ScriptedModel::start();
    let home = directory.path().join("home");
    let daemon = crate::support::daemon_builder(&model).home(&home).start();
    let fixture = Fixture { daemon, model };
    fixture.create_with(json!({ "agent_id": "worker", "preset": "trusted", "cwd": directory.path_str() }));
    let token = token_file(&fixture);
    directory.link("link", "home");
    for path in [token.as_str(), "home/../home/logs"] {
        assert!(tool_result(&fixture, &read_file_script(path)).ends_with("the path is blocked"), "{path}");
    }
    for path in ["home/config.toml", "home/new/a.txt", token.as_str()] {
        assert!(
            tool_result(&fixture, &write_file_script(path, "auth = false")).ends_with("the path is blocked"),
            "{path}"
        );
    }
    for path in ["link/config.toml", "link/new/a.txt"] {
        assert_eq!(tool_result(&fixture, &write_file_script(path, "auth = false")), blocked_error(path));
    }
    assert!(!home.join("config.toml").exists() && !home.join("new").exists());
    assert_no_token_in_model_requests(&fixture);
}

#[test]
fn daemon_home_is_blocked_as_working_directory() {
    let fixture = Fixture::start();
    let home = fixture.daemon.home().canonicalize().unwrap();
    for preset in ["sandboxed", "trusted"] {
        let name = format!("in-{preset}");
        fixture.create_with(json!({ "agent_id": name, "preset": preset, "cwd": home }));
        let file = format!("rpc-{}.token", fixture.daemon.port());
        assert!(
            fixture.send_text(&name, &read_file_script(&file)).ends_with("the path is blocked"),
            "{preset}"
        );
    }
    assert!(
        fixture
            .send_text("in-trusted", &write_file_script("config.toml", "auth = false"))
            .ends_with("the path is blocked")
    );
    assert_no_token_in_model_requests(&fixture);
}

#[test]
fn process_files_are_blocked() {
    let directory = TestDirectory::new();
    let fixture = fixture_with("trusted", &directory);
    let pid = fixture.daemon.pid();
    directory.link("environ", &format!("/proc/{pid}/environ"));
    let paths = [
        format!("/proc/{pid}/environ"),
        "/proc/self/environ".to_owned(),
        "/proc/thread-self/environ".to_owned(),
        format!("/proc/{pid}/{}", "root/etc/passwd"),
        "environ".to_owned(),
    ];
    for path in paths {
        assert_eq!(tool_result(&fixture, &read_file_script(&path)), blocked_error(&path));
    }
}

#[test]
fn files_that_are_executed_later_are_not_written() {
    let directory = TestDirectory::with_files(&[(".git/config", "[core]"), ("src/a.rs", "")]);
    directory.link("hooks", ".git");
    let fixture = fixture_with("trusted", &directory);
    for name in [
        ".git/hooks/pre-commit",
        ".GIT/hooks/pre-commit",
        ".git/config",
        "sub/.git/hooks/x",
        ".bashrc",
        "src/.profile",
        ".vscode/tasks.json",
        ".idea/x.xml",
        ".zshenv",
        "hooks/config",
        "hooks/hooks/pre-commit",
    ] {
        let text = format!(
            "Permission denied: {name} is protected: agents write no .git, no editor settings, no shell start \
             files and no credentials"
        );
        assert_eq!(tool_result(&fixture, &write_file_script(name, "#!/bin/sh")), text);
    }
    assert_eq!(directory.read(".git/config").as_deref(), Some("[core]"));
    let mut names: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [".git", "hooks", "src"]);
    assert_eq!(fs::read_dir(directory.path_of(".git")).unwrap().count(), 1);
    assert_eq!(tool_result(&fixture, &read_file_script(".git/config")), "[core]", "reading is allowed");
    assert!(tool_result(&fixture, &write_file_script(".gitignore", "target")).contains("\"success\":true"));
}
