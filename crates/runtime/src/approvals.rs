//! Approval inbox: the tool calls of all agents that wait for an approval, and their answers. The first answer wins; it
//! is committed to the journal of the asking agent before its call continues.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use agent::journal::{ApprovalAnswer, ApprovalRequest, Record, StoredPermissions};
use agent::outside::{AnswerScope, NewAnswer, PendingApproval, StoreFault};
use agent::permission::{
    ApprovalRules, CallText, Effect, Grantor, Permissions, Question, RULES_MAX, Rule, RuleAction, RuleEntry,
    may_approve,
};
use agent::{Fault, FaultKind, PrincipalId};
use tokio::sync::{oneshot, watch};

use crate::admission::shutting_down;
use crate::handle::{AgentHandle, Shared};
use crate::lineage::{GrantedPermissions, LineageNode};
use crate::pool::{Initiator, OwnedInitiator, PermissionSpec, Pool, PoolHandle};

/// The tool that lists approval requests; an agent that calls the RPC method needs permission for it too.
const LIST_TOOL: &str = "approvals_list";

/// The tool that answers approval requests.
const ANSWER_TOOL: &str = "approvals_answer";

/// Number of answered requests that are remembered, so that a late answer gets a precise error.
const ANSWERED_MAX: usize = 1024;

/// The answer to requests that are not answered in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DefaultAnswer {
    /// The call is denied.
    #[default]
    Deny,
    /// The call runs.
    Allow,
}

/// Open and recently answered approval requests.
pub(crate) struct ApprovalInbox {
    state: Mutex<InboxState>,
    /// Increases with every change.
    version: watch::Sender<u64>,
}

#[derive(Default)]
struct InboxState {
    open: BTreeMap<String, OpenApproval>,
    answered: VecDeque<AnsweredApproval>,
}

struct OpenApproval {
    request: Arc<ApprovalRequest>,
    effects: Arc<[Effect]>,
    shared: Arc<Shared>,
    reply: Option<oneshot::Sender<ApprovalAnswer>>,
    /// Whether an answer is being committed.
    is_claimed: bool,
}

struct AnsweredApproval {
    node: Arc<LineageNode>,
    answer: ApprovalAnswer,
}

impl Default for ApprovalInbox {
    fn default() -> Self {
        Self { state: Mutex::default(), version: watch::Sender::new(0) }
    }
}

impl ApprovalInbox {
    fn state(&self) -> MutexGuard<'_, InboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    /// Adds a request until its ticket is dropped.
    fn open(
        self: &Arc<Self>,
        shared: Arc<Shared>,
        request: Arc<ApprovalRequest>,
        effects: Arc<[Effect]>,
    ) -> (Ticket, oneshot::Receiver<ApprovalAnswer>) {
        let (reply, receiver) = oneshot::channel();
        let id = request.id.clone();
        let open = OpenApproval { request, effects, shared, reply: Some(reply), is_claimed: false };
        self.state().open.insert(id.clone(), open);
        self.notify();
        (Ticket { inbox: Arc::clone(self), id }, receiver)
    }

    /// Claims a request for one answer.
    fn claim(self: &Arc<Self>, id: &str, is_visible: impl Fn(&LineageNode) -> bool) -> Result<Claim, Fault> {
        let mut state = self.state();
        let is_answered =
            |answered: &&AnsweredApproval| answered.answer.id == id && is_visible(&answered.node);
        if let Some(AnsweredApproval { answer, .. }) = state.answered.iter().find(is_answered) {
            let verb = if answer.is_allowed { "allowed" } else { "denied" };
            let by = if answer.by == PrincipalId::Auto {
                "its time limit".to_owned()
            } else {
                answer.by.to_string()
            };
            let text = format!("approval {id} was answered already: {verb} by {by}");
            return Err(Fault::new(FaultKind::Invalid, text));
        }
        let open = state.open.get_mut(id).filter(|open| is_visible(&open.shared.node));
        let open = open.ok_or_else(|| approval_not_found(id))?;
        if std::mem::replace(&mut open.is_claimed, true) {
            return Err(Fault::new(FaultKind::Invalid, format!("approval {id} is being answered already")));
        }
        Ok(Claim {
            inbox: Arc::clone(self),
            id: id.to_owned(),
            request: Arc::clone(&open.request),
            effects: Arc::clone(&open.effects),
            shared: Arc::clone(&open.shared),
        })
    }
}

fn approval_not_found(id: &str) -> Fault {
    let id: String = id.chars().take(64).collect();
    Fault::new(FaultKind::NotFound, format!("Approval not found: {id}"))
}

