//! Attempts on files outside the granted directory.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;

use crate::sys::{Outcome, address, call, check, execute, outcome, path, value};
use crate::{Attempt, Targets};

pub(crate) const ATTEMPTS: &[Attempt] = &[
    ("1", "read a file", |t| outcome(fs::read(t.outside("secret")))),
    ("1b", "read the password hashes", |_| outcome(fs::read("/etc/shadow"))),
    ("2", "open a file for writing", |t| write(&t.outside("secret"))),
    ("3", "create a file", |t| outcome(File::create(t.outside("new")))),
    ("3b", "create a directory", |t| outcome(fs::create_dir(t.outside("new-directory")))),
    ("4", "list a directory", |t| outcome(fs::read_dir(&t.outside))),
    ("5a", "remove a file", |t| outcome(fs::remove_file(t.outside("removable")))),
    ("5b", "remove a directory", |t| outcome(fs::remove_dir(t.outside("empty")))),
    ("6", "truncate a file by its path", |t| {
        let file = path(&t.outside("secret"));
        call(libc::SYS_truncate, [address(&file), 1, 0, 0, 0, 0])
    }),
    ("7a", "move a file in", |t| outcome(fs::rename(t.outside("movable"), t.inside("moved-in")))),
    ("7b", "move a file out", |t| {
        fs::write(t.inside("own"), "x").unwrap();
        outcome(fs::rename(t.inside("own"), t.outside("moved-out")))
    }),
    ("7c", "exchange two files", exchange),
    ("8a", "hard link a file in", |t| outcome(fs::hard_link(t.outside("secret"), t.inside("hard")))),
    ("8b", "hard link a handle without access in", link_handle),
    ("9", "follow an own symbolic link", |t| {
        let link = t.inside("link");
        symlink(t.outside("secret"), &link).unwrap();
        outcome(fs::read(link))
    }),
    ("10a", "read through /proc/self/root", |t| {
        outcome(fs::read(format!("/proc/self/root{}", t.outside("secret"))))
    }),
    ("10b", "read through /proc/self/cwd", |_| outcome(fs::read("/proc/self/cwd/../outside/secret"))),
    ("11", "execute a program", |t| execute(&t.outside("program"), &[])),
    ("12a", "read metadata", |t| outcome(fs::metadata(t.outside("secret")))),
    ("12b", "read a link", |t| outcome(fs::read_link(t.outside("link")))),
    ("12c", "change into a directory", |t| outcome(std::env::set_current_dir(&t.outside))),
    ("12d", "open a handle without access", |t| handle(&t.outside("secret")).map(drop)),
    ("13a", "change a mode", |t| {
        let file = path(&t.outside("secret"));
        call(libc::SYS_fchmodat, [libc::AT_FDCWD as usize, address(&file), 0o600, 0, 0, 0])
    }),
    ("13b", "change a group", |t| {
        let file = path(&t.outside("secret"));
        let group = rustix::process::getgid().as_raw() as usize;
        let arguments = [libc::AT_FDCWD as usize, address(&file), usize::MAX, group, 0, 0];
        call(libc::SYS_fchownat, arguments)
    }),
    ("13c", "change times", |t| {
        let file = path(&t.outside("secret"));
        call(libc::SYS_utimensat, [libc::AT_FDCWD as usize, address(&file), 0, 0, 0, 0])
    }),
    ("13d", "set an extended attribute", |t| {
        let (file, name) = (path(&t.outside("secret")), path("user.x"));
        call(libc::SYS_setxattr, [address(&file), address(&name), address(&name), 1, 0, 0])
    }),
    ("14", "watch a directory", watch),
    ("15a", "open through an inherited directory", |_| {
        let name = path("secret");
        call(libc::SYS_openat, [101, address(&name), 0, 0, 0, 0])
    }),
    ("15b", "read an inherited file", |_| {
        let mut byte = 0_u8;
        call(libc::SYS_read, [100, (&raw mut byte) as usize, 1, 0, 0, 0])
    }),
    ("16a", "name a file by handle", |t| file_handle(t).map(drop)),
    ("16b", "open a file by handle", |t| {
        let mut handle = file_handle(t)?;
        let mount = File::open(&t.inside).unwrap();
        let address = (&raw mut handle) as usize;
        call(libc::SYS_open_by_handle_at, [mount.as_raw_fd() as usize, address, 0, 0, 0, 0])
    }),
    ("17a", "create a character device", |t| make_node(t, "character", libc::S_IFCHR)),
    ("17b", "create a block device", |t| make_node(t, "block", libc::S_IFBLK)),
    ("17c", "create a named pipe inside", |t| make_node(t, "fifo", libc::S_IFIFO)),
    ("33", "write to /proc/sys", |_| write("/proc/sys/kernel/core_pattern")),
    ("33b", "write to /proc/sysrq-trigger", |_| write("/proc/sysrq-trigger")),
    ("33c", "write to the memory of this process", |_| write("/proc/self/mem")),
    ("33d", "read the memory of the kernel", |_| outcome(File::open("/proc/kcore"))),
    ("34", "write to a control group", |_| {
        let groups = ["/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/unified/cgroup.procs"];
        groups
            .iter()
            .map(|group| write(group))
            .find(|tried| *tried != Err(libc::ENOENT))
            .unwrap_or(Err(libc::ENOENT))
    }),
    ("34b", "read /sys", |_| outcome(fs::read("/sys/kernel/mm/transparent_hugepage/enabled"))),
    ("35a", "open the kernel log", |_| write("/dev/kmsg")),
    ("35b", "open a disk", |_| {
        let partitions = fs::read_to_string("/proc/partitions").unwrap();
        let name = partitions.lines().nth(2).and_then(|line| line.split_whitespace().nth(3)).unwrap();
        outcome(File::open(format!("/dev/{name}")))
    }),
    ("35c", "open a pseudoterminal", |_| write("/dev/ptmx")),
    ("35d", "open the controlling terminal", |_| write("/dev/tty")),
    ("48", "create a file in /dev/shm", |t| outcome(File::create(t.marker("/dev/shm")))),
    ("48b", "create a file in /tmp", |t| outcome(File::create(t.marker("/tmp")))),
    ("59", "plant a git hook inside", |t| {
        fs::create_dir_all(t.inside(".git/hooks")).unwrap();
        outcome(fs::write(t.inside(".git/hooks/pre-commit"), "#!/bin/sh\n"))
    }),
];

