//! Rule: the room table, which says which workspace crate (room) may depend on which, and which external crates it must
//! not use. A crate without a row fails tidy.

use super::finding::{Finding, Rule};
use super::workspace::{Dependency, Member, Purpose};

/// A workspace crate and its dependency rules.
pub(crate) struct Room {
    /// The package name.
    pub(crate) name: &'static str,
    /// The workspace crates that it may depend on.
    uses: &'static [&'static str],
    /// External crates that it must not depend on, not even for tests.
    forbidden: &'static [&'static [&'static str]],
    pub(crate) std_access: StdAccess,
}

/// The parts of the standard library that a room's code may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StdAccess {
    /// No side effects: no files, sockets, processes, threads, clocks or environment.
    Pure,
    /// I/O in these modules only, given by their paths below `src`; the rest of the room has no side effects.
    IoIn(&'static [&'static str]),
    /// I/O, but no environment variables: the room gets its options from the caller.
    Io,
    /// I/O and the environment.
    IoAndEnvironment,
}

const PROTOCOL: &str = "nexus3-protocol";
const CLIENT: &str = "nexus3-client";
/// The rooms that the binary assembles: all but the development tools.
const ASSEMBLED: &[&str] = &[
    PROTOCOL, CLIENT, "accept", "agent", "runtime", "provider", "local", "weights", "tools", "sandbox",
    "git", "store", "mcp", "rpc", "server", "console",
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

/// The modules of `tools` that open files or sockets or start processes: the one that opens files beneath a permitted
/// root, for all tools, the one that runs permitted commands, the one that connects to permitted hosts, and the workspace,
/// which the runtime calls and no tool does.
const TOOLS_IO: &[&str] = &["commands/runner", "fs/beneath_root", "net/egress", "workspace"];

/// The room table: name, allowed workspace crates, forbidden external crates, allowed parts of the standard library.
/// ARCHITECTURE.md has the reasons. A row may exist before its crate: `mcp`, and the sandbox program `ash`.
pub(crate) const ROOMS: &[Room] = &[
    room(PROTOCOL, &[], &[ASYNC, HTTP, SQL, SYSTEM, CLOCK, RANDOM], StdAccess::Pure),
    room(CLIENT, &[PROTOCOL], &[SQL], StdAccess::Io),
    room("agent", &[], &[ASYNC, HTTP, SQL, SYSTEM, CLOCK, RANDOM, LOG], StdAccess::Pure),
    room("runtime", &["agent"], &[HTTP, SQL], StdAccess::Io),
    room("provider", &["agent"], &[HTTP_SERVER, SQL], StdAccess::Io),
    room("accept", &[], &[HTTP, SQL, SYSTEM], StdAccess::Io),
    room("local", &["accept"], &[HTTP_CLIENT, SQL], StdAccess::Io),
    room("weights", &[], &[HTTP_SERVER, SQL], StdAccess::Io),
    room("sandbox", &[], &[HTTP, SQL], StdAccess::Io),
    room("git", &[], &[ASYNC, HTTP, SQL, SYSTEM, RANDOM, LOG], StdAccess::Io),
    room("tools", &["agent", "git", "mcp", "sandbox"], &[SQL], StdAccess::IoIn(TOOLS_IO)),
    room("store", &["agent"], &[HTTP], StdAccess::Io),
    room("mcp", &[PROTOCOL], &[SQL], StdAccess::Io),
    room("rpc", &[PROTOCOL, "agent", "runtime"], &[HTTP, SQL], StdAccess::Io),
    room("server", &[PROTOCOL, "accept", "rpc", "mcp"], &[HTTP_CLIENT, SQL], StdAccess::Io),
    room("console", &[CLIENT, PROTOCOL], &[HTTP, SQL], StdAccess::Io),
    room("nexus3", ASSEMBLED, &[], StdAccess::IoAndEnvironment),
    room("ash", &[CLIENT, PROTOCOL], &[HTTP_CLIENT, SQL], StdAccess::Io),
    room("testkit", &["agent", "store", CLIENT, PROTOCOL], &[], StdAccess::IoAndEnvironment),
    room("xtask", &[], &[], StdAccess::IoAndEnvironment),
];

/// Dependencies that are allowed in tests only, besides the testkit, which the tests of every room may use. Tests run
/// above the real rooms, because test doubles would be second implementations: runtime, rpc and tools above the in-memory
/// store, the tools that a small model sees above the real ones, the HTTP door above a pool.
const TEST_DEPENDENCIES: &[(&str, &str)] = &[
    ("rpc", "store"),
    ("runtime", "store"),
    ("runtime", "tools"),
    ("server", "agent"),
    ("server", "runtime"),
    ("server", "store"),
    ("tools", "store"),
    ("server", "tools"),
];

/// Crate names without a meaning: such crates attract unrelated code.
const MEANINGLESS_NAMES: &[&str] = &["core", "common", "types", "util", "utils", "helper", "helpers"];

/// Checks the members of the workspace against the table.
pub(crate) fn check(members: &[Member]) -> Vec<Finding> {
    members.iter().flat_map(|member| check_member(members, member)).collect()
}

/// Returns the room of a file under `src/`. Examples and tests are separate programs and belong to no room.
pub(crate) fn room_of_source(members: &[Member], path: &str) -> Option<&'static Room> {
    let member = members.iter().find(|member| path.starts_with(&format!("{}/src/", member.folder)))?;
    find_room(&member.name)
}

