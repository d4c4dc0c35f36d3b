//! Standard error as text and as JSON, raw logs, and the absence of secrets in all of them.

use std::fs;

use serde_json::{Value, json};
use testkit::{ScriptedModel, TestDaemon};

use super::stop;
use crate::support::model_requests::without_volatile_suffix;
use crate::support::{BIN, ExpectError as _, Fixture, daemon_builder, files_below, log_file};

#[test]
fn json_log_lines_are_valid_json_for_any_content() {
    let model = ScriptedModel::start();
    let daemon = daemon_builder(&model).arg("--log-json").arg("--log-level").arg("trace").start();
    daemon.call_result("/", "create_agent", json!({ "agent_id": "worker" }));
    daemon.call_result("/agent/worker", "send", json!({ "content": "line\n\"quote\" \u{1b}[2J" }));
    daemon.error(
        "/agent/worker",
        "send",
        json!({ "content": "!status 500 line\n\"quote\" \u{1b}[2J\u{2028}" }),
    );
    daemon.error("/", "create_agent", json!({ "agent_id": "bad\nname" }));
    stop(&daemon);
    let stderr = daemon.stderr();
    let lines: Vec<Value> = stderr
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|fault| panic!("{fault}: {line}")))
        .collect();
    assert!(lines.len() >= 5, "{stderr}");
    for line in &lines {
        assert!(line["timestamp"].is_string() && line["level"].is_string(), "{line}");
        assert!(line["fields"]["message"].is_string(), "{line}");
    }
    let failed =
        lines.iter().find(|line| line["level"] == "WARN").expect("the failed turn is logged as a warning");
    assert!(failed["fields"]["message"].as_str().unwrap().contains("API request failed (500)"), "{failed}");
    assert_eq!(failed["spans"][0]["agent"], "worker", "{failed}");
}

#[test]
fn text_log_lines_cannot_be_forged() {
    let model = ScriptedModel::start();
    let daemon = daemon_builder(&model).start();
    let forged = "!status 500 x\n2026-01-01 00:00:00.000  INFO nexus3::serve: stopped\u{1b}[2J";
    daemon.error("/", "send", json!({ "content": forged }));
    stop(&daemon);
    let stderr = daemon.stderr();
    assert_eq!(stderr.lines().filter(|line| line.ends_with("nexus3::serve: stopped")).count(), 1, "{stderr}");
    assert!(!stderr.contains('\u{1b}'), "{stderr:?}");
}

#[test]
fn message_contents_are_not_on_stderr() {
    let model = ScriptedModel::start();
    let daemon = daemon_builder(&model).arg("--log-level").arg("trace").arg("--log-raw").arg("-V").start();
    daemon.call_result("/", "send", json!({ "content": "between you and me" }));
    stop(&daemon);
    assert!(!daemon.stderr().contains("between you and me"), "{}", daemon.stderr());
    for name in ["context.md", "raw.jsonl"] {
        let text = fs::read_to_string(log_file(&daemon, "main", name)).unwrap();
        assert!(text.contains("between you and me"), "{name}");
    }
}

#[test]
fn log_level_filters_stderr() {
    let quiet = TestDaemon::builder(BIN).config("log.level = \"error\"").start();
    stop(&quiet);
    assert_eq!(quiet.stderr(), "");
    let loud = TestDaemon::builder(BIN).env("NEXUS3_LOG_LEVEL", "debug").start();
    stop(&loud);
    assert!(loud.stderr().contains("DEBUG nexus3::serve: starting"), "{}", loud.stderr());
}

#[test]
fn raw_log_lines_are_json_with_both_directions() {
    let fixture = Fixture::with_config("log.raw = true");
    fixture.create("worker");
    fixture.send("worker", "hi");
    fixture.send_expecting_error("worker", "!status 500 not json");
    fixture.daemon.call("/agent/worker", "send", json!({ "content": "!garbage" }));
    stop(&fixture.daemon);
    let raw = fs::read_to_string(log_file(&fixture.daemon, "worker", "raw.jsonl")).unwrap();
    let lines: Vec<Value> = raw.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let directions: Vec<_> = lines.iter().filter_map(|line| line["direction"].as_str()).collect();
    for direction in ["request", "chunk", "response"] {
        assert!(directions.contains(&direction), "{direction} in {directions:?}");
    }
    let request = lines.iter().find(|line| line["direction"] == "request").unwrap();
    let content = request["body"]["messages"][1]["content"].as_str().map(without_volatile_suffix);
    assert_eq!(content, Some("hi"), "{request}");
}

#[test]
fn neither_the_key_nor_the_token_is_logged() {
    let key = "sk-fedcba9876543210-secret";
    let model = ScriptedModel::with_key(key);
    for json_lines in [false, true] {
        let mut builder =
            daemon_builder(&model).arg("--log-level").arg("trace").arg("--log-verbose").arg("--log-raw");
        if json_lines {
            builder = builder.arg("--log-json");
        }
        let daemon = builder.start();
        let token = daemon.token().unwrap();
        daemon.call_result("/", "send", json!({ "content": "hi" }));
        daemon.error("/", "send", json!({ "content": "!status 500" }));
        let wrong = [("Authorization", &*format!("Bearer {token}x"))];
        assert_eq!(daemon.post("/", &wrong, b"{}").status, 403);
        let broken = format!("POST / HTTP/1.1\r\nAuthorization: Bearer {token}\r\nbad header\r\n\r\n");
        daemon.send_raw(broken.as_bytes());
        daemon.post("/agent/absent", &[], b"{}");
        stop(&daemon);
        for secret in [key, token] {
            assert!(!daemon.stdout().contains(secret) && !daemon.stderr().contains(secret));
            for (path, text) in files_below(daemon.home()) {
                assert!(!text.contains(secret), "{}", path.display());
            }
        }
    }
}
