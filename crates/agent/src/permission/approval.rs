//! Approvals: the decision whether a call runs, is asked for or is denied, from the grant and the approval rules of an
//! agent and its ancestors. Rules never lift what is disabled or blocked, and an approval never exceeds what its grantor
//! may grant.

use super::judge::judge_each;
use super::{
    CallText, Denial, Dimension, Effect, Grant, HostPattern, HostSet, LineageLink, Permit, Rule, Verdict,
    ceiling, effective, judge,
};
use crate::journal::Serial;

/// The approval rules of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ApprovalRules(Vec<RuleEntry>);

/// One approval rule of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleEntry {
    /// What happens to the calls that it matches.
    pub action: RuleAction,
    /// The pattern.
    pub rule: Rule,
    /// The agents that it applies to.
    pub scope: RuleScope,
    /// The authority behind it.
    pub grantor: Grantor,
}

/// What happens to a call that a rule matches. `Deny` precedes `Allow`, which precedes `Ask`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleAction {
    /// It is asked for: also if the grant allows it, or if the grant forbids it and an approval could allow it.
    Ask,
    /// It is not asked for.
    Allow,
    /// It is denied.
    Deny,
}

/// The agents that a rule applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleScope {
    /// The agent that has it.
    Agent,
    /// The agent that has it, and its descendants.
    Subtree,
}

/// The authority behind a rule or an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grantor {
    /// The operator of the daemon.
    Admin,
    /// The request or preset that the agent was created with: bounded by what its ancestors may grant.
    Creator,
    /// An ancestor: bounded by what it may grant.
    Agent(Serial),
}

/// Maximum number of rules of an agent: every call is compared with all of its lineage.
pub const RULES_MAX: usize = 512;

impl RuleAction {
    /// All actions.
    pub const ALL: [RuleAction; 3] = [RuleAction::Ask, RuleAction::Allow, RuleAction::Deny];

    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RuleAction::Ask => "ask",
            RuleAction::Allow => "allow",
            RuleAction::Deny => "deny",
        }
    }
}

impl RuleScope {
    /// All scopes.
    pub const ALL: [RuleScope; 2] = [RuleScope::Agent, RuleScope::Subtree];

    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RuleScope::Agent => "agent",
            RuleScope::Subtree => "subtree",
        }
    }
}

impl RuleEntry {
    /// A rule of a request or preset.
    #[must_use]
    pub fn of_creator(action: RuleAction, rule: Rule) -> Self {
        // What an agent must not do, or must ask for, its descendants must not do without asking either.
        let scope = if action == RuleAction::Allow { RuleScope::Agent } else { RuleScope::Subtree };
        Self { action, rule, scope, grantor: Grantor::Creator }
    }
}

impl ApprovalRules {
    /// The rules of these entries.
    #[must_use]
    pub fn new(entries: Vec<RuleEntry>) -> Self {
        Self(entries)
    }

    /// All rules.
    #[must_use]
    pub fn entries(&self) -> &[RuleEntry] {
        &self.0
    }

    /// Whether a rule asks for effects that match.
    #[must_use]
    pub fn asks_for(&self, matches: impl Fn(&Rule) -> bool) -> bool {
        self.0.iter().any(|entry| entry.action == RuleAction::Ask && matches(&entry.rule))
    }
}

/// A tool call to decide on.
pub struct CallReview<'a> {
    /// The agent, then its ancestors.
    pub lineage: &'a [LineageLink],
    /// All effects of the call.
    pub effects: &'a [Effect],
    /// The call as the model wrote it.
    pub call: CallText<'a>,
    /// Who approved this call, if it was approved.
    pub approved_by: Option<Grantor>,
}

/// The decision on a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The call may run, with this permit.
    Allowed(Permit),
    /// The call may run if it is approved.
    Ask(Question),
    /// The call may not run.
    Denied(Denial),
}

/// What is to be approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The effects that need an approval.
    pub effects: Vec<Effect>,
    /// Why they need one.
    pub reason: String,
}

impl Question {
    /// The denial where nothing can be asked.
    #[must_use]
    pub fn into_denial(self) -> Denial {
        let effect = self.effects.into_iter().next().unwrap_or(Effect::ReadValues);
        Denial { effect, dimension: Dimension::Rules, text: self.reason }
    }
}

/// Decides on a call. Pure, and the only place where rules and grants meet.
#[must_use]
pub fn review(review: &CallReview<'_>) -> Decision {
    if let Some(denial) = review.rule_denial() {
        return Decision::Denied(denial);
    }
    let grant = effective(review.lineage);
    let mut asked = Vec::new();
    for effect in review.effects {
        match judge(std::slice::from_ref(effect), &grant) {
            Verdict::Allowed(_) => asked.extend(review.asking_rule(effect).map(|why| (effect, why))),
            Verdict::Denied(denial) => match review.own_asking_rule(&denial, &grant) {
                Some(why) => asked.push((effect, why)),
                None => return Decision::Denied(denial),
            },
        }
    }
    let open: Vec<_> = asked.iter().filter(|(effect, _)| !review.is_approved(effect)).collect();
    if !open.is_empty() {
        let mut reasons: Vec<&str> = open.iter().map(|(_, why)| why.as_str()).collect();
        reasons.dedup();
        let effects = open.iter().map(|(effect, _)| (*effect).clone()).collect();
        return Decision::Ask(Question { effects, reason: reasons.join("; ") });
    }
    let grant = Grant { hosts: grant.hosts.intersection(&review.redirect_hosts()), ..grant };
    let widened = grant.widened_by(asked.iter().map(|(effect, _)| *effect));
    let is_asked = |effect: &Effect| asked.iter().any(|(other, _)| std::ptr::eq(*other, effect));
    let grants =
        review.effects.iter().map(|effect| (effect, if is_asked(effect) { &widened } else { &grant }));
    match judge_each(grants) {
        Verdict::Allowed(permit) => Decision::Allowed(permit),
        Verdict::Denied(denial) => Decision::Denied(denial),
    }
}

