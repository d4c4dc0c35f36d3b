//! What the clients requested and which replies they got: the expected state, tracked outside the daemon.

use std::collections::BTreeMap;

use super::call::{Reply, RpcError};

/// Everything that clients have requested.
#[derive(Debug, Default)]
pub(super) struct Expectations {
    pub(super) agents: Vec<ExpectedAgent>,
    pub(super) sends: Vec<SentMessage>,
    pub(super) steers: Vec<Steer>,
    pub(super) counts: Counts,
    /// Descriptions of violated guarantees.
    pub(super) violations: Vec<String>,
    last_number: u64,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) sends: usize,
    pub(super) creates: usize,
    pub(super) destroys: usize,
    pub(super) renames: usize,
    pub(super) steers: usize,
    /// Calls retried after a lost reply.
    pub(super) retries: usize,
    /// Acknowledged calls that were sent again.
    pub(super) duplicate_checks: usize,
    /// Sends that stay interrupted.
    pub(super) interrupted: usize,
}

#[derive(Debug)]
pub(super) struct ExpectedAgent {
    pub(super) name: String,
    /// The client that may rename and destroy it; none for a shared agent.
    pub(super) owner: Option<usize>,
    pub(super) state: AgentState,
    /// The cycle it was created in.
    pub(super) created_cycle: u64,
    /// The last cycle in which a client used it.
    pub(super) last_used_cycle: u64,
}

/// Expected state of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AgentState {
    /// Requested, no reply yet.
    Creating,
    Alive,
    /// Destruction requested, no reply yet.
    Destroying,
    Destroyed,
    /// Rename to this name requested, no reply yet.
    Renaming(String),
}

/// A `send` call.
#[derive(Debug)]
pub(super) struct SentMessage {
    pub(super) agent: usize,
    pub(super) request_id: String,
    pub(super) content: String,
    pub(super) action: ModelAction,
    pub(super) state: SendState,
}

/// What a send makes the model do.
#[derive(Debug, Clone)]
pub(super) enum ModelAction {
    /// Respond with this text.
    Reply(String),
    /// Append each of these lines to a file, with one tool call each.
    Append(Vec<String>),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum SendState {
    /// No reply yet.
    Pending,
    /// Answered with this text.
    Acknowledged(String),
    /// Its agent was destroyed first.
    AgentDestroyed,
    /// Interrupted for good.
    Interrupted,
}

/// An instruction sent to a running turn.
#[derive(Debug)]
pub(super) struct Steer {
    pub(super) agent: usize,
    pub(super) content: String,
    /// Whether the daemon accepted it; none if the reply was lost.
    pub(super) accepted: Option<bool>,
}

/// Cycles after which an agent is no longer used: long histories would dominate the run time.
const AGENT_AGE_CYCLES_MAX: u64 = 8;

impl Expectations {
    /// Returns a unique number.
    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub(super) fn record_violation(&mut self, text: String) {
        self.violations.push(text);
    }

    pub(super) fn add_agent(&mut self, owner: Option<usize>, cycle: u64) -> usize {
        let name = format!("a{}", self.next_number());
        self.agents.push(ExpectedAgent {
            name,
            owner,
            state: AgentState::Creating,
            created_cycle: cycle,
            last_used_cycle: cycle,
        });
        self.agents.len() - 1
    }

    /// The agents that a client may send to now.
    pub(super) fn usable_agents(&self, client: usize, cycle: u64) -> Vec<usize> {
        let is_usable = |agent: &ExpectedAgent| {
            agent.state == AgentState::Alive
                && agent.created_cycle + AGENT_AGE_CYCLES_MAX > cycle
                && agent.owner.is_none_or(|owner| owner == client)
        };
        (0..self.agents.len()).filter(|index| is_usable(&self.agents[*index])).collect()
    }

    /// The agents that a client may rename and destroy now.
    pub(super) fn owned_agents(&self, client: usize, cycle: u64) -> Vec<usize> {
        let usable = self.usable_agents(client, cycle).into_iter();
        usable.filter(|index| self.agents[*index].owner == Some(client)).collect()
    }

    pub(super) fn add_send(
        &mut self,
        agent: usize,
        content: String,
        action: ModelAction,
        cycle: u64,
    ) -> usize {
        let request_id = format!("r{}", self.next_number());
        self.agents[agent].last_used_cycle = cycle;
        self.sends.push(SentMessage { agent, request_id, content, action, state: SendState::Pending });
        self.sends.len() - 1
    }

    pub(super) fn path(&self, agent: usize) -> String {
        format!("/agent/{}", self.agents[agent].name)
    }

