//! What the simulation does to a pool, one throw of the dice at a time, and what must hold right after. Making,
//! changing and ending agents is in [`families`](crate::families).

use std::time::Duration;

use agent::{MessageSource, RequestId};

use crate::driver::{Driver, SendOutcome};
use crate::history::{history_violation, messages};
use crate::world::without_waiting;

impl Driver {
    /// One throw.
    pub(crate) async fn run_random_operation(&mut self) {
        match self.rng.below(100) {
            0..14 => self.create_random_agent().await,
            14..38 => self.send_random(),
            38..46 => self.cancel_random().await,
            46..49 => self.destroy_random_agent().await,
            49 if self.rng.percent(50) => self.finish_random_agent().await,
            50..55 => self.read_random().await,
            55..59 => self.drop_random_sender(),
            59..67 => self.release_random(),
            67..73 => self.advance_time().await,
            73..79 => self.steer_random().await,
            79..87 => self.change_random_permissions().await,
            _ => self.yield_tasks().await,
        }
        self.collect_answers().await;
        self.check_always();
    }

    pub(crate) fn send_random(&mut self) {
        if self.agents.is_empty() {
            return;
        }
        let life = match self.existing_agents().as_slice() {
            some @ [_, ..] if self.rng.percent(97) => *self.rng.pick(some),
            _ => self.rng.below(self.agents.len()),
        };
        let number = self.sent.len();
        let plot = self.scenario_writer.scenario(&mut self.rng, number, self.limits.tool_iterations_max);
        let known = self.sent.iter().filter(|sent| sent.agent == life).map(|sent| sent.request_id.clone());
        let known: Vec<_> = known.collect();
        let sends: Vec<_> = (0..number).filter(|place| self.sent[*place].agent == life).collect();
        if let [_, ..] = sends.as_slice()
            && self.rng.percent(12)
        {
            let again = &self.sent[*self.rng.pick(&sends)];
            let (request_id, plot) = (again.request_id.clone(), again.scenario.clone());
            return self.send(life, request_id, plot);
        }
        let request_id = match known.as_slice() {
            [_, ..] if self.rng.percent(5) => self.rng.pick(&known).clone(),
            _ if self.rng.percent(50) => RequestId::Text(number.to_string()),
            _ => RequestId::Number(i64::try_from(number).expect("a small number")),
        };
        self.send(life, request_id, plot);
    }

    async fn cancel_random(&mut self) {
        if self.agents.is_empty() {
            return;
        }
        let open = |place: &usize| matches!(self.sent[*place].outcome, SendOutcome::Pending(_));
        let open: Vec<_> = (0..self.sent.len()).filter(open).collect();
        let target = match (self.sent.len(), open.as_slice()) {
            (0, _) => None,
            (_, [_, ..]) if self.rng.percent(70) => Some(*self.rng.pick(&open)),
            (some, _) => Some(self.rng.below(some)).filter(|_| self.rng.percent(90)),
        };
        let (life, name) = match target {
            Some(target) => (self.sent[target].agent, self.sent[target].request_id.clone()),
            None => (self.rng.below(self.agents.len()), RequestId::Text("nobody's".to_owned())),
        };
        let same: Vec<_> = self.sends_with_request_id(life, &name);
        same.iter().for_each(|place| self.sent[*place].cancel_requested = true);
        let handle = self.agents[life].handle.clone();
        let cancelled = without_waiting(handle.cancel(name.clone())).await;
        self.log.note(format!("cancel {name} of life {life}: {cancelled}"));
        // With two sends of one name nobody knows which of them was meant.
        let [only] = *same.as_slice() else { return };
        if cancelled {
            assert!(self.sent[only].was_accepted(), "a send that never was has been cancelled");
            self.sent[only].cancel_confirmed = true;
        } else if !self.agents[life].is_destroyed && !self.stopping {
            self.collect_answers().await;
            let is_open = matches!(self.sent[only].outcome, SendOutcome::Pending(_));
            assert!(!is_open, "{name} is open, and cancel did not find it");
        }
    }

    fn sends_with_request_id(&self, life: usize, name: &RequestId) -> Vec<usize> {
        let same = |place: &usize| self.sent[*place].agent == life && self.sent[*place].request_id == *name;
        (0..self.sent.len()).filter(same).collect()
    }

    async fn steer_random(&mut self) {
        if self.agents.is_empty() {
            return;
        }
        let life = self.rng.below(self.agents.len());
        let text = self.scenario_writer.steer(&mut self.rng);
        let handle = self.agents[life].handle.clone();
        let taken = without_waiting(handle.steer(text.clone(), MessageSource::default())).await;
        self.log.note(format!("steer life {life} with {text}: {taken:?}"));
        let Some(request_id) = taken else { return };
        assert!(!self.agents[life].is_destroyed || self.stopping, "a word for an agent that is gone");
        self.agents[life].steer_count += 1;
        for sent in self.sent.iter_mut().filter(|sent| sent.agent == life) {
            sent.is_steered |= sent.request_id == request_id;
        }
    }

    pub(crate) async fn read_random(&mut self) {
        self.sync_agents().await;
        let listed: Vec<_> = self.world.list().await.into_iter().map(|agent| agent.id).collect();
        let mut existing = self.existing_agents();
        existing.sort_by_key(|life| self.agents[*life].handle.agent_ref().serial());
        let expected: Vec<_> = existing.iter().map(|life| self.agents[*life].name.clone()).collect();
        assert_eq!(listed, expected, "agents are listed in the order they were created");
        if self.agents.is_empty() {
            return;
        }
        let agent = &self.agents[self.rng.below(self.agents.len())].handle;
        let history = messages(agent);
        assert_eq!(history_violation(&history), None);
        assert_eq!(self.world.summary(agent).message_count, history.len());
        assert_eq!(agent.context().message_count, history.len());
        assert!(agent.context().last_rounds <= self.limits.tool_iterations_max);
        assert_eq!(agent.messages(1, 2).messages.as_slice(), history.get(1..).map_or(&[][..], first_two));
    }

    fn drop_random_sender(&mut self) {
        let open = |place: &usize| matches!(self.sent[*place].outcome, SendOutcome::Pending(_));
        let open: Vec<_> = (0..self.sent.len()).filter(open).collect();
        if !open.is_empty() {
            let place = *self.rng.pick(&open);
            self.log.note(format!("the sender of {} goes away", self.sent[place].scenario.script));
            self.sent[place].outcome = SendOutcome::SenderDropped;
        }
    }

    pub(crate) fn release_random(&mut self) {
        let released = if self.rng.percent(50) {
            self.world.model.release_one()
        } else {
            self.world.tools.release_one()
        };
        self.log.note(format!("release: {released}"));
    }

    async fn advance_time(&mut self) {
        let time = Duration::from_millis(*self.rng.pick(&[1, 100, 2_000, 40_000]));
        self.log.note(format!("{time:?} pass"));
        tokio::time::sleep(time).await;
    }

    async fn yield_tasks(&mut self) {
        for _ in 0..self.rng.between(1, 6) {
            tokio::task::yield_now().await;
        }
    }
}

fn first_two<T>(items: &[T]) -> &[T] {
    &items[..items.len().min(2)]
}
