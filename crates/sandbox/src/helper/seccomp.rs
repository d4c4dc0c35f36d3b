//! The system calls that a command is refused: sockets, namespaces, mounts, kernel interfaces, other processes' memory.
//! Refused calls return an error; calls of a foreign ABI kill the process.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter, sock_filter,
};

use crate::request::{Payload, Tier};

/// Other architectures do not compile: their system calls were not looked at.
#[cfg(target_arch = "x86_64")]
const ARCH: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCH: TargetArch = TargetArch::aarch64;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Installs the filter on this process and its descendants.
pub(super) fn restrict(tier: Tier, payload: &Payload) -> Result<(), String> {
    let mut rules = refused()?;
    if payload.is_built_in() {
        refuse_to_built_ins(&mut rules)?;
    }
    match tier {
        Tier::Landlock => rules.extend(of_other_processes()?),
        // Other processes cannot be named there. An unconfined command gets no filter.
        Tier::Namespaces | Tier::Unconfined => {}
    }
    let refusal = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refusal, ARCH);
    let filter = filter.and_then(BpfProgram::try_from).map_err(|error| error.to_string())?;
    // One program: the kernel compiles each that is installed.
    apply_filter(&[bound_numbers(), filter].concat()).map_err(|error| error.to_string())
}

/// Calls that programs fall back from when the kernel does not know them: `clone3` and `openat2` pass their flags in memory,
/// where a filter cannot read them, and `io_uring` performs other calls that the filter does not see.
const UNKNOWN: [i64; 5] = [
    libc::SYS_clone3,
    libc::SYS_openat2,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// Calls that are refused whatever their arguments are.
const REFUSED: &[i64] = &[
    // Network. Pairs of connected sockets stay: they reach no other process.
    libc::SYS_socket,
    // Namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Objects without a path that Landlock could restrict. An id of another process needs no `get`.
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    // Kernel keyrings, modules and interfaces with a history of escalations.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_lookup_dcookie,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
];

/// Namespace flags of `clone`.
const NAMESPACE_FLAGS: [i32; 8] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    0x80, // CLONE_NEWTIME
];

/// Device types of `mknod`, which also creates the named pipes of `mkfifo`.
const DEVICE_TYPES: [u32; 2] = [libc::S_IFCHR, libc::S_IFBLK];

fn refused() -> Result<Rules, String> {
    let mut rules: Rules = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let namespaces = NAMESPACE_FLAGS.iter().map(|flag| {
        let flag = u64::from(flag.cast_unsigned());
        rule(vec![condition(0, SeccompCmpOp::MaskedEq(flag), flag)?])
    });
    rules.insert(libc::SYS_clone, namespaces.collect::<Result<_, _>>()?);
    // Typing into the terminal of another process. The request has 32 bits: a longer comparison could be evaded.
    let terminals = [libc::TIOCSTI, libc::TIOCLINUX]
        .map(|request| rule(vec![condition(1, SeccompCmpOp::Eq, request & 0xffff_ffff)?]));
    rules.insert(libc::SYS_ioctl, terminals.into_iter().collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_socketpair, unconnected_pairs()?);
    rules.insert(libc::SYS_mknodat, device_nodes(2)?);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_mknod, device_nodes(1)?);
    for (call, rule) in set_uid_files()? {
        rules.entry(call).or_default().push(rule);
    }
    Ok(rules)
}

/// Refuses what a built-in does not need besides: it starts threads, but no process, executes nothing and has no socket.
fn refuse_to_built_ins(rules: &mut Rules) -> Result<(), String> {
    for call in [libc::SYS_execve, libc::SYS_execveat, libc::SYS_socketpair] {
        rules.insert(call, Vec::new());
    }
    #[cfg(target_arch = "x86_64")]
    rules.extend([(libc::SYS_fork, Vec::new()), (libc::SYS_vfork, Vec::new())]);
    let no_thread = SeccompCmpOp::MaskedEq(u64::from(libc::CLONE_THREAD.cast_unsigned()));
    rules.entry(libc::SYS_clone).or_default().push(rule(vec![condition(0, no_thread, 0)?])?);
    Ok(())
}

/// Match the creation of set-uid files: such a file would give other users of the system the privileges of this one, after
/// the command has ended.
fn set_uid_files() -> Result<Vec<(i64, SeccompRule)>, String> {
    let is_set_uid = |argument| condition(argument, has(libc::S_ISUID), u64::from(libc::S_ISUID));
    let mode = |argument| rule(vec![is_set_uid(argument)?]);
    // The mode counts only if the call creates a file.
    let creation = |flags, flag: i32| {
        let flag = flag.cast_unsigned();
        rule(vec![condition(flags, has(flag), u64::from(flag))?, is_set_uid(flags + 1)?])
    };
    Ok(vec![
        (libc::SYS_fchmod, mode(1)?),
        (libc::SYS_fchmodat, mode(2)?),
        (libc::SYS_fchmodat2, mode(2)?),
        (libc::SYS_mknodat, mode(2)?),
        (libc::SYS_openat, creation(2, libc::O_CREAT)?),
        (libc::SYS_openat, creation(2, libc::O_TMPFILE)?),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_chmod, mode(1)?),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_mknod, mode(1)?),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_creat, mode(1)?),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_open, creation(1, libc::O_CREAT)?),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_open, creation(1, libc::O_TMPFILE)?),
    ])
}

