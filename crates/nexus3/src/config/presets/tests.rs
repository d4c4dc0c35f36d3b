//! Tests of `[presets.NAME]`: the resulting grants, and the exact text of every problem.

use std::ffi::OsString;
use std::fs;

use agent::AgentId;
use agent::outside::Toolbox as _;
use agent::permission::{DirectorySet, Grant, GrantRequest, NameSet, Relation, Resource, Targets};
use tempfile::TempDir;

use super::*;
use crate::config::{file, load, reference, show};
use crate::process::{SystemClock, SystemEntropy};

const FULL: &str = r#"
default_preset = "reviewer"

[presets.reviewer]
extends = "trusted"
description = "reads all, writes notes"
tools = ["fs.read_file", "fs.write_file", "agent_send"]
disable_tools = ["agent_send"]
read_paths = ["/w", "~/lib/"]
write_paths = ["/w/notes"]
blocked_paths = ["~/lib/../lib/private"]
allowed_commands = ["cargo", "/usr/bin/git"]
allowed_hosts = ["*.Example.com", "[::1]:8080"]
denied_hosts = ["a.example.com"]
may_create = ["worker"]
targets = "parent"
max_turns = 7
max_tool_calls = 0
max_tokens = 1_000_000
max_wall_ms = 60_000
max_children = 2
"#;

fn load_file(text: &str, env: &[(&str, &str)]) -> Result<Config, Vec<String>> {
    let home = TempDir::new().unwrap();
    fs::write(home.path().join("config.toml"), text).unwrap();
    let env = env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    load(home.path(), env, &[]).map_err(|fault| fault.problems)
}

fn load_valid(text: &str) -> Config {
    load_file(text, &[("HOME", "/users/me")]).unwrap()
}

fn load_invalid(text: &str) -> Vec<String> {
    load_file(text, &[("HOME", "/users/me")]).expect_err(text)
}

/// A file system where `/link` points to `/real` and `/w/away` to `/away`; nothing else is a link.
struct LinkedWorkspace;

impl Workspace for LinkedWorkspace {
    fn resolve_directory(&self, path: &str, base: &FilePath) -> Result<FilePath, String> {
        self.resolve_path(path, base)
    }

    fn resolve_path(&self, path: &str, base: &FilePath) -> Result<FilePath, String> {
        let path = path.replace("/link", "/real").replace("/w/away", "/away");
        FilePath::resolve(&path, base).map_err(|fault| fault.to_string())
    }
}

fn path(text: &str) -> FilePath {
    FilePath::resolve(text, &FilePath::root()).unwrap()
}

fn directories(texts: &[&str]) -> DirectorySet {
    DirectorySet::from_roots(texts.iter().map(|text| path(text)))
}

fn grant(config: &Config, name: &str) -> Grant {
    let presets = config.presets(&[path("/daemon")], &LinkedWorkspace, &tools()).unwrap();
    let request = GrantRequest::default_in(path("/w"));
    presets.find(name).unwrap().resolve(&request).unwrap().grant
}

fn tools() -> Arc<ToolSet> {
    let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
    let commands = Arc::new(tools::CommandRunner::refusing("this test runs no commands"));
    tools::ToolRegistry::new(tools::ToolDependencies { clock, entropy, commands, network: Arc::default() })
        .snapshot()
}

