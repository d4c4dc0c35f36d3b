//! The allocator, and how it gives memory back.
#![expect(
    unsafe_code,
    reason = "the allocator's settings are in C; bindings to them would be one more dependency"
)]

use std::ffi::{c_int, c_long};

/// A turn is a few hundred small pieces of memory, often freed by another thread than the one that asked for them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay`: how many milliseconds free memory is kept.
const PURGE_DELAY: c_int = 15;
const AT_ONCE: c_long = 0;

// SAFETY: as in the allocator's header.
unsafe extern "C" {
    fn mi_option_set_default(option: c_int, value: c_long);
    #[cfg(test)]
    fn mi_option_get(option: c_int) -> c_long;
}

/// What is free goes back to the system at once, unless `MIMALLOC_PURGE_DELAY` says otherwise. Else it waits for a second
/// and then for somebody who asks for more: a daemon that once read a vocabulary would keep all that was free behind it.
///
/// To be called while there is one thread.
pub(crate) fn give_back_at_once() {
    // SAFETY: it checks the option's number and sets one of a table that nobody else reads: the caller has the only thread.
    unsafe { mi_option_set_default(PURGE_DELAY, AT_ONCE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the allocator knows the numbers of its options.
    #[test]
    fn the_setting_is_the_one_that_is_meant() {
        // SAFETY: it checks the option's number and reads one of a table that nobody writes to here.
        assert_eq!(unsafe { mi_option_get(PURGE_DELAY) }, 1_000, "what the allocator itself would do");
    }
}
