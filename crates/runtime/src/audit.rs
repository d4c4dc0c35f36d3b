//! The audit trail of what agents do by themselves: every tool call that was denied, with who asked, what for, and which
//! rule said no. Written as log records of one target; whoever collects logs keeps them apart. Denied calls from outside
//! are written where they are answered.

use agent::AgentId;

/// A tool call that was not allowed.
pub(crate) fn denied_tool(agent: &AgentId, tool: &str, rule: &str, text: &str) {
    tracing::warn!(
        target: "nexus3::audit",
        event = "denied", principal = %agent, action = tool, rule, "{text}"
    );
}
