//! The system calls that a command is refused: sockets, namespaces, mounts, kernel interfaces, other processes' memory.
//! Refused calls return an error; calls of a foreign ABI kill the process.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter, sock_filter,
};

/// Other architectures do not compile: their system calls were not looked at.
#[cfg(target_arch = "x86_64")]
const ARCH: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCH: TargetArch = TargetArch::aarch64;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Installs the filters on this process and its descendants.
pub(super) fn restrict() -> Result<(), String> {
    for program in programs()? {
        apply_filter(&program).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn programs() -> Result<Vec<BpfProgram>, String> {
    let mut programs = vec![filter(refused()?, libc::EPERM)?, filter(unknown(), libc::ENOSYS)?];
    if cfg!(target_arch = "x86_64") {
        programs.push(kill_x32());
    }
    Ok(programs)
}

fn filter(rules: Rules, errno: i32) -> Result<BpfProgram, String> {
    let refusal = SeccompAction::Errno(errno.cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refusal, ARCH);
    filter.and_then(BpfProgram::try_from).map_err(|error| error.to_string())
}

/// Calls that programs fall back from when the kernel does not know them: `clone3` passes its flags in memory, where a
/// filter cannot read them, and `io_uring` performs other calls that the filter does not see.
fn unknown() -> Rules {
    [libc::SYS_clone3, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register]
        .into_iter()
        .map(|call| (call, Vec::new()))
        .collect()
}

/// Calls that are refused whatever their arguments are.
const REFUSED: &[i64] = &[
    // Network. `socketpair` stays: it reaches no other process.
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
    // System V objects have no path that Landlock could restrict.
    libc::SYS_shmget,
    libc::SYS_msgget,
    libc::SYS_semget,
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
    rules.insert(libc::SYS_mknodat, device_nodes(2)?);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_mknod, device_nodes(1)?);
    Ok(rules)
}

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

/// Kills processes that make x32 calls: they would evade rules by number.
fn kill_x32() -> BpfProgram {
    const LOAD_WORD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
    const JUMP_GREATER_EQUAL: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    let instruction = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    vec![
        instruction(LOAD_WORD, 0, 0, 0),
        instruction(JUMP_GREATER_EQUAL, 0, 1, X32_BIT),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}
