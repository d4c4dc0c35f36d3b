//! Custom tools in the sandbox: what their commands get, what they return, and what they cannot reach.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use agent::ToolOutcome;
use agent::permission::{DirectorySet, Grant, NameSet};
use serde_json::{Value, json};
use testkit::TestRng;
use tools::{CustomToolSettings, InputMode, OutputMode};

use crate::fixture::{Fixture, done, failed, path};
use crate::sandbox::Sandbox;

fn grant(sandbox: &Sandbox) -> Grant {
    let directories = DirectorySet::from_roots([path(&sandbox.path("inside"))]);
    Grant { read: directories.clone(), write: directories, ..Grant::everything() }
}

fn settings(command: &str, args_template: &[&str], properties: &Value) -> CustomToolSettings {
    CustomToolSettings {
        name: "mine".to_owned(),
        description: "A tool of the tests.".to_owned(),
        command: command.to_owned(),
        args_template: args_template.iter().map(|text| (*text).to_owned()).collect(),
        working_dir: None,
        env: Vec::new(),
        timeout_secs: None,
        input_schema: json!({ "properties": properties }).as_object().unwrap().clone(),
        input_mode: InputMode::Args,
        output_mode: OutputMode::Text,
    }
}

fn text_parameter() -> Value {
    json!({ "text": { "type": "string" } })
}

fn fixture(sandbox: &Sandbox, settings: &CustomToolSettings) -> Fixture {
    Fixture::with_custom_tool(&sandbox.path("inside"), grant(sandbox), settings)
}

const INJECTIONS: [&str; 12] = [
    "; touch canary",
    "$(touch canary)",
    "`touch canary`",
    "| touch canary",
    "&& touch canary",
    "\ntouch canary\n",
    "--flag",
    "-e system(\"touch canary\")",
    "' ; touch canary '",
    "\" ; touch canary \"",
    "${text}",
    "*",
];

#[tokio::test]
async fn threat_75_any_text_arrives_as_one_argument_unchanged() {
    let sandbox = Sandbox::new();
    let print = "print join(',', map { unpack('H*', $_) } @ARGV)";
    let settings =
        settings("perl", &["-e", print, "--", "${text}", "--text=${text}", "end"], &text_parameter());
    let fixture = fixture(&sandbox, &settings);
    let mut rng = TestRng::new(38);
    let random = (0..20).map(|_| {
        let char = |_| {
            u32::try_from(rng.below(0x11_0000))
                .ok()
                .and_then(char::from_u32)
                .filter(|char| *char != '\0')
                .unwrap_or('x')
        };
        (0..40).map(char).collect::<String>()
    });
    let random: Vec<String> = random.collect();
    for text in INJECTIONS.into_iter().chain(random.iter().map(String::as_str)).chain(["", " "]) {
        let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
        let expected = [hex(text), hex(&format!("--text={text}")), hex("end")].join(",");
        assert_eq!(fixture.call("mine", &json!({ "text": text })).await, done(expected), "{text:?}");
    }
    assert_eq!(sandbox.file_names("inside"), ["ok.txt", "sub"]);
}

#[tokio::test]
async fn parameters_arrive_on_standard_input_or_in_own_variables() {
    let sandbox = Sandbox::new();
    let properties = json!({ "path": { "type": "string" }, "ld_preload": { "type": "string" } });
    let call = json!({ "path": "/evil", "ld_preload": "/evil.so" });
    let mut settings =
        settings("sh", &["-c", "cat; env | sort | grep -E '^(PATH|LD_|NEXUS|MODE)'"], &properties);
    settings.input_mode = InputMode::Stdin;
    let variables = "PATH=/usr/local/bin:/usr/bin:/bin";
    let json = r#"{"ld_preload":"/evil.so","path":"/evil"}"#;
    assert_eq!(fixture(&sandbox, &settings).call("mine", &call).await, done(format!("{json}{variables}")));
    settings.input_mode = InputMode::Env;
    settings.env = vec![("MODE".to_owned(), "of ${path}".to_owned())];
    let expected = format!(
        "MODE=of /evil\nNEXUS_ARGS_JSON={json}\nNEXUS_ARG_LD_PRELOAD=/evil.so\nNEXUS_ARG_PATH=/evil\n{variables}"
    );
    assert_eq!(fixture(&sandbox, &settings).call("mine", &call).await, done(expected));
}

