//! The file tree of a command in namespaces of its own: an empty root with bind mounts of the granted directories at their
//! own paths, a private /tmp and /dev, and a /proc that shows the command's processes only. Empty mounts hide what the
//! command shall not see in a granted directory.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_change,
    move_mount, open_tree, unmount,
};
use rustix::thread::UnshareFlags;

use super::sys;
use crate::request::{Access, HelperRequest, Rule};

/// Where the new root is built; hidden in this namespace only.
const STAGING: &str = "/tmp";

/// Options of the file systems in memory, with their limits.
const ROOT_OPTIONS: &str = "mode=0755,size=1m,nr_inodes=4k";
const TEMPORARY_OPTIONS: &str = "mode=1777,size=256m,nr_inodes=64k";
const SHARED_MEMORY_OPTIONS: &str = "mode=1777,size=64m,nr_inodes=4k";
/// Has room for mount points only: a granted directory can be within a hidden one.
const HIDDEN_OPTIONS: &str = "mode=0555,size=64k,nr_inodes=256";

/// Links that programs expect in /dev.
const DEVICE_LINKS: [(&str, &str); 4] = [
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
];

/// Enters new namespaces; the next child is the first process in them. Root needs no user namespace, in which it would lose its
/// power over files of other users.
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
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC).map_err(fail("/"))?;
    // Cloned before the new root hides any of them, or becomes a part of one.
    let mut entries = private_entries(request);
    entries.extend(system_entries(request)?);
    for (rule, handle) in request.held.iter().zip(held) {
        let handle = reopen(&rule.path, *handle)?;
        entries.push(Entry { path: rule.path.clone(), content: clone_tree(rule, handle.as_fd())? });
    }
    entries.extend(pinned_entries(request)?);
    let hidden = hidden_kinds(request)?;
    mount_memory(Path::new(STAGING), ROOT_OPTIONS).map_err(fail(STAGING))?;
    let empty = EmptyFile::new(Path::new(STAGING)).map_err(fail("empty file"))?;
    for (path, is_directory) in request.hidden.iter().zip(hidden) {
        let content = if is_directory { Content::Hidden } else { empty.content()? };
        entries.push(Entry { path: path.clone(), content });
    }
    // Directories before what is in them. The sort is stable: of two entries with one path the later one is on top.
    entries.sort_by(|one, other| Path::new(&one.path).cmp(Path::new(&other.path)));
    entries.iter().try_for_each(|entry| entry.place(Path::new(STAGING)))?;
    entries.iter().try_for_each(|entry| entry.close(Path::new(STAGING)))?;
    empty.unlink().map_err(fail("empty file"))?;
    enter_root(Path::new(STAGING), request.is_held("/")).map_err(|error| format!("new root: {error}"))
}

fn fail(what: &str) -> impl Fn(Errno) -> String {
    let what = what.to_owned();
    move |errno| format!("{what}: {errno}")
}

/// A path in the new file tree.
struct Entry {
    path: String,
    content: Content,
}

