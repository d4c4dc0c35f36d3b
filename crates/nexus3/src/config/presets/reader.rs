//! Reads the tables `[presets.NAME]`: every problem with its place in the text, the good ones in the order of the
//! file.

use agent::permission::{FilePath, Level, PresetFault, Presets, Resource};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{EXTENDS, KEYS, MAY_CREATE, NAME_RULE, is_name};
use super::{CustomPreset, PresetEntry, TABLE, add_all};
use crate::config::file::{Key, single_quoted, value_start};
use crate::config::kind::{Kind, Refusal, Value, describe, quote};
use crate::config::lines::Lines;
use crate::config::suggest;

/// What the tables say.
#[derive(Debug, Default)]
pub(crate) struct PresetLayer {
    pub(crate) presets: Vec<CustomPreset>,
    /// Names of those with a problem.
    pub(crate) refused: Vec<String>,
    /// Byte offset and text of each problem.
    pub(crate) problems: Vec<(usize, String)>,
}

/// Reads all of them. `~` in a path stands for `user_home`.
pub(crate) fn read(table: &DeTable<'_>, lines: &Lines<'_>, user_home: Option<&str>) -> PresetLayer {
    let mut reader = Reader { lines, user_home, layer: PresetLayer::default() };
    let mut found: Vec<Found> = table.iter().filter_map(|(key, value)| reader.preset(key, value)).collect();
    found.sort_by_key(|found| found.at);
    reader.check_together(found);
    reader.layer
}

struct Reader<'t> {
    lines: &'t Lines<'t>,
    user_home: Option<&'t str>,
    layer: PresetLayer,
}

/// A table whose every key is good for itself.
struct Found {
    preset: CustomPreset,
    at: usize,
    /// Where each entry's value stands.
    values_at: Vec<usize>,
}

impl Reader<'_> {
    fn preset(&mut self, key: &Key<'_>, value: &Spanned<DeValue<'_>>) -> Option<Found> {
        let name = key.get_ref().as_ref();
        let at = key.span().start;
        let before = self.layer.problems.len();
        let found = match value.get_ref().as_table() {
            None => {
                let got = describe(value.get_ref());
                self.note(value_start(key, value), format!("{TABLE}.{name} must be a table, got {got}"));
                None
            }
            Some(_) if !is_name(name) => {
                let hint = suggest::for_preset_name(name);
                let text = format!("the name of a preset must be {NAME_RULE}, got {}{hint}", quote(name));
                self.note(at, text);
                None
            }
            Some(table) => Some(self.entries(name, at, table)),
        };
        if self.layer.problems.len() > before {
            self.layer.refused.push(name.to_owned());
            return None;
        }
        found
    }

    fn entries(&mut self, name: &str, at: usize, table: &DeTable<'_>) -> Found {
        let mut read: Vec<(PresetEntry, usize)> =
            table.iter().filter_map(|(key, value)| self.entry(name, key, value)).collect();
        read.sort_by_key(|(entry, _)| entry.key);
        if !table.iter().any(|(key, _)| key.get_ref() == EXTENDS) {
            let choices = Presets::builtin(&[]).choices(Level::Yolo);
            let text =
                format!("{TABLE}.{name}.{EXTENDS} is missing; choose one of {choices}, or another of yours");
            self.note(at, text);
        }
        let (entries, values_at) = read.into_iter().unzip();
        let preset = CustomPreset { name: name.to_owned(), line: self.lines.line(at), entries };
        Found { preset, at, values_at }
    }

    fn entry(
        &mut self,
        preset: &str,
        key: &Key<'_>,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<(PresetEntry, usize)> {
        let (name, at) = (key.get_ref().as_ref(), value_start(key, value));
        let path = format!("{TABLE}.{preset}.{name}");
        let Some(place) = KEYS.iter().position(|known| known.name == name) else {
            let hint = suggest::for_preset_key(preset, name);
            self.note(key.span().start, format!("unknown key {}{hint}", single_quoted(&path)));
            return None;
        };
        let kind = KEYS[place].kind;
        let read = kind.read_toml(value.get_ref()).and_then(|value| self.expand(kind, value));
        match read {
            Ok(value) => {
                let line = self.lines.line(key.span().start);
                Some((PresetEntry { key: place, value, line }, at))
            }
            Err(refusals) => {
                for refusal in refusals {
                    let at = refusal.span.map_or(at, |span| span.start);
                    self.note(at, format!("{path} must be {}, got {}", kind.must_be(), refusal.got));
                }
                None
            }
        }
    }

    /// Makes paths absolute, in their simplest text.
    fn expand(&self, kind: Kind, value: Value) -> Result<Value, Vec<Refusal>> {
        match value {
            Value::Texts(texts) if kind == Kind::Paths => {
                let paths = texts.iter().map(|text| self.absolute(text));
                let paths: Result<Vec<String>, String> = paths.collect();
                paths.map(Value::Texts).map_err(|got| vec![Refusal::new(got)])
            }
            value => Ok(value),
        }
    }

    fn absolute(&self, text: &str) -> Result<String, String> {
        let whole = match (text.strip_prefix('~'), self.user_home) {
            (Some(rest), Some(home)) => format!("{home}{rest}"),
            (Some(_), None) => return Err(format!("{} (HOME is not set to a folder)", quote(text))),
            (None, _) => text.to_owned(),
        };
        let path = FilePath::resolve(&whole, &FilePath::root());
        path.map(|path| path.to_string()).map_err(|fault| format!("{} ({fault})", quote(text)))
    }

    /// What only shows when all presets are known: bases that are missing, names that are taken, what would widen.
    fn check_together(&mut self, mut found: Vec<Found>) {
        let own: Vec<String> = found.iter().map(|found| found.preset.name.clone()).collect();
        let declared: Vec<String> = own.into_iter().chain(self.layer.refused.iter().cloned()).collect();
        found.retain(|found| self.creates_known(found, &declared));
        let mut presets = Presets::builtin(&[]);
        let narrowings = found.iter().map(|found| (&found.preset, found.preset.unresolved_narrowing())).collect();
        let added = add_all(&mut presets, narrowings);
        let mut refused: Vec<String> = Vec::new();
        for found in &found {
            let fault = added.faults.iter().find(|(preset, _)| preset.name == found.preset.name);
            let problem = match fault {
                Some((_, fault)) => Some(widening(found, fault)),
                None if !added.baseless.contains(&&found.preset) => continue,
                None => baseless(found, &declared, &added.baseless),
            };
            refused.push(found.preset.name.clone());
            self.layer.problems.extend(problem);
        }
        found.retain(|found| !refused.contains(&found.preset.name));
        self.layer.refused.extend(refused);
        self.layer.presets = found.into_iter().map(|found| found.preset).collect();
    }

    /// Whether all presets that it lets children have are there.
    fn creates_known(&mut self, found: &Found, declared: &[String]) -> bool {
        let builtin = Presets::builtin(&[]);
        let is_known = |name: &str| builtin.find(name).is_ok() || declared.iter().any(|other| other == name);
        let names = found.preset.texts(MAY_CREATE).unwrap_or_default();
        let Some(unknown) = names.iter().find(|name| !is_known(name)) else { return true };
        let hint = suggest::for_preset(unknown, declared.iter().map(String::as_str));
        let path = format!("{TABLE}.{}.{MAY_CREATE}", found.preset.name);
        self.note(found.value_at(MAY_CREATE), format!("{path} names no preset {}{hint}", quote(unknown)));
        self.layer.refused.push(found.preset.name.clone());
        false
    }

    fn note(&mut self, at: usize, text: String) {
        self.layer.problems.push((at, text));
    }
}

