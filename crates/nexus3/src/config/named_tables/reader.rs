//! Parser of the named tables of one kind; reports every problem with its byte offset.

use provider::catalog::{LOCAL, known_provider};
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use tools::CustomTool;

use super::{NamedEntry, NamedTable, TableKind};
use crate::config::file::{Key, single_quoted, value_start};
use crate::config::line_index::LineIndex;
use crate::config::presets::{NAME_RULE, is_table_name};
use crate::config::suggest;
use crate::config::value_kind::{SettingValue, ValueKind, describe_type, quote};

/// The parsed tables of one kind, and their problems.
#[derive(Debug, Default)]
pub(crate) struct NamedLayer {
    pub(crate) tables: Vec<NamedTable>,
    /// Byte offset and text of each problem.
    pub(crate) problems: Vec<(usize, String)>,
}

/// Parses all tables of one kind. `~` in a path stands for `user_home`.
pub(crate) fn parse(
    kind: TableKind,
    table: &DeTable<'_>,
    lines: &LineIndex<'_>,
    user_home: Option<&str>,
) -> NamedLayer {
    let mut reader = Reader { kind, lines, user_home, layer: NamedLayer::default() };
    for (key, value) in table.iter() {
        reader.read_table(key, value);
    }
    reader.layer.tables.sort_by_key(|table| table.line);
    reader.layer
}

struct Reader<'t> {
    kind: TableKind,
    lines: &'t LineIndex<'t>,
    user_home: Option<&'t str>,
    layer: NamedLayer,
}

impl Reader<'_> {
    fn read_table(&mut self, key: &Key<'_>, value: &Spanned<DeValue<'_>>) {
        let (name, at) = (key.get_ref().as_ref(), key.span().start);
        let path = format!("{}.{name}", self.kind.table_name());
        let Some(inner) = value.get_ref().as_table() else {
            let got = describe_type(value.get_ref());
            return self.report(value_start(key, value), format!("{path} must be a table, got {got}"));
        };
        if !is_table_name(name) || (self.kind == TableKind::Providers && name == LOCAL) {
            let reserved = match self.kind {
                TableKind::Providers => format!(", and not {LOCAL}"),
                TableKind::Models | TableKind::CustomTools | TableKind::Secrets => String::new(),
            };
            let table = self.kind.table_name();
            let text = format!("a name in {table} must be {NAME_RULE}{reserved}; got {}", quote(name));
            return self.report(at, text);
        }
        let mut entries: Vec<NamedEntry> =
            inner.iter().filter_map(|(key, value)| self.read_entry(&path, key, value)).collect();
        entries.sort_by_key(|entry| entry.key_index);
        let line = self.lines.line_number(at);
        let table = NamedTable { kind: self.kind, name: name.to_owned(), line, entries };
        let has = |key: &str| inner.iter().any(|(other, _)| other.get_ref() == key);
        match self.kind {
            TableKind::Models if !has("model") => {
                self.report(
                    at,
                    format!("{path}.model is missing; set it to a model such as \"openai/gpt-4o-mini\""),
                );
            }
            TableKind::Providers if !has("kind") && known_provider(name).is_none() => {
                let expected = ValueKind::Provider.expected();
                self.report(at, format!("{path}.kind is missing; it must be {expected}"));
            }
            TableKind::Providers
                if ["key_env", "key_file", "key_command"].iter().filter(|key| has(key)).count() > 1 =>
            {
                self.report(at, format!("{path} must have at most one of key_env, key_file and key_command"));
            }
            TableKind::Secrets if inner.iter().count() == table.entries.len() && table.entries.len() != 1 => {
                self.report(at, format!("{path} must have exactly one of env, file and command"));
            }
            TableKind::CustomTools => {
                if self.check_tool(&table, inner, at) {
                    self.layer.tables.push(table);
                }
            }
            _ => self.layer.tables.push(table),
        }
    }

    /// Whether a custom tool is valid; reports why not. Without a value that was rejected there is nothing to check.
    fn check_tool(&mut self, table: &NamedTable, inner: &DeTable<'_>, at: usize) -> bool {
        let path = table.header_path();
        let taken = tools::builtin_specs();
        let taken = taken.iter().find(|spec| spec.lookup_names().any(|name| **name == *table.name));
        if let Some(spec) = taken {
            let text = format!("{path}: the built-in tool {} has this name; choose another one", spec.name);
            self.report(at, text);
        }
        for (key, example) in [("description", "what it does"), ("command", "a program such as \"git\"")] {
            if !inner.iter().any(|(other, _)| other.get_ref() == key) {
                self.report(at, format!("{path}.{key} is missing; set it to {example}"));
                return false;
            }
        }
        if table.entries.len() < inner.iter().count() || taken.is_some() {
            return false;
        }
        let Err(fault) = CustomTool::new(&table.to_tool_settings()) else { return true };
        let entry = inner.iter().find(|(key, _)| key.get_ref() == fault.key);
        let at = entry.map_or(at, |(key, value)| value_start(key, value));
        self.report(at, format!("{path}.{fault}"));
        false
    }

    fn read_entry(&mut self, path: &str, key: &Key<'_>, value: &Spanned<DeValue<'_>>) -> Option<NamedEntry> {
        let (name, at) = (key.get_ref().as_ref(), value_start(key, value));
        let Some(key_index) = self.kind.keys().iter().position(|known| known.name == name) else {
            let hint = suggest::for_named_key(self.kind, path, name);
            self.report(
                key.span().start,
                format!("unknown key {}{hint}", single_quoted(&format!("{path}.{name}"))),
            );
            return None;
        };
        let kind = self.kind.keys()[key_index].kind;
        match kind.parse_toml(value.get_ref()) {
            Ok(value) => {
                let value = self.expand_home(kind, value);
                let line = self.lines.line_number(key.span().start);
                Some(NamedEntry { key_index, value, line })
            }
            Err(invalid_values) => {
                for invalid in invalid_values {
                    let at = invalid.span.map_or(at, |span| span.start);
                    self.report(
                        at,
                        format!("{path}.{name} must be {}, got {}", kind.expected(), invalid.got),
                    );
                }
                None
            }
        }
    }

    fn expand_home(&self, kind: ValueKind, value: SettingValue) -> SettingValue {
        match (value, self.user_home) {
            (SettingValue::Text(text), Some(home)) if kind == ValueKind::Path && text.starts_with("~/") => {
                SettingValue::Text(format!("{home}{}", &text[1..]))
            }
            (value, _) => value,
        }
    }

    fn report(&mut self, at: usize, text: String) {
        self.layer.problems.push((at, text));
    }
}
