//! State derived from the event stream across all runs of the daemon: every sequence once, open turns, and committed
//! model responses.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use crate::events::StreamEvent;
use crate::model::{Ledger, RoundKey};

/// State derived from the events.
#[derive(Debug, Default)]
pub(super) struct Journal {
    /// The last sequence.
    pub(super) last_sequence: u64,
    /// The number of daemon starts.
    pub(super) daemon_starts: u64,
    /// Open turns by agent name and turn number.
    pub(super) open_turns: BTreeMap<(String, u64), Stage>,
    /// Agents ever created, by their first name.
    pub(super) created_agents: BTreeSet<String>,
    /// Number of kills by stage of the open turns.
    pub(super) kills_by_stage: BTreeMap<Stage, usize>,
    /// Descriptions of violated guarantees.
    pub(super) violations: Vec<String>,
    agents: HashMap<String, AgentTrack>,
    /// All events in short form with the agent's name, shown when a violation is found.
    transcript: Vec<(String, String)>,
    /// The daemon start since which a round could be requested.
    callable_since: BTreeMap<RoundKey, u64>,
    /// Rounds with a committed response, and the maximum number of requests for each.
    calls_allowed: BTreeMap<RoundKey, u64>,
}

/// The fields of an event that a transcript shows.
fn summarize_event(data: &Value) -> String {
    let fields = ["turn", "request_id", "role", "content", "message", "messages", "outcome", "tool", "meta"];
    let fields = fields.iter().filter(|field| !data[**field].is_null());
    let fields: Vec<String> = fields.map(|field| format!("{field}={}", data[*field])).collect();
    fields.join(" ").chars().take(300).collect()
}

/// Stage of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// No turn was open.
    Idle,
    Queued,
    ModelCall,
    /// Tool calls are committed, none has started.
    ToolCallPending,
    ToolRunning,
    ToolDone,
}

impl Stage {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Idle => "no turn open",
            Self::Queued => "a turn queued",
            Self::ModelCall => "a model call in flight",
            Self::ToolCallPending => "a tool call committed, not started",
            Self::ToolRunning => "a tool running",
            Self::ToolDone => "a tool done",
        }
    }
}

/// An agent's context, as far as needed to derive the next round.
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
    /// The round that the model is called for next.
    fn next_round(&self) -> Option<RoundKey> {
        let round = self.messages.iter().rev().take_while(|message| !matches!(message, SeenMessage::User(_)));
        let round = round.filter(|message| matches!(message, SeenMessage::Assistant)).count();
        self.messages.iter().rev().find_map(|message| match message {
            SeenMessage::User(user) => Some(RoundKey { user: user.clone(), round }),
            SeenMessage::Assistant | SeenMessage::Tool => None,
        })
    }
}

impl Journal {
    pub(super) fn apply_event(&mut self, event: &StreamEvent) {
        let Some(sequence) = event.sequence() else {
            if event.kind == "gap" {
                self.violations.push(format!("gap after {}: {}", self.last_sequence, event.data));
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

    /// The events of the agents that a text names, and the daemon starts.
    pub(super) fn transcript_for(&self, text: &str) -> Vec<String> {
        let is_named = |name: &String| text.split(|c: char| !c.is_alphanumeric()).any(|word| word == name);
        let events = self.transcript.iter().filter(|(name, _)| name.is_empty() || is_named(name));
        events.map(|(name, event)| format!("{name:>6} {event}")).collect()
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
                let messages_left = data["messages"].as_u64().and_then(|count| usize::try_from(count).ok());
                let track = self.track_mut(name);
                track.messages.truncate(messages_left.unwrap_or(usize::MAX));
                track.turn = turn;
                self.open_turns.insert((name.to_owned(), turn), Stage::ModelCall);
                self.record_callable(name);
            }
            _ => {}
        }
    }

    /// Records a daemon start. Turns that are open at that time were interrupted by a kill.
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
        let is_partial = ["cancelled", "failed", "interrupted"].iter().any(|flag| data["meta"][flag] == true);
        let has_calls = data["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty());
        match data["role"].as_str() {
            Some("assistant") => {
                let round = self.track_mut(name).next_round();
                if let Some(round) = round.filter(|_| !is_partial) {
                    self.record_response(round);
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

    /// Records a committed response. Each daemon run since the round could be requested may have requested it once.
    fn record_response(&mut self, round: RoundKey) {
        let since = self.callable_since.remove(&round).unwrap_or(self.daemon_starts);
        self.calls_allowed.insert(round, self.daemon_starts - since + 1);
    }

    /// Records that the daemon may call the model for the agent's next round from now on.
    fn record_callable(&mut self, name: &str) {
        let Some(round) = self.track_mut(name).next_round() else { return };
        self.callable_since.entry(round).or_insert(self.daemon_starts);
        self.set_stage(name, Stage::ModelCall);
    }

    fn set_stage(&mut self, name: &str, stage: Stage) {
        let turn = self.track_mut(name).turn;
        if let Some(current) = self.open_turns.get_mut(&(name.to_owned(), turn)) {
            *current = stage;
        }
    }

    fn track_mut(&mut self, name: &str) -> &mut AgentTrack {
        self.agents.entry(name.to_owned()).or_default()
    }

    /// Rounds with a committed response that were requested more often than allowed.
    pub(super) fn excess_calls(&self, ledger: &Ledger) -> Vec<String> {
        let check = |(key, allowed): (&RoundKey, &u64)| {
            let RoundKey { user, round } = key;
            let requests = ledger.counts(user, *round).requests as u64;
            (requests > *allowed)
                .then(|| format!("{user:?} (round {round}) was requested {requests} times, not {allowed}"))
        };
        self.calls_allowed.iter().filter_map(check).collect()
    }

    pub(super) fn response_count(&self) -> usize {
        self.calls_allowed.len()
    }
}
