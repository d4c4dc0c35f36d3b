//! Checks of a store's folder: local and writable.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::files::StoreFiles;
use super::opening::SqliteOpenFault;

/// Checks that the folder exists, is on a local disk, and is writable.
pub(super) fn check_folder(files: &StoreFiles) -> Result<(), SqliteOpenFault> {
    let folder = files.folder();
    let metadata = std::fs::metadata(folder).map_err(|error| SqliteOpenFault::io(folder, "found", error))?;
    if let Some(system) = network_file_system(folder) {
        return Err(SqliteOpenFault::NetworkFileSystem { path: folder.to_owned(), system });
    }
    // Respect a missing write bit even for root, which could write anyway.
    if metadata.permissions().mode() & 0o200 == 0 {
        return Err(SqliteOpenFault::ReadOnly { path: folder.to_owned() });
    }
    Ok(())
}

/// Returns the file system's name if the folder is on a network file system: locks and shared memory fail there.
fn network_file_system(folder: &Path) -> Option<String> {
    // If statfs fails, the folder is accepted.
    let magic = rustix::fs::statfs(folder).ok()?.f_type;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let folder = folder.canonicalize().ok()?;
    classify_file_system(magic, folder.to_str()?, &mounts)
}

const FUSE_MAGIC: i64 = 0x6573_5546;
const NETWORK_FILE_SYSTEMS: &[(i64, &str)] = &[
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x5346_414f, "AFS"),
    (0x00c3_6400, "Ceph"),
];
/// FUSE file systems backed by a network.
const FUSE_NETWORK_FILE_SYSTEMS: &[&str] =
    &["sshfs", "rclone", "s3fs", "gcsfuse", "davfs", "glusterfs", "ceph", "cifs", "smb"];

fn classify_file_system(magic: i64, folder: &str, mounts: &str) -> Option<String> {
    let magic = magic & 0xffff_ffff;
    if magic != FUSE_MAGIC {
        return NETWORK_FILE_SYSTEMS
            .iter()
            .find(|(known, _)| *known == magic)
            .map(|(_, name)| (*name).to_owned());
    }
    let (_, system) = mounts
        .lines()
        .filter_map(parse_mount)
        .filter(|(point, _)| contains_folder(point, folder))
        .max_by_key(|(point, _)| point.len())?;
    FUSE_NETWORK_FILE_SYSTEMS.iter().any(|name| system.contains(name)).then(|| system.to_owned())
}

/// Parses the mount point and the file system type of a `mountinfo` line.
fn parse_mount(line: &str) -> Option<(&str, &str)> {
    let (before, after) = line.split_once(" - ")?;
    Some((before.split(' ').nth(4)?, after.split(' ').next()?))
}

fn contains_folder(point: &str, folder: &str) -> bool {
    folder
        .strip_prefix(point.trim_end_matches('/'))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_recognized() {
        let mounts = "22 1 8:1 / / rw - ext4 /dev/sda rw\n\
                      30 22 0:40 / /mnt/far rw shared:1 - fuse.sshfs host:/ rw\n\
                      31 22 0:41 / /mnt/farther rw - fuse.gocryptfs crypt rw\n";
        for (magic, folder, expected) in [
            (0x6969, "/srv", Some("NFS")),
            (0xff53_4d42, "/srv", Some("CIFS")),
            (0xff53_4d42_u32 as i32 as i64, "/srv", Some("CIFS")),
            (0xef53, "/srv", None),
            (FUSE_MAGIC, "/mnt/far/home", Some("fuse.sshfs")),
            (FUSE_MAGIC, "/mnt/far", Some("fuse.sshfs")),
            (FUSE_MAGIC, "/mnt/farther", None),
            (FUSE_MAGIC, "/elsewhere", None),
        ] {
            assert_eq!(
                classify_file_system(magic, folder, mounts).as_deref(),
                expected,
                "{magic:#x} {folder}"
            );
        }
    }
}
