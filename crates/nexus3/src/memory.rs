//! The allocator, how it gives memory back, and how the program's own pages are given back after the start.
#![expect(
    unsafe_code,
    reason = "the allocator's settings are in C, and only the system's own calls know where the program lies"
)]

use std::ffi::{c_int, c_long};
use std::ops::Range;

/// A turn is a few hundred small pieces of memory, often freed by another thread than the one that asked for them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay`: how many milliseconds free memory is kept.
const PURGE_DELAY_OPTION: c_int = 15;
const PURGE_DELAY_MS: c_long = 0;

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
pub(crate) fn purge_immediately() {
    // SAFETY: it checks the option's number and sets one of a table that nobody else reads: the caller has the only thread.
    unsafe { mi_option_set_default(PURGE_DELAY_OPTION, PURGE_DELAY_MS) }
}

/// Unmaps the pages of the program's code and constants. Those that are used again are mapped again from the system's
/// cache of the file, one fault for sixteen of them; what only the start needed, and what the system mapped around it,
/// stays away.
pub(crate) fn unmap_program_pages() {
    // Without it nothing is known, and nothing is let go of.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for segment in read_only_segments() {
        if is_file_backed(&maps, &segment) {
            let start = std::ptr::with_exposed_provenance_mut(segment.start);
            // SAFETY: these pages are mapped from a file and were never written to: they are the same when they are mapped
            // again. A refusal changes nothing.
            unsafe { libc::madvise(start, segment.len(), libc::MADV_DONTNEED) };
        }
    }
}

/// Where the program's code and constants are, in whole pages.
fn read_only_segments() -> Vec<Range<usize>> {
    let mut found = Vec::new();
    // SAFETY: the function is as the call wants it, and the pointer is what it takes it for.
    unsafe { libc::dl_iterate_phdr(Some(collect_program_segments), (&raw mut found).cast()) };
    found
}

/// The first thing that is loaded is the program itself; the libraries behind it are left alone.
unsafe extern "C" fn collect_program_segments(
    program: *mut libc::dl_phdr_info,
    _: libc::size_t,
    found: *mut libc::c_void,
) -> c_int {
    const STOP: c_int = 1;
    // SAFETY: the system gives a description that is whole, its headers are in memory as long as the program, and the
    // caller gives the place for what is found.
    let (base, headers, found) = unsafe {
        let program = &*program;
        let headers = std::slice::from_raw_parts(program.dlpi_phdr, usize::from(program.dlpi_phnum));
        (program.dlpi_addr, headers, &mut *found.cast::<Vec<Range<usize>>>())
    };
    let page = rustix::param::page_size();
    for header in headers {
        // What is relocated at the start and protected then belongs to a segment that may be written to.
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

/// Whether these pages come from a file, by a table as in `/proc/PID/maps`. A program that was packed unpacks itself into
/// memory that has no file behind it.
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

    /// Only the allocator knows the numbers of its options.
    #[test]
    fn the_setting_is_the_one_that_is_meant() {
        // SAFETY: it checks the option's number and reads one of a table that nobody writes to here.
        assert_eq!(unsafe { mi_option_get(PURGE_DELAY_OPTION) }, 1_000, "what the allocator itself would do");
    }

    #[test]
    fn only_what_comes_from_a_file_is_let_go_of() {
        let maps = "1000-3000 r--p 00000000 fe:00 42    /usr/bin/nexus3\n3000-5000 r-xp 00000000 00:00 0 \n";
        let of_file = [0x1000..0x3000, 0x2000..0x3000, 0x2000..0x4000, 0x3000..0x5000, 0x5000..0x6000];
        assert_eq!(of_file.map(|range| is_file_backed(maps, &range)), [true, true, false, false, false]);
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
            unmap_program_pages();
            !is_mapped()
        };
        // Another test's fault may bring it back at once, with all that lies around.
        assert!((0..1_000).any(|_| goes()), "it stays");
        assert_eq!(read(), 7);
    }
}
