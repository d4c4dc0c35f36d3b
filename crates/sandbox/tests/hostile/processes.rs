//! Attempts on other processes, and to gain privileges.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;

use crate::sys::{self, Outcome, address, call, execute, outcome, path, value};
use crate::{Attempt, Targets};

pub(crate) const ATTEMPTS: &[Attempt] = &[
    ("24", "enter the mount namespace of the daemon", |t| {
        let namespace =
            File::open(format!("/proc/{}/ns/mnt", t.daemon)).map_err(|error| sys::code(&error))?;
        call(libc::SYS_setns, [namespace.as_raw_fd() as usize, 0, 0, 0, 0, 0])
    }),
    ("26a", "signal the daemon", |t| signal(t.daemon())),
    ("26b", "signal the daemon by a queued signal", |t| {
        let mut information = [0_i32; 32];
        (information[2], information[4]) = (libc::SI_QUEUE, std::process::id() as i32);
        let arguments = [t.daemon() as usize, 0, information.as_ptr() as usize, 0, 0, 0];
        call(libc::SYS_rt_sigqueueinfo, arguments)
    }),
    ("26c", "signal the daemon by its handle", |t| {
        let handle = value(libc::SYS_pidfd_open, [t.daemon() as usize, 0, 0, 0, 0, 0])?;
        call(libc::SYS_pidfd_send_signal, [handle, 0, 0, 0, 0, 0])
    }),
    ("27", "signal the supervisor", |t| signal(t.supervisor)),
    ("28", "trace the daemon", |t| {
        call(libc::SYS_ptrace, [libc::PTRACE_SEIZE as usize, t.daemon() as usize, 0, 0, 0, 0])
    }),
    ("29a", "read the memory of the daemon", |t| {
        call(libc::SYS_process_vm_readv, [t.daemon() as usize, 0, 0, 0, 0, 0])
    }),
    ("29b", "take a descriptor of the daemon", |t| {
        let handle = value(libc::SYS_pidfd_open, [t.daemon() as usize, 0, 0, 0, 0, 0])?;
        call(libc::SYS_pidfd_getfd, [handle, 1, 0, 0, 0, 0])
    }),
    ("29c", "compare descriptors with the daemon", |t| {
        let own = std::process::id() as usize;
        call(libc::SYS_kcmp, [own, t.daemon() as usize, 0, 1, 1, 0])
    }),
    ("30a", "read the environment of the daemon", |t| read(t, "environ")),
    ("30b", "open the memory of the daemon", |t| read_entry(t, "mem")),
    ("30c", "open a descriptor of the daemon", |t| read_entry(t, "fd/0")),
    ("30d", "read through the root of the daemon", |t| read(t, &format!("root{}", t.outside("secret")))),
    ("30e", "read the memory map of the daemon", |t| read(t, "maps")),
    ("30f", "read the environment of the supervisor", |t| {
        outcome(fs::read(format!("/proc/{}/environ", t.supervisor)))
    }),
    ("30g", "read through the root of the supervisor", |t| {
        outcome(fs::read(format!("/proc/{}/root{}", t.supervisor, t.outside("secret"))))
    }),
    ("31", "read the command line of the daemon", |t| read(t, "cmdline")),
    ("32a", "change the priority of the daemon", |t| {
        call(libc::SYS_setpriority, [libc::PRIO_PROCESS as usize, t.daemon() as usize, 1, 0, 0, 0])
    }),
    ("32b", "change the processors of the daemon", |t| {
        let all = u64::MAX;
        call(libc::SYS_sched_setaffinity, [t.daemon() as usize, 8, (&raw const all) as usize, 0, 0, 0])
    }),
    ("32c", "change a resource limit of the daemon", |t| limit(t.daemon(), (&raw const CORE) as usize)),
    ("32d", "read a resource limit of the daemon", |t| limit(t.daemon(), 0)),
    ("32e", "change the scheduler of the daemon", |t| {
        let priority = 0;
        let arguments =
            [t.daemon() as usize, libc::SCHED_BATCH as usize, (&raw const priority) as usize, 0, 0, 0];
        call(libc::SYS_sched_setscheduler, arguments)
    }),
    ("32f", "change the disk priority of the daemon", |t| {
        call(libc::SYS_ioprio_set, [1, t.daemon() as usize, 2 << 13 | 7, 0, 0, 0])
    }),
    ("32g", "change the priority of all processes of the user", |_| {
        // 4 is no priority class: the call fails without an effect where it is not refused.
        call(libc::SYS_ioprio_set, [3, 0, 4 << 13, 0, 0, 0])
    }),
    ("32h", "change its own limit", |_| limit(0, (&raw const CORE) as usize)),
    ("32i", "lower its own priority", |_| call(libc::SYS_setpriority, [0, 0, 19, 0, 0, 0])),
    ("32j", "become a realtime process", |_| {
        let priority = 1;
        call(
            libc::SYS_sched_setscheduler,
            [0, libc::SCHED_FIFO as usize, (&raw const priority) as usize, 0, 0, 0],
        )
    }),
    ("54a", "execute a copy in memory and read a file", execute_memory),
    ("54b", "execute a file by the loader and read a file", |t| {
        let copy = t.inside("not-executable");
        fs::write(&copy, fs::read("/proc/self/exe").unwrap()).unwrap();
        execute("/lib64/ld-linux-x86-64.so.2", &[&copy, "read", &t.outside("secret")])
    }),
    ("55a", "gain capabilities by a set-uid program", |t| execute(&t.inside("set-uid"), &["capabilities"])),
    ("55d", "make a file set-uid", |t| change_mode(t, libc::SYS_fchmodat, 0o4755)),
    ("55e", "make a file set-uid by the later call", |t| change_mode(t, libc::SYS_fchmodat2, 0o4755)),
    ("55f", "create a set-uid file", |t| create(t, libc::O_CREAT | libc::O_WRONLY, "created")),
    ("55g", "create a set-uid file without a name", |t| create(t, libc::O_TMPFILE | libc::O_WRONLY, "")),
    ("55h", "create a set-uid file by openat2", |t| {
        let file = path(&t.inside("created-2"));
        let how = [(libc::O_CREAT | libc::O_WRONLY) as u64, 0o4755, 0];
        let here = libc::AT_FDCWD as usize;
        call(libc::SYS_openat2, [here, address(&file), how.as_ptr() as usize, 24, 0, 0])
    }),
    ("55i", "make a file executable", |t| change_mode(t, libc::SYS_fchmodat, 0o755)),
    ("55b", "become another user", |_| call(libc::SYS_setresuid, [1234, 1234, 1234, 0, 0, 0])),
    ("55c", "change supplementary groups", |_| call(libc::SYS_setgroups, [0, 0, 0, 0, 0, 0])),
];

