//! Secrets in files that a tool reads: they reach no model, message, event, database and log.

use serde_json::json;
use testkit::ScriptedModel;

use super::tool_result;
use crate::support::folder::{TestDirectory, read_file_script};
use crate::support::{Fixture, agent_path, daemon_builder, files_below};

#[test]
fn known_secrets_in_a_file_stay_there() {
    let model = ScriptedModel::with_key("sk-canary-0123456789");
    let flags = ["--log-level", "trace", "--log-verbose", "--log-raw"];
    let builder = flags.into_iter().fold(daemon_builder(&model), |builder, flag| builder.arg(flag));
    let fixture = Fixture { daemon: builder.start(), model };
    let directory = TestDirectory::new();
    let capability = fixture.create_with(json!({ "agent_id": "worker", "cwd": directory.path_str() }));
    let token = fixture.daemon.token().expect("a daemon has a token").to_owned();
    let secrets = ["sk-canary-0123456789", &token, &capability];
    directory.write("notes.txt", &format!("a {}\nb {}\nc {}\n", secrets[0], secrets[1], secrets[2]));
    let result = tool_result(&fixture, &read_file_script("notes.txt"));
    assert_eq!(result, "a [redacted]\nb [redacted]\nc [redacted]\n");
    let messages = fixture.daemon.call_result(&agent_path("worker"), "get_messages", json!({}));
    let requests: String = fixture.model.requests().iter().map(|request| request.body.to_string()).collect();
    fixture.daemon.signal("SIGTERM");
    assert!(fixture.daemon.wait_exit().success());
    for secret in secrets {
        // A part: a log line may be truncated.
        let part = &secret[4..16];
        assert!(!messages.to_string().contains(part) && !requests.contains(part), "{messages} {requests}");
        assert!(!fixture.daemon.stderr().contains(part), "{}", fixture.daemon.stderr());
        for (file, text) in files_below(fixture.daemon.home()) {
            assert!(!text.contains(part), "{} contains {part}", file.display());
        }
    }
}
