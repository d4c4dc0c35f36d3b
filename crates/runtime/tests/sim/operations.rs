//! What the simulation does to a pool, one throw of the dice at a time, and what must hold right after. Making,
//! changing and ending agents is in [`families`](crate::families).

use std::time::Duration;

use agent::{RequestId, MessageSource};

use crate::driver::{Driver, Fate};
use crate::history::{messages, objection};
use crate::world::at_once;

impl Driver {
    /// One throw.
    pub(crate) async fn operate(&mut self) {
        match self.dice.below(100) {
            0..14 => self.create_something().await,
            14..38 => self.send_something(),
            38..46 => self.cancel_something().await,
            46..49 => self.destroy_something().await,
            49 if self.dice.percent(50) => self.finish_something().await,
            50..55 => self.read_something().await,
            55..59 => self.drop_something(),
            59..67 => self.release_something(),
            67..73 => self.let_time_pass().await,
            73..79 => self.steer_something().await,
            79..87 => self.change_something().await,
            _ => self.give_way().await,
        }
        self.collect().await;
        self.check_now();
    }

    pub(crate) fn send_something(&mut self) {
        if self.lives.is_empty() {
            return;
        }
        let life = match self.existing().as_slice() {
            some @ [_, ..] if self.dice.percent(97) => *self.dice.pick(some),
            _ => self.dice.below(self.lives.len()),
        };
        let number = self.sent.len();
        let plot = self.playwright.plot(&mut self.dice, number, self.limits.tool_iterations_max);
        let known = self.sent.iter().filter(|sent| sent.life == life).map(|sent| sent.request_id.clone());
        let known: Vec<_> = known.collect();
        let sends: Vec<_> = (0..number).filter(|place| self.sent[*place].life == life).collect();
        if let [_, ..] = sends.as_slice()
            && self.dice.percent(12)
        {
            let again = &self.sent[*self.dice.pick(&sends)];
            let (request_id, plot) = (again.request_id.clone(), again.plot.clone());
            return self.send(life, request_id, plot);
        }
        let request_id = match known.as_slice() {
            [_, ..] if self.dice.percent(5) => self.dice.pick(&known).clone(),
            _ if self.dice.percent(50) => RequestId::Text(number.to_string()),
            _ => RequestId::Number(i64::try_from(number).expect("a small number")),
        };
        self.send(life, request_id, plot);
    }

    async fn cancel_something(&mut self) {
        if self.lives.is_empty() {
            return;
        }
        let open = |place: &usize| matches!(self.sent[*place].fate, Fate::Open(_));
        let open: Vec<_> = (0..self.sent.len()).filter(open).collect();
        let target = match (self.sent.len(), open.as_slice()) {
            (0, _) => None,
            (_, [_, ..]) if self.dice.percent(70) => Some(*self.dice.pick(&open)),
            (some, _) => Some(self.dice.below(some)).filter(|_| self.dice.percent(90)),
        };
        let (life, name) = match target {
            Some(target) => (self.sent[target].life, self.sent[target].request_id.clone()),
            None => (self.dice.below(self.lives.len()), RequestId::Text("nobody's".to_owned())),
        };
        let same: Vec<_> = self.sends_with_request_id(life, &name);
        same.iter().for_each(|place| self.sent[*place].cancel_wanted = true);
        let handle = self.lives[life].handle.clone();
        let cancelled = at_once(handle.cancel(name.clone())).await;
        self.log.note(format!("cancel {name} of life {life}: {cancelled}"));
        // With two sends of one name nobody knows which of them was meant.
        let [only] = *same.as_slice() else { return };
        if cancelled {
            assert!(self.sent[only].was_accepted(), "a send that never was has been cancelled");
            self.sent[only].cancel_confirmed = true;
        } else if !self.lives[life].destroyed && !self.stopping {
            self.collect().await;
            let is_open = matches!(self.sent[only].fate, Fate::Open(_));
            assert!(!is_open, "{name} is open, and cancel did not find it");
        }
    }

    fn sends_with_request_id(&self, life: usize, name: &RequestId) -> Vec<usize> {
        let same = |place: &usize| self.sent[*place].life == life && self.sent[*place].request_id == *name;
        (0..self.sent.len()).filter(same).collect()
    }

    async fn steer_something(&mut self) {
        if self.lives.is_empty() {
            return;
        }
        let life = self.dice.below(self.lives.len());
        let text = self.playwright.steer(&mut self.dice);
        let handle = self.lives[life].handle.clone();
        let taken = at_once(handle.steer(text.clone(), MessageSource::default())).await;
        self.log.note(format!("steer life {life} with {text}: {taken:?}"));
        let Some(request_id) = taken else { return };
        assert!(!self.lives[life].destroyed || self.stopping, "a word for an agent that is gone");
        self.lives[life].steers += 1;
        for sent in self.sent.iter_mut().filter(|sent| sent.life == life) {
            sent.steered |= sent.request_id == request_id;
        }
    }

    pub(crate) async fn read_something(&mut self) {
        self.sync().await;
        let listed: Vec<_> = self.world.list().await.into_iter().map(|agent| agent.id).collect();
        let mut existing = self.existing();
        existing.sort_by_key(|life| self.lives[*life].handle.agent_ref().serial());
        let expected: Vec<_> = existing.iter().map(|life| self.lives[*life].name.clone()).collect();
        assert_eq!(listed, expected, "agents are listed in the order they were created");
        if self.lives.is_empty() {
            return;
        }
        let agent = &self.lives[self.dice.below(self.lives.len())].handle;
        let history = messages(agent);
        assert_eq!(objection(&history), None);
        assert_eq!(self.world.summary(agent).message_count, history.len());
        assert_eq!(agent.context().message_count, history.len());
        assert!(agent.context().last_rounds <= self.limits.tool_iterations_max);
        assert_eq!(agent.messages(1, 2).messages.as_slice(), history.get(1..).map_or(&[][..], first_two));
    }

    fn drop_something(&mut self) {
        let open = |place: &usize| matches!(self.sent[*place].fate, Fate::Open(_));
        let open: Vec<_> = (0..self.sent.len()).filter(open).collect();
        if !open.is_empty() {
            let place = *self.dice.pick(&open);
            self.log.note(format!("the sender of {} goes away", self.sent[place].plot.script));
            self.sent[place].fate = Fate::Dropped;
        }
    }

    pub(crate) fn release_something(&mut self) {
        let released = if self.dice.percent(50) {
            self.world.model.release_one()
        } else {
            self.world.tools.release_one()
        };
        self.log.note(format!("release: {released}"));
    }

    async fn let_time_pass(&mut self) {
        let time = Duration::from_millis(*self.dice.pick(&[1, 100, 2_000, 40_000]));
        self.log.note(format!("{time:?} pass"));
        tokio::time::sleep(time).await;
    }

    async fn give_way(&mut self) {
        for _ in 0..self.dice.between(1, 6) {
            tokio::task::yield_now().await;
        }
    }
}

fn first_two<T>(items: &[T]) -> &[T] {
    &items[..items.len().min(2)]
}
