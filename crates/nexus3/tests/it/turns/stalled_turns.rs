//! A thousand sends that stand still: whoever looks, cancels or destroys is answered all the same, and in the end so is
//! everybody who waits.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use testkit::RawConnection;

use crate::support::model_requests::without_volatile_suffix;
use crate::support::pending_calls::{PendingCalls, request_bytes};
use crate::support::{Fixture, agent_path};

const SENDS: usize = 1_000;
const RUNNING: usize = 256;
const PROBES: usize = 50;

/// A median above this is a daemon that stands still, not a slow machine.
const MEDIAN_MAX: Duration = Duration::from_millis(250);

/// A connection that is kept for many calls, as a client's would be.
struct ControlConnection<'a> {
    stage: &'a Fixture,
    connection: RawConnection,
}

impl ControlConnection<'_> {
    fn result(&mut self, path: &str, method: &str, params: Value) -> Value {
        self.connection.send(&request_bytes(&self.stage.daemon, path, 1, method, params));
        let mut response = self.connection.read_response().json();
        assert!(response.get("error").is_none(), "{method} on {path}: {response}");
        response["result"].take()
    }
}

fn name(number: usize) -> String {
    format!("agent-{number}")
}

/// One more than may be open: when that one is refused, all others are in.
fn stall_all(stage: &Fixture, control: &mut ControlConnection<'_>) -> (PendingCalls, Value) {
    let mut calls = PendingCalls::new();
    for number in 0..=SENDS {
        control.result("/", "create_agent", json!({ "agent_id": name(number) }));
    }
    for number in 0..=SENDS {
        let params = json!({ "content": format!("!stall {number}"), "request_id": "stalled" });
        calls.start(&stage.daemon, &agent_path(&name(number)), "send", params);
    }
    let refused = calls.next_response();
    assert_eq!(refused["error"]["code"], -32001, "{refused}");
    stage.model.wait_stalled(RUNNING);
    (calls, refused["id"].clone())
}

/// The agents whose turns are at the model, and those whose turns wait.
fn running_and_waiting(stage: &Fixture, refused: &Value) -> (Vec<usize>, Vec<usize>) {
    let number = |request: testkit::RecordedRequest| -> usize {
        let messages = request.body["messages"].as_array().expect("messages").clone();
        let content = messages.last().and_then(|message| message["content"].as_str().map(str::to_owned));
        content
            .and_then(|content| without_volatile_suffix(&content).strip_prefix("!stall ")?.parse().ok())
            .expect("a stall")
    };
    let running: BTreeSet<_> = stage.model.requests().into_iter().map(number).collect();
    assert_eq!(running.len(), RUNNING);
    let waiting = (0..=SENDS).filter(|number| !running.contains(number) && *refused != *number);
    (running.iter().copied().collect(), waiting.collect())
}

fn measure(what: &str, mut call: impl FnMut(usize)) {
    let mut times: Vec<_> = (0..PROBES)
        .map(|number| {
            let started = Instant::now();
            call(number);
            started.elapsed()
        })
        .collect();
    times.sort_unstable();
    let (median, slowest) = (times[PROBES / 2], times[PROBES - 1]);
    println!("{what} beside {SENDS} stalled sends: median {median:?}, slowest {slowest:?}");
    assert!(median < MEDIAN_MAX, "{what}: median {median:?}");
}

/// Both ends of a thousand connections, and the model's, are in this process.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).expect("a process may use what it is allowed");
}

#[test]
fn control_calls_are_answered_beside_a_thousand_stalled_sends() {
    raise_descriptor_limit();
    let waiting_max = SENDS - RUNNING;
    let stage = Fixture::with_config(&format!("stop_grace_ms = 50\nlimits.turns_queued_max = {waiting_max}"));
    let mut control = ControlConnection { stage: &stage, connection: stage.daemon.connection() };
    let (calls, refused) = stall_all(&stage, &mut control);
    let (running, waiting) = running_and_waiting(&stage, &refused);

    measure("list_agents", |_| {
        let list = control.result("/", "list_agents", json!({}));
        assert_eq!(list["agents"].as_array().map(Vec::len), Some(SENDS + 1));
    });
    measure("get_context", |probe| {
        control.result(&agent_path(&name(running[probe])), "get_context", json!({}));
    });
    let cancel = |number: usize, control: &mut ControlConnection<'_>| {
        let result = control.result(&agent_path(&name(number)), "cancel", json!({ "request_id": "stalled" }));
        assert_eq!(result["cancelled"], true, "{number}");
    };
    measure("cancel of a waiting send", |probe| cancel(waiting[probe], &mut control));
    measure("cancel of a running send", |probe| cancel(running[probe], &mut control));

    for number in 0..SENDS / 2 {
        control.result("/", "destroy_agent", json!({ "agent_id": name(number) }));
    }
    control.result("/", "shutdown_server", json!({}));
    let mut answered = BTreeSet::new();
    for _ in 0..SENDS {
        let arrived = calls.next_arrival();
        assert_eq!(arrived.response.json()["result"]["cancelled"], true, "{}", arrived.response.text());
        answered.insert(arrived.index);
    }
    assert_eq!(answered.len(), SENDS);
    assert_eq!(stage.daemon.wait_exit().code(), Some(0));
}
