//! The tools there are, and how they are found: by name, by the name for models, by any other name.

use std::collections::HashMap;
use std::sync::Arc;

use agent::outside::{Tool, Toolbox};

use crate::{ToolDependencies, catalog};

/// All tools of the daemon itself.
pub struct ToolRegistry {
    tools: Vec<Arc<dyn Tool>>,
    by_name: HashMap<Arc<str>, usize>,
}

impl ToolRegistry {
    /// Builds all tools.
    #[must_use]
    pub fn new(parts: ToolDependencies) -> Self {
        let tools = catalog::tools(&Arc::new(parts));
        let mut by_name = HashMap::new();
        for (place, tool) in tools.iter().enumerate() {
            for name in lookup_names(&**tool) {
                by_name.entry(name).or_insert(place);
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

/// Everything a tool is called, each name once.
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