/// Removes its request when dropped: the turn ended, or the answer arrived.
struct Ticket {
    inbox: Arc<ApprovalInbox>,
    id: String,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.inbox.state().open.remove(&self.id);
        self.inbox.notify();
    }
}

/// The exclusive right to answer a request; a claim that is dropped without an answer is free again.
struct Claim {
    inbox: Arc<ApprovalInbox>,
    id: String,
    request: Arc<ApprovalRequest>,
    effects: Arc<[Effect]>,
    shared: Arc<Shared>,
}

impl Claim {
    /// Delivers the committed answer.
    fn finish(self, answer: ApprovalAnswer) {
        let mut state = self.inbox.state();
        if let Some(reply) = state.open.get_mut(&self.id).and_then(|open| open.reply.take()) {
            // The turn may have ended meanwhile.
            let _ = reply.send(answer.clone());
        }
        if state.answered.len() >= ANSWERED_MAX {
            state.answered.pop_front();
        }
        state.answered.push_back(AnsweredApproval { node: Arc::clone(&self.shared.node), answer });
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(open) = self.inbox.state().open.get_mut(&self.id) {
            open.is_claimed = open.reply.is_none();
        }
    }
}

/// Waits for the answer to a committed request; after its time limit, commits the default answer. Dropping the future
/// withdraws the request.
pub(crate) async fn wait_for_answer(
    shared: Arc<Shared>,
    request: ApprovalRequest,
    question: Question,
) -> ApprovalAnswer {
    let withdrawn = unanswered(&request, "the daemon is stopping");
    let Some(inbox) = shared.pool.upgrade().map(|pool| Arc::clone(&pool.approvals)) else { return withdrawn };
    let left_us = request.expires_at.0.saturating_sub(shared.clock.now().0);
    let left = Duration::from_micros(u64::try_from(left_us).unwrap_or_default());
    let (id, pool) = (request.id.clone(), Weak::clone(&shared.pool));
    let (_ticket, mut receiver) = inbox.open(shared, Arc::new(request), question.effects.into());
    if let Ok(answer) = tokio::time::timeout(left, &mut receiver).await {
        return answer.unwrap_or(withdrawn);
    }
    let Some(pool) = pool.upgrade() else { return withdrawn };
    // Refused if another answer is being committed: then that one counts.
    if let Err(fault) = pool.answer_expired(&id).await {
        tracing::debug!(approval = id, "default answer not given: {fault}");
    }
    drop(pool);
    tokio::time::timeout(COMMIT_GRACE, receiver).await.ok().and_then(Result::ok).unwrap_or(withdrawn)
}

/// How long a call waits for the commit of an answer after its time limit, before it is denied.
const COMMIT_GRACE: Duration = Duration::from_secs(30);

/// A denial that no answer stands behind.
fn unanswered(request: &ApprovalRequest, why: &str) -> ApprovalAnswer {
    ApprovalAnswer {
        id: request.id.clone(),
        turn: request.turn,
        index: request.index,
        is_allowed: false,
        by: PrincipalId::Auto,
        grantor: Grantor::Admin,
        rule: None,
        note: Some(why.to_owned()),
    }
}

impl PoolHandle {
    /// Lists the approval requests, the oldest first: for an agent those of its descendants.
    ///
    /// # Errors
    /// When the agent may not list them.
    pub fn approvals(&self, initiator: Initiator<'_>) -> Result<Vec<PendingApproval>, Fault> {
        let viewer = approver(initiator, LIST_TOOL)?;
        let state = self.pool.approvals.state();
        let open = state
            .open
            .values()
            .filter(|open| open.reply.is_some() && is_visible_to(viewer, &open.shared.node));
        let mut approvals: Vec<_> = open
            .map(|open| PendingApproval {
                agent: open.shared.id.clone(),
                ancestors: open.shared.node.ancestors().map(LineageNode::id).collect(),
                request: Arc::clone(&open.request),
            })
            .collect();
        drop(state);
        approvals.sort_by_key(|approval| approval.request.asked_at);
        Ok(approvals)
    }

