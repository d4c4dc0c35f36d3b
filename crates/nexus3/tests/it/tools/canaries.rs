//! 200 canaries in the daemon's keys, headers, secrets and tokens: every byte that it writes or sends to a model is
//! searched for them (row 119 of the threats), and the environment of every kind of child (row 79).

use std::fs;
use std::os::unix::fs::PermissionsExt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use testkit::{ScriptedModel, TestDaemonBuilder, run};

use super::tool_result;
use crate::support::folder::TestDirectory;
use crate::support::{BIN, Fixture, LARGE_WINDOW_CONFIG, WAIT_MAX, agent_path, daemon_builder, files_below};

/// What every canary contains, at the same place.
const MARKER: &str = "c4n4ryQ";

/// The custom tool that gets a secret on purpose.
const TOOL: &str = r#"
[custom_tools.show_env]
description = "Prints its environment."
command = "env"
env = { MY_PASSWORD = "${secrets.canary_160}" }
"#;

fn canary(number: usize) -> String {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("sk-{MARKER}{number:03}-{mixed:016x}/+\"&")
}

/// As `canary`, for values that stand in quotes in the configuration.
fn quoted(number: usize) -> String {
    canary(number).replace('"', "\\\"")
}

/// Where canary 1 to 198 are: 80 variables, 40 key files, 39 headers, and secrets of all three sources.
fn plant(builder: TestDaemonBuilder, keys: &TestDirectory) -> TestDaemonBuilder {
    let mut config = format!("{LARGE_WINDOW_CONFIG}{TOOL}");
    let mut builder = builder;
    let provider = |number: usize| format!("\n[providers.p{number}]\nkind = \"openai\"\n");
    let key_file = |number: usize| {
        let path = keys.path_of(&format!("key{number}"));
        fs::write(&path, canary(number)).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        path
    };
    for number in 1..=198 {
        let variable = format!("CANARY_KEY_{number}");
        if number <= 80 || (160..180).contains(&number) {
            builder = builder.env(&variable, canary(number));
        }
        config += &match number {
            1..=80 => format!("{}key_env = \"{variable}\"\n", provider(number)),
            81..=120 => format!("{}key_file = \"{}\"\n", provider(number), key_file(number)),
            121..=159 => format!("{}headers = {{ X-Api-Key = \"{}\" }}\n", provider(number), quoted(number)),
            160..=179 => format!("\n[secrets.canary_{number}]\nenv = \"{variable}\"\n"),
            180..=189 => format!("\n[secrets.canary_{number}]\nfile = \"{}\"\n", key_file(number)),
            _ => format!("\n[secrets.canary_{number}]\ncommand = [\"cat\", \"{}\"]\n", key_file(number)),
        };
    }
    builder.config(&config)
}

