//! The file tree of a command in namespaces of its own: an empty root with bind mounts of the granted directories at their
//! own paths, a private /tmp and /dev, and a /proc that shows the command's processes only.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, StatVfsMountFlags};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, mount_remount, unmount,
};
use rustix::thread::UnshareFlags;

use super::sys;
use crate::request::{Access, HelperRequest, Rule};

/// Where the new root is built; hidden in this namespace only.
const STAGING: &str = "/tmp";

/// ResourceLimits of the file systems in memory.
const ROOT_OPTIONS: &str = "mode=0755,size=1m,nr_inodes=4k";
const TEMPORARY_OPTIONS: &str = "mode=1777,size=256m,nr_inodes=64k";
const SHARED_MEMORY_OPTIONS: &str = "mode=1777,size=64m,nr_inodes=4k";

/// Links that programs expect in /dev.
const DEVICE_LINKS: [(&str, &str); 4] = [
    ("/proc/self/fd", "dev/fd"),
    ("/proc/self/fd/0", "dev/stdin"),
    ("/proc/self/fd/1", "dev/stdout"),
    ("/proc/self/fd/2", "dev/stderr"),
];

/// Enters new namespaces; the next child is the first process in them. GrantedDirectory needs no user namespace, in which it would
/// lose its power over files of other users.
pub(super) fn enter() -> io::Result<()> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let mut flags = UnshareFlags::NEWNS
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWNET
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS;
    if uid.is_root() {
        return sys::unshare(flags);
    }
    flags |= UnshareFlags::NEWUSER;
    sys::unshare(flags)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{0} {0} 1", uid.as_raw()))?;
    fs::write("/proc/self/gid_map", format!("{0} {0} 1", gid.as_raw()))
}

/// Builds the file tree and makes it the root. Runs in the first process of the namespaces.
pub(super) fn build_root(request: &HelperRequest, held: &[BorrowedFd<'_>]) -> Result<(), String> {
    let fail = |what: &str| {
        let what = what.to_owned();
        move |errno: rustix::io::Errno| format!("{what}: {errno}")
    };
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC).map_err(fail("/"))?;
    let system = open_system(&request.system)?;
    let held = request.held.iter().zip(held).map(|(rule, handle)| reopen(&rule.path, *handle));
    let held: Vec<OwnedFd> = held.collect::<Result<_, _>>()?;
    mount_memory(STAGING, ROOT_OPTIONS).map_err(fail(STAGING))?;
    let root = Path::new(STAGING);
    make_directory(root, "dev/shm")?;
    mount_memory(root.join("dev/shm"), SHARED_MEMORY_OPTIONS).map_err(fail("/dev/shm"))?;
    for (target, link) in DEVICE_LINKS {
        make_link(root, link, Path::new(target))?;
    }
    make_directory(root, "proc")?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", root.join("proc"), "proc", flags, None).map_err(fail("/proc"))?;
    make_directory(root, "tmp")?;
    mount_memory(root.join("tmp"), TEMPORARY_OPTIONS).map_err(fail("/tmp"))?;
    for (rule, source) in &system {
        match source {
            Source::Link(target) => make_link(root, &rule.path, target)?,
            Source::Handle(handle) => bind(root, &rule.path, handle.as_fd(), rule.access)?,
        }
    }
    for (rule, handle) in request.held.iter().zip(&held) {
        bind(root, &rule.path, handle.as_fd(), rule.access)?;
    }
    enter_root(root).map_err(fail("new root"))
}

/// Where the content of a system path comes from.
enum Source {
    Handle(OwnedFd),
    /// A symbolic link, such as /bin of merged systems: made again.
    Link(PathBuf),
}