    /// Waits until the list of requests is not empty, at most this long, and returns it.
    ///
    /// # Errors
    /// When the agent may not list them.
    pub async fn wait_for_approvals(
        &self,
        initiator: Initiator<'_>,
        timeout: Duration,
    ) -> Result<Vec<PendingApproval>, Fault> {
        let mut version = self.pool.approvals.version.subscribe();
        let deadline = tokio::time::Instant::now() + timeout;
        loop {
            version.mark_unchanged();
            let approvals = self.approvals(initiator)?;
            let is_over = tokio::time::timeout_at(deadline, async {
                if approvals.is_empty() { version.changed().await.is_err() } else { true }
            });
            if is_over.await.unwrap_or(true) {
                return Ok(approvals);
            }
        }
    }

    /// Answers an approval request. The first answer wins.
    ///
    /// # Errors
    /// When there is no such request, it was answered already, the initiator may not grant it, or the commit failed.
    pub async fn answer_approval(
        &self,
        id: &str,
        answer: NewAnswer,
        initiator: Initiator<'_>,
    ) -> Result<ApprovalAnswer, Fault> {
        let (pool, id) = (Arc::clone(&self.pool), id.to_owned());
        let initiator = OwnedInitiator::from_initiator(initiator);
        // Detached: an answer that is being committed is delivered, even if the caller leaves.
        let answered = async move { pool.answer_approval(&id, answer, initiator.as_initiator()).await };
        self.pool.run_detached(answered).await
    }
}

/// The agent that answers, or `None` for an admin.
fn approver<'a>(initiator: Initiator<'a>, tool: &str) -> Result<Option<&'a AgentHandle>, Fault> {
    let Initiator::Agent(agent) = initiator else { return Ok(None) };
    let authorized = agent.node().authorize(&[Effect::Use(tool.into())]);
    authorized.map_err(|denial| Fault::denied(denial.dimension.name(), denial.text))?;
    Ok(Some(agent))
}

/// An agent answers for its descendants, never for itself.
fn is_visible_to(viewer: Option<&AgentHandle>, node: &LineageNode) -> bool {
    viewer.is_none_or(|viewer| node.is_descendant_of(viewer.node()))
}

impl Pool {
    async fn answer_approval(
        &self,
        id: &str,
        new: NewAnswer,
        initiator: Initiator<'_>,
    ) -> Result<ApprovalAnswer, Fault> {
        let answerer = approver(initiator, ANSWER_TOOL)?;
        let claim = self.approvals.claim(id, |node| is_visible_to(answerer, node))?;
        let grantor = answerer.map_or(Grantor::Admin, |agent| Grantor::Agent(agent.node().serial));
        if new.is_allowed && !may_approve(&claim.shared.node.lineage(), grantor, &claim.effects) {
            let text = format!("approval {id} exceeds what {} may grant", initiator.principal_id());
            return Err(Fault::denied("approvals", text));
        }
        let rule = self.answered_rule(&claim, &new, grantor)?;
        let answer = ApprovalAnswer {
            id: id.to_owned(),
            turn: claim.request.turn,
            index: claim.request.index,
            is_allowed: new.is_allowed,
            by: initiator.principal_id(),
            grantor,
            rule,
            note: new.note,
        };
        self.commit_answer(claim, answer).await
    }

    async fn answer_expired(&self, id: &str) -> Result<ApprovalAnswer, Fault> {
        let claim = self.approvals.claim(id, |_| true)?;
        let is_allowed = self.options.approval_default == DefaultAnswer::Allow;
        let seconds = self.options.limits.approval_timeout.as_secs();
        let note = format!("no answer within {seconds} s");
        let answer = ApprovalAnswer { is_allowed, ..unanswered(&claim.request, &note) };
        self.commit_answer(claim, answer).await
    }

    /// The rule that an answer adds to the asking agent.
    fn answered_rule(
        &self,
        claim: &Claim,
        new: &NewAnswer,
        grantor: Grantor,
    ) -> Result<Option<RuleEntry>, Fault> {
        let invalid = |text: String| Fault::new(FaultKind::Invalid, text);
        let scope = match (new.scope, &new.rule) {
            (AnswerScope::Once, None) => return Ok(None),
            (AnswerScope::Once, Some(_)) => {
                return Err(invalid("a rule needs scope 'agent' or 'subtree'".to_owned()));
            }
            (AnswerScope::Rule(scope), _) => scope,
        };
        let ApprovalRequest { tool, arguments, .. } = &*claim.request;
        let rule = match &new.rule {
            Some(rule) => self.canonical_rule(rule.clone()),
            None => Rule::parse(&format!("{tool} {arguments}")).map_err(|_| {
                invalid("the arguments are too long for a rule of exactly this call: pass a rule".to_owned())
            })?,
        };
        let call = CallText { tool, arguments };
        let applies = |effect: &&Effect| {
            if new.is_allowed { rule.allows(effect, &call) } else { rule.matches(effect, &call) }
        };
        if let Some(effect) = claim.effects.iter().find(|effect| !applies(effect)) {
            return Err(invalid(format!("rule '{rule}' does not match what is asked: {effect}")));
        }
        let action = if new.is_allowed { RuleAction::Allow } else { RuleAction::Deny };
        Ok(Some(RuleEntry { action, rule, scope, grantor }))
    }

