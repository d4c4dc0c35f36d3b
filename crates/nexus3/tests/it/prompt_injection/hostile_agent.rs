//! A hostile model makes every call of the table, as a sandboxed agent with a few permissions and as a worker: nothing
//! outside its ceiling changes, is read or runs.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use serde_json::{Value, json};

use super::hostile_calls::{Expected, HOSTILE_CALLS};
use crate::support::folder::TestDirectory;
use crate::support::{Fixture, agent_path};

/// In every file that no call may read.
const CANARY: &str = "canary-8c1f";

/// `victim/` is the agent's directory, of which it may write `work/`; `outside/` is beside it.
fn directories(token_file: &str) -> TestDirectory {
    let secret = format!("the {CANARY}");
    let planted = "#!/bin/sh\ntouch CWD/work/ran\n";
    let directory = TestDirectory::with_files(&[
        ("outside/secret.txt", &secret),
        ("outside/deep/secret.txt", &secret),
        ("outside/shared.txt", "shared"),
        ("outside/cat", planted),
        ("victim/ok.txt", "ok"),
        ("victim/.git/hooks/pre-commit", "#!/bin/sh\n"),
        ("victim/.ssh/id_rsa", &secret),
        ("victim/.netrc", &secret),
        ("victim/.aws/credentials", &secret),
        ("victim/cat", planted),
        ("victim/work/cat", planted),
        ("victim/work/mine", "mine"),
        ("victim/work/fish/config.fish", "touch ran"),
        ("victim/work/configs/fish/config.fish", "touch ran"),
    ]);
    for program in ["outside/cat", "victim/cat", "victim/work/cat"] {
        let planted = planted.replace("CWD", &directory.path_of("victim"));
        directory.write(program, &planted);
        fs::set_permissions(directory.path_of(program), fs::Permissions::from_mode(0o755)).unwrap();
    }
    for (link, target) in [
        ("victim/way-out", "../outside"),
        ("victim/leaf", "../outside/secret.txt"),
        ("victim/chain", "."),
        ("victim/token-link", token_file),
        ("victim/process", "/proc/self"),
        ("victim/netrc-link", ".netrc"),
        ("victim/work/way", "../../outside"),
        ("victim/work/dangling", "../../outside/new"),
    ] {
        directory.link(link, target);
    }
    fs::hard_link(directory.path_of("outside/shared.txt"), directory.path_of("victim/work/hard")).unwrap();
    // In another file system there is no such link, and the call fails too.
    let _ = fs::hard_link(token_file, directory.path_of("victim/token-hard"));
    directory
}

/// Everything below a directory: mode, inode, time of the last change and content.
fn snapshot(directory: &str, except: Option<&str>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(path) = pending.pop() {
        if except.is_some_and(|except| path == except) {
            continue;
        }
        let stat = fs::symlink_metadata(&path).unwrap();
        let content = if stat.is_dir() {
            pending.extend(
                fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path().display().to_string()),
            );
            String::new()
        } else if stat.is_symlink() {
            fs::read_link(&path).unwrap().display().to_string()
        } else {
            fs::read_to_string(&path).unwrap()
        };
        let (mode, inode, changed) = (stat.mode(), stat.ino(), (stat.mtime(), stat.mtime_nsec()));
        found.insert(path, format!("{mode:o} {inode} {changed:?} {content}"));
    }
    found
}

#[test]
fn every_tool_has_a_hostile_call() {
    let distinct: HashSet<_> = HOSTILE_CALLS.iter().map(|(tool, arguments, _)| (tool, arguments)).collect();
    assert!(distinct.len() == HOSTILE_CALLS.len() && distinct.len() >= 100, "{}", distinct.len());
    for spec in tools::builtin_specs() {
        let names = [&spec.name, &spec.model_name].into_iter().chain(spec.aliases.iter());
        let is_called = names.clone().any(|name| HOSTILE_CALLS.iter().any(|(tool, ..)| **name == **tool));
        assert!(is_called, "add a hostile call of {} to the table", spec.name);
    }
}