#[test]
fn every_key_narrows_its_permission() {
    let config = load_valid(FULL);
    assert_eq!(config.default_preset, "reviewer");
    let presets = config.presets(&[], &LinkedWorkspace, &tools()).unwrap();
    let reviewer = presets.find("reviewer").unwrap();
    assert_eq!((&*reviewer.description, reviewer.level), ("reads all, writes notes", Level::Trusted));
    let grant = grant(&config, "reviewer");
    assert_eq!(grant.tools, NameSet::only(["fs.read_file", "fs.write_file"]));
    assert_eq!(grant.read, directories(&["/w", "/users/me/lib"]));
    assert_eq!(grant.write, directories(&["/w/notes"]));
    assert_eq!(grant.blocked, [path("/daemon"), path("/users/me/lib/private")]);
    assert_eq!(grant.commands, NameSet::only(["cargo", "/usr/bin/git"]));
    assert_eq!(grant.hosts.to_string(), "only *.example.com, [::1]:8080, but not a.example.com");
    assert_eq!((grant.create, grant.targets), (NameSet::only(["worker"]), Targets::parent()));
    let limits = Resource::ALL.map(|resource| grant.budget.limit(resource));
    assert_eq!(limits, [Some(7), Some(0), Some(1_000_000), Some(60_000), Some(2)]);
}

#[test]
fn asterisk_allows_all_commands() {
    let config = load_valid("[presets.x]\nextends = 'sandboxed'\nallowed_commands = ['*']");
    assert_eq!(grant(&config, "x").commands, NameSet::all());
}

/// An unclear policy is an error at start, and an empty one allows nothing.
#[test]
fn threat_84_unclear_policies_grant_nothing() {
    for policy in [
        "allowed_commands = []",
        "tools = []",
        "tools = ['cmd.exce']",
        "allowed_commands = []\ntools = ['cmd.exec', 'shell.exec']",
        "disable_tools = ['cmd.exec', 'shell.exec', 'process.start']\nallowed_commands = []",
    ] {
        let config = load_valid(&format!("[presets.x]\nextends = 'trusted'\n{policy}"));
        let grant = grant(&config, "x");
        for tool in ["cmd.exec", "shell.exec", "process.start"] {
            assert!(!grant.tools.contains(tool), "{policy}: {tool}");
        }
    }
    for policy in [
        "[presets.x]\nextends = 'trusted'\nallowed_commands = null",
        "[presets.x]\nextends = 'trusted'\nallowed_commands =",
        "[presets.x]\nextends = 'trusted'\nallowed_commands = ''",
        "[presets.x]\nextends = 'trusted'\nallowed_commands = '*'",
        "[presets.x]\nextends = 'trusted'\nallowed_commands = false",
        "[presets.x]\nextends = 'trusted'\nallowed_commands = {}",
        "[presets.x]\nextends = 'trusted'\nallowed_commands = [1]",
        "[presets.x]\nextends = 'trusted'\nallowed_commands = ['']",
        "[presets.x]\nextends = 'trusted'\nallowed_comands = ['ls']",
        "[presets.x]\nextends = 'trusted'\nallowed_commands = ['ls']\nallowed_commands = ['*']",
        "[presets.x]\nextends = 'trusted'\ntools = 'fs.read_file'",
        "[presets.x]\nextends = 'trusted'\ndisable_tool = ['cmd.exec']",
        "[presets.x]\nextends = 'trusted'\nwrite_paths = [''",
        "[presets.x]\nextends = 'trustd'",
        "[presets.x]\nextends = ''",
        "[presets.x]\nallowed_commands = ['ls']",
        "[preset.x]\nextends = 'trusted'",
        "default_preset = 'trustd'",
        "default_preset = ''",
        "default_preset = 'yolo'",
    ] {
        let loaded = load_file(policy, &[("HOME", "/users/me")]);
        let presets = loaded.map(|config| config.presets(&[], &LinkedWorkspace, &tools()).map(drop));
        assert!(!matches!(presets, Ok(Ok(()))), "{policy}");
    }
}

#[test]
fn omitted_keys_are_inherited_from_the_base() {
    let config = load_valid("[presets.plain]\nextends = 'sandboxed'");
    assert_eq!(grant(&config, "plain"), grant(&config, "sandboxed"));
    assert_eq!(config.default_preset, "sandboxed");
}

