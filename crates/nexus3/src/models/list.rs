//! `nexus3 models list` and `info`: the catalog and the shelf side by side.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use weights::{CatalogEntry, InstalledModel, ModelCatalog, ModelDirectory, ModelEntry, ModelId, ModelKind};

use super::args::{InfoArgs, ListArgs};
use super::{
    LOCAL_PROVIDER, ServerRow, build_runtime, builtin_catalog, format_size, models_directory, weights_failure,
};
use crate::{Failure, print_stdout};

/// One model: what the catalog says of it, and what is here of it. One of the two at least.
struct ModelRow<'a> {
    id: ModelId,
    entry: Option<&'a CatalogEntry>,
    installed: Option<ModelEntry>,
}

pub(super) fn list(args: &ListArgs, home: &Path, found_servers: &[ServerRow]) -> Result<u8, Failure> {
    let catalog = builtin_catalog()?;
    let lines = model_rows(&catalog, &ModelDirectory::at(&models_directory(home)))?;
    if args.json {
        let servers: Vec<Value> =
            found_servers.iter().map(|(name, url)| json!({ "name": name, "url": url })).collect();
        let models: Vec<Value> = lines.iter().map(ModelRow::to_json).collect();
        return print_stdout(&format!("{:#}\n", json!({ "models": models, "servers": servers })));
    }
    print_stdout(&(render_table(&lines) + &render_servers(found_servers)))
}

pub(super) fn info(args: &InfoArgs, home: &Path) -> Result<u8, Failure> {
    let catalog = builtin_catalog()?;
    let shelf = ModelDirectory::at(&models_directory(home));
    let name = args.id.strip_prefix("local/").unwrap_or(&args.id);
    let id: ModelId = name.parse().map_err(weights_failure)?;
    let line = ModelRow { entry: catalog.find(name), installed: shelf.entry(&id), id };
    if line.entry.is_none() && line.installed.is_none() {
        let text = format!("no model {name:?}; nexus3 models list shows what is here and what can be pulled");
        return Err(Failure::Run(text));
    }
    if args.verify {
        build_runtime()?.block_on(shelf.verify(&line.id)).map_err(weights_failure)?;
    }
    let mut told = if args.json { format!("{:#}\n", line.to_json()) } else { line.details() };
    if args.verify && !args.json {
        told += "verified  the file is as it was pulled\n";
    }
    print_stdout(&told)
}

/// The catalog first, in its order, then what else is here.
fn model_rows<'c>(catalog: &'c ModelCatalog, shelf: &ModelDirectory) -> Result<Vec<ModelRow<'c>>, Failure> {
    let known = catalog.entries().iter().map(|entry| ModelRow {
        id: entry.id.clone(),
        entry: Some(entry),
        installed: shelf.entry(&entry.id),
    });
    let mut lines: Vec<ModelRow<'c>> = known.collect();
    let listed: BTreeSet<ModelId> = lines.iter().map(|line| line.id.clone()).collect();
    let here = shelf.list().map_err(weights_failure)?;
    let others = here.into_iter().filter(|shelved| !listed.contains(shelved.id()));
    lines.extend(others.map(|shelved| ModelRow {
        id: shelved.id().clone(),
        entry: None,
        installed: Some(shelved),
    }));
    Ok(lines)
}