impl Found {
    fn value_at(&self, key: &str) -> usize {
        let place = self.preset.entries.iter().position(|entry| KEYS[entry.key].name == key);
        place.and_then(|place| self.values_at.get(place)).copied().unwrap_or(self.at)
    }
}

/// A preset that cannot be added, at the key that is to blame.
fn widening(found: &Found, fault: &PresetFault) -> (usize, String) {
    let name = &found.preset.name;
    match fault {
        PresetFault::Widens { base, what, .. } => {
            let is_budget = Resource::ALL.iter().any(|resource| resource.name() == *what);
            let key = if is_budget { format!("max_{what}") } else { (*what).to_owned() };
            let text =
                format!("{TABLE}.{name}.{key} would allow more than '{base}', and a preset can only narrow");
            (found.value_at(&key), text)
        }
        PresetFault::DuplicateName(_) => {
            (found.at, format!("there is a preset '{name}' already; choose another name"))
        }
        fault => (found.at, format!("{TABLE}.{name}: {fault}")),
    }
}

/// A preset whose base never came. Nothing when the base's own problem tells it.
fn baseless(found: &Found, declared: &[String], baseless: &[&CustomPreset]) -> Option<(usize, String)> {
    let (name, base) = (&found.preset.name, found.preset.extends());
    let at = found.value_at(EXTENDS);
    if !declared.iter().any(|other| other == base) {
        let hint =
            suggest::for_preset(base, declared.iter().map(String::as_str).filter(|other| other != name));
        return Some((at, format!("{TABLE}.{name}.{EXTENDS} names no preset {}{hint}", quote(base))));
    }
    let up = |name: &str| baseless.iter().find(|other| other.name == name).map(|other| other.extends());
    let mut above = std::iter::successors(Some(base), |name| up(name)).take(baseless.len());
    above
        .any(|other| other == name)
        .then(|| (at, format!("{TABLE}.{name}.{EXTENDS} leads back to '{name}' itself")))
}
