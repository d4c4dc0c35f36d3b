//! Methods that list and answer approval requests, and approval rules in the protocol's form.

use agent::journal::ApprovalRequest;
use agent::outside::{AnswerScope, NewAnswer};
use agent::permission::{Grantor, Rule, RuleAction, RuleEntry, RuleScope};
use agent::{AgentId, Fault};
use nexus3_protocol::methods::{
    AnswerApprovalOutput, AnswerApprovalParams, ApprovalDecision, ApprovalScope, ApprovalView,
    ListApprovalsOutput, ListApprovalsParams, RuleView, spec,
};
use serde_json::Value;

use super::agents::{invalid, parse_id};
use crate::caller::Principal;
use crate::dispatcher::Dispatcher;
use crate::local_time::format_utc;
use crate::operation::Handler;

impl Handler<spec::ListApprovals> for Dispatcher {
    async fn handle(
        &self,
        principal: &Principal,
        _: &(),
        params: ListApprovalsParams,
    ) -> Result<ListApprovalsOutput, Fault> {
        let top = params.agent_id.as_deref().map(|id| parse_id("agent_id", id)).transpose()?;
        let principal = principal.wake(&self.pool).await?;
        let pending = self.pool.approvals(principal.initiator())?;
        let views = pending.iter().map(|pending| ApprovalView {
            approval_id: pending.request.id.clone(),
            agent_id: pending.agent.to_string(),
            ancestors: pending.ancestors.iter().map(AgentId::to_string).collect(),
            tool: pending.request.tool.clone(),
            arguments: approval_arguments(&pending.request),
            effects: pending.request.effects.clone(),
            reason: pending.request.reason.clone(),
            asked_at: format_utc(pending.request.asked_at),
            expires_at: format_utc(pending.request.expires_at),
        });
        let is_below = |view: &ApprovalView| {
            top.as_ref().is_none_or(|top| {
                view.agent_id == top.as_str()
                    || view.ancestors.iter().any(|ancestor| ancestor == top.as_str())
            })
        };
        Ok(ListApprovalsOutput { approvals: views.filter(is_below).collect() })
    }
}

/// Maximum length of a note.
const NOTE_BYTES_MAX: usize = 4096;

impl Handler<spec::AnswerApproval> for Dispatcher {
    async fn handle(
        &self,
        principal: &Principal,
        _: &(),
        params: AnswerApprovalParams,
    ) -> Result<AnswerApprovalOutput, Fault> {
        if params.note.as_ref().is_some_and(|note| note.len() > NOTE_BYTES_MAX) {
            return Err(invalid(&format!("note must have at most {NOTE_BYTES_MAX} bytes")));
        }
        let answer = NewAnswer {
            is_allowed: params.answer == ApprovalDecision::Allow,
            scope: match params.scope.unwrap_or_default() {
                ApprovalScope::Once => AnswerScope::Once,
                ApprovalScope::Agent => AnswerScope::Rule(RuleScope::Agent),
                ApprovalScope::Subtree => AnswerScope::Rule(RuleScope::Subtree),
            },
            rule: params.rule.as_deref().map(|text| parse_rule("rule", text)).transpose()?,
            note: params.note,
        };
        let principal = principal.wake(&self.pool).await?;
        let answered = self.pool.answer_approval(&params.approval_id, answer, principal.initiator()).await?;
        Ok(AnswerApprovalOutput {
            approval_id: answered.id,
            answer: decision_to_wire(answered.is_allowed),
            rule: answered.rule.as_ref().map(rule_view),
        })
    }
}

pub(crate) fn decision_to_wire(is_allowed: bool) -> ApprovalDecision {
    if is_allowed { ApprovalDecision::Allow } else { ApprovalDecision::Deny }
}

/// The arguments as JSON, or as a text if they are none.
pub(crate) fn approval_arguments(request: &ApprovalRequest) -> Value {
    serde_json::from_str(&request.arguments).unwrap_or_else(|_| Value::String(request.arguments.clone()))
}

pub(crate) fn rule_view(entry: &RuleEntry) -> RuleView {
    RuleView {
        action: entry.action.name().to_owned(),
        rule: entry.rule.to_string(),
        scope: entry.scope.name().to_owned(),
        granted_by: match entry.grantor {
            Grantor::Admin => "admin".to_owned(),
            Grantor::Creator => "creator".to_owned(),
            Grantor::Agent(serial) => format!("serial:{serial}"),
        },
    }
}

fn parse_rule(parameter: &str, text: &str) -> Result<Rule, Fault> {
    Rule::parse(text).map_err(|fault| invalid(&format!("{parameter}: {fault}")))
}

/// Parses the parameters `ask`, `allow` and `deny`; absent ones are left out.
pub(crate) fn parse_rule_lists(
    ask: Option<Vec<String>>,
    allow: Option<Vec<String>>,
    deny: Option<Vec<String>>,
) -> Result<Vec<(RuleAction, Vec<Rule>)>, Fault> {
    let lists = [(RuleAction::Ask, ask), (RuleAction::Allow, allow), (RuleAction::Deny, deny)];
    let given = lists.into_iter().filter_map(|(action, texts)| Some((action, texts?)));
    let parse = |(action, texts): (RuleAction, Vec<String>)| {
        let rules = texts.iter().map(|text| parse_rule(action.name(), text)).collect::<Result<_, _>>()?;
        Ok((action, rules))
    };
    given.map(parse).collect()
}

/// The same as entries of a new agent.
pub(crate) fn parse_rules(
    ask: Option<Vec<String>>,
    allow: Option<Vec<String>>,
    deny: Option<Vec<String>>,
) -> Result<Vec<RuleEntry>, Fault> {
    let lists = parse_rule_lists(ask, allow, deny)?;
    let entries = |(action, rules): (RuleAction, Vec<Rule>)| {
        rules.into_iter().map(move |rule| RuleEntry::of_creator(action, rule))
    };
    Ok(lists.into_iter().flat_map(entries).collect())
}
