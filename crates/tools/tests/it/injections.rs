//! Commands as a model writes them: arguments that look like a shell's, links for a second step, programs that take the
//! name of others, and directories that commands must not start in.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use agent::ToolOutcome;
use agent::permission::{DirectorySet, Grant};
use serde_json::{Value, json};

use crate::fixture::{Fixture, path};
use crate::sandbox::{SECRET, Sandbox, append, append_file, path_denied, read, write};

/// An agent that reads and writes in `inside/` and runs commands there.
fn fixture(sandbox: &Sandbox) -> Fixture {
    let directories = DirectorySet::from_roots([path(&sandbox.path("inside"))]);
    let grant = Grant { read: directories.clone(), write: directories, ..Grant::everything() };
    Fixture::with_commands(&sandbox.path("inside"), grant)
}

fn stdout(outcome: &ToolOutcome) -> String {
    let result: Value = serde_json::from_str(outcome.text()).expect("the result of a command");
    result["stdout"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn threat_67_link_made_by_a_command_leads_no_tool_out() {
    let sandbox = Sandbox::new();
    let fixture = fixture(&sandbox);
    let line = format!(
        "ln -s ../outside way; ln -s {0}/outside absolute; ln -s ../outside/secret.txt leaf; \
         ln -s ../outside/new.txt dangling; ln -s / root; mkdir deep; ln -s ../../outside deep/way; \
         mv sub moved; ln -s ../outside/sub sub; ls",
        sandbox.base
    );
    let made = fixture.call("shell.exec", &json!({ "command": line })).await;
    assert!(stdout(&made).contains("dangling\ndeep\nleaf"), "{made:?}");
    for link in ["leaf", "dangling", "way/secret.txt", "absolute/secret.txt", "deep/way/new", "sub/deep.txt"]
    {
        assert_eq!(read(&fixture, link).await, path_denied(link), "{link}");
        assert_eq!(write(&fixture, link, "mine").await, path_denied(link), "{link}");
        assert_eq!(append(&fixture, link, "mine").await, path_denied(link), "{link}");
        assert_eq!(append_file(&fixture, link, "mine").await, path_denied(link), "{link}");
    }
    // The other way round: a link of a person leads no command out.
    symlink("../outside", sandbox.path("inside/by-person")).unwrap();
    let line = "cat by-person/secret.txt root/etc/shadow; echo mine > by-person/secret.txt; echo mine > leaf";
    let outcome = fixture.call("shell.exec", &json!({ "command": line })).await;
    assert!(!outcome.text().contains(SECRET), "{outcome:?}");
    assert_eq!(sandbox.file_names("outside"), ["secret.txt", "sub"]);
    assert_eq!((sandbox.content("outside/secret.txt"), sandbox.content("outside/sub/deep.txt")), {
        (SECRET.to_owned(), SECRET.to_owned())
    });
}

/// Each would make a file `canary` if a shell, or the program itself, took it for more than an argument.
const PAYLOADS: &[&str] = &[
    "; touch canary",
    "&& touch canary",
    "|| touch canary",
    "| touch canary",
    "& touch canary",
    "\ntouch canary",
    "\r\ntouch canary",
    "\rtouch canary\r",
    "$(touch canary)",
    "`touch canary`",
    "${IFS}touch${IFS}canary",
    "$(>canary)",
    "> canary",
    ">> canary",
    ">canary",
    "2> canary",
    "&> canary",
    "< /etc/passwd > canary",
    "<(touch canary)",
    "'; touch canary; '",
    "\"; touch canary; \"",
    "\\\"; touch canary",
    "\\; touch canary",
    "%0atouch canary",
    "\u{2028}touch canary",
    "\u{b}touch canary",
    "\ttouch\tcanary",
    "touch canary",
    "a;touch canary;b",
    "{touch,canary}",
    "*",
    "?",
    "[a-z]*",
    "~",
    "~root",
    "!!",
    "!touch canary",
    "^a^touch canary",
    "#",
    "--",
    "-",
    "--help",
    "--version",
    "-c touch canary",
    "--output=canary",
    "-o canary",
    "PATH=. touch canary",
    "() { :; }; touch canary",
    "\u{202e}yranac hcuot",
    "\u{1b}]0;touch canary\u{7}",
    "%s%n%x",
    "",
    " ",
];

#[tokio::test]
async fn threat_75_argument_is_never_parsed_by_a_shell() {
    let sandbox = Sandbox::new();
    let fixture = fixture(&sandbox);
    let arguments: Vec<&str> = ["[%s]\n"].into_iter().chain(PAYLOADS.iter().copied()).collect();
    let outcome = fixture.call("cmd.exec", &json!({ "command": "printf", "args": arguments })).await;
    let expected: String = PAYLOADS.iter().map(|payload| format!("[{payload}]\n")).collect();
    assert_eq!(stdout(&outcome), expected);
    for payload in PAYLOADS {
        // The whole text is the name of a program.
        let outcome = fixture.call("cmd.exec", &json!({ "command": format!("true{payload}") })).await;
        let is_plain = payload.is_empty();
        assert_eq!(outcome.name() == "done", is_plain, "{payload:?}: {outcome:?}");
    }
    assert_eq!(sandbox.file_names("inside"), ["ok.txt", "sub"]);
}

#[tokio::test]
async fn threat_78_command_starts_only_below_its_directories() {
    let sandbox = Sandbox::new();
    let fixture = fixture(&sandbox);
    symlink("../outside", sandbox.path("inside/way")).unwrap();
    symlink("sub", sandbox.path("inside/good")).unwrap();
    fs::create_dir(sandbox.path("inside/gone")).unwrap();
    fs::remove_dir(sandbox.path("inside/gone")).unwrap();
    let base = sandbox.base.as_str();
    for (cwd, expected) in [
        ("..", "denied"),
        ("../outside", "denied"),
        ("/", "denied"),
        ("/etc", "denied"),
        ("way", "denied"),
        ("way/sub", "denied"),
        (base, "denied"),
        ("gone", "failed"),
        ("ok.txt", "failed"),
        ("sub", "done"),
        ("good", "done"),
    ] {
        for (tool, command) in [("cmd.exec", "pwd"), ("shell.exec", "pwd"), ("process.start", "pwd")] {
            let outcome = fixture.call(tool, &json!({ "command": command, "cwd": cwd })).await;
            assert_eq!(outcome.name(), expected, "{tool} {cwd}: {outcome:?}");
        }
    }
    let outcome = fixture.call("cmd.exec", &json!({ "command": "pwd", "cwd": "good" })).await;
    assert_eq!(stdout(&outcome), format!("{base}/inside/sub\n"), "the real directory");
}

#[tokio::test]
async fn threat_85_spinning_command_ends_at_its_timeout() {
    let sandbox = Sandbox::new();
    let call = json!({ "command": "while :; do :; done", "timeout_secs": 1 });
    let outcome = fixture(&sandbox).call("shell.exec", &call).await;
    assert_eq!(outcome, ToolOutcome::Failed("Timeout after 1 seconds".to_owned()));
}

#[tokio::test]
async fn threat_92_planted_program_takes_no_name() {
    let sandbox = Sandbox::new();
    for name in ["sh", "bwrap", "printf", "nexus3"] {
        let file = sandbox.path(&format!("inside/{name}"));
        fs::write(&file, "#!/bin/sh\n: > canary\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let search_path = format!("{}:.::/usr/bin:/bin", sandbox.path("inside"));
    let directories = DirectorySet::from_roots([path(&sandbox.path("inside"))]);
    let grant = Grant { read: directories.clone(), write: directories, ..Grant::everything() };
    let fixture = Fixture::with_search_path(&sandbox.path("inside"), grant, &search_path);
    let outcome = fixture.call("shell.exec", &json!({ "command": "echo real" })).await;
    assert_eq!(stdout(&outcome), "real\n");
    let outcome = fixture.call("cmd.exec", &json!({ "command": "printf", "args": ["real"] })).await;
    assert_eq!(stdout(&outcome), "real");
    let outcome = fixture.call("cmd.exec", &json!({ "command": "nexus3" })).await;
    let expected = format!(
        "Execution failed: program not found: nexus3; {} is not used, because agents can change it: call it by its path",
        sandbox.path("inside/nexus3")
    );
    assert_eq!(outcome, ToolOutcome::Failed(expected));
    assert!(!sandbox.file_names("inside").contains(&"canary".to_owned()));
    let outcome = fixture.call("cmd.exec", &json!({ "command": "./nexus3" })).await;
    assert_eq!(outcome.name(), "done", "by its path it runs: {outcome:?}");
}
