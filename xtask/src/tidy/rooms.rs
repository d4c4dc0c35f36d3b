//! The map of the house as a table: which room may use which, and what may never enter it.
//! A new crate gets a row here, or tidy fails.

use super::finding::{Finding, Rule};
use super::workspace::{Dependency, Member, Purpose};

/// One crate of ours and its rules.
pub(crate) struct Room {
    /// The name of the package.
    pub(crate) name: &'static str,
    /// Our crates that it may use.
    uses: &'static [&'static str],
    /// Crates of others that may never enter, not even for tests.
    forbidden: &'static [&'static [&'static str]],
    pub(crate) std_access: StdAccess,
}

/// What the code of a room may name of the standard library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StdAccess {
    /// Decides only: no file, socket, process, thread, clock or environment.
    Pure,
    /// Acts, but is told its options instead of reading the environment.
    Io,
    /// Reads the environment too.
    IoAndEnvironment,
}

const PROTOCOL: &str = "nexus3-protocol";
const CLIENT: &str = "nexus3-client";
/// What the binary puts together: all rooms but the tools of development.
const ASSEMBLED: &[&str] = &[
    PROTOCOL, CLIENT, "agent", "runtime", "provider", "local", "weights", "tools", "store", "mcp", "rpc",
    "server", "console",
];

const ASYNC: &[&str] = &["tokio", "tokio-util", "async-std", "smol"];
const HTTP: &[&str] = &["hyper", "hyper-util", "http", "http-body-util", "reqwest", "axum"];
const HTTP_SERVER: &[&str] = &["hyper", "axum"];
const HTTP_CLIENT: &[&str] = &["reqwest"];
const SQL: &[&str] = &["rusqlite", "sqlx", "postgres", "tokio-postgres"];
const SYSTEM: &[&str] = &["socket2", "rustix", "nix", "libc", "mio"];
const CLOCK: &[&str] = &["jiff", "chrono", "time"];
const RANDOM: &[&str] = &["getrandom", "rand", "fastrand", "uuid"];
const LOG: &[&str] = &["tracing", "log"];

/// The room table: name, what it may use of ours, what may never enter, what its code may name.
/// The reasons are in ARCHITECTURE.md. A row may wait for its crate.
pub(crate) const ROOMS: &[Room] = &[
    room(PROTOCOL, &[], &[ASYNC, HTTP, SQL, SYSTEM, CLOCK, RANDOM], StdAccess::Pure),
    room(CLIENT, &[PROTOCOL], &[SQL], StdAccess::Io),
    room("agent", &[], &[ASYNC, HTTP, SQL, SYSTEM, CLOCK, RANDOM, LOG], StdAccess::Pure),
    room("runtime", &["agent"], &[HTTP, SQL], StdAccess::Io),
    room("provider", &["agent"], &[HTTP_SERVER, SQL], StdAccess::Io),
    room("local", &[], &[HTTP_CLIENT, SQL], StdAccess::Io),
    room("weights", &[], &[HTTP_SERVER, SQL], StdAccess::Io),
    room("tools", &["agent", "mcp"], &[SQL], StdAccess::Io),
    room("store", &["agent"], &[HTTP], StdAccess::Io),
    room("mcp", &[PROTOCOL], &[SQL], StdAccess::Io),
    room("rpc", &[PROTOCOL, "agent", "runtime"], &[HTTP, SQL], StdAccess::Io),
    room("server", &[PROTOCOL, "rpc", "mcp"], &[HTTP_CLIENT, SQL], StdAccess::Io),
    room("console", &[CLIENT, PROTOCOL], &[HTTP, SQL], StdAccess::Io),
    room("nexus3", ASSEMBLED, &[], StdAccess::IoAndEnvironment),
    room("ash", &[CLIENT, PROTOCOL], &[HTTP_CLIENT, SQL], StdAccess::Io),
    room("testkit", &["agent", "store", CLIENT, PROTOCOL], &[], StdAccess::IoAndEnvironment),
    room("xtask", &[], &[], StdAccess::IoAndEnvironment),
];

/// What only tests may use. The process tests of the binary are the only ones that need the testkit; those of the runtime
/// and of rpc keep agents in the store in memory, because a double of it would be a second store.
const TEST_DEPENDENCIES: &[(&str, &str)] = &[("nexus3", "testkit"), ("rpc", "store"), ("runtime", "store")];

/// Names that say nothing, so that everything ends up there.
const MEANINGLESS_NAMES: &[&str] = &["core", "common", "types", "util", "utils", "helper", "helpers"];

/// Holds the members of the workspace against the table.
pub(crate) fn check(members: &[Member]) -> Vec<Finding> {
    members.iter().flat_map(|member| check_member(members, member)).collect()
}

/// The room whose code the file belongs to: under `src/`. Examples and tests are programs of their own.
pub(crate) fn room_of_source(members: &[Member], path: &str) -> Option<&'static Room> {
    let member = members.iter().find(|member| path.starts_with(&format!("{}/src/", member.folder)))?;
    find_room(&member.name)
}

const fn room(
    name: &'static str,
    uses: &'static [&'static str],
    never: &'static [&'static [&'static str]],
    reach: StdAccess,
) -> Room {
    Room { name, uses, forbidden: never, std_access: reach }
}

fn find_room(name: &str) -> Option<&'static Room> {
    ROOMS.iter().find(|room| room.name == name)
}

