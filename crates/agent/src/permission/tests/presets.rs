//! The four built-in presets applied to requests, and custom presets, which can only narrow.

use super::*;

fn request() -> GrantRequest {
    GrantRequest::default_in(path("/w"))
}

fn builtin() -> Presets {
    Presets::builtin(&paths(&["/srv/.nexus3"]))
}

fn resolve(presets: &Presets, name: &str, request: &GrantRequest) -> Grant {
    presets.find(name).unwrap().resolve(request).unwrap().grant
}

fn refusal(name: &str, request: &GrantRequest) -> String {
    builtin().find(name).unwrap().resolve(request).unwrap_err().to_string()
}

/// The subset of these tools that a grant allows.
fn tools(grant: &Grant) -> Vec<&'static str> {
    let known = ["fs.read_file", "fs.write_file", "agent_create", "agent_list", "agent_send"];
    known.into_iter().filter(|tool| grant.tools.contains(tool)).collect()
}

#[test]
fn presets_grant_their_directories() {
    let out = || GrantRequest { write_paths: Some(paths(&["/w/out", "/w/log"])), ..request() };
    let empty = || GrantRequest { write_paths: Some(Vec::new()), ..request() };
    let cases = [
        ("yolo", request(), "anywhere", "anywhere"),
        ("yolo", out(), "anywhere", "/w/log, /w/out"),
        ("trusted", request(), "anywhere", "/w"),
        ("trusted", out(), "anywhere", "/w/log, /w/out"),
        ("trusted", GrantRequest { write_paths: Some(paths(&["/tmp"])), ..request() }, "anywhere", "/tmp"),
        ("sandboxed", request(), "/w", "nowhere"),
        ("sandboxed", out(), "/w", "/w/log, /w/out"),
        ("sandboxed", empty(), "/w", "nowhere"),
        ("worker", request(), "/w", "nowhere"),
        ("worker", empty(), "/w", "nowhere"),
    ];
    for (name, request, read, write) in cases {
        let grant = resolve(&builtin(), name, &request);
        let found = (grant.read.to_string(), grant.write.to_string());
        assert_eq!(found, (read.to_owned(), write.to_owned()), "{name} {request:?}");
        assert_eq!(grant.blocked, paths(&["/srv/.nexus3"]), "{name}");
        assert_eq!(grant.tools.contains("fs.write_file"), write != "nowhere", "{name} {request:?}");
    }
}

#[test]
fn worker_reads_stored_values_and_changes_none() {
    let reading = ["memory.recall", "memory.list"];
    let writing = ["memory.store", "memory.delete"];
    for preset in ["worker", "sandboxed", "trusted"] {
        let grant = resolve(&builtin(), preset, &request());
        assert!(reading.iter().all(|tool| grant.tools.contains(tool)), "{preset}");
        assert!(writing.iter().all(|tool| grant.tools.contains(tool) == (preset != "worker")));
    }
    let named = GrantRequest { tools: Some(arcs(&writing)), ..request() };
    assert!(!resolve(&builtin(), "worker", &named).tools.contains("memory.store"), "a list adds no tool");
}

#[test]
fn presets_grant_their_tools_targets_and_children() {
    let all = ["fs.read_file", "fs.write_file", "agent_create", "agent_list", "agent_send"];
    let cases: [(&str, &[&str], NameSet, Targets); 4] = [
        ("yolo", &all, NameSet::all(), Targets::all()),
        ("trusted", &all, NameSet::only(["sandboxed", "worker"]), Targets::parent_and_descendants()),
        ("sandboxed", &["fs.read_file", "agent_send"], NameSet::none(), Targets::parent()),
        ("worker", &["fs.read_file"], NameSet::none(), Targets::none()),
    ];
    for (name, tools_allowed, create, targets) in cases {
        let grant = resolve(&builtin(), name, &request());
        assert_eq!(tools(&grant), tools_allowed, "{name}");
        assert_eq!((grant.create, grant.targets), (create, targets), "{name}");
        assert_eq!(grant.budget, Budget::unlimited(), "{name}");
    }
}

