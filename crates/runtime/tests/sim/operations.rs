//! What the simulation does to a pool, one throw of the dice at a time, and what must hold right after.

use std::time::Duration;

use agent::{AgentId, FaultKind, RequestId};
use futures_util::FutureExt;
use runtime::AgentSpec;

use crate::driver::{Driver, Fate, Life, Plot, PlotEnding};
use crate::history::{messages, objection};
use crate::world::{at_once, id, is_busy, settle};

const NAMES: &[&str] = &["a", "b", "c", ".t"];

const PLOTS: &[(&str, PlotEnding)] = &[
    ("report 3; say hello; done", PlotEnding::Says("hello")),
    ("say a; yield; say b; yield; report 2; say c; yield; done", PlotEnding::Says("abc")),
    ("say a; pass 700; say b; pass 700; done", PlotEnding::Says("ab")),
    ("pass 9000000; say late; done", PlotEnding::Fails(FaultKind::Model)),
    ("say a; wait; say b; report 1; done", PlotEnding::Says("ab")),
    ("wait; done", PlotEnding::Completes),
    ("say a; fail", PlotEnding::Fails(FaultKind::Model)),
    ("report 1; fail", PlotEnding::Fails(FaultKind::Model)),
    ("say a; call x", PlotEnding::Fails(FaultKind::Model)),
    ("", PlotEnding::Fails(FaultKind::Model)),
    ("panic-at-ask", PlotEnding::Fails(FaultKind::Internal)),
    ("say a; yield; panic", PlotEnding::Fails(FaultKind::Internal)),
    ("panic-at-drop; say a; done", PlotEnding::Says("a")),
    ("panic-at-drop; say a; wait; done", PlotEnding::Says("a")),
    ("report 1; say t; call x; call y; done", PlotEnding::Completes),
    ("call x; yield; done | call y; done | say u; done", PlotEnding::Completes),
    ("call x; done | say t; wait; say u; done", PlotEnding::Completes),
    ("call x; done | panic", PlotEnding::Completes),
    ("done", PlotEnding::Completes),
    ("done | say u; done", PlotEnding::Completes),
    ("flood 300; done", PlotEnding::Completes),
];

impl Driver {
    /// One throw.
    pub(crate) async fn operate(&mut self) {
        match self.dice.below(100) {
            0..15 => self.create(),
            15..50 => self.send_something(),
            50..58 => self.cancel_something().await,
            58..63 => self.destroy_something().await,
            63 => self.finish_something(),
            64..74 => self.read_something(),
            74..79 => self.drop_something(),
            79..87 => self.release_something(),
            87..92 => self.let_time_pass().await,
            _ => self.give_way().await,
        }
        self.collect();
    }

