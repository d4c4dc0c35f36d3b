//! Custom tools of the configuration in complete turns and on the command line: who may call them, what they get.

use serde_json::{Value, json};
use testkit::run;

use super::tool_result;
use crate::support::folder::TestDirectory;
use crate::support::{BIN, Fixture};

/// `show` prints its arguments, each on a line; `facts` returns what it got on its standard input.
const TOOLS: &str = r#"
[custom_tools.show]
description = "Prints texts. For the tests."
command = "printf"
args_template = ["--", "[%s]\n", "${text}", "--mode=${mode}"]

[custom_tools.show.input_schema]
required = ["text"]
properties.text = { type = "string" }
properties.mode = { type = "string", enum = ["a", "b"] }

[custom_tools.facts]
description = "Returns its input."
command = "cat"
input_mode = "stdin"
output_mode = "json"
input_schema.properties.n = { type = "integer", default = 7 }
"#;

fn call(tool: &str, arguments: &Value) -> String {
    format!("!tool {tool} {arguments}")
}

/// The names of the tools in the last model request.
fn offered(fixture: &Fixture) -> Vec<String> {
    let request = fixture.model.requests().pop().unwrap();
    let tools = request.body["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn agent_calls_custom_tools_and_injections_are_data() {
    let directory = TestDirectory::new();
    let fixture = Fixture::with_config(TOOLS);
    fixture.create_with(json!({ "agent_id": "worker", "preset": "trusted", "cwd": directory.path_str() }));
    for text in ["; touch canary", "$(touch canary)", "--help", "a\nb 'c' \"d\" \\n", "`touch canary`"] {
        let result = tool_result(&fixture, &call("show", &json!({ "text": text, "mode": "a" })));
        assert_eq!(result, format!("[{text}]\n[--mode=a]"));
    }
    assert_eq!(tool_result(&fixture, &call("facts", &json!({}))), r#"{"n":7}"#);
    let invalid = tool_result(&fixture, &call("show", &json!({ "text": "x", "mode": "c" })));
    assert_eq!(invalid, r#"Invalid input: field `mode`: must be one of "a", "b""#);
    assert_eq!(directory.read("canary"), None);
    assert!(offered(&fixture).ends_with(&["show".to_owned(), "facts".to_owned()]));
}

#[test]
fn agent_needs_the_program_and_the_tool() {
    let directory = TestDirectory::new();
    let fixture = Fixture::with_config(TOOLS);
    let show = call("show", &json!({ "text": "x" }));
    let list = call("cmd.exec", &json!({ "command": "printf", "args": ["y"] }));
    for (agent, params, result, is_allowed) in [
        ("both", json!({ "tools": ["show"], "allowed_commands": ["printf"] }), "tool said: [x]", true),
        ("program", json!({ "allowed_commands": ["printf"] }), "tool said: [x]", true),
        ("tool", json!({ "tools": ["show"] }), "running 'printf' is not allowed", false),
        ("none", json!({}), "running 'printf' is not allowed", false),
        ("no-program", json!({ "preset": "worker" }), "running 'printf' is not allowed", false),
        ("disabled", json!({ "preset": "trusted", "disable_tools": ["show"] }), "'show' is disabled", false),
        ("other", json!({ "preset": "trusted", "tools": ["facts"] }), "'show' is disabled", false),
    ] {
        let mut create = json!({ "agent_id": agent, "cwd": directory.path_str() });
        create.as_object_mut().unwrap().extend(params.as_object().unwrap().clone());
        fixture.create_with(create);
        let text = fixture.send_text(agent, &show);
        assert!(text.contains(result), "{agent}: {text}");
        assert_eq!(offered(&fixture).contains(&"show".to_owned()), is_allowed, "{agent}");
    }
    // The list of tools keeps the program from being called in any other way.
    assert!(fixture.send_text("both", &list).contains("'cmd.exec' is disabled"));
    assert!(fixture.send_text("program", &list).contains("\"stdout\":\"y\""));
}

#[test]
fn command_line_lists_and_runs_custom_tools() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("config.toml"), TOOLS).unwrap();
    let listed = run(BIN, &["tools"], &[], home.path());
    let line = listed.stdout.lines().find(|line| line.starts_with("show ")).unwrap();
    assert!(line.ends_with("  (custom) Prints texts."), "{line}");
    let json: Value = serde_json::from_str(&run(BIN, &["tools", "--json"], &[], home.path()).stdout).unwrap();
    let custom: Vec<&Value> = json.as_array().unwrap().iter().filter(|tool| tool["custom"] == true).collect();
    assert_eq!(custom.len(), 2);
    assert_eq!(custom[0]["inputSchema"]["required"], json!(["text"]));
    let ran = run(BIN, &["run", "show", "text=; id"], &[], home.path());
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "[; id]\n"), "{}", ran.stderr);
    let denied = run(BIN, &["run", "facts", "--preset", "worker"], &[], home.path());
    assert!(denied.code == 1 && denied.stderr.contains("running 'cat' is not allowed"), "{}", denied.stderr);
}

#[test]
fn invalid_custom_tool_keeps_the_daemon_from_starting() {
    let home = tempfile::tempdir().unwrap();
    let text = TOOLS.replace("${text}", "${txt}").replace("custom_tools.facts", "custom_tools.echo");
    std::fs::write(home.path().join("config.toml"), text).unwrap();
    let started = run(BIN, &["serve", "0"], &[], home.path());
    assert_eq!(started.code, 2);
    for problem in [
        "config.toml:5:17: custom_tools.show.args_template has ${txt}, but there is no such parameter; define it in",
        "config.toml:12:15: custom_tools.echo: the built-in tool echo has this name; choose another one",
    ] {
        assert!(started.stderr.contains(problem), "{}", started.stderr);
    }
}
