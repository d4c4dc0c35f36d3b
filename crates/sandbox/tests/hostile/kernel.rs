//! Attempts on namespaces, mounts and other interfaces of the kernel.

use crate::Attempt;
use crate::sys::{Outcome, address, call, check, exit, path, value};

const HERE: usize = libc::AT_FDCWD as usize;

pub(crate) const ATTEMPTS: &[Attempt] = &[
    ("18a", "change the root", |t| {
        let directory = path(&t.inside);
        call(libc::SYS_chroot, [address(&directory), 0, 0, 0, 0, 0])
    }),
    ("18b", "exchange the root", |t| {
        let directory = path(&t.inside);
        call(libc::SYS_pivot_root, [address(&directory), address(&directory), 0, 0, 0, 0])
    }),
    ("19a", "mount a file system", |t| mount(None, &t.inside, Some("tmpfs"), 0)),
    ("19b", "bind a directory", |t| mount(Some(&t.outside), &t.inside, None, libc::MS_BIND)),
    ("20a", "clone a mount", |t| {
        let directory = path(&t.inside);
        call(libc::SYS_open_tree, [HERE, address(&directory), 1, 0, 0, 0])
    }),
    ("20b", "open a file system", |_| {
        let name = path("tmpfs");
        call(libc::SYS_fsopen, [address(&name), 0, 0, 0, 0, 0])
    }),
    ("20c", "clone a mount with attributes", |t| {
        const OPEN_TREE_ATTR: i64 = 467;
        let directory = path(&t.inside);
        call(OPEN_TREE_ATTR, [HERE, address(&directory), 1, 0, 0, 0])
    }),
    ("21a", "enter a user namespace", |_| unshare(libc::CLONE_NEWUSER)),
    ("21b", "enter a mount namespace", |_| unshare(libc::CLONE_NEWNS)),
    ("21c", "enter a network namespace", |_| unshare(libc::CLONE_NEWNET)),
    ("22", "start a process in a user namespace", |_| clone((libc::CLONE_NEWUSER | libc::SIGCHLD) as usize)),
    ("22b", "start a process in a user namespace, high bits", |_| {
        clone((libc::CLONE_NEWUSER | libc::SIGCHLD) as usize | 1 << 40)
    }),
    ("23a", "start a process in a user namespace by clone3", |_| clone3(libc::CLONE_NEWUSER as u64)),
    ("23b", "start a process by clone3", |_| clone3(0)),
    ("23c", "start a thread", |_| {
        std::thread::Builder::new().spawn(|| ()).map_err(|_| libc::EAGAIN)?.join().map_err(|_| libc::EIO)
    }),
    ("25", "mount the root again", |_| mount(None, "/", None, libc::MS_REMOUNT | libc::MS_BIND)),
    ("49", "set up io_uring", |_| {
        let parameters = [0_u8; 120];
        call(libc::SYS_io_uring_setup, [1, parameters.as_ptr() as usize, 0, 0, 0, 0])
    }),
    ("50a", "create a BPF map", |_| {
        // An array with keys of 4 and values of 4 bytes, and one entry.
        let attributes = [2_u32, 4, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        call(libc::SYS_bpf, [0, attributes.as_ptr() as usize, 64, 0, 0, 0])
    }),
    ("50b", "open a performance counter", |_| {
        // The software CPU clock of this process.
        let mut attributes = [0_u32; 28];
        (attributes[0], attributes[1]) = (1, 112);
        call(libc::SYS_perf_event_open, [attributes.as_ptr() as usize, 0, usize::MAX, usize::MAX, 0, 0])
    }),
    ("50c", "handle page faults", |_| call(libc::SYS_userfaultfd, [0; 6])),
    ("50d", "handle page faults of user mode", |_| call(libc::SYS_userfaultfd, [1, 0, 0, 0, 0, 0])),
    ("51a", "use a key ring", |_| call(libc::SYS_keyctl, [0, -3_isize as usize, 1, 0, 0, 0])),
    ("51b", "add a key", |_| {
        let (kind, name) = (path("user"), path("nexus3-test"));
        let process_ring = -2_isize as usize;
        call(libc::SYS_add_key, [address(&kind), address(&name), address(&name), 1, process_ring, 0])
    }),
    ("52a", "type into a terminal", |_| terminal(libc::TIOCSTI)),
    ("52b", "type into a terminal, high bits", |_| terminal(libc::TIOCSTI | 1 << 32)),
    ("52c", "control a console", |_| terminal(libc::TIOCLINUX)),
    ("53a", "make an x32 system call", |_| call(0x4000_0000 | libc::SYS_getpid, [0; 6])),
    #[cfg(target_arch = "x86_64")]
    ("53b", "make a 32-bit system call", |_| call_32_bit()),
    ("53c", "make a system call of a later kernel", |_| call(0x3ff, [0; 6])),
];

/// Calls that are tried with invalid arguments: where they are not refused they fail for another reason, without effect.
pub(crate) const CALLS: &[(&str, i64)] = &[
    ("umount2", libc::SYS_umount2),
    ("move_mount", libc::SYS_move_mount),
    ("mount_setattr", libc::SYS_mount_setattr),
    ("fsconfig", libc::SYS_fsconfig),
    ("fsmount", libc::SYS_fsmount),
    ("fspick", libc::SYS_fspick),
    ("process_vm_writev", libc::SYS_process_vm_writev),
    ("process_madvise", libc::SYS_process_madvise),
    ("shmctl", libc::SYS_shmctl),
    ("semctl", libc::SYS_semctl),
    ("msgctl", libc::SYS_msgctl),
    ("request_key", libc::SYS_request_key),
    ("init_module", libc::SYS_init_module),
    ("finit_module", libc::SYS_finit_module),
    ("delete_module", libc::SYS_delete_module),
    ("kexec_load", libc::SYS_kexec_load),
    ("kexec_file_load", libc::SYS_kexec_file_load),
    ("swapon", libc::SYS_swapon),
    ("swapoff", libc::SYS_swapoff),
    ("reboot", libc::SYS_reboot),
    ("quotactl", libc::SYS_quotactl),
    ("quotactl_fd", libc::SYS_quotactl_fd),
    ("acct", libc::SYS_acct),
    ("syslog", libc::SYS_syslog),
    ("settimeofday", libc::SYS_settimeofday),
    ("clock_settime", libc::SYS_clock_settime),
    ("clock_adjtime", libc::SYS_clock_adjtime),
    ("adjtimex", libc::SYS_adjtimex),
    ("sethostname", libc::SYS_sethostname),
    ("setdomainname", libc::SYS_setdomainname),
    ("fanotify_init", libc::SYS_fanotify_init),
    #[cfg(target_arch = "x86_64")]
    ("iopl", libc::SYS_iopl),
    #[cfg(target_arch = "x86_64")]
    ("ioperm", libc::SYS_ioperm),
    #[cfg(target_arch = "x86_64")]
    ("modify_ldt", libc::SYS_modify_ldt),
];

/// Mounts in a namespace of its own, where that is possible: the control run leaves no mount behind.
fn mount(source: Option<&str>, target: &str, kind: Option<&str>, flags: libc::c_ulong) -> Outcome {
    let (source, target, kind) = (source.map(path), path(target), kind.map(path));
    let pointer = |text: Option<&std::ffi::CString>| text.map_or(std::ptr::null(), |text| text.as_ptr());
    if unshare(libc::CLONE_NEWNS).is_ok() {
        let private = libc::MS_PRIVATE | libc::MS_REC;
        // SAFETY: the target is a C string, the others are not read.
        check(unsafe {
            libc::mount(std::ptr::null(), c"/".as_ptr(), std::ptr::null(), private, std::ptr::null())
        })?;
    }
    // SAFETY: the arguments are C strings or null.
    check(unsafe {
        libc::mount(
            pointer(source.as_ref()),
            target.as_ptr(),
            pointer(kind.as_ref()),
            flags,
            std::ptr::null(),
        )
    })
}

fn unshare(flags: i32) -> Outcome {
    call(libc::SYS_unshare, [flags as usize, 0, 0, 0, 0, 0])
}

fn clone(flags: usize) -> Outcome {
    let child = value(libc::SYS_clone, [flags, 0, 0, 0, 0, 0])?;
    if child == 0 { exit(Ok(())) } else { Ok(()) }
}

fn clone3(flags: u64) -> Outcome {
    let mut arguments = [0_u64; 8];
    (arguments[0], arguments[4]) = (flags, libc::SIGCHLD as u64);
    let child = value(libc::SYS_clone3, [arguments.as_ptr() as usize, 64, 0, 0, 0, 0])?;
    if child == 0 { exit(Ok(())) } else { Ok(()) }
}

fn terminal(request: libc::Ioctl) -> Outcome {
    let byte = b'x';
    call(libc::SYS_ioctl, [0, usize::try_from(request).unwrap(), (&raw const byte) as usize, 0, 0, 0])
}

/// `getpid` of the 32-bit ABI.
#[cfg(target_arch = "x86_64")]
fn call_32_bit() -> Outcome {
    let result: i32;
    // SAFETY: the call has no arguments and changes no memory.
    unsafe { std::arch::asm!("int 0x80", inlateout("eax") 20 => result) };
    if result > 0 { Ok(()) } else { Err(-result) }
}
