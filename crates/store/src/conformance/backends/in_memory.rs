//! The in-memory store.

use std::sync::Arc;

use agent::outside::Store;

use super::Backend;
use crate::StoreOptions;

struct InMemory;

pub(crate) fn new() -> Box<dyn Backend> {
    Box::new(InMemory)
}

impl Backend for InMemory {
    fn open(&self) -> Arc<dyn Store> {
        crate::open(&StoreOptions::Memory).unwrap()
    }

    fn is_volatile(&self) -> bool {
        true
    }
}
