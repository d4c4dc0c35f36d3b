//! The load: clients that create, send, steer, rename and destroy until the daemon is killed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::call::{DaemonAddress, PendingCall, Reply};
use super::expectations::{AgentState, Expectations, ModelAction, SendState, Steer, marks_interrupted};
use crate::rng::TestRng;

/// A client during one run of the daemon.
pub(super) struct Client<'a> {
    pub(super) index: usize,
    pub(super) cycle: u64,
    pub(super) address: &'a DaemonAddress,
    pub(super) expectations: &'a Mutex<Expectations>,
    /// The working directory of the agents.
    pub(super) directory: &'a str,
    pub(super) rng: TestRng,
}

/// Number of files that tool calls append to.
pub(super) const FILE_COUNT: usize = 4;

/// Maximum number of agents that a client owns.
const OWNED_AGENTS_MAX: usize = 3;

/// Maximum number of attempts to steer a turn.
const STEER_ATTEMPTS_MAX: usize = 10;

/// Whether the daemon still responds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DaemonState {
    Reachable,
    Unreachable,
}

impl Client<'_> {
    /// Runs operations until the daemon is unreachable or `stop` is set.
    pub(super) fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) && self.run_random_operation() == DaemonState::Reachable {}
    }

    fn run_random_operation(&mut self) -> DaemonState {
        let (owned, usable) = {
            let expectations = self.expectations();
            (
                expectations.owned_agents(self.index, self.cycle),
                expectations.usable_agents(self.index, self.cycle),
            )
        };
        let percent = self.rng.below(100);
        let agent = self.rng.choose(&owned).copied();
        match (percent, agent) {
            (0..12, _) if owned.len() < OWNED_AGENTS_MAX => self.create(Some(self.index)),
            (_, None) => self.create(Some(self.index)),
            (12..16, Some(agent)) if owned.len() > 1 => self.destroy(agent),
            (16..20, Some(agent)) => self.rename(agent),
            (20..30, Some(agent)) => self.steer(agent),
            (30..35, _) => self.check_idempotency(),
            (_, Some(agent)) => {
                let agent = self.rng.choose(&usable).copied().unwrap_or(agent);
                self.send_batch(agent)
            }
        }
    }

    pub(super) fn create(&mut self, owner: Option<usize>) -> DaemonState {
        let agent = self.expectations().add_agent(owner, self.cycle);
        let params = self.create_params(agent);
        let reply = self.address.call("/", "create_agent", &params);
        self.expectations().record_create_reply(agent, &reply);
        daemon_state(&reply)
    }

    /// The parameters of `create_agent`; a retry repeats them.
    pub(super) fn create_params(&self, agent: usize) -> Value {
        let name = self.expectations().agents[agent].name.clone();
        let on_restart = if marks_interrupted(agent) { "mark" } else { "resume" };
        json!({ "agent_id": name, "preset": "trusted", "cwd": self.directory, "on_restart": on_restart })
    }

    /// Destroys an agent, sometimes with a turn in flight.
    fn destroy(&mut self, agent: usize) -> DaemonState {
        let in_flight = self.rng.percent(50).then(|| {
            let (content, action) = self.slow_script();
            self.start_send(agent, content, action)
        });
        let name = {
            let mut expectations = self.expectations();
            expectations.agents[agent].state = AgentState::Destroying;
            expectations.agents[agent].last_used_cycle = self.cycle;
            expectations.agents[agent].name.clone()
        };
        let reply = self.address.call("/", "destroy_agent", &json!({ "agent_id": name }));
        self.expectations().record_destroy_reply(agent, &reply);
        if let Some((index, call)) = in_flight {
            let reply = call.wait_reply();
            self.expectations().record_send_reply(index, &reply);
        }
        daemon_state(&reply)
    }

    fn rename(&mut self, agent: usize) -> DaemonState {
        let (name, new) = {
            let mut expectations = self.expectations();
            let new = format!("n{}", expectations.next_number());
            expectations.agents[agent].state = AgentState::Renaming(new.clone());
            expectations.agents[agent].last_used_cycle = self.cycle;
            (expectations.agents[agent].name.clone(), new)
        };
        let params = json!({ "agent_id": name, "new_agent_id": new });
        let reply = self.address.call("/", "rename_agent", &params);
        self.expectations().record_rename_reply(agent, &reply);
        daemon_state(&reply)
    }

    /// Starts a slow turn and steers it.
    fn steer(&mut self, agent: usize) -> DaemonState {
        let (content, action) = if self.rng.percent(50) { self.slow_script() } else { self.append_script() };
        let (index, call) = self.start_send(agent, content, action);
        let (path, content) = {
            let mut expectations = self.expectations();
            let number = expectations.next_number();
            (expectations.path(agent), format!("!reply steered-{number}"))
        };
        let accepted = self.steer_until_accepted(&path, &content);
        let mut expectations = self.expectations();
        expectations.counts.steers += usize::from(accepted == Some(true));
        expectations.steers.push(Steer { agent, content, accepted });
        drop(expectations);
        let reply = call.wait_reply();
        self.expectations().record_send_reply(index, &reply);
        daemon_state(&reply)
    }

    /// Steers until a turn accepts it: only a running turn does, and the client does not know when it starts and ends.
    fn steer_until_accepted(&self, path: &str, content: &str) -> Option<bool> {
        for _ in 0..STEER_ATTEMPTS_MAX {
            match self.address.call(path, "steer", &json!({ "content": content })) {
                Reply::Result(result) if result["steered"] == true => return Some(true),
                Reply::Result(_) | Reply::Error(_) => {}
                Reply::Lost => return None,
            }
        }
        Some(false)
    }

    /// Repeats an acknowledged send: the reply must be the same, and other content must be rejected.
    fn check_idempotency(&mut self) -> DaemonState {
        let candidates = {
            let expectations = self.expectations();
            let agents = expectations.usable_agents(self.index, self.cycle);
            let acknowledged = (0..expectations.sends.len()).rev().take(200).filter(|index| {
                let sent = &expectations.sends[*index];
                matches!(sent.state, SendState::Acknowledged(_)) && agents.contains(&sent.agent)
            });
            let acknowledged: Vec<usize> = acknowledged.collect();
            acknowledged
                .into_iter()
                .map(|index| (index, expectations.path(expectations.sends[index].agent)))
                .collect::<Vec<_>>()
        };
        let Some((index, path)) = self.rng.choose(&candidates).cloned() else {
            return DaemonState::Reachable;
        };
        let (request_id, content) = {
            let mut expectations = self.expectations();
            expectations.counts.duplicate_checks += 1;
            (expectations.sends[index].request_id.clone(), expectations.sends[index].content.clone())
        };
        if self.rng.percent(50) {
            let params = json!({ "content": content, "request_id": request_id });
            let reply = self.address.call(&path, "send", &params);
            self.expectations().record_send_reply(index, &reply);
            return daemon_state(&reply);
        }
        let params = json!({ "content": format!("not {content}"), "request_id": request_id });
        let reply = self.address.call(&path, "send", &params);
        match &reply {
            Reply::Lost => {}
            Reply::Error(error) if error.code == -32602 || error.is_retryable() => {}
            other => self
                .expectations()
                .record_violation(format!("{request_id} with other content got the reply {other:?}")),
        }
        daemon_state(&reply)
    }

    /// One to three sends at once; the later ones are queued.
    fn send_batch(&mut self, agent: usize) -> DaemonState {
        let mut in_flight = Vec::new();
        for _ in 0..=self.rng.below(3) {
            let (content, action) = match self.rng.below(3) {
                0 => self.reply_script(),
                1 => self.slow_script(),
                _ => self.append_script(),
            };
            in_flight.push(self.start_send(agent, content, action));
        }
        let mut daemon = DaemonState::Reachable;
        for (index, call) in in_flight {
            let reply = call.wait_reply();
            self.expectations().record_send_reply(index, &reply);
            if daemon_state(&reply) == DaemonState::Unreachable {
                daemon = DaemonState::Unreachable;
            }
        }
        daemon
    }

    fn start_send(&self, agent: usize, content: String, action: ModelAction) -> (usize, PendingCall) {
        let (index, path, params) = {
            let mut expectations = self.expectations();
            let index = expectations.add_send(agent, content, action, self.cycle);
            let sent = &expectations.sends[index];
            (
                index,
                expectations.path(agent),
                json!({ "content": sent.content, "request_id": sent.request_id }),
            )
        };
        (index, self.address.start_call(&path, "send", &params))
    }

    fn reply_script(&self) -> (String, ModelAction) {
        let text = format!("reply-{}", self.expectations().next_number());
        (format!("!reply {text}"), ModelAction::Reply(text))
    }

    fn slow_script(&mut self) -> (String, ModelAction) {
        let text = format!("one two three four slow-{}", self.expectations().next_number());
        (format!("!slow {} {text}", 1 + self.rng.below(8)), ModelAction::Reply(text))
    }

    /// One line, or two lines with two calls in one response. Each line is unique, so that the user message, which
    /// contains it, identifies the turn in the model's ledger.
    fn append_script(&mut self) -> (String, ModelAction) {
        let (mut lines, mut calls) = (Vec::new(), Vec::new());
        for _ in 0..=self.rng.below(2) {
            let line = format!("line-{}", self.expectations().next_number());
            let path = format!("log-{}.txt", self.rng.below(FILE_COUNT));
            calls.push(format!("!tool fs_append_file {}", json!({ "path": path, "content": line })));
            lines.push(line);
        }
        (calls.join("\n"), ModelAction::Append(lines))
    }

    fn expectations(&self) -> MutexGuard<'_, Expectations> {
        self.expectations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn daemon_state(reply: &Reply) -> DaemonState {
    if matches!(reply, Reply::Lost) { DaemonState::Unreachable } else { DaemonState::Reachable }
}
