//! Reads the tables of one kind: every problem with its place in the text.

use provider::catalog::{LOCAL, known_provider};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{NamedEntry, NamedTable, Spec};
use crate::config::file::{Key, single_quoted, value_start};
use crate::config::kind::{Kind, Value, describe, quote};
use crate::config::lines::Lines;
use crate::config::presets::{NAME_RULE, is_name};
use crate::config::suggest;

/// What the tables say.
#[derive(Debug, Default)]
pub(crate) struct NamedLayer {
    pub(crate) tables: Vec<NamedTable>,
    /// Byte offset and text of each problem.
    pub(crate) problems: Vec<(usize, String)>,
}

/// Reads all of them. `~` in a path stands for `user_home`.
pub(crate) fn read(
    spec: Spec,
    table: &DeTable<'_>,
    lines: &Lines<'_>,
    user_home: Option<&str>,
) -> NamedLayer {
    let mut reader = Reader { spec, lines, user_home, layer: NamedLayer::default() };
    for (key, value) in table.iter() {
        reader.table(key, value);
    }
    reader.layer.tables.sort_by_key(|table| table.line);
    reader.layer
}

struct Reader<'t> {
    spec: Spec,
    lines: &'t Lines<'t>,
    user_home: Option<&'t str>,
    layer: NamedLayer,
}

impl Reader<'_> {
    fn table(&mut self, key: &Key<'_>, value: &Spanned<DeValue<'_>>) {
        let (name, at) = (key.get_ref().as_ref(), key.span().start);
        let path = format!("{}.{name}", self.spec.table());
        let Some(inner) = value.get_ref().as_table() else {
            let got = describe(value.get_ref());
            return self.note(value_start(key, value), format!("{path} must be a table, got {got}"));
        };
        if !is_name(name) || (self.spec == Spec::Providers && name == LOCAL) {
            let what = self.spec.table();
            let text = format!("a name in {what} must be {NAME_RULE}, and not {LOCAL}; got {}", quote(name));
            return self.note(at, text);
        }
        let mut entries: Vec<NamedEntry> =
            inner.iter().filter_map(|(key, value)| self.entry(&path, key, value)).collect();
        entries.sort_by_key(|entry| entry.key);
        let line = self.lines.line(at);
        let table = NamedTable { spec: self.spec, name: name.to_owned(), line, entries };
        let has = |key: &str| inner.iter().any(|(other, _)| other.get_ref() == key);
        match self.spec {
            Spec::Models if !has("model") => {
                self.note(at, format!("{path}.model is missing, as in \"openai/gpt-4o-mini\""));
            }
            Spec::Providers if !has("kind") && known_provider(name).is_none() => {
                let must_be = Kind::Provider.must_be();
                self.note(at, format!("{path}.kind is missing; it must be {must_be}"));
            }
            Spec::Providers
                if ["key_env", "key_file", "key_command"].iter().filter(|key| has(key)).count() > 1 =>
            {
                self.note(at, format!("{path} has more than one of key_env, key_file and key_command"));
            }
            _ => self.layer.tables.push(table),
        }
    }

    fn entry(&mut self, path: &str, key: &Key<'_>, value: &Spanned<DeValue<'_>>) -> Option<NamedEntry> {
        let (name, at) = (key.get_ref().as_ref(), value_start(key, value));
        let Some(place) = self.spec.keys().iter().position(|known| known.name == name) else {
            let hint = suggest::for_named_key(self.spec, path, name);
            self.note(
                key.span().start,
                format!("unknown key {}{hint}", single_quoted(&format!("{path}.{name}"))),
            );
            return None;
        };
        let kind = self.spec.keys()[place].kind;
        match kind.read_toml(value.get_ref()) {
            Ok(value) => {
                let value = self.expand(kind, value);
                let line = self.lines.line(key.span().start);
                Some(NamedEntry { key: place, value, line })
            }
            Err(refusals) => {
                for refusal in refusals {
                    let at = refusal.span.map_or(at, |span| span.start);
                    self.note(at, format!("{path}.{name} must be {}, got {}", kind.must_be(), refusal.got));
                }
                None
            }
        }
    }

    fn expand(&self, kind: Kind, value: Value) -> Value {
        match (value, self.user_home) {
            (Value::Text(text), Some(home)) if kind == Kind::Path && text.starts_with("~/") => {
                Value::Text(format!("{home}{}", &text[1..]))
            }
            (value, _) => value,
        }
    }

    fn note(&mut self, at: usize, text: String) {
        self.layer.problems.push((at, text));
    }
}
