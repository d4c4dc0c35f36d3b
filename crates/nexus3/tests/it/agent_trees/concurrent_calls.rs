//! Concurrent random calls that create, narrow, use and destroy agents of one small tree: every call gets a response,
//! no turn hangs, and the counts stay correct.

use std::thread;

use serde_json::{Value, json};
use testkit::{TestRng, rpc_request};

use crate::support::{Fixture, agent_ids, agent_path};

const CALLERS: u64 = 6;
const CALLS: u64 = 120;
const NAMES: [&str; 5] = ["root", "a", "b", "c", "d"];

/// Returns a random call. Request ids advance with the number of the call, so that they occur while their turn is open,
/// after it has ended, and for the first time.
fn random_call(rng: &mut TestRng, call: u64) -> (String, &'static str, Value) {
    let (agent, other) = (*rng.pick(&NAMES), *rng.pick(&NAMES));
    match rng.below(12) {
        0..=2 => {
            let preset = *rng.pick(&["trusted", "sandboxed"]);
            let budget = json!({ "children": 3, "tool_calls": rng.below(20) });
            let params =
                json!({ "agent_id": agent, "parent_agent_id": other, "preset": preset, "budget": budget });
            ("/".to_owned(), "create_agent", params)
        }
        3 => {
            let orphan = rng.below(2) == 0;
            ("/".to_owned(), "destroy_agent", json!({ "agent_id": agent, "orphan": orphan }))
        }
        4 => (agent_path(agent), "set_permissions", json!({ "budget": { "tool_calls": rng.below(30) } })),
        5 => (agent_path(agent), "set_permissions", json!({ "unlimited": ["tool_calls"] })),
        6 => (agent_path(agent), "steer", json!({ "content": "an instruction" })),
        7 => (agent_path(agent), "cancel", json!({ "request_id": call / 4 + rng.below(5) as u64 })),
        8 => (agent_path(agent), "get_permissions", json!({})),
        _ => {
            let sending =
                format!("!tool agent_send {}", json!({ "agent_id": other, "content": "!slow 1 a b" }));
            let creating =
                format!("!tool agent_create {}", json!({ "agent_id": other, "initial_message": "hi" }));
            let script = match rng.below(3) {
                0 => sending,
                1 => creating,
                _ => format!("{sending}\n{creating}"),
            };
            (
                agent_path(agent),
                "send",
                json!({ "content": script, "request_id": call / 4 + rng.below(5) as u64 }),
            )
        }
    }
}

fn run_caller(fixture: &Fixture, caller: u64) {
    let mut rng = TestRng::new(caller);
    for call in 0..CALLS {
        let (path, method, params) = random_call(&mut rng, call);
        let http = fixture.daemon.post(&path, &[], rpc_request(caller, method, params).as_bytes());
        let response = http.json();
        assert!([200, 404].contains(&http.status), "{method} on {path}: {response}");
        let code = response["error"]["code"].as_i64();
        assert!(code.is_none_or(|code| code == -32602), "{method} on {path}: {response}");
    }
}

#[test]
fn random_calls_leave_no_open_turn_and_correct_counts() {
    let fixture = Fixture::with_config("stop_grace_ms = 3600000");
    let root = json!({ "agent_id": "root", "preset": "trusted", "may_create": ["trusted", "sandboxed"] });
    fixture.create_with(root);
    thread::scope(|scope| {
        for caller in 1..=CALLERS {
            let fixture = &fixture;
            scope.spawn(move || run_caller(fixture, caller));
        }
    });
    for name in agent_ids(&fixture.daemon) {
        let agent = fixture.agent(&name);
        let below = agent_ids(&fixture.daemon)
            .iter()
            .filter(|other| fixture.agent(other)["ancestors"].as_array().unwrap().contains(&json!(name)))
            .count();
        // `below` also counts descendants of a destroyed agent with the same id, `used` does not.
        let used = fixture.resource_usage(&name, "children")[1].as_u64().unwrap();
        assert!(used <= u64::try_from(below).unwrap(), "{name}: {used} of {below}: {agent}");
        let children = agent["agent"]["child_count"].as_u64().unwrap();
        assert_eq!(children, u64::try_from(agent["children"].as_array().unwrap().len()).unwrap());
        fixture.daemon.call_result("/", "destroy_agent", json!({ "agent_id": name, "orphan": true }));
    }
    assert_eq!(agent_ids(&fixture.daemon), [""; 0]);
    fixture.daemon.signal("SIGTERM");
    assert_eq!(fixture.daemon.wait_exit().code(), Some(0), "an open turn would delay the exit");
    assert!(!fixture.daemon.stderr().contains("panicked"), "{}", fixture.daemon.stderr());
}
