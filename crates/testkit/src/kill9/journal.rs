//! The event stream, read across all lives of the daemon: every sequence once, which turns are open, and which answers
//! of the model are kept.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use crate::events::StreamEvent;
use crate::model::{Ledger, RoundKey};

/// What the events add up to.
#[derive(Debug, Default)]
pub(super) struct Journal {
    /// The last sequence.
    pub(super) last: u64,
    /// How often the daemon has begun to serve.
    pub(super) lives: u64,
    /// Turns that are open, by the agent's name and their number.
    pub(super) open: BTreeMap<(String, u64), Stage>,
    /// Agents that were ever made, by their first names.
    pub(super) made: BTreeSet<String>,
    /// How far turns had come when the daemon was killed: in how many kills.
    pub(super) kills: BTreeMap<Stage, usize>,
    /// What must not be, in words.
    pub(super) faults: Vec<String>,
    agents: HashMap<String, Track>,
    /// Everything in short, with the agent's name: where something is wrong, it is told.
    story: Vec<(String, String)>,
    /// When a question could be asked first.
    askable: BTreeMap<RoundKey, u64>,
    /// Answers that are kept, and how often they may have been asked for.
    answers: BTreeMap<RoundKey, u64>,
}

/// The parts of an event that a story needs.
fn brief(data: &Value) -> String {
    let parts = ["turn", "request_id", "role", "content", "message", "messages", "outcome", "tool", "meta"];
    let parts = parts.iter().filter(|part| !data[**part].is_null());
    let parts: Vec<String> = parts.map(|part| format!("{part}={}", data[*part])).collect();
    parts.join(" ").chars().take(300).collect()
}

/// How far a turn had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// No turn was open.
    Idle,
    Waiting,
    Asking,
    /// Calls are kept, and none of them has begun.
    Calling,
    InTool,
    ToolDone,
}

impl Stage {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Idle => "no turn open",
            Self::Waiting => "a turn waiting",
            Self::Asking => "the model asked",
            Self::Calling => "a call kept, not begun",
            Self::InTool => "a tool running",
            Self::ToolDone => "a tool done",
        }
    }
}

/// One agent's context, as far as it says which question comes next.
#[derive(Debug, Default)]
struct Track {
    number: u64,
    accepted: HashMap<u64, String>,
    turn: u64,
    messages: Vec<Spoken>,
}

#[derive(Debug)]
enum Spoken {
    User(String),
    Assistant,
    Tool,
}

impl Track {
    /// The question that the model is asked next.
    fn question(&self) -> Option<RoundKey> {
        let round = self.messages.iter().rev().take_while(|spoken| !matches!(spoken, Spoken::User(_)));
        let round = round.filter(|spoken| matches!(spoken, Spoken::Assistant)).count();
        self.messages.iter().rev().find_map(|spoken| match spoken {
            Spoken::User(user) => Some(RoundKey { user: user.clone(), round }),
            Spoken::Assistant | Spoken::Tool => None,
        })
    }
}

impl Journal {
    pub(super) fn read(&mut self, event: &StreamEvent) {
        let Some(sequence) = event.sequence() else {
            if event.kind == "gap" {
                self.faults.push(format!("a gap behind {}: {}", self.last, event.data));
            }
            return;
        };
        if sequence != self.last + 1 {
            self.faults.push(format!("sequence {sequence} follows {}", self.last));
        }
        self.last = sequence;
        let Ok(data) = serde_json::from_str::<Value>(&event.data) else {
            self.faults.push(format!("event {sequence} is not JSON"));
            return;
        };
        let name = data["agent_id"].as_str().unwrap_or_default().to_owned();
        let track = self.agents.entry(name.clone()).or_default();
        track.number += 1;
        if data["number"] != track.number {
            let text =
                format!("event {sequence} is number {} of {name:?}, not {}", data["number"], track.number);
            self.faults.push(text);
        }
        self.story.push((name.clone(), format!("{sequence} {} {}", event.kind, brief(&data))));
        self.take(&event.kind, &name, &data);
    }

    /// What happened to the agents that a text names, and when the daemon began to serve.
    pub(super) fn story_of(&self, text: &str) -> Vec<String> {
        let is_named = |name: &String| text.split(|c: char| !c.is_alphanumeric()).any(|word| word == name);
        let told = self.story.iter().filter(|(name, _)| name.is_empty() || is_named(name));
        told.map(|(name, event)| format!("{name:>6} {event}")).collect()
    }