#[test]
fn targets_are_a_keyword_or_a_list_of_agents() {
    let cases = [
        ("'none'", Targets::none()),
        ("'parent'", Targets::parent()),
        ("'children'", Targets::descendants()),
        ("'family'", Targets::parent_and_descendants()),
        ("[]", Targets::restricted_to(NameSet::none())),
        ("['bob', '.1']", Targets::restricted_to(NameSet::only(["bob", ".1"]))),
    ];
    for (text, targets) in cases {
        let config = load_valid(&format!("[presets.x]\nextends = 'yolo'\ntargets = {text}"));
        assert_eq!(grant(&config, "x").targets, targets, "{text}");
    }
}

#[test]
fn may_create_accepts_custom_presets() {
    let config = load_valid(
        "[presets.lead]\nextends = 'trusted'\nmay_create = ['mine']\ntargets = ['bob']\n[presets.mine]\nextends = 'sandboxed'",
    );
    let lead = grant(&config, "lead");
    assert_eq!(lead.create, NameSet::only(["mine"]));
    let may_reach = |name| lead.targets.contains(&AgentId::parse(name).unwrap(), Relation::Descendant);
    assert!(may_reach("bob") && !may_reach("eve"), "a list restricts the targets of the base");
    assert_eq!(grant(&config, "trusted").create, NameSet::only(["sandboxed", "worker", "mine"]));
}

#[test]
fn a_preset_may_extend_one_defined_later() {
    let config = load_valid(
        "[presets.a]\nextends = 'b'\nmax_turns = 3\n[presets.b]\nextends = 'c'\nmax_turns = 5\n[presets.c]\nextends = 'worker'",
    );
    let presets = config.presets(&[], &LinkedWorkspace, &tools()).unwrap();
    let inheritance: Vec<&str> = presets.find("a").unwrap().inheritance.iter().map(|name| &**name).collect();
    assert_eq!(inheritance, ["a", "b", "c", "worker"]);
    assert_eq!(grant(&config, "a").budget.limit(Resource::Turns), Some(3));
}

#[test]
fn links_are_resolved_and_blocked_paths_keep_both_forms() {
    let config =
        load_valid("[presets.x]\nextends = 'trusted'\nread_paths = ['/link/a']\nblocked_paths = ['/link/b']");
    let grant = grant(&config, "x");
    assert_eq!(grant.read, directories(&["/real/a"]));
    assert_eq!(grant.blocked, [path("/daemon"), path("/link/b"), path("/real/b")]);
}

#[test]
fn a_link_that_would_widen_the_base_is_rejected() {
    let text = "[presets.a]\nextends = 'trusted'\nread_paths = ['/w']\n\
                [presets.b]\nextends = 'a'\nread_paths = ['/w/away']";
    let fault = load_valid(text).presets(&[], &LinkedWorkspace, &tools()).unwrap_err();
    let expected = "config.toml:4: presets.b: preset 'b' can only narrow 'a': read_paths would widen it";
    assert_eq!(fault.problems, [expected]);
}

