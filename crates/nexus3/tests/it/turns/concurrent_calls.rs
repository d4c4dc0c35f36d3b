//! Concurrent callers that create, use, cancel and destroy the same few agents: every call gets a response, and no turn
//! stays pending.

use std::thread;

use serde_json::{Value, json};
use testkit::{TestRng, rpc_request};

use crate::support::model_requests::assert_all_valid;
use crate::support::{Fixture, agent_path};

const CALLERS: u64 = 6;
const CALLS: u64 = 120;

/// Picks a random call. Request ids advance with the calls: concurrent sends share one, later sends repeat it, and then
/// a new one follows.
fn random_call(rng: &mut TestRng, call: u64) -> (String, &'static str, Value) {
    let agent = format!("agent-{}", rng.below(4));
    let request_id = call / 4 + rng.below(5) as u64;
    match rng.below(10) {
        0 | 1 => ("/".to_owned(), "create_agent", json!({ "agent_id": agent })),
        2 => ("/".to_owned(), "destroy_agent", json!({ "agent_id": agent })),
        3 | 4 => (agent_path(&agent), "cancel", json!({ "request_id": request_id })),
        5 => (agent_path(&agent), "get_messages", json!({ "limit": 3 })),
        6 => ("/".to_owned(), "list_agents", json!({})),
        _ => {
            let script =
                *rng.pick(&["hi", "!tool x {}", "!status 500", "!cut half", "!empty", "!slow 2 a b c"]);
            (agent_path(&agent), "send", json!({ "content": script, "request_id": request_id }))
        }
    }
}

fn run_caller(fixture: &Fixture, caller: u64) {
    let mut rng = TestRng::new(caller);
    for call in 0..CALLS {
        let (path, method, params) = random_call(&mut rng, call);
        let http_response = fixture.daemon.post(&path, &[], rpc_request(caller, method, params).as_bytes());
        let response = http_response.json();
        match http_response.status {
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
fn concurrent_random_calls_leave_no_pending_turn() {
    // One attempt per request: five failed attempts in a row would open the provider's circuit breaker, and the callers
    // would wait for it.
    let fixture = Fixture::with_config("stop_grace_ms = 3600000\n[providers.openai]\ntries_max = 1\n");
    thread::scope(|scope| {
        for caller in 1..=CALLERS {
            let fixture = &fixture;
            scope.spawn(move || run_caller(fixture, caller));
        }
    });
    assert_all_valid(&fixture.model);
    fixture.daemon.call("/", "create_agent", json!({ "agent_id": "agent-0" }));
    assert_eq!(fixture.send("agent-0", "!reply after the load")["content"], "after the load");
    fixture.daemon.signal("SIGTERM");
    assert_eq!(fixture.daemon.wait_exit().code(), Some(0), "a pending turn would delay the exit");
    assert!(!fixture.daemon.stderr().contains("panicked"), "{}", fixture.daemon.stderr());
}