    /// Records the reply to a send.
    pub(super) fn record_send_reply(&mut self, index: usize, reply: &Reply) {
        let agent = self.sends[index].agent;
        let is_ending = matches!(self.agents[agent].state, AgentState::Destroying | AgentState::Destroyed);
        let state = match reply {
            Reply::Lost => return,
            Reply::Error(error) if error.is_retryable() => return,
            _ if is_ending => SendState::AgentDestroyed,
            Reply::Result(result) if result["cancelled"] == true => {
                self.record_violation(format!(
                    "{} was cancelled without a request",
                    self.sends[index].request_id
                ));
                return;
            }
            Reply::Result(result) => {
                SendState::Acknowledged(result["content"].as_str().unwrap_or_default().to_owned())
            }
            Reply::Error(error) => {
                self.record_violation(describe_error("send", &self.sends[index].request_id, error));
                return;
            }
        };
        if matches!(state, SendState::Acknowledged(_)) && self.sends[index].state == SendState::Pending {
            self.counts.sends += 1;
        }
        let sent = &mut self.sends[index];
        match (&sent.state, &state) {
            (SendState::Acknowledged(first), SendState::Acknowledged(second)) if first != second => {
                let text = format!("{} got the reply {first:?}, then {second:?}", sent.request_id);
                self.record_violation(text);
            }
            _ => sent.state = state,
        }
    }

    /// Records that a send stays interrupted after several retries.
    pub(super) fn record_interrupted(&mut self, index: usize) {
        let sent = &mut self.sends[index];
        sent.state = SendState::Interrupted;
        self.counts.interrupted += 1;
        if !marks_interrupted(sent.agent) {
            let text = format!("{} stays interrupted, but its agent resumes turns", sent.request_id);
            self.record_violation(text);
        }
    }

    /// Pending sends by agent, each in order.
    pub(super) fn pending_sends(&self) -> Vec<Vec<usize>> {
        let mut by_agent: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, sent) in self.sends.iter().enumerate() {
            if sent.state == SendState::Pending {
                by_agent.entry(sent.agent).or_default().push(index);
            }
        }
        by_agent.into_values().collect()
    }

    pub(super) fn record_create_reply(&mut self, agent: usize, reply: &Reply) {
        match reply {
            Reply::Lost => {}
            Reply::Result(_) => {
                self.agents[agent].state = AgentState::Alive;
                self.counts.creates += 1;
            }
            Reply::Error(error) if error.message.contains("already exists") => {
                self.agents[agent].state = AgentState::Alive;
            }
            Reply::Error(error) if error.is_retryable() => {}
            Reply::Error(error) => {
                self.record_violation(describe_error("create_agent", &self.agents[agent].name, error));
            }
        }
    }

    pub(super) fn record_destroy_reply(&mut self, agent: usize, reply: &Reply) {
        match reply {
            Reply::Lost => return,
            Reply::Result(_) => self.counts.destroys += 1,
            Reply::Error(error) if error.is_retryable() => return,
            Reply::Error(error) => {
                self.record_violation(describe_error("destroy_agent", &self.agents[agent].name, error));
            }
        }
        self.agents[agent].state = AgentState::Destroyed;
        let sends = self.sends.iter_mut().filter(|sent| sent.agent == agent);
        sends
            .filter(|sent| sent.state == SendState::Pending)
            .for_each(|sent| sent.state = SendState::AgentDestroyed);
    }

    /// Records the reply to a rename. "Not found" for the old name means that the rename was committed; the agent list
    /// shows whether the new name exists.
    pub(super) fn record_rename_reply(&mut self, agent: usize, reply: &Reply) {
        let AgentState::Renaming(name) = self.agents[agent].state.clone() else { return };
        match reply {
            Reply::Lost => return,
            Reply::Result(_) => self.counts.renames += 1,
            Reply::Error(error) if error.is_retryable() => return,
            Reply::Error(error) if error.message.to_lowercase().contains("not found") => {}
            Reply::Error(error) => {
                self.record_violation(describe_error("rename_agent", &self.agents[agent].name, error));
                return;
            }
        }
        self.agents[agent].name = name;
        self.agents[agent].state = AgentState::Alive;
    }
}

/// Whether an agent has `on_restart: mark`: after a crash its turns are marked as interrupted instead of resumed.
pub(super) fn marks_interrupted(agent: usize) -> bool {
    agent.is_multiple_of(3)
}

fn describe_error(method: &str, what: &str, error: &RpcError) -> String {
    format!("{method} {what} failed: {} {} {}", error.code, error.message, error.kind)
}
