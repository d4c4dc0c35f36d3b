//! What the clients asked for and what they were told: the side of the ledger that is outside of the daemon.

use std::collections::BTreeMap;

use super::call::{Refusal, Reply};

/// Everything that was ever asked of the daemon.
#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) agents: Vec<Agent>,
    pub(super) sends: Vec<Sent>,
    pub(super) words: Vec<Word>,
    pub(super) counts: Counts,
    /// What must not be, in words.
    pub(super) faults: Vec<String>,
    next: u64,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) sends: usize,
    pub(super) creates: usize,
    pub(super) destroys: usize,
    pub(super) renames: usize,
    pub(super) words: usize,
    /// Calls that were made again because nobody knew what had become of them.
    pub(super) repeats: usize,
    /// Calls that were made again although they were answered.
    pub(super) probes: usize,
    /// Sends whose clients were told that they were interrupted for good.
    pub(super) interrupted: usize,
}

#[derive(Debug)]
pub(super) struct Agent {
    pub(super) name: String,
    /// The client that may rename and destroy it; none where all of them send to it.
    pub(super) owner: Option<usize>,
    pub(super) life: Life,
    /// The cycle it was made in.
    pub(super) born: u64,
    /// The last cycle in which anything was asked of it.
    pub(super) used: u64,
}

/// What is known of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Life {
    /// Somebody asked for it and has no answer.
    Asked,
    There,
    /// Somebody asked for its end and has no answer.
    Leaving,
    Gone,
    /// Somebody asked for this name and has no answer.
    Renaming(String),
}

/// One send.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) agent: usize,
    pub(super) request_id: String,
    pub(super) content: String,
    pub(super) act: Act,
    pub(super) state: State,
}

/// What a send makes the model do.
#[derive(Debug, Clone)]
pub(super) enum Act {
    /// It answers this.
    Say(String),
    /// It appends each of these lines to a file, by a call each.
    Append(Vec<String>),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nobody knows.
    Open,
    /// It was answered so.
    Acked(String),
    /// Its agent was destroyed under it.
    Gone,
    /// Its client was told that it was interrupted, and that it does not go on: others were answered since.
    Interrupted,
}

/// A word that was added to a turn.
#[derive(Debug)]
pub(super) struct Word {
    pub(super) agent: usize,
    pub(super) content: String,
    /// Whether the daemon said that a turn took it; none where nobody knows.
    pub(super) taken: Option<bool>,
}

/// Agents rest after so many cycles: a history that grows for ever would be all that is measured.
const AGE_MAX: u64 = 8;

impl Book {
    /// A number that is never given twice.
    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn fault(&mut self, text: String) {
        self.faults.push(text);
    }

    pub(super) fn add_agent(&mut self, owner: Option<usize>, cycle: u64) -> usize {
        let name = format!("a{}", self.number());
        self.agents.push(Agent { name, owner, life: Life::Asked, born: cycle, used: cycle });
        self.agents.len() - 1
    }

    /// Agents that a client may send to now.
    pub(super) fn agents_of(&self, client: usize, cycle: u64) -> Vec<usize> {
        let is_fit = |agent: &Agent| {
            agent.life == Life::There
                && agent.born + AGE_MAX > cycle
                && agent.owner.is_none_or(|owner| owner == client)
        };
        (0..self.agents.len()).filter(|place| is_fit(&self.agents[*place])).collect()
    }

    /// Agents that a client may rename and destroy now.
    pub(super) fn own_agents(&self, client: usize, cycle: u64) -> Vec<usize> {
        let own = self.agents_of(client, cycle).into_iter();
        own.filter(|place| self.agents[*place].owner == Some(client)).collect()
    }

    pub(super) fn add_send(&mut self, agent: usize, content: String, act: Act, cycle: u64) -> usize {
        let request_id = format!("r{}", self.number());
        self.agents[agent].used = cycle;
        self.sends.push(Sent { agent, request_id, content, act, state: State::Open });
        self.sends.len() - 1
    }

    pub(super) fn path(&self, agent: usize) -> String {
        format!("/agent/{}", self.agents[agent].name)
    }

