//! A hostile program tries to leave its sandbox, as root and as an unprivileged user, in both tiers. Each attempt has a row
//! with the outcomes that it must have.

use std::collections::BTreeMap;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};

use sandbox::Tier;
use serde_json::{Value, json};

use crate::programs::{Programs, users};

/// The result of each attempt, by its number.
type Results = BTreeMap<String, String>;

/// Runs all attempts, with real peers for those that connect.
fn attempt_all(user: u32, tier: Option<Tier>) -> Results {
    let programs = Programs::new(user);
    let set_uid = programs.path("inside/set-uid");
    programs.copy(env!("CARGO_BIN_EXE_sandbox-hostile"), "inside/set-uid");
    std::fs::set_permissions(&set_uid, std::fs::Permissions::from_mode(0o4755)).unwrap();
    programs.copy("/bin/true", "outside/program");
    std::os::unix::fs::symlink("secret", programs.path("outside/link")).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let stream = UnixListener::bind(programs.path("outside/stream")).unwrap();
    let datagram = UnixDatagram::bind(programs.path("outside/datagram")).unwrap();
    ["outside/stream", "outside/datagram"].iter().for_each(|name| programs.own(name));
    let name = format!("nexus3-test-{}", tcp.local_addr().unwrap().port());
    let address = |name: &str| SocketAddr::from_abstract_name(name).unwrap();
    let _abstract = UnixListener::bind_addr(&address(&name)).unwrap();
    let _abstract_datagram = UnixDatagram::bind_addr(&address(&format!("{name}-datagram"))).unwrap();
    tcp.set_nonblocking(true).unwrap();
    udp.set_nonblocking(true).unwrap();
    stream.set_nonblocking(true).unwrap();
    datagram.set_nonblocking(true).unwrap();
    let targets = json!({
        "inside": programs.text("inside"),
        "outside": programs.text("outside"),
        "daemon": "{daemon}",
        "tcp_port": tcp.local_addr().unwrap().port(),
        "udp_port": udp.local_addr().unwrap().port(),
        "abstract_name": name,
    });
    let output = programs.hostile(tier, &["attempts", &targets.to_string()]).output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(!stdout.is_empty(), "no attempt was made: {}", String::from_utf8_lossy(&output.stderr));
    // A file of the command in a directory that the tier makes private is not in that of the system.
    for directory in ["/dev/shm", "/tmp"] {
        let is_visible = std::fs::remove_file(format!("{directory}/{name}")).is_ok();
        assert_eq!(is_visible, tier.is_none(), "{directory}");
    }
    let arrived = [
        udp.recv(&mut [0]).is_ok(),
        stream.accept().is_ok(),
        tcp.accept().is_ok(),
        datagram.recv(&mut [0]).is_ok(),
    ];
    assert_eq!(arrived, [tier.is_none(); 4]);
    let lines = stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.map(|line| (text(&line, "number"), text(&line, "result"))).collect()
}

fn text(line: &Value, key: &str) -> String {
    line[key].as_str().unwrap().to_owned()
}

/// An attempt by its number and what it has to result in: in the tier `landlock`, in the tier `namespaces`, and as a proof
/// that it was an attempt, without a sandbox as root. Words are alternatives: outcomes for root and for other users, or of
/// kernels that were built without the feature.
#[derive(Clone, Copy)]
struct Row {
    number: &'static str,
    landlock: &'static str,
    namespaces: &'static str,
    control: &'static str,
}

const fn row(
    number: &'static str,
    landlock: &'static str,
    namespaces: &'static str,
    control: &'static str,
) -> Row {
    Row { number, landlock, namespaces, control }
}

/// The results of invalid calls that a kernel does not refuse.
const REACHED: &str = "EINVAL EFAULT EBADF ENOSYS ok";

