//! How much the runtime takes on at once. Each limit has an answer: a fault of kind `Busy`.

use std::time::Duration;

/// The runtime's limits.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Agents that may exist.
    pub agents_max: usize,
    /// Turns that run at once, over all agents.
    pub turns_running_max: usize,
    /// Turns that are open at once, running or waiting, over all agents.
    pub turns_open_max: usize,
    /// Turns that are open at once at one agent.
    pub agent_turns_open_max: usize,
    /// How often one turn may ask the model.
    pub tool_iterations_max: u64,
    /// Calls of one turn that run at once.
    pub tools_running_max: usize,
    /// The most bytes of a tool's result that a model is shown.
    pub tool_result_bytes_max: usize,
    /// The most bytes of whole results that are held, for all agents, behind those that were cut.
    pub output_cache_bytes_max: usize,
    /// How long a model may take to sum a context up.
    pub summary_timeout: Duration,
    /// How long a model may be silent.
    pub model_idle_timeout: Duration,
    /// Agents that are live at once; beyond, those that rest longest are put to sleep.
    pub live_agents_max: usize,
    /// How long an agent rests before it is put to sleep; zero is for ever.
    pub idle_before_sleep: Duration,
    /// How long the name of a send that ended is remembered.
    pub request_retention: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            agents_max: 100_000,
            turns_running_max: 256,
            turns_open_max: 8_448,
            agent_turns_open_max: 1024,
            tool_iterations_max: 10,
            tools_running_max: 10,
            tool_result_bytes_max: 1_048_576,
            output_cache_bytes_max: 64 << 20,
            summary_timeout: Duration::from_secs(120),
            model_idle_timeout: Duration::from_secs(120),
            live_agents_max: 4096,
            idle_before_sleep: Duration::from_secs(600),
            request_retention: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// What a caller that meets a full queue is told to wait.
pub(crate) const RETRY_AFTER_MS: u64 = 250;
