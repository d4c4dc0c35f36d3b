//! Holds what the daemon kept against what its clients were told: lists, histories, lines in files.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::fs;

use serde_json::{Value, json};

use super::book::{Act, Book, Life, Sent, State};
use super::call::{Address, Reply};
use super::load::FILES;

/// What was found wrong.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// Acknowledged and not there.
    pub(super) lost: usize,
    /// There more than once, or done more than once.
    pub(super) doubled: usize,
    /// All of it in words.
    pub(super) faults: Vec<String>,
}

/// What an agent's history says of one send.
#[derive(Debug, Default)]
struct Turn {
    times: usize,
    said: String,
    results: Vec<String>,
    is_steered: bool,
}

/// How often a text is there.
pub(super) type Counted = HashMap<String, usize>;

impl Verdict {
    fn lost(&mut self, text: String) {
        self.lost += 1;
        self.faults.push(text);
    }

    fn doubled(&mut self, text: String) {
        self.doubled += 1;
        self.faults.push(text);
    }

    /// Exactly the agents that clients were told of are there.
    pub(super) fn check_list(&mut self, book: &Book, listed: Option<&BTreeSet<String>>) {
        let Some(listed) = listed else {
            self.faults.push("list_sessions was not answered".to_owned());
            return;
        };
        let there = book.agents.iter().filter(|agent| agent.life == Life::There);
        let expected: BTreeSet<String> = there.map(|agent| agent.name.clone()).collect();
        for name in expected.difference(listed) {
            self.lost(format!("agent {name} was acknowledged and is not there"));
        }
        for name in listed.difference(&expected) {
            self.faults.push(format!("agent {name} is there and should not be"));
        }
    }

    /// No line is in a file twice, whatever became of its agent.
    pub(super) fn check_lines(&mut self, lines: &Counted) {
        for (line, times) in lines.iter().filter(|(_, times)| **times > 1) {
            self.doubled(format!("{line} was appended {times} times"));
        }
    }

    /// Every send of an agent is in its history once, with the answer that its client got, and did what it says.
    pub(super) fn check_history(
        &mut self,
        book: &Book,
        agent: usize,
        messages: Option<&[Value]>,
        lines: &Counted,
    ) {
        let name = &book.agents[agent].name;
        let Some(messages) = messages else {
            self.lost(format!("the messages of {name} were not given"));
            return;
        };
        let sends = book.sends.iter().filter(|sent| sent.agent == agent);
        let mut turns: HashMap<&str, Turn> = sends.map(|sent| (&*sent.content, Turn::default())).collect();
        let words = book.words.iter().filter(|word| word.agent == agent);
        let mut words: HashMap<&str, usize> = words.map(|word| (&*word.content, 0)).collect();
        self.read(name, messages, &mut turns, &mut words);
        for word in book.words.iter().filter(|word| word.agent == agent) {
            match (words.get(&*word.content).copied().unwrap_or(0), word.taken) {
                (0, Some(true)) => self.lost(format!("{name} took {:?} and does not have it", word.content)),
                (1, Some(false)) => self.faults.push(format!("{name} refused {:?} and has it", word.content)),
                (0 | 1, _) => {}
                (times, _) => self.doubled(format!("{name} has {:?} {times} times", word.content)),
            }
        }
        for sent in book.sends.iter().filter(|sent| sent.agent == agent) {
            if let Some(turn) = turns.get(&*sent.content) {
                self.check_send(name, sent, turn, lines);
            }
        }
    }

    fn read<'a>(
        &mut self,
        name: &str,
        messages: &'a [Value],
        turns: &mut HashMap<&'a str, Turn>,
        words: &mut HashMap<&str, usize>,
    ) {
        let mut current: Option<&str> = None;
        for message in messages {
            let content = message["content"].as_str().unwrap_or_default();
            let role = message["role"].as_str().unwrap_or_default();
            if role == "user" {
                if let Some(turn) = turns.get_mut(content) {
                    turn.times += 1;
                    current = Some(content);
                } else if let Some(times) = words.get_mut(content) {
                    *times += 1;
                    current.and_then(|current| turns.get_mut(current)).into_iter().for_each(Turn::steer);
                } else {
                    self.faults.push(format!("{name} has a message that nobody sent: {content:?}"));
                }
                continue;
            }
            let Some(turn) = current.and_then(|current| turns.get_mut(current)) else {
                self.faults.push(format!("{name} begins with an answer"));
                continue;
            };
            if role == "tool" {
                turn.results.push(content.to_owned());
            } else {
                turn.said.push_str(content);
            }
        }
    }

    fn check_send(&mut self, name: &str, sent: &Sent, turn: &Turn, lines: &Counted) {
        let what = format!("{} to {name} ({:?})", sent.request_id, sent.content);
        if turn.times > 1 {
            self.doubled(format!("{what} is there {} times", turn.times));
        }
        let answer = match &sent.state {
            State::Acked(answer) => answer,
            // Whether it was begun is not said; that its line is not there twice is seen elsewhere.
            State::Interrupted => return,
            State::Open | State::Gone => {
                self.faults.push(format!("{what} never got an answer"));
                return;
            }
        };
        if turn.times == 0 {
            self.lost(format!("{what} was acknowledged and is not there"));
            return;
        }
        if *answer != turn.said {
            self.lost(format!("{what} was answered {answer:?}, and {:?} is there", turn.said));
        }
        match &sent.act {
            Act::Say(text) if !turn.is_steered && text != answer => {
                self.lost(format!("{what} was answered {answer:?}"));
            }
            Act::Say(_) => {}
            Act::Append(appended) if appended.len() == turn.results.len() => {
                for (line, result) in appended.iter().zip(&turn.results) {
                    self.check_line(&what, line, result, lines);
                }
            }
            // The model read the word before it had called anything.
            Act::Append(appended) if turn.is_steered && turn.results.is_empty() => {
                for line in appended.iter().filter(|line| lines.contains_key(*line)) {
                    self.faults.push(format!("{what} called nothing, and {line} is there"));
                }
            }
            Act::Append(_) => {
                self.faults.push(format!("{what} has {} results: {:?}", turn.results.len(), turn.results));
            }
        }
    }

    /// What the model was told of the line is true.
    fn check_line(&mut self, what: &str, line: &str, result: &str, lines: &Counted) {
        let times = lines.get(line).copied().unwrap_or(0);
        if result.contains("\"success\":true") {
            if times == 0 {
                self.lost(format!("{what} says that it wrote {line}, which is not there"));
            }
        } else if result.starts_with("Did not execute") {
            if times > 0 {
                self.faults.push(format!("{what} says that it did not write {line}, which is there"));
            }
        } else if !result.starts_with("Outcome unknown") {
            self.faults.push(format!("{what} ended with {result:?}"));
        }
    }
}

impl Turn {
    fn steer(&mut self) {
        self.is_steered = true;
    }
}

/// All agents but temporary ones.
pub(super) fn sessions(address: &Address) -> Option<BTreeSet<String>> {
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
pub(super) fn messages(address: &Address, name: &str) -> Option<Vec<Value>> {
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
pub(super) fn lines(folder: &str) -> Counted {
    let mut counted = Counted::new();
    for file in 0..FILES {
        // A file that nobody has written to yet is not there.
        let text = fs::read_to_string(format!("{folder}/log-{file}.txt")).unwrap_or_default();
        text.lines().for_each(|line| *counted.entry(line.to_owned()).or_default() += 1);
    }
    counted
}
