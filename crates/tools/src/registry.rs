//! The tool registry: the built-in tools, and tools that are added and removed while the daemon runs.

use std::sync::{Arc, PoisonError, RwLock};

use agent::journal::Serial;
use agent::outside::{Tool, ToolSet, Toolbox};

use crate::{ToolDependencies, catalog};

/// The registry of all tools. A change publishes a new [`ToolSet`]; model calls in progress continue with theirs.
pub struct ToolRegistry {
    current: RwLock<Arc<ToolSet>>,
    dependencies: Arc<ToolDependencies>,
}

/// Why a tool was not added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("tool {tool} not added: {taken_by} already has the name {name}; rename one of them")]
pub struct NameTaken {
    /// The tool.
    pub tool: Arc<str>,
    /// Its name, model name or alias that finds another tool.
    pub name: Arc<str>,
    /// The other tool.
    pub taken_by: Arc<str>,
}

impl ToolRegistry {
    /// Builds all built-in tools.
    #[must_use]
    pub fn new(dependencies: ToolDependencies) -> Self {
        let dependencies = Arc::new(dependencies);
        let tools = catalog::tools(&dependencies);
        Self { current: RwLock::new(Arc::new(ToolSet::new(tools))), dependencies }
    }

    /// Adds a tool after the others: the next model call of every agent that may use it offers it.
    ///
    /// # Errors
    /// When another tool has one of its names: permissions are granted by name.
    pub fn add(&self, tool: Arc<dyn Tool>) -> Result<(), NameTaken> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let spec = tool.spec();
        let taken = spec.lookup_names().find_map(|name| Some((name, current.find(name)?)));
        if let Some((name, other)) = taken {
            let (name, taken_by) = (Arc::clone(name), Arc::clone(&other.spec().name));
            return Err(NameTaken { tool: Arc::clone(&spec.name), name, taken_by });
        }
        let mut tools = current.all().to_vec();
        tools.push(tool);
        *current = Arc::new(ToolSet::new(tools));
        Ok(())
    }

    /// Removes a tool by its name; returns whether it existed. Calls that run already finish.
    pub fn remove(&self, name: &str) -> bool {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let tools: Vec<_> = current.all().iter().filter(|tool| &*tool.spec().name != name).cloned().collect();
        let existed = tools.len() < current.all().len();
        *current = Arc::new(ToolSet::new(tools));
        existed
    }
}

impl Toolbox for ToolRegistry {
    fn snapshot(&self) -> Arc<ToolSet> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn agent_ended(&self, agent: Serial) {
        self.dependencies.commands.processes().remove_agent(agent);
    }
}

#[cfg(test)]
mod tests;
