//! Which agent waits for which. A wait that would close a circle is refused at once: it would never end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::{Fault, FaultKind};

use crate::lineage::LineageNode;

/// Who waits for whom, by serial.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    edges: Mutex<HashMap<u64, Vec<u64>>>,
}

/// One agent waiting for another, until it is dropped.
#[derive(Debug)]
pub(crate) struct Waiting {
    waits: Arc<Waits>,
    from: u64,
    to: u64,
}

impl Waits {
    /// Begins a wait.
    ///
    /// # Errors
    /// When the other waits, by however many steps, for this one.
    pub(crate) fn begin(self: &Arc<Self>, from: &LineageNode, to: &LineageNode) -> Result<Waiting, Fault> {
        let mut edges = self.edges();
        if leads_to(&edges, to.serial, from.serial) {
            let (from, to) = (from.id(), to.id());
            let text =
                format!("waiting would never end: '{from}' would wait for '{to}', which waits for '{from}'");
            return Err(Fault::new(FaultKind::Invalid, text));
        }
        edges.entry(from.serial).or_default().push(to.serial);
        Ok(Waiting { waits: Arc::clone(self), from: from.serial, to: to.serial })
    }

    fn edges(&self) -> MutexGuard<'_, HashMap<u64, Vec<u64>>> {
        self.edges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn leads_to(edges: &HashMap<u64, Vec<u64>>, start: u64, goal: u64) -> bool {
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

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut edges = self.waits.edges();
        let Some(waited) = edges.get_mut(&self.from) else { return };
        if let Some(place) = waited.iter().position(|serial| *serial == self.to) {
            waited.swap_remove(place);
        }
        if waited.is_empty() {
            edges.remove(&self.from);
        }
    }
}