    fn take(&mut self, kind: &str, name: &str, data: &Value) {
        let turn = data["turn"].as_u64().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match kind {
            "daemon_started" => self.start(),
            "agent_created" => drop(self.made.insert(name.to_owned())),
            "agent_destroyed" => {
                self.agents.remove(name);
                self.open.retain(|(agent, _), _| agent != name);
            }
            "agent_renamed" => self.rename(name, &text(&data["new_agent_id"])),
            "turn_accepted" => {
                self.track(name).accepted.insert(turn, text(&data["message"]["content"]));
                self.open.insert((name.to_owned(), turn), Stage::Waiting);
            }
            "turn_begun" => {
                let track = self.track(name);
                track.turn = turn;
                let user = track.accepted.get(&turn).cloned().unwrap_or_default();
                track.messages.push(Spoken::User(user));
                self.may_ask(name);
            }
            "message" => self.message(name, data),
            "tool_begun" => self.reach(name, Stage::InTool),
            "tool_done" => self.reach(name, Stage::ToolDone),
            "turn_ended" => drop(self.open.remove(&(name.to_owned(), turn))),
            "turn_reopened" => {
                let kept = data["messages"].as_u64().and_then(|kept| usize::try_from(kept).ok());
                let track = self.track(name);
                track.messages.truncate(kept.unwrap_or(usize::MAX));
                track.turn = turn;
                self.open.insert((name.to_owned(), turn), Stage::Asking);
                self.may_ask(name);
            }
            _ => {}
        }
    }

    /// A daemon that begins to serve while turns are open was killed in their middle.
    fn start(&mut self) {
        if self.lives > 0 {
            let mut stages: BTreeSet<Stage> = self.open.values().copied().collect();
            if stages.is_empty() {
                stages.insert(Stage::Idle);
            }
            stages.into_iter().for_each(|stage| *self.kills.entry(stage).or_default() += 1);
        }
        self.lives += 1;
    }

    fn rename(&mut self, old: &str, new: &str) {
        if let Some(track) = self.agents.remove(old) {
            self.agents.insert(new.to_owned(), track);
        }
        let moved: Vec<_> = self.open.keys().filter(|(agent, _)| agent == old).cloned().collect();
        for key in moved {
            if let Some(stage) = self.open.remove(&key) {
                self.open.insert((new.to_owned(), key.1), stage);
            }
        }
    }

    fn message(&mut self, name: &str, data: &Value) {
        let is_broken = ["cancelled", "failed", "interrupted"].iter().any(|word| data["meta"][word] == true);
        let has_calls = data["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty());
        match data["role"].as_str() {
            Some("assistant") => {
                let question = self.track(name).question();
                if let Some(question) = question.filter(|_| !is_broken) {
                    self.keep(question);
                }
                self.track(name).messages.push(Spoken::Assistant);
                if has_calls {
                    self.reach(name, Stage::Calling);
                }
            }
            Some("tool") => {
                self.track(name).messages.push(Spoken::Tool);
                self.may_ask(name);
            }
            _ => {
                let user = data["content"].as_str().unwrap_or_default().to_owned();
                self.track(name).messages.push(Spoken::User(user));
                self.may_ask(name);
            }
        }
    }

    /// An answer is kept. Each life of the daemon since its question could be asked may have asked it once.
    fn keep(&mut self, question: RoundKey) {
        let first = self.askable.remove(&question).unwrap_or(self.lives);
        self.answers.insert(question, self.lives - first + 1);
    }

    fn may_ask(&mut self, name: &str) {
        let Some(question) = self.track(name).question() else { return };
        self.askable.entry(question).or_insert(self.lives);
        self.reach(name, Stage::Asking);
    }

    fn reach(&mut self, name: &str, stage: Stage) {
        let turn = self.track(name).turn;
        if let Some(reached) = self.open.get_mut(&(name.to_owned(), turn)) {
            *reached = stage;
        }
    }

    fn track(&mut self, name: &str) -> &mut Track {
        self.agents.entry(name.to_owned()).or_default()
    }

    /// Answers that are kept, and were asked for more often than that allows.
    pub(super) fn asked_again(&self, ledger: &Ledger) -> Vec<String> {
        let check = |(question, most): (&RoundKey, &u64)| {
            let asked = ledger.counts(&question.user, question.round).requests as u64;
            let RoundKey { user, round } = question;
            (asked > *most).then(|| format!("{user:?} (round {round}) was asked {asked} times, not {most}"))
        };
        self.answers.iter().filter_map(check).collect()
    }

    pub(super) fn answers(&self) -> usize {
        self.answers.len()
    }
}
