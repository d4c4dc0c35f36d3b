//! Callers that create, use, cancel and destroy the same few agents all at once: every call is answered, and nothing
//! stays open.

use std::thread;

use serde_json::{Value, json};

use crate::support::model_requests::assert_all_valid;
use crate::support::rng::TestRng;
use crate::support::{Fixture, agent_path};

const CALLERS: u64 = 6;
const CALLS: u64 = 120;

/// Names of sends move on with the calls: they meet while they are open, are repeated afterwards, and are new again.
fn random_call(dice: &mut TestRng, call: u64) -> (String, &'static str, Value) {
    let agent = format!("agent-{}", dice.next_below(4));
    let request_id = call / 4 + dice.next_below(5);
    match dice.next_below(10) {
        0 | 1 => ("/".to_owned(), "create_agent", json!({ "agent_id": agent })),
        2 => ("/".to_owned(), "destroy_agent", json!({ "agent_id": agent })),
        3 | 4 => (agent_path(&agent), "cancel", json!({ "request_id": request_id })),
        5 => (agent_path(&agent), "get_messages", json!({ "limit": 3 })),
        6 => ("/".to_owned(), "list_agents", json!({})),
        _ => {
            let script =
                dice.choose(&["hi", "!tool x {}", "!status 500", "!cut half", "!empty", "!slow 2 a b c"]);
            (agent_path(&agent), "send", json!({ "content": script, "request_id": request_id }))
        }
    }
}

fn run_caller(stage: &Fixture, caller: u64) {
    let mut dice = TestRng(caller);
    for call in 0..CALLS {
        let (path, method, params) = random_call(&mut dice, call);
        let mut request = json!({ "jsonrpc": "2.0", "id": caller, "method": method });
        request["params"] = params;
        let answer = stage.daemon.post(&path, &[], request.to_string().as_bytes());
        let response = answer.json();
        match answer.status {
            200 => assert_eq!(response["id"], caller, "{response}"),
            404 => assert_eq!(response["error"]["code"], -32602, "{response}"),
            status => panic!("{status} to {method} on {path}: {response}"),
        }
        if let Some(code) = response["error"]["code"].as_i64() {
            assert!(code == -32602 || (code == -32603 && method == "send"), "{method} on {path}: {response}");
            let text = response["error"]["message"].as_str().unwrap_or_default();
            assert!(!text.is_empty() && !text.contains("panicked"), "{response}");
        }
    }
}

#[test]
fn a_storm_of_calls_leaves_nothing_open() {
    // Asked once each: five tries in a row that fail would make the provider rest, and the callers wait for it.
    let stage = Fixture::with_config("stop_grace_ms = 3600000\n[providers.openai]\ntries_max = 1\n");
    thread::scope(|scope| {
        for caller in 1..=CALLERS {
            let stage = &stage;
            scope.spawn(move || run_caller(stage, caller));
        }
    });
    assert_all_valid(&stage.model);
    stage.daemon.call("/", "create_agent", json!({ "agent_id": "agent-0" }));
    assert_eq!(stage.send("agent-0", "!reply after the storm")["content"], "after the storm");
    stage.daemon.signal("SIGTERM");
    assert_eq!(stage.daemon.wait_exit().code(), Some(0), "a turn that nobody ended would hold it");
    assert!(!stage.daemon.stderr().contains("panicked"), "{}", stage.daemon.stderr());
}
