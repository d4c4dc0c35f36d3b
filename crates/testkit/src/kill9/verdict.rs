//! Holds what the daemon kept against what its clients were told: lists, histories, lines in files.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::fs;

use serde_json::{Value, json};

use super::call::{DaemonAddress, Reply};
use super::expectations::{AgentState, Expectations, ModelAction, SendState, SentMessage};
use super::load::FILE_COUNT;

/// What was found wrong.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// Acknowledged and not there.
    pub(super) lost: usize,
    /// There more than once, or done more than once.
    pub(super) duplicated: usize,
    /// All of it in words.
    pub(super) violations: Vec<String>,
}

/// What an agent's history says of one send.
#[derive(Debug, Default)]
struct TurnHistory {
    occurrences: usize,
    text: String,
    tool_results: Vec<String>,
    is_steered: bool,
}

/// How often a text is there.
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

    /// Exactly the agents that clients were told of are there.
    pub(super) fn check_agent_list(&mut self, book: &Expectations, listed: Option<&BTreeSet<String>>) {
        let Some(listed) = listed else {
            self.violations.push("list_sessions was not answered".to_owned());
            return;
        };
        let there = book.agents.iter().filter(|agent| agent.state == AgentState::Alive);
        let expected: BTreeSet<String> = there.map(|agent| agent.name.clone()).collect();
        for name in expected.difference(listed) {
            self.record_lost(format!("agent {name} was acknowledged and is not there"));
        }
        for name in listed.difference(&expected) {
            self.violations.push(format!("agent {name} is there and should not be"));
        }
    }

    /// No line is in a file twice, whatever became of its agent.
    pub(super) fn check_lines(&mut self, lines: &LineCounts) {
        for (line, times) in lines.iter().filter(|(_, times)| **times > 1) {
            self.record_duplicated(format!("{line} was appended {times} times"));
        }
    }

    /// Every send of an agent is in its history once, with the answer that its client got, and did what it says.
    pub(super) fn check_history(
        &mut self,
        book: &Expectations,
        agent: usize,
        messages: Option<&[Value]>,
        lines: &LineCounts,
    ) {
        let name = &book.agents[agent].name;
        let Some(messages) = messages else {
            self.record_lost(format!("the messages of {name} were not given"));
            return;
        };
        let sends = book.sends.iter().filter(|sent| sent.agent == agent);
        let mut turns: HashMap<&str, TurnHistory> =
            sends.map(|sent| (&*sent.content, TurnHistory::default())).collect();
        let words = book.steers.iter().filter(|word| word.agent == agent);
        let mut words: HashMap<&str, usize> = words.map(|word| (&*word.content, 0)).collect();
        self.read_messages(name, messages, &mut turns, &mut words);
        for word in book.steers.iter().filter(|word| word.agent == agent) {
            match (words.get(&*word.content).copied().unwrap_or(0), word.accepted) {
                (0, Some(true)) => {
                    self.record_lost(format!("{name} took {:?} and does not have it", word.content))
                }
                (1, Some(false)) => {
                    self.violations.push(format!("{name} refused {:?} and has it", word.content))
                }
                (0 | 1, _) => {}
                (times, _) => self.record_duplicated(format!("{name} has {:?} {times} times", word.content)),
            }
        }
        for sent in book.sends.iter().filter(|sent| sent.agent == agent) {
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
        words: &mut HashMap<&str, usize>,
    ) {
        let mut current: Option<&str> = None;
        for message in messages {
            let content = message["content"].as_str().unwrap_or_default();
            let role = message["role"].as_str().unwrap_or_default();
            if role == "user" {
                if let Some(turn) = turns.get_mut(content) {
                    turn.occurrences += 1;
                    current = Some(content);
                } else if let Some(times) = words.get_mut(content) {
                    *times += 1;
                    current
                        .and_then(|current| turns.get_mut(current))
                        .into_iter()
                        .for_each(TurnHistory::mark_steered);
                } else {
                    self.violations.push(format!("{name} has a message that nobody sent: {content:?}"));
                }
                continue;
            }
            let Some(turn) = current.and_then(|current| turns.get_mut(current)) else {
                self.violations.push(format!("{name} begins with an answer"));
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
            self.record_duplicated(format!("{what} is there {} times", turn.occurrences));
        }
        let answer = match &sent.state {
            SendState::Acknowledged(answer) => answer,
            // Whether it was begun is not said; that its line is not there twice is seen elsewhere.
            SendState::Interrupted => return,
            SendState::Pending | SendState::AgentDestroyed => {
                self.violations.push(format!("{what} never got an answer"));
                return;
            }
        };
        if turn.occurrences == 0 {
            self.record_lost(format!("{what} was acknowledged and is not there"));
            return;
        }
        if *answer != turn.text {
            self.record_lost(format!("{what} was answered {answer:?}, and {:?} is there", turn.text));
        }
        match &sent.action {
            ModelAction::Reply(text) if !turn.is_steered && text != answer => {
                self.record_lost(format!("{what} was answered {answer:?}"));
            }
            ModelAction::Reply(_) => {}
            ModelAction::Append(appended) if appended.len() == turn.tool_results.len() => {
                for (line, result) in appended.iter().zip(&turn.tool_results) {
                    self.check_line(&what, line, result, lines);
                }
            }
            // The model read the word before it had called anything.
            ModelAction::Append(appended) if turn.is_steered && turn.tool_results.is_empty() => {
                for line in appended.iter().filter(|line| lines.contains_key(*line)) {
                    self.violations.push(format!("{what} called nothing, and {line} is there"));
                }
            }
            ModelAction::Append(_) => {
                self.violations.push(format!(
                    "{what} has {} results: {:?}",
                    turn.tool_results.len(),
                    turn.tool_results
                ));
            }
        }
    }

    /// What the model was told of the line is true.
    fn check_line(&mut self, what: &str, line: &str, result: &str, lines: &LineCounts) {
        let times = lines.get(line).copied().unwrap_or(0);
        if result.contains("\"success\":true") {
            if times == 0 {
                self.record_lost(format!("{what} says that it wrote {line}, which is not there"));
            }
        } else if result.starts_with("Did not execute") {
            if times > 0 {
                self.violations.push(format!("{what} says that it did not write {line}, which is there"));
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

/// All agents but temporary ones.
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

/// Everything in an agent's context.
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

/// The lines of all files.
pub(super) fn count_lines(folder: &str) -> LineCounts {
    let mut counted = LineCounts::new();
    for file in 0..FILE_COUNT {
        // A file that nobody has written to yet is not there.
        let text = fs::read_to_string(format!("{folder}/log-{file}.txt")).unwrap_or_default();
        text.lines().for_each(|line| *counted.entry(line.to_owned()).or_default() += 1);
    }
    counted
}