fn commands(names: &[&str]) -> GrantRequest {
    GrantRequest { commands: Some(arcs(names)), ..request() }
}

#[test]
fn presets_grant_their_commands() {
    let two = || NameSet::only(["cargo", "/bin/ls"]);
    let cases = [
        ("yolo", request(), NameSet::all()),
        ("trusted", request(), NameSet::all()),
        ("trusted", commands(&["cargo", "/bin/ls"]), two()),
        ("trusted", commands(&["*"]), NameSet::all()),
        ("trusted", commands(&[]), NameSet::none()),
        ("sandboxed", request(), NameSet::none()),
        ("sandboxed", commands(&["cargo", "/bin/ls"]), two()),
        ("sandboxed", commands(&["*"]), NameSet::all()),
        ("sandboxed", commands(&[]), NameSet::none()),
        ("worker", request(), NameSet::none()),
        ("worker", commands(&[]), NameSet::none()),
    ];
    for (name, request, commands) in cases {
        let grant = resolve(&builtin(), name, &request);
        assert_eq!(grant.commands, commands, "{name} {:?}", request.commands);
        for tool in ["cmd.exec", "shell.exec", "process.start", "process.list"] {
            assert_eq!(grant.tools.contains(tool), !commands.is_empty(), "{name} {tool}");
        }
    }
    assert_eq!(
        refusal("worker", &commands(&["cargo"])),
        "preset 'worker' runs no commands: leave allowed_commands out, or choose another preset"
    );
}

#[test]
fn commands_of_a_custom_preset_are_its_default_and_its_most() {
    let narrowing = |names: &[&str]| Narrowing { commands: Some(arcs(names)), ..Narrowing::default() };
    for base in ["sandboxed", "trusted"] {
        let mut presets = with_custom(base, narrowing(&["cargo", "git"]));
        let mine = |request: &GrantRequest| resolve(&presets, "mine", request).commands;
        assert_eq!(mine(&request()), NameSet::only(["cargo", "git"]), "{base}");
        assert_eq!(mine(&commands(&["git", "rm"])), NameSet::only(["git"]), "{base}");
        assert_eq!(mine(&commands(&["*"])), NameSet::only(["cargo", "git"]), "{base}");
        let check = |names: &[&str]| presets.find("mine").unwrap().check_commands(&commands(names));
        assert_eq!(check(&["git"]), Ok(()));
        for beyond in ["rm", "*"] {
            let text = format!(
                "allowed_command '{beyond}' is not among the commands of preset 'mine'; choose from: only cargo, git"
            );
            assert_eq!(check(&["git", beyond]).unwrap_err().to_string(), text, "{base}");
        }
        for wider in [&["rm"][..], &["*"]] {
            let fault = presets.add("wider", "mine", narrowing(wider)).unwrap_err();
            assert_eq!(
                fault.to_string(),
                "preset 'wider' can only narrow 'mine': allowed_commands would widen it"
            );
        }
        presets.add("less", "mine", narrowing(&["git"])).unwrap();
        presets.add("same", "mine", Narrowing::default()).unwrap();
        presets.add("none", "mine", narrowing(&[])).unwrap();
        let default = |name| resolve(&presets, name, &request()).commands;
        assert_eq!(default("less"), NameSet::only(["git"]));
        assert_eq!(default("same"), NameSet::only(["cargo", "git"]));
        assert_eq!(default("none"), NameSet::none());
    }
}

#[test]
fn list_of_tools_narrows_the_tools_of_the_preset() {
    let only = |names: &[&str]| GrantRequest { tools: Some(arcs(names)), ..request() };
    let named = ["fs.read_file", "fs.write_file", "agent_create", "agent_send"];
    for (name, expected) in [
        ("trusted", &named[..]),
        ("sandboxed", &["fs.read_file", "agent_send"]),
        ("worker", &["fs.read_file"]),
    ] {
        let grant = resolve(&builtin(), name, &only(&named));
        assert_eq!(grant.tools, NameSet::only(expected.iter().copied()), "{name}");
    }
    assert_eq!(resolve(&builtin(), "trusted", &only(&[])).tools, NameSet::none());
    let disabled = GrantRequest { disable_tools: arcs(&["fs.read_file"]), ..only(&named) };
    assert_eq!(tools(&resolve(&builtin(), "sandboxed", &disabled)), ["agent_send"], "disable_tools wins");
    let creator = GrantRequest { may_create: Some(arcs(&["worker"])), ..only(&["agent_create"]) };
    assert_eq!(tools(&resolve(&builtin(), "sandboxed", &creator)), ["agent_create"]);
}

