//! `git blame`: the commit that each line of a file comes from. Without a revision, lines of the working tree that are not
//! committed are marked.

use std::collections::HashMap;

use gix::ObjectId;
use gix::blame::{BlameRanges, Options, Outcome, Start};
use gix::bstr::{BStr, BString, ByteSlice};
use gix::date::time::CustomFormat;
use gix::diff::Rewrites;
use gix::diff::blob::ResourceKind;
use gix::diff::blob::pipeline::{Mode, WorktreeRoots};
use gix::objs::tree::EntryKind;

use crate::failed;
use crate::page::{display_line, quote};
use crate::reader::Reader;
use crate::revision::find_commit;
use crate::scope::CLOSED_NOTE;

/// Maximum number of lines in one result.
const LINES_MAX: u32 = 500;

const DATE: CustomFormat = CustomFormat::new("%Y-%m-%d %H:%M:%S %z");

/// Blames the lines of the request's path.
pub(crate) fn blame(
    reader: &Reader,
    rev: Option<&str>,
    start_line: Option<u32>,
    end_line: Option<u32>,
) -> Result<String, String> {
    let path = reader.scope.path();
    if reader.scope.is_closed(path) {
        return Err(format!("{}: {CLOSED_NOTE}", quote(path)));
    }
    let commit = find_commit(&reader.repo, rev.unwrap_or("HEAD"))?;
    let content = match rev {
        None => worktree_content(reader, path)?,
        Some(_) => blob_content(&commit, path, rev.unwrap_or("HEAD"))?,
    };
    let total = u32::try_from(content.lines().count()).unwrap_or(u32::MAX);
    let start = start_line.unwrap_or(1).max(1);
    if total == 0 {
        return Ok(format!("{} is empty", quote(path)));
    }
    if start > total {
        return Err(format!("start_line {start} is beyond the end: there are {total} lines"));
    }
    let wanted = end_line.unwrap_or(total).clamp(start, total);
    let end = wanted.min(start + LINES_MAX - 1);
    let outcome = run(reader, commit.id, content, path, rev.is_none(), start..=end)?;
    let mut text = Lines::new(reader, &outcome).write(path, end)?;
    if end < wanted {
        let next = end + 1;
        text.push_str(&format!("[lines {start} to {end} of {total}; continue with start_line {next}]"));
    }
    Ok(text.trim_end_matches('\n').to_owned())
}

fn run(
    reader: &Reader,
    commit: ObjectId,
    content: Vec<u8>,
    path: &BStr,
    is_worktree: bool,
    lines: std::ops::RangeInclusive<u32>,
) -> Result<Outcome, String> {
    let repo = &reader.repo;
    let fail = failed("the file cannot be blamed");
    let start = if is_worktree {
        Start::Contents { first_suspect: commit, contents: content.into() }
    } else {
        Start::Commit(commit)
    };
    let options = Options {
        ranges: BlameRanges::from_one_based_inclusive_range(lines).map_err(&fail)?,
        rewrites: Some(Rewrites::default()),
        ..Options::default()
    };
    let mut cache = repo.diff_resource_cache_for_tree_diff().map_err(&fail)?;
    gix::blame::file(&repo.objects, start, None, &mut cache, path, options).map_err(&fail)
}

/// The file of the working tree in the form in which git stores it.
fn worktree_content(reader: &Reader, path: &BStr) -> Result<Vec<u8>, String> {
    let shown = quote(path);
    let found = reader.worktree.join(path.to_path_lossy()).symlink_metadata();
    match found {
        Ok(found) if found.is_file() => {}
        Ok(_) => return Err(format!("{shown} is not a regular file")),
        Err(_) => return Err(format!("{shown} is not in the working tree; name a revision that has it")),
    }
    let fail = failed("the file cannot be read");
    let roots = WorktreeRoots { old_root: None, new_root: Some(reader.worktree.clone()) };
    let mut cache = reader.repo.diff_resource_cache(Mode::ToGit, roots).map_err(&fail)?;
    let index = reader.repo.index_or_empty().map_err(&fail)?;
    let id = index.entry_by_path(path).map(|entry| entry.id);
    let id = id.ok_or_else(|| format!("{shown} is not tracked"))?;
    let kind = ResourceKind::NewOrDestination;
    let set = cache.set_resource(id, EntryKind::Blob, path, kind, &reader.repo.objects);
    set.map_err(|error| fail(error.into_error()))?;
    let resource = cache.resource(kind).and_then(|resource| resource.data.as_slice().map(<[u8]>::to_vec));
    resource.ok_or_else(|| format!("{shown} is a binary file"))
}

