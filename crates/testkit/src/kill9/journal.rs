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
    pub(super) last_sequence: u64,
    /// How often the daemon has begun to serve.
    pub(super) daemon_starts: u64,
    /// Turns that are open, by the agent's name and their number.
    pub(super) open_turns: BTreeMap<(String, u64), Stage>,
    /// Agents that were ever made, by their first names.
    pub(super) created_agents: BTreeSet<String>,
    /// How far turns had come when the daemon was killed: in how many kills.
    pub(super) kills_by_stage: BTreeMap<Stage, usize>,
    /// What must not be, in words.
    pub(super) violations: Vec<String>,
    agents: HashMap<String, AgentTrack>,
    /// Everything in short, with the agent's name: where something is wrong, it is told.
    transcript: Vec<(String, String)>,
    /// When a question could be asked first.
    callable_since: BTreeMap<RoundKey, u64>,
    /// Answers that are kept, and how often they may have been asked for.
    calls_allowed: BTreeMap<RoundKey, u64>,
}

/// The parts of an event that a story needs.
fn summarize_event(data: &Value) -> String {
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
    Queued,
    ModelCall,
    /// Calls are kept, and none of them has begun.
    ToolCallPending,
    ToolRunning,
    ToolDone,
}

impl Stage {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Idle => "no turn open",
            Self::Queued => "a turn waiting",
            Self::ModelCall => "the model asked",
            Self::ToolCallPending => "a call kept, not begun",
            Self::ToolRunning => "a tool running",
            Self::ToolDone => "a tool done",
        }
    }
}

/// One agent's context, as far as it says which question comes next.
#[derive(Debug, Default)]
struct AgentTrack {
    event_count: u64,
    accepted: HashMap<u64, String>,
    turn: u64,
    messages: Vec<SeenMessage>,
}

#[derive(Debug)]
enum SeenMessage {
    User(String),
    Assistant,
    Tool,
}

impl AgentTrack {
    /// The question that the model is asked next.
    fn next_round(&self) -> Option<RoundKey> {
        let round = self.messages.iter().rev().take_while(|spoken| !matches!(spoken, SeenMessage::User(_)));
        let round = round.filter(|spoken| matches!(spoken, SeenMessage::Assistant)).count();
        self.messages.iter().rev().find_map(|spoken| match spoken {
            SeenMessage::User(user) => Some(RoundKey { user: user.clone(), round }),
            SeenMessage::Assistant | SeenMessage::Tool => None,
        })
    }
}

impl Journal {
    pub(super) fn apply_event(&mut self, event: &StreamEvent) {
        let Some(sequence) = event.sequence() else {
            if event.kind == "gap" {
                self.violations.push(format!("a gap behind {}: {}", self.last_sequence, event.data));
            }
            return;
        };
        if sequence != self.last_sequence + 1 {
            self.violations.push(format!("sequence {sequence} follows {}", self.last_sequence));
        }
        self.last_sequence = sequence;
        let Ok(data) = serde_json::from_str::<Value>(&event.data) else {
            self.violations.push(format!("event {sequence} is not JSON"));
            return;
        };
        let name = data["agent_id"].as_str().unwrap_or_default().to_owned();
        let track = self.agents.entry(name.clone()).or_default();
        track.event_count += 1;
        if data["number"] != track.event_count {
            let text = format!(
                "event {sequence} is number {} of {name:?}, not {}",
                data["number"], track.event_count
            );
            self.violations.push(text);
        }
        self.transcript.push((name.clone(), format!("{sequence} {} {}", event.kind, summarize_event(&data))));
        self.apply(&event.kind, &name, &data);
    }

    /// What happened to the agents that a text names, and when the daemon began to serve.
    pub(super) fn transcript_for(&self, text: &str) -> Vec<String> {
        let is_named = |name: &String| text.split(|c: char| !c.is_alphanumeric()).any(|word| word == name);
        let told = self.transcript.iter().filter(|(name, _)| name.is_empty() || is_named(name));
        told.map(|(name, event)| format!("{name:>6} {event}")).collect()
    }

