//! Reads the tables `[presets.NAME]`: every problem with its place in the text, the good ones in the order of the
//! file.

use agent::permission::{FilePath, Level, PresetFault, Presets, Resource};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{EXTENDS, MAY_CREATE, NAME_RULE, PRESET_KEYS, is_table_name};
use super::{CustomPreset, PRESETS_TABLE, PresetEntry, add_all};
use crate::config::file::{Key, single_quoted, value_start};
use crate::config::line_index::LineIndex;
use crate::config::suggest;
use crate::config::value_kind::{InvalidValue, SettingValue, ValueKind, describe_type, quote};

/// What the tables say.
#[derive(Debug, Default)]
pub(crate) struct PresetLayer {
    pub(crate) presets: Vec<CustomPreset>,
    /// Names of those with a problem.
    pub(crate) invalid_names: Vec<String>,
    /// Byte offset and text of each problem.
    pub(crate) problems: Vec<(usize, String)>,
}

/// Reads all of them. `~` in a path stands for `user_home`.
pub(crate) fn parse(table: &DeTable<'_>, lines: &LineIndex<'_>, user_home: Option<&str>) -> PresetLayer {
    let mut reader = Reader { lines, user_home, layer: PresetLayer::default() };
    let mut found: Vec<ParsedPreset> =
        table.iter().filter_map(|(key, value)| reader.read_preset(key, value)).collect();
    found.sort_by_key(|found| found.offset);
    reader.check_references(found);
    reader.layer
}

struct Reader<'t> {
    lines: &'t LineIndex<'t>,
    user_home: Option<&'t str>,
    layer: PresetLayer,
}

/// A table whose every key is good for itself.
struct ParsedPreset {
    preset: CustomPreset,
    offset: usize,
    /// Where each entry's value stands.
    value_offsets: Vec<usize>,
}

impl Reader<'_> {
    fn read_preset(&mut self, key: &Key<'_>, value: &Spanned<DeValue<'_>>) -> Option<ParsedPreset> {
        let name = key.get_ref().as_ref();
        let at = key.span().start;
        let before = self.layer.problems.len();
        let found = match value.get_ref().as_table() {
            None => {
                let got = describe_type(value.get_ref());
                self.report(
                    value_start(key, value),
                    format!("{PRESETS_TABLE}.{name} must be a table, got {got}"),
                );
                None
            }
            Some(_) if !is_table_name(name) => {
                let hint = suggest::for_preset_name(name);
                let text = format!("the name of a preset must be {NAME_RULE}, got {}{hint}", quote(name));
                self.report(at, text);
                None
            }
            Some(table) => Some(self.read_entries(name, at, table)),
        };
        if self.layer.problems.len() > before {
            self.layer.invalid_names.push(name.to_owned());
            return None;
        }
        found
    }

    fn read_entries(&mut self, name: &str, at: usize, table: &DeTable<'_>) -> ParsedPreset {
        let mut read: Vec<(PresetEntry, usize)> =
            table.iter().filter_map(|(key, value)| self.read_entry(name, key, value)).collect();
        read.sort_by_key(|(entry, _)| entry.key_index);
        if !table.iter().any(|(key, _)| key.get_ref() == EXTENDS) {
            let choices = Presets::builtin(&[]).choices(Level::Yolo);
            let text = format!(
                "{PRESETS_TABLE}.{name}.{EXTENDS} is missing; choose one of {choices}, or another of yours"
            );
            self.report(at, text);
        }
        let (entries, values_at) = read.into_iter().unzip();
        let preset = CustomPreset { name: name.to_owned(), line: self.lines.line_number(at), entries };
        ParsedPreset { preset, offset: at, value_offsets: values_at }
    }

    fn read_entry(
        &mut self,
        preset: &str,
        key: &Key<'_>,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<(PresetEntry, usize)> {
        let (name, at) = (key.get_ref().as_ref(), value_start(key, value));
        let path = format!("{PRESETS_TABLE}.{preset}.{name}");
        let Some(place) = PRESET_KEYS.iter().position(|known| known.name == name) else {
            let hint = suggest::for_preset_key(preset, name);
            self.report(key.span().start, format!("unknown key {}{hint}", single_quoted(&path)));
            return None;
        };
        let kind = PRESET_KEYS[place].kind;
        let read = kind.parse_toml(value.get_ref()).and_then(|value| self.expand_paths(kind, value));
        match read {
            Ok(value) => {
                let line = self.lines.line_number(key.span().start);
                Some((PresetEntry { key_index: place, value, line }, at))
            }
            Err(refusals) => {
                for refusal in refusals {
                    let at = refusal.span.map_or(at, |span| span.start);
                    self.report(at, format!("{path} must be {}, got {}", kind.expected(), refusal.got));
                }
                None
            }
        }
    }

    /// Makes paths absolute, in their simplest text.
    fn expand_paths(&self, kind: ValueKind, value: SettingValue) -> Result<SettingValue, Vec<InvalidValue>> {
        match value {
            SettingValue::List(texts) if kind == ValueKind::Paths => {
                let paths = texts.iter().map(|text| self.resolve_path(text));
                let paths: Result<Vec<String>, String> = paths.collect();
                paths.map(SettingValue::List).map_err(|got| vec![InvalidValue::new(got)])
            }
            value => Ok(value),
        }
    }

    fn resolve_path(&self, text: &str) -> Result<String, String> {
        let whole = match (text.strip_prefix('~'), self.user_home) {
            (Some(rest), Some(home)) => format!("{home}{rest}"),
            (Some(_), None) => return Err(format!("{} (HOME is not set to a folder)", quote(text))),
            (None, _) => text.to_owned(),
        };
        let path = FilePath::resolve(&whole, &FilePath::root());
        path.map(|path| path.to_string()).map_err(|fault| format!("{} ({fault})", quote(text)))
    }

    /// What only shows when all presets are known: bases that are missing, names that are taken, what would widen.
    fn check_references(&mut self, mut found: Vec<ParsedPreset>) {
        let own: Vec<String> = found.iter().map(|found| found.preset.name.clone()).collect();
        let declared: Vec<String> = own.into_iter().chain(self.layer.invalid_names.iter().cloned()).collect();
        found.retain(|found| self.check_may_create(found, &declared));
        let mut presets = Presets::builtin(&[]);
        let narrowings =
            found.iter().map(|found| (&found.preset, found.preset.unresolved_narrowing())).collect();
        let added = add_all(&mut presets, narrowings);
        let mut refused: Vec<String> = Vec::new();
        for found in &found {
            let fault = added.faults.iter().find(|(preset, _)| preset.name == found.preset.name);
            let problem = match fault {
                Some((_, fault)) => Some(fault_problem(found, fault)),
                None if !added.missing_base.contains(&&found.preset) => continue,
                None => missing_base_problem(found, &declared, &added.missing_base),
            };
            refused.push(found.preset.name.clone());
            self.layer.problems.extend(problem);
        }
        found.retain(|found| !refused.contains(&found.preset.name));
        self.layer.invalid_names.extend(refused);
        self.layer.presets = found.into_iter().map(|found| found.preset).collect();
    }

    /// Whether all presets that it lets children have are there.
    fn check_may_create(&mut self, found: &ParsedPreset, declared: &[String]) -> bool {
        let builtin = Presets::builtin(&[]);
        let is_known = |name: &str| builtin.find(name).is_ok() || declared.iter().any(|other| other == name);
        let names = found.preset.list(MAY_CREATE).unwrap_or_default();
        let Some(unknown) = names.iter().find(|name| !is_known(name)) else { return true };
        let hint = suggest::for_preset(unknown, declared.iter().map(String::as_str));
        let path = format!("{PRESETS_TABLE}.{}.{MAY_CREATE}", found.preset.name);
        self.report(
            found.value_offset(MAY_CREATE),
            format!("{path} names no preset {}{hint}", quote(unknown)),
        );
        self.layer.invalid_names.push(found.preset.name.clone());
        false
    }

    fn report(&mut self, at: usize, text: String) {
        self.layer.problems.push((at, text));
    }
}

