//! Finds what a mistyped name was meant to be: a near spelling, or the same name in another table.

use super::named_tables::TableKind;
use super::presets::{self, PRESET_KEYS};
use super::settings::{SETTINGS, Setting, TABLES};
use crate::process::{CLOCK_FILE_VARIABLE, FAILPOINTS_VARIABLE};

/// Past this a name is no typing mistake, and comparing it would cost more than it helps.
const NAME_CHARS_MAX: usize = 64;

const BUILTIN_PRESETS: [&str; 4] = ["sandboxed", "trusted", "worker", "yolo"];

/// Names of the environment that belong to nexus3 but are not settings.
const NON_SETTING_VARIABLES: &[&str] = &["NEXUS3_HOME", "NEXUS3_API_KEY", "NEXUS3_CACHE"];

/// What only builds for tests look at: elsewhere nobody should believe that it works.
const TEST_VARIABLES: [&str; 2] = [FAILPOINTS_VARIABLE, CLOCK_FILE_VARIABLE];

/// Whether a name of the environment belongs to nexus3 but is no setting.
pub(crate) fn is_non_setting_variable(name: &str) -> bool {
    NON_SETTING_VARIABLES.contains(&name) || (cfg!(debug_assertions) && TEST_VARIABLES.contains(&name))
}

/// What to say after "unknown key 'table.name'"; empty when nothing comes near.
pub(crate) fn for_key(table: &str, name: &str) -> String {
    if let Some(setting) = SETTINGS.iter().find(|setting| setting.name() == name) {
        return match setting.table() {
            "" => format!("; '{name}' belongs at the top level, before the first [table]"),
            table => format!("; '{name}' belongs in [{table}]"),
        };
    }
    let here = |setting: &&Setting| setting.table() == table;
    let elsewhere = |setting: &&Setting| setting.table() != table;
    let near = nearest(name, SETTINGS.iter().filter(here).map(name_and_key))
        .or_else(|| if table.is_empty() { nearest_table(name) } else { None })
        .or_else(|| nearest(name, SETTINGS.iter().filter(elsewhere).map(name_and_key)));
    did_you_mean(near.map(|near| format!("'{near}'")))
}

/// What to say after "unknown table 'name'".
pub(crate) fn for_table(name: &str) -> String {
    did_you_mean(nearest_table(name).map(|near| format!("'{near}'")))
}

/// What to say after "unknown key 'presets.preset.name'".
pub(crate) fn for_preset_key(preset: &str, name: &str) -> String {
    let known = PRESET_KEYS
        .iter()
        .map(|key| (key.name.to_owned(), format!("'{}.{preset}.{}'", presets::PRESETS_TABLE, key.name)));
    did_you_mean(nearest(name, known))
}

/// What to say after "unknown key 'table.name.key'".
pub(crate) fn for_named_key(spec: TableKind, table: &str, name: &str) -> String {
    let known = spec.keys().iter().map(|key| (key.name.to_owned(), format!("'{table}.{}'", key.name)));
    did_you_mean(nearest(name, known))
}

/// What to say after a name that no preset has; `custom` are the names beside the built-in ones.
pub(crate) fn for_preset<'a>(name: &str, custom: impl Iterator<Item = &'a str>) -> String {
    let known = BUILTIN_PRESETS.into_iter().chain(custom);
    did_you_mean(nearest(name, known.map(|known| (known.to_owned(), format!("'{known}'")))))
}

/// What to say after a name that no preset can have.
pub(crate) fn for_preset_name(name: &str) -> String {
    let lower = name.to_lowercase().replace([' ', '.'], "-");
    did_you_mean(presets::is_table_name(&lower).then(|| format!("'{lower}'")))
}

/// What to say after "NEXUS3_… is not a setting".
pub(crate) fn for_variable(variable: &str) -> String {
    let bare = |name: &str| name.trim_start_matches("NEXUS3_").to_owned();
    let given = bare(variable);
    let known = || {
        SETTINGS
            .iter()
            .map(Setting::environment_variable)
            .chain(NON_SETTING_VARIABLES.iter().map(|name| (*name).to_owned()))
    };
    // The table left out is the likeliest slip: NEXUS3_BODY_BYTES_MAX.
    let in_table = known().find(|name| bare(name).split_once('_').is_some_and(|(_, rest)| rest == given));
    let near = in_table.or_else(|| nearest(&given, known().map(|name| (bare(&name), name))));
    did_you_mean(near)
}

fn name_and_key(setting: &Setting) -> (String, String) {
    (setting.name().to_owned(), setting.key.to_owned())
}

fn nearest_table(name: &str) -> Option<String> {
    let named = TableKind::ALL.iter().map(|spec| spec.table_name());
    let tables = TABLES.iter().map(|(table, _)| *table).chain([presets::PRESETS_TABLE]).chain(named);
    nearest(name, tables.map(|table| (table.to_owned(), table.to_owned())))
}

/// The answer whose name comes nearest, if any is near enough to be what was meant.
fn nearest(given: &str, known: impl Iterator<Item = (String, String)>) -> Option<String> {
    let chars = given.chars().count();
    if chars > NAME_CHARS_MAX {
        return None;
    }
    let distance_max = (chars / 3).max(1);
    known
        .map(|(name, answer)| (strsim::damerau_levenshtein(given, &name), answer))
        .filter(|(distance, _)| *distance <= distance_max)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, answer)| answer)
}

fn did_you_mean(near: Option<String>) -> String {
    near.map_or_else(String::new, |near| format!("; did you mean {near}?"))
}
