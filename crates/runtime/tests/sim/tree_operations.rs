//! What the simulation does to the tree: makes agents of all kinds, changes what they may do, ends them.

use agent::permission::{Budget, DEPTH_MAX, Level, Resource};
use agent::{AgentId, FaultKind, MessageSource};
use futures_util::FutureExt;
use runtime::{
    AgentHandle, AgentSpec, ChildPolicy, CreatedAgent, FirstMessage, Initiator, MayGrantSpec, NameSpec,
    PermissionChange, PermissionSpec,
};

use crate::driver::{Driver, resource_index};
use crate::world::{agent_id, is_busy, run_until_idle, without_waiting};

const PRESETS: &[&str] = &["yolo", "trusted", "trusted", "sandboxed", "sandboxed", "worker", "nonsense"];

const DISABLED: &[&str] =
    &["note", "slow", "read", "write", "agent_send", "agent_create", "step", "nonsense"];

const PATHS: &[&str] = &["/work", "a", "b", "a/deep", "/elsewhere", "deep"];

impl Driver {
    pub(crate) async fn create_random_agent(&mut self) {
        if self.rng.percent(8) {
            return self.create_main().await;
        }
        let existing = self.existing_agents();
        let parent = match existing.as_slice() {
            [] => None,
            some if self.rng.percent(self.profile.deep_percent) => {
                some.iter().copied().max_by_key(|life| self.depth(*life))
            }
            some => Some(*self.rng.pick(some)).filter(|_| self.rng.percent(60)),
        };
        let parent = parent.map(|life| self.agents[life].handle.clone());
        let by_parent = self.rng.percent(30);
        let spec = self.random_spec(parent.as_ref(), by_parent);
        let before = self.fingerprint().await;
        let by = match &parent {
            Some(parent) if by_parent => Initiator::Agent(parent),
            _ => Initiator::Admin,
        };
        let at_work = self.world.pool.open_turns() > 0;
        let created = self.world.pool.create(spec.clone(), by).await;
        let shown = created.as_ref().map(|created| created.handle.id().clone());
        self.log.note(format!("create {:?} below {:?}: {shown:?}", spec.name, spec.parent));
        match created {
            Ok(created) => {
                self.mark_destroyed();
                self.check_created(&spec, parent.as_ref(), created);
            }
            Err(fault) => {
                // While others are at work, they leave traces of their own.
                let after = self.fingerprint().await.filter(|_| before.is_some());
                let before = before.filter(|_| after.is_some());
                assert_eq!(after, before, "a refused create left something behind: {fault}");
                self.sync_agents().await;
                self.check_refused_create(&spec, parent.as_ref(), &fault, at_work);
            }
        }
    }

    fn depth(&self, life: usize) -> u32 {
        self.world.summary(&self.agents[life].handle).depth
    }

    async fn create_main(&mut self) {
        let there = self.agent_named(&AgentId::main()).is_some();
        let full = self.existing_agents().len() >= self.limits.agents_max;
        let at_work = self.world.pool.open_turns() > 0;
        let created = self.world.pool.main_agent().await;
        self.log.note(format!("main: {:?}", created.as_ref().map(|agent| agent.id().clone())));
        match created {
            Ok(_) if there => {}
            Ok(handle) => {
                assert!((!full || at_work) && !self.stop_requested, "an agent too many");
                self.add_agent(handle, None);
            }
            Err(fault) => {
                self.sync_agents().await;
                let full = full || at_work || self.existing_agents().len() >= self.limits.agents_max;
                assert!(is_busy(&fault) && (full || self.stop_requested), "{fault:?}");
            }
        }
    }