    /// Takes an answer to a send down.
    pub(super) fn take_send(&mut self, place: usize, reply: &Reply) {
        let agent = self.sends[place].agent;
        let is_ending = matches!(self.agents[agent].life, Life::Leaving | Life::Gone);
        let state = match reply {
            Reply::Lost => return,
            Reply::Error(refusal) if refusal.is_for_now() => return,
            _ if is_ending => State::Gone,
            Reply::Result(result) if result["cancelled"] == true => {
                self.fault(format!("{} was cancelled by nobody", self.sends[place].request_id));
                return;
            }
            Reply::Result(result) => State::Acked(result["content"].as_str().unwrap_or_default().to_owned()),
            Reply::Error(refusal) => {
                self.fault(refused("send", &self.sends[place].request_id, refusal));
                return;
            }
        };
        if matches!(state, State::Acked(_)) && self.sends[place].state == State::Open {
            self.counts.sends += 1;
        }
        let sent = &mut self.sends[place];
        match (&sent.state, &state) {
            (State::Acked(first), State::Acked(again)) if first != again => {
                let text = format!("{} was answered {first:?}, then {again:?}", sent.request_id);
                self.fault(text);
            }
            _ => sent.state = state,
        }
    }

    /// The same send was made again and again, and is still interrupted.
    pub(super) fn give_up(&mut self, place: usize) {
        let sent = &mut self.sends[place];
        sent.state = State::Interrupted;
        self.counts.interrupted += 1;
        if !is_marked(sent.agent) {
            let text = format!("{} does not go on, and its agent resumes", sent.request_id);
            self.fault(text);
        }
    }

    /// Sends that nobody has an answer to, in their order, by agent.
    pub(super) fn open_sends(&self) -> Vec<Vec<usize>> {
        let mut by_agent: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (place, sent) in self.sends.iter().enumerate() {
            if sent.state == State::Open {
                by_agent.entry(sent.agent).or_default().push(place);
            }
        }
        by_agent.into_values().collect()
    }

    pub(super) fn take_create(&mut self, agent: usize, reply: &Reply) {
        match reply {
            Reply::Lost => {}
            Reply::Result(_) => {
                self.agents[agent].life = Life::There;
                self.counts.creates += 1;
            }
            Reply::Error(refusal) if refusal.text.contains("already exists") => {
                self.agents[agent].life = Life::There;
            }
            Reply::Error(refusal) if refusal.is_for_now() => {}
            Reply::Error(refusal) => self.fault(refused("create_agent", &self.agents[agent].name, refusal)),
        }
    }

    pub(super) fn take_destroy(&mut self, agent: usize, reply: &Reply) {
        match reply {
            Reply::Lost => return,
            Reply::Result(_) => self.counts.destroys += 1,
            Reply::Error(refusal) if refusal.is_for_now() => return,
            Reply::Error(refusal) => {
                self.fault(refused("destroy_agent", &self.agents[agent].name, refusal));
            }
        }
        self.agents[agent].life = Life::Gone;
        let sends = self.sends.iter_mut().filter(|sent| sent.agent == agent);
        sends.filter(|sent| sent.state == State::Open).for_each(|sent| sent.state = State::Gone);
    }

    /// A name that is not there any more was changed: whether into the new one is seen in the list of agents.
    pub(super) fn take_rename(&mut self, agent: usize, reply: &Reply) {
        let Life::Renaming(name) = self.agents[agent].life.clone() else { return };
        match reply {
            Reply::Lost => return,
            Reply::Result(_) => self.counts.renames += 1,
            Reply::Error(refusal) if refusal.is_for_now() => return,
            Reply::Error(refusal) if refusal.text.to_lowercase().contains("not found") => {}
            Reply::Error(refusal) => {
                self.fault(refused("rename_agent", &self.agents[agent].name, refusal));
                return;
            }
        }
        self.agents[agent].name = name;
        self.agents[agent].life = Life::There;
    }
}

/// Whether the turns of an agent are marked as interrupted after a crash, instead of going on by themselves.
pub(super) fn is_marked(agent: usize) -> bool {
    agent.is_multiple_of(3)
}

fn refused(method: &str, what: &str, refusal: &Refusal) -> String {
    format!("{method} {what} was refused: {} {} {}", refusal.code, refusal.text, refusal.kind)
}
