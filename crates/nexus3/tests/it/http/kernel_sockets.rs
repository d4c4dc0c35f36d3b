//! The daemon's connections as the kernel lists them. Its own list of descriptors can only be read by root: the daemon
//! hides itself from other processes of its user.

use std::collections::BTreeSet;
use std::fs;

/// How often the list is read until two readings agree.
const READINGS_MAX: usize = 20;

/// How many connections the daemon on this port holds a descriptor for. One that waits to be accepted, or that was
/// closed and only lingers in the kernel, has none.
///
/// The kernel gives its list a page at a time. Where the last line of a page is gone when the next is read, it goes on by
/// counting lines from the start; sockets of anybody on the machine that came or went meanwhile then make it tell a stretch
/// of lines twice, or leave one out. So each connection counts once, and only what two readings agree on is believed.
pub(crate) fn held_connections(port: u16) -> usize {
    let mut before = held_by(port);
    for _ in 0..READINGS_MAX {
        let now = held_by(port);
        if now == before {
            break;
        }
        before = now;
    }
    before.len()
}

/// The peers, each with the number of the descriptor's file.
fn held_by(port: u16) -> BTreeSet<(String, String)> {
    let table = fs::read_to_string("/proc/net/tcp").expect("the kernel lists its sockets");
    let local = format!(":{port:04X}");
    let held = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, here, there, _, _, _, _, _, _, inode, ..] = fields[..] else { return None };
        let is_held = here.ends_with(&local) && !there.ends_with(":0000") && inode != "0";
        is_held.then(|| (there.to_owned(), inode.to_owned()))
    };
    table.lines().filter_map(held).collect()
}
