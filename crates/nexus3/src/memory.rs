//! The global allocator, its purge setting, and the unmapping of the program's own pages after start-up.
#![expect(
    unsafe_code,
    reason = "the allocator's options and the program's segments are only reachable through C"
)]

use std::ffi::{c_int, c_long};
use std::ops::Range;

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

/// Unmaps the pages of the program's code and constants (`MADV_DONTNEED`); the address ranges stay valid. A page fault
/// maps pages again from the page cache, sixteen at a time. Pages that only start-up needed, and their neighbours that
/// the kernel mapped with them, stay unmapped.
pub(crate) fn unmap_program_pages() {
    // Without this table no segment counts as file-backed, and nothing is unmapped.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for segment in read_only_segments() {
        if is_file_backed(&maps, &segment) {
            let start = std::ptr::with_exposed_provenance_mut(segment.start);
            // SAFETY: these pages are mapped from a file and were never written to, since they are read-only: they have
            // the same content when mapped again. An error changes nothing.
            unsafe { libc::madvise(start, segment.len(), libc::MADV_DONTNEED) };
        }
    }
}

/// Address ranges of the program's code and constants, in whole pages.
fn read_only_segments() -> Vec<Range<usize>> {
    let mut found = Vec::new();
    // SAFETY: the callback has the required signature and casts the pointer back to the type of `found`.
    unsafe { libc::dl_iterate_phdr(Some(collect_program_segments), (&raw mut found).cast()) };
    found
}

/// Callback of `dl_iterate_phdr`. The first object is the program itself; it stops before the libraries.
unsafe extern "C" fn collect_program_segments(
    program: *mut libc::dl_phdr_info,
    _: libc::size_t,
    found: *mut libc::c_void,
) -> c_int {
    const STOP: c_int = 1;
    // SAFETY: the loader passes a valid description whose headers live as long as the program, and the caller passes a
    // pointer to the vector.
    let (base, headers, found) = unsafe {
        let program = &*program;
        let headers = std::slice::from_raw_parts(program.dlpi_phdr, usize::from(program.dlpi_phnum));
        (program.dlpi_addr, headers, &mut *found.cast::<Vec<Range<usize>>>())
    };
    let page = rustix::param::page_size();
    for header in headers {
        // Skip writable segments; they include pages that are relocated at start-up and then protected.
        if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_W != 0 {
            continue;
        }
        let Ok(start) = usize::try_from(base + header.p_vaddr) else { continue };
        let Ok(length) = usize::try_from(header.p_memsz) else { continue };
        let segment = start.next_multiple_of(page)..(start + length) & !(page - 1);
        if !segment.is_empty() {
            found.push(segment);
        }
    }
    STOP
}

/// Whether a range is mapped from a file, according to the text of `/proc/PID/maps`. A packed executable unpacks itself
/// into anonymous memory.
fn is_file_backed(maps: &str, segment: &Range<usize>) -> bool {
    maps.lines().any(|line| {
        let mut words = line.split_ascii_whitespace();
        let ends = words.next().and_then(|range| range.split_once('-'));
        let file = words.nth(3).is_some_and(|inode| inode != "0");
        let address = |text| usize::from_str_radix(text, 16).ok();
        let range = ends.and_then(|(start, end)| Some(address(start)?..address(end)?));
        file && range.is_some_and(|range| range.start <= segment.start && segment.end <= range.end)
    })
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

    #[test]
    fn only_file_backed_ranges_are_recognized() {
        let maps = "1000-3000 r--p 00000000 fe:00 42    /usr/bin/nexus3\n3000-5000 r-xp 00000000 00:00 0 \n";
        let ranges = [0x1000..0x3000, 0x2000..0x3000, 0x2000..0x4000, 0x3000..0x5000, 0x5000..0x6000];
        assert_eq!(ranges.map(|range| is_file_backed(maps, &range)), [true, true, false, false, false]);
    }

    /// A large constant: no other constant shares the page in its middle.
    static TABLE: [u8; 1 << 20] = [7; 1 << 20];

    /// Whether the page in the middle of the table is mapped; pagemap has 8 bytes per page.
    fn is_mapped() -> bool {
        use std::os::unix::fs::FileExt as _;

        let middle = &raw const TABLE[TABLE.len() / 2];
        let pages = std::fs::File::open("/proc/self/pagemap").unwrap();
        let mut page = [0; 8];
        pages.read_exact_at(&mut page, (middle.addr() / rustix::param::page_size() * 8) as u64).unwrap();
        u64::from_ne_bytes(page) >> 63 == 1
    }

    #[test]
    fn unmapped_pages_are_mapped_again_unchanged() {
        let read = || std::hint::black_box(&TABLE)[TABLE.len() / 2];
        let is_unmapped = || {
            assert_eq!(read(), 7);
            assert!(is_mapped());
            unmap_program_pages();
            !is_mapped()
        };
        // A page fault of another test may map the page again at once.
        assert!((0..1_000).any(|_| is_unmapped()), "the page stays mapped");
        assert_eq!(read(), 7);
    }
}