/// Opens a held directory again, in this mount namespace: the kernel binds no directory of another one. Its path must
/// still lead to the directory that was granted.
fn reopen(path: &str, granted: BorrowedFd<'_>) -> Result<OwnedFd, String> {
    let fail = |errno: rustix::io::Errno| format!("{path}: {errno}");
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    let opened = opened.map_err(fail)?;
    let (new, old) = (rustix::fs::fstat(&opened).map_err(fail)?, rustix::fs::fstat(granted).map_err(fail)?);
    if (new.st_dev, new.st_ino) == (old.st_dev, old.st_ino) {
        return Ok(opened);
    }
    Err(format!("{path} was replaced since it was granted"))
}

/// Opens system paths before the new root hides any of them; skips those that do not exist.
fn open_system(rules: &[Rule]) -> Result<Vec<(&Rule, Source)>, String> {
    let mut opened = Vec::new();
    for rule in rules {
        if let Ok(target) = fs::read_link(&rule.path) {
            opened.push((rule, Source::Link(target)));
            continue;
        }
        match rustix::fs::open(&*rule.path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
        {
            Ok(handle) => opened.push((rule, Source::Handle(handle))),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::ACCESS | rustix::io::Errno::NOTDIR) => {}
            Err(errno) => return Err(format!("{}: {errno}", rule.path)),
        }
    }
    Ok(opened)
}

fn mount_memory(target: impl AsRef<Path>, options: &str) -> rustix::io::Result<()> {
    let options = std::ffi::CString::new(options).map_err(|_| rustix::io::Errno::INVAL)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", target.as_ref(), "tmpfs", flags, Some(options.as_c_str()))
}

/// Binds a file or directory at its path below the new root.
fn bind(root: &Path, path: &str, handle: BorrowedFd<'_>, access: Access) -> Result<(), String> {
    // /proc has a mount of its own.
    if path == "/proc" {
        return Ok(());
    }
    let fail = |errno: rustix::io::Errno| format!("bind {path}: {errno}");
    let stat = rustix::fs::fstat(handle).map_err(fail)?;
    let relative = path.trim_start_matches('/');
    let target = root.join(relative);
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        make_directory(root, relative)?;
    } else {
        make_directory(root, parent(relative))?;
        fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&target)
            .map_err(|e| format!("bind {path}: {e}"))?;
    }
    mount_bind(format!("/proc/self/fd/{}", handle.as_raw_fd()), &target).map_err(fail)?;
    let mut flags = MountFlags::BIND | MountFlags::NOSUID | inherited_flags(&target);
    if access == Access::Read {
        flags |= MountFlags::RDONLY;
    }
    if access != Access::Device {
        flags |= MountFlags::NODEV;
    }
    mount_remount(&target, flags, c"").map_err(fail)
}

/// Flags of the original mount, which a user namespace must not clear.
fn inherited_flags(target: &Path) -> MountFlags {
    let Ok(stat) = rustix::fs::statvfs(target) else { return MountFlags::empty() };
    let pairs = [
        (StatVfsMountFlags::RDONLY, MountFlags::RDONLY),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    pairs.iter().filter(|(has, _)| stat.f_flag.contains(*has)).map(|(_, flag)| *flag).collect()
}

fn make_directory(root: &Path, relative: &str) -> Result<(), String> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(root.join(relative));
    made.map_err(|error| format!("create /{relative}: {error}"))
}

fn make_link(root: &Path, path: &str, target: &Path) -> Result<(), String> {
    let relative = path.trim_start_matches('/');
    make_directory(root, parent(relative))?;
    match symlink(target, root.join(relative)) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(format!("link {path}: {error}")),
        _ => Ok(()),
    }
}

fn parent(relative: &str) -> &str {
    relative.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Makes the tree the root, detaches the old one, and makes the root itself read-only.
fn enter_root(root: &Path) -> rustix::io::Result<()> {
    rustix::process::chdir(root)?;
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    rustix::process::chdir("/")?;
    mount_remount("/", MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV, ROOT_OPTIONS_READ_ONLY)
}

/// The size limits stay as they are.
const ROOT_OPTIONS_READ_ONLY: &std::ffi::CStr = c"";
