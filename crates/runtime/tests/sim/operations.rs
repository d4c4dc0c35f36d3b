//! Random operations of the simulation on a pool, and checks right after them. Operations that create, change and
//! destroy agents are in [`tree_operations`](crate::tree_operations).

use std::time::Duration;

use agent::{MessageSource, RequestId};

use crate::driver::{Driver, SendOutcome};
use crate::history::{history_violation, messages};
use crate::world::without_waiting;

impl Driver {
    /// Runs one random operation.
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
        self.collect_responses().await;
        self.check_always();
    }

    pub(crate) fn send_random(&mut self) {
        if self.agents.is_empty() {
            return;
        }
        let index = match self.existing_agents().as_slice() {
            some @ [_, ..] if self.rng.percent(97) => *self.rng.pick(some),
            _ => self.rng.below(self.agents.len()),
        };
        let number = self.sent.len();
        let scenario = self.scenario_writer.scenario(&mut self.rng, number, self.limits.tool_iterations_max);
        let request_ids =
            self.sent.iter().filter(|sent| sent.agent == index).map(|sent| sent.request_id.clone());
        let request_ids: Vec<_> = request_ids.collect();
        let sends: Vec<_> = (0..number).filter(|position| self.sent[*position].agent == index).collect();
        if let [_, ..] = sends.as_slice()
            && self.rng.percent(12)
        {
            let earlier = &self.sent[*self.rng.pick(&sends)];
            let (request_id, scenario) = (earlier.request_id.clone(), earlier.scenario.clone());
            return self.send(index, request_id, scenario);
        }
        let request_id = match request_ids.as_slice() {
            [_, ..] if self.rng.percent(5) => self.rng.pick(&request_ids).clone(),
            _ if self.rng.percent(50) => RequestId::Text(number.to_string()),
            _ => RequestId::Number(i64::try_from(number).expect("a small number")),
        };
        self.send(index, request_id, scenario);
    }

    async fn cancel_random(&mut self) {
        if self.agents.is_empty() {
            return;
        }
        let is_pending = |position: &usize| matches!(self.sent[*position].outcome, SendOutcome::Pending(_));
        let pending: Vec<_> = (0..self.sent.len()).filter(is_pending).collect();
        let target = match (self.sent.len(), pending.as_slice()) {
            (0, _) => None,
            (_, [_, ..]) if self.rng.percent(70) => Some(*self.rng.pick(&pending)),
            (count, _) => Some(self.rng.below(count)).filter(|_| self.rng.percent(90)),
        };
        let (index, request_id) = match target {
            Some(target) => (self.sent[target].agent, self.sent[target].request_id.clone()),
            None => (self.rng.below(self.agents.len()), RequestId::Text("unknown".to_owned())),
        };
        let matching: Vec<_> = self.sends_with_request_id(index, &request_id);
        matching.iter().for_each(|position| self.sent[*position].cancel_requested = true);
        let handle = self.agents[index].handle.clone();
        let cancelled = without_waiting(handle.cancel(request_id.clone())).await;
        self.log.note(format!("cancel {request_id} of agent #{index}: {cancelled}"));
        // With two sends of one request id it is unknown which one was cancelled.
        let [position] = *matching.as_slice() else { return };
        if cancelled {
            assert!(self.sent[position].was_accepted(), "a send that was not accepted is cancelled");
            self.sent[position].cancel_confirmed = true;
        } else if !self.agents[index].is_destroyed && !self.stopping {
            self.collect_responses().await;
            let is_pending = matches!(self.sent[position].outcome, SendOutcome::Pending(_));
            assert!(!is_pending, "{request_id} is pending, but cancel did not find it");
        }
    }

    fn sends_with_request_id(&self, index: usize, request_id: &RequestId) -> Vec<usize> {
        let is_match = |position: &usize| {
            self.sent[*position].agent == index && self.sent[*position].request_id == *request_id
        };
        (0..self.sent.len()).filter(is_match).collect()
    }

    async fn steer_random(&mut self) {
        if self.agents.is_empty() {
            return;
        }
        let index = self.rng.below(self.agents.len());
        let text = self.scenario_writer.steer(&mut self.rng);
        let handle = self.agents[index].handle.clone();
        let accepted = without_waiting(handle.steer(text.clone(), MessageSource::default())).await;
        self.log.note(format!("steer agent #{index} with {text}: {accepted:?}"));
        let Some(request_id) = accepted else { return };
        assert!(
            !self.agents[index].is_destroyed || self.stopping,
            "a destroyed agent accepted an instruction"
        );
        self.agents[index].steer_count += 1;
        for sent in self.sent.iter_mut().filter(|sent| sent.agent == index) {
            sent.is_steered |= sent.request_id == request_id;
        }
    }

    pub(crate) async fn read_random(&mut self) {
        self.sync_agents().await;
        let listed: Vec<_> = self.world.list().await.into_iter().map(|agent| agent.id).collect();
        let mut existing = self.existing_agents();
        existing.sort_by_key(|index| self.agents[*index].handle.agent_ref().serial());
        let expected: Vec<_> = existing.iter().map(|index| self.agents[*index].name.clone()).collect();
        assert_eq!(listed, expected, "agents are listed in the order they were created");
        if self.agents.is_empty() {
            return;
        }
        let agent = &self.agents[self.rng.below(self.agents.len())].handle;
        let history = messages(agent);
        assert_eq!(history_violation(&history), None);
        assert_eq!(self.world.status(agent).message_count, history.len());
        assert_eq!(agent.context().message_count, history.len());
        assert!(agent.context().last_rounds <= self.limits.tool_iterations_max);
        assert_eq!(agent.messages(1, 2).messages.as_slice(), history.get(1..).map_or(&[][..], first_two));
    }

    fn drop_random_sender(&mut self) {
        let is_pending = |position: &usize| matches!(self.sent[*position].outcome, SendOutcome::Pending(_));
        let pending: Vec<_> = (0..self.sent.len()).filter(is_pending).collect();
        if !pending.is_empty() {
            let position = *self.rng.pick(&pending);
            self.log.note(format!("the sender of {} is dropped", self.sent[position].scenario.script));
            self.sent[position].outcome = SendOutcome::SenderDropped;
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
        let duration = Duration::from_millis(*self.rng.pick(&[1, 100, 2_000, 40_000]));
        self.log.note(format!("{duration:?} pass"));
        tokio::time::sleep(duration).await;
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
