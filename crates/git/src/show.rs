//! `git show`: a commit with its changes, or a file or directory as it was in a commit.

use gix::bstr::ByteSlice;
use gix::objs::tree::EntryKind;

use crate::changes::between_trees;
use crate::commit_text::commit_text;
use crate::failed;
use crate::page::{Page, quote};
use crate::patch::Patches;
use crate::reader::Reader;
use crate::revision::find_commit;
use crate::scope::CLOSED_NOTE;

/// Shows a commit, or the path of the request in it.
pub(crate) fn show(reader: &Reader, rev: &str, offset: usize) -> Result<String, String> {
    let commit = find_commit(&reader.repo, rev)?;
    if reader.scope.path().is_empty() {
        show_commit(reader, &commit, offset)
    } else {
        show_path(reader, &commit, rev, offset)
    }
}

fn show_commit(reader: &Reader, commit: &gix::Commit<'_>, offset: usize) -> Result<String, String> {
    let mut page = Page::new(offset);
    page.push_lines(&commit_text(commit)?);
    page.push("");
    let fail = failed("the commit cannot be read");
    let parents: Vec<gix::ObjectId> = commit.parent_ids().map(gix::Id::detach).collect();
    // The parents of a commit at the end of a shallow history are missing.
    let parent = match parents.first() {
        Some(id) => reader.repo.try_find_object(*id).map_err(&fail)?,
        None => None,
    };
    if parents.len() > 1 {
        page.push("[a merge: compared with its first parent]");
    }
    let old = parent.map(|parent| parent.into_commit().tree()).transpose().map_err(&fail)?;
    let new = commit.tree().map_err(&fail)?;
    let changes = between_trees(reader, old.as_ref(), &new)?;
    Patches::new(reader).write(&changes, &mut page)?;
    page.into_text()
}

fn show_path(reader: &Reader, commit: &gix::Commit<'_>, rev: &str, offset: usize) -> Result<String, String> {
    let path = reader.scope.path();
    if reader.scope.is_closed(path) {
        return Err(format!("{}: {CLOSED_NOTE}", quote(path)));
    }
    let fail = failed("the tree cannot be read");
    let tree = commit.tree().map_err(&fail)?;
    let entry = tree.lookup_entry(path.split_str("/")).map_err(&fail)?;
    let entry = entry.ok_or_else(|| format!("{} is not in revision {rev:?}", quote(path)))?;
    let mut page = Page::new(offset);
    match entry.mode().kind() {
        EntryKind::Commit => page.push(&format!("Subproject commit {}", entry.object_id())),
        EntryKind::Tree => {
            page.push(&format!("tree {rev}:{}", quote(path)));
            page.push("");
            let object = entry.object().map_err(&fail)?.try_into_tree().map_err(&fail)?;
            for item in object.decode().map_err(&fail)?.entries {
                let slash = if item.mode.is_tree() { "/" } else { "" };
                page.push(&format!("{}{slash}", quote(item.filename)));
            }
        }
        EntryKind::Blob | EntryKind::BlobExecutable | EntryKind::Link => {
            let blob = entry.object().map_err(failed("the file cannot be read"))?;
            if blob.data.contains(&0) {
                return Err(format!("{} is a binary file of {} bytes", quote(path), blob.data.len()));
            }
            blob.data.lines().for_each(|line| page.push_bytes(line));
        }
    }
    page.into_text()
}
