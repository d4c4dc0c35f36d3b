//! What an agent is told beside its messages: its prompt when it has none of its own, the tools its model is shown, and
//! what rides behind the last message. The words are in [`agent::prompt`].

use std::sync::Arc;

use agent::outside::{ModelTier, Provider, Workspace};
use agent::permission::{FilePath, Resource};
use agent::prompt::{PromptEnvironment, VolatileFacts, layered_prompt, volatile_suffix};
use agent::{TokenCount, ToolSpec};

use crate::handle::Shared;

/// What agents are told beside their messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContextOptions {
    /// The prompt of an agent that has none, when the pool has none either.
    pub prompt: DefaultPrompt,
    /// Whether the time, the state of the working directory and what is left of budgets ride behind the last message.
    pub volatile_suffix: VolatileSuffix,
    /// The operating system, for the environment; empty is not known.
    pub operating_system: &'static str,
}

/// The prompt of an agent that has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DefaultPrompt {
    /// There is none.
    #[default]
    Nothing,
    /// The built-in words, the notes of the owner and of the project, the environment.
    Layers,
}

/// Whether there is a tail.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum VolatileSuffix {
    /// There is none.
    #[default]
    Off,
    /// There is one.
    On,
}

/// Tools that a small model is shown, in the order of what it needs most.
const SMALL_MODEL_TOOLS: [&str; 6] =
    ["fs.read_file", "fs.write_file", "get_time", "json.query", "fs.append_file", "result.read"];

/// What their descriptions may take together: with a short prompt, not more than 300 tokens.
const SMALL_MODEL_TOOLS_TOKENS_MAX: TokenCount = 220;

/// The prompt of an agent that has none of its own. It is read once, when the agent is made, and kept with it.
pub(crate) fn default_prompt(
    workspace: &dyn Workspace,
    provider: &dyn Provider,
    cwd: &FilePath,
    writes: &[FilePath],
    system: &str,
) -> String {
    let traits = provider.spec();
    let notes = if traits.tier == ModelTier::Small { Vec::new() } else { workspace.notes(cwd) };
    let environment = PromptEnvironment { cwd, writable_paths: writes, operating_system: system };
    layered_prompt(traits, &notes, &environment, &|text| provider.count(text))
}

/// Those of the tools that a small model is shown.
fn select_for_small_model(tools: &[Arc<ToolSpec>]) -> Vec<Arc<ToolSpec>> {
    let mut left = SMALL_MODEL_TOOLS_TOKENS_MAX;
    let wanted = SMALL_MODEL_TOOLS.iter().filter_map(|name| tools.iter().find(|tool| &*tool.name == *name));
    let fits = |tool: &&Arc<ToolSpec>| {
        let fits = tool.tokens <= left;
        left -= if fits { tool.tokens } else { 0 };
        fits
    };
    wanted.filter(fits).cloned().collect()
}

impl Shared {
    /// The tools a model is shown: those it may use now, and a small one only a few of them.
    pub(crate) fn visible_tools(&self) -> Vec<Arc<ToolSpec>> {
        let Some(pool) = self.pool.upgrade() else { return Vec::new() };
        let may_use = self.node.tool_filter();
        let specs = pool.outside.tools.all().iter().map(|tool| tool.spec());
        let tools: Vec<_> = specs.filter(|spec| may_use(&spec.name)).map(Arc::clone).collect();
        match self.provider.spec().tier {
            ModelTier::Full => tools,
            ModelTier::Small => select_for_small_model(&tools),
        }
    }

    /// What is under way in the working directory.
    pub(crate) fn workspace_state(&self) -> Option<String> {
        let pool =
            self.pool.upgrade().filter(|pool| pool.options.context.volatile_suffix == VolatileSuffix::On)?;
        pool.outside.workspace.status_line(&self.node.cwd)
    }

    /// What rides behind the last message now.
    pub(crate) fn volatile_suffix(&self, state: Option<&str>) -> Option<String> {
        self.pool.upgrade().filter(|pool| pool.options.context.volatile_suffix == VolatileSuffix::On)?;
        let at = self.clock.now();
        let left = |resource: Resource| self.node.remaining(resource).map(|left| (resource.name(), left));
        let left: Vec<_> = Resource::CONSUMED.into_iter().filter_map(left).collect();
        let offset_minutes = self.clock.offset_minutes(at);
        Some(volatile_suffix(&VolatileFacts {
            at,
            offset_minutes,
            workspace_status: state,
            budget_left: &left,
        }))
    }

    /// About what the tail of the next question is.
    pub(crate) fn volatile_suffix_tokens(&self) -> TokenCount {
        match self.published.read().volatile_suffix_tokens {
            0 => self.volatile_suffix(None).map_or(0, |suffix| self.provider.count(&suffix)),
            known => known,
        }
    }
}
