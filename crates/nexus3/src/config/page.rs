//! What people read about the settings: the effective view and the reference page.

use super::Origin;
use super::settings::{Config, SETTINGS, Setting, TABLES};

const INTRODUCTION: &str = "\
# Configuration

Every setting has a default. Three layers may change it, each stronger than the one before:

1. the file `config.toml` in nexus3's home (`~/.nexus3`, or where `NEXUS3_HOME` points);
2. the environment variable beside the key below;
3. a flag on the command line.

A list is written comma separated in the environment. A name that is not listed here, or a value that does not fit,
stops the start with a message that says where it stands: nothing falls back to a default silently.
`nexus3 config show` prints the values in force and where each came from.
";

/// The effective values, one a line with its origin; itself a valid `config.toml`.
pub(crate) fn show(config: &Config) -> String {
    let lines: Vec<(String, String)> = SETTINGS
        .iter()
        .zip(&config.origins)
        .map(|(setting, origin)| (assignment(setting, config), origin_text(setting, origin)))
        .collect();
    let width = lines.iter().map(|(left, _)| left.chars().count()).max().unwrap_or(0);
    lines.iter().map(|(left, origin)| format!("{left:width$}  # {origin}\n")).collect()
}

fn assignment(setting: &Setting, config: &Config) -> String {
    // TOML has no word for "not set": the line is a comment, so that the view can be read back.
    (setting.get)(config)
        .to_toml()
        .map_or_else(|| format!("# {} is not set", setting.key), |value| format!("{} = {value}", setting.key))
}

fn origin_text(setting: &Setting, origin: &Origin) -> String {
    match origin {
        Origin::Default => "default".to_owned(),
        Origin::File { line } => format!("config.toml:{line}"),
        Origin::Environment => format!("environment {}", setting.environment()),
        // Not the flag's name: `--no-auth` sets `auth`.
        Origin::Flag => "command line".to_owned(),
    }
}

/// The reference page, in Markdown.
pub(crate) fn reference() -> String {
    let defaults = Config::default();
    let mut page = INTRODUCTION.to_owned();
    page.push_str("\n## Top level\n");
    page.push_str(&table("", &defaults));
    for (name, about) in TABLES {
        page.push_str(&format!("\n## `[{name}]`\n\n{about}\n"));
        page.push_str(&table(name, &defaults));
    }
    page
}

fn table(name: &str, defaults: &Config) -> String {
    let mut table = "\n| key | environment | default | meaning |\n|---|---|---|---|\n".to_owned();
    for setting in SETTINGS.iter().filter(|setting| setting.table() == name) {
        let default = (setting.get)(defaults)
            .to_toml()
            .map_or_else(|| "not set".to_owned(), |text| format!("`{text}`"));
        table.push_str(&format!(
            "| `{}` | `{}` | {default} | {} Must be {}. |\n",
            setting.key,
            setting.environment(),
            setting.doc(),
            setting.kind.must_be(),
        ));
    }
    table
}