fn blob_content(commit: &gix::Commit<'_>, path: &BStr, rev: &str) -> Result<Vec<u8>, String> {
    let fail = failed("the file cannot be read");
    let tree = commit.tree().map_err(&fail)?;
    let entry = tree.lookup_entry(path.split_str("/")).map_err(&fail)?;
    let entry = entry.ok_or_else(|| format!("{} is not in revision {rev:?}", quote(path)))?;
    if !entry.mode().is_blob() {
        return Err(format!("{} is not a regular file in revision {rev:?}", quote(path)));
    }
    let mut object = entry.object().map_err(&fail)?;
    if object.data.contains(&0) {
        return Err(format!("{} is a binary file", quote(path)));
    }
    Ok(std::mem::take(&mut object.data))
}

/// A commit as it is shown in front of its lines.
#[derive(Clone)]
struct Origin {
    id: String,
    author: String,
    date: String,
}

/// Formats blamed lines as git does.
struct Lines<'a> {
    reader: &'a Reader,
    outcome: &'a Outcome,
    origins: HashMap<ObjectId, Origin>,
}

impl<'a> Lines<'a> {
    fn new(reader: &'a Reader, outcome: &'a Outcome) -> Self {
        Self { reader, outcome, origins: HashMap::new() }
    }

    fn write(mut self, path: &BStr, last_line: u32) -> Result<String, String> {
        for entry in &self.outcome.entries {
            if !self.origins.contains_key(&entry.commit_id) {
                let origin = self.origin(entry.commit_id)?;
                self.origins.insert(entry.commit_id, origin);
            }
        }
        let source = |name: &Option<BString>| quote(name.as_ref().map_or(path, |name| name.as_ref()));
        let is_renamed = self.outcome.entries.iter().any(|entry| entry.source_file_name.is_some());
        let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
        let paths = self.outcome.entries.iter().map(|entry| source(&entry.source_file_name).chars().count());
        let path_width = width(&mut paths.into_iter());
        let author_width = width(&mut self.origins.values().map(|origin| origin.author.chars().count()));
        let number_width = last_line.to_string().len();
        let mut text = String::new();
        for (entry, lines) in self.outcome.entries_with_lines() {
            let Some(Origin { id, author, date }) = self.origins.get(&entry.commit_id) else { continue };
            let name = source(&entry.source_file_name);
            let name = if is_renamed { format!(" {name:path_width$}") } else { String::new() };
            for (line, number) in lines.iter().zip(entry.start_in_blamed_file + 1..) {
                let line = display_line(line.strip_suffix(b"\n").unwrap_or(line));
                text.push_str(&format!(
                    "{id}{name} ({author:author_width$} {date} {number:number_width$}) {line}\n"
                ));
            }
        }
        Ok(text)
    }

    fn origin(&self, id: ObjectId) -> Result<Origin, String> {
        if id.is_null() {
            let date = gix::date::Time::now_utc().format_or_unix(DATE);
            return Ok(Origin { id: "0".repeat(8), author: "Not Committed Yet".to_owned(), date });
        }
        let fail = failed("a commit cannot be read");
        let commit = self.reader.repo.find_commit(id).map_err(&fail)?;
        let author = commit.author().map_err(&fail)?;
        // Git marks the first commit of the history.
        let is_root = commit.parent_ids().next().is_none();
        let id =
            if is_root { format!("^{}", id.to_hex_with_len(7)) } else { id.to_hex_with_len(8).to_string() };
        let date = author.time().map(|time| time.format_or_unix(DATE)).unwrap_or_default();
        Ok(Origin { id, author: display_line(author.name), date })
    }
}
