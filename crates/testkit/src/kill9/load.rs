//! The load: clients that create, send, steer, rename and destroy until the daemon is gone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::call::{DaemonAddress, PendingCall, Reply};
use super::expectations::{AgentState, Expectations, ModelAction, SendState, Steer, marks_interrupted};
use super::rng::TestRng;

/// One client in one life of the daemon.
pub(super) struct Client<'a> {
    pub(super) index: usize,
    pub(super) cycle: u64,
    pub(super) address: &'a DaemonAddress,
    pub(super) expectations: &'a Mutex<Expectations>,
    /// The folder that agents work in.
    pub(super) folder: &'a str,
    pub(super) rng: TestRng,
}

/// Files that lines go to.
pub(super) const FILE_COUNT: u64 = 4;

/// Own agents that a client has at the most.
const OWNED_AGENTS_MAX: usize = 3;

/// How often a client tries to get a word in.
const STEER_ATTEMPTS_MAX: usize = 10;

/// Whether the daemon still answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DaemonState {
    Reachable,
    Unreachable,
}

impl Client<'_> {
    /// Works until the daemon is gone, or somebody says stop.
    pub(super) fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) && self.run_random_operation() == DaemonState::Reachable {}
    }

    fn run_random_operation(&mut self) -> DaemonState {
        let (own, any) = {
            let book = self.expectations();
            (book.owned_agents(self.index, self.cycle), book.usable_agents(self.index, self.cycle))
        };
        let chance = self.rng.below(100);
        let own_one = self.rng.choose(&own).copied();
        match (chance, own_one) {
            (0..12, _) if own.len() < OWNED_AGENTS_MAX => self.create(Some(self.index)),
            (_, None) => self.create(Some(self.index)),
            (12..16, Some(agent)) if own.len() > 1 => self.destroy(agent),
            (16..20, Some(agent)) => self.rename(agent),
            (20..30, Some(agent)) => self.steer(agent),
            (30..35, _) => self.check_idempotency(),
            (_, Some(agent)) => {
                let agent = self.rng.choose(&any).copied().unwrap_or(agent);
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

    /// The same agent is always asked for in the same way.
    pub(super) fn create_params(&self, agent: usize) -> Value {
        let name = self.expectations().agents[agent].name.clone();
        let on_restart = if marks_interrupted(agent) { "mark" } else { "resume" };
        json!({ "agent_id": name, "preset": "trusted", "cwd": self.folder, "on_restart": on_restart })
    }

    /// Sometimes in the middle of a turn.
    fn destroy(&mut self, agent: usize) -> DaemonState {
        let under_way = self.rng.percent(50).then(|| {
            let (content, act) = self.slow_script();
            self.start_send(agent, content, act)
        });
        let name = {
            let mut book = self.expectations();
            book.agents[agent].state = AgentState::Destroying;
            book.agents[agent].last_used_cycle = self.cycle;
            book.agents[agent].name.clone()
        };
        let reply = self.address.call("/", "destroy_agent", &json!({ "agent_id": name }));
        self.expectations().record_destroy_reply(agent, &reply);
        if let Some((place, open)) = under_way {
            let reply = open.wait_reply();
            self.expectations().record_send_reply(place, &reply);
        }
        daemon_state(&reply)
    }

    fn rename(&mut self, agent: usize) -> DaemonState {
        let (name, new) = {
            let mut book = self.expectations();
            let new = format!("n{}", book.next_number());
            book.agents[agent].state = AgentState::Renaming(new.clone());
            book.agents[agent].last_used_cycle = self.cycle;
            (book.agents[agent].name.clone(), new)
        };
        let params = json!({ "agent_id": name, "new_agent_id": new });
        let reply = self.address.call("/", "rename_agent", &params);
        self.expectations().record_rename_reply(agent, &reply);
        daemon_state(&reply)
    }

    /// A turn that takes a while, and a word for it.
    fn steer(&mut self, agent: usize) -> DaemonState {
        let (content, act) = if self.rng.percent(50) { self.slow_script() } else { self.append_script() };
        let (place, open) = self.start_send(agent, content, act);
        let (path, content) = {
            let mut book = self.expectations();
            let number = book.next_number();
            (book.path(agent), format!("!reply steered-{number}"))
        };
        let taken = self.steer_until_accepted(&path, &content);
        let mut book = self.expectations();
        book.counts.steers += usize::from(taken == Some(true));
        book.steers.push(Steer { agent, content, accepted: taken });
        drop(book);
        let reply = open.wait_reply();
        self.expectations().record_send_reply(place, &reply);
        daemon_state(&reply)
    }

    /// A turn takes words from when it has begun until it has ended; nobody says when that is.
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

    /// Makes a call again that was answered: the answer has to be the same, and other content is refused.
    fn check_idempotency(&mut self) -> DaemonState {
        let found = {
            let book = self.expectations();
            let agents = book.usable_agents(self.index, self.cycle);
            let acked = (0..book.sends.len()).rev().take(200).filter(|place| {
                let sent = &book.sends[*place];
                matches!(sent.state, SendState::Acknowledged(_)) && agents.contains(&sent.agent)
            });
            let acked: Vec<usize> = acked.collect();
            acked.into_iter().map(|place| (place, book.path(book.sends[place].agent))).collect::<Vec<_>>()
        };
        let Some((place, path)) = self.rng.choose(&found).cloned() else { return DaemonState::Reachable };
        let (request_id, content) = {
            let mut book = self.expectations();
            book.counts.duplicate_checks += 1;
            (book.sends[place].request_id.clone(), book.sends[place].content.clone())
        };
        if self.rng.percent(50) {
            let params = json!({ "content": content, "request_id": request_id });
            let reply = self.address.call(&path, "send", &params);
            self.expectations().record_send_reply(place, &reply);
            return daemon_state(&reply);
        }
        let params = json!({ "content": format!("not {content}"), "request_id": request_id });
        let reply = self.address.call(&path, "send", &params);
        match &reply {
            Reply::Lost => {}
            Reply::Error(refusal) if refusal.code == -32602 || refusal.is_retryable() => {}
            other => {
                self.expectations().record_violation(format!("{request_id} with other content got {other:?}"))
            }
        }
        daemon_state(&reply)
    }

    /// One to three sends at once: the later ones have to wait.
    fn send_batch(&mut self, agent: usize) -> DaemonState {
        let mut under_way = Vec::new();
        for _ in 0..=self.rng.below(3) {
            let (content, act) = match self.rng.below(3) {
                0 => self.reply_script(),
                1 => self.slow_script(),
                _ => self.append_script(),
            };
            under_way.push(self.start_send(agent, content, act));
        }
        let mut daemon = DaemonState::Reachable;
        for (place, open) in under_way {
            let reply = open.wait_reply();
            self.expectations().record_send_reply(place, &reply);
            if daemon_state(&reply) == DaemonState::Unreachable {
                daemon = DaemonState::Unreachable;
            }
        }
        daemon
    }

    fn start_send(&self, agent: usize, content: String, act: ModelAction) -> (usize, PendingCall) {
        let (place, path, params) = {
            let mut book = self.expectations();
            let place = book.add_send(agent, content, act, self.cycle);
            let sent = &book.sends[place];
            (place, book.path(agent), json!({ "content": sent.content, "request_id": sent.request_id }))
        };
        (place, self.address.start_call(&path, "send", &params))
    }

    fn reply_script(&self) -> (String, ModelAction) {
        let text = format!("said-{}", self.expectations().next_number());
        (format!("!reply {text}"), ModelAction::Reply(text))
    }

    fn slow_script(&mut self) -> (String, ModelAction) {
        let text = format!("one two three four slow-{}", self.expectations().next_number());
        (format!("!slow {} {text}", 1 + self.rng.below(8)), ModelAction::Reply(text))
    }

    /// One line, or two by two calls of one answer. The words of the user tell questions apart: the lines are in them.
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