#[test]
fn unfit_write_paths_are_rejected() {
    let write = |path: &str| GrantRequest { write_paths: Some(paths(&["/w/ok", path])), ..request() };
    assert_eq!(
        refusal("worker", &write("/w/out")),
        "preset 'worker' cannot write: leave allowed_write_paths out, or choose another preset"
    );
    for outside in ["/etc", "/", "/wide", "/w/../x"] {
        let normalized = path(outside);
        assert_eq!(
            refusal("sandboxed", &write(outside)),
            format!("allowed_write_path '{normalized}' is outside sandbox root '/w'")
        );
    }
    assert_eq!(resolve(&builtin(), "sandboxed", &write("/w")).write, directories(&["/w"]));
}

#[test]
fn disabled_tool_stays_disabled_in_any_request() {
    let request = GrantRequest {
        write_paths: Some(paths(&["/w/out"])),
        disable_tools: arcs(&["fs.write_file", "agent_create"]),
        may_create: Some(arcs(&["worker"])),
        ..request()
    };
    for name in ["yolo", "trusted", "sandboxed"] {
        let grant = resolve(&builtin(), name, &request);
        assert_eq!(tools(&grant), ["fs.read_file", "agent_list", "agent_send"], "{name}");
        assert_eq!(grant.write, directories(&["/w/out"]), "{name}: the directories can still be granted");
    }
}

#[test]
fn may_create_adds_agent_tools_and_access_to_children() {
    let request = |presets: &[&str]| GrantRequest { may_create: Some(arcs(presets)), ..request() };
    let agent_tools = ["fs.read_file", "agent_create", "agent_list", "agent_send"];
    let grant = resolve(&builtin(), "sandboxed", &request(&["worker"]));
    assert_eq!(tools(&grant), agent_tools);
    assert_eq!((grant.create, grant.targets), (NameSet::only(["worker"]), Targets::parent_and_descendants()));
    let grant = resolve(&builtin(), "worker", &request(&["worker"]));
    assert_eq!(tools(&grant), agent_tools[..3]);
    assert_eq!(grant.targets, Targets::descendants());
    let grant = resolve(&builtin(), "sandboxed", &request(&[]));
    assert_eq!(tools(&grant), ["fs.read_file", "agent_send"], "an empty list adds no tools");
    assert_eq!((grant.create, grant.targets), (NameSet::none(), Targets::parent()));
}

#[test]
fn limits_name_their_origin() {
    let reasons =
        |name: &str, request: &GrantRequest| builtin().find(name).unwrap().resolve(request).unwrap().reasons;
    let turns = Dimension::Budget(Resource::Turns);
    let plain = reasons("sandboxed", &request());
    for (dimension, reason) in [
        (Dimension::Tools, "preset 'sandboxed'"),
        (Dimension::Read, "cwd of preset 'sandboxed'"),
        (Dimension::Write, "preset 'sandboxed'"),
        (Dimension::Commands, "preset 'sandboxed'"),
        (turns, "preset 'sandboxed'"),
    ] {
        assert_eq!(&**plain.get(dimension), reason, "{}", dimension.name());
    }
    let full = GrantRequest {
        write_paths: Some(paths(&["/w"])),
        disable_tools: arcs(&["x"]),
        commands: Some(arcs(&["cargo"])),
        may_create: Some(arcs(&["worker"])),
        budget: Budget::unlimited().with_limit(Resource::Turns, Some(3)),
        ..request()
    };
    let tools_reason = |request: &GrantRequest| reasons("worker", request).get(Dimension::Tools).to_string();
    let only = GrantRequest { tools: Some(arcs(&["x"])), ..request() };
    assert_eq!(tools_reason(&only), "preset 'worker' and tools");
    let both = GrantRequest { disable_tools: arcs(&["x"]), ..only };
    assert_eq!(tools_reason(&both), "preset 'worker', tools and disable_tools");
    let full = reasons("sandboxed", &full);
    for (dimension, reason) in [
        (Dimension::Tools, "preset 'sandboxed' and disable_tools"),
        (Dimension::Write, "allowed_write_paths"),
        (Dimension::Commands, "allowed_commands"),
        (Dimension::Create, "may_create"),
        (turns, "budget"),
        (Dimension::Budget(Resource::Tokens), "preset 'sandboxed'"),
    ] {
        assert_eq!(&**full.get(dimension), reason, "{}", dimension.name());
    }
    assert_eq!(&**reasons("trusted", &request()).get(Dimension::Write), "cwd of preset 'trusted'");
}

