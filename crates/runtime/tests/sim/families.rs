//! What the simulation does to the tree: makes agents of all kinds, changes what they may do, ends them.

use agent::permission::{Budget, DEPTH_MAX, Level, Resource};
use agent::{AgentId, FaultKind, MessageSource};
use futures_util::FutureExt;
use runtime::{
    AgentHandle, AgentSpec, Initiator, PermissionChange, ChildPolicy, CreatedAgent, FirstMessage, MayGrantSpec, NameSpec, PermissionSpec,
};

use crate::driver::{Driver, place};
use crate::world::{at_once, id, is_busy, settle};

const PRESETS: &[&str] = &["yolo", "trusted", "trusted", "sandboxed", "sandboxed", "worker", "nonsense"];

const DISABLED: &[&str] =
    &["note", "slow", "read", "write", "agent_send", "agent_create", "step", "nonsense"];

const PATHS: &[&str] = &["/work", "a", "b", "a/deep", "/elsewhere", "deep"];

impl Driver {
    pub(crate) async fn create_something(&mut self) {
        if self.dice.percent(8) {
            return self.create_main().await;
        }
        let existing = self.existing();
        let parent = match existing.as_slice() {
            [] => None,
            some if self.dice.percent(self.temper.deep) => {
                some.iter().copied().max_by_key(|life| self.depth(*life))
            }
            some => Some(*self.dice.pick(some)).filter(|_| self.dice.percent(60)),
        };
        let parent = parent.map(|life| self.lives[life].handle.clone());
        let by_parent = self.dice.percent(30);
        let spec = self.some_spec(parent.as_ref(), by_parent);
        let before = self.traces().await;
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
                self.bury();
                self.welcome(&spec, parent.as_ref(), created);
            }
            Err(fault) => {
                // While others are at work, they leave traces of their own.
                let after = self.traces().await.filter(|_| before.is_some());
                let before = before.filter(|_| after.is_some());
                assert_eq!(after, before, "a refused create left something behind: {fault}");
                self.sync().await;
                self.judge_refused_create(&spec, parent.as_ref(), &fault, at_work);
            }
        }
    }

    fn depth(&self, life: usize) -> u32 {
        self.world.summary(&self.lives[life].handle).depth
    }

    async fn create_main(&mut self) {
        let there = self.life_of(&AgentId::main()).is_some();
        let full = self.existing().len() >= self.limits.agents_max;
        let at_work = self.world.pool.open_turns() > 0;
        let created = self.world.pool.main_agent().await;
        self.log.note(format!("main: {:?}", created.as_ref().map(|agent| agent.id().clone())));
        match created {
            Ok(_) if there => {}
            Ok(handle) => {
                assert!((!full || at_work) && !self.stop_wanted, "an agent too many");
                self.add_life(handle, None);
            }
            Err(fault) => {
                self.sync().await;
                let full = full || at_work || self.existing().len() >= self.limits.agents_max;
                assert!(is_busy(&fault) && (full || self.stop_wanted), "{fault:?}");
            }
        }
    }

    fn some_spec(&mut self, parent: Option<&AgentHandle>, by_parent: bool) -> AgentSpec {
        let name = match self.dice.below(10) {
            0 => NameSpec::Generated,
            1 => NameSpec::NextTemporary,
            // Few names make no long line.
            _ if self.dice.percent(self.temper.deep / 2) => NameSpec::NextTemporary,
            _ => NameSpec::Given(id(self.dice.pick::<&str>(self.playwright.names))),
        };
        let some = |dice: &mut crate::dice::Dice, chance, from: &[&str]| {
            dice.percent(chance).then(|| (*dice.pick::<&str>(from)).to_owned())
        };
        let text = self.dice.percent(30).then(|| self.playwright.message(&mut self.dice, 1));
        let (dice, temper) = (&mut self.dice, self.temper);
        let free = dice.percent(temper.free).then(|| "yolo".to_owned());
        let level_max = (free.is_none() && dice.percent(50)).then_some(Level::Trusted);
        let permissions = PermissionSpec {
            preset: free.or_else(|| some(dice, 80, PRESETS)),
            disable_tools: some(dice, temper.odd, DISABLED).into_iter().collect(),
            write_paths: some(dice, temper.odd, PATHS).map(|path| vec![path]),
            may_create: some(dice, temper.odd, PRESETS).map(|preset| vec![preset]),
            may_grant: dice.percent(temper.odd / 2).then(|| MayGrantSpec {
                preset: some(dice, 50, PRESETS),
                disable_tools: some(dice, 50, DISABLED).into_iter().collect(),
                ..MayGrantSpec::default()
            }),
            budget: some_budget(dice, temper.thrifty),
        };
        AgentSpec {
            name,
            parent: parent.filter(|_| !by_parent || dice.percent(50)).map(|parent| parent.id().clone()),
            cwd: some(dice, temper.odd, PATHS),
            model: some(dice, temper.odd / 2, &["scripted/one", "nonsense"]),
            permissions,
            level_max,
            initial: text.map(|text| FirstMessage { text, source: MessageSource::default() }),
            system_prompt: None,
            on_restart: None,
            origin: None,
        }
    }

    fn welcome(&mut self, spec: &AgentSpec, parent: Option<&AgentHandle>, created: CreatedAgent) {
        let name = created.handle.id().clone();
        assert!(self.life_of(&name).is_none(), "a name was given twice");
        assert!(self.existing().len() < self.limits.agents_max && !self.stop_wanted, "an agent too many");
        assert_eq!(created.initial.is_some(), spec.initial.is_some());
        let summary = self.world.summary(&created.handle);
        assert_eq!(summary.parent.as_ref(), parent.map(AgentHandle::id));
        let depth = parent.map_or(0, |parent| self.world.summary(parent).depth + 1);
        assert!(summary.depth == depth && depth <= DEPTH_MAX, "a child is one step further down");
        self.add_life(created.handle, Some(created.capability));
    }

    fn judge_refused_create(
        &self,
        spec: &AgentSpec,
        parent: Option<&AgentHandle>,
        fault: &agent::Fault,
        at_work: bool,
    ) {
        let taken = matches!(&spec.name, NameSpec::Given(name) if self.life_of(name).is_some());
        let open = self.world.pool.open_turns();
        // Agents at work make and end agents meanwhile: one more than is there now may have been there then.
        let full = self.existing().len() >= self.limits.agents_max
            || at_work
            || (spec.initial.is_some() && open >= self.limits.turns_open_max);
        let odd = spec.cwd.is_some()
            || spec.model.is_some()
            || spec.permissions.preset.is_some()
            || spec.permissions.write_paths.is_some()
            || spec.permissions.may_create.is_some()
            || spec.permissions.may_grant.is_some();
        let fair = match fault.kind {
            FaultKind::Busy { .. } => full || self.stop_wanted,
            FaultKind::Invalid => taken || odd,
            FaultKind::Denied => parent.is_some(),
            _ => false,
        };
        assert!(fair, "refused without a reason: {fault:?}");
    }

    pub(crate) async fn change_something(&mut self) {
        let existing = self.existing();
        if existing.is_empty() {
            return;
        }
        let life = *self.dice.pick(&existing);
        let dice = &mut self.dice;
        let resource = *dice.pick(&Resource::ALL);
        let limit = dice.percent(80).then(|| some_limit(dice, resource) * 2);
        let tools = [dice.pick(DISABLED).to_string(), dice.pick(DISABLED).to_string()];
        let change = PermissionChange {
            preset: dice.percent(20).then(|| dice.pick(PRESETS).to_string()),
            disable_tools: dice.percent(40).then(|| tools[..dice.below(3)].to_vec()),
            write_paths: dice.percent(20).then(|| vec![dice.pick(PATHS).to_string()]),
            may_create: dice.percent(self.temper.odd).then(|| vec![dice.pick(PRESETS).to_string()]),
            may_grant: dice.percent(self.temper.odd).then(|| MayGrantSpec {
                preset: dice.percent(50).then(|| dice.pick(PRESETS).to_string()),
                ..MayGrantSpec::default()
            }),
            budget: if dice.percent(2 * self.temper.thrifty) { vec![(resource, limit)] } else { Vec::new() },
        };
        let handle = self.lives[life].handle.clone();
        let (before, may) = (self.traces().await, self.world.pool.permissions(&handle).may);
        let changed = self.world.change_permissions(&handle, &change).await;
        self.log.note(format!("change life {life} by {change:?}: {changed:?}"));
        match changed {
            Ok(()) => self.note_budget(life),
            Err(fault) => {
                assert!(matches!(fault.kind, FaultKind::Denied | FaultKind::Invalid), "{fault:?}");
                let after = self.traces().await.filter(|_| before.is_some());
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
    pub(crate) fn note_budget(&mut self, life: usize) {
        for holding in self.world.pool.permissions(&self.lives[life].handle).resource_usage {
            let past = &mut self.lives[life].budgets[place(holding.resource)];
            past.ever_limited |= holding.limit.is_some();
            past.ever_unlimited |= holding.limit.is_none();
            past.changes += 1;
            past.limit_max = past.limit_max.max(holding.limit.unwrap_or_default());
            past.floor = holding.used + holding.reserved;
        }
    }

    pub(crate) async fn destroy_something(&mut self) {
        let pool = self.world.pool.clone();
        let existing = self.existing();
        if existing.is_empty() {
            return;
        }
        let life = *self.dice.pick(&existing);
        let children = if self.dice.percent(50) { ChildPolicy::Cascade } else { ChildPolicy::Orphan };
        let mut leaving = vec![life];
        if children == ChildPolicy::Cascade {
            leaving.extend(self.below(life).into_iter().filter(|other| existing.contains(other)));
        }
        let target = self.lives[life].handle.agent_ref();
        self.log.note(format!("destroy life {life}, children {children:?}: {leaving:?}"));
        let mut destroying = Box::pin(pool.destroy(&target, children, Initiator::Admin));
        let destroyed = tokio::task::unconstrained(&mut destroying).now_or_never();
        if self.dice.percent(40) {
            drop(destroying);
            settle().await;
        } else if destroyed.is_none() {
            // An agent may have been faster.
            at_once(destroying).await.expect("it can be kept");
        }
        leaving.iter().for_each(|life| self.lives[*life].destroyed = true);
        self.sync().await;
        self.read_something().await;
        self.expect_stop_when_all_finished();
        self.collect().await;
        for life in leaving {
            assert_eq!(self.unanswered(life), Vec::<&str>::new(), "a destroyed agent owes no answers");
        }
    }

    pub(crate) async fn finish_something(&mut self) {
        if self.lives.is_empty() {
            return;
        }
        let life = self.dice.below(self.lives.len());
        self.log.note(format!("finish life {life}"));
        let finished = self.world.pool.mark_agent_finished(&self.lives[life].handle, Initiator::Admin).await;
        self.sync().await;
        assert_eq!(finished.is_err(), self.lives[life].destroyed, "{finished:?}");
        self.lives[life].finished = finished.is_ok();
        self.expect_stop_when_all_finished();
    }

    fn expect_stop_when_all_finished(&mut self) {
        let existing = self.existing();
        let all = existing.iter().all(|life| self.lives[*life].finished);
        self.stop_wanted |= all && !existing.is_empty();
        let wanted = self.world.pool.stop_requested().now_or_never().is_some();
        // An agent that destroyed another may have left only finished ones.
        let by_agents = wanted && self.lives.iter().any(|life| life.finished);
        assert!(wanted == self.stop_wanted || by_agents, "a stop is wanted when every agent is finished");
        self.stop_wanted = wanted;
    }
}

fn some_budget(dice: &mut crate::dice::Dice, chance: usize) -> Budget {
    Resource::ALL.into_iter().fold(Budget::unlimited(), |budget, resource| {
        let limit = dice.percent(chance).then(|| some_limit(dice, resource));
        budget.with_limit(resource, limit)
    })
}

fn some_limit(dice: &mut crate::dice::Dice, resource: Resource) -> u64 {
    let limit = match resource {
        Resource::Turns => dice.below(7),
        Resource::ToolCalls => dice.below(9),
        Resource::Tokens => dice.below(20),
        Resource::WallMs => *dice.pick(&[0, 400, 3_000, 50_000]),
        Resource::Children => dice.below(4),
    };
    limit as u64
}
