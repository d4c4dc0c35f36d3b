//! Random operations on a daemon across its restarts.

use std::collections::BTreeMap;
use std::time::Duration;

use agent::journal::{RestartPolicy, Serial};
use agent::outside::StoreFault;
use agent::permission::{Budget, Resource};
use agent::{MessageSource, RequestId};
use runtime::{AgentHandle, AgentSpec, ChildPolicy, Initiator, NameSpec, NewMessage, PermissionSpec};

use crate::history::{idle_history_violation, messages};
use crate::restart_invariants::is_final;
use crate::restart_simulation::{KnownAgent, RestartSimulation, SentMessage};
use crate::world::{World, agent_id, run_until_idle};

/// Scripts, and their content without interference. `N` is replaced by a unique number.
const SCRIPTS: &[(&str, &str)] = &[
    ("#N say a; yield; say b; done", "ab"),
    ("#N report 2; call note x; call once N; done | say u; done", "u"),
    ("#N say t; call slow 30; call once_step N; call keyed N; done | say u; done", "tu"),
    ("#N call once N; yield; done | call keyed N; call note !; done | say v; done", "v"),
    ("#N wait; say w; done", "w"),
    ("#N say t; call slow release; done | wait; say u; done", "tu"),
    ("#N say a; fail", ""),
];

impl RestartSimulation {
    pub(crate) async fn run_random_operation(&mut self) {
        match self.rng.below(100) {
            0..6 => self.create().await,
            6..26 => self.send().await,
            26..36 => self.repeat_send().await,
            36..40 => self.reuse_request_id().await,
            40..46 => self.send_detached().await,
            46..54 => self.cancel().await,
            54..58 => self.steer().await,
            58..64 => self.release(),
            64..72 => self.advance_time().await,
            72..75 => self.destroy().await,
            75..78 => self.rename().await,
            78..81 => self.roll_back().await,
            81..86 => self.inject_full_faults(),
            86..90 => self.kill().await,
            90..94 => self.kill_after_appends().await,
            94..96 => self.stop_and_start().await,
            _ => self.yield_tasks().await,
        }
        self.collect_responses().await;
    }

    pub(crate) async fn create(&mut self) {
        let parent = self.random_agent().filter(|_| self.rng.percent(50));
        let name = match self.rng.below(6) {
            0 => NameSpec::NextTemporary,
            1 => NameSpec::Generated,
            _ => NameSpec::Given(agent_id(&format!("n{}", self.agents.len()))),
        };
        let children_max = self.rng.percent(30).then(|| self.rng.below(5) as u64);
        let marks_interrupted = self.rng.percent(25);
        let spec = AgentSpec {
            name,
            parent: parent.map(|index| self.agents[index].agent_ref.id().clone()),
            permissions: PermissionSpec {
                preset: Some("yolo".to_owned()),
                budget: Budget::unlimited()
                    .with_limit(Resource::Children, children_max.map(|children_max| children_max + 2)),
                ..PermissionSpec::default()
            },
            on_restart: Some(if marks_interrupted { RestartPolicy::Mark } else { RestartPolicy::Resume }),
            ..AgentSpec::default()
        };
        match self.world().create(spec).await {
            Ok(created) => {
                self.log.note(format!(
                    "create {} below {parent:?}, marks: {marks_interrupted}",
                    created.handle.id()
                ));
                self.agents.push(KnownAgent {
                    agent_ref: created.handle.agent_ref(),
                    parent: parent.map(|index| self.agents[index].agent_ref.serial()),
                    capability: created.capability,
                    marks_interrupted,
                    is_destroyed: false,
                    steers: Vec::new(),
                    is_rolled_back: false,
                });
            }
            Err(fault) => self.log.note(format!("create: {fault}")),
        }
    }

    fn new_send(&mut self, serial: Serial) -> usize {
        self.script_count += 1;
        let number = self.script_count;
        let (script, expected_text) = *self.rng.pick(SCRIPTS);
        let request_id = match self.rng.percent(50) {
            true => RequestId::Text(number.to_string()),
            false => RequestId::Number(i64::try_from(number).expect("small")),
        };
        self.sent.push(SentMessage {
            serial,
            request_id,
            script: script.replace('N', &number.to_string()),
            expected_text,
            pending: Vec::new(),
            responses: Vec::new(),
            is_acknowledged: false,
            cancel_requested: false,
            is_cancelled: false,
            is_steered: false,
        });
        self.sent.len() - 1
    }

    fn message(&self, index: usize) -> NewMessage {
        let sent = &self.sent[index];
        let (text, request_id) = (sent.script.clone(), sent.request_id.clone());
        NewMessage { text, images: Vec::new(), request_id, source: MessageSource::default() }
    }

