//! The list of backends that the suite runs on. A new backend is a file with a function `new`, and a line in
//! `for_each_backend!`.

pub(crate) mod in_log_file;
pub(crate) mod in_memory;
pub(crate) mod in_sqlite;

use std::sync::Arc;

use agent::outside::Store;

/// A backend under test, with a place for one store.
pub(crate) trait Backend {
    /// Opens the store. A store that was closed is opened with the content it had.
    fn open(&self) -> Arc<dyn Store>;

    /// Whether closing the store loses its content.
    fn is_volatile(&self) -> bool {
        false
    }

    /// Asserts that the closed store is sound.
    fn check(&self) {}
}

/// Calls a macro with each backend.
macro_rules! for_each_backend {
    ($call:ident $arguments:tt) => {
        $call!(in_log_file $arguments);
        $call!(in_memory $arguments);
        $call!(in_sqlite $arguments);
    };
}

/// Runs each test on each backend.
macro_rules! conformance_tests {
    ($($claim:ident),* $(,)?) => {
        for_each_backend!(backend_tests ($($claim),*));
    };
}

/// Runs each test on one backend.
macro_rules! backend_tests {
    ($backend:ident ($($claim:ident),*)) => {
        mod $backend {
            $(#[tokio::test]
            async fn $claim() {
                let backend = $crate::conformance::backends::$backend::new();
                let mut store = $crate::conformance::StoreUnderTest::open(backend);
                super::$claim(&mut store).await;
                store.close_and_check().await;
            })*
        }
    };
}
