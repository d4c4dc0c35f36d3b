//! "Did you mean" hints for unknown names: a similar spelling, or the same name in another table.

use super::named_tables::TableKind;
use super::presets::{self, PRESET_KEYS};
use super::settings::{SETTINGS, Setting, TABLES};
use crate::process::{CLOCK_FILE_VARIABLE, FAILPOINTS_VARIABLE};

/// Longer names get no hint: they are not typing errors, and comparing them is expensive.
const NAME_CHARS_MAX: usize = 64;

const BUILTIN_PRESETS: [&str; 4] = ["sandboxed", "trusted", "worker", "yolo"];

/// Environment variables of nexus3 that are not settings.
const NON_SETTING_VARIABLES: &[&str] = &["NEXUS3_HOME", "NEXUS3_API_KEY", "NEXUS3_CACHE"];

/// Environment variables that only debug builds read. Release builds warn about them, because they have no effect.
const TEST_VARIABLES: [&str; 2] = [FAILPOINTS_VARIABLE, CLOCK_FILE_VARIABLE];

/// Whether nexus3 reads this environment variable although it is not a setting.
pub(crate) fn is_non_setting_variable(name: &str) -> bool {
    NON_SETTING_VARIABLES.contains(&name) || (cfg!(debug_assertions) && TEST_VARIABLES.contains(&name))
}

/// Hint after "unknown key 'table.name'"; empty without a similar name.
pub(crate) fn for_key(table: &str, name: &str) -> String {
    if let Some(setting) = SETTINGS.iter().find(|setting| setting.name() == name) {
        return match setting.table() {
            "" => format!("; '{name}' belongs at the top level, before the first [table]"),
            table => format!("; '{name}' belongs in [{table}]"),
        };
    }
    let in_table = |setting: &&Setting| setting.table() == table;
    let in_other_table = |setting: &&Setting| setting.table() != table;
    let near = nearest(name, SETTINGS.iter().filter(in_table).map(name_and_key))
        .or_else(|| if table.is_empty() { nearest_table(name) } else { None })
        .or_else(|| nearest(name, SETTINGS.iter().filter(in_other_table).map(name_and_key)));
    did_you_mean(near.map(|near| format!("'{near}'")))
}

/// Hint after "unknown table 'name'".
pub(crate) fn for_table(name: &str) -> String {
    did_you_mean(nearest_table(name).map(|near| format!("'{near}'")))
}

/// Hint after "unknown key 'presets.preset.name'".
pub(crate) fn for_preset_key(preset: &str, name: &str) -> String {
    let known = PRESET_KEYS
        .iter()
        .map(|key| (key.name.to_owned(), format!("'{}.{preset}.{}'", presets::PRESETS_TABLE, key.name)));
    did_you_mean(nearest(name, known))
}

/// Hint after "unknown key 'table.name.key'".
pub(crate) fn for_named_key(kind: TableKind, table: &str, name: &str) -> String {
    let known = kind.keys().iter().map(|key| (key.name.to_owned(), format!("'{table}.{}'", key.name)));
    did_you_mean(nearest(name, known))
}

/// Hint after the name of a preset that does not exist; `custom` are the names of the custom presets.
pub(crate) fn for_preset<'a>(name: &str, custom: impl Iterator<Item = &'a str>) -> String {
    let known = BUILTIN_PRESETS.into_iter().chain(custom);
    did_you_mean(nearest(name, known.map(|known| (known.to_owned(), format!("'{known}'")))))
}

/// Hint after a name that is not valid for a preset.
pub(crate) fn for_preset_name(name: &str) -> String {
    let lower = name.to_lowercase().replace([' ', '.'], "-");
    did_you_mean(presets::is_table_name(&lower).then(|| format!("'{lower}'")))
}

/// Hint after "NEXUS3_… is ignored: it is not a setting".
pub(crate) fn for_variable(variable: &str) -> String {
    let bare = |name: &str| name.trim_start_matches("NEXUS3_").to_owned();
    let given = bare(variable);
    let known = || {
        SETTINGS
            .iter()
            .map(Setting::environment_variable)
            .chain(NON_SETTING_VARIABLES.iter().map(|name| (*name).to_owned()))
    };
    // Omitting the table is the likeliest mistake: NEXUS3_BODY_BYTES_MAX.
    let in_table = known().find(|name| bare(name).split_once('_').is_some_and(|(_, key)| key == given));
    let near = in_table.or_else(|| nearest(&given, known().map(|name| (bare(&name), name))));
    did_you_mean(near)
}

fn name_and_key(setting: &Setting) -> (String, String) {
    (setting.name().to_owned(), setting.key.to_owned())
}

fn nearest_table(name: &str) -> Option<String> {
    let named = TableKind::ALL.iter().map(|kind| kind.table_name());
    let tables = TABLES.iter().map(|(table, _)| *table).chain([presets::PRESETS_TABLE]).chain(named);
    nearest(name, tables.map(|table| (table.to_owned(), table.to_owned())))
}

/// Returns the suggestion whose name is most similar to `given`, if any is similar enough. `known` are pairs of a name
/// and its suggestion.
fn nearest(given: &str, known: impl Iterator<Item = (String, String)>) -> Option<String> {
    let chars = given.chars().count();
    if chars > NAME_CHARS_MAX {
        return None;
    }
    let distance_max = (chars / 3).max(1);
    known
        .map(|(name, suggestion)| (strsim::damerau_levenshtein(given, &name), suggestion))
        .filter(|(distance, _)| *distance <= distance_max)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, suggestion)| suggestion)
}

fn did_you_mean(near: Option<String>) -> String {
    near.map_or_else(String::new, |near| format!("; did you mean {near}?"))
}
