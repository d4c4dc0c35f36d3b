//! Tests of the configuration's layers: accepted values, and the exact text of every problem.

mod render;

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::symlink;

use agent::journal::RestartPolicy;
use store::Durability;
use tempfile::TempDir;
use tracing::Level;

use super::settings::SETTINGS;
use super::value_kind::{SettingValue, ValueKind};
use super::{Config, Origin, file, load, unknown_variables};

type Flags<'a> = &'a [(&'static str, &'a str)];

fn home(file: Option<&str>) -> TempDir {
    let home = TempDir::new().unwrap();
    if let Some(text) = file {
        fs::write(home.path().join("config.toml"), text).unwrap();
    }
    home
}

fn load_layers(file: Option<&str>, env: &[(&str, &str)], flags: Flags<'_>) -> Result<Config, Vec<String>> {
    let home = home(file);
    let env = env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let flags: Vec<(&'static str, String)> =
        flags.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
    load(home.path(), env, &flags).map_err(|fault| fault.problems)
}

fn variable_warnings(env: &[(&str, &str)]) -> Vec<String> {
    let env: Vec<_> = env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect();
    unknown_variables(&env)
}

fn file_problems(text: &str) -> Vec<String> {
    load_layers(Some(text), &[], &[]).expect_err(text)
}

fn origin_of(config: &Config, key: &str) -> Origin {
    let index = SETTINGS.iter().position(|setting| setting.key == key).unwrap();
    config.origins[index].clone()
}

#[test]
fn without_layers_all_values_are_defaults() {
    let config = load_layers(None, &[], &[]).unwrap();
    assert_eq!(config, Config::default());
    assert_eq!((config.host.as_str(), config.port, config.auth), ("127.0.0.1", 8765, true));
    assert_eq!((config.allowed_origins.len(), config.model.as_deref()), (0, None));
    assert_eq!((config.idle_timeout_s, config.stop_grace_ms), (0, 10_000));
    assert_eq!((config.durability, config.on_restart), (Durability::Full, RestartPolicy::Resume));
    assert_eq!(config.idle_sleep_s, 600);
    let limits = &config.limits;
    assert_eq!((limits.body_bytes_max, limits.request_line_bytes_max), (1_048_576, 8192));
    assert_eq!((limits.head_bytes_max, limits.headers_max), (32_768, 128));
    assert_eq!((limits.header_name_bytes_max, limits.header_value_bytes_max), (1024, 8192));
    assert_eq!((limits.first_byte_ms, limits.head_ms, limits.body_ms), (30_000, 10_000, 30_000));
    assert_eq!((limits.write_ms, limits.keep_alive_ms), (30_000, 75_000));
    assert_eq!((limits.connections_max, limits.agents_max), (16_384, 100_000));
    assert_eq!((limits.turns_running_max, limits.turns_queued_max), (256, 8_192));
    assert_eq!((limits.agent_queue_max, limits.tool_iterations_max), (1024, 10));
    assert_eq!((limits.model_idle_ms, limits.live_agents_max), (120_000, 4096));
    assert_eq!((limits.request_retention_s, limits.event_streams_max), (86_400, 1024));
    assert_eq!(limits.heartbeat_ms, 15_000);
    let log = &config.log;
    assert_eq!((log.level, log.json, log.verbose, log.raw), (Level::INFO, false, false, false));
    assert_eq!((log.file_bytes_max, log.files_max), (5_242_880, 3));
}

#[test]
fn later_layers_override_earlier_ones() {
    let file = "port = 1\nmodel = \"file/m\"\n\n[limits]\nhead_ms = 1\nbody_ms = 1\n";
    let env = [("NEXUS3_PORT", "2"), ("NEXUS3_LIMITS_HEAD_MS", "2"), ("NEXUS3_AUTH", "false")];
    let config = load_layers(Some(file), &env, &[("port", "3")]).unwrap();
    assert_eq!((config.port, config.limits.head_ms, config.limits.body_ms), (3, 2, 1));
    assert_eq!((config.model.as_deref(), config.auth), (Some("file/m"), false));
    assert_eq!(origin_of(&config, "port"), Origin::Flag);
    assert_eq!(origin_of(&config, "limits.head_ms"), Origin::Environment);
    assert_eq!(origin_of(&config, "limits.body_ms"), Origin::File { line: 6 });
    assert_eq!(origin_of(&config, "model"), Origin::File { line: 2 });
    assert_eq!(origin_of(&config, "host"), Origin::Default);
}

#[test]
fn the_last_of_repeated_flags_wins() {
    let config = load_layers(None, &[], &[("port", "1"), ("port", "2")]).unwrap();
    assert_eq!(config.port, 2);
}

#[test]
fn valid_values_are_accepted_in_every_notation() {
    let file = "\u{feff}host = '::1'\nport = 0x1F90\nallowed_origins = [\"https://a.example\", 'http://[::1]:3000']\n\
                limits.body_bytes_max = 2_048\nlog = { level = \"trace\", json = true }\n";
    let config = load_layers(Some(file), &[], &[]).unwrap();
    assert_eq!((config.host.as_str(), config.port), ("::1", 8080));
    assert_eq!(config.allowed_origins, ["https://a.example", "http://[::1]:3000"]);
    assert_eq!((config.limits.body_bytes_max, config.log.level, config.log.json), (2048, Level::TRACE, true));
    assert_eq!(origin_of(&config, "host"), Origin::File { line: 1 });

    let env =
        [("NEXUS3_ALLOWED_ORIGINS", "https://a.example, app://b"), ("NEXUS3_MODEL", "router/maker/model")];
    let config = load_layers(Some("allowed_origins = ['https://c.example']"), &env, &[]).unwrap();
    assert_eq!(config.allowed_origins, ["https://a.example", "app://b"]);
    assert_eq!(config.model.as_deref(), Some("router/maker/model"));
    let config =
        load_layers(Some("allowed_origins = ['https://c.example']"), &[("NEXUS3_ALLOWED_ORIGINS", "")], &[]);
    assert!(config.unwrap().allowed_origins.is_empty());
}

#[test]
fn enum_settings_accept_their_names_in_every_layer() {
    let file = load_layers(Some("durability = 'normal'\non_restart = 'mark'"), &[], &[]).unwrap();
    let env = [("NEXUS3_DURABILITY", "normal"), ("NEXUS3_ON_RESTART", "mark")];
    let env = load_layers(None, &env, &[]).unwrap();
    let flags = load_layers(None, &[], &[("durability", "normal"), ("on_restart", "mark")]).unwrap();
    for config in [file, env, flags] {
        assert_eq!((config.durability, config.on_restart), (Durability::Normal, RestartPolicy::Mark));
    }
    let problems = load_layers(Some("durability = 'FULL'"), &[("NEXUS3_ON_RESTART", "")], &[]).unwrap_err();
    let expected = [
        "config.toml:1:14: durability must be one of full, normal, got \"FULL\"",
        "environment: NEXUS3_ON_RESTART must be one of resume, mark, got \"\"",
    ];
    assert_eq!(problems, expected);
}

#[test]
fn variables_that_are_not_settings_are_ignored() {
    let env = [("NEXUS3_HOME", "/x"), ("NEXUS3_API_KEY", "k"), ("NEXUS3_CACHE", "/c"), ("NEXUS_PORT", "x")];
    assert_eq!(load_layers(None, &env, &[]).unwrap(), Config::default());
    assert_eq!(variable_warnings(&env), Vec::<String>::new());
    for name in ["NEXUS3_FAILPOINTS", "NEXUS3_CLOCK_FILE"] {
        let warnings = variable_warnings(&[(name, "x")]);
        assert_eq!(warnings.is_empty(), cfg!(debug_assertions), "only debug builds read {name}");
    }
}

#[test]
fn unknown_variables_are_ignored_with_a_warning() {
    let env = [
        ("NEXUS3_PROT", "1"),
        ("NEXUS3_HOM", "1"),
        ("NEXUS3_ZEBRA", "1"),
        ("NEXUS3_port", "1"),
        ("NEXUS3_HEAD_MS", "1"),
        ("NEXUS3_AUTH", "false"),
    ];
    assert!(!load_layers(None, &env, &[]).expect("the others apply").auth);
    let warnings = [
        "NEXUS3_HEAD_MS is ignored: it is not a setting; did you mean NEXUS3_LIMITS_HEAD_MS?",
        "NEXUS3_HOM is ignored: it is not a setting; did you mean NEXUS3_HOME?",
        "NEXUS3_PROT is ignored: it is not a setting; did you mean NEXUS3_PORT?",
        "NEXUS3_ZEBRA is ignored: it is not a setting",
        "NEXUS3_port is ignored: it is not a setting",
    ];
    assert_eq!(variable_warnings(&env), warnings.map(|warning| format!("environment: {warning}")));
}

#[test]
fn unknown_keys_are_reported_with_a_suggestion() {
    let cases = [
        ("prot = 1", "config.toml:1:1: unknown key 'prot'; did you mean 'port'?"),
        ("\n  hosst = 'x'", "config.toml:2:3: unknown key 'hosst'; did you mean 'host'?"),
        ("[limts]\nhead_ms = 1", "config.toml:1:2: unknown table 'limts'; did you mean 'limits'?"),
        ("limit.head_ms = 1", "config.toml:1:1: unknown table 'limit'; did you mean 'limits'?"),
        ("limts = 1", "config.toml:1:1: unknown key 'limts'; did you mean 'limits'?"),
        ("zebra = 1", "config.toml:1:1: unknown key 'zebra'"),
        ("[zebra]", "config.toml:1:2: unknown table 'zebra'"),
        (
            "[limits]\nhed_ms = 1",
            "config.toml:2:1: unknown key 'limits.hed_ms'; did you mean 'limits.head_ms'?",
        ),
        ("limits.hed_ms = 1", "config.toml:1:8: unknown key 'limits.hed_ms'; did you mean 'limits.head_ms'?"),
        (
            "body_bytes_mx = 1",
            "config.toml:1:1: unknown key 'body_bytes_mx'; did you mean 'limits.body_bytes_max'?",
        ),
        (
            "body_bytes_max = 1",
            "config.toml:1:1: unknown key 'body_bytes_max'; 'body_bytes_max' belongs in [limits]",
        ),
        ("[limits]\njson = true", "config.toml:2:1: unknown key 'limits.json'; 'json' belongs in [log]"),
        (
            "[log]\nport = 1",
            "config.toml:2:1: unknown key 'log.port'; 'port' belongs at the top level, before the first [table]",
        ),
        ("[limits.log]\njson = true", "config.toml:1:9: unknown table 'limits.log'; did you mean 'log'?"),
        ("\"a\\u001b[2Jb\" = 1", "config.toml:1:1: unknown key 'a\\u{1b}[2Jb'"),
        ("'ä' = 1", "config.toml:1:1: unknown key 'ä'"),
    ];
    for (text, expected) in cases {
        assert_eq!(file_problems(text), [expected], "{text}");
    }
}

#[test]
fn wrong_types_and_ranges_are_reported_with_valid_values() {
    let port = "port must be an integer from 0 to 65535, got";
    let head = "limits.head_ms must be an integer from 1 to 86400000, got";
    let cases = [
        ("port = \"abc\"", format!("config.toml:1:8: {port} a string \"abc\"")),
        ("\n\nport = 70000", format!("config.toml:3:8: {port} 70000")),
        ("port = -1", format!("config.toml:1:8: {port} -1")),
        ("port = 0xfffff", format!("config.toml:1:8: {port} 0xfffff")),
        (
            "port = 99999999999999999999999999999999999999999",
            format!("config.toml:1:8: {port} 99999999999999999999999999999999999999999"),
        ),
        ("port = 1.5", format!("config.toml:1:8: {port} a float 1.5")),
        ("port = true", format!("config.toml:1:8: {port} a boolean true")),
        ("port = 2020-01-01", format!("config.toml:1:8: {port} a date 2020-01-01")),
        ("port = [1]", format!("config.toml:1:8: {port} an array")),
        ("[port]\nx = 1", format!("config.toml:1:2: {port} a table")),
        ("[limits]\nhead_ms = 0", format!("config.toml:2:11: {head} 0")),
        ("limits.head_ms = 'x'", format!("config.toml:1:18: {head} a string \"x\"")),
        ("auth = 'true'", "config.toml:1:8: auth must be true or false, got a string \"true\"".to_owned()),
        ("limits = 3", "config.toml:1:10: limits must be a table, got an integer 3".to_owned()),
        ("[[limits]]\nhead_ms = 1", "config.toml:1:1: limits must be a table, got an array".to_owned()),
        (
            "log.level = 'loud'",
            "config.toml:1:13: log.level must be one of error, warn, info, debug, trace, got \"loud\""
                .to_owned(),
        ),
        (
            "host = '0.0.0.0'",
            "config.toml:1:8: host must be 127.0.0.1, localhost or ::1 (only loopback can be bound), \
             got \"0.0.0.0\""
                .to_owned(),
        ),
        (
            "host = 1",
            "config.toml:1:8: host must be 127.0.0.1, localhost or ::1 (only loopback can be bound), \
             got an integer 1"
                .to_owned(),
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(file_problems(text), [expected], "{text}");
    }
}

#[test]
fn a_model_is_a_provider_and_a_name_or_an_alias() {
    for invalid in ["Gpt 4", "/gpt", "openai/", "/", "", "a/b\\n"] {
        let expected =
            format!("config.toml:1:9: model must be \"provider/name\" or an alias, got \"{invalid}\"");
        assert_eq!(file_problems(&format!("model = \"{invalid}\"")), [expected], "{invalid}");
    }
}

#[test]
fn an_origin_must_have_the_form_that_browsers_send() {
    let rule = "allowed_origins must be a list of origins like \"https://example.com\" (scheme://host[:port], no path)";
    let cases = [
        ("*", " (it would admit every website)"),
        ("null", " (every sandboxed page and local file sends it, so it identifies none)"),
        ("https://Example.com", " (browsers send origins in lowercase)"),
        ("https://example.com:443", " (browsers omit the scheme's default port)"),
        ("https://example.com/", ""),
        ("https://example.com/path", ""),
        ("https://example.com?q", ""),
        ("https://me@example.com", ""),
        ("https://", ""),
        ("://example.com", ""),
        ("example.com", ""),
        ("https://example.com:", ""),
        ("https://example.com:99999", ""),
        ("https://[::1", ""),
        ("https://[::1]x", ""),
        ("https://*.example.com", ""),
        ("", ""),
    ];
    for (invalid, why) in cases {
        let expected = format!("config.toml:1:20: {rule}, got \"{invalid}\"{why}");
        assert_eq!(file_problems(&format!("allowed_origins = ['{invalid}']")), [expected], "{invalid}");
    }
    let two = file_problems("allowed_origins = [\n  'https://a.example',\n  '*',\n  7,\n]");
    assert_eq!(
        two,
        [
            format!("config.toml:3:3: {rule}, got \"*\" (it would admit every website)"),
            format!("config.toml:4:3: {rule}, got an integer 7"),
        ]
    );
    let text = file_problems("allowed_origins = 'https://a.example'");
    assert_eq!(text, [format!("config.toml:1:19: {rule}, got a string \"https://a.example\"")]);
}

#[test]
fn syntax_errors_and_duplicates_show_their_source_line() {
    let cases = [
        ("port = 1\nport = 2", "2:1: duplicate key 'port'\n    2 | port = 2"),
        ("[log]\njson = true\n[log]", "3:2: duplicate key 'log'\n    3 | [log]"),
        ("port = ", "1:8: a value is missing\n    1 | port = "),
        ("port = # later", "1:8: a value is missing\n    1 | port = # later"),
        ("\nhost = localhost", "2:8: not a TOML value; put text in quotes\n    2 | host = localhost"),
        ("host = 127.0.0.1", "1:13: not a TOML value; put text in quotes\n    1 | host = 127.0.0.1"),
        ("port 8765", "1:6: key with no value, expected `=`\n    1 | port 8765"),
        ("[limits\nhead_ms = 1", "1:8: unclosed table, expected `]`\n    1 | [limits"),
        ("host = 'x", "1:10: invalid literal string, expected `'`\n    1 | host = 'x"),
        ("port = 1 2", "1:8: not a TOML value; put text in quotes\n    1 | port = 1 2"),
        ("allowed_origins = [", "1:20: unclosed array, expected `]`\n    1 | allowed_origins = ["),
        (
            "host = 'a\u{1b}[2J'",
            "1:10: invalid literal string, expected non-single-quote visible characters\n    1 | host = 'a\u{fffd}[2J'",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(file_problems(text), [format!("config.toml:{expected}")], "{text}");
    }
    let problems = file_problems("[log]\n[log]\nlevel = 1\n[limits\nbody_ms = 0");
    let positions = problems.iter().map(|problem| problem[..15].to_owned()).collect::<Vec<_>>();
    assert_eq!(positions, ["config.toml:2:2", "config.toml:3:9", "config.toml:4:8"]);
}

#[test]
fn every_invalid_variable_is_reported() {
    let cases = [
        ("NEXUS3_PORT", "abc", "environment: NEXUS3_PORT must be an integer from 0 to 65535, got \"abc\""),
        ("NEXUS3_PORT", "", "environment: NEXUS3_PORT must be an integer from 0 to 65535, got \"\""),
        (
            "NEXUS3_PORT",
            "65536",
            "environment: NEXUS3_PORT must be an integer from 0 to 65535, got \"65536\"",
        ),
        ("NEXUS3_AUTH", "yes", "environment: NEXUS3_AUTH must be true or false, got \"yes\""),
        (
            "NEXUS3_LOG_LEVEL",
            "INFO",
            "environment: NEXUS3_LOG_LEVEL must be one of error, warn, info, debug, trace, got \"INFO\"",
        ),
        (
            "NEXUS3_ALLOWED_ORIGINS",
            "https://a.example,*",
            "environment: NEXUS3_ALLOWED_ORIGINS must be a list of origins like \"https://example.com\" \
             (scheme://host[:port], no path), got \"*\" (it would admit every website)",
        ),
    ];
    for (name, value, expected) in cases {
        assert_eq!(load_layers(None, &[(name, value)], &[]).unwrap_err(), [expected], "{name}");
    }
}

#[test]
fn a_variable_that_is_not_utf8_is_reported() {
    let home = home(None);
    let raw = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let env = [(raw(b"NEXUS3_PORT"), raw(b"\xff")), (raw(b"NEXUS3_\xff"), raw(b"1"))];
    let warnings = unknown_variables(&env);
    let problems = load(home.path(), env, &[]).unwrap_err().problems;
    let expected = "environment: NEXUS3_PORT must be an integer from 0 to 65535, got text that is not UTF-8";
    assert_eq!(problems, [expected]);
    assert_eq!(warnings, ["environment: NEXUS3_\u{fffd} is ignored: it is not a setting"]);
}

#[test]
fn an_invalid_flag_is_reported_by_its_flag_name() {
    let cases: [(&'static str, &str, &str); 3] = [
        ("port", "abc", "--port must be an integer from 0 to 65535, got \"abc\""),
        ("limits.head_ms", "0", "--limits-head-ms must be an integer from 1 to 86400000, got \"0\""),
        ("prot", "1", "--prot \"1\" is not a setting"),
    ];
    for (key, value, expected) in cases {
        assert_eq!(load_layers(None, &[], &[(key, value)]).unwrap_err(), [expected], "{key}");
    }
}

#[test]
fn problems_of_all_layers_are_reported_in_order() {
    let file = "prot = 1\nport = 'x'\nauth = \nauth = true\n[log]\nlevel = 1\n";
    let env = [("NEXUS3_PORT", "1x"), ("NEXUS3_AUTH", "2")];
    let problems = load_layers(Some(file), &env, &[("port", "y")]).unwrap_err();
    let starts = [
        "config.toml:1:1: unknown key 'prot'",
        "config.toml:2:8: port must be",
        "config.toml:3:8: a value is missing",
        "config.toml:4:1: duplicate key 'auth'",
        "config.toml:6:9: log.level must be one of",
        "environment: NEXUS3_AUTH must be",
        "environment: NEXUS3_PORT must be",
        "--port must be",
    ];
    assert_eq!(problems.len(), starts.len(), "{problems:#?}");
    for (problem, start) in problems.iter().zip(starts) {
        assert!(problem.starts_with(start), "{problem}");
    }
    let home = home(Some("a = 1\nb = 2"));
    let fault = load(home.path(), [], &[]).unwrap_err();
    assert_eq!(fault.to_string(), "config.toml:1:1: unknown key 'a'\nconfig.toml:2:1: unknown key 'b'");
}

#[test]
fn problems_beyond_the_limit_are_counted() {
    let file: String = (0..200).map(|index| format!("unknown_zebra_{index} = 1\n")).collect();
    let problems = file_problems(&file);
    assert_eq!((problems.len(), problems[50].as_str()), (51, "and 150 more problems"));
}

#[test]
fn an_unreadable_file_is_reported_with_its_path() {
    let directory = home(None);
    fs::create_dir(directory.path().join("config.toml")).unwrap();
    let not_text = home(None);
    fs::write(not_text.path().join("config.toml"), b"port = 1\nhost = '\xff'\n").unwrap();
    let dangling = home(None);
    symlink("nowhere", dangling.path().join("config.toml")).unwrap();
    let device = home(None);
    symlink("/dev/zero", device.path().join("config.toml")).unwrap();
    let long = home(Some(&"#".repeat(65_537)));
    let cases = [
        (&directory, "it is a directory"),
        (&not_text, "line 2 is not UTF-8"),
        (&dangling, "the link's target does not exist"),
        (&device, "it is not a regular file"),
        (&long, "it is longer than 65536 bytes"),
    ];
    for (home, why) in cases {
        let problems = load(home.path(), [], &[]).unwrap_err().problems;
        let path = home.path().join("config.toml");
        assert_eq!(problems, [format!("cannot read {}: {why}", path.display())]);
    }
}

#[test]
fn parser_never_panics() {
    let full = "host = 'localhost'\nport = 1 # c\n[limits]\nhead_ms = 1\n[log]\nlevel = \"info\"\nx = [ 'ä', {a = 1} ]";
    for end in (0..full.len()).filter(|end| full.is_char_boundary(*end)) {
        for noise in ["", "[", "\"", "'''", "=", "\r", "\u{0}", "{", "]", "."] {
            file::parse(&format!("{}{noise}", &full[..end]), None);
            file::parse(&format!("{}{noise}{}", &full[..end], &full[end..]), None);
        }
    }
}

#[test]
fn settings_are_consistent() {
    let mut names: Vec<String> = SETTINGS.iter().map(|setting| setting.environment_variable()).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), SETTINGS.len(), "two settings share an environment name");
    for setting in SETTINGS {
        let mut config = Config::default();
        let default = (setting.get)(&config);
        // A default is valid for its own kind, and the field's type holds the whole range.
        if let Some(text) = default.to_toml() {
            let file = load_layers(Some(&format!("{} = {text}", setting.key)), &[], &[]);
            assert!(file.is_ok(), "{}", setting.key);
        }
        if let ValueKind::OneOf(names) = setting.kind {
            for name in names {
                let value = SettingValue::Text((*name).to_owned());
                assert!((setting.set)(&mut config, value.clone()), "{}", setting.key);
                assert_eq!((setting.get)(&config), value, "{}", setting.key);
            }
        }
        if let ValueKind::Integer { min, max } = setting.kind {
            for count in [min, max] {
                assert!((setting.set)(&mut config, SettingValue::Integer(count)), "{}", setting.key);
                assert_eq!((setting.get)(&config), SettingValue::Integer(count), "{}", setting.key);
            }
        }
    }
}
