//! Request content beside the messages: the default system prompt, the tools visible to the model, and the volatile
//! suffix after the last message. The texts are in [`agent::prompt`].

use std::sync::Arc;

use agent::outside::{ModelTier, Provider, ToolSet, Workspace};
use agent::permission::{FilePath, NameSet, Resource};
use agent::prompt::{PromptEnvironment, VolatileFacts, layered_prompt, volatile_suffix};
use agent::{TodoItem, TokenCount, ToolSpec};

use crate::handle::Shared;

/// Options for the prompt and the volatile suffix.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContextOptions {
    /// System prompt of an agent without one, if the pool has no default either.
    pub prompt: DefaultPrompt,
    /// Whether the time, the workspace status and the remaining budgets are appended after the last message.
    pub volatile_suffix: VolatileSuffix,
    /// Operating system named in the prompt; empty if unknown.
    pub operating_system: &'static str,
}

/// System prompt of an agent without one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DefaultPrompt {
    /// None.
    #[default]
    Nothing,
    /// Built-in prompt, notes of the owner and of the project, environment.
    Layers,
}

/// Whether requests carry a volatile suffix.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum VolatileSuffix {
    /// None.
    #[default]
    Off,
    /// Appended to each request.
    On,
}

/// Tools visible to a small model, most important first: those with which it works on files.
const SMALL_MODEL_TOOLS: [&str; 8] = [
    "fs.read_file",
    "fs.list",
    "fs.search",
    "fs.edit",
    "fs.write_file",
    "shell.exec",
    "result.read",
    "fs.glob",
];

/// Token budget of their brief specifications: together with a short prompt at most 400 tokens.
const SMALL_MODEL_TOOLS_TOKENS_MAX: TokenCount = 300;

/// Builds the default system prompt. Called once, at creation; the result is stored with the agent.
pub(crate) fn default_prompt(
    workspace: &dyn Workspace,
    provider: &dyn Provider,
    cwd: &FilePath,
    writable_paths: &[FilePath],
    operating_system: &str,
) -> String {
    let spec = provider.spec();
    let notes = if spec.tier == ModelTier::Small { Vec::new() } else { workspace.notes(cwd) };
    let environment = PromptEnvironment { cwd, writable_paths, operating_system };
    layered_prompt(spec, &notes, &environment, &|text| provider.count(text))
}

/// Selects the tools for a small model, with their brief specifications.
fn select_for_small_model(tools: &[Arc<ToolSpec>]) -> Vec<Arc<ToolSpec>> {
    let mut tokens_left = SMALL_MODEL_TOOLS_TOKENS_MAX;
    let candidates =
        SMALL_MODEL_TOOLS.iter().filter_map(|name| tools.iter().find(|tool| &*tool.name == *name));
    let brief = candidates.map(|tool| tool.brief.as_ref().unwrap_or(tool));
    let fits = |tool: &&Arc<ToolSpec>| {
        let fits = tool.tokens <= tokens_left;
        tokens_left -= if fits { tool.tokens } else { 0 };
        fits
    };
    brief.filter(fits).cloned().collect()
}

impl Shared {
    /// Returns the tools that exist now; none if the pool is gone.
    pub(crate) fn tool_set(&self) -> Arc<ToolSet> {
        self.pool.upgrade().map(|pool| pool.outside.tools.snapshot()).unwrap_or_default()
    }

    /// Returns the tools visible to the model now.
    pub(crate) fn visible_tools(&self) -> Vec<Arc<ToolSpec>> {
        self.visible_tools_of(&self.tool_set())
    }

    /// Returns the tools of a set that are visible to the model: those the agent may use now, and that are offered by
    /// default or named by its list of tools; for a small model only a few of them.
    pub(crate) fn visible_tools_of(&self, tools: &ToolSet) -> Vec<Arc<ToolSpec>> {
        let may_use = self.node.tool_filter();
        let has_list = matches!(self.node.permissions().may.tools, NameSet::Only(_));
        let is_offered = |spec: &ToolSpec| (has_list || spec.is_offered_by_default) && may_use(spec);
        let specs = tools.all().iter().map(|tool| tool.spec());
        let tools: Vec<_> = specs.filter(|spec| is_offered(spec)).map(Arc::clone).collect();
        match self.provider.spec().tier {
            ModelTier::Full => tools,
            ModelTier::Small => select_for_small_model(&tools),
        }
    }

    /// Returns the workspace status line, if the volatile suffix is on.
    pub(crate) fn workspace_status(&self) -> Option<String> {
        let pool =
            self.pool.upgrade().filter(|pool| pool.options.context.volatile_suffix == VolatileSuffix::On)?;
        pool.outside.workspace.status_line(&self.node.cwd)
    }

    /// Builds the volatile suffix, if it is on.
    pub(crate) fn volatile_suffix(&self, workspace_status: Option<&str>) -> Option<String> {
        self.pool.upgrade().filter(|pool| pool.options.context.volatile_suffix == VolatileSuffix::On)?;
        let at = self.clock.now();
        let remaining_of = |resource: Resource| Some((resource.name(), self.node.remaining(resource)?));
        let budget_left: Vec<_> = Resource::CONSUMED.into_iter().filter_map(remaining_of).collect();
        let offset_minutes = self.clock.offset_minutes(at);
        let plan = self.hidden_plan();
        Some(volatile_suffix(&VolatileFacts {
            at,
            offset_minutes,
            workspace_status,
            budget_left: &budget_left,
            plan: &plan,
        }))
    }

    /// Returns the agent's plan if no message of the context shows it, because a compaction removed the call.
    fn hidden_plan(&self) -> Vec<TodoItem> {
        let state = self.published.read();
        state.plan_at(0)
    }

    /// Estimates the token count of the next request's volatile suffix.
    pub(crate) fn volatile_suffix_tokens(&self) -> TokenCount {
        match self.published.read().volatile_suffix_tokens {
            0 => self.volatile_suffix(None).map_or(0, |suffix| self.provider.count(&suffix)),
            known => known,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(is_permitted: impl Fn(&str) -> bool) -> (Vec<String>, TokenCount) {
        let mut tools = tools::builtin_specs();
        tools.retain(|tool| is_permitted(&tool.name));
        let selected = select_for_small_model(&tools);
        (
            selected.iter().map(|tool| tool.name.to_string()).collect(),
            selected.iter().map(|tool| tool.tokens).sum(),
        )
    }

    #[test]
    fn small_model_gets_the_tools_for_work() {
        let (names, tokens) = selected(|_| true);
        let expected = ["fs.read_file", "fs.list", "fs.search", "fs.edit", "fs.write_file", "shell.exec"];
        assert_eq!(names, expected);
        assert!(tokens <= SMALL_MODEL_TOOLS_TOKENS_MAX, "{tokens}");
        let reads = |name: &str| !["fs.edit", "fs.write_file", "shell.exec"].contains(&name);
        let (names, tokens) = selected(reads);
        assert_eq!(names, ["fs.read_file", "fs.list", "fs.search", "result.read", "fs.glob"]);
        assert!(tokens <= SMALL_MODEL_TOOLS_TOKENS_MAX, "{tokens}");
    }

    #[test]
    fn every_tool_for_small_models_exists() {
        let specs = tools::builtin_specs();
        for name in SMALL_MODEL_TOOLS {
            assert!(specs.iter().any(|spec| &*spec.name == name && spec.is_offered_by_default), "{name}");
        }
    }
}