    /// Commits an answer together with its rule, then delivers it.
    async fn commit_answer(&self, claim: Claim, answer: ApprovalAnswer) -> Result<ApprovalAnswer, Fault> {
        let shared = Arc::clone(&claim.shared);
        let mut records = vec![Record::ApprovalAnswered(Box::new(answer.clone()))];
        match &answer.rule {
            None => shared.append(records, |_| {}).await?,
            Some(entry) => {
                let _change_guard = shared.node.lock_for_change().await;
                let before = shared.node.granted();
                let granted = with_rule(&before, entry)?;
                let permissions = Box::new((*granted.stored).clone());
                records.push(Record::PermissionsChanged { by: answer.by.clone(), permissions });
                self.commit_rule(&shared, granted, before, records).await?;
            }
        }
        tracing::info!(
            target: "nexus3::audit",
            event = "answered", principal = %answer.by, action = %claim.request.tool, agent = %shared.id,
            approval = %answer.id, allowed = answer.is_allowed, "approval answered"
        );
        claim.finish(answer.clone());
        self.approvals.notify();
        Ok(answer)
    }

    async fn commit_rule(
        &self,
        shared: &Shared,
        granted: GrantedPermissions,
        before: GrantedPermissions,
        records: Vec<Record>,
    ) -> Result<(), StoreFault> {
        // The limits stay, so neither call can fail.
        let _ = shared.node.set_granted(granted);
        let committed = shared.append(records, |_| {}).await;
        if committed.is_err() {
            let _ = shared.node.set_granted(before);
        }
        self.count_permission_change();
        committed
    }
}

/// The permissions with one more rule.
fn with_rule(before: &GrantedPermissions, entry: &RuleEntry) -> Result<GrantedPermissions, Fault> {
    let with = |rules: &[RuleEntry]| [rules, std::slice::from_ref(entry)].concat();
    let own = before.permissions.approvals.entries();
    if own.len() >= RULES_MAX {
        let text =
            format!("the agent has {RULES_MAX} approval rules already: replace them with set_permissions");
        return Err(Fault::new(FaultKind::Invalid, text));
    }
    Ok(GrantedPermissions {
        permissions: Arc::new(Permissions {
            approvals: Arc::new(ApprovalRules::new(with(own))),
            ..(*before.permissions).clone()
        }),
        spec: Arc::new(PermissionSpec { rules: with(&before.spec.rules), ..(*before.spec).clone() }),
        stored: Arc::new(StoredPermissions { rules: with(&before.stored.rules), ..(*before.stored).clone() }),
        ..before.clone()
    })
}

/// A new request for an approval.
pub(crate) struct NewApproval<'a> {
    pub(crate) turn: u64,
    pub(crate) index: usize,
    pub(crate) call: &'a agent::ToolCall,
    pub(crate) tool: &'a str,
    pub(crate) question: &'a Question,
}

impl Shared {
    /// Builds a request; it is open once its record is committed and [`wait_for_answer`] runs.
    pub(crate) fn new_approval(&self, new: &NewApproval<'_>) -> Result<ApprovalRequest, Fault> {
        let pool = self.pool.upgrade().ok_or_else(shutting_down)?;
        let mut bytes = [0; 8];
        pool.outside.entropy.fill(&mut bytes)?;
        let (asked_at, timeout) = (self.clock.now(), self.limits.approval_timeout);
        let timeout_us = i64::try_from(timeout.as_micros()).unwrap_or(i64::MAX);
        let redact = |text: &str| self.known_secrets.redact(text).into_owned();
        Ok(ApprovalRequest {
            id: format!("{:016x}", u64::from_be_bytes(bytes)),
            turn: new.turn,
            index: new.index,
            call_id: new.call.id.clone(),
            tool: new.tool.to_owned(),
            arguments: redact(&new.call.arguments),
            effects: new.question.effects.iter().map(|effect| redact(&effect.to_string())).collect(),
            reason: redact(&new.question.reason),
            asked_at,
            expires_at: agent::outside::Timestamp(asked_at.0.saturating_add(timeout_us)),
        })
    }
}