impl Targets {
    /// A name that no other run uses.
    fn marker(&self, directory: &str) -> String {
        format!("{directory}/{}", self.abstract_name)
    }
}

fn write(file: &str) -> Outcome {
    outcome(OpenOptions::new().write(true).open(file))
}

fn exchange(targets: &Targets) -> Outcome {
    fs::write(targets.inside("own"), "x").unwrap();
    let (own, other) = (path(&targets.inside("own")), path(&targets.outside("exchangeable")));
    let here = libc::AT_FDCWD as usize;
    let flags = libc::RENAME_EXCHANGE as usize;
    call(libc::SYS_renameat2, [here, address(&own), here, address(&other), flags, 0])
}

/// Opens a file with `O_PATH`.
fn handle(file: &str) -> Result<usize, i32> {
    let file = path(file);
    let flags = libc::O_PATH as usize;
    value(libc::SYS_openat, [libc::AT_FDCWD as usize, address(&file), flags, 0, 0, 0])
}

fn link_handle(targets: &Targets) -> Outcome {
    let opened = path(&format!("/proc/self/fd/{}", handle(&targets.outside("secret"))?));
    let new = path(&targets.inside("hard-handle"));
    let here = libc::AT_FDCWD as usize;
    let flags = libc::AT_SYMLINK_FOLLOW as usize;
    call(libc::SYS_linkat, [here, address(&opened), here, address(&new), flags, 0])
}

fn watch(targets: &Targets) -> Outcome {
    let directory = path(&targets.outside);
    let inotify = value(libc::SYS_inotify_init1, [0; 6])?;
    let events = libc::IN_CREATE as usize;
    call(libc::SYS_inotify_add_watch, [inotify, address(&directory), events, 0, 0, 0])
}

/// A kernel `file_handle` with room for the bytes of any file system.
#[repr(C)]
struct FileHandle {
    bytes: u32,
    kind: i32,
    handle: [u8; 128],
}

fn file_handle(targets: &Targets) -> Result<FileHandle, i32> {
    let mut handle = FileHandle { bytes: 128, kind: 0, handle: [0; 128] };
    let (file, mut mount) = (path(&targets.outside("secret")), 0);
    let addresses = [(&raw mut handle) as usize, (&raw mut mount) as usize];
    let arguments = [libc::AT_FDCWD as usize, address(&file), addresses[0], addresses[1], 0, 0];
    call(libc::SYS_name_to_handle_at, arguments).map(|()| handle)
}

fn make_node(targets: &Targets, name: &str, kind: libc::mode_t) -> Outcome {
    let file = path(&targets.inside(name));
    // SAFETY: the path is a C string. The device is /dev/null, or a block device without a driver.
    check(unsafe { libc::mknod(file.as_ptr(), kind | 0o600, libc::makedev(1, 3)) })
}
