//! The entropy double: predictable bytes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use agent::Fault;
use agent::outside::Entropy;

/// Entropy that counts 1, 2, 3, … separately for each length, so that generated agent ids do not depend on the number
/// of tokens. It can be set to panic, to test the isolation of its callers.
#[derive(Debug, Default)]
pub struct CountingEntropy {
    filled: Mutex<BTreeMap<usize, u64>>,
    panics: AtomicBool,
}

impl CountingEntropy {
    /// Sets whether the next calls panic, without printing.
    pub fn set_panics(&self, panics: bool) {
        self.panics.store(panics, Ordering::Relaxed);
    }
}

impl Entropy for CountingEntropy {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), Fault> {
        if self.panics.load(Ordering::Relaxed) {
            std::panic::resume_unwind(Box::new("no more bytes"));
        }
        let mut filled = self.filled.lock().unwrap_or_else(PoisonError::into_inner);
        let count = filled.entry(bytes.len()).or_default();
        *count += 1;
        let digits = count.to_be_bytes();
        let (zeros, end) = bytes.split_at_mut(bytes.len().saturating_sub(digits.len()));
        zeros.fill(0);
        end.copy_from_slice(&digits[digits.len() - end.len()..]);
        Ok(())
    }
}
