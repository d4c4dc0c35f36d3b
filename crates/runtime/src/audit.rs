//! The audit trail of what agents do by themselves: every tool call that was denied, with who asked, what for, and which
//! rule said no. It stands in the journal, and as a log record of one target. Denied calls from outside are noted where
//! they are answered.

use agent::journal::Record;

use crate::handle::Shared;

/// A tool call that was not allowed.
pub(crate) fn record_denied_tool(agent: &Shared, tool: &str, rule: &str, text: &str) {
    let principal = &agent.id;
    tracing::warn!(
        target: "nexus3::audit",
        event = "denied", %principal, action = tool, rule, "{text}"
    );
    agent.enqueue_record(Record::Denied {
        principal: principal.to_string(),
        action: tool.to_owned(),
        rule: rule.to_owned(),
        text: text.to_owned(),
    });
}
