//! What the clients asked for and what they were told: the side of the ledger that is outside of the daemon.

use std::collections::BTreeMap;

use super::call::{Reply, RpcError};

/// Everything that was ever asked of the daemon.
#[derive(Debug, Default)]
pub(super) struct Expectations {
    pub(super) agents: Vec<ExpectedAgent>,
    pub(super) sends: Vec<SentMessage>,
    pub(super) steers: Vec<Steer>,
    pub(super) counts: Counts,
    /// What must not be, in words.
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
    /// Calls that were made again because nobody knew what had become of them.
    pub(super) retries: usize,
    /// Calls that were made again although they were answered.
    pub(super) duplicate_checks: usize,
    /// Sends whose clients were told that they were interrupted for good.
    pub(super) interrupted: usize,
}

#[derive(Debug)]
pub(super) struct ExpectedAgent {
    pub(super) name: String,
    /// The client that may rename and destroy it; none where all of them send to it.
    pub(super) owner: Option<usize>,
    pub(super) state: AgentState,
    /// The cycle it was made in.
    pub(super) created_cycle: u64,
    /// The last cycle in which anything was asked of it.
    pub(super) last_used_cycle: u64,
}

/// What is known of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AgentState {
    /// Somebody asked for it and has no answer.
    Creating,
    Alive,
    /// Somebody asked for its end and has no answer.
    Destroying,
    Destroyed,
    /// Somebody asked for this name and has no answer.
    Renaming(String),
}

/// One send.
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
    /// It answers this.
    Reply(String),
    /// It appends each of these lines to a file, by a call each.
    Append(Vec<String>),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum SendState {
    /// Nobody knows.
    Pending,
    /// It was answered so.
    Acknowledged(String),
    /// Its agent was destroyed under it.
    AgentDestroyed,
    /// Its client was told that it was interrupted, and that it does not go on: others were answered since.
    Interrupted,
}

/// A word that was added to a turn.
#[derive(Debug)]
pub(super) struct Steer {
    pub(super) agent: usize,
    pub(super) content: String,
    /// Whether the daemon said that a turn took it; none where nobody knows.
    pub(super) accepted: Option<bool>,
}

/// Agents rest after so many cycles: a history that grows for ever would be all that is measured.
const AGENT_AGE_CYCLES_MAX: u64 = 8;

impl Expectations {
    /// A number that is never given twice.
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

    /// Agents that a client may send to now.
    pub(super) fn usable_agents(&self, client: usize, cycle: u64) -> Vec<usize> {
        let is_fit = |agent: &ExpectedAgent| {
            agent.state == AgentState::Alive
                && agent.created_cycle + AGENT_AGE_CYCLES_MAX > cycle
                && agent.owner.is_none_or(|owner| owner == client)
        };
        (0..self.agents.len()).filter(|place| is_fit(&self.agents[*place])).collect()
    }

    /// Agents that a client may rename and destroy now.
    pub(super) fn owned_agents(&self, client: usize, cycle: u64) -> Vec<usize> {
        let own = self.usable_agents(client, cycle).into_iter();
        own.filter(|place| self.agents[*place].owner == Some(client)).collect()
    }

    pub(super) fn add_send(&mut self, agent: usize, content: String, act: ModelAction, cycle: u64) -> usize {
        let request_id = format!("r{}", self.next_number());
        self.agents[agent].last_used_cycle = cycle;
        self.sends.push(SentMessage { agent, request_id, content, action: act, state: SendState::Pending });
        self.sends.len() - 1
    }

    pub(super) fn path(&self, agent: usize) -> String {
        format!("/agent/{}", self.agents[agent].name)
    }