    pub(crate) fn create(&mut self) {
        let exists = |driver: &Self, name: &AgentId| driver.life_of(name).is_some();
        let full = self.existing().len() >= self.limits.agents_max;
        let (name, created) = match self.dice.below(6) {
            0 => (None, self.world.pool.create(AgentSpec::default())),
            1 => (Some(AgentId::main()), self.world.pool.main_agent()),
            _ => {
                let name = id(self.dice.pick::<&str>(NAMES));
                let spec = AgentSpec { id: Some(name.clone()), system_prompt: None };
                (Some(name), self.world.pool.create(spec))
            }
        };
        let taken = name.as_ref().is_some_and(|name| exists(self, name));
        let is_main = name == Some(AgentId::main());
        self.log.note(format!("create {name:?}: {:?}", created.as_ref().map(|agent| agent.id().clone())));
        match created {
            Ok(_) if taken => assert!(is_main, "a name was given twice"),
            Ok(handle) => {
                assert!(!full && !self.stop_wanted, "an agent too many");
                let name = handle.id().clone();
                self.lives.push(Life { name, handle, destroyed: false, finished: false });
            }
            Err(fault) if is_busy(&fault) => assert!(full || self.stop_wanted, "{fault:?}"),
            Err(fault) => assert!(taken && fault.kind == FaultKind::Invalid, "{fault:?}"),
        }
        assert_eq!(self.world.pool.agent_count(), self.existing().len());
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
        let (script, ending) = *self.dice.pick(PLOTS);
        // A script with panics in its later rounds completes only when the rounds run out before.
        let ending = match ending {
            PlotEnding::Completes if script.ends_with("panic") && self.limits.tool_iterations_max > 1 => {
                PlotEnding::Fails(FaultKind::Internal)
            }
            other => other,
        };
        let plot = Plot { script: format!("#{number} {script}"), ending, waits: script.contains("wait") };
        let known = self.sent.iter().filter(|sent| sent.life == life).map(|sent| sent.request_id.clone());
        let known: Vec<_> = known.collect();
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
        let target = match self.sent.len() {
            0 => None,
            some => Some(self.dice.below(some)).filter(|_| self.dice.percent(90)),
        };
        let (life, name) = match target {
            Some(target) => (self.sent[target].life, self.sent[target].request_id.clone()),
            None => (self.dice.below(self.lives.len()), RequestId::Text("nobody's".to_owned())),
        };
        let same: Vec<_> = self.sends_named(life, &name);
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
            self.collect();
            let is_open = matches!(self.sent[only].fate, Fate::Open(_));
            assert!(!is_open, "{name} is open, and cancel did not find it");
        }
    }

    fn sends_named(&self, life: usize, name: &RequestId) -> Vec<usize> {
        let same = |place: &usize| self.sent[*place].life == life && self.sent[*place].request_id == *name;
        (0..self.sent.len()).filter(same).collect()
    }

    async fn destroy_something(&mut self) {
        let pool = self.world.pool.clone();
        let existing = self.existing();
        if existing.is_empty() || self.dice.percent(10) {
            assert!(!at_once(pool.destroy(&id("nobody"))).await);
            return;
        }
        let life = *self.dice.pick(&existing);
        let name = self.lives[life].name.clone();
        self.lives[life].destroyed = true;
        if self.dice.percent(40) {
            self.log.note(format!("destroy life {life} and do not wait"));
            let _ = tokio::task::unconstrained(Box::pin(pool.destroy(&name))).now_or_never();
            assert!(pool.find(&name).is_none(), "the name is free at once");
            settle().await;
        } else {
            self.log.note(format!("destroy life {life}"));
            assert!(at_once(pool.destroy(&name)).await, "it was there");
            assert!(pool.find(&name).is_none(), "the name is free");
        }
        self.expect_stop_when_all_finished();
        self.collect();
        assert_eq!(self.unanswered(life), Vec::<&str>::new(), "a destroyed agent owes no answers");
    }

    fn finish_something(&mut self) {
        if self.lives.is_empty() {
            return;
        }
        let life = self.dice.below(self.lives.len());
        self.log.note(format!("finish life {life}"));
        self.lives[life].finished = true;
        self.world.pool.finish_agent(&self.lives[life].handle);
        self.expect_stop_when_all_finished();
    }

    fn expect_stop_when_all_finished(&mut self) {
        let existing = self.existing();
        let all = existing.iter().all(|life| self.lives[*life].finished);
        self.stop_wanted |= all && !existing.is_empty();
        let wanted = self.world.pool.stop_requested().now_or_never().is_some();
        assert_eq!(wanted, self.stop_wanted, "a stop is wanted when every agent is finished");
    }

    pub(crate) fn read_something(&mut self) {
        let listed: Vec<_> = self.world.pool.list().into_iter().map(|agent| agent.id).collect();
        let existing = self.existing();
        let expected: Vec<_> = existing.iter().map(|life| self.lives[*life].name.clone()).collect();
        assert_eq!(listed, expected, "agents are listed in the order they were created");
        if self.lives.is_empty() {
            return;
        }
        let agent = &self.lives[self.dice.below(self.lives.len())].handle;
        let history = messages(agent);
        assert_eq!(objection(&history), None);
        assert_eq!(agent.summary().message_count, history.len());
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

    fn release_something(&mut self) {
        let released = self.world.model.release_one();
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