/// The forms of a canary in files, each with a name.
fn forms(value: &str) -> [(&'static str, String); 8] {
    let bytes = |format: fn(u8) -> String| value.bytes().map(format).collect::<String>();
    let (left, right) = value.split_at(value.len().min(12));
    [
        ("plain", value.to_owned()),
        ("base64", STANDARD.encode(format!("k={value}"))),
        ("json", serde_json::to_string(value).unwrap()),
        ("unicode", bytes(|byte| format!("\\u{byte:04x}"))),
        ("url", bytes(|byte| format!("%{byte:02X}"))),
        ("ansi", bytes(|byte| format!("{}\u{1b}[1m\u{1b}]0;t\u{7}", char::from(byte)))),
        ("lines", format!("{left}\n{right}")),
        ("hex", bytes(|byte| format!("{byte:02x}"))),
    ]
}

/// Texts that show that a canary is there, whatever its number is.
fn traces() -> Vec<String> {
    let hex: String = MARKER.bytes().map(|byte| format!("{byte:02x}")).collect();
    let percent: String = MARKER.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let unicode: String = MARKER.bytes().map(|byte| format!("u{byte:04x}")).collect();
    // `k=sk-` before the marker is five bytes long; the last group is shared with the number.
    let base64 = STANDARD.encode(format!("k=sk-{MARKER}"))[8..15].to_owned();
    let ansi = "4\u{1b}[1m\u{1b}]0;t\u{7}n".to_owned();
    let ansi_in_json = serde_json::to_string(&ansi).unwrap().trim_matches('"').to_owned();
    vec![MARKER.to_owned(), hex, percent, unicode, base64, ansi, ansi_in_json]
}

fn assert_absent(what: &str, text: &str, traces: &[String]) {
    for trace in traces {
        let found = text.find(trace.as_str()).map(|at| text.get(at.saturating_sub(40)..at + 40));
        assert!(found.is_none(), "{what} contains {trace}: {found:?}");
    }
}

fn call(fixture: &Fixture, tool: &str, arguments: &Value) -> String {
    tool_result(fixture, &format!("!tool {tool} {arguments}"))
}

/// Calls the tools that return content of files and output, and returns their results.
fn read_everything(fixture: &Fixture, names: &[&str]) -> Vec<String> {
    let mut results = Vec::new();
    for name in names {
        results.push(call(fixture, "fs.read_file", &json!({ "path": name })));
        // A search puts the file's name before each line and cuts long lines: a secret over two lines, or one that the cut
        // divides, is not recognized (decision 43).
        if !["lines", "ansi"].contains(name) {
            results.push(call(fixture, "fs.search", &json!({ "pattern": ".", "path": name })));
        }
        results.push(call(fixture, "cmd.exec", &json!({ "command": "cat", "args": [name] })));
        let line = format!("cat {name} >&2; exit 3");
        results.push(call(fixture, "cmd.exec", &json!({ "command": "sh", "args": ["-c", line] })));
    }
    let started = call(fixture, "process.start", &json!({ "command": "cat", "args": ["plain", "ansi"] }));
    let id = serde_json::from_str::<Value>(&started).unwrap()["id"].clone();
    let read = json!({ "id": id, "wait_secs": 60, "wait_for": "exit" });
    results.push(call(fixture, "process.read", &read));
    results
}

#[test]
fn threat_119_no_byte_of_200_canaries_is_written() {
    let (keys, directory) = (TestDirectory::new(), TestDirectory::new());
    let model = ScriptedModel::with_key(&canary(0).replace('"', "'"));
    let flags = ["--log-level", "trace", "--log-verbose", "--log-raw"];
    let builder = flags.into_iter().fold(daemon_builder(&model), |builder, flag| builder.arg(flag));
    let fixture = Fixture { daemon: plant(builder, &keys).start(), model };
    let create =
        json!({ "agent_id": "worker", "preset": "trusted", "cwd": directory.path_str(), "model": "big" });
    let capability = fixture.create_with(create);
    let token = fixture.daemon.token().expect("a daemon has a token").to_owned();
    let mut values: Vec<String> = (1..=198).map(canary).collect();
    values.extend([token.clone(), capability.clone()]);
    assert_eq!(values.len(), 200);
    let names = forms("").map(|(name, _)| name);
    for (index, name) in names.into_iter().enumerate() {
        let lines: Vec<String> = values.iter().map(|value| forms(value)[index].1.clone()).collect();
        directory.write(name, &(lines.join(" .\n") + " .\n"));
    }

    let mut events = fixture.daemon.events("/events", None);
    let results = read_everything(&fixture, &names);
    let mut traces = traces();
    traces.extend([token[4..16].to_owned(), capability[4..16].to_owned()]);
    for result in &results {
        assert!(result.contains("[redacted]"), "{result}");
        assert_absent("a result", result, &traces);
    }
    let messages = fixture.daemon.call_result(&agent_path("worker"), "get_messages", json!({}));
    assert_absent("a message", &messages.to_string(), &traces);
    for request in fixture.model.requests() {
        assert_absent("a model request", &request.body.to_string(), &traces);
    }
    fixture.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "worker" }));
    while events.next_event(WAIT_MAX).kind != "agent_destroyed" {}
    let streamed = String::from_utf8_lossy(events.body()).into_owned();
    assert!(streamed.contains("tool_output_delta"));
    assert_absent("an event", &streamed, &traces);
    fixture.daemon.signal("SIGTERM");
    assert!(fixture.daemon.wait_exit().success());
    assert_absent("standard error", &fixture.daemon.stderr(), &traces);
    for (path, text) in files_below(fixture.daemon.home()) {
        if !path.ends_with("config.toml") {
            assert_absent(&path.display().to_string(), &text, &traces);
        }
    }
}

