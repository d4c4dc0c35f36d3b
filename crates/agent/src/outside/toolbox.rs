//! The tools of the daemon: an immutable set of tools, and the toolbox that publishes the current set.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Tool;
use crate::journal::Serial;

/// An immutable set of tools. A model call works with one set from its request to the results of its tool calls, even
/// if tools are added or removed meanwhile.
#[derive(Default)]
pub struct ToolSet {
    tools: Vec<Arc<dyn Tool>>,
    by_name: BTreeMap<Arc<str>, usize>,
}

impl ToolSet {
    /// Creates a set. The tools are in the order in which models see them; a name of two tools finds the first.
    #[must_use]
    pub fn new(tools: Vec<Arc<dyn Tool>>) -> Self {
        let mut by_name = BTreeMap::new();
        for (index, tool) in tools.iter().enumerate() {
            for name in tool.spec().lookup_names() {
                by_name.entry(Arc::clone(name)).or_insert(index);
            }
        }
        Self { tools, by_name }
    }

    /// All tools, in the order in which models see them.
    #[must_use]
    pub fn all(&self) -> &[Arc<dyn Tool>] {
        &self.tools
    }

    /// Looks up a tool by name, model name or alias.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(*self.by_name.get(name)?)
    }
}

/// The tool registry. Tools may be added and removed while agents run.
pub trait Toolbox: Send + Sync {
    /// The current tools. Later changes do not affect the returned set.
    fn snapshot(&self) -> Arc<ToolSet>;

    /// Releases what tools hold for an agent that was destroyed, such as its background processes. Called when it is
    /// destroyed, and again when its last call has ended. Sleep is no end.
    fn agent_ended(&self, _agent: Serial) {}
}

/// A toolbox whose tools never change.
impl Toolbox for Arc<ToolSet> {
    fn snapshot(&self) -> Arc<ToolSet> {
        Arc::clone(self)
    }
}