/// Where `ok` stands for the tier `landlock` and an error for `namespaces`, that tier cannot prevent it: metadata of files,
/// modes and times of the user's own files, command lines and limits of the user's processes. Where both are `ok`, commands
/// need it, or it is private.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("1", "EACCES", "ENOENT", "ok"),
    row("1b", "EACCES", "ENOENT", "ok"),
    row("2", "EACCES", "ENOENT", "ok"),
    row("3", "EACCES", "ENOENT", "ok"),
    row("3b", "EACCES", "ENOENT", "ok"),
    row("4", "EACCES", "ENOENT", "ok"),
    row("5a", "EACCES", "ENOENT", "ok"),
    row("5b", "EACCES", "ENOENT", "ok"),
    row("6", "EACCES", "ENOENT", "ok"),
    row("7a", "EACCES", "ENOENT", "ok"),
    row("7b", "EACCES", "ENOENT", "ok"),
    row("7c", "EACCES", "ENOENT", "ok"),
    row("8a", "EXDEV", "ENOENT", "ok"),
    row("8b", "EXDEV", "ENOENT", "ok"),
    row("9", "EACCES", "ENOENT", "ok"),
    row("10a", "EACCES", "ENOENT", "ok"),
    row("10b", "EACCES", "ENOENT", "ok"),
    row("11", "EACCES", "ENOENT", "ok"),
    row("12a", "ok", "ENOENT", "ok"),
    row("12b", "ok", "ENOENT", "ok"),
    row("12c", "ok", "ENOENT", "ok"),
    row("12d", "ok", "ENOENT", "ok"),
    row("13a", "ok", "ENOENT", "ok"),
    row("13b", "ok", "ENOENT", "ok"),
    row("13c", "ok", "ENOENT", "ok"),
    row("13d", "ok", "ENOENT", "ok"),
    row("14", "ok", "ENOENT", "ok"),
    row("15a", "EBADF", "EBADF", "ok"),
    row("15b", "EBADF", "EBADF", "ok"),
    row("16a", "EPERM", "EPERM", "ok"),
    row("16b", "EPERM", "EPERM", "ok"),
    row("17a", "EPERM", "EPERM", "ok"),
    row("17b", "EPERM", "EPERM", "ok"),
    row("17c", "ok", "ok", "ok"),
    row("18a", "EPERM", "EPERM", "ok"),
    row("18b", "EPERM", "EPERM", "EBUSY EINVAL"),
    row("19a", "EPERM", "EPERM", "ok"),
    row("19b", "EPERM", "EPERM", "ok"),
    row("20a", "EPERM", "EPERM", "ok"),
    row("20b", "EPERM", "EPERM", "ok"),
    row("20c", "ENOSYS", "ENOSYS", "ok ENOSYS"),
    row("21a", "EPERM", "EPERM", "ok"),
    row("21b", "EPERM", "EPERM", "ok"),
    row("21c", "EPERM", "EPERM", "ok"),
    row("22", "EPERM", "EPERM", "ok"),
    row("22b", "EPERM", "EPERM", "ok"),
    row("23a", "ENOSYS", "ENOSYS", "ok"),
    row("23b", "ENOSYS", "ENOSYS", "ok"),
    row("23c", "ok", "ok", "ok"),
    row("24", "EACCES", "ENOENT", "ok"),
    row("25", "EPERM", "EPERM", "ok"),
    row("26a", "EPERM", "ESRCH", "ok"),
    row("26b", "EPERM", "ESRCH", "ok"),
    row("26c", "EPERM", "ESRCH", "ok"),
    row("27", "EPERM", "EPERM", "ok"),
    row("28", "EPERM", "EPERM", "ok"),
    row("29a", "EPERM", "EPERM", "ok"),
    row("29b", "EPERM", "ESRCH", "ok"),
    row("29c", "EPERM", "EPERM", "ok"),
    row("30a", "EACCES", "ENOENT", "ok"),
    row("30b", "EACCES", "ENOENT", "ok"),
    row("30c", "EACCES", "ENOENT", "ok"),
    row("30d", "EACCES", "ENOENT", "ok"),
    row("30e", "EACCES", "ENOENT", "ok"),
    row("30f", "EACCES", "EACCES", "ok"),
    row("30g", "EACCES", "EACCES", "ok"),
    row("31", "ok", "ENOENT", "ok"),
    row("32a", "EPERM", "ESRCH", "ok"),
    row("32b", "EPERM", "ESRCH", "ok"),
    row("32c", "EPERM", "ESRCH", "ok"),
    row("32d", "ok", "ESRCH", "ok"),
    row("32e", "EPERM", "ESRCH", "ok"),
    row("32f", "EPERM", "ESRCH", "ok"),
    row("32g", "EPERM", "EINVAL", "EINVAL"),
    row("32h", "ok", "ok", "ok"),
    row("32i", "ok", "ok", "ok"),
    row("32j", "EPERM", "EPERM", "ok"),
    row("33", "EACCES", "EACCES", "ok"),
    row("33b", "EACCES ENOENT", "EACCES ENOENT", "ok ENOENT"),
    row("33c", "EACCES", "EACCES", "ok"),
    row("33d", "EACCES EPERM ENOENT", "EACCES EPERM ENOENT", "ok ENOENT"),
    row("34", "EACCES", "ENOENT", "ok"),
    row("34b", "EACCES", "ENOENT", "ok"),
    row("35a", "EACCES", "ENOENT", "ok"),
    row("35b", "EACCES", "ENOENT", "ok EPERM"),
    row("35c", "EACCES", "ENOENT", "ok"),
    row("35d", "EACCES", "ENOENT", "ok ENXIO"),
    row("36a", "EPERM", "EPERM", "ok"),
    row("36b", "EPERM", "EPERM", "ok"),
    row("37", "EPERM", "EPERM", "ok"),
    row("38", "EPERM", "EPERM", "ok"),
    row("39a", "EPERM", "EPERM", "ok"),
    row("39b", "EPERM", "EPERM", "ok EPROTONOSUPPORT"),
    row("40", "EPERM", "EPERM", "ok"),
    row("41a", "EPERM", "EPERM", "ok"),
    row("41b", "EPERM", "EPERM", "ok"),
    row("42a", "EPERM", "EPERM", "ok"),
    row("42b", "EPERM", "EPERM", "ok EAFNOSUPPORT"),
    row("42c", "EPERM", "EPERM", "ok EAFNOSUPPORT"),
    row("42d", "EPERM", "EPERM", "ok EAFNOSUPPORT"),
    row("42e", "EPERM", "EPERM", "ok EAFNOSUPPORT"),
    row("43a", "EPERM", "EPERM", "ok"),
    row("43b", "EPERM", "EPERM", "ok"),
    row("43c", "EPERM", "EPERM", "ok"),
    row("43d", "EPERM", "EPERM", "ok"),
    row("43e", "EPERM", "EPERM", "ok"),
    row("43f", "EISCONN", "ENOENT", "EISCONN"),
    row("44a", "EPERM", "EPERM", "ok"),
    row("44b", "EPERM", "EPERM", "ok"),
    row("45a", "ok", "ok", "ok"),
    row("45b", "ok", "ok", "ok"),
    row("45c", "EPERM", "EPERM", "ok EAFNOSUPPORT"),
    row("46", "EBADF", "EBADF", "EAGAIN"),
    row("47a", "EPERM", "EPERM", "ok"),
    row("47b", "EPERM", "EPERM", "EINVAL"),
    row("47c", "EPERM", "EPERM", "EINVAL"),
    row("47d", "EPERM", "EPERM", "EINVAL"),
    row("47e", "EPERM", "EPERM", "EINVAL"),
    row("47f", "EPERM", "EPERM", "EINVAL"),
    row("47g", "EPERM", "EPERM", "ok"),
    row("47h", "EPERM", "EPERM", "ENOENT"),
    row("48", "EACCES", "ok", "ok"),
    row("48b", "EACCES", "ok", "ok"),
    row("49", "ENOSYS", "ENOSYS", "ok"),
    row("50a", "EPERM", "EPERM", "ok"),
    row("50b", "EPERM", "EPERM", "ok"),
    row("50c", "EPERM", "EPERM", "ok"),
    row("50d", "EPERM", "EPERM", "ok"),
    row("51a", "EPERM", "EPERM", "ok"),
    row("51b", "EPERM", "EPERM", "ok"),
    row("52a", "EPERM", "EPERM", "ENOTTY"),
    row("52b", "EPERM", "EPERM", "ENOTTY"),
    row("52c", "EPERM", "EPERM", "ENOTTY"),
    row("53a", "SIGSYS", "SIGSYS", "ok ENOSYS"),
    row("53b", "SIGSYS", "SIGSYS", "ok"),
    row("53c", "ENOSYS", "ENOSYS", "ENOSYS"),
    row("54a", "EACCES", "ENOENT", "ok"),
    row("54b", "EACCES", "ENOENT", "ok"),
    row("55a", "EPERM", "EPERM", "ok"),
    row("55b", "EPERM", "EPERM EINVAL", "ok"),
    row("55c", "EPERM", "EPERM", "ok"),
    row("55d", "EPERM", "EPERM", "ok"),
    row("55e", "EPERM", "EPERM", "ok ENOSYS"),
    row("55f", "EPERM", "EPERM", "ok"),
    row("55g", "EPERM", "EPERM", "ok"),
    row("55h", "ENOSYS", "ENOSYS", "ok"),
    row("55i", "ok", "ok", "ok"),
    row("59", "ok", "ok", "ok"),
];