fn check_member(members: &[Member], member: &Member) -> Vec<Finding> {
    let mut findings = Vec::new();
    if MEANINGLESS_NAMES.contains(&member.name.as_str()) {
        findings.push(Finding::new(
            Rule::CrateName,
            &member.manifest(),
            1,
            format!("a crate named `{}` has no boundary", member.name),
            "name it after what it owns",
        ));
    }
    let Some(room) = find_room(&member.name) else {
        findings.push(Finding::new(
            Rule::Room,
            &member.manifest(),
            1,
            format!("`{}` is not in the room table", member.name),
            "add a row to xtask/src/tidy/rooms.rs that says what it may use",
        ));
        return findings;
    };
    findings.extend(member.dependencies.iter().filter_map(|dependency| {
        let (wrong, remedy) = dependency_problem(members, room, dependency)?;
        Some(Finding::new(Rule::Room, &member.manifest(), dependency.line, wrong, remedy))
    }));
    findings
}

/// What is wrong with the dependency, and what to do.
fn dependency_problem(members: &[Member], room: &Room, dependency: &Dependency) -> Option<(String, String)> {
    let (from, to) = (room.name, dependency.name.as_str());
    let is_ours = ROOMS.iter().any(|room| room.name == to) || members.iter().any(|ours| ours.name == to);
    let may_use = room.uses.contains(&to)
        || (dependency.purpose == Purpose::Test && TEST_DEPENDENCIES.contains(&(from, to)))
        // A crate may name itself for its own tests.
        || from == to;
    if is_ours && !may_use {
        let allowed = match room.uses {
            [] => "none of ours".to_owned(),
            uses => format!("only {}", uses.join(", ")),
        };
        return Some((
            format!("`{from}` may not use `{to}`"),
            format!("it may use {allowed}; move the code, or change the map with a decision"),
        ));
    }
    if !is_ours && room.forbidden.iter().any(|group| group.contains(&to)) {
        return Some((
            format!("`{to}` may never enter `{from}`"),
            "move the code to the room that owns it, or hand it in through a trait".to_owned(),
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, dependencies: &[(&str, Purpose)]) -> Member {
        let dependencies = dependencies
            .iter()
            .enumerate()
            .map(|(index, (name, purpose))| Dependency {
                name: (*name).to_owned(),
                line: index + 1,
                purpose: *purpose,
            })
            .collect();
        Member { name: name.to_owned(), folder: format!("crates/{name}"), dependencies }
    }

    fn found(name: &str, dependency: &str, purpose: Purpose) -> Vec<String> {
        check(&[member(name, &[(dependency, purpose)])]).into_iter().map(|finding| finding.problem).collect()
    }

    #[test]
    fn a_room_uses_only_what_its_row_says() {
        for (from, to) in [
            ("agent", "runtime"),
            ("agent", PROTOCOL),
            (PROTOCOL, "agent"),
            ("server", "agent"),
            ("server", "store"),
            ("console", "server"),
            ("provider", "store"),
            ("runtime", "testkit"),
            ("nexus3", "testkit"),
            ("xtask", PROTOCOL),
        ] {
            assert_eq!(found(from, to, Purpose::Build), [format!("`{from}` may not use `{to}`")]);
        }
        for (from, to) in [("rpc", "agent"), ("nexus3", "provider"), (CLIENT, PROTOCOL), ("tools", "mcp")] {
            assert!(found(from, to, Purpose::Build).is_empty(), "{from} -> {to}");
        }
    }

    #[test]
    fn only_the_tests_of_the_binary_use_the_testkit() {
        assert!(found("nexus3", "testkit", Purpose::Test).is_empty());
        assert_eq!(found("runtime", "testkit", Purpose::Test), ["`runtime` may not use `testkit`"]);
    }

    #[test]
    fn only_tests_of_the_runtime_and_of_rpc_use_a_store() {
        for from in ["rpc", "runtime"] {
            assert!(found(from, "store", Purpose::Test).is_empty(), "{from}");
            assert_eq!(found(from, "store", Purpose::Build), [format!("`{from}` may not use `store`")]);
        }
        assert_eq!(found("server", "store", Purpose::Test), ["`server` may not use `store`"]);
    }

    #[test]
    fn some_crates_of_others_never_enter() {
        for (from, to) in [
            (PROTOCOL, "tokio"),
            ("agent", "tracing"),
            ("agent", "jiff"),
            ("runtime", "hyper"),
            ("rpc", "rusqlite"),
            ("server", "reqwest"),
        ] {
            assert_eq!(found(from, to, Purpose::Build), [format!("`{to}` may never enter `{from}`")]);
            assert_eq!(found(from, to, Purpose::Test).len(), 1, "not even for tests: {from} -> {to}");
        }
        assert!(found("runtime", "tokio", Purpose::Build).is_empty());
        assert!(found("rpc", "jiff", Purpose::Build).is_empty());
    }

    #[test]
    fn a_crate_without_a_row_is_found_and_a_row_without_a_crate_is_not() {
        assert_eq!(check(&[member("attic", &[])])[0].problem, "`attic` is not in the room table");
        assert!(check(&[]).is_empty());
    }

    #[test]
    fn a_crate_named_after_nothing_is_found() {
        let findings = check(&[member("utils", &[])]);
        assert!(findings.iter().any(|finding| finding.rule == Rule::CrateName), "{findings:?}");
    }

    #[test]
    fn every_row_names_rooms_of_the_table_and_never_itself() {
        for row in ROOMS {
            for used in row.uses {
                assert!(find_room(used).is_some() && *used != row.name, "{} uses {used}", row.name);
            }
        }
    }

    #[test]
    fn the_code_of_a_room_is_what_is_under_its_src() {
        let members = [member("agent", &[])];
        assert!(room_of_source(&members, "crates/agent/src/turn/step.rs").is_some());
        assert!(room_of_source(&members, "crates/agent/tests/turn.rs").is_none());
        assert!(room_of_source(&members, "crates/agentless/src/lib.rs").is_none());
    }
}