#[test]
fn invalid_keys_and_values_are_reported_with_a_suggestion() {
    let head = "[presets.x]\nextends = 'trusted'\n";
    let cases = [
        ("tool = []", "3:1: unknown key 'presets.x.tool'; did you mean 'presets.x.tools'?"),
        ("zebra = 1", "3:1: unknown key 'presets.x.zebra'"),
        (
            "tools = 'x'",
            "3:9: presets.x.tools must be a list of tools like \"fs.read_file\", got a string \"x\"",
        ),
        (
            "tools = ['ok', 'a b', 3]",
            "3:16: presets.x.tools must be a list of tools like \"fs.read_file\", got \"a b\"\n\
             3:23: presets.x.tools must be a list of tools like \"fs.read_file\", got an integer 3",
        ),
        (
            "read_paths = ['w']",
            "3:15: presets.x.read_paths must be a list of paths that are absolute or start with \"~/\", got \"w\"",
        ),
        (
            "write_paths = ['~other/w']",
            "3:16: presets.x.write_paths must be a list of paths that are absolute or start with \"~/\", \
             got \"~other/w\"",
        ),
        (
            "blocked_paths = [\"/a\\u0000\"]",
            "3:17: presets.x.blocked_paths must be a list of paths that are absolute or start with \"~/\", \
             got \"/a\\0\" (the path contains a NUL byte)",
        ),
        (
            "allowed_commands = ['cargo', '', \"a\\nb\"]",
            "3:30: presets.x.allowed_commands must be a list of programs like \"cargo\", or [\"*\"] for all, got \"\"\n\
             3:34: presets.x.allowed_commands must be a list of programs like \"cargo\", or [\"*\"] for all, \
             got \"a\\nb\"",
        ),
        (
            "targets = 'everyone'",
            "3:11: presets.x.targets must be \"none\", \"parent\", \"children\", \"family\", or a list of agent ids, \
             got \"everyone\"",
        ),
        (
            "targets = ['a..b']",
            "3:12: presets.x.targets must be \"none\", \"parent\", \"children\", \"family\", or a list of agent ids, \
             got \"a..b\" (Invalid agent ID \"a..b\": contains forbidden pattern '..')",
        ),
        ("max_turns = 0", "3:13: presets.x.max_turns must be an integer from 1 to 1000000000, got 0"),
        (
            "max_turns = 'x'",
            "3:13: presets.x.max_turns must be an integer from 1 to 1000000000, got a string \"x\"",
        ),
        (
            "description = \"a\\nb\"",
            "3:15: presets.x.description must be one line of at most 200 characters, got \"a\\nb\"",
        ),
        (
            "may_create = ['workr']",
            "3:14: presets.x.may_create: there is no preset \"workr\"; did you mean 'worker'?",
        ),
        (
            "may_create = ['No']",
            "3:15: presets.x.may_create must be a list of presets like \"worker\", got \"No\" \
             (a name must be 1 to 63 characters from a-z, 0-9, _ and -, starting with a letter)",
        ),
        (
            "[presets.x.tools]\na = 1",
            "3:12: presets.x.tools must be a list of tools like \"fs.read_file\", got a table",
        ),
    ];
    for (text, expected) in cases {
        let expected: Vec<String> = expected.lines().map(|line| format!("config.toml:{line}")).collect();
        assert_eq!(load_invalid(&format!("{head}{text}")), expected, "{text}");
    }
}

#[test]
fn each_invalid_host_is_reported() {
    let text = "[presets.x]\nextends = 'trusted'\ndenied_hosts = ['docs.rs', 'http://a', '127.1']";
    let rule = r#"presets.x.denied_hosts must be a list of hosts like "example.com", "*.example.com", "10.1.2.3:8080" or "*""#;
    let expected = [
        format!("config.toml:3:28: {rule}, got \"http://a\""),
        format!("config.toml:3:40: {rule}, got \"127.1\""),
    ];
    assert_eq!(load_invalid(text), expected);
}

#[test]
fn missing_bases_and_cycles_are_reported() {
    let cases = [
        (
            "[presets.x]\n",
            "1:10: presets.x.extends is missing; set it to one of sandboxed, trusted, worker, yolo, or to another \
             custom preset",
        ),
        (
            "[presets.x]\nextends = 'sandboxd'",
            "2:11: presets.x.extends: there is no preset \"sandboxd\"; did you mean 'sandboxed'?",
        ),
        (
            "[presets.y]\nextends = 'my-bass'\n[presets.my-base]\nextends = 'worker'",
            "2:11: presets.y.extends: there is no preset \"my-bass\"; did you mean 'my-base'?",
        ),
        ("[presets.x]\nextends = 'zebra'", "2:11: presets.x.extends: there is no preset \"zebra\""),
        (
            "[presets.x]\nextends = 3",
            "2:11: presets.x.extends must be the name of a preset, got an integer 3",
        ),
        ("[presets.x]\nextends = 'x'", "2:11: presets.x.extends is a cycle: it leads back to 'x'"),
        (
            "[presets.a]\nextends = 'b'\n[presets.b]\nextends = 'a'\n[presets.c]\nextends = 'a'",
            "2:11: presets.a.extends is a cycle: it leads back to 'a'\n\
             4:11: presets.b.extends is a cycle: it leads back to 'b'",
        ),
        // Only the base's own problem is reported.
        (
            "[presets.a]\nextends = 'b'\n[presets.b]\nextends = 'worker'\nmax_turns = 0",
            "5:13: presets.b.max_turns must be an integer from 1 to 1000000000, got 0",
        ),
    ];
    for (text, expected) in cases {
        let expected: Vec<String> = expected.lines().map(|line| format!("config.toml:{line}")).collect();
        assert_eq!(load_invalid(text), expected, "{text}");
    }
}