impl ModelRow<'_> {
    fn pulled(&self) -> Option<&InstalledModel> {
        match &self.installed {
            Some(ModelEntry::Ready(pulled)) => Some(pulled),
            _ => None,
        }
    }

    fn bytes(&self) -> Option<u64> {
        let begun = match &self.installed {
            Some(ModelEntry::Partial { total_bytes, .. }) => *total_bytes,
            _ => None,
        };
        self.pulled().map(|pulled| pulled.bytes).or(self.entry.map(|entry| entry.bytes)).or(begun)
    }

    fn licence(&self) -> Option<&str> {
        let pulled = self.pulled().and_then(|pulled| pulled.licence.as_deref());
        pulled.or(self.entry.map(|entry| entry.licence))
    }

    fn kind(&self) -> Option<ModelKind> {
        self.pulled().map(|pulled| pulled.kind).or(self.entry.map(|entry| entry.kind))
    }

    /// How a program would name the state.
    fn state_name(&self) -> &'static str {
        match &self.installed {
            Some(ModelEntry::Ready(_)) => "ready",
            Some(ModelEntry::Partial { .. }) => "begun",
            Some(ModelEntry::Broken { .. }) => "broken",
            None => "not_pulled",
        }
    }

    fn state_text(&self) -> String {
        match &self.installed {
            Some(ModelEntry::Ready(_)) => "ready".to_owned(),
            Some(ModelEntry::Partial { synced_bytes: kept_bytes, .. }) => {
                match self.bytes().filter(|bytes| *bytes > 0) {
                    Some(bytes) => format!("{} % here", u128::from(*kept_bytes) * 100 / u128::from(bytes)),
                    None => format!("{} here", format_size(*kept_bytes)),
                }
            }
            Some(ModelEntry::Broken { .. }) => "broken".to_owned(),
            None => "not pulled".to_owned(),
        }
    }

    fn purpose(&self) -> String {
        let own = || format!("{}, your own", self.kind().map_or("unknown", ModelKind::as_str));
        self.entry.map_or_else(own, |entry| entry.purpose.to_owned())
    }

    fn to_json(&self) -> Value {
        let (entry, pulled) = (self.entry, self.pulled());
        let kept_bytes = match &self.installed {
            Some(ModelEntry::Partial { synced_bytes: kept_bytes, .. }) => Some(*kept_bytes),
            _ => pulled.map(|pulled| pulled.bytes),
        };
        let sum = pulled.map(|pulled| pulled.checksum).or(entry.map(|entry| entry.checksum));
        json!({
            "id": self.id.as_str(),
            "name": format!("{LOCAL_PROVIDER}/{}", self.id),
            "title": entry.map(|entry| entry.title),
            "purpose": entry.map(|entry| entry.purpose),
            "kind": self.kind().map(ModelKind::as_str),
            "bytes": self.bytes(),
            "kept_bytes": kept_bytes.unwrap_or_default(),
            "sha256": sum.map(|sum| sum.to_string()),
            "licence": self.licence(),
            "window_tokens": entry.map(|entry| entry.window_tokens),
            "state": self.state_name(),
            "path": pulled.map(|pulled| pulled.path.to_string_lossy()),
            "source": pulled.map(|pulled| &pulled.source),
            "sources": self.sources(),
            "pulled_at": pulled.map(|pulled| &pulled.pulled_at),
        })
    }

    fn sources(&self) -> Vec<String> {
        self.entry.map(|entry| entry.sources.iter().map(ToString::to_string).collect()).unwrap_or_default()
    }

    /// All that is known, a line each.
    fn details(&self) -> String {
        let mut rows: Vec<(&str, String)> = vec![("model", format!("{LOCAL_PROVIDER}/{}", self.id))];
        if let Some(entry) = self.entry {
            rows.push(("title", entry.title.to_owned()));
            rows.push(("for", entry.purpose.to_owned()));
            rows.push(("window", format!("{} tokens", entry.window_tokens)));
        }
        rows.push(("kind", self.kind().map_or("unknown", ModelKind::as_str).to_owned()));
        rows.push((
            "size",
            self.bytes()
                .map_or("unknown".to_owned(), |bytes| format!("{} ({bytes} bytes)", format_size(bytes))),
        ));
        let words = self.entry.map(|entry| format!(": {}", entry.licence_summary)).unwrap_or_default();
        rows.push(("licence", format!("{}{words}", self.licence().unwrap_or("unknown"))));
        let sum = self.pulled().map(|pulled| pulled.checksum).or(self.entry.map(|entry| entry.checksum));
        rows.extend(sum.map(|sum| ("sha256", sum.to_string())));
        rows.push(("state", self.state_text()));
        if let Some(ModelEntry::Broken { why, .. }) = &self.installed {
            rows.push(("why", why.clone()));
        }
        if let Some(pulled) = self.pulled() {
            rows.push(("file", pulled.path.display().to_string()));
            rows.push(("pulled", format!("{} from {}", pulled.pulled_at, pulled.source)));
        }
        rows.extend(self.sources().into_iter().map(|source| ("source", source)));
        rows.iter().map(|(name, value)| format!("{name:<9} {value}\n")).collect()
    }
}

fn render_table(lines: &[ModelRow<'_>]) -> String {
    let head = ["MODEL", "SIZE", "LICENCE", "STATE", "FOR"].map(str::to_owned);
    let rows = lines.iter().map(|line| {
        [
            line.id.to_string(),
            line.bytes().map_or("?".to_owned(), format_size),
            line.licence().unwrap_or("?").to_owned(),
            line.state_text(),
            line.purpose(),
        ]
    });
    let rows: Vec<[String; 5]> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2), width(3)];
    let mut text = String::new();
    for [id, bytes, licence, state, purpose] in &rows {
        let [first, second, third, fourth] = widths;
        text += &format!("{id:<first$}  {bytes:>second$}  {licence:<third$}  {state:<fourth$}  {purpose}\n");
    }
    let ready = lines.iter().find(|line| line.pulled().is_some_and(|pulled| pulled.kind == ModelKind::Chat));
    text + &match ready {
        Some(line) => format!("\nUse one: nexus3 models use {LOCAL_PROVIDER}/{}\n", line.id),
        None => "\nGet one: nexus3 models pull smollm2-135m\n".to_owned(),
    }
}

fn render_servers(found: &[ServerRow]) -> String {
    if found.is_empty() {
        return String::new();
    }
    let lines: String = found.iter().map(|(name, url)| format!("  {name}  {url}\n")).collect();
    format!("\nModel servers on this machine:\n{lines}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_shelf_lists_the_catalog_and_the_servers() {
        let catalog = builtin_catalog().unwrap();
        let home = tempfile::tempdir().unwrap();
        let lines = model_rows(&catalog, &ModelDirectory::at(&models_directory(home.path()))).unwrap();
        let text =
            render_table(&lines) + &render_servers(&[("server".to_owned(), "http://127.0.0.1:1".to_owned())]);
        assert!(
            text.contains("smollm2-135m        98.4 MB  Apache-2.0  not pulled  the first minute"),
            "{text}"
        );
        assert!(text.contains("Get one: nexus3 models pull smollm2-135m"), "{text}");
        assert!(text.ends_with("Model servers on this machine:\n  server  http://127.0.0.1:1\n"), "{text}");
        assert_eq!(lines.len(), catalog.entries().len());
    }
}
