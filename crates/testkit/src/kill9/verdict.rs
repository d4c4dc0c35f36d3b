//! Compares the daemon's data with the clients' expectations: agent lists, histories, lines in files.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::fs;

use serde_json::{Value, json};

use super::call::{DaemonAddress, Reply};
use super::expectations::{AgentState, Expectations, ModelAction, SendState, SentMessage};
use super::load::FILE_COUNT;

/// Violations found by the checks.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// Acknowledged data that is missing.
    pub(super) lost: usize,
    /// Data or effects that exist more than once.
    pub(super) duplicated: usize,
    /// Descriptions of all violations.
    pub(super) violations: Vec<String>,
}

/// What an agent's history contains about one send.
#[derive(Debug, Default)]
struct TurnHistory {
    occurrences: usize,
    text: String,
    tool_results: Vec<String>,
    is_steered: bool,
}

/// Number of occurrences of each line.
pub(super) type LineCounts = HashMap<String, usize>;

impl Verdict {
    fn record_lost(&mut self, text: String) {
        self.lost += 1;
        self.violations.push(text);
    }

    fn record_duplicated(&mut self, text: String) {
        self.duplicated += 1;
        self.violations.push(text);
    }

    /// Checks that exactly the expected agents exist.
    pub(super) fn check_agent_list(
        &mut self,
        expectations: &Expectations,
        listed: Option<&BTreeSet<String>>,
    ) {
        let Some(listed) = listed else {
            self.violations.push("list_sessions failed".to_owned());
            return;
        };
        let alive = expectations.agents.iter().filter(|agent| agent.state == AgentState::Alive);
        let expected: BTreeSet<String> = alive.map(|agent| agent.name.clone()).collect();
        for name in expected.difference(listed) {
            self.record_lost(format!("agent {name} was acknowledged but does not exist"));
        }
        for name in listed.difference(&expected) {
            self.violations.push(format!("agent {name} exists but should not"));
        }
    }

    /// Checks that no line was appended twice, whatever happened to its agent.
    pub(super) fn check_lines(&mut self, lines: &LineCounts) {
        for (line, times) in lines.iter().filter(|(_, times)| **times > 1) {
            self.record_duplicated(format!("{line} was appended {times} times"));
        }
    }

    /// Checks that each send of an agent is in its history once, with the reply that its client got and the effects it
    /// reports.
    pub(super) fn check_history(
        &mut self,
        expectations: &Expectations,
        agent: usize,
        messages: Option<&[Value]>,
        lines: &LineCounts,
    ) {
        let name = &expectations.agents[agent].name;
        let Some(messages) = messages else {
            self.record_lost(format!("get_messages of {name} failed"));
            return;
        };
        let sends = expectations.sends.iter().filter(|sent| sent.agent == agent);
        let mut turns: HashMap<&str, TurnHistory> =
            sends.map(|sent| (&*sent.content, TurnHistory::default())).collect();
        let steer_counts = expectations.steers.iter().filter(|steer| steer.agent == agent);
        let mut steer_counts: HashMap<&str, usize> = steer_counts.map(|steer| (&*steer.content, 0)).collect();
        self.read_messages(name, messages, &mut turns, &mut steer_counts);
        for steer in expectations.steers.iter().filter(|steer| steer.agent == agent) {
            match (steer_counts.get(&*steer.content).copied().unwrap_or(0), steer.accepted) {
                (0, Some(true)) => {
                    self.record_lost(format!("{name} accepted {:?} but does not have it", steer.content));
                }
                (1, Some(false)) => {
                    self.violations.push(format!("{name} rejected {:?} but has it", steer.content));
                }
                (0 | 1, _) => {}
                (times, _) => self.record_duplicated(format!("{name} has {:?} {times} times", steer.content)),
            }
        }
        for sent in expectations.sends.iter().filter(|sent| sent.agent == agent) {
            if let Some(turn) = turns.get(&*sent.content) {
                self.check_send(name, sent, turn, lines);
            }
        }
    }

