//! Precedence of flag, environment, file and default: in `config show`, and in the daemon's behaviour.

use std::fs;

use serde_json::json;
use testkit::{ScriptedModel, TestDaemon, run};

use crate::support::{BIN, daemon_builder};

/// The line of a setting in `config show`, with runs of blanks collapsed.
fn shown(page: &str, key: &str) -> String {
    let line = page.lines().find(|line| line.starts_with(&format!("{key} ")));
    line.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn config_show_names_the_source_of_each_value() {
    let home = tempfile::tempdir().unwrap();
    let file = "port = 9001\nstop_grace_ms = 5\n\n[limits]\nagent_queue_max = 7\n";
    fs::write(home.path().join("config.toml"), file).unwrap();
    let env = [("NEXUS3_PORT", "9002"), ("NEXUS3_LOG_LEVEL", "debug"), ("NEXUS3_API_KEY", "nxk_secret")];
    let finished = run(BIN, &["config", "show"], &env, home.path());
    assert_eq!((finished.code, finished.stderr.as_str()), (0, ""));
    let page = &finished.stdout;
    assert_eq!(shown(page, "port"), "port = 9002 # environment NEXUS3_PORT");
    assert_eq!(shown(page, "stop_grace_ms"), "stop_grace_ms = 5 # config.toml:2");
    assert_eq!(shown(page, "limits.agent_queue_max"), "limits.agent_queue_max = 7 # config.toml:5");
    assert_eq!(shown(page, "log.level"), "log.level = \"debug\" # environment NEXUS3_LOG_LEVEL");
    assert_eq!(shown(page, "auth"), "auth = true # default");
    assert!(!page.contains("nxk_secret"), "a token is not a setting");
}

#[test]
fn commands_use_the_port_of_the_configuration_file() {
    let daemon = TestDaemon::builder(BIN).start();
    fs::write(daemon.home().join("config.toml"), format!("port = {}\n", daemon.port())).unwrap();
    let finished = run(BIN, &["rpc", "list"], &[], daemon.home());
    assert_eq!((finished.code, finished.stderr.as_str()), (0, ""));
}

#[test]
fn config_show_output_can_be_read_back() {
    let home = tempfile::tempdir().unwrap();
    let env =
        [("NEXUS3_ALLOWED_ORIGINS", "https://a.example,http://localhost:3000"), ("NEXUS3_MODEL", "openai/x")];
    let first = run(BIN, &["config", "show"], &env, home.path());
    assert_eq!(first.code, 0, "{}", first.stderr);
    fs::write(home.path().join("config.toml"), &first.stdout).unwrap();
    let second = run(BIN, &["config", "show"], &[], home.path());
    assert_eq!(second.code, 0, "{}", second.stderr);
    let values = |page: &str| -> Vec<String> {
        let values = page.lines().filter(|line| !line.starts_with('#'));
        values.map(|line| line.split("  #").next().unwrap_or_default().trim().to_owned()).collect()
    };
    assert_eq!(values(&first.stdout), values(&second.stdout));
}

#[test]
fn config_commands_create_no_files() {
    let outer = tempfile::tempdir().unwrap();
    let home = outer.path().join("home");
    for command in ["show", "reference"] {
        let finished = run(BIN, &["config", command], &[], &home);
        assert_eq!((finished.code, finished.stderr.as_str()), (0, ""));
        assert!(finished.stdout.contains("limits.turns_running_max"), "{}", finished.stdout);
    }
    assert!(!home.exists());
}

#[test]
fn flag_overrides_environment_overrides_file() {
    let model = ScriptedModel::start();
    let file =
        "port = 1\nmodel = \"openai/from-file\"\nlimits.tool_iterations_max = 3\nlimits.agents_max = 1";
    let by_env = TestDaemon::builder(BIN)
        .config(file)
        .env("NEXUS3_MODEL", "openai/from-env")
        .env("NEXUS3_LIMITS_AGENTS_MAX", "2")
        .env("OPENAI_BASE_URL", model.base_url())
        .start();
    let model_of = |daemon: &TestDaemon| {
        let context = daemon.call_result("/", "get_context", json!({}));
        assert_eq!(context["max_tool_iterations"], 3, "only the file sets it");
        daemon.call_result("/", "list_agents", json!({}))["agents"][0]["model"].clone()
    };
    assert_ne!(by_env.port(), 1, "the test's flag overrides the file");
    assert_eq!(model_of(&by_env), "openai/from-env");
    by_env.call_result("/", "create_agent", json!({ "agent_id": "second" }));
    let by_flag = daemon_builder(&model).config(file).env("NEXUS3_MODEL", "openai/from-env").start();
    assert_eq!(model_of(&by_flag), "openai/scripted");
    by_flag.call_result("/", "send", json!({ "content": "hi" }));
    assert_eq!(model.requests()[0].body["model"], "scripted");
}

#[test]
fn no_auth_flag_overrides_the_file() {
    let daemon = TestDaemon::builder(BIN).config("auth = true").arg("--no-auth").start();
    assert_eq!(daemon.token(), None);
    assert_eq!(daemon.call_result("/", "list_agents", json!({})), json!({ "agents": [], "total": 0 }));
    let by_file = TestDaemon::builder(BIN).config("auth = false").start();
    assert_eq!(by_file.token(), None);
    let by_env = TestDaemon::builder(BIN).config("auth = false").env("NEXUS3_AUTH", "true").start();
    assert!(by_env.token().is_some());
}