impl CallReview<'_> {
    /// The rules that apply to the agent, each with the position in the lineage of the agent that has it.
    fn rules(&self, action: RuleAction) -> impl Iterator<Item = (usize, &RuleEntry)> {
        self.lineage.iter().enumerate().flat_map(move |(index, link)| {
            let applies = move |entry: &&RuleEntry| {
                entry.action == action && (index == 0 || entry.scope == RuleScope::Subtree)
            };
            link.permissions.approvals.entries().iter().filter(applies).map(move |entry| (index, entry))
        })
    }

    fn rule_denial(&self) -> Option<Denial> {
        let mut matching = self.rules(RuleAction::Deny).filter_map(|(index, entry)| {
            let effect = self.effects.iter().find(|effect| entry.rule.matches(effect, &self.call))?;
            Some((index, entry, effect))
        });
        let (index, entry, effect) = matching.next()?;
        let text = format!("rule '{}' of agent '{}' denies it", entry.rule, self.lineage[index].agent);
        Some(Denial { effect: effect.clone(), dimension: Dimension::Rules, text })
    }

    /// Why an effect that the grant allows is asked for. `host:*` asks for hosts that are not permitted, else a list of
    /// permitted hosts would have no meaning beside it.
    fn asking_rule(&self, effect: &Effect) -> Option<String> {
        let every_host = Rule::Host(HostPattern::any());
        let asks = |(_, entry): &(usize, &RuleEntry)| {
            entry.rule != every_host && entry.rule.matches(effect, &self.call)
        };
        let (index, entry) = self.rules(RuleAction::Ask).find(asks)?;
        Some(format!("rule '{}' of agent '{}' asks for it", entry.rule, self.lineage[index].agent))
    }

    /// Why an effect that the grant forbids is asked for: a rule of the agent's own says so, and an approval could allow it.
    fn own_asking_rule(&self, denial: &Denial, grant: &Grant) -> Option<String> {
        let is_askable = match denial.dimension {
            Dimension::Read | Dimension::Write | Dimension::Commands | Dimension::Hosts => true,
            Dimension::Tools
            | Dimension::Blocked
            | Dimension::Rules
            | Dimension::Create
            | Dimension::Targets
            | Dimension::Budget(_) => false,
        };
        let effect = std::slice::from_ref(&denial.effect);
        let is_allowable = matches!(judge(effect, &grant.widened_by(effect)), Verdict::Allowed(_));
        let applies = |(index, entry): &(usize, &RuleEntry)| {
            *index == 0 && entry.rule.matches(&denial.effect, &self.call)
        };
        let (_, entry) = self.rules(RuleAction::Ask).find(applies).filter(|_| is_askable && is_allowable)?;
        let agent = &self.lineage[0].agent;
        Some(format!(
            "it is beyond the permissions of agent '{agent}', whose rule '{}' asks for it",
            entry.rule
        ))
    }

    /// The hosts to which a permitted connection may redirect, as far as rules limit them: none that a rule denies or asks
    /// for, because nothing is asked during a call.
    fn redirect_hosts(&self) -> HostSet {
        let is_asked_for = |pattern: &HostPattern| {
            let matches = |effect: &Effect| matches!(effect, Effect::Connect(to) if pattern.denies(to));
            self.effects.iter().any(matches)
        };
        let host = |(_, entry): (usize, &RuleEntry)| match &entry.rule {
            Rule::Host(pattern) => Some(pattern.clone()),
            _ => None,
        };
        let asked = self.rules(RuleAction::Ask).filter_map(host);
        let asked = asked.filter(|pattern| *pattern != HostPattern::any() && !is_asked_for(pattern));
        HostSet::all_except(self.rules(RuleAction::Deny).filter_map(host).chain(asked))
    }

    /// Whether the call was approved, or a rule allows the effect, by an authority that may grant it.
    fn is_approved(&self, effect: &Effect) -> bool {
        let may_grant =
            |index: usize, grantor| allows(effect, grantor_ceiling(&self.lineage[index..], grantor).as_ref());
        self.approved_by.is_some_and(|grantor| may_grant(0, grantor))
            || self.rules(RuleAction::Allow).any(|(index, entry)| {
                entry.rule.allows(effect, &self.call) && may_grant(index, entry.grantor)
            })
    }
}

/// Whether an authority may grant all these effects to the agent at the start of the lineage.
#[must_use]
pub fn may_approve(lineage: &[LineageLink], grantor: Grantor, effects: &[Effect]) -> bool {
    let limit = grantor_ceiling(lineage, grantor);
    effects.iter().all(|effect| allows(effect, limit.as_ref()))
}

fn allows(effect: &Effect, limit: Option<&Grant>) -> bool {
    limit.is_none_or(|limit| matches!(judge(std::slice::from_ref(effect), limit), Verdict::Allowed(_)))
}

/// The most that an authority may grant to the agent at the start of the lineage; `None` without a limit.
fn grantor_ceiling(lineage: &[LineageLink], grantor: Grantor) -> Option<Grant> {
    let ancestors = match grantor {
        Grantor::Admin => return None,
        Grantor::Creator => lineage.get(1..).unwrap_or_default(),
        Grantor::Agent(serial) => {
            let position = lineage.iter().skip(1).position(|link| link.serial == serial);
            let Some(position) = position else { return Some(Grant::nothing()) };
            &lineage[position + 1..]
        }
    };
    Some(ceiling(ancestors.iter().map(|link| &*link.permissions)))
}