fn is_one_of(result: &str, expected: &str) -> bool {
    expected.split(' ').any(|word| word == result)
}

/// The row of an attempt. System calls that are tried with invalid arguments have one row.
fn row_of(number: &str) -> Row {
    if number.starts_with("call ") {
        return row("", "EPERM", "EPERM", REACHED);
    }
    const ABSENT: &str = "a row in the table";
    let found = ROWS.iter().find(|row| row.number == number);
    found.copied().unwrap_or(row("", ABSENT, ABSENT, ABSENT))
}

fn check_tier(tier: Tier) {
    for user in users() {
        let results = attempt_all(user, Some(tier));
        let missing = ROWS.iter().find(|row| !results.contains_key(row.number));
        assert!(missing.is_none(), "{:?} was not tried", missing.map(|row| row.number));
        for (number, result) in results {
            let row = row_of(&number);
            let expected = if tier == Tier::Landlock { row.landlock } else { row.namespaces };
            assert!(is_one_of(&result, expected), "{number} as {user}: {result} in place of {expected}");
        }
    }
}

/// The numbers of the attempts to reach the network, sockets of other programs, io_uring and foreign ABIs.
const NETWORK_NUMBERS: std::ops::RangeInclusive<u32> = 36..=46;
const OTHER_WAYS_OUT: [&str; 4] = ["49", "53a", "53b", "53c"];