    fn apply(&mut self, kind: &str, name: &str, data: &Value) {
        let turn = data["turn"].as_u64().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match kind {
            "daemon_started" => self.record_start(),
            "agent_created" => drop(self.created_agents.insert(name.to_owned())),
            "agent_destroyed" => {
                self.agents.remove(name);
                self.open_turns.retain(|(agent, _), _| agent != name);
            }
            "agent_renamed" => self.rename(name, &text(&data["new_agent_id"])),
            "turn_accepted" => {
                self.track_mut(name).accepted.insert(turn, text(&data["message"]["content"]));
                self.open_turns.insert((name.to_owned(), turn), Stage::Queued);
            }
            "turn_begun" => {
                let track = self.track_mut(name);
                track.turn = turn;
                let user = track.accepted.get(&turn).cloned().unwrap_or_default();
                track.messages.push(SeenMessage::User(user));
                self.record_callable(name);
            }
            "message" => self.apply_message(name, data),
            "tool_begun" => self.set_stage(name, Stage::ToolRunning),
            "tool_done" => self.set_stage(name, Stage::ToolDone),
            "turn_ended" => drop(self.open_turns.remove(&(name.to_owned(), turn))),
            "turn_reopened" => {
                let kept = data["messages"].as_u64().and_then(|kept| usize::try_from(kept).ok());
                let track = self.track_mut(name);
                track.messages.truncate(kept.unwrap_or(usize::MAX));
                track.turn = turn;
                self.open_turns.insert((name.to_owned(), turn), Stage::ModelCall);
                self.record_callable(name);
            }
            _ => {}
        }
    }

    /// A daemon that begins to serve while turns are open was killed in their middle.
    fn record_start(&mut self) {
        if self.daemon_starts > 0 {
            let mut stages: BTreeSet<Stage> = self.open_turns.values().copied().collect();
            if stages.is_empty() {
                stages.insert(Stage::Idle);
            }
            stages.into_iter().for_each(|stage| *self.kills_by_stage.entry(stage).or_default() += 1);
        }
        self.daemon_starts += 1;
    }

    fn rename(&mut self, old: &str, new: &str) {
        if let Some(track) = self.agents.remove(old) {
            self.agents.insert(new.to_owned(), track);
        }
        let moved: Vec<_> = self.open_turns.keys().filter(|(agent, _)| agent == old).cloned().collect();
        for key in moved {
            if let Some(stage) = self.open_turns.remove(&key) {
                self.open_turns.insert((new.to_owned(), key.1), stage);
            }
        }
    }

    fn apply_message(&mut self, name: &str, data: &Value) {
        let is_broken = ["cancelled", "failed", "interrupted"].iter().any(|word| data["meta"][word] == true);
        let has_calls = data["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty());
        match data["role"].as_str() {
            Some("assistant") => {
                let question = self.track_mut(name).next_round();
                if let Some(question) = question.filter(|_| !is_broken) {
                    self.record_response(question);
                }
                self.track_mut(name).messages.push(SeenMessage::Assistant);
                if has_calls {
                    self.set_stage(name, Stage::ToolCallPending);
                }
            }
            Some("tool") => {
                self.track_mut(name).messages.push(SeenMessage::Tool);
                self.record_callable(name);
            }
            _ => {
                let user = data["content"].as_str().unwrap_or_default().to_owned();
                self.track_mut(name).messages.push(SeenMessage::User(user));
                self.record_callable(name);
            }
        }
    }

    /// An answer is kept. Each life of the daemon since its question could be asked may have asked it once.
    fn record_response(&mut self, question: RoundKey) {
        let first = self.callable_since.remove(&question).unwrap_or(self.daemon_starts);
        self.calls_allowed.insert(question, self.daemon_starts - first + 1);
    }

    fn record_callable(&mut self, name: &str) {
        let Some(question) = self.track_mut(name).next_round() else { return };
        self.callable_since.entry(question).or_insert(self.daemon_starts);
        self.set_stage(name, Stage::ModelCall);
    }

    fn set_stage(&mut self, name: &str, stage: Stage) {
        let turn = self.track_mut(name).turn;
        if let Some(reached) = self.open_turns.get_mut(&(name.to_owned(), turn)) {
            *reached = stage;
        }
    }

    fn track_mut(&mut self, name: &str) -> &mut AgentTrack {
        self.agents.entry(name.to_owned()).or_default()
    }

    /// Answers that are kept, and were asked for more often than that allows.
    pub(super) fn excess_calls(&self, ledger: &Ledger) -> Vec<String> {
        let check = |(question, most): (&RoundKey, &u64)| {
            let asked = ledger.counts(&question.user, question.round).requests as u64;
            let RoundKey { user, round } = question;
            (asked > *most).then(|| format!("{user:?} (round {round}) was asked {asked} times, not {most}"))
        };
        self.calls_allowed.iter().filter_map(check).collect()
    }

    pub(super) fn response_count(&self) -> usize {
        self.calls_allowed.len()
    }
}
