//! Audit trail of denied tool calls: agent, tool, rule and reason, written to the journal and to the log target
//! `nexus3::audit`. Denied calls from clients are recorded by `rpc`.

use agent::PrincipalId;
use agent::journal::Record;

use crate::handle::Shared;

/// Records a denied tool call.
pub(crate) fn record_denied_tool(agent: &Shared, tool: &str, rule: &str, text: &str) {
    let principal = PrincipalId::Agent(agent.id.clone());
    tracing::warn!(
        target: "nexus3::audit",
        event = "denied", %principal, action = tool, rule, "{text}"
    );
    agent.enqueue_record(Record::Denied {
        principal,
        action: tool.to_owned(),
        rule: rule.to_owned(),
        text: text.to_owned(),
    });
}