/// What is at a path.
enum Content {
    /// A symbolic link, such as /bin of merged systems: made again.
    Link(PathBuf),
    /// A file system in memory, with its options.
    Memory(&'static str),
    /// The processes of the namespace.
    Processes,
    /// A clone of a file or directory of the old tree, with all mounts below it.
    Tree(OwnedFd),
    /// An empty directory over a hidden one.
    Hidden,
}

/// What every tree has. A granted /tmp is not hidden by a private one.
fn private_entries(request: &HelperRequest) -> Vec<Entry> {
    let entry = |path: &str, content| Entry { path: path.to_owned(), content };
    let mut entries =
        vec![entry("/dev/shm", Content::Memory(SHARED_MEMORY_OPTIONS)), entry("/proc", Content::Processes)];
    if !request.is_held("/tmp") {
        entries.push(entry("/tmp", Content::Memory(TEMPORARY_OPTIONS)));
    }
    entries.extend(DEVICE_LINKS.iter().map(|(target, link)| entry(link, Content::Link((*target).into()))));
    entries
}

/// Opens system paths; skips those that do not exist, and those that a held directory contains.
fn system_entries(request: &HelperRequest) -> Result<Vec<Entry>, String> {
    let is_needed = |rule: &&Rule| {
        rule.path != "/proc" && (rule.access == Access::Device || !request.is_held(&rule.path))
    };
    let mut entries = Vec::new();
    for rule in request.system.iter().filter(is_needed) {
        let entry = |content| Entry { path: rule.path.clone(), content };
        if let Ok(target) = fs::read_link(&rule.path) {
            entries.push(entry(Content::Link(target)));
            continue;
        }
        match rustix::fs::open(&*rule.path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
        {
            Ok(handle) => entries.push(entry(clone_tree(rule, handle.as_fd())?)),
            Err(Errno::NOENT | Errno::ACCESS | Errno::NOTDIR) => {}
            Err(errno) => return Err(format!("{}: {errno}", rule.path)),
        }
    }
    Ok(entries)
}

/// The directories between a writable directory and a read-only or hidden one in it. As mounts they cannot be renamed, so
/// that no other directory can take the place of the read-only or hidden one.
fn pinned_entries(request: &HelperRequest) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    let read_only = request.held.iter().filter(|rule| rule.access == Access::Read).map(|rule| &rule.path);
    for inner in read_only.chain(&request.hidden).map(Path::new) {
        let contains = |outer: &&Rule| inner != Path::new(&outer.path) && inner.starts_with(&outer.path);
        let outer = request.held.iter().filter(contains).max_by_key(|outer| outer.path.len());
        let Some(outer) = outer.filter(|outer| outer.access == Access::Write) else { continue };
        let between = inner.ancestors().skip(1);
        let between = between.take_while(|directory| *directory != Path::new(&outer.path));
        for directory in between.filter(|directory| !request.is_hidden(directory)) {
            let rule = Rule { path: directory.display().to_string(), access: Access::Write };
            let handle = open_without_links(&rule.path)?;
            entries.push(Entry { content: clone_tree(&rule, handle.as_fd())?, path: rule.path });
        }
    }
    Ok(entries)
}

/// Which of the hidden ones are directories. They must exist: a mount point would be created in the granted directory
/// itself.
fn hidden_kinds(request: &HelperRequest) -> Result<Vec<bool>, String> {
    request.hidden.iter().map(|path| is_directory(open_without_links(path)?.as_fd())).collect()
}

/// Opens a held directory again, in this mount namespace: the kernel binds no directory of another one. Its path must
/// still lead to the directory that was granted.
fn reopen(path: &str, granted: BorrowedFd<'_>) -> Result<OwnedFd, String> {
    let opened = open_without_links(path)?;
    let (new, old) = (rustix::fs::fstat(&opened), rustix::fs::fstat(granted));
    let (new, old) = (new.map_err(fail(path))?, old.map_err(fail(path))?);
    if (new.st_dev, new.st_ino) == (old.st_dev, old.st_ino) {
        return Ok(opened);
    }
    Err(format!("{path} was replaced since it was granted"))
}

fn open_without_links(path: &str) -> Result<OwnedFd, String> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    opened.map_err(|errno| match errno {
        Errno::LOOP => format!("{path} leads through a symbolic link; grant the directory by its real path"),
        errno => format!("{path}: {errno}"),
    })
}

/// Clones a file or directory with all mounts below it. Restrictions are added to those that its mounts have already.
fn clone_tree(rule: &Rule, handle: BorrowedFd<'_>) -> Result<Content, String> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(handle, "", flags).map_err(fail(&rule.path))?;
    let attributes = match rule.access {
        Access::Read | Access::List => {
            libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV
        }
        Access::ReadData => {
            libc::MOUNT_ATTR_RDONLY
                | libc::MOUNT_ATTR_NOSUID
                | libc::MOUNT_ATTR_NODEV
                | libc::MOUNT_ATTR_NOEXEC
        }
        Access::Write => libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
        Access::Device => libc::MOUNT_ATTR_NOSUID,
    };
    sys::set_mount_attributes(tree.as_fd(), attributes, libc::AT_RECURSIVE)
        .map_err(|error| format!("{}: {error}", rule.path))?;
    Ok(Content::Tree(tree))
}