    fn random_spec(&mut self, parent: Option<&AgentHandle>, by_parent: bool) -> AgentSpec {
        let name = match self.rng.below(10) {
            0 => NameSpec::Generated,
            1 => NameSpec::NextTemporary,
            // Few names make no long line.
            _ if self.rng.percent(self.profile.deep_percent / 2) => NameSpec::NextTemporary,
            _ => NameSpec::Given(agent_id(self.rng.pick::<&str>(self.scenario_writer.names))),
        };
        let some = |dice: &mut crate::rng::TestRng, chance, from: &[&str]| {
            dice.percent(chance).then(|| (*dice.pick::<&str>(from)).to_owned())
        };
        let text = self.rng.percent(30).then(|| self.scenario_writer.message(&mut self.rng, 1));
        let (dice, temper) = (&mut self.rng, self.profile);
        let free = dice.percent(temper.unrestricted_percent).then(|| "yolo".to_owned());
        let level_max = (free.is_none() && dice.percent(50)).then_some(Level::Trusted);
        let permissions = PermissionSpec {
            preset: free.or_else(|| some(dice, 80, PRESETS)),
            disable_tools: some(dice, temper.unusual_percent, DISABLED).into_iter().collect(),
            write_paths: some(dice, temper.unusual_percent, PATHS).map(|path| vec![path]),
            may_create: some(dice, temper.unusual_percent, PRESETS).map(|preset| vec![preset]),
            may_grant: dice.percent(temper.unusual_percent / 2).then(|| MayGrantSpec {
                preset: some(dice, 50, PRESETS),
                disable_tools: some(dice, 50, DISABLED).into_iter().collect(),
                ..MayGrantSpec::default()
            }),
            budget: random_budget(dice, temper.limited_percent),
        };
        AgentSpec {
            name,
            parent: parent.filter(|_| !by_parent || dice.percent(50)).map(|parent| parent.id().clone()),
            cwd: some(dice, temper.unusual_percent, PATHS),
            model: some(dice, temper.unusual_percent / 2, &["scripted/one", "nonsense"]),
            permissions,
            level_max,
            initial: text.map(|text| FirstMessage { text, source: MessageSource::default() }),
            system_prompt: None,
            on_restart: None,
            origin: None,
        }
    }

    fn check_created(&mut self, spec: &AgentSpec, parent: Option<&AgentHandle>, created: CreatedAgent) {
        let name = created.handle.id().clone();
        assert!(self.agent_named(&name).is_none(), "a name was given twice");
        assert!(
            self.existing_agents().len() < self.limits.agents_max && !self.stop_requested,
            "an agent too many"
        );
        assert_eq!(created.initial.is_some(), spec.initial.is_some());
        let summary = self.world.summary(&created.handle);
        assert_eq!(summary.parent.as_ref(), parent.map(AgentHandle::id));
        let depth = parent.map_or(0, |parent| self.world.summary(parent).depth + 1);
        assert!(summary.depth == depth && depth <= DEPTH_MAX, "a child is one step further down");
        self.add_agent(created.handle, Some(created.capability));
    }

    fn check_refused_create(
        &self,
        spec: &AgentSpec,
        parent: Option<&AgentHandle>,
        fault: &agent::Fault,
        at_work: bool,
    ) {
        let taken = matches!(&spec.name, NameSpec::Given(name) if self.agent_named(name).is_some());
        let open = self.world.pool.open_turns();
        // Agents at work make and end agents meanwhile: one more than is there now may have been there then.
        let full = self.existing_agents().len() >= self.limits.agents_max
            || at_work
            || (spec.initial.is_some() && open >= self.limits.turns_open_max);
        let odd = spec.cwd.is_some()
            || spec.model.is_some()
            || spec.permissions.preset.is_some()
            || spec.permissions.write_paths.is_some()
            || spec.permissions.may_create.is_some()
            || spec.permissions.may_grant.is_some();
        let fair = match fault.kind {
            FaultKind::Busy { .. } => full || self.stop_requested,
            FaultKind::Invalid => taken || odd,
            FaultKind::Denied => parent.is_some(),
            _ => false,
        };
        assert!(fair, "refused without a reason: {fault:?}");
    }

    pub(crate) async fn change_random_permissions(&mut self) {
        let existing = self.existing_agents();
        if existing.is_empty() {
            return;
        }
        let life = *self.rng.pick(&existing);
        let dice = &mut self.rng;
        let resource = *dice.pick(&Resource::ALL);
        let limit = dice.percent(80).then(|| random_limit(dice, resource) * 2);
        let tools = [dice.pick(DISABLED).to_string(), dice.pick(DISABLED).to_string()];
        let change = PermissionChange {
            preset: dice.percent(20).then(|| dice.pick(PRESETS).to_string()),
            disable_tools: dice.percent(40).then(|| tools[..dice.below(3)].to_vec()),
            write_paths: dice.percent(20).then(|| vec![dice.pick(PATHS).to_string()]),
            may_create: dice
                .percent(self.profile.unusual_percent)
                .then(|| vec![dice.pick(PRESETS).to_string()]),
            may_grant: dice.percent(self.profile.unusual_percent).then(|| MayGrantSpec {
                preset: dice.percent(50).then(|| dice.pick(PRESETS).to_string()),
                ..MayGrantSpec::default()
            }),
            budget: if dice.percent(2 * self.profile.limited_percent) {
                vec![(resource, limit)]
            } else {
                Vec::new()
            },
        };
        let handle = self.agents[life].handle.clone();
        let (before, may) = (self.fingerprint().await, self.world.pool.permissions(&handle).may);
        let changed = self.world.change_permissions(&handle, &change).await;
        self.log.note(format!("change life {life} by {change:?}: {changed:?}"));
        match changed {
            Ok(()) => self.record_budgets(life),
            Err(fault) => {
                assert!(matches!(fault.kind, FaultKind::Denied | FaultKind::Invalid), "{fault:?}");
                let after = self.fingerprint().await.filter(|_| before.is_some());
                assert_eq!(
                    after,
                    before.filter(|_| after.is_some()),
                    "a refused change changed something: {fault}"
                );
                assert_eq!(self.world.pool.permissions(&handle).may, may, "{fault}");
            }
        }
    }