#[test]
fn duplicate_and_invalid_names_are_reported() {
    let rule =
        "the name of a preset must be 1 to 63 characters from a-z, 0-9, _ and -, starting with a letter, got";
    let cases = [
        (
            "[presets.worker]\nextends = 'sandboxed'",
            "1:10: preset 'worker' already exists; choose another name".to_owned(),
        ),
        ("[presets.Rev]\nextends = 'worker'", format!("1:10: {rule} \"Rev\"; did you mean 'rev'?")),
        ("[presets.1st]\nextends = 'worker'", format!("1:10: {rule} \"1st\"")),
        ("[presets.'a b']\nextends = 'worker'", format!("1:10: {rule} \"a b\"; did you mean 'a-b'?")),
        ("[presets.'']\nextends = 'worker'", format!("1:10: {rule} \"\"")),
        ("presets = 3", "1:11: presets must be a table, got an integer 3".to_owned()),
        ("[presets]\nx = 3", "2:5: presets.x must be a table, got an integer 3".to_owned()),
        ("[preset.x]\nextends = 'worker'", "1:2: unknown table 'preset'; did you mean 'presets'?".to_owned()),
    ];
    for (text, expected) in cases {
        assert_eq!(load_invalid(text), [format!("config.toml:{expected}")], "{text}");
    }
    let longest = "a".repeat(63);
    load_valid(&format!("[presets.{longest}]\nextends = 'worker'"));
    assert_eq!(load_invalid(&format!("[presets.{longest}b]\nextends = 'worker'")).len(), 1);
}

#[test]
fn widening_is_reported_at_the_key_that_causes_it() {
    let narrow =
        "[presets.n]\nextends = 'trusted'\ntools = ['a']\nread_paths = ['/w']\nmax_turns = 5\n[presets.x]\n";
    let cases = [
        ("extends = 'n'\ntools = ['a', 'b']", "8:9", "tools", "n"),
        ("extends = 'n'\nread_paths = ['/w', '/']", "8:14", "read_paths", "n"),
        ("extends = 'n'\nmax_turns = 6", "8:13", "max_turns", "n"),
        ("extends = 'worker'\nwrite_paths = ['/w']", "8:15", "write_paths", "worker"),
        ("extends = 'worker'\nallowed_commands = ['git']", "8:20", "allowed_commands", "worker"),
        ("extends = 'worker'\nallowed_hosts = ['docs.rs']", "8:17", "allowed_hosts", "worker"),
        ("extends = 'sandboxed'\nmay_create = ['worker']", "8:14", "may_create", "sandboxed"),
        ("extends = 'sandboxed'\ntargets = 'family'", "8:11", "targets", "sandboxed"),
    ];
    for (text, position, key, base) in cases {
        let expected = format!(
            "config.toml:{position}: presets.x.{key} would allow more than '{base}'; a preset can only narrow its base"
        );
        assert_eq!(load_invalid(&format!("{narrow}{text}")), [expected], "{text}");
    }
}

