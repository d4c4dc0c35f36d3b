//! Counts the daemon's connections in the kernel's socket table. Only root could read the daemon's list of descriptors:
//! the daemon is not dumpable, which closes `/proc` to other processes of its user.

use std::collections::BTreeSet;
use std::fs;

/// Limit on the readings until two in a row agree.
const READINGS_MAX: usize = 20;

/// Number of connections for which the daemon on this port holds a descriptor. A connection in the backlog, or one that
/// is closed and lingers in the kernel, has none.
///
/// The kernel returns its table one page at a time. If the last line of a page is gone when the next page is read, the
/// kernel resumes by counting lines from the start. Sockets of any process on the machine that were opened or closed
/// meanwhile then make it repeat or skip lines. So each connection counts once, and a count is valid only when two
/// readings agree.
pub fn held_connections(port: u16) -> usize {
    let mut previous = held_by(port);
    for _ in 0..READINGS_MAX {
        let current = held_by(port);
        if current == previous {
            break;
        }
        previous = current;
    }
    previous.len()
}

/// The remote addresses of held connections, each with the inode of its socket.
fn held_by(port: u16) -> BTreeSet<(String, String)> {
    let table = fs::read_to_string("/proc/net/tcp").expect("the kernel's socket table is readable");
    let local_port = format!(":{port:04X}");
    let held_connection = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, local_address, remote_address, _, _, _, _, _, _, inode, ..] = fields[..] else { return None };
        let is_held =
            local_address.ends_with(&local_port) && !remote_address.ends_with(":0000") && inode != "0";
        is_held.then(|| (remote_address.to_owned(), inode.to_owned()))
    };
    table.lines().filter_map(held_connection).collect()
}