fn is_network_attempt(number: &str) -> bool {
    let digits = number.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    OTHER_WAYS_OUT.contains(&number) || digits.parse().is_ok_and(|digits| NETWORK_NUMBERS.contains(&digits))
}

/// The listeners of `attempt_all` receive nothing. What is `ok` is a pair of sockets of the command itself.
#[test]
fn threat_82_no_attempt_reaches_the_network() {
    for tier in [Tier::Landlock, Tier::Namespaces] {
        let results = attempt_all(rustix::process::geteuid().as_raw(), Some(tier));
        let network: Vec<_> = results.iter().filter(|(number, _)| is_network_attempt(number)).collect();
        assert!(network.len() >= 20, "{network:?}");
        for (number, result) in network {
            assert_eq!(result == "ok", ["45a", "45b"].contains(&number.as_str()), "{number}: {result}");
        }
    }
}

#[test]
fn threat_81_escapes_fail_under_landlock() {
    check_tier(Tier::Landlock);
}

#[test]
fn threat_81_escapes_fail_in_namespaces() {
    check_tier(Tier::Namespaces);
}

/// Without a sandbox the same attempts succeed. Only root may do all of them.
#[test]
fn threat_81_escapes_succeed_without_a_sandbox() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root may do what the sandbox refuses");
        return;
    }
    for (number, result) in attempt_all(0, None) {
        let expected = row_of(&number).control;
        assert!(is_one_of(&result, expected), "{number}: {result} in place of {expected}");
    }
}
