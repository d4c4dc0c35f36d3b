//! The allocator, how it gives memory back, and how the program's own pages are given back after the start.
#![expect(
    unsafe_code,
    reason = "the allocator's settings are in C, and only the system's own calls know where the program lies"
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

/// Unmaps the pages of the program's code and constants. Those that are used again are mapped again from the system's
/// cache of the file, one fault for sixteen of them; what only the start needed, and what the system mapped around it,
/// stays away.
pub(crate) fn let_go_of_program() {
    // SAFETY: the function is as the call wants it, and does not look at the pointer.
    unsafe { libc::dl_iterate_phdr(Some(let_go_of_first), std::ptr::null_mut()) };
}

/// The first thing that is loaded is the program itself; the libraries behind it are left alone.
unsafe extern "C" fn let_go_of_first(
    program: *mut libc::dl_phdr_info,
    _: libc::size_t,
    _: *mut libc::c_void,
) -> c_int {
    const STOP: c_int = 1;
    // SAFETY: the system gives a description that is whole, and its headers are in memory as long as the program.
    let (base, headers) = unsafe {
        let program = &*program;
        (program.dlpi_addr, std::slice::from_raw_parts(program.dlpi_phdr, usize::from(program.dlpi_phnum)))
    };
    let page = rustix::param::page_size();
    for header in headers {
        // What is relocated at the start and protected then belongs to a segment that may be written to.
        if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_W != 0 {
            continue;
        }
        let Ok(start) = usize::try_from(base + header.p_vaddr) else { continue };
        let Ok(length) = usize::try_from(header.p_memsz) else { continue };
        let end = (start + length) & !(page - 1);
        let start = start.next_multiple_of(page);
        if start < end {
            // SAFETY: these pages are mapped from the file and were never written to: they are the same when they are
            // mapped again. A refusal changes nothing.
            unsafe {
                libc::madvise(std::ptr::with_exposed_provenance_mut(start), end - start, libc::MADV_DONTNEED);
            }
        }
    }
    STOP
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

    /// Constants of the program, far from any others in the middle.
    static TABLE: [u8; 1 << 20] = [7; 1 << 20];

    /// Whether the middle of the table is mapped, as the system has it in 8 bytes for each page.
    fn is_mapped() -> bool {
        use std::os::unix::fs::FileExt as _;

        let place = &raw const TABLE[TABLE.len() / 2];
        let pages = std::fs::File::open("/proc/self/pagemap").unwrap();
        let mut page = [0; 8];
        pages.read_exact_at(&mut page, (place.addr() / rustix::param::page_size() * 8) as u64).unwrap();
        u64::from_ne_bytes(page) >> 63 == 1
    }

    #[test]
    fn the_programs_pages_go_and_come_back_as_they_were() {
        let read = || std::hint::black_box(&TABLE)[TABLE.len() / 2];
        let goes = || {
            assert_eq!(read(), 7);
            assert!(is_mapped());
            let_go_of_program();
            !is_mapped()
        };
        // Another test's fault may bring it back at once, with all that lies around.
        assert!((0..1_000).any(|_| goes()), "it stays");
        assert_eq!(read(), 7);
    }
}
