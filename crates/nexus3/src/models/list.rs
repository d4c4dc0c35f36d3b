//! `nexus3 models list` and `info`: merges the catalog with the downloaded models.

use std::collections::BTreeSet;
use std::path::Path;

use provider::NO_LOCAL_ENGINE;
use serde_json::{Value, json};
use weights::{CatalogEntry, InstalledModel, ModelCatalog, ModelDirectory, ModelEntry, ModelId, ModelKind};

use super::args::{InfoArgs, ListArgs};
use super::{
    LOCAL_PROVIDER, ServerRow, build_runtime, builtin_catalog, format_size, models_directory, weights_failure,
};
use crate::{Failure, local_engine, print_stdout};

/// One model: its catalog entry and its entry in the model directory; at least one of them is set.
struct ModelRow<'a> {
    id: ModelId,
    entry: Option<&'a CatalogEntry>,
    installed: Option<ModelEntry>,
}

pub(super) fn list(args: &ListArgs, home: &Path, servers: &[ServerRow]) -> Result<u8, Failure> {
    let catalog = builtin_catalog()?;
    let rows = model_rows(&catalog, &ModelDirectory::at(&models_directory(home)))?;
    if args.json {
        let server_rows: Vec<Value> =
            servers.iter().map(|(name, url)| json!({ "name": name, "url": url })).collect();
        let models: Vec<Value> = rows.iter().map(ModelRow::to_json).collect();
        return print_stdout(&format!("{:#}\n", json!({ "models": models, "servers": server_rows })));
    }
    print_stdout(&(render_table(&rows) + &render_servers(servers)))
}

pub(super) fn info(args: &InfoArgs, home: &Path) -> Result<u8, Failure> {
    let catalog = builtin_catalog()?;
    let directory = ModelDirectory::at(&models_directory(home));
    let name = args.id.strip_prefix("local/").unwrap_or(&args.id);
    let id: ModelId = name.parse().map_err(weights_failure)?;
    let row = ModelRow { entry: catalog.find(name), installed: directory.entry(&id), id };
    if row.entry.is_none() && row.installed.is_none() {
        let text = format!("unknown model {name:?}: run nexus3 models list to see all models");
        return Err(Failure::Run(text));
    }
    if args.verify {
        build_runtime()?.block_on(directory.verify(&row.id)).map_err(weights_failure)?;
    }
    let mut text = if args.json { format!("{:#}\n", row.to_json()) } else { row.details() };
    if args.verify && !args.json {
        text += "verified  the checksum matches\n";
    }
    print_stdout(&text)
}

/// Lists the catalog in its order, then the downloaded models that are not in it.
fn model_rows<'c>(
    catalog: &'c ModelCatalog,
    directory: &ModelDirectory,
) -> Result<Vec<ModelRow<'c>>, Failure> {
    let known = catalog.entries().iter().map(|entry| ModelRow {
        id: entry.id.clone(),
        entry: Some(entry),
        installed: directory.entry(&entry.id),
    });
    let mut rows: Vec<ModelRow<'c>> = known.collect();
    let listed: BTreeSet<ModelId> = rows.iter().map(|row| row.id.clone()).collect();
    let installed = directory.list().map_err(weights_failure)?;
    let custom = installed.into_iter().filter(|model| !listed.contains(model.id()));
    rows.extend(custom.map(|model| ModelRow { id: model.id().clone(), entry: None, installed: Some(model) }));
    Ok(rows)
}

