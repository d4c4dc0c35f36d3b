//! Parser of the tables `[presets.NAME]`: returns the valid presets in file order and every problem with its byte
//! offset.

use agent::permission::{FilePath, Level, PresetFault, Presets, Resource};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{EXTENDS, MAY_CREATE, NAME_RULE, PRESET_KEYS, is_table_name};
use super::{CustomPreset, PRESETS_TABLE, PresetEntry, add_all};
use crate::config::file::{Key, single_quoted, value_start};
use crate::config::line_index::LineIndex;
use crate::config::suggest;
use crate::config::value_kind::{InvalidValue, SettingValue, ValueKind, describe_type, quote};

/// The parsed presets, and their problems.
#[derive(Debug, Default)]
pub(crate) struct PresetLayer {
    pub(crate) presets: Vec<CustomPreset>,
    /// Names of presets with a problem.
    pub(crate) invalid_names: Vec<String>,
    /// Byte offset and text of each problem.
    pub(crate) problems: Vec<(usize, String)>,
}

/// Parses all presets. `~` in a path stands for `user_home`.
pub(crate) fn parse(table: &DeTable<'_>, lines: &LineIndex<'_>, user_home: Option<&str>) -> PresetLayer {
    let mut reader = Reader { lines, user_home, layer: PresetLayer::default() };
    let mut parsed: Vec<ParsedPreset> =
        table.iter().filter_map(|(key, value)| reader.read_preset(key, value)).collect();
    parsed.sort_by_key(|parsed| parsed.offset);
    reader.check_references(parsed);
    reader.layer
}

struct Reader<'t> {
    lines: &'t LineIndex<'t>,
    user_home: Option<&'t str>,
    layer: PresetLayer,
}

/// A preset whose keys are valid; references to other presets are not checked yet.
struct ParsedPreset {
    preset: CustomPreset,
    offset: usize,
    /// Byte offset of each entry's value.
    value_offsets: Vec<usize>,
}

impl Reader<'_> {
    fn read_preset(&mut self, key: &Key<'_>, value: &Spanned<DeValue<'_>>) -> Option<ParsedPreset> {
        let name = key.get_ref().as_ref();
        let at = key.span().start;
        let problems_before = self.layer.problems.len();
        let parsed = match value.get_ref().as_table() {
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
        if self.layer.problems.len() > problems_before {
            self.layer.invalid_names.push(name.to_owned());
            return None;
        }
        parsed
    }

    fn read_entries(&mut self, name: &str, at: usize, table: &DeTable<'_>) -> ParsedPreset {
        let mut entries: Vec<(PresetEntry, usize)> =
            table.iter().filter_map(|(key, value)| self.read_entry(name, key, value)).collect();
        entries.sort_by_key(|(entry, _)| entry.key_index);
        if !table.iter().any(|(key, _)| key.get_ref() == EXTENDS) {
            let choices = Presets::builtin(&[]).choices(Level::Yolo);
            let text = format!(
                "{PRESETS_TABLE}.{name}.{EXTENDS} is missing; set it to one of {choices}, or to another custom preset"
            );
            self.report(at, text);
        }
        let (entries, value_offsets) = entries.into_iter().unzip();
        let preset = CustomPreset { name: name.to_owned(), line: self.lines.line_number(at), entries };
        ParsedPreset { preset, offset: at, value_offsets }
    }

    fn read_entry(
        &mut self,
        preset: &str,
        key: &Key<'_>,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<(PresetEntry, usize)> {
        let (name, at) = (key.get_ref().as_ref(), value_start(key, value));
        let path = format!("{PRESETS_TABLE}.{preset}.{name}");
        let Some(key_index) = PRESET_KEYS.iter().position(|known| known.name == name) else {
            let hint = suggest::for_preset_key(preset, name);
            self.report(key.span().start, format!("unknown key {}{hint}", single_quoted(&path)));
            return None;
        };
        let kind = PRESET_KEYS[key_index].kind;
        let parsed = kind.parse_toml(value.get_ref()).and_then(|value| self.expand_paths(kind, value));
        match parsed {
            Ok(value) => {
                let line = self.lines.line_number(key.span().start);
                Some((PresetEntry { key_index, value, line }, at))
            }
            Err(invalid_values) => {
                for invalid in invalid_values {
                    let at = invalid.span.map_or(at, |span| span.start);
                    self.report(at, format!("{path} must be {}, got {}", kind.expected(), invalid.got));
                }
                None
            }
        }
    }

    /// Makes paths absolute and normalized; other values stay unchanged.
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
        let expanded = match (text.strip_prefix('~'), self.user_home) {
            (Some(suffix), Some(home)) => format!("{home}{suffix}"),
            (Some(_), None) => return Err(format!("{} (HOME is not set to an absolute path)", quote(text))),
            (None, _) => text.to_owned(),
        };
        let path = FilePath::resolve(&expanded, &FilePath::root());
        path.map(|path| path.to_string()).map_err(|fault| format!("{} ({fault})", quote(text)))
    }

    /// Runs the checks that need all presets: missing bases, duplicate names, presets that would widen their base.
    fn check_references(&mut self, mut parsed: Vec<ParsedPreset>) {
        let valid: Vec<String> = parsed.iter().map(|parsed| parsed.preset.name.clone()).collect();
        let declared: Vec<String> =
            valid.into_iter().chain(self.layer.invalid_names.iter().cloned()).collect();
        parsed.retain(|parsed| self.check_may_create(parsed, &declared));
        let mut presets = Presets::builtin(&[]);
        let narrowings =
            parsed.iter().map(|parsed| (&parsed.preset, parsed.preset.unresolved_narrowing())).collect();
        let added = add_all(&mut presets, narrowings);
        let mut rejected: Vec<String> = Vec::new();
        for parsed in &parsed {
            let fault = added.faults.iter().find(|(preset, _)| preset.name == parsed.preset.name);
            let problem = match fault {
                Some((_, fault)) => Some(fault_problem(parsed, fault)),
                None if !added.missing_base.contains(&&parsed.preset) => continue,
                None => missing_base_problem(parsed, &declared, &added.missing_base),
            };
            rejected.push(parsed.preset.name.clone());
            self.layer.problems.extend(problem);
        }
        parsed.retain(|parsed| !rejected.contains(&parsed.preset.name));
        self.layer.invalid_names.extend(rejected);
        self.layer.presets = parsed.into_iter().map(|parsed| parsed.preset).collect();
    }

    /// Whether all presets in its `may_create` exist; reports the first that does not.
    fn check_may_create(&mut self, parsed: &ParsedPreset, declared: &[String]) -> bool {
        let builtin = Presets::builtin(&[]);
        let is_known = |name: &str| builtin.find(name).is_ok() || declared.iter().any(|other| other == name);
        let names = parsed.preset.list(MAY_CREATE).unwrap_or_default();
        let Some(unknown) = names.iter().find(|name| !is_known(name)) else { return true };
        let hint = suggest::for_preset(unknown, declared.iter().map(String::as_str));
        let path = format!("{PRESETS_TABLE}.{}.{MAY_CREATE}", parsed.preset.name);
        self.report(
            parsed.value_offset(MAY_CREATE),
            format!("{path}: there is no preset {}{hint}", quote(unknown)),
        );
        self.layer.invalid_names.push(parsed.preset.name.clone());
        false
    }

    fn report(&mut self, at: usize, text: String) {
        self.layer.problems.push((at, text));
    }
}

