//! Wait-for graph of agents. Adding an edge that would close a cycle is rejected: the agents would deadlock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::{Fault, FaultKind};

use crate::lineage::LineageNode;

/// Wait-for edges between agents, by serial.
#[derive(Debug, Default)]
pub(crate) struct WaitGraph {
    edges: Mutex<HashMap<u64, Vec<u64>>>,
}

/// A wait-for edge; removed on drop.
#[derive(Debug)]
pub(crate) struct WaitEdge {
    graph: Arc<WaitGraph>,
    from: u64,
    to: u64,
}

impl WaitGraph {
    /// Adds an edge.
    ///
    /// # Errors
    /// When `to` already waits for `from`, directly or transitively.
    pub(crate) fn add_edge(
        self: &Arc<Self>,
        from: &LineageNode,
        to: &LineageNode,
    ) -> Result<WaitEdge, Fault> {
        let mut edges = self.edges();
        if is_reachable(&edges, to.serial, from.serial) {
            let (from, to) = (from.id(), to.id());
            let text = format!("deadlock: '{from}' would wait for '{to}', which waits for '{from}'");
            return Err(Fault::new(FaultKind::Invalid, text));
        }
        edges.entry(from.serial).or_default().push(to.serial);
        Ok(WaitEdge { graph: Arc::clone(self), from: from.serial, to: to.serial })
    }

    fn edges(&self) -> MutexGuard<'_, HashMap<u64, Vec<u64>>> {
        self.edges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_reachable(edges: &HashMap<u64, Vec<u64>>, start: u64, goal: u64) -> bool {
    let mut visited = Vec::new();
    let mut stack = vec![start];
    while let Some(serial) = stack.pop() {
        if serial == goal {
            return true;
        }
        if !visited.contains(&serial) {
            visited.push(serial);
            stack.extend(edges.get(&serial).into_iter().flatten());
        }
    }
    false
}

impl Drop for WaitEdge {
    fn drop(&mut self) {
        let mut edges = self.graph.edges();
        let Some(targets) = edges.get_mut(&self.from) else { return };
        if let Some(index) = targets.iter().position(|serial| *serial == self.to) {
            targets.swap_remove(index);
        }
        if targets.is_empty() {
            edges.remove(&self.from);
        }
    }
}