fn with_custom(extends: &str, narrowing: Narrowing) -> Presets {
    let mut presets = builtin();
    presets.add("mine", extends, narrowing).unwrap();
    presets
}

#[test]
fn custom_preset_narrows_its_base() {
    let presets = with_custom(
        "trusted",
        Narrowing {
            description: Some("for reviews".to_owned()),
            tools: Some(arcs(&["fs.read_file", "fs.write_file", "agent_send"])),
            disable_tools: arcs(&["agent_send"]),
            read_paths: Some(paths(&["/w", "/lib"])),
            write_paths: Some(paths(&["/w/out"])),
            blocked_paths: paths(&["/lib/private"]),
            commands: Some(arcs(&["git"])),
            hosts: Some(patterns(&["docs.rs"])),
            denied_hosts: Vec::new(),
            may_create: Some(arcs(&["worker"])),
            targets: Some(Targets::parent()),
            rules: Vec::new(),
            budget: Budget::unlimited().with_limit(Resource::Turns, Some(7)),
        },
    );
    let mine = presets.find("mine").unwrap();
    assert_eq!((&**mine.name(), &*mine.description, mine.level), ("mine", "for reviews", Level::Trusted));
    assert_eq!(mine.inheritance, arcs(&["mine", "trusted"]));
    let grant = resolve(&presets, "mine", &request());
    assert_eq!(grant.tools, NameSet::only(["fs.read_file", "fs.write_file"]));
    assert_eq!((grant.read, grant.write), (directories(&["/w", "/lib"]), directories(&["/w/out"])));
    assert_eq!(grant.blocked, paths(&["/lib/private", "/srv/.nexus3"]));
    assert_eq!(grant.commands, NameSet::only(["git"]));
    assert_eq!((grant.create, grant.targets), (NameSet::only(["worker"]), Targets::parent()));
    assert_eq!(grant.budget.limit(Resource::Turns), Some(7));
}

#[test]
fn request_cannot_undo_a_custom_narrowing() {
    let presets = with_custom(
        "sandboxed",
        Narrowing {
            disable_tools: arcs(&["agent_create"]),
            may_create: Some(Vec::new()),
            targets: Some(Targets::none()),
            budget: Budget::unlimited().with_limit(Resource::Turns, Some(7)),
            ..Narrowing::default()
        },
    );
    let request = GrantRequest {
        may_create: Some(arcs(&["worker"])),
        budget: Budget::unlimited().with_limit(Resource::Turns, Some(70)),
        ..request()
    };
    let grant = resolve(&presets, "mine", &request);
    assert!(!grant.tools.contains("agent_create"), "{}", grant.tools);
    assert_eq!((grant.create, grant.targets), (NameSet::none(), Targets::none()));
    assert_eq!(grant.budget.limit(Resource::Turns), Some(7));
    let plain = with_custom("sandboxed", Narrowing::default());
    assert_eq!(
        resolve(&plain, "mine", &request),
        resolve(&builtin(), "sandboxed", &request),
        "an empty narrowing changes nothing"
    );
}