impl ParsedPreset {
    fn value_offset(&self, key: &str) -> usize {
        let place = self.preset.entries.iter().position(|entry| PRESET_KEYS[entry.key_index].name == key);
        place.and_then(|place| self.value_offsets.get(place)).copied().unwrap_or(self.offset)
    }
}

/// A preset that cannot be added, at the key that is to blame.
fn fault_problem(found: &ParsedPreset, fault: &PresetFault) -> (usize, String) {
    let name = &found.preset.name;
    match fault {
        PresetFault::Widens { base, what, .. } => {
            let is_budget = Resource::ALL.iter().any(|resource| resource.name() == *what);
            let key = if is_budget { format!("max_{what}") } else { (*what).to_owned() };
            let text = format!(
                "{PRESETS_TABLE}.{name}.{key} would allow more than '{base}', and a preset can only narrow"
            );
            (found.value_offset(&key), text)
        }
        PresetFault::DuplicateName(_) => {
            (found.offset, format!("there is a preset '{name}' already; choose another name"))
        }
        fault => (found.offset, format!("{PRESETS_TABLE}.{name}: {fault}")),
    }
}

/// A preset whose base never came. Nothing when the base's own problem tells it.
fn missing_base_problem(
    found: &ParsedPreset,
    declared: &[String],
    baseless: &[&CustomPreset],
) -> Option<(usize, String)> {
    let (name, base) = (&found.preset.name, found.preset.extends());
    let at = found.value_offset(EXTENDS);
    if !declared.iter().any(|other| other == base) {
        let hint =
            suggest::for_preset(base, declared.iter().map(String::as_str).filter(|other| other != name));
        return Some((at, format!("{PRESETS_TABLE}.{name}.{EXTENDS} names no preset {}{hint}", quote(base))));
    }
    let up = |name: &str| baseless.iter().find(|other| other.name == name).map(|other| other.extends());
    let mut above = std::iter::successors(Some(base), |name| up(name)).take(baseless.len());
    above
        .any(|other| other == name)
        .then(|| (at, format!("{PRESETS_TABLE}.{name}.{EXTENDS} leads back to '{name}' itself")))
}