#[tokio::test]
async fn output_is_trimmed_text_or_json_and_failures_say_why() {
    let sandbox = Sandbox::new();
    let mut settings = settings("sh", &["-c", "${text}"], &text_parameter());
    settings.timeout_secs = Some(1);
    let text = fixture(&sandbox, &settings);
    settings.output_mode = OutputMode::Json;
    let json = fixture(&sandbox, &settings);
    let call = |line: &str| json!({ "text": line });
    assert_eq!(text.call("mine", &call("printf ' \\n a b \\n'; echo noise >&2")).await, done("a b"));
    assert_eq!(json.call("mine", &call("echo '{ \"a\" : [ 1 ] }'")).await, done(r#"{"a":[1]}"#));
    for fixture in [&text, &json] {
        let outcome = fixture.call("mine", &call("echo out; echo why >&2; exit 3")).await;
        assert_eq!(outcome, failed("Execution failed: Command exited with status 3: why"));
        let outcome = fixture.call("mine", &call("kill -9 $$")).await;
        assert_eq!(outcome, failed("Execution failed: Command was killed by signal 9: "));
        let outcome = fixture.call("mine", &call("echo begun; sleep 100")).await;
        assert_eq!(outcome, failed("Timeout after 1 seconds\nstdout until then:\nbegun\n"));
    }
    let outcome = json.call("mine", &call("echo no json")).await;
    assert!(outcome.text().ends_with("output of 7 bytes: no json"), "{outcome:?}");
    // An argument without its parameter is left out.
    let outcome = text.call("mine", &json!({})).await;
    assert!(outcome.text().ends_with("-c requires an argument"), "{outcome:?}");
    let outcome = text.call("mine", &json!({ "text": "a\0b" })).await;
    assert_eq!(outcome, failed("Invalid input: a NUL character cannot be passed to a program"));
}

#[tokio::test]
async fn call_needs_the_permission_for_its_program_and_directory() {
    let sandbox = Sandbox::new();
    let mut settings = settings("cat", &["--", "${text}"], &text_parameter());
    let mut allowed = fixture(&sandbox, &settings);
    allowed.grant.commands = NameSet::only(["cat"]);
    assert_eq!(allowed.call("mine", &json!({ "text": "ok.txt" })).await, done("inside"));
    let outcome = allowed.call("mine", &json!({ "text": "../outside/secret.txt" })).await;
    assert!(matches!(&outcome, ToolOutcome::Failed(text) if text.contains("No such file")), "{outcome:?}");
    allowed.grant.commands = NameSet::only(["ls"]);
    let outcome = allowed.call("mine", &json!({ "text": "ok.txt" })).await;
    let why = "running 'cat' is not allowed; allowed: only ls; add it to allowed_commands of the agent or its preset";
    assert_eq!(outcome, ToolOutcome::Denied(why.to_owned()));
    settings.working_dir = Some(sandbox.path("outside"));
    let outcome = fixture(&sandbox, &settings).call("mine", &json!({ "text": "secret.txt" })).await;
    assert!(matches!(&outcome, ToolOutcome::Denied(text) if text.contains("run in")), "{outcome:?}");
    settings.working_dir = Some(sandbox.path("inside/sub"));
    let outcome = fixture(&sandbox, &settings).call("mine", &json!({ "text": "deep.txt" })).await;
    assert_eq!(outcome, done("deep"));
}

/// The program of the operator can be anywhere, also in the home of the daemon.
#[tokio::test]
async fn command_reads_its_program_and_nothing_beside_it() {
    let sandbox = Sandbox::new();
    for (directory, blocked) in [("outside", "outside"), ("inside/sub", "inside/sub")] {
        let program = sandbox.path(&format!("{directory}/program"));
        let script = "#!/bin/sh\ncd ${0%/*}\ncat deep.txt secret.txt 2> /dev/null\nls\n";
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let mut fixture = fixture(&sandbox, &settings(&program, &[], &json!({})));
        fixture.grant.blocked = vec![path(&sandbox.path(blocked))];
        assert_eq!(fixture.call("mine", &json!({})).await, done("program"), "{directory}");
    }
}