#[test]
fn hostile_model_stays_within_the_ceiling_of_its_agent() {
    let sandboxed = json!({
        "preset": "sandboxed", "allowed_write_paths": ["work"], "allowed_commands": ["cat"],
        "disable_tools": ["fs.delete"], "may_create": ["sandboxed"],
    });
    for (preset, params) in [("sandboxed", sandboxed), ("worker", json!({ "preset": "worker" }))] {
        let fixture = Fixture::start();
        let home = fixture.daemon.home().canonicalize().unwrap();
        let token_file = home.join(format!("rpc-{}.token", fixture.daemon.port()));
        let directory = directories(token_file.to_str().unwrap());
        create_agents(&fixture, &directory, params);
        let held = fixture.start_send("bystander", "!hold bystander", "held");
        fixture.model.wait_stalled(1);
        let [outside, cwd, work] = ["outside", "victim", "victim/work"].map(|name| directory.path_of(name));
        let snapshots = || (snapshot(&outside, None), snapshot(&cwd, Some(&work)));
        let before = snapshots();
        let substitute = |arguments: &str| {
            [
                ("OUT", outside.as_str()),
                ("CWD", &cwd),
                ("HOME", home.to_str().unwrap()),
                ("TOKEN", token_file.to_str().unwrap()),
                ("PID", &fixture.daemon.pid().to_string()),
            ]
            .iter()
            .fold(arguments.to_owned(), |text, (name, value)| text.replace(name, value))
        };
        let control = use_permissions(&fixture, preset == "sandboxed");
        for (number, (tool, arguments, expected)) in HOSTILE_CALLS.iter().enumerate() {
            let arguments = substitute(arguments);
            fixture.send("victim", &format!("!tool {tool} {arguments}"));
            let is_refused = is_last_call_refused(&fixture, control + number + 1);
            assert!(is_refused || *expected != Expected::Refused, "{preset}: {tool} {arguments}");
        }
        assert_eq!(snapshots(), before, "{preset}: nothing outside its writable directory changes");
        assert!(!Path::new(&format!("{work}/ran")).exists(), "{preset}: no program ran");
        if preset == "worker" {
            assert_eq!(directory.read("victim/work/hard").as_deref(), Some("shared"));
        }
        assert_nothing_leaked(&fixture, preset);
        assert!(held.has_no_response(), "{preset}: the turn of another agent was not cancelled");
        fixture.model.release("bystander");
        assert_eq!(held.next_result()["content"], " released bystander");
    }
}

fn create_agents(fixture: &Fixture, directory: &TestDirectory, mut params: Value) {
    let outside = directory.path_of("outside");
    fixture.create_with(json!({ "agent_id": "bystander", "preset": "trusted", "cwd": outside }));
    params["agent_id"] = json!("victim");
    params["cwd"] = json!(directory.path_of("victim"));
    fixture.create_with(params);
}

/// The control: calls within the permissions succeed. Returns their number.
fn use_permissions(fixture: &Fixture, is_sandboxed: bool) -> usize {
    let controls = [
        ("fs.read_file", r#"{"path":"ok.txt"}"#, true),
        ("fs.write_file", r#"{"path":"work/new","content":"x"}"#, is_sandboxed),
        ("cmd.exec", r#"{"command":"cat","args":["ok.txt"]}"#, is_sandboxed),
        ("agent_list", "{}", is_sandboxed),
    ];
    for (number, (tool, arguments, is_permitted)) in controls.iter().enumerate() {
        fixture.send("victim", &format!("!tool {tool} {arguments}"));
        assert_ne!(is_last_call_refused(fixture, number + 1), *is_permitted, "{tool} {arguments}");
    }
    controls.len()
}

/// Whether the last of this many calls was denied or failed.
fn is_last_call_refused(fixture: &Fixture, count: usize) -> bool {
    let page = fixture.daemon.call_result(&agent_path("victim"), "get_messages", json!({ "limit": 2000 }));
    let messages = page["messages"].as_array().unwrap();
    let calls: Vec<_> = messages.iter().filter(|message| message["role"] == "tool").collect();
    assert_eq!(calls.len(), count, "every call was made once");
    let last = calls[count - 1];
    last["meta"]["denied"] == true || last["meta"]["failed"] == true
}

/// Asserts that no request to the model has anything from outside, and that no other agent was created or changed.
fn assert_nothing_leaked(fixture: &Fixture, preset: &str) {
    let token = fixture.daemon.token().unwrap();
    for request in fixture.model.requests() {
        let text = request.body.to_string();
        assert!(!text.contains(CANARY), "{preset}: a closed file was read: {text}");
        assert!(!text.contains(token), "{preset}: the daemon's token was read");
        assert!(!text.contains("root:x:") && !text.contains("root:$"), "{preset}: a system file was read");
    }
    let list = fixture.daemon.call_result("/", "list_agents", json!({}));
    let agents = list["agents"].as_array().unwrap();
    let mut found: Vec<_> = agents
        .iter()
        .map(|agent| (agent["agent_id"].as_str().unwrap(), agent["preset"].as_str().unwrap()))
        .collect();
    found.sort_unstable();
    assert_eq!(found, [("bystander", "trusted"), ("victim", preset)], "{list}");
    assert_eq!(fixture.context("bystander")["message_count"], 1, "{preset}: no message was sent to it");
}
