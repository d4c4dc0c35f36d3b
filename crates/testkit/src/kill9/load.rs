//! The load: clients that create, send, steer, rename and destroy until the daemon is gone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::book::{Act, Book, Life, State, Word, is_marked};
use super::call::{Address, Open, Reply};
use super::dice::Dice;

/// One client in one life of the daemon.
pub(super) struct Client<'a> {
    pub(super) place: usize,
    pub(super) cycle: u64,
    pub(super) address: &'a Address,
    pub(super) book: &'a Mutex<Book>,
    /// The folder that agents work in.
    pub(super) folder: &'a str,
    pub(super) dice: Dice,
}

/// Files that lines go to.
pub(super) const FILES: u64 = 4;

/// Own agents that a client has at the most.
const OWN_MAX: usize = 3;

/// How often a client tries to get a word in.
const STEERS_MAX: usize = 10;

/// Whether the daemon still answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Daemon {
    There,
    Lost,
}

impl Client<'_> {
    /// Works until the daemon is gone, or somebody says stop.
    pub(super) fn work(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) && self.act() == Daemon::There {}
    }

    fn act(&mut self) -> Daemon {
        let (own, any) = {
            let book = self.book();
            (book.own_agents(self.place, self.cycle), book.agents_of(self.place, self.cycle))
        };
        let chance = self.dice.roll(100);
        let own_one = self.dice.choose(&own).copied();
        match (chance, own_one) {
            (0..12, _) if own.len() < OWN_MAX => self.create(Some(self.place)),
            (_, None) => self.create(Some(self.place)),
            (12..16, Some(agent)) if own.len() > 1 => self.destroy(agent),
            (16..20, Some(agent)) => self.rename(agent),
            (20..30, Some(agent)) => self.steer(agent),
            (30..35, _) => self.probe(),
            (_, Some(agent)) => {
                let agent = self.dice.choose(&any).copied().unwrap_or(agent);
                self.send_some(agent)
            }
        }
    }

    pub(super) fn create(&mut self, owner: Option<usize>) -> Daemon {
        let agent = self.book().add_agent(owner, self.cycle);
        let params = self.creation(agent);
        let reply = self.address.call("/", "create_agent", &params);
        self.book().take_create(agent, &reply);
        after(&reply)
    }

    /// The same agent is always asked for in the same way.
    pub(super) fn creation(&self, agent: usize) -> Value {
        let name = self.book().agents[agent].name.clone();
        let on_restart = if is_marked(agent) { "mark" } else { "resume" };
        json!({ "agent_id": name, "preset": "trusted", "cwd": self.folder, "on_restart": on_restart })
    }

    /// Sometimes in the middle of a turn.
    fn destroy(&mut self, agent: usize) -> Daemon {
        let under_way = self.dice.percent(50).then(|| {
            let (content, act) = self.slow();
            self.start_send(agent, content, act)
        });
        let name = {
            let mut book = self.book();
            book.agents[agent].life = Life::Leaving;
            book.agents[agent].used = self.cycle;
            book.agents[agent].name.clone()
        };
        let reply = self.address.call("/", "destroy_agent", &json!({ "agent_id": name }));
        self.book().take_destroy(agent, &reply);
        if let Some((place, open)) = under_way {
            let reply = open.answer();
            self.book().take_send(place, &reply);
        }
        after(&reply)
    }

    fn rename(&mut self, agent: usize) -> Daemon {
        let (name, new) = {
            let mut book = self.book();
            let new = format!("n{}", book.number());
            book.agents[agent].life = Life::Renaming(new.clone());
            book.agents[agent].used = self.cycle;
            (book.agents[agent].name.clone(), new)
        };
        let params = json!({ "agent_id": name, "new_agent_id": new });
        let reply = self.address.call("/", "rename_agent", &params);
        self.book().take_rename(agent, &reply);
        after(&reply)
    }

    /// A turn that takes a while, and a word for it.
    fn steer(&mut self, agent: usize) -> Daemon {
        let (content, act) = if self.dice.percent(50) { self.slow() } else { self.append() };
        let (place, open) = self.start_send(agent, content, act);
        let (path, content) = {
            let mut book = self.book();
            let number = book.number();
            (book.path(agent), format!("!reply steered-{number}"))
        };
        let taken = self.steer_until_taken(&path, &content);
        let mut book = self.book();
        book.counts.words += usize::from(taken == Some(true));
        book.words.push(Word { agent, content, taken });
        drop(book);
        let reply = open.answer();
        self.book().take_send(place, &reply);
        after(&reply)
    }

    /// A turn takes words from when it has begun until it has ended; nobody says when that is.
    fn steer_until_taken(&self, path: &str, content: &str) -> Option<bool> {
        for _ in 0..STEERS_MAX {
            match self.address.call(path, "steer", &json!({ "content": content })) {
                Reply::Result(result) if result["steered"] == true => return Some(true),
                Reply::Result(_) | Reply::Error(_) => {}
                Reply::Lost => return None,
            }
        }
        Some(false)
    }

    /// Makes a call again that was answered: the answer has to be the same, and other content is refused.
    fn probe(&mut self) -> Daemon {
        let found = {
            let book = self.book();
            let agents = book.agents_of(self.place, self.cycle);
            let acked = (0..book.sends.len()).rev().take(200).filter(|place| {
                let sent = &book.sends[*place];
                matches!(sent.state, State::Acked(_)) && agents.contains(&sent.agent)
            });
            let acked: Vec<usize> = acked.collect();
            acked.into_iter().map(|place| (place, book.path(book.sends[place].agent))).collect::<Vec<_>>()
        };
        let Some((place, path)) = self.dice.choose(&found).cloned() else { return Daemon::There };
        let (request_id, content) = {
            let mut book = self.book();
            book.counts.probes += 1;
            (book.sends[place].request_id.clone(), book.sends[place].content.clone())
        };
        if self.dice.percent(50) {
            let params = json!({ "content": content, "request_id": request_id });
            let reply = self.address.call(&path, "send", &params);
            self.book().take_send(place, &reply);
            return after(&reply);
        }
        let params = json!({ "content": format!("not {content}"), "request_id": request_id });
        let reply = self.address.call(&path, "send", &params);
        match &reply {
            Reply::Lost => {}
            Reply::Error(refusal) if refusal.code == -32602 || refusal.is_for_now() => {}
            other => self.book().fault(format!("{request_id} with other content got {other:?}")),
        }
        after(&reply)
    }

    /// One to three sends at once: the later ones have to wait.
    fn send_some(&mut self, agent: usize) -> Daemon {
        let mut under_way = Vec::new();
        for _ in 0..=self.dice.roll(3) {
            let (content, act) = match self.dice.roll(3) {
                0 => self.say(),
                1 => self.slow(),
                _ => self.append(),
            };
            under_way.push(self.start_send(agent, content, act));
        }
        let mut daemon = Daemon::There;
        for (place, open) in under_way {
            let reply = open.answer();
            self.book().take_send(place, &reply);
            if after(&reply) == Daemon::Lost {
                daemon = Daemon::Lost;
            }
        }
        daemon
    }

    fn start_send(&self, agent: usize, content: String, act: Act) -> (usize, Open) {
        let (place, path, params) = {
            let mut book = self.book();
            let place = book.add_send(agent, content, act, self.cycle);
            let sent = &book.sends[place];
            (place, book.path(agent), json!({ "content": sent.content, "request_id": sent.request_id }))
        };
        (place, self.address.start(&path, "send", &params))
    }

    fn say(&self) -> (String, Act) {
        let text = format!("said-{}", self.book().number());
        (format!("!reply {text}"), Act::Say(text))
    }

    fn slow(&mut self) -> (String, Act) {
        let text = format!("one two three four slow-{}", self.book().number());
        (format!("!slow {} {text}", 1 + self.dice.roll(8)), Act::Say(text))
    }

    /// One line, or two by two calls of one answer. The words of the user tell questions apart: the lines are in them.
    fn append(&mut self) -> (String, Act) {
        let (mut lines, mut calls) = (Vec::new(), Vec::new());
        for _ in 0..=self.dice.roll(2) {
            let line = format!("line-{}", self.book().number());
            let path = format!("log-{}.txt", self.dice.roll(FILES));
            calls.push(format!("!tool fs_append_file {}", json!({ "path": path, "content": line })));
            lines.push(line);
        }
        (calls.join("\n"), Act::Append(lines))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn after(reply: &Reply) -> Daemon {
    if matches!(reply, Reply::Lost) { Daemon::Lost } else { Daemon::There }
}
