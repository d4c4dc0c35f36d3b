//! Places that no grant opens: behind links that lead out, the daemon's own home, other processes, and names that run
//! later as the user.

use std::fs;

use serde_json::json;

use super::{fixture_with, tool_result};
use crate::support::Fixture;
use crate::support::folder::{TestDirectory, read_file_script, write_file_script};

fn blocked_error(given: &str) -> String {
    format!("Permission denied: Path not in allowed directories: {given}")
}

/// The daemon's token file.
fn token_file(stage: &Fixture) -> String {
    let name = format!("rpc-{}.token", stage.daemon.port());
    let file = stage.daemon.home().canonicalize().unwrap().join(name);
    assert!(file.exists(), "{}", file.display());
    file.to_str().unwrap().to_owned()
}

fn assert_the_model_saw_no_token(stage: &Fixture) {
    let token = stage.daemon.token().unwrap();
    for request in stage.model.requests() {
        assert!(!request.body.to_string().contains(token));
    }
}

#[test]
fn a_link_is_followed_only_as_far_as_the_folder_goes() {
    let (folder, outside) =
        (TestDirectory::with_files(&[("deep/a.txt", "in")]), TestDirectory::with_files(&[("b.txt", "out")]));
    folder.link("near", "deep/a.txt");
    folder.link("near-folder", "deep");
    folder.link("far", &outside.path_of("b.txt"));
    folder.link("far-folder", outside.path_str());
    folder.link("up", "../../../../../../etc/passwd");
    folder.link("round", "round");
    folder.link("chain", "far-folder/b.txt");
    let stage = fixture_with("sandboxed", &folder);
    assert_eq!(tool_result(&stage, &read_file_script("near")), "in");
    assert_eq!(tool_result(&stage, &read_file_script("near-folder/a.txt")), "in");
    for name in ["far", "far-folder/b.txt", "up", "round", "chain"] {
        assert_eq!(tool_result(&stage, &read_file_script(name)), blocked_error(name));
    }
}

#[test]
fn nothing_is_written_through_a_link_that_leads_out() {
    let (folder, outside) = (TestDirectory::new(), TestDirectory::with_files(&[("b.txt", "out")]));
    folder.link("far", &outside.path_of("b.txt"));
    folder.link("far-folder", outside.path_str());
    folder.link("dangling", &outside.path_of("new.txt"));
    let stage = fixture_with("trusted", &folder);
    for name in ["far", "far-folder/b.txt", "far-folder/new.txt", "far-folder/new/c.txt"] {
        assert_eq!(tool_result(&stage, &write_file_script(name, "gone")), blocked_error(name));
    }
    let said = tool_result(&stage, &write_file_script("dangling", "gone"));
    let names: Vec<_> =
        fs::read_dir(outside.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["b.txt"], "{said}");
    assert_eq!(outside.read("b.txt").as_deref(), Some("out"));
}

#[test]
fn the_daemons_home_is_closed_to_everybody_also_behind_a_link() {
    let folder = TestDirectory::new();
    let stage = fixture_with("trusted", &folder);
    let (token, home) = (token_file(&stage), stage.daemon.home().canonicalize().unwrap());
    let home = home.to_str().unwrap();
    let name = token.rsplit('/').next().unwrap();
    folder.link("token", &token);
    folder.link("home", home);
    folder.link("above", home.rsplit_once('/').unwrap().0);
    for path in
        [token.clone(), format!("{home}/logs/worker/context.md"), format!("{home}/none"), home.to_owned()]
    {
        let text = format!("Permission denied: cannot read '{path}': the path is blocked");
        assert_eq!(tool_result(&stage, &read_file_script(&path)), text);
    }
    for path in [
        "token".to_owned(),
        format!("home/{name}"),
        format!("above/home/{name}"),
        "home/config.toml".to_owned(),
    ] {
        let said = tool_result(&stage, &read_file_script(&path));
        let missing = format!("Execution failed: File not found: {path}");
        assert!(
            said == blocked_error(&path) || (path.ends_with(".toml") && said == missing),
            "{path}: {said}"
        );
    }
    assert_the_model_saw_no_token(&stage);
}

#[test]
fn the_daemons_home_is_closed_also_when_it_is_inside_the_grant() {
    let folder = TestDirectory::new();
    let model = testkit::ScriptedModel::start();
    let home = folder.path().join("home");
    let daemon = crate::support::daemon_builder(&model).home(&home).start();
    let stage = Fixture { daemon, model };
    stage.create_with(json!({ "agent_id": "worker", "preset": "trusted", "cwd": folder.path_str() }));
    let token = token_file(&stage);
    folder.link("link", "home");
    for path in [token.as_str(), "home/../home/logs"] {
        assert!(tool_result(&stage, &read_file_script(path)).ends_with("the path is blocked"), "{path}");
    }
    for path in ["home/config.toml", "home/new/a.txt", token.as_str()] {
        assert!(
            tool_result(&stage, &write_file_script(path, "auth = false")).ends_with("the path is blocked"),
            "{path}"
        );
    }
    for path in ["link/config.toml", "link/new/a.txt"] {
        assert_eq!(tool_result(&stage, &write_file_script(path, "auth = false")), blocked_error(path));
    }
    assert!(!home.join("config.toml").exists() && !home.join("new").exists());
    assert_the_model_saw_no_token(&stage);
}

#[test]
fn the_daemons_home_is_closed_to_an_agent_that_lives_there() {
    let stage = Fixture::start();
    let home = stage.daemon.home().canonicalize().unwrap();
    for preset in ["sandboxed", "trusted"] {
        let name = format!("in-{preset}");
        stage.create_with(json!({ "agent_id": name, "preset": preset, "cwd": home }));
        let file = format!("rpc-{}.token", stage.daemon.port());
        assert!(
            stage.send_text(&name, &read_file_script(&file)).ends_with("the path is blocked"),
            "{preset}"
        );
    }
    assert!(
        stage
            .send_text("in-trusted", &write_file_script("config.toml", "auth = false"))
            .ends_with("the path is blocked")
    );
    assert_the_model_saw_no_token(&stage);
}

#[test]
fn other_processes_are_no_files() {
    let folder = TestDirectory::new();
    let stage = fixture_with("trusted", &folder);
    let pid = stage.daemon.pid();
    folder.link("environ", &format!("/proc/{pid}/environ"));
    let paths = [
        format!("/proc/{pid}/environ"),
        "/proc/self/environ".to_owned(),
        "/proc/thread-self/environ".to_owned(),
        format!("/proc/{pid}/{}", "root/etc/passwd"),
        "environ".to_owned(),
    ];
    for path in paths {
        assert_eq!(tool_result(&stage, &read_file_script(&path)), blocked_error(&path));
    }
}

#[test]
fn names_that_run_later_are_not_written() {
    let folder = TestDirectory::with_files(&[(".git/config", "[core]"), ("src/a.rs", "")]);
    folder.link("hooks", ".git");
    let stage = fixture_with("trusted", &folder);
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
            "Permission denied: {name} is protected: agents write no .git, no editor settings and no shell start files"
        );
        assert_eq!(tool_result(&stage, &write_file_script(name, "#!/bin/sh")), text);
    }
    assert_eq!(folder.read(".git/config").as_deref(), Some("[core]"));
    let mut left: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [".git", "hooks", "src"]);
    assert_eq!(fs::read_dir(folder.path_of(".git")).unwrap().count(), 1);
    assert_eq!(tool_result(&stage, &read_file_script(".git/config")), "[core]", "to read is another matter");
    assert!(tool_result(&stage, &write_file_script(".gitignore", "target")).contains("\"success\":true"));
}