    /// Writes down what limits a life has now.
    pub(crate) fn record_budgets(&mut self, life: usize) {
        for holding in self.world.pool.permissions(&self.agents[life].handle).resource_usage {
            let past = &mut self.agents[life].budget_history[resource_index(holding.resource)];
            past.ever_limited |= holding.limit.is_some();
            past.ever_unlimited |= holding.limit.is_none();
            past.changes += 1;
            past.limit_max = past.limit_max.max(holding.limit.unwrap_or_default());
            past.floor = holding.used + holding.reserved;
        }
    }

    pub(crate) async fn destroy_random_agent(&mut self) {
        let pool = self.world.pool.clone();
        let existing = self.existing_agents();
        if existing.is_empty() {
            return;
        }
        let life = *self.rng.pick(&existing);
        let children = if self.rng.percent(50) { ChildPolicy::Cascade } else { ChildPolicy::Orphan };
        let mut leaving = vec![life];
        if children == ChildPolicy::Cascade {
            leaving.extend(self.descendants(life).into_iter().filter(|other| existing.contains(other)));
        }
        let target = self.agents[life].handle.agent_ref();
        self.log.note(format!("destroy life {life}, children {children:?}: {leaving:?}"));
        let mut destroying = Box::pin(pool.destroy(&target, children, Initiator::Admin));
        let destroyed = tokio::task::unconstrained(&mut destroying).now_or_never();
        if self.rng.percent(40) {
            drop(destroying);
            run_until_idle().await;
        } else if destroyed.is_none() {
            // An agent may have been faster.
            without_waiting(destroying).await.expect("it can be kept");
        }
        leaving.iter().for_each(|life| self.agents[*life].is_destroyed = true);
        self.sync_agents().await;
        self.read_random().await;
        self.check_stop_requested();
        self.collect_answers().await;
        for life in leaving {
            assert_eq!(self.pending_scripts(life), Vec::<&str>::new(), "a destroyed agent owes no answers");
        }
    }

    pub(crate) async fn finish_random_agent(&mut self) {
        if self.agents.is_empty() {
            return;
        }
        let life = self.rng.below(self.agents.len());
        self.log.note(format!("finish life {life}"));
        let finished = self.world.pool.mark_agent_finished(&self.agents[life].handle, Initiator::Admin).await;
        self.sync_agents().await;
        assert_eq!(finished.is_err(), self.agents[life].is_destroyed, "{finished:?}");
        self.agents[life].is_finished = finished.is_ok();
        self.check_stop_requested();
    }

    fn check_stop_requested(&mut self) {
        let existing = self.existing_agents();
        let all = existing.iter().all(|life| self.agents[*life].is_finished);
        self.stop_requested |= all && !existing.is_empty();
        let wanted = self.world.pool.stop_requested().now_or_never().is_some();
        // An agent that destroyed another may have left only finished ones.
        let by_agents = wanted && self.agents.iter().any(|life| life.is_finished);
        assert!(wanted == self.stop_requested || by_agents, "a stop is wanted when every agent is finished");
        self.stop_requested = wanted;
    }
}

fn random_budget(dice: &mut crate::rng::TestRng, chance: usize) -> Budget {
    Resource::ALL.into_iter().fold(Budget::unlimited(), |budget, resource| {
        let limit = dice.percent(chance).then(|| random_limit(dice, resource));
        budget.with_limit(resource, limit)
    })
}

fn random_limit(dice: &mut crate::rng::TestRng, resource: Resource) -> u64 {
    let limit = match resource {
        Resource::Turns => dice.below(7),
        Resource::ToolCalls => dice.below(9),
        Resource::Tokens => dice.below(20),
        Resource::WallMs => *dice.pick(&[0, 400, 3_000, 50_000]),
        Resource::Children => dice.below(4),
    };
    limit as u64
}
