//! The SQLite store, in a folder of its own. Its full check runs after every test.

use std::sync::Arc;

use agent::outside::Store;

use super::Backend;
use crate::StoreOptions;
use crate::conformance::folder;

struct InSqlite {
    folder: tempfile::TempDir,
}

pub(crate) fn new() -> Box<dyn Backend> {
    Box::new(InSqlite { folder: folder() })
}

impl InSqlite {
    fn options(&self) -> StoreOptions {
        StoreOptions::sqlite(self.folder.path().join("nexus3.db"))
    }
}

impl Backend for InSqlite {
    fn open(&self) -> Arc<dyn Store> {
        crate::open(&self.options()).unwrap()
    }

    fn check(&self) {
        let report = crate::maintenance(&self.options()).unwrap().check().unwrap();
        assert!(report.is_sound(), "{report}");
    }
}