#[test]
fn preset_without_writable_directories_hides_write_tools() {
    let elsewhere = Narrowing { write_paths: Some(paths(&["/other"])), ..Narrowing::default() };
    let grant = resolve(&with_custom("trusted", elsewhere), "mine", &request());
    assert_eq!(grant.write, DirectorySet::none());
    assert!(!grant.tools.contains("fs.write_file"));
}

#[test]
fn widening_custom_preset_is_rejected() {
    let none = Narrowing::default;
    let turns = |limit| Budget::unlimited().with_limit(Resource::Turns, Some(limit));
    let narrow = || Narrowing {
        tools: Some(arcs(&["fs.read_file"])),
        read_paths: Some(paths(&["/a"])),
        write_paths: Some(paths(&["/a/out"])),
        may_create: Some(arcs(&["worker"])),
        targets: Some(Targets::parent()),
        budget: turns(5),
        ..none()
    };
    let cases = [
        ("narrow", Narrowing { tools: Some(arcs(&["fs.read_file", "x"])), ..none() }, "tools"),
        ("sandboxed", Narrowing { tools: Some(arcs(&["agent_create"])), ..none() }, "tools"),
        ("narrow", Narrowing { read_paths: Some(paths(&["/a", "/b"])), ..none() }, "read_paths"),
        ("narrow", Narrowing { read_paths: Some(paths(&["/"])), ..none() }, "read_paths"),
        ("narrow", Narrowing { write_paths: Some(paths(&["/a/outer"])), ..none() }, "write_paths"),
        ("worker", Narrowing { write_paths: Some(paths(&["/a"])), ..none() }, "write_paths"),
        ("worker", Narrowing { commands: Some(arcs(&["git"])), ..none() }, "allowed_commands"),
        ("sandboxed", Narrowing { may_create: Some(arcs(&["worker"])), ..none() }, "may_create"),
        ("trusted", Narrowing { may_create: Some(arcs(&["trusted"])), ..none() }, "may_create"),
        ("narrow", Narrowing { targets: Some(Targets::parent_and_descendants()), ..none() }, "targets"),
        ("worker", Narrowing { targets: Some(Targets::parent()), ..none() }, "targets"),
        ("trusted", Narrowing { targets: Some(Targets::named(NameSet::only(["bob"]))), ..none() }, "targets"),
        ("narrow", Narrowing { budget: turns(6), ..none() }, "turns"),
    ];
    let mut presets = builtin();
    presets.add("narrow", "trusted", narrow()).unwrap();
    for (base, narrowing, what) in cases {
        let fault = presets.add("mine", base, narrowing).unwrap_err();
        let text = format!("preset 'mine' can only narrow '{base}': {what} would widen it");
        assert_eq!(fault.to_string(), text);
    }
    presets.add("same", "narrow", narrow()).unwrap();
    assert_eq!(resolve(&presets, "same", &request()), resolve(&presets, "narrow", &request()));
}

#[test]
fn custom_preset_needs_a_known_base_and_a_new_name() {
    let mut presets = with_custom("worker", Narrowing::default());
    let cases = [
        (
            "other",
            "missing",
            "unknown preset 'missing'; choose one of mine, sandboxed, trusted, worker, yolo",
        ),
        ("worker", "sandboxed", "there is a preset 'worker' already"),
        ("mine", "sandboxed", "there is a preset 'mine' already"),
    ];
    for (name, base, text) in cases {
        assert_eq!(presets.add(name, base, Narrowing::default()).unwrap_err().to_string(), text);
    }
    assert_eq!(presets.choices(Level::Sandboxed), "mine, sandboxed, worker");
    assert_eq!(presets.choices(Level::Trusted), "mine, sandboxed, trusted, worker");
    let long = "x".repeat(10_000);
    assert!(presets.find(&long).unwrap_err().to_string().len() < 200, "a long name is truncated");
}

#[test]
fn levels_are_ordered() {
    assert!(Level::Sandboxed < Level::Trusted && Level::Trusted < Level::Yolo);
    let names = [Level::Sandboxed, Level::Trusted, Level::Yolo].map(|level| level.to_string());
    assert_eq!(names, ["SANDBOXED", "TRUSTED", "YOLO"]);
}