    fn read_messages<'a>(
        &mut self,
        name: &str,
        messages: &'a [Value],
        turns: &mut HashMap<&'a str, TurnHistory>,
        steer_counts: &mut HashMap<&str, usize>,
    ) {
        let mut current: Option<&str> = None;
        for message in messages {
            let content = message["content"].as_str().unwrap_or_default();
            let role = message["role"].as_str().unwrap_or_default();
            if role == "user" {
                if let Some(turn) = turns.get_mut(content) {
                    turn.occurrences += 1;
                    current = Some(content);
                } else if let Some(times) = steer_counts.get_mut(content) {
                    *times += 1;
                    current
                        .and_then(|current| turns.get_mut(current))
                        .into_iter()
                        .for_each(TurnHistory::mark_steered);
                } else {
                    self.violations.push(format!("{name} has a message that no client sent: {content:?}"));
                }
                continue;
            }
            let Some(turn) = current.and_then(|current| turns.get_mut(current)) else {
                self.violations.push(format!("{name} starts with a response"));
                continue;
            };
            if role == "tool" {
                turn.tool_results.push(content.to_owned());
            } else {
                turn.text.push_str(content);
            }
        }
    }

    fn check_send(&mut self, name: &str, sent: &SentMessage, turn: &TurnHistory, lines: &LineCounts) {
        let what = format!("{} to {name} ({:?})", sent.request_id, sent.content);
        if turn.occurrences > 1 {
            self.record_duplicated(format!("{what} is in the history {} times", turn.occurrences));
        }
        let reply = match &sent.state {
            SendState::Acknowledged(reply) => reply,
            // The turn may or may not have started; `check_lines` finds lines that were appended twice.
            SendState::Interrupted => return,
            SendState::Pending | SendState::AgentDestroyed => {
                self.violations.push(format!("{what} never got a reply"));
                return;
            }
        };
        if turn.occurrences == 0 {
            self.record_lost(format!("{what} was acknowledged but is missing"));
            return;
        }
        if *reply != turn.text {
            self.record_lost(format!("{what} got the reply {reply:?}, but the history has {:?}", turn.text));
        }
        match &sent.action {
            ModelAction::Reply(text) if !turn.is_steered && text != reply => {
                self.record_lost(format!("{what} got the reply {reply:?}"));
            }
            ModelAction::Reply(_) => {}
            ModelAction::Append(appended) if appended.len() == turn.tool_results.len() => {
                for (line, result) in appended.iter().zip(&turn.tool_results) {
                    self.check_line(&what, line, result, lines);
                }
            }
            // The model read the instruction before it made any calls.
            ModelAction::Append(appended) if turn.is_steered && turn.tool_results.is_empty() => {
                for line in appended.iter().filter(|line| lines.contains_key(*line)) {
                    self.violations.push(format!("{what} called no tool, but {line} was written"));
                }
            }
            ModelAction::Append(_) => {
                self.violations.push(format!(
                    "{what} has {} tool results: {:?}",
                    turn.tool_results.len(),
                    turn.tool_results
                ));
            }
        }
    }

    /// Checks that the tool result matches the file.
    fn check_line(&mut self, what: &str, line: &str, result: &str, lines: &LineCounts) {
        let times = lines.get(line).copied().unwrap_or(0);
        if result.contains("\"success\":true") {
            if times == 0 {
                self.record_lost(format!("{what} reports that it wrote {line}, which is missing"));
            }
        } else if result.starts_with("Did not execute") {
            if times > 0 {
                self.violations.push(format!("{what} reports that it did not write {line}, which exists"));
            }
        } else if !result.starts_with("Outcome unknown") {
            self.violations.push(format!("{what} ended with {result:?}"));
        }
    }
}

impl TurnHistory {
    fn mark_steered(&mut self) {
        self.is_steered = true;
    }
}

/// All agents except temporary ones.
pub(super) fn list_agents(address: &DaemonAddress) -> Option<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let mut offset = 0;
    loop {
        let params = json!({ "offset": offset, "limit": 2000 });
        let Reply::Result(page) = address.call("/", "list_sessions", &params) else { return None };
        let sessions = page["sessions"].as_array()?;
        let ids = sessions.iter().filter_map(|session| session["agent_id"].as_str());
        names.extend(ids.filter(|id| !id.starts_with('.')).map(str::to_owned));
        offset += sessions.len();
        if sessions.is_empty() || page["total"].as_u64()? <= offset as u64 {
            return Some(names);
        }
    }
}

/// All messages in an agent's context.
pub(super) fn fetch_messages(address: &DaemonAddress, name: &str) -> Option<Vec<Value>> {
    let mut all = Vec::new();
    loop {
        let params = json!({ "offset": all.len(), "limit": 2000 });
        let path = format!("/agent/{name}");
        let Reply::Result(mut page) = address.call(&path, "get_messages", &params) else { return None };
        let total = page["total"].as_u64()?;
        let messages = page["messages"].as_array_mut()?;
        if messages.is_empty() {
            return (all.len() as u64 == total).then_some(all);
        }
        all.append(messages);
    }
}

/// Counts the lines of all files.
pub(super) fn count_lines(directory: &str) -> LineCounts {
    let mut counts = LineCounts::new();
    for file in 0..FILE_COUNT {
        // A file that no tool call has written to does not exist.
        let text = fs::read_to_string(format!("{directory}/log-{file}.txt")).unwrap_or_default();
        text.lines().for_each(|line| *counts.entry(line.to_owned()).or_default() += 1);
    }
    counts
}
