//! Resource limits of the runtime. Exceeding an admission limit fails with a fault of kind `Busy`.

use std::time::Duration;

/// Resource limits of the runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of agents.
    pub agents_max: usize,
    /// Turns running concurrently, over all agents.
    pub turns_running_max: usize,
    /// Open turns (running or queued), over all agents.
    pub turns_open_max: usize,
    /// Open turns per agent.
    pub agent_turns_open_max: usize,
    /// Model calls per turn.
    pub tool_iterations_max: u64,
    /// Tool calls of one turn running concurrently.
    pub tools_running_max: usize,
    /// Maximum bytes of one tool result in the context.
    pub tool_result_bytes_max: usize,
    /// Maximum bytes of full tool results cached after truncation, over all agents.
    pub output_cache_bytes_max: usize,
    /// Maximum bytes of one model response: text, reasoning and tool calls.
    pub answer_bytes_max: usize,
    /// Maximum bytes of the model responses of all running turns, except the first 64 KiB of each turn.
    pub running_answers_bytes_max: usize,
    /// Deadline for a compaction summary.
    pub summary_timeout: Duration,
    /// Idle timeout of a model stream.
    pub model_idle_timeout: Duration,
    /// Agents live at once; beyond it, the least recently used idle agents are put to sleep.
    pub live_agents_max: usize,
    /// Idle time before an agent is put to sleep; zero disables it.
    pub idle_before_sleep: Duration,
    /// How long a tool call waits for an approval.
    pub approval_timeout: Duration,
    /// How long the request id and the response of an ended turn stay stored.
    pub request_retention: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            agents_max: 100_000,
            turns_running_max: 256,
            turns_open_max: 8_448,
            agent_turns_open_max: 1_025,
            tool_iterations_max: 10,
            tools_running_max: 10,
            tool_result_bytes_max: 1_048_576,
            output_cache_bytes_max: 64 << 20,
            answer_bytes_max: 8 << 20,
            running_answers_bytes_max: 64 << 20,
            summary_timeout: Duration::from_secs(120),
            model_idle_timeout: Duration::from_secs(120),
            live_agents_max: 4096,
            idle_before_sleep: Duration::from_secs(600),
            approval_timeout: Duration::from_secs(600),
            request_retention: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// Retry delay returned with `Busy`.
pub(crate) const RETRY_AFTER_MS: u64 = 250;