    async fn send(&mut self) {
        let Some(index) = self.random_agent() else { return };
        let Some(agent) = self.handle(index).await else { return };
        let sent = self.new_send(self.agents[index].agent_ref.serial());
        self.submit(agent, sent);
    }

    fn submit(&mut self, agent: AgentHandle, sent: usize) {
        let message = self.message(sent);
        self.log.note(format!("send {} to {}", message.text, agent.id()));
        self.sent[sent].pending.push(tokio::spawn(async move { agent.send(message).await }));
    }

    /// A random send to an agent that exists.
    fn random_send(&mut self) -> Option<(usize, usize)> {
        let candidates: Vec<_> = (0..self.sent.len())
            .filter_map(|sent| Some((sent, self.agent_index(self.sent[sent].serial)?)))
            .filter(|(_, index)| !self.agents[*index].is_destroyed)
            .collect();
        (!candidates.is_empty()).then(|| *self.rng.pick(&candidates))
    }

    async fn repeat_send(&mut self) {
        let Some((sent, index)) = self.random_send() else { return };
        let Some(agent) = self.handle(index).await else { return };
        self.log.note("duplicate send".to_owned());
        self.submit(agent, sent);
    }

    /// Sends other content with a known request id.
    async fn reuse_request_id(&mut self) {
        let Some((sent, index)) = self.random_send() else { return };
        let is_known = self.sent[sent].is_acknowledged;
        let Some(agent) = self.handle(index).await.filter(|_| is_known) else { return };
        let message = NewMessage { text: "#x say other; done".to_owned(), ..self.message(sent) };
        let sending = tokio::spawn(async move { agent.send(message).await });
        // It may be queued before it is rejected.
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
        if sending.is_finished() {
            let response = sending.await.expect("a send does not panic");
            self.log.note(format!("other content: {response:?}"));
            assert!(response.is_err(), "{} succeeded with other content", self.sent[sent].script);
        } else {
            self.release_all();
            sending.abort();
        }
    }

    async fn send_detached(&mut self) {
        let Some(index) = self.random_agent() else { return };
        let Some(agent) = self.handle(index).await else { return };
        let sent = self.new_send(self.agents[index].agent_ref.serial());
        let submitted = agent.submit_committed(self.message(sent)).await.map(drop);
        self.log.note(format!("submit {} to {}: {submitted:?}", self.sent[sent].script, agent.id()));
        self.sent[sent].is_acknowledged |= submitted.is_ok();
    }

    async fn cancel(&mut self) {
        let Some((sent, index)) = self.random_send() else { return };
        let Some(agent) = self.handle(index).await else { return };
        self.sent[sent].cancel_requested = true;
        let is_cancelled = agent.cancel(self.sent[sent].request_id.clone()).await;
        self.log.note(format!("cancel {}: cancelled: {is_cancelled}", self.sent[sent].script));
        // A send that was never committed is unknown when it is repeated.
        self.sent[sent].is_cancelled |= is_cancelled && self.sent[sent].is_acknowledged;
    }

    async fn steer(&mut self) {
        let Some(index) = self.random_agent() else { return };
        let Some(agent) = self.handle(index).await else { return };
        self.script_count += 1;
        let text = format!("#s{} say steered; done", self.script_count);
        // The turn may read an instruction that could not be committed and so is not acknowledged.
        let serial = self.agents[index].agent_ref.serial();
        let may_be_steered =
            |sent: &&mut SentMessage| sent.serial == serial && !sent.responses.iter().any(is_final);
        self.sent.iter_mut().filter(may_be_steered).for_each(|sent| sent.is_steered = true);
        if agent.steer(text.clone(), MessageSource::default()).await.is_some() {
            self.log.note(format!("instruction accepted by {}: {text}", agent.id()));
            self.agents[index].steers.push(text);
        }
    }

    fn release(&mut self) {
        if self.rng.percent(50) {
            self.world().model.release_one()
        } else {
            self.world().tools.release_one()
        };
    }

    pub(crate) fn release_all(&self) {
        self.world().model.release_all();
        self.world().tools.release_all();
    }

    async fn advance_time(&mut self) {
        let duration = Duration::from_millis(*self.rng.pick(&[1, 100, 2_000, 70_000]));
        tokio::time::sleep(duration).await;
        let live = self.world().live_names().await;
        let asleep = self.world().names().await.into_iter().filter(|name| !live.contains(name));
        let asleep: Vec<_> = asleep.collect();
        self.log.note(format!("{duration:?} pass, asleep: {asleep:?}"));
    }

