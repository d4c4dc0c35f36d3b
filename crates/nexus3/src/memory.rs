//! The global allocator and its purge setting.
#![expect(unsafe_code, reason = "the allocator's options are only reachable through C")]

use std::ffi::{c_int, c_long};

/// A turn makes a few hundred small allocations, often freed by another thread than the allocating one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay`: milliseconds until free memory is returned to the system.
const PURGE_DELAY_OPTION: c_int = 15;
const PURGE_DELAY_MS: c_long = 0;

// SAFETY: the signatures match the allocator's header.
unsafe extern "C" {
    fn mi_option_set_default(option: c_int, value: c_long);
    #[cfg(test)]
    fn mi_option_get(option: c_int) -> c_long;
}

/// Returns free memory to the system at once, unless `MIMALLOC_PURGE_DELAY` is set. By default the allocator waits a
/// second and then for the next allocation: a daemon that once loaded a vocabulary would hold its memory while idle.
///
/// Call it while there is one thread.
pub(crate) fn purge_immediately() {
    // SAFETY: the call checks the option's number and writes to a table that no other thread reads yet.
    unsafe { mi_option_set_default(PURGE_DELAY_OPTION, PURGE_DELAY_MS) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The option's number is internal to the allocator: its default value identifies it.
    #[test]
    fn purge_delay_option_has_the_expected_default() {
        // SAFETY: the call checks the option's number and reads a table that no test writes to.
        assert_eq!(unsafe { mi_option_get(PURGE_DELAY_OPTION) }, 1_000, "the allocator's default");
    }
}
