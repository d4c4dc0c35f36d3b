//! `approvals_answer`: answers an approval request of a descendant.

use agent::outside::{AnswerScope, CallSite, NewAnswer};
use agent::permission::{Rule, RuleScope};
use agent::{Concurrency, ToolClass};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::agents::fault_outcome;
use crate::definition::{Invocation, ToolDefinition, ToolResult, compact_json, invalid_input};
use crate::effects::{AgentChange, AgentEffects, PeersHandle};

pub(crate) struct Answer;

/// Allows or denies a tool call of a descendant that waits for an approval. You can allow only what you may grant.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The request, from `approvals_list`.
    approval_id: String,
    /// The answer.
    answer: Decision,
    /// Once, or also for later calls that the rule matches: of this agent, or of its descendants too.
    #[serde(default)]
    #[schemars(extend("default" = "once"))]
    scope: Scope,
    /// The rule for later calls, such as `run:cargo test`, `host:example.com` or a tool's name; by default exactly this call.
    rule: Option<String>,
    /// A note for the agent, such as what to do instead.
    note: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Decision {
    Allow,
    Deny,
}

#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Scope {
    #[default]
    Once,
    Agent,
    Subtree,
}

#[derive(Serialize)]
struct Output {
    approval_id: String,
    answer: Decision,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
}

impl ToolDefinition for Answer {
    type Input = Input;
    type Effects = AgentChange;
    const NAME: &'static str = "approvals_answer";
    const CONCURRENCY: Concurrency = Concurrency::Ordered;
    const CLASS: ToolClass = ToolClass::Once;

    fn effects(_input: &Input, _site: &CallSite<'_>) -> Result<AgentChange, String> {
        // The runtime shows only requests of descendants.
        Ok(AgentEffects(Vec::new()))
    }

    async fn run(input: Input, peers: PeersHandle, _call: Invocation) -> ToolResult {
        let rule = input.rule.as_deref().map(Rule::parse).transpose();
        let answer = NewAnswer {
            is_allowed: input.answer == Decision::Allow,
            scope: match input.scope {
                Scope::Once => AnswerScope::Once,
                Scope::Agent => AnswerScope::Rule(RuleScope::Agent),
                Scope::Subtree => AnswerScope::Rule(RuleScope::Subtree),
            },
            rule: rule.map_err(|fault| invalid_input(fault.to_string()))?,
            note: input.note,
        };
        let answered = peers.answer_approval(input.approval_id, answer).await.map_err(fault_outcome)?;
        let rule = answered.rule.map(|entry| entry.rule.to_string());
        compact_json(&Output { approval_id: answered.id, answer: input.answer, rule })
    }
}