const fn room(
    name: &'static str,
    uses: &'static [&'static str],
    forbidden: &'static [&'static [&'static str]],
    std_access: StdAccess,
) -> Room {
    Room { name, uses, forbidden, std_access }
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
            format!("the crate name `{}` says nothing about its content", member.name),
            "name it after what it owns",
        ));
    }
    let Some(room) = find_room(&member.name) else {
        findings.push(Finding::new(
            Rule::Room,
            &member.manifest(),
            1,
            format!("`{}` is not in the room table", member.name),
            "add a row with its allowed dependencies to xtask/src/tidy/rooms.rs",
        ));
        return findings;
    };
    findings.extend(member.dependencies.iter().filter_map(|dependency| {
        let (problem, remedy) = dependency_problem(members, room, dependency)?;
        Some(Finding::new(Rule::Room, &member.manifest(), dependency.line, problem, remedy))
    }));
    findings
}

/// Returns the problem with a dependency and its remedy, if there is one.
fn dependency_problem(members: &[Member], room: &Room, dependency: &Dependency) -> Option<(String, String)> {
    let (from, to) = (room.name, dependency.name.as_str());
    let is_in_workspace =
        ROOMS.iter().any(|room| room.name == to) || members.iter().any(|member| member.name == to);
    let may_use = room.uses.contains(&to)
        || (dependency.purpose == Purpose::Test && (to == "testkit" || TEST_DEPENDENCIES.contains(&(from, to))))
        // A crate may depend on itself for its tests.
        || from == to;
    if is_in_workspace && !may_use {
        let allowed = match room.uses {
            [] => "no workspace crate".to_owned(),
            uses => format!("only {}", uses.join(", ")),
        };
        return Some((
            format!("`{from}` may not depend on `{to}`"),
            format!("it may depend on {allowed}; move the code, or change the room table with a decision"),
        ));
    }
    if !is_in_workspace && room.forbidden.iter().any(|group| group.contains(&to)) {
        return Some((
            format!("`{from}` must not depend on `{to}`"),
            "move the code to the room that owns it, or pass it in through a trait".to_owned(),
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
    fn room_depends_only_on_crates_in_its_row() {
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
            assert_eq!(found(from, to, Purpose::Build), [format!("`{from}` may not depend on `{to}`")]);
        }
        for (from, to) in [("rpc", "agent"), ("nexus3", "provider"), (CLIENT, PROTOCOL), ("tools", "mcp")] {
            assert!(found(from, to, Purpose::Build).is_empty(), "{from} -> {to}");
        }
    }

    #[test]
    fn tests_of_every_room_may_use_the_testkit() {
        for room in ROOMS.iter().filter(|room| room.name != "testkit") {
            assert!(found(room.name, "testkit", Purpose::Test).is_empty());
            assert_eq!(found(room.name, "testkit", Purpose::Build).len(), 1, "{}", room.name);
        }
    }

    #[test]
    fn listed_tests_may_use_further_rooms() {
        for (from, to) in TEST_DEPENDENCIES {
            assert!(found(from, to, Purpose::Test).is_empty(), "{from}");
            assert_eq!(found(from, to, Purpose::Build), [format!("`{from}` may not depend on `{to}`")]);
        }
        assert_eq!(found("provider", "store", Purpose::Test), ["`provider` may not depend on `store`"]);
    }

    #[test]
    fn forbidden_external_crates_are_reported() {
        for (from, to) in [
            (PROTOCOL, "tokio"),
            ("agent", "tracing"),
            ("agent", "jiff"),
            ("runtime", "hyper"),
            ("rpc", "rusqlite"),
            ("server", "reqwest"),
        ] {
            assert_eq!(found(from, to, Purpose::Build), [format!("`{from}` must not depend on `{to}`")]);
            assert_eq!(found(from, to, Purpose::Test).len(), 1, "not even for tests: {from} -> {to}");
        }
        assert!(found("runtime", "tokio", Purpose::Build).is_empty());
        assert!(found("rpc", "jiff", Purpose::Build).is_empty());
    }

    #[test]
    fn crate_without_a_row_is_reported_but_not_the_reverse() {
        assert_eq!(check(&[member("attic", &[])])[0].problem, "`attic` is not in the room table");
        assert!(check(&[]).is_empty());
    }

    #[test]
    fn meaningless_crate_name_is_reported() {
        let findings = check(&[member("utils", &[])]);
        assert!(findings.iter().any(|finding| finding.rule == Rule::CrateName), "{findings:?}");
    }

    #[test]
    fn every_row_names_existing_rows_and_not_itself() {
        for row in ROOMS {
            for used in row.uses {
                assert!(find_room(used).is_some() && *used != row.name, "{} uses {used}", row.name);
            }
        }
    }

    #[test]
    fn code_of_a_room_is_under_its_src_directory() {
        let members = [member("agent", &[])];
        assert!(room_of_source(&members, "crates/agent/src/turn/step.rs").is_some());
        assert!(room_of_source(&members, "crates/agent/tests/turn.rs").is_none());
        assert!(room_of_source(&members, "crates/agentless/src/lib.rs").is_none());
    }
}