impl Entry {
    /// Makes the path below the new root.
    fn place(&self, root: &Path) -> Result<(), String> {
        let relative = Path::new(self.path.trim_start_matches('/'));
        let target = root.join(relative);
        let fail = fail(&self.path);
        match &self.content {
            Content::Link(link) => {
                make_link(&target, link).map_err(|error| format!("{}: {error}", self.path))
            }
            Content::Memory(options) => {
                make_directory(&target)?;
                mount_memory(&target, options).map_err(fail)
            }
            Content::Processes => {
                make_directory(&target)?;
                let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
                mount("proc", &target, "proc", flags, None).map_err(fail)
            }
            Content::Tree(tree) => {
                make_mount_point(&target, tree.as_fd())?;
                let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
                move_mount(tree, "", rustix::fs::CWD, &target, flags).map_err(fail)
            }
            Content::Hidden => {
                let target = open_staged(root, relative)?;
                mount_memory(&descriptor_path(&target), HIDDEN_OPTIONS).map_err(fail)
            }
        }
    }

    /// Makes what hides a directory read-only, once all that is granted within it is in place.
    fn close(&self, root: &Path) -> Result<(), String> {
        if !matches!(self.content, Content::Hidden) {
            return Ok(());
        }
        let mount = open_staged(root, Path::new(self.path.trim_start_matches('/')))?;
        sys::set_mount_attributes(mount.as_fd(), libc::MOUNT_ATTR_RDONLY, 0)
            .map_err(|error| format!("{}: {error}", self.path))
    }
}

/// Opens a path in the new tree. No link leads to another place, even if the hidden directory was replaced meanwhile.
fn open_staged(root: &Path, relative: &Path) -> Result<OwnedFd, String> {
    open_without_links(&root.join(relative).display().to_string())
}

fn descriptor_path(handle: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}

/// An empty file of the new root, to be mounted over hidden ones.
struct EmptyFile {
    root: OwnedFd,
    handle: OwnedFd,
}

impl EmptyFile {
    const NAME: &'static str = "empty";

    /// Makes the file. The root may be covered by a held one later.
    fn new(root: &Path) -> rustix::io::Result<Self> {
        let root = rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let made = OFlags::CREATE | OFlags::EXCL | OFlags::RDONLY | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(&root, Self::NAME, made, Mode::from_raw_mode(0o444))?;
        Ok(Self { root, handle })
    }

    fn content(&self) -> Result<Content, String> {
        let rule = Rule { path: Self::NAME.to_owned(), access: Access::Read };
        clone_tree(&rule, self.handle.as_fd())
    }

    /// Removes its name. Before it is mounted, the kernel would refuse to mount it.
    fn unlink(self) -> rustix::io::Result<()> {
        rustix::fs::unlinkat(&self.root, Self::NAME, AtFlags::empty())
    }
}

fn mount_memory(target: &Path, options: &str) -> rustix::io::Result<()> {
    let options = std::ffi::CString::new(options).map_err(|_| Errno::INVAL)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", target, "tmpfs", flags, Some(options.as_c_str()))
}

/// Makes a directory or an empty file, unless there is one.
fn make_mount_point(target: &Path, content: BorrowedFd<'_>) -> Result<(), String> {
    if is_directory(content)? {
        return make_directory(target);
    }
    if target.symlink_metadata().is_ok() {
        return Ok(());
    }
    target.parent().map_or(Ok(()), make_directory)?;
    fs::File::create(target).map(drop).map_err(|error| format!("create {}: {error}", target.display()))
}

fn is_directory(handle: BorrowedFd<'_>) -> Result<bool, String> {
    let stat = rustix::fs::fstat(handle).map_err(fail("stat"))?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

fn make_directory(target: &Path) -> Result<(), String> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(target);
    made.map_err(|error| format!("create {}: {error}", target.display()))
}

fn make_link(target: &Path, link: &Path) -> io::Result<()> {
    if let Some(parent) = target.parent() {
        make_directory(parent).map_err(io::Error::other)?;
    }
    match symlink(link, target) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Makes the tree the root and detaches the old one. A root in memory becomes read-only; a held one has its attributes.
fn enter_root(root: &Path, is_held: bool) -> io::Result<()> {
    rustix::process::chdir(root)?;
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    rustix::process::chdir("/")?;
    if is_held {
        return Ok(());
    }
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    sys::set_mount_attributes(root.as_fd(), libc::MOUNT_ATTR_RDONLY, 0)
}