impl ModelRow<'_> {
    fn ready(&self) -> Option<&InstalledModel> {
        match &self.installed {
            Some(ModelEntry::Ready(model)) => Some(model),
            _ => None,
        }
    }

    fn bytes(&self) -> Option<u64> {
        let partial = match &self.installed {
            Some(ModelEntry::Partial { total_bytes, .. }) => *total_bytes,
            _ => None,
        };
        self.ready().map(|model| model.bytes).or(self.entry.map(|entry| entry.bytes)).or(partial)
    }

    fn licence(&self) -> Option<&str> {
        let recorded = self.ready().and_then(|model| model.licence.as_deref());
        recorded.or(self.entry.map(|entry| entry.licence))
    }

    fn kind(&self) -> Option<ModelKind> {
        self.ready().map(|model| model.kind).or(self.entry.map(|entry| entry.kind))
    }

    /// State for JSON output.
    fn state_name(&self) -> &'static str {
        match &self.installed {
            Some(ModelEntry::Ready(_)) => "ready",
            Some(ModelEntry::Partial { .. }) => "partial",
            Some(ModelEntry::Broken { .. }) => "broken",
            None => "not_pulled",
        }
    }

    fn state_text(&self) -> String {
        match &self.installed {
            Some(ModelEntry::Ready(_)) => "ready".to_owned(),
            Some(ModelEntry::Partial { synced_bytes, .. }) => match self.bytes().filter(|bytes| *bytes > 0) {
                Some(bytes) => {
                    format!("{} % downloaded", u128::from(*synced_bytes) * 100 / u128::from(bytes))
                }
                None => format!("{} downloaded", format_size(*synced_bytes)),
            },
            Some(ModelEntry::Broken { .. }) => "broken".to_owned(),
            None => "not downloaded".to_owned(),
        }
    }

    fn purpose(&self) -> String {
        let custom = || format!("{}, custom", self.kind().map_or("unknown", ModelKind::as_str));
        self.entry.map_or_else(custom, |entry| entry.purpose.to_owned())
    }

    fn to_json(&self) -> Value {
        let (entry, ready) = (self.entry, self.ready());
        let stored_bytes = match &self.installed {
            Some(ModelEntry::Partial { synced_bytes, .. }) => Some(*synced_bytes),
            _ => ready.map(|model| model.bytes),
        };
        let checksum = ready.map(|model| model.checksum).or(entry.map(|entry| entry.checksum));
        json!({
            "id": self.id.as_str(),
            "name": format!("{LOCAL_PROVIDER}/{}", self.id),
            "title": entry.map(|entry| entry.title),
            "purpose": entry.map(|entry| entry.purpose),
            "kind": self.kind().map(ModelKind::as_str),
            "bytes": self.bytes(),
            "stored_bytes": stored_bytes.unwrap_or_default(),
            "sha256": checksum.map(|checksum| checksum.to_string()),
            "licence": self.licence(),
            "window_tokens": entry.map(|entry| entry.window_tokens),
            "state": self.state_name(),
            "path": ready.map(|model| model.path.to_string_lossy()),
            "source": ready.map(|model| &model.source),
            "sources": self.sources(),
            "pulled_at": ready.map(|model| &model.pulled_at),
        })
    }

    fn sources(&self) -> Vec<String> {
        self.entry.map(|entry| entry.sources.iter().map(ToString::to_string).collect()).unwrap_or_default()
    }

    /// Renders all known properties, one per line.
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
        let summary = self.entry.map(|entry| format!(": {}", entry.licence_summary)).unwrap_or_default();
        rows.push(("licence", format!("{}{summary}", self.licence().unwrap_or("unknown"))));
        let checksum = self.ready().map(|model| model.checksum).or(self.entry.map(|entry| entry.checksum));
        rows.extend(checksum.map(|checksum| ("sha256", checksum.to_string())));
        rows.push(("state", self.state_text()));
        if let Some(ModelEntry::Broken { why, .. }) = &self.installed {
            rows.push(("why", why.clone()));
        }
        if let Some(model) = self.ready() {
            rows.push(("file", model.path.display().to_string()));
            rows.push(("pulled", format!("{} from {}", model.pulled_at, model.source)));
        }
        rows.extend(self.sources().into_iter().map(|source| ("source", source)));
        rows.iter().map(|(name, value)| format!("{name:<9} {value}\n")).collect()
    }
}

fn render_table(models: &[ModelRow<'_>]) -> String {
    let header = ["MODEL", "SIZE", "LICENCE", "STATE", "FOR"].map(str::to_owned);
    let cells = models.iter().map(|row| {
        [
            row.id.to_string(),
            row.bytes().map_or("?".to_owned(), format_size),
            row.licence().unwrap_or("?").to_owned(),
            row.state_text(),
            row.purpose(),
        ]
    });
    let lines: Vec<[String; 5]> = std::iter::once(header).chain(cells).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2), width(3)];
    let mut text = String::new();
    for [id, bytes, licence, state, purpose] in &lines {
        let [first, second, third, fourth] = widths;
        text += &format!("{id:<first$}  {bytes:>second$}  {licence:<third$}  {state:<fourth$}  {purpose}\n");
    }
    let usable = models.iter().find(|row| row.ready().is_some_and(|model| model.kind == ModelKind::Chat));
    text + &match usable {
        _ if local_engine::require().is_err() => format!("\nThey cannot run here: {NO_LOCAL_ENGINE}.\n"),
        Some(row) => format!("\nSelect a model: nexus3 models use {LOCAL_PROVIDER}/{}\n", row.id),
        None => "\nDownload a model: nexus3 models pull smollm2-135m\n".to_owned(),
    }
}

fn render_servers(servers: &[ServerRow]) -> String {
    if servers.is_empty() {
        return String::new();
    }
    let lines: String = servers.iter().map(|(name, url)| format!("  {name}  {url}\n")).collect();
    format!("\nModel servers on this machine:\n{lines}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_without_downloads_shows_catalog_and_servers() {
        let catalog = builtin_catalog().unwrap();
        let home = tempfile::tempdir().unwrap();
        let rows = model_rows(&catalog, &ModelDirectory::at(&models_directory(home.path()))).unwrap();
        let text =
            render_table(&rows) + &render_servers(&[("server".to_owned(), "http://127.0.0.1:1".to_owned())]);
        assert!(text.contains("smollm2-135m        98.4 MB  Apache-2.0  not downloaded  "), "{text}");
        assert!(text.contains("Download a model: nexus3 models pull smollm2-135m"), "{text}");
        assert!(text.ends_with("Model servers on this machine:\n  server  http://127.0.0.1:1\n"), "{text}");
        assert_eq!(rows.len(), catalog.entries().len());
    }
}
