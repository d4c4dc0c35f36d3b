//! What people read about the settings: the effective view and the reference page.

use super::Origin;
use super::named_tables::{NamedTable, TableKind};
use super::presets::{self, CustomPreset, NAME_RULE, PRESET_KEYS};
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

const PRESETS_DESCRIPTION: &str = "\
A preset of your own: what its agents may do, taken away from what another preset allows. There are four to begin with:
`yolo` (everything; only for a person at the machine), `trusted` (reads anywhere, writes in its working directory,
creates sandboxed agents), `sandboxed` (reads in its working directory, writes where it is told to) and `worker` (reads
in its working directory). A key can only narrow the preset that is extended; what would allow more stops the start.
These tables are read from the file alone: no environment variable and no flag sets them.";

/// The effective values, one a line with its origin; itself a valid `config.toml`.
pub(crate) fn show(config: &Config) -> String {
    let lines: Vec<(String, String)> = SETTINGS
        .iter()
        .zip(&config.origins)
        .map(|(setting, origin)| (assignment(setting, config), origin_text(setting, origin)))
        .collect();
    let width = lines.iter().map(|(left, _)| left.chars().count()).max().unwrap_or(0);
    let settings = lines.iter().map(|(left, origin)| format!("{left:width$}  # {origin}\n"));
    settings
        .chain(config.custom_presets.iter().map(render_preset))
        .chain(config.named.iter().map(render_named_table))
        .collect()
}

/// One table; it stands after the settings, since in TOML a table goes on to the next.
fn render_preset(custom: &CustomPreset) -> String {
    let head = format!("\n[{}.{}]  # config.toml:{}\n", presets::PRESETS_TABLE, custom.name, custom.line);
    let entries = custom.entries.iter().map(|entry| {
        let value = entry.value.to_toml().unwrap_or_default();
        format!("{} = {value}  # config.toml:{}\n", PRESET_KEYS[entry.key_index].name, entry.line)
    });
    std::iter::once(head).chain(entries).collect()
}

fn render_named_table(table: &NamedTable) -> String {
    let head = format!("\n[{}]  # config.toml:{}\n", table.header_path(), table.line);
    let entries = table.entries.iter().map(|entry| {
        let value = entry.value.to_toml().unwrap_or_default();
        format!("{} = {value}  # config.toml:{}\n", table.kind.keys()[entry.key_index].name, entry.line)
    });
    std::iter::once(head).chain(entries).collect()
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
        Origin::Environment => format!("environment {}", setting.environment_variable()),
        // Not the flag's name: `--no-auth` sets `auth`.
        Origin::Flag => "command line".to_owned(),
    }
}

/// The reference page, in Markdown.
pub(crate) fn reference() -> String {
    let defaults = Config::default();
    let mut page = INTRODUCTION.to_owned();
    page.push_str("\n## Top level\n");
    page.push_str(&settings_table("", &defaults));
    for (name, about) in TABLES {
        page.push_str(&format!("\n## `[{name}]`\n\n{about}\n"));
        page.push_str(&settings_table(name, &defaults));
    }
    page.push_str(&preset_keys_table());
    for spec in TableKind::ALL {
        page.push_str(&named_keys_table(spec));
    }
    page
}

fn named_keys_table(spec: TableKind) -> String {
    let mut table = format!(
        "\n## `[{}.NAME]`\n\n{}\n\nNAME is {NAME_RULE}.\n\n\
         | key | must be | when left out | meaning |\n|---|---|---|---|\n",
        spec.table_name(),
        spec.description(),
    );
    for key in spec.keys() {
        let must_be = key.kind.expected();
        table.push_str(&format!("| `{}` | {must_be} | {} | {} |\n", key.name, key.default_text, key.doc));
    }
    table
}

fn preset_keys_table() -> String {
    let mut table = format!(
        "\n## `[{}.NAME]`\n\n{PRESETS_DESCRIPTION}\n\nNAME is {NAME_RULE}.\n\n\
         | key | must be | when left out | meaning |\n|---|---|---|---|\n",
        presets::PRESETS_TABLE
    );
    for key in PRESET_KEYS {
        table.push_str(&format!(
            "| `{}` | {} | {} | {} |\n",
            key.name,
            key.kind.expected(),
            key.default_text,
            key.doc
        ));
    }
    table
}

fn settings_table(name: &str, defaults: &Config) -> String {
    let mut table = "\n| key | environment | default | meaning |\n|---|---|---|---|\n".to_owned();
    for setting in SETTINGS.iter().filter(|setting| setting.table() == name) {
        let default = (setting.get)(defaults)
            .to_toml()
            .map_or_else(|| "not set".to_owned(), |text| format!("`{text}`"));
        table.push_str(&format!(
            "| `{}` | `{}` | {default} | {} Must be {}. |\n",
            setting.key,
            setting.environment_variable(),
            setting.doc(),
            setting.kind.expected(),
        ));
    }
    table
}