impl ParsedPreset {
    fn value_offset(&self, key: &str) -> usize {
        let index = self.preset.entries.iter().position(|entry| PRESET_KEYS[entry.key_index].name == key);
        index.and_then(|index| self.value_offsets.get(index)).copied().unwrap_or(self.offset)
    }
}

/// Describes why a preset cannot be added, at the offset of the key that causes it.
fn fault_problem(parsed: &ParsedPreset, fault: &PresetFault) -> (usize, String) {
    let name = &parsed.preset.name;
    match fault {
        PresetFault::Widens { base, what, .. } => {
            let is_budget = Resource::ALL.iter().any(|resource| resource.name() == *what);
            let key = if is_budget { format!("max_{what}") } else { (*what).to_owned() };
            let text = format!(
                "{PRESETS_TABLE}.{name}.{key} would allow more than '{base}'; a preset can only narrow its base"
            );
            (parsed.value_offset(&key), text)
        }
        PresetFault::DuplicateName(_) => {
            (parsed.offset, format!("preset '{name}' already exists; choose another name"))
        }
        fault => (parsed.offset, format!("{PRESETS_TABLE}.{name}: {fault}")),
    }
}

/// Describes a base that does not exist or a cycle. `None` when the base is invalid and has a problem of its own.
fn missing_base_problem(
    parsed: &ParsedPreset,
    declared: &[String],
    missing_base: &[&CustomPreset],
) -> Option<(usize, String)> {
    let (name, base) = (&parsed.preset.name, parsed.preset.extends());
    let at = parsed.value_offset(EXTENDS);
    if !declared.iter().any(|other| other == base) {
        let hint =
            suggest::for_preset(base, declared.iter().map(String::as_str).filter(|other| other != name));
        let text = format!("{PRESETS_TABLE}.{name}.{EXTENDS}: there is no preset {}{hint}", quote(base));
        return Some((at, text));
    }
    let base_of =
        |name: &str| missing_base.iter().find(|other| other.name == name).map(|other| other.extends());
    let mut ancestors = std::iter::successors(Some(base), |name| base_of(name)).take(missing_base.len());
    ancestors
        .any(|other| other == name)
        .then(|| (at, format!("{PRESETS_TABLE}.{name}.{EXTENDS} is a cycle: it leads back to '{name}'")))
}