fn has(bits: u32) -> SeccompCmpOp {
    SeccompCmpOp::MaskedEq(u64::from(bits))
}

/// Match socket pairs that can send elsewhere than to each other: those of the network, and datagram sockets, which can
/// send to any Unix socket by its path. The kernel makes a datagram socket of a raw one.
fn unconnected_pairs() -> Result<Vec<SeccompRule>, String> {
    const TYPE_MASK: u64 = 0xf;
    let number = |value: i32| u64::from(value.cast_unsigned());
    let is_type = |kind: i32| condition(1, SeccompCmpOp::MaskedEq(TYPE_MASK), number(kind));
    Ok(vec![
        rule(vec![condition(0, SeccompCmpOp::Ne, number(libc::AF_UNIX))?])?,
        rule(vec![is_type(libc::SOCK_DGRAM)?])?,
        rule(vec![is_type(libc::SOCK_RAW)?])?,
    ])
}

/// Calls that could hinder other processes of the user, such as the daemon: limits, priorities, processors. A process may
/// change its own by the id 0.
fn of_other_processes() -> Result<Rules, String> {
    let other = |argument| condition(argument, SeccompCmpOp::Ne, 0);
    let is_group = |process: i32| condition(0, SeccompCmpOp::Ne, u64::from(process.cast_unsigned()));
    let new_limit = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)
        .map_err(|error| error.to_string())?;
    let mut rules = Rules::from([
        (libc::SYS_prlimit64, vec![rule(vec![other(0)?, new_limit])?]),
        (libc::SYS_setpriority, vec![rule(vec![other(1)?])?, rule(vec![is_group(PRIORITY_OF_PROCESS)?])?]),
        (
            libc::SYS_ioprio_set,
            vec![rule(vec![other(1)?])?, rule(vec![is_group(DISK_PRIORITY_OF_PROCESS)?])?],
        ),
    ]);
    for call in [
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setattr,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setscheduler,
    ] {
        rules.insert(call, vec![rule(vec![other(0)?])?]);
    }
    Ok(rules)
}

/// `PRIO_PROCESS` and `IOPRIO_WHO_PROCESS`; other values name a group, or all processes of a user.
const PRIORITY_OF_PROCESS: i32 = 0;
const DISK_PRIORITY_OF_PROCESS: i32 = 1;

/// Match the mode of a device.
fn device_nodes(argument: u8) -> Result<Vec<SeccompRule>, String> {
    let is_type = |file_type: &u32| {
        let operator = SeccompCmpOp::MaskedEq(u64::from(libc::S_IFMT));
        rule(vec![condition(argument, operator, u64::from(*file_type))?])
    };
    DEVICE_TYPES.iter().map(is_type).collect()
}

fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, String> {
    SeccompRule::new(conditions).map_err(|error| error.to_string())
}

fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, String> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
        .map_err(|error| error.to_string())
}

/// The first number of x32 calls, which seccompiler does not distinguish from those of x86-64.
const X32_BIT: u32 = 0x4000_0000;

/// The first number of calls that this file does not know, after `mseal`. Kernels have the same numbers from 424 on for
/// all architectures.
const UNKNOWN_NUMBER: u32 = 463;

/// The beginning of the filter: kills processes that make x32 calls, which would evade rules by number, and has calls of
/// later kernels and unknown ones fail as on a kernel without them. Other calls pass on to what follows.
fn bound_numbers() -> BpfProgram {
    const LOAD_WORD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
    const JUMP_GREATER_EQUAL: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
    const JUMP_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    const NOT_IMPLEMENTED: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
    let instruction = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let mut program = vec![instruction(LOAD_WORD, 0, 0, 0)];
    let mut refuse = |jump, number, action| {
        program.extend([instruction(jump, 0, 1, number), instruction(RETURN, 0, 0, action)]);
    };
    refuse(JUMP_GREATER_EQUAL, X32_BIT, libc::SECCOMP_RET_KILL_PROCESS);
    refuse(JUMP_GREATER_EQUAL, UNKNOWN_NUMBER, NOT_IMPLEMENTED);
    // Numbers are positive and short.
    UNKNOWN.iter().for_each(|call| refuse(JUMP_EQUAL, u32::try_from(*call).unwrap_or(0), NOT_IMPLEMENTED));
    program
}
