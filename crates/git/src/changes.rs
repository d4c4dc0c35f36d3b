//! Lists of changed files: between trees, the index and the working tree.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use gix::ObjectId;
use gix::bstr::{BStr, BString};
use gix::diff::Rewrites;
use gix::diff::index::ChangeRef;
use gix::diff::tree_with_rewrites::Change as TreeChange;
use gix::objs::tree::{EntryKind, EntryMode};
use gix::status::UntrackedFiles;
use gix::status::index_worktree::Item;
use gix::status::plumbing::index_as_worktree::{Change, EntryStatus};
use gix::status::tree_index::TrackRenames;

use crate::failed;
use crate::reader::Reader;

/// One side of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Side {
    pub(crate) path: BString,
    pub(crate) kind: EntryKind,
    pub(crate) source: Source,
}

/// Where the content of a side is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Object(ObjectId),
    /// In the working tree. The object of the index, if it is there, decides on line endings.
    Worktree(Option<ObjectId>),
}

/// A changed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileChange {
    /// None if the file was added.
    pub(crate) old: Option<Side>,
    /// None if it was deleted.
    pub(crate) new: Option<Side>,
    pub(crate) is_unmerged: bool,
}

impl FileChange {
    fn new(old: Option<Side>, new: Option<Side>) -> Self {
        Self { old, new, is_unmerged: false }
    }

    /// The path under which the change is listed.
    pub(crate) fn path(&self) -> &BStr {
        self.new.as_ref().or(self.old.as_ref()).map_or(BStr::new(""), |side| side.path.as_ref())
    }

    fn is_in(&self, reader: &Reader) -> bool {
        [&self.old, &self.new].into_iter().flatten().any(|side| reader.scope.contains(side.path.as_ref()))
    }
}

fn object(path: &BStr, mode: EntryMode, id: ObjectId) -> Option<Side> {
    Some(Side { path: path.to_owned(), kind: mode.kind(), source: Source::Object(id) })
}

/// The changes between two trees.
pub(crate) fn between_trees(
    reader: &Reader,
    old: Option<&gix::Tree<'_>>,
    new: &gix::Tree<'_>,
) -> Result<Vec<FileChange>, String> {
    let options = gix::diff::Options::default().with_rewrites(Some(Rewrites::default()));
    let changes = reader.repo.diff_tree_to_tree(old, Some(new), options);
    let changes = changes.map_err(failed("the trees cannot be compared"))?;
    let changes = changes.into_iter().filter(|change| !change.entry_mode().is_tree()).map(|change| {
        let (old, new) = match &change {
            TreeChange::Addition { location, entry_mode, id, .. } => {
                (None, object(location.as_ref(), *entry_mode, *id))
            }
            TreeChange::Deletion { location, entry_mode, id, .. } => {
                (object(location.as_ref(), *entry_mode, *id), None)
            }
            TreeChange::Modification { location, previous_entry_mode, previous_id, entry_mode, id } => (
                object(location.as_ref(), *previous_entry_mode, *previous_id),
                object(location.as_ref(), *entry_mode, *id),
            ),
            TreeChange::Rewrite {
                source_location,
                source_entry_mode,
                source_id,
                location,
                entry_mode,
                id,
                ..
            } => (
                object(source_location.as_ref(), *source_entry_mode, *source_id),
                object(location.as_ref(), *entry_mode, *id),
            ),
        };
        FileChange::new(old, new)
    });
    Ok(sorted(reader, changes))
}

fn sorted(reader: &Reader, changes: impl IntoIterator<Item = FileChange>) -> Vec<FileChange> {
    let mut changes: Vec<FileChange> = changes.into_iter().filter(|change| change.is_in(reader)).collect();
    changes.sort_by(|one, other| one.path().cmp(other.path()));
    changes
}

/// The changes from a tree to the index.
pub(crate) fn staged(reader: &Reader, tree: ObjectId) -> Result<Vec<FileChange>, String> {
    let fail = failed("the index cannot be read");
    let index = reader.repo.index_or_empty().map_err(&fail)?;
    let mut changes = Vec::new();
    let renames = TrackRenames::Given(Rewrites::default());
    let compared = reader.repo.tree_index_status(&tree, &index, None, renames, |change, _, _| {
        changes.push(index_change(&change));
        Ok(ControlFlow::Continue(()))
    });
    compared.map_err(failed("the index cannot be compared"))?;
    Ok(sorted(reader, changes))
}

