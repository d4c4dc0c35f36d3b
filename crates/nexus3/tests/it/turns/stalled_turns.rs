//! Control calls during a thousand stalled sends: the daemon lists, cancels and destroys without delay, and every send
//! gets a response in the end.

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

/// A median latency above this means a blocked daemon, not a slow machine.
const MEDIAN_MAX: Duration = Duration::from_millis(250);

/// A connection that is reused for many calls, as a client would do.
struct ControlConnection<'a> {
    fixture: &'a Fixture,
    connection: RawConnection,
}

impl ControlConnection<'_> {
    fn result(&mut self, path: &str, method: &str, params: Value) -> Value {
        self.connection.send(&request_bytes(&self.fixture.daemon, path, 1, method, params));
        let mut response = self.connection.read_response().json();
        assert!(response.get("error").is_none(), "{method} on {path}: {response}");
        response["result"].take()
    }
}

fn name(number: usize) -> String {
    format!("agent-{number}")
}

/// Starts one send more than the limit: once that one is rejected, all others are accepted.
fn stall_all(fixture: &Fixture, control: &mut ControlConnection<'_>) -> (PendingCalls, Value) {
    let mut calls = PendingCalls::new();
    for number in 0..=SENDS {
        control.result("/", "create_agent", json!({ "agent_id": name(number) }));
    }
    for number in 0..=SENDS {
        let params = json!({ "content": format!("!stall {number}"), "request_id": "stalled" });
        calls.start(&fixture.daemon, &agent_path(&name(number)), "send", params);
    }
    let rejected = calls.next_response();
    assert_eq!(rejected["error"]["code"], -32001, "{rejected}");
    fixture.model.wait_stalled(RUNNING);
    (calls, rejected["id"].clone())
}

/// The numbers of the agents whose turns run at the model, and of those whose turns are queued.
fn running_and_queued(fixture: &Fixture, rejected: &Value) -> (Vec<usize>, Vec<usize>) {
    let number = |request: testkit::RecordedRequest| -> usize {
        let messages = request.body["messages"].as_array().expect("messages").clone();
        let content = messages.last().and_then(|message| message["content"].as_str().map(str::to_owned));
        content
            .and_then(|content| without_volatile_suffix(&content).strip_prefix("!stall ")?.parse().ok())
            .expect("a stalled send")
    };
    let running: BTreeSet<_> = fixture.model.requests().into_iter().map(number).collect();
    assert_eq!(running.len(), RUNNING);
    let queued = (0..=SENDS).filter(|number| !running.contains(number) && *rejected != *number);
    (running.iter().copied().collect(), queued.collect())
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
    println!("{what} with {SENDS} stalled sends: median {median:?}, slowest {slowest:?}");
    assert!(median < MEDIAN_MAX, "{what}: median {median:?}");
}

/// Raises the descriptor limit: this process holds the client ends of a thousand connections, and the model's
/// connections.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).expect("the soft limit can be raised to the hard one");
}

#[test]
fn control_calls_respond_during_a_thousand_stalled_sends() {
    raise_descriptor_limit();
    let queued_max = SENDS - RUNNING;
    let fixture =
        Fixture::with_config(&format!("stop_grace_ms = 50\nlimits.turns_queued_max = {queued_max}"));
    let mut control = ControlConnection { fixture: &fixture, connection: fixture.daemon.connection() };
    let (calls, rejected) = stall_all(&fixture, &mut control);
    let (running, queued) = running_and_queued(&fixture, &rejected);

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
    measure("cancel of a queued send", |probe| cancel(queued[probe], &mut control));
    measure("cancel of a running send", |probe| cancel(running[probe], &mut control));

    for number in 0..SENDS / 2 {
        control.result("/", "destroy_agent", json!({ "agent_id": name(number) }));
    }
    control.result("/", "shutdown_server", json!({}));
    let mut responded = BTreeSet::new();
    for _ in 0..SENDS {
        let arrival = calls.next_arrival();
        assert_eq!(arrival.response.json()["result"]["cancelled"], true, "{}", arrival.response.text());
        responded.insert(arrival.index);
    }
    assert_eq!(responded.len(), SENDS);
    assert_eq!(fixture.daemon.wait_exit().code(), Some(0));
}