fn change_mode(targets: &Targets, number: i64, mode: usize) -> Outcome {
    fs::write(targets.inside("own-program"), "x").unwrap();
    let file = path(&targets.inside("own-program"));
    call(number, [libc::AT_FDCWD as usize, address(&file), mode, 0, 0, 0])
}

fn create(targets: &Targets, flags: i32, name: &str) -> Outcome {
    let file = path(&targets.inside(name));
    call(libc::SYS_openat, [libc::AT_FDCWD as usize, address(&file), flags as usize, 0o4755, 0, 0])
}

static CORE: libc::rlimit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };

fn signal(process: i32) -> Outcome {
    call(libc::SYS_kill, [process as usize, 0, 0, 0, 0, 0])
}

fn read(targets: &Targets, entry: &str) -> Outcome {
    outcome(fs::read(format!("/proc/{}/{entry}", targets.daemon)))
}

fn read_entry(targets: &Targets, entry: &str) -> Outcome {
    outcome(File::open(format!("/proc/{}/{entry}", targets.daemon)))
}

fn limit(process: i32, new: usize) -> Outcome {
    let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let arguments = [process as usize, libc::RLIMIT_CORE as usize, new, (&raw mut old) as usize, 0, 0];
    call(libc::SYS_prlimit64, arguments)
}

fn execute_memory(targets: &Targets) -> Outcome {
    let name = path("copy");
    let memory = value(libc::SYS_memfd_create, [address(&name), 0, 0, 0, 0, 0])?;
    let file = format!("/proc/self/fd/{memory}");
    let mut copy = fs::OpenOptions::new().write(true).open(&file).map_err(|error| sys::code(&error))?;
    copy.write_all(&fs::read("/proc/self/exe").unwrap()).unwrap();
    drop(copy);
    execute(&file, &["read", &targets.outside("secret")])
}

/// Succeeds if the process has capabilities: those of root, or of a set-uid program.
pub(crate) fn has_capabilities() -> Outcome {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap().trim();
    if effective.bytes().all(|byte| byte == b'0') { Err(libc::EPERM) } else { Ok(()) }
}