    async fn destroy(&mut self) {
        let Some(index) = self.random_agent() else { return };
        let children = if self.rng.percent(50) { ChildPolicy::Cascade } else { ChildPolicy::Orphan };
        let target = self.agents[index].agent_ref.clone();
        let destroyed = self.world().pool.destroy(&target, children, Initiator::Admin).await;
        self.log.note(format!("destroy {}, {children:?}: {destroyed:?}", target.id()));
        if destroyed.is_ok() {
            self.mark_destroyed(target.serial(), children);
        }
    }

    fn mark_destroyed(&mut self, serial: Serial, children: ChildPolicy) {
        let parents: BTreeMap<_, _> =
            self.agents.iter().map(|known| (known.agent_ref.serial(), known.parent)).collect();
        let is_below = |mut serial: Serial, top: Serial| loop {
            match parents.get(&serial).copied().flatten() {
                Some(parent) if parent == top => return true,
                Some(parent) => serial = parent,
                None => return false,
            }
        };
        for known in &mut self.agents {
            let candidate = known.agent_ref.serial();
            known.is_destroyed |=
                candidate == serial || (children == ChildPolicy::Cascade && is_below(candidate, serial));
        }
    }

    async fn rename(&mut self) {
        let Some(index) = self.random_agent() else { return };
        self.script_count += 1;
        let temporary = self.agents[index].agent_ref.id().is_temporary();
        let name = format!("{}r{}", if temporary { "." } else { "" }, self.script_count);
        let renamed =
            self.world().pool.rename(&self.agents[index].agent_ref, agent_id(&name), Initiator::Admin).await;
        if let Ok(renamed) = renamed {
            self.log.note(format!("{} is renamed to {name}", self.agents[index].agent_ref.id()));
            self.agents[index].agent_ref = renamed;
        }
    }

    async fn roll_back(&mut self) {
        let Some(index) = self.random_agent() else { return };
        let Some(agent) = self.handle(index).await else { return };
        let history = messages(&agent);
        // Only to the end of a turn: after a rollback to a user message, the next send would be a second one in a row.
        let ends = (0..=history.len()).filter(|end| idle_history_violation(&history[..*end]).is_none());
        let messages = *self.rng.pick(&ends.collect::<Vec<_>>());
        if let Ok(removed) = agent.rollback(messages, Initiator::Admin).await {
            self.log.note(format!("{} is rolled back to {messages}: {removed}", agent.id()));
            self.agents[index].is_rolled_back |= removed > 0;
        }
    }

    fn inject_full_faults(&mut self) {
        let times = self.rng.between(1, 4);
        self.log.note(format!("the next {times} appends fail: disk full"));
        self.world().store.inject_fault(times, StoreFault::Full("no space".to_owned()));
    }

    async fn yield_tasks(&mut self) {
        for _ in 0..self.rng.between(1, 20) {
            tokio::task::yield_now().await;
        }
    }

    /// Drops the senders that wait for the old daemon.
    async fn abort_waiters(&mut self) {
        for sent in &mut self.sent {
            for sender in sent.pending.drain(..) {
                sender.abort();
            }
        }
        self.agents.iter_mut().for_each(|known| known.is_destroyed |= known.agent_ref.id().is_temporary());
        tokio::task::yield_now().await;
    }

    pub(crate) async fn kill(&mut self) {
        self.log.note("killed".to_owned());
        self.world().store.die();
        self.restart().await;
    }

    /// Kills the daemon after some more appends.
    async fn kill_after_appends(&mut self) {
        let appends = self.rng.between(1, 6);
        self.log.note(format!("killed in the middle, {appends} appends later"));
        self.world().store.die_after(appends);
        if self.rng.percent(50) {
            self.release_all();
        }
        tokio::time::sleep(Duration::from_millis(40)).await;
        self.collect_responses().await;
        self.restart().await;
    }

    async fn restart(&mut self) {
        self.abort_waiters().await;
        let world = self.world.take().expect("the daemon runs");
        let yields = *self.rng.pick(&[0, 1, 4]);
        let world = world.restart().await;
        world.store.set_commit_yields(yields);
        self.world = Some(world);
    }

    async fn stop_and_start(&mut self) {
        self.world().store.clear_faults();
        let options = self.world().restart_options();
        let stop = self.world().pool.stop(Duration::from_secs(1));
        stop.await;
        self.collect_responses().await;
        self.abort_waiters().await;
        drop(self.world.take());
        run_until_idle().await;
        self.world = Some(World::open(options).await);
        self.log.note("stopped and started".to_owned());
    }
}