#[test]
fn threat_79_no_child_gets_a_key_of_the_daemon() {
    let (keys, directory) = (TestDirectory::new(), TestDirectory::new());
    let model = ScriptedModel::start();
    let fixture = Fixture { daemon: plant(daemon_builder(&model), &keys).start(), model };
    let create = json!({ "agent_id": "worker", "preset": "trusted", "cwd": directory.path_str() });
    fixture.create_with(create);
    let started = call(&fixture, "process.start", &json!({ "command": "env" }));
    let id = serde_json::from_str::<Value>(&started).unwrap()["id"].clone();
    let environments = [
        call(&fixture, "cmd.exec", &json!({ "command": "env" })),
        call(
            &fixture,
            "cmd.exec",
            &json!({ "command": "sh", "args": ["-c", "env; cat /proc/$PPID/environ"] }),
        ),
        call(&fixture, "process.read", &json!({ "id": id, "wait_secs": 60, "wait_for": "exit" })),
    ];
    for environment in environments {
        assert!(environment.contains("TERM=dumb"), "{environment}");
        assert!(!environment.contains("CANARY_KEY") && !environment.contains("[redacted]"), "{environment}");
    }
    let given = call(&fixture, "show_env", &json!({}));
    assert!(given.contains("MY_PASSWORD=[redacted]") && !given.contains("CANARY_KEY"), "{given}");
}

#[test]
fn secret_that_cannot_be_read_stops_the_start() {
    let home = tempfile::tempdir().unwrap();
    for (config, expected) in [
        (
            "[secrets.db]\nenv = \"NOT_SET_HERE\"\n",
            "cannot read secrets.db: the variable NOT_SET_HERE is not set",
        ),
        (
            "[secrets.db]\nfile = \"/nowhere/at/all\"\n",
            "cannot read secrets.db: the key file /nowhere/at/all cannot",
        ),
        ("[secrets.db]\ncommand = [\"false\"]\n", "cannot read secrets.db: the program \"false\" failed"),
        ("[secrets.db]\ncommand = [\"echo\", \"short\"]\n", "cannot read secrets.db: it is shorter than 8"),
        ("[secrets.db]\n", "secrets.db must have exactly one of env, file and command"),
        (TOOL, "env has ${secrets.canary_160}, but there is no table [secrets.canary_160]"),
    ] {
        fs::write(home.path().join("config.toml"), config).unwrap();
        let started = run(BIN, &["serve", "0"], &[], home.path());
        assert!(started.code == 2 && started.stderr.contains(expected), "{config}: {}", started.stderr);
    }
}

#[test]
fn secret_is_hidden_by_config_show_and_by_run() {
    let home = tempfile::tempdir().unwrap();
    let config = format!("{TOOL}\n[secrets.canary_160]\nenv = \"CANARY\"\n");
    fs::write(home.path().join("config.toml"), config).unwrap();
    let variables = [("CANARY", canary(160))];
    let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
    let shown = run(BIN, &["config", "show"], &variables, home.path());
    assert!(
        shown.stdout.contains("[secrets.canary_160]") && !shown.stdout.contains(MARKER),
        "{}",
        shown.stdout
    );
    let ran = run(BIN, &["run", "show_env"], &variables, home.path());
    assert!(ran.stdout.contains("MY_PASSWORD=[redacted]\n"), "{} {}", ran.stdout, ran.stderr);
}
