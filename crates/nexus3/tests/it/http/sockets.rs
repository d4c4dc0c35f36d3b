//! The daemon's connections as the kernel lists them. Its own list of descriptors can only be read by root: the daemon
//! hides itself from other processes of its user.

use std::collections::BTreeSet;
use std::fs;

/// How many connections the daemon on this port holds a descriptor for. One that waits to be accepted, or that was
/// closed and only lingers in the kernel, has none.
pub(crate) fn held_connections(port: u16) -> usize {
    let table = fs::read_to_string("/proc/net/tcp").expect("the kernel lists its sockets");
    let local = format!(":{port:04X}");
    let held = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, here, there, _, _, _, _, _, _, inode, ..] = fields[..] else { return None };
        let is_held = here.ends_with(&local) && !there.ends_with(":0000") && inode != "0";
        is_held.then(|| there.to_owned())
    };
    // The kernel may tell a line twice when its table changes while it is read.
    table.lines().filter_map(held).collect::<BTreeSet<String>>().len()
}