#[test]
fn a_tilde_path_needs_an_absolute_home_variable() {
    let text = "[presets.x]\nextends = 'trusted'\nread_paths = ['~/a']";
    for env in [&[][..], &[("HOME", "")][..], &[("HOME", "relative")][..]] {
        let problems = load_file(text, env).unwrap_err();
        assert_eq!(problems.len(), 1);
        assert!(problems[0].ends_with("got \"~/a\" (HOME is not set to an absolute path)"), "{problems:?}");
    }
    assert_eq!(grant(&load_valid(&text.replace("~/a", "~")), "x").read, directories(&["/users/me"]));
}

#[test]
fn default_preset_must_exist_and_must_not_be_yolo() {
    let must = "must be the name of a preset, got";
    let mine = "[presets.mine]\nextends = 'worker'\n[presets.free]\nextends = 'yolo'";
    let why = "(it would give every agent without a preset all permissions)";
    let cases = [
        ("default_preset = 'yolo'", &[][..], format!("config.toml:1: default_preset {must} \"yolo\" {why}")),
        ("default_preset = 'free'", &[], format!("config.toml:1: default_preset {must} \"free\" {why}")),
        (
            "default_preset = 'mien'",
            &[],
            format!("config.toml:1: default_preset {must} \"mien\"; did you mean 'mine'?"),
        ),
        (
            "",
            &[("NEXUS3_DEFAULT_PRESET", "sandboxd")],
            format!("environment: NEXUS3_DEFAULT_PRESET {must} \"sandboxd\"; did you mean 'sandboxed'?"),
        ),
        ("default_preset = 'No'", &[], format!("config.toml:1:18: default_preset {must} \"No\"")),
        ("default_preset = 1", &[], format!("config.toml:1:18: default_preset {must} an integer 1")),
    ];
    for (line, env, expected) in cases {
        assert_eq!(load_file(&format!("{line}\n{mine}"), env).unwrap_err(), [expected], "{line}");
    }
    let config = load_file(mine, &[("NEXUS3_DEFAULT_PRESET", "mine")]).unwrap();
    assert_eq!(config.default_preset, "mine");
    let invalid = "default_preset = 'bad'\n[presets.bad]\nextends = 'worker'\nmax_turns = 0";
    assert_eq!(load_invalid(invalid).len(), 1, "an invalid preset is reported once");
}

#[test]
fn shown_presets_parse_to_the_same_presets() {
    let first = load_valid(FULL);
    let view = show(&first);
    assert!(
        view.contains("\n[presets.reviewer]  # config.toml:4\nextends = \"trusted\"  # config.toml:5\n"),
        "{view}"
    );
    assert!(view.contains("blocked_paths = [\"/users/me/lib/private\"]  # config.toml:11\n"), "{view}");
    let second = load_valid(&view);
    let values =
        |preset: &CustomPreset| preset.entries.iter().map(|entry| entry.value.clone()).collect::<Vec<_>>();
    let presets = |config: &Config| -> Vec<_> {
        config.custom_presets.iter().map(|preset| (preset.name.clone(), values(preset))).collect()
    };
    assert_eq!(presets(&first), presets(&second));
    assert_eq!(second.default_preset, "reviewer");
}

#[test]
fn reference_lists_every_preset_key_once() {
    let page = reference();
    for key in PRESET_KEYS {
        let row =
            format!("| `{}` | {} | {} | {} |\n", key.name, key.kind.expected(), key.default_text, key.doc);
        assert_eq!(page.matches(&row).count(), 1, "{row}");
        assert!(key.doc.ends_with('.'), "{}", key.name);
    }
    for resource in Resource::ALL {
        assert!(PRESET_KEYS.iter().any(|key| key.name == format!("max_{resource}")), "{resource}");
    }
}

#[test]
fn parser_never_panics() {
    for end in (0..FULL.len()).step_by(3).filter(|end| FULL.is_char_boundary(*end)) {
        for noise in ["", "[", "\"", "=", "{", "]", "[presets.x]\n"] {
            file::parse(&format!("{}{noise}", &FULL[..end]), None);
            file::parse(&format!("{}{noise}{}", &FULL[..end], &FULL[end..]), Some("/h"));
        }
    }
}
