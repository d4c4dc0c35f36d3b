//! Which agent waits for which. A wait that would close a circle is refused at once: it would never end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::{Fault, FaultKind};

use crate::lineage::LineageNode;

/// Who waits for whom, by serial.
#[derive(Debug, Default)]
pub(crate) struct WaitGraph {
    edges: Mutex<HashMap<u64, Vec<u64>>>,
}

/// One agent waiting for another, until it is dropped.
#[derive(Debug)]
pub(crate) struct WaitEdge {
    graph: Arc<WaitGraph>,
    from: u64,
    to: u64,
}

impl WaitGraph {
    /// Begins a wait.
    ///
    /// # Errors
    /// When the other waits, by however many steps, for this one.
    pub(crate) fn add_edge(
        self: &Arc<Self>,
        from: &LineageNode,
        to: &LineageNode,
    ) -> Result<WaitEdge, Fault> {
        let mut edges = self.edges();
        if is_reachable(&edges, to.serial, from.serial) {
            let (from, to) = (from.id(), to.id());
            let text =
                format!("waiting would never end: '{from}' would wait for '{to}', which waits for '{from}'");
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
    let mut seen = Vec::new();
    let mut next = vec![start];
    while let Some(serial) = next.pop() {
        if serial == goal {
            return true;
        }
        if !seen.contains(&serial) {
            seen.push(serial);
            next.extend(edges.get(&serial).into_iter().flatten());
        }
    }
    false
}

impl Drop for WaitEdge {
    fn drop(&mut self) {
        let mut edges = self.graph.edges();
        let Some(waited) = edges.get_mut(&self.from) else { return };
        if let Some(place) = waited.iter().position(|serial| *serial == self.to) {
            waited.swap_remove(place);
        }
        if waited.is_empty() {
            edges.remove(&self.from);
        }
    }
}
