//! Abuse that lasts: processes that hide from their supervisor, and the consumption of processes, memory and disk.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;

use crate::sys::{check, errno};

/// Opens the file and locks it; the lock is free again when all processes that inherited it are dead.
fn lock(file: &str) -> File {
    let file = File::create(file).unwrap();
    // SAFETY: the descriptor is open.
    check(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) }).unwrap();
    file
}

/// Forks; the parent ends and the child goes on.
fn become_child() {
    // SAFETY: the program has one thread.
    match unsafe { libc::fork() } {
        0 => {}
        // SAFETY: _exit has no preconditions.
        _ => unsafe { libc::_exit(0) },
    }
}

/// A process that has left its parent, its session and its output and ignores signals, holds the lock. The first process
/// stays, so that the command does not end.
pub(crate) fn hide_from_signals(file: &str) {
    let held = lock(file);
    // SAFETY: the program has one thread; no handler is installed.
    if unsafe { libc::fork() } == 0 {
        become_child();
        unsafe { libc::setsid() };
        become_child();
        for signal in 1..32 {
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
        wait_for_ever();
    }
    drop(held);
    println!("ready");
    wait_for_ever();
}

/// A process that forks and ends without end holds the lock under ever new process ids.
pub(crate) fn hop(file: &str) {
    let held = lock(file);
    // SAFETY: the program has one thread.
    if unsafe { libc::fork() } == 0 {
        loop {
            become_child();
        }
    }
    drop(held);
    println!("ready");
    wait_for_ever();
}

/// Starts processes that stay, until one more cannot be started.
pub(crate) fn fork_without_end() {
    for count in 0_u32.. {
        // SAFETY: the program has one thread.
        match unsafe { libc::fork() } {
            0 => wait_for_ever(),
            -1 => return println!("fork {count}: errno {}", errno()),
            _ => {}
        }
    }
}

/// Starts threads that stay, until one more cannot be started.
pub(crate) fn start_threads_without_end() {
    let start = || std::thread::Builder::new().stack_size(16 << 10).spawn(|| wait_for_ever());
    let refused = std::iter::repeat_with(start).find_map(Result::err).unwrap();
    println!("thread: errno {}", refused.raw_os_error().unwrap_or(0));
}

/// Allocates and fills memory.
pub(crate) fn allocate(bytes: usize) {
    let mut memory: Vec<u8> = Vec::new();
    match memory.try_reserve_exact(bytes) {
        Ok(()) => {
            memory.resize(bytes, 1);
            println!("allocated {}", memory.len());
        }
        Err(_) => println!("refused"),
    }
}

/// Maps memory that is shared with child processes.
pub(crate) fn map_shared(bytes: usize) {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: the kernel chooses the address.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
    println!("{}", if mapped == libc::MAP_FAILED { "refused" } else { "mapped" });
}

/// Writes a file of this length.
pub(crate) fn fill_file(file: &str, bytes: u64) {
    let mut file = File::create(file).unwrap();
    let block = vec![1; 1 << 20];
    for _ in 0..bytes >> 20 {
        file.write_all(&block).unwrap();
    }
    println!("written");
}

fn wait_for_ever() -> ! {
    loop {
        // SAFETY: pause has no preconditions.
        unsafe { libc::pause() };
    }
}
