//! Callers that grow, narrow, use and fell the same small tree all at once: every call is answered, nobody waits for ever,
//! no count goes astray.

use std::thread;

use serde_json::{Value, json};

use crate::support::rng::TestRng;
use crate::support::{Fixture, agent_ids, agent_path};

const CALLERS: u64 = 6;
const CALLS: u64 = 120;
const NAMES: [&str; 5] = ["root", "a", "b", "c", "d"];

/// Names of sends move on with the calls: they meet while they are open, are repeated afterwards, and are new again.
fn random_call(dice: &mut TestRng, call: u64) -> (String, &'static str, Value) {
    let (agent, other) = (dice.choose(&NAMES), dice.choose(&NAMES));
    match dice.next_below(12) {
        0..=2 => {
            let preset = dice.choose(&["trusted", "sandboxed"]);
            let budget = json!({ "children": 3, "tool_calls": dice.next_below(20) });
            let params =
                json!({ "agent_id": agent, "parent_agent_id": other, "preset": preset, "budget": budget });
            ("/".to_owned(), "create_agent", params)
        }
        3 => {
            let orphan = dice.next_below(2) == 0;
            ("/".to_owned(), "destroy_agent", json!({ "agent_id": agent, "orphan": orphan }))
        }
        4 => {
            (agent_path(agent), "set_permissions", json!({ "budget": { "tool_calls": dice.next_below(30) } }))
        }
        5 => (agent_path(agent), "set_permissions", json!({ "unlimited": ["tool_calls"] })),
        6 => (agent_path(agent), "steer", json!({ "content": "a word" })),
        7 => (agent_path(agent), "cancel", json!({ "request_id": call / 4 + dice.next_below(5) })),
        8 => (agent_path(agent), "get_permissions", json!({})),
        _ => {
            let sending =
                format!("!tool agent_send {}", json!({ "agent_id": other, "content": "!slow 1 a b" }));
            let creating =
                format!("!tool agent_create {}", json!({ "agent_id": other, "initial_message": "hi" }));
            let script = match dice.next_below(3) {
                0 => sending,
                1 => creating,
                _ => format!("{sending}\n{creating}"),
            };
            (
                agent_path(agent),
                "send",
                json!({ "content": script, "request_id": call / 4 + dice.next_below(5) }),
            )
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
        assert!([200, 404].contains(&answer.status), "{method} on {path}: {response}");
        let code = response["error"]["code"].as_i64();
        assert!(code.is_none_or(|code| code == -32602), "{method} on {path}: {response}");
    }
}

#[test]
fn a_storm_in_a_tree_leaves_nothing_open_and_nothing_miscounted() {
    let stage = Fixture::with_config("stop_grace_ms = 3600000");
    let root = json!({ "agent_id": "root", "preset": "trusted", "may_create": ["trusted", "sandboxed"] });
    stage.create_with(root);
    thread::scope(|scope| {
        for caller in 1..=CALLERS {
            let stage = &stage;
            scope.spawn(move || run_caller(stage, caller));
        }
    });
    for name in agent_ids(&stage.daemon) {
        let agent = stage.agent(&name);
        let below = agent_ids(&stage.daemon)
            .iter()
            .filter(|other| stage.agent(other)["ancestors"].as_array().unwrap().contains(&json!(name)))
            .count();
        // A namesake of an ancestor that is gone has no children of its.
        let used = stage.resource_usage(&name, "children")[1].as_u64().unwrap();
        assert!(used <= u64::try_from(below).unwrap(), "{name}: {used} of {below}: {agent}");
        let children = agent["agent"]["child_count"].as_u64().unwrap();
        assert_eq!(children, u64::try_from(agent["children"].as_array().unwrap().len()).unwrap());
        stage.daemon.call_result("/", "destroy_agent", json!({ "agent_id": name, "orphan": true }));
    }
    assert_eq!(agent_ids(&stage.daemon), [""; 0]);
    stage.daemon.signal("SIGTERM");
    assert_eq!(stage.daemon.wait_exit().code(), Some(0), "a turn that nobody ended would hold it");
    assert!(!stage.daemon.stderr().contains("panicked"), "{}", stage.daemon.stderr());
}