    /// Takes an answer to a send down.
    pub(super) fn record_send_reply(&mut self, place: usize, reply: &Reply) {
        let agent = self.sends[place].agent;
        let is_ending = matches!(self.agents[agent].state, AgentState::Destroying | AgentState::Destroyed);
        let state = match reply {
            Reply::Lost => return,
            Reply::Error(refusal) if refusal.is_retryable() => return,
            _ if is_ending => SendState::AgentDestroyed,
            Reply::Result(result) if result["cancelled"] == true => {
                self.record_violation(format!("{} was cancelled by nobody", self.sends[place].request_id));
                return;
            }
            Reply::Result(result) => {
                SendState::Acknowledged(result["content"].as_str().unwrap_or_default().to_owned())
            }
            Reply::Error(refusal) => {
                self.record_violation(describe_refusal("send", &self.sends[place].request_id, refusal));
                return;
            }
        };
        if matches!(state, SendState::Acknowledged(_)) && self.sends[place].state == SendState::Pending {
            self.counts.sends += 1;
        }
        let sent = &mut self.sends[place];
        match (&sent.state, &state) {
            (SendState::Acknowledged(first), SendState::Acknowledged(again)) if first != again => {
                let text = format!("{} was answered {first:?}, then {again:?}", sent.request_id);
                self.record_violation(text);
            }
            _ => sent.state = state,
        }
    }

    /// The same send was made again and again, and is still interrupted.
    pub(super) fn mark_interrupted(&mut self, place: usize) {
        let sent = &mut self.sends[place];
        sent.state = SendState::Interrupted;
        self.counts.interrupted += 1;
        if !marks_interrupted(sent.agent) {
            let text = format!("{} does not go on, and its agent resumes", sent.request_id);
            self.record_violation(text);
        }
    }

    /// Sends that nobody has an answer to, in their order, by agent.
    pub(super) fn pending_sends(&self) -> Vec<Vec<usize>> {
        let mut by_agent: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (place, sent) in self.sends.iter().enumerate() {
            if sent.state == SendState::Pending {
                by_agent.entry(sent.agent).or_default().push(place);
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
            Reply::Error(refusal) if refusal.message.contains("already exists") => {
                self.agents[agent].state = AgentState::Alive;
            }
            Reply::Error(refusal) if refusal.is_retryable() => {}
            Reply::Error(refusal) => {
                self.record_violation(describe_refusal("create_agent", &self.agents[agent].name, refusal))
            }
        }
    }

    pub(super) fn record_destroy_reply(&mut self, agent: usize, reply: &Reply) {
        match reply {
            Reply::Lost => return,
            Reply::Result(_) => self.counts.destroys += 1,
            Reply::Error(refusal) if refusal.is_retryable() => return,
            Reply::Error(refusal) => {
                self.record_violation(describe_refusal("destroy_agent", &self.agents[agent].name, refusal));
            }
        }
        self.agents[agent].state = AgentState::Destroyed;
        let sends = self.sends.iter_mut().filter(|sent| sent.agent == agent);
        sends
            .filter(|sent| sent.state == SendState::Pending)
            .for_each(|sent| sent.state = SendState::AgentDestroyed);
    }

    /// A name that is not there any more was changed: whether into the new one is seen in the list of agents.
    pub(super) fn record_rename_reply(&mut self, agent: usize, reply: &Reply) {
        let AgentState::Renaming(name) = self.agents[agent].state.clone() else { return };
        match reply {
            Reply::Lost => return,
            Reply::Result(_) => self.counts.renames += 1,
            Reply::Error(refusal) if refusal.is_retryable() => return,
            Reply::Error(refusal) if refusal.message.to_lowercase().contains("not found") => {}
            Reply::Error(refusal) => {
                self.record_violation(describe_refusal("rename_agent", &self.agents[agent].name, refusal));
                return;
            }
        }
        self.agents[agent].name = name;
        self.agents[agent].state = AgentState::Alive;
    }
}

/// Whether the turns of an agent are marked as interrupted after a crash, instead of going on by themselves.
pub(super) fn marks_interrupted(agent: usize) -> bool {
    agent.is_multiple_of(3)
}

fn describe_refusal(method: &str, what: &str, refusal: &RpcError) -> String {
    format!("{method} {what} was refused: {} {} {}", refusal.code, refusal.message, refusal.kind)
}
