//! Tests of `config show` and the reference page.

use crate::config::named_tables::TableKind;
use crate::config::settings::{SETTINGS, TABLES};
use crate::config::{reference, show};

use super::load_layers;

#[test]
fn show_prints_every_value_with_its_origin() {
    let config =
        load_layers(Some("\nport = 7"), &[("NEXUS3_LOG_LEVEL", "debug")], &[("auth", "false")]).unwrap();
    let view = show(&config);
    let line = |start: &str| {
        let line = view.lines().find(|line| line.starts_with(start)).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("host"), "host = \"127.0.0.1\" # default");
    assert_eq!(line("port"), "port = 7 # config.toml:2");
    assert_eq!(line("auth"), "auth = false # command line");
    assert_eq!(line("allowed_origins"), "allowed_origins = [] # default");
    assert_eq!(line("# model"), "# model is not set # default");
    assert_eq!(line("log.level"), "log.level = \"debug\" # environment NEXUS3_LOG_LEVEL");
    assert_eq!(view.lines().count(), SETTINGS.len());
}

#[test]
fn shown_values_parse_to_the_same_config() {
    let file = "model = 'a/b \"c\"'\nallowed_origins = ['https://a.example', 'https://b.example']\nlog.files_max = 9";
    let first = load_layers(Some(file), &[], &[]).unwrap();
    let mut second = load_layers(Some(&show(&first)), &[], &[]).unwrap();
    second.origins.clone_from(&first.origins);
    assert_eq!(first, second);
}

#[test]
fn reference_lists_every_setting_once() {
    let page = reference();
    for setting in SETTINGS {
        let row = format!("| `{}` | `{}` | ", setting.key, setting.environment_variable());
        assert_eq!(page.matches(&row).count(), 1, "{row}");
        assert!(setting.doc().ends_with('.') && !setting.doc().contains('|'), "{}", setting.key);
    }
    assert!(page.starts_with("# Configuration\n"));
    assert!(page.contains("| `port` | `NEXUS3_PORT` | `8765` | Port to listen on; 0 takes any free port. Must be an integer from 0 to 65535. |"));
    assert_eq!(
        page.lines().filter(|line| line.starts_with("## ")).count(),
        TABLES.len() + 2 + TableKind::ALL.len()
    );
    let cells = |line: &&str| line.starts_with('|');
    assert!(page.lines().filter(cells).all(|line| line.matches('|').count() == 5), "{page}");
}
