//! The tool registry: lookup by name, model name or alias.

use std::collections::HashMap;
use std::sync::Arc;

use agent::outside::{Tool, Toolbox};

use crate::{ToolDependencies, catalog};

/// The registry of all built-in tools.
pub struct ToolRegistry {
    tools: Vec<Arc<dyn Tool>>,
    by_name: HashMap<Arc<str>, usize>,
}

impl ToolRegistry {
    /// Builds all tools.
    #[must_use]
    pub fn new(dependencies: ToolDependencies) -> Self {
        let tools = catalog::tools(&Arc::new(dependencies));
        let mut by_name = HashMap::new();
        for (index, tool) in tools.iter().enumerate() {
            for name in lookup_names(&**tool) {
                by_name.entry(name).or_insert(index);
            }
        }
        Self { tools, by_name }
    }
}

impl Toolbox for ToolRegistry {
    fn all(&self) -> &[Arc<dyn Tool>] {
        &self.tools
    }

    fn find(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(*self.by_name.get(name)?)
    }
}

/// All names of a tool, each once.
fn lookup_names(tool: &dyn Tool) -> Vec<Arc<str>> {
    let spec = tool.spec();
    let mut names = vec![Arc::clone(&spec.name)];
    if spec.model_name != spec.name {
        names.push(Arc::clone(&spec.model_name));
    }
    names.extend(spec.aliases.iter().copied().map(Arc::from));
    names
}

#[cfg(test)]
mod tests;
