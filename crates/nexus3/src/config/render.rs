//! Output of `nexus3 config show` (the effective values) and `nexus3 config reference` (docs/reference/config.md).

use super::Origin;
use super::named_tables::{NamedTable, TableKind};
use super::presets::{self, CustomPreset, NAME_RULE, PRESET_KEYS};
use super::settings::{Config, SETTINGS, Setting, TABLES};

const INTRODUCTION: &str = "\
# Configuration

Every setting has a default. Three layers can override it; later layers win:

1. the file `config.toml` in nexus3's home directory (`~/.nexus3`, or the value of `NEXUS3_HOME`);
2. the environment variable listed next to the key below;
3. a flag on the command line.

In the environment, separate the elements of a list with commas. An unknown name or an invalid value is an error at
start-up that names its position: nexus3 never falls back to a default silently.
`nexus3 config show` prints the effective values and the origin of each.
";

const PRESETS_DESCRIPTION: &str = "\
A custom permission preset: it narrows what another preset allows. Four presets are built in: `yolo` (everything except
hosts; only for a person at the machine), `trusted` (reads anywhere, writes in its working directory, creates sandboxed and worker
agents), `sandboxed` (reads in its working directory, writes only to paths granted at creation) and `worker` (reads in
its working directory). A key can only narrow the extended preset; one that would allow more is an error at start-up.
These tables can only be set in the file, not by environment variables or flags.";

/// Renders the effective values, one per line with its origin. The output is a valid `config.toml`.
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

/// Renders one preset. Presets come after the settings, since a TOML table extends to the next header.
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
    // TOML has no null: an unset value is a comment, so that the output stays valid TOML.
    (setting.get)(config)
        .to_toml()
        .map_or_else(|| format!("# {} is not set", setting.key), |value| format!("{} = {value}", setting.key))
}

fn origin_text(setting: &Setting, origin: &Origin) -> String {
    match origin {
        Origin::Default => "default".to_owned(),
        Origin::File { line } => format!("config.toml:{line}"),
        Origin::Environment => format!("environment {}", setting.environment_variable()),
        // The flag's name can differ from the key: `--no-auth` sets `auth`.
        Origin::Flag => "command line".to_owned(),
    }
}

/// Renders the reference page as Markdown.
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
    for kind in TableKind::ALL {
        page.push_str(&named_keys_table(kind));
    }
    page
}

fn named_keys_table(kind: TableKind) -> String {
    let mut table = format!(
        "\n## `[{}.NAME]`\n\n{}\n\nNAME is {NAME_RULE}.\n\n\
         | key | must be | default | meaning |\n|---|---|---|---|\n",
        kind.table_name(),
        kind.description(),
    );
    for key in kind.keys() {
        let expected = key.kind.expected();
        table.push_str(&format!("| `{}` | {expected} | {} | {} |\n", key.name, key.default_text, key.doc));
    }
    table
}

fn preset_keys_table() -> String {
    let mut table = format!(
        "\n## `[{}.NAME]`\n\n{PRESETS_DESCRIPTION}\n\nNAME is {NAME_RULE}.\n\n\
         | key | must be | default | meaning |\n|---|---|---|---|\n",
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
