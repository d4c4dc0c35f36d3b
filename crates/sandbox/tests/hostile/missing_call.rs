//! Stands for a kernel that lacks a system call or refuses it: a filter fails the call, then a program is executed.

use std::os::unix::process::CommandExt;
use std::process::Command;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// The system calls by which the helper confines a command.
const CALLS: &[(&str, i64)] = &[
    ("capset", libc::SYS_capset),
    ("close_range", libc::SYS_close_range),
    ("landlock_create_ruleset", libc::SYS_landlock_create_ruleset),
    ("landlock_add_rule", libc::SYS_landlock_add_rule),
    ("landlock_restrict_self", libc::SYS_landlock_restrict_self),
    ("mount", libc::SYS_mount),
    ("mount_setattr", libc::SYS_mount_setattr),
    ("move_mount", libc::SYS_move_mount),
    ("open_tree", libc::SYS_open_tree),
    ("pivot_root", libc::SYS_pivot_root),
    ("prctl", libc::SYS_prctl),
    ("seccomp", libc::SYS_seccomp),
    ("setsid", libc::SYS_setsid),
    ("umount2", libc::SYS_umount2),
    ("unshare", libc::SYS_unshare),
];

/// Executes a program in which a system call fails with an error.
pub(crate) fn execute(name: &str, errno: u32, program: &[String]) {
    let (_, number) = CALLS.iter().find(|(known, _)| *known == name).unwrap();
    let rules = [(*number, Vec::new())].into();
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno), arch).unwrap();
    let filter: BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&filter).unwrap();
    let error = Command::new(&program[0]).args(&program[1..]).exec();
    panic!("{error}");
}
