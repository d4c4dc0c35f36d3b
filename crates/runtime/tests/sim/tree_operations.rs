//! Random operations of the simulation on the agent tree: create, change permissions, finish, destroy.

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

const COMMANDS: &[&str] = &["cargo", "git", "/bin/ls", "*", ""];
const HOSTS: &[&str] = &["docs.rs", "*.example.com", "localhost:8080", "*", "http://x"];

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
                some.iter().copied().max_by_key(|index| self.depth(*index))
            }
            some => Some(*self.rng.pick(some)).filter(|_| self.rng.percent(60)),
        };
        let parent = parent.map(|index| self.agents[index].handle.clone());
        let by_parent = self.rng.percent(30);
        let spec = self.random_spec(parent.as_ref(), by_parent);
        let before = self.fingerprint().await;
        let initiator = match &parent {
            Some(parent) if by_parent => Initiator::Agent(parent),
            _ => Initiator::Admin,
        };
        let turns_open = self.world.pool.open_turns() > 0;
        let created = self.world.pool.create(spec.clone(), initiator).await;
        let id = created.as_ref().map(|created| created.handle.id().clone());
        self.log.note(format!("create {:?} below {:?}: {id:?}", spec.name, spec.parent));
        match created {
            Ok(created) => {
                self.mark_destroyed();
                self.check_created(&spec, parent.as_ref(), created);
            }
            Err(fault) => {
                // Running turns of other agents may change the fingerprint.
                let after = self.fingerprint().await.filter(|_| before.is_some());
                let before = before.filter(|_| after.is_some());
                assert_eq!(after, before, "a rejected create left something behind: {fault}");
                self.sync_agents().await;
                self.check_rejected_create(&spec, parent.as_ref(), &fault, turns_open);
            }
        }
    }

    fn depth(&self, index: usize) -> u32 {
        self.world.status(&self.agents[index].handle).depth
    }

    async fn create_main(&mut self) {
        let exists = self.agent_named(&AgentId::main()).is_some();
        let is_full = self.existing_agents().len() >= self.limits.agents_max;
        let turns_open = self.world.pool.open_turns() > 0;
        let created = self.world.pool.main_agent().await;
        self.log.note(format!("main: {:?}", created.as_ref().map(|agent| agent.id().clone())));
        match created {
            Ok(_) if exists => {}
            Ok(handle) => {
                assert!((!is_full || turns_open) && !self.stop_requested, "the agent limit is exceeded");
                self.add_agent(handle, None);
            }
            Err(fault) => {
                self.sync_agents().await;
                let is_full = is_full || turns_open || self.existing_agents().len() >= self.limits.agents_max;
                assert!(is_busy(&fault) && (is_full || self.stop_requested), "{fault:?}");
            }
        }
    }

    fn random_spec(&mut self, parent: Option<&AgentHandle>, by_parent: bool) -> AgentSpec {
        let name = match self.rng.below(10) {
            0 => NameSpec::Generated,
            1 => NameSpec::NextTemporary,
            // Few names allow no deep chain.
            _ if self.rng.percent(self.profile.deep_percent / 2) => NameSpec::NextTemporary,
            _ => NameSpec::Given(agent_id(self.rng.pick::<&str>(self.scenario_writer.names))),
        };
        let random_item = |rng: &mut testkit::TestRng, probability, items: &[&str]| {
            rng.percent(probability).then(|| (*rng.pick::<&str>(items)).to_owned())
        };
        let text = self.rng.percent(30).then(|| self.scenario_writer.message(&mut self.rng, 1));
        let (rng, profile) = (&mut self.rng, self.profile);
        let unrestricted = rng.percent(profile.unrestricted_percent).then(|| "yolo".to_owned());
        let level_max = (unrestricted.is_none() && rng.percent(50)).then_some(Level::Trusted);
        let permissions = PermissionSpec {
            preset: unrestricted.or_else(|| random_item(rng, 80, PRESETS)),
            tools: None,
            disable_tools: random_item(rng, profile.unusual_percent, DISABLED).into_iter().collect(),
            write_paths: random_item(rng, profile.unusual_percent, PATHS).map(|path| vec![path]),
            commands: random_item(rng, profile.unusual_percent, COMMANDS).map(|command| vec![command]),
            hosts: random_item(rng, profile.unusual_percent, HOSTS).map(|host| vec![host]),
            denied_hosts: random_item(rng, profile.unusual_percent, HOSTS).into_iter().collect(),
            may_create: random_item(rng, profile.unusual_percent, PRESETS).map(|preset| vec![preset]),
            may_grant: rng.percent(profile.unusual_percent / 2).then(|| MayGrantSpec {
                preset: random_item(rng, 50, PRESETS),
                disable_tools: random_item(rng, 50, DISABLED).into_iter().collect(),
                ..MayGrantSpec::default()
            }),
            rules: Vec::new(),
            budget: random_budget(rng, profile.limited_percent),
        };
        AgentSpec {
            name,
            parent: parent.filter(|_| !by_parent || rng.percent(50)).map(|parent| parent.id().clone()),
            cwd: random_item(rng, profile.unusual_percent, PATHS),
            model: random_item(rng, profile.unusual_percent / 2, &["scripted/one", "nonsense"]),
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
        assert!(self.agent_named(&name).is_none(), "a name was used twice");
        assert!(
            self.existing_agents().len() < self.limits.agents_max && !self.stop_requested,
            "the agent limit is exceeded"
        );
        assert_eq!(created.initial.is_some(), spec.initial.is_some());
        let status = self.world.status(&created.handle);
        assert_eq!(status.parent.as_ref(), parent.map(AgentHandle::id));
        let depth = parent.map_or(0, |parent| self.world.status(parent).depth + 1);
        assert!(status.depth == depth && depth <= DEPTH_MAX, "a child is one level deeper");
        self.add_agent(created.handle, Some(created.capability));
    }

    fn check_rejected_create(
        &self,
        spec: &AgentSpec,
        parent: Option<&AgentHandle>,
        fault: &agent::Fault,
        turns_open: bool,
    ) {
        let name_exists = matches!(&spec.name, NameSpec::Given(name) if self.agent_named(name).is_some());
        let open = self.world.pool.open_turns();
        // Running turns create and destroy agents: there may have been one more at the time of the create.
        let is_full = self.existing_agents().len() >= self.limits.agents_max
            || turns_open
            || (spec.initial.is_some() && open >= self.limits.turns_open_max);
        let is_unusual = spec.cwd.is_some()
            || spec.model.is_some()
            || spec.permissions.preset.is_some()
            || spec.permissions.write_paths.is_some()
            || spec.permissions.commands.is_some()
            || spec.permissions.hosts.is_some()
            || !spec.permissions.denied_hosts.is_empty()
            || spec.permissions.may_create.is_some()
            || spec.permissions.may_grant.is_some();
        let is_allowed = match fault.kind {
            FaultKind::Busy { .. } => is_full || self.stop_requested,
            FaultKind::Invalid => name_exists || is_unusual,
            FaultKind::Denied => parent.is_some(),
            _ => false,
        };
        assert!(is_allowed, "rejected without a reason: {fault:?}");
    }

    pub(crate) async fn change_random_permissions(&mut self) {
        let existing = self.existing_agents();
        if existing.is_empty() {
            return;
        }
        let index = *self.rng.pick(&existing);
        let rng = &mut self.rng;
        let resource = *rng.pick(&Resource::ALL);
        let limit = rng.percent(80).then(|| random_limit(rng, resource) * 2);
        let tools = [rng.pick(DISABLED).to_string(), rng.pick(DISABLED).to_string()];
        let change = PermissionChange {
            preset: rng.percent(20).then(|| rng.pick(PRESETS).to_string()),
            tools: None,
            disable_tools: rng.percent(40).then(|| tools[..rng.below(3)].to_vec()),
            write_paths: rng.percent(20).then(|| vec![rng.pick(PATHS).to_string()]),
            commands: rng.percent(20).then(|| vec![rng.pick(COMMANDS).to_string()]),
            hosts: rng.percent(20).then(|| vec![rng.pick(HOSTS).to_string()]),
            denied_hosts: rng.percent(20).then(|| vec![rng.pick(HOSTS).to_string()]),
            may_create: rng
                .percent(self.profile.unusual_percent)
                .then(|| vec![rng.pick(PRESETS).to_string()]),
            may_grant: rng.percent(self.profile.unusual_percent).then(|| MayGrantSpec {
                preset: rng.percent(50).then(|| rng.pick(PRESETS).to_string()),
                ..MayGrantSpec::default()
            }),
            rules: Vec::new(),
            budget: if rng.percent(2 * self.profile.limited_percent) {
                vec![(resource, limit)]
            } else {
                Vec::new()
            },
        };
        let handle = self.agents[index].handle.clone();
        let (before, may) = (self.fingerprint().await, self.world.pool.permissions(&handle).may);
        let changed = self.world.change_permissions(&handle, &change).await;
        self.log.note(format!("change agent #{index} by {change:?}: {changed:?}"));
        match changed {
            Ok(()) => self.record_budgets(index),
            Err(fault) => {
                assert!(matches!(fault.kind, FaultKind::Denied | FaultKind::Invalid), "{fault:?}");
                let after = self.fingerprint().await.filter(|_| before.is_some());
                assert_eq!(
                    after,
                    before.filter(|_| after.is_some()),
                    "a rejected change changed something: {fault}"
                );
                assert_eq!(self.world.pool.permissions(&handle).may, may, "{fault}");
            }
        }
    }

    /// Records the current limits of an agent.
    pub(crate) fn record_budgets(&mut self, index: usize) {
        for usage in self.world.pool.permissions(&self.agents[index].handle).resource_usage {
            let history = &mut self.agents[index].budget_history[resource_index(usage.resource)];
            history.ever_limited |= usage.limit.is_some();
            history.ever_unlimited |= usage.limit.is_none();
            history.changes += 1;
            history.limit_max = history.limit_max.max(usage.limit.unwrap_or_default());
            history.floor = usage.used + usage.reserved;
        }
    }

    pub(crate) async fn destroy_random_agent(&mut self) {
        let pool = self.world.pool.clone();
        let existing = self.existing_agents();
        if existing.is_empty() {
            return;
        }
        let index = *self.rng.pick(&existing);
        let children = if self.rng.percent(50) { ChildPolicy::Cascade } else { ChildPolicy::Orphan };
        let mut destroyed_agents = vec![index];
        if children == ChildPolicy::Cascade {
            destroyed_agents.extend(
                self.descendants(index).into_iter().filter(|descendant| existing.contains(descendant)),
            );
        }
        let target = self.agents[index].handle.agent_ref();
        self.log.note(format!("destroy agent #{index}, children {children:?}: {destroyed_agents:?}"));
        let mut destroying = Box::pin(pool.destroy(&target, children, Initiator::Admin));
        let destroyed = tokio::task::unconstrained(&mut destroying).now_or_never();
        if self.rng.percent(40) {
            drop(destroying);
            run_until_idle().await;
        } else if destroyed.is_none() {
            // Another agent may have destroyed it already.
            without_waiting(destroying).await.expect("the commit succeeds");
        }
        destroyed_agents.iter().for_each(|index| self.agents[*index].is_destroyed = true);
        self.sync_agents().await;
        self.read_random().await;
        self.check_stop_requested();
        self.collect_responses().await;
        for index in destroyed_agents {
            assert_eq!(
                self.pending_scripts(index),
                Vec::<&str>::new(),
                "no pending send of a destroyed agent"
            );
        }
    }

    pub(crate) async fn finish_random_agent(&mut self) {
        if self.agents.is_empty() {
            return;
        }
        let index = self.rng.below(self.agents.len());
        self.log.note(format!("finish agent #{index}"));
        let finished =
            self.world.pool.mark_agent_finished(&self.agents[index].handle, Initiator::Admin).await;
        self.sync_agents().await;
        assert_eq!(finished.is_err(), self.agents[index].is_destroyed, "{finished:?}");
        self.agents[index].is_finished = finished.is_ok();
        self.check_stop_requested();
    }

    fn check_stop_requested(&mut self) {
        let existing = self.existing_agents();
        let all_finished = existing.iter().all(|index| self.agents[*index].is_finished);
        self.stop_requested |= all_finished && !existing.is_empty();
        let is_requested = self.world.pool.stop_requested().now_or_never().is_some();
        // An agent that destroyed another one may have left only finished agents.
        let by_agents = is_requested && self.agents.iter().any(|agent| agent.is_finished);
        assert!(
            is_requested == self.stop_requested || by_agents,
            "a stop is requested when every agent is finished"
        );
        self.stop_requested = is_requested;
    }
}

fn random_budget(rng: &mut testkit::TestRng, probability: usize) -> Budget {
    Resource::ALL.into_iter().fold(Budget::unlimited(), |budget, resource| {
        let limit = rng.percent(probability).then(|| random_limit(rng, resource));
        budget.with_limit(resource, limit)
    })
}

fn random_limit(rng: &mut testkit::TestRng, resource: Resource) -> u64 {
    let limit = match resource {
        Resource::Turns => rng.below(7),
        Resource::ToolCalls => rng.below(9),
        Resource::Tokens => rng.below(20),
        Resource::WallMs => *rng.pick(&[0, 400, 3_000, 50_000]),
        Resource::Children => rng.below(4),
    };
    limit as u64
}