fn index_change(change: &ChangeRef<'_, '_>) -> FileChange {
    let side = |path: &BStr, mode: gix::index::entry::Mode, id: &gix::oid| {
        object(path, mode.to_tree_entry_mode().unwrap_or(EntryKind::Blob.into()), id.to_owned())
    };
    let (old, new) = match change {
        ChangeRef::Addition { location, entry_mode, id, .. } => (None, side(location, *entry_mode, id)),
        ChangeRef::Deletion { location, entry_mode, id, .. } => (side(location, *entry_mode, id), None),
        ChangeRef::Modification { location, previous_entry_mode, previous_id, entry_mode, id, .. } => {
            (side(location, *previous_entry_mode, previous_id), side(location, *entry_mode, id))
        }
        ChangeRef::Rewrite {
            source_location,
            source_entry_mode,
            source_id,
            location,
            entry_mode,
            id,
            ..
        } => (side(source_location, *source_entry_mode, source_id), side(location, *entry_mode, id)),
    };
    FileChange::new(old, new)
}

/// The changes from the index to the working tree.
pub(crate) fn unstaged(reader: &Reader) -> Result<Vec<FileChange>, String> {
    let fail = failed("the working tree cannot be compared");
    let status = reader.repo.status(gix::progress::Discard).map_err(&fail)?;
    let items = status
        .index_worktree_submodules(None)
        .index_worktree_rewrites(None)
        .untracked_files(UntrackedFiles::None)
        .into_index_worktree_iter(reader.scope.patterns())
        .map_err(&fail)?;
    let mut changes = Vec::new();
    for item in items {
        if let Item::Modification { entry, rela_path, status, .. } = item.map_err(&fail)? {
            changes.extend(worktree_change(&entry, rela_path.as_ref(), &status));
        }
    }
    // A conflict is listed for each of its versions.
    let mut changes = sorted(reader, changes);
    changes.dedup_by(|one, other| one.is_unmerged && one.path() == other.path());
    Ok(changes)
}

fn worktree_change<T, U>(
    entry: &gix::index::Entry,
    path: &BStr,
    status: &EntryStatus<T, U>,
) -> Option<FileChange> {
    let mode = entry.mode.to_tree_entry_mode().unwrap_or(EntryKind::Blob.into());
    let old = object(path, mode, entry.id);
    let worktree = |kind, id| Some(Side { path: path.to_owned(), kind, source: Source::Worktree(id) });
    match status {
        EntryStatus::NeedsUpdate(_) | EntryStatus::Change(Change::SubmoduleModification(_)) => None,
        EntryStatus::IntentToAdd => Some(FileChange::new(None, worktree(mode.kind(), None))),
        EntryStatus::Change(Change::Removed) => Some(FileChange::new(old, None)),
        EntryStatus::Change(Change::Type { worktree_mode }) => {
            let kind = worktree_mode.to_tree_entry_mode().map_or(EntryKind::Blob, |mode| mode.kind());
            Some(FileChange::new(old, worktree(kind, None)))
        }
        EntryStatus::Change(Change::Modification { executable_bit_changed, .. }) => {
            let kind = match (mode.kind(), executable_bit_changed) {
                (EntryKind::Blob, true) => EntryKind::BlobExecutable,
                (EntryKind::BlobExecutable, true) => EntryKind::Blob,
                (kind, _) => kind,
            };
            Some(FileChange::new(old, worktree(kind, Some(entry.id))))
        }
        EntryStatus::Conflict { entries, .. } => {
            let ours = entries[1].as_ref().and_then(|ours| {
                object(path, ours.mode.to_tree_entry_mode().unwrap_or(EntryKind::Blob.into()), ours.id)
            });
            Some(FileChange { old: ours, new: worktree(EntryKind::Blob, None), is_unmerged: true })
        }
    }
}

/// The changes from a tree to the working tree: those to the index, continued to the working tree.
pub(crate) fn from_commit_to_worktree(reader: &Reader, tree: ObjectId) -> Result<Vec<FileChange>, String> {
    let mut by_path: BTreeMap<BString, FileChange> =
        staged(reader, tree)?.into_iter().map(|change| (change.path().to_owned(), change)).collect();
    for change in unstaged(reader)? {
        match by_path.get_mut(change.path()) {
            Some(before) => {
                before.new = change.new;
                before.is_unmerged = change.is_unmerged;
            }
            None => drop(by_path.insert(change.path().to_owned(), change)),
        }
    }
    Ok(by_path.into_values().filter(|change| change.old.is_some() || change.new.is_some()).collect())
}
