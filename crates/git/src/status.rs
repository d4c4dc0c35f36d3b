//! `git status` in the short format: the branch, then two letters and a path for each file.

use std::collections::{BTreeMap, BTreeSet};

use gix::ObjectId;
use gix::bstr::{BString, ByteSlice};
use gix::diff::Rewrites;
use gix::diff::index::Change as IndexChange;
use gix::dir::entry::{Kind, Status as DirectoryStatus};
use gix::head::Kind as HeadKind;
use gix::refs::FullNameRef;
use gix::status::index_worktree::Item as WorktreeItem;
use gix::status::plumbing::index_as_worktree::{Change, Conflict, EntryStatus};
use gix::status::tree_index::TrackRenames;
use gix::status::{Item, UntrackedFiles};

use crate::failed;
use crate::page::{Page, quote_spaces};
use crate::reader::Reader;

/// Maximum number of commits that are counted ahead of or behind the upstream branch.
const COUNTED_COMMITS_MAX: usize = 1_000;

/// The status of a tracked file: its letters for index and working tree, and its old path if it was renamed.
#[derive(Default)]
struct Entry {
    letters: [Option<char>; 2],
    old_path: Option<BString>,
    is_conflict: bool,
}

/// The status of the working tree, or of the path of the request.
pub(crate) fn status(reader: &Reader, offset: usize) -> Result<String, String> {
    let mut page = Page::new(offset);
    page.push(&branch_line(reader)?);
    let (tracked, untracked) = collect(reader)?;
    let is_clean = tracked.is_empty() && untracked.is_empty();
    for (path, entry) in &tracked {
        let [index, worktree] = entry.letters.map(|letter| letter.unwrap_or(' '));
        let old = entry.old_path.as_ref().map(|old| format!("{} -> ", quote_spaces(old.as_ref())));
        page.push(&format!("{index}{worktree} {}{}", old.unwrap_or_default(), quote_spaces(path.as_ref())));
    }
    for path in &untracked {
        page.push(&format!("?? {}", quote_spaces(path.as_ref())));
    }
    if is_clean {
        page.push("nothing to commit, working tree clean");
    }
    if let Some(state) = reader.repo.state() {
        page.push(&format!("[in progress: {}]", state_name(&state)));
    }
    page.into_text()
}

type Entries = (BTreeMap<BString, Entry>, BTreeSet<BString>);

fn collect(reader: &Reader) -> Result<Entries, String> {
    let fail = failed("the status cannot be read");
    let platform = reader.repo.status(gix::progress::Discard).map_err(&fail)?;
    let items = platform
        .index_worktree_submodules(None)
        .index_worktree_rewrites(None)
        .untracked_files(UntrackedFiles::Collapsed)
        .tree_index_track_renames(TrackRenames::Given(Rewrites::default()))
        .into_iter(reader.scope.patterns())
        .map_err(&fail)?;
    let mut tracked: BTreeMap<BString, Entry> = BTreeMap::new();
    let mut untracked = BTreeSet::new();
    for item in items {
        match item.map_err(&fail)? {
            Item::TreeIndex(change) => add_staged(&mut tracked, &change),
            Item::IndexWorktree(WorktreeItem::Modification { rela_path, status, .. }) => {
                add_unstaged(&mut tracked, rela_path, &status);
            }
            Item::IndexWorktree(WorktreeItem::DirectoryContents { entry, .. }) => {
                if entry.status == DirectoryStatus::Untracked {
                    let is_directory = matches!(entry.disk_kind, Some(Kind::Directory | Kind::Repository));
                    let slash: &[u8] = if is_directory { b"/" } else { b"" };
                    untracked.insert([entry.rela_path.as_slice(), slash].concat().into());
                }
            }
            Item::IndexWorktree(WorktreeItem::Rewrite { .. }) => {}
        }
    }
    // A deletion by us has no version in the working tree that is tracked.
    untracked.retain(|path| !tracked.contains_key(path));
    tracked.retain(|path, _| reader.scope.contains(path.as_ref()));
    untracked
        .retain(|path: &BString| reader.scope.contains(path.trim_end_with(|last| last == '/').as_bstr()));
    Ok((tracked, untracked))
}

fn add_staged(tracked: &mut BTreeMap<BString, Entry>, change: &IndexChange) {
    let (letter, old_path) = match change {
        IndexChange::Addition { .. } => ('A', None),
        IndexChange::Deletion { .. } => ('D', None),
        IndexChange::Modification { previous_entry_mode, entry_mode, .. } => {
            let kind = |mode: &gix::index::entry::Mode| mode.bits() & 0o170_000;
            (if kind(previous_entry_mode) == kind(entry_mode) { 'M' } else { 'T' }, None)
        }
        IndexChange::Rewrite { source_location, copy, .. } => {
            (if *copy { 'C' } else { 'R' }, Some(source_location.clone().into_owned()))
        }
    };
    let entry = tracked.entry(change.location().to_owned()).or_default();
    if !entry.is_conflict {
        entry.letters[0] = Some(letter);
        entry.old_path = old_path;
    }
}

fn add_unstaged<T, U>(tracked: &mut BTreeMap<BString, Entry>, path: BString, status: &EntryStatus<T, U>) {
    let letter = match status {
        EntryStatus::NeedsUpdate(_) => return,
        EntryStatus::Conflict { summary, .. } => {
            let letters = conflict_letters(*summary).map(Some);
            tracked.insert(path, Entry { letters, old_path: None, is_conflict: true });
            return;
        }
        EntryStatus::IntentToAdd => 'A',
        EntryStatus::Change(Change::Removed) => 'D',
        EntryStatus::Change(Change::Type { .. }) => 'T',
        EntryStatus::Change(Change::Modification { .. } | Change::SubmoduleModification(_)) => 'M',
    };
    tracked.entry(path).or_default().letters[1] = Some(letter);
}

fn conflict_letters(conflict: Conflict) -> [char; 2] {
    match conflict {
        Conflict::BothDeleted => ['D', 'D'],
        Conflict::AddedByUs => ['A', 'U'],
        Conflict::DeletedByThem => ['U', 'D'],
        Conflict::AddedByThem => ['U', 'A'],
        Conflict::DeletedByUs => ['D', 'U'],
        Conflict::BothAdded => ['A', 'A'],
        Conflict::BothModified => ['U', 'U'],
    }
}

/// As in `git status --short --branch`.
fn branch_line(reader: &Reader) -> Result<String, String> {
    let head = reader.repo.head().map_err(failed("HEAD cannot be read"))?;
    Ok(match &head.kind {
        HeadKind::Detached { .. } => "## HEAD (no branch)".to_owned(),
        HeadKind::Symbolic(branch) => {
            let upstream = upstream(reader, branch.name.as_ref()).unwrap_or_default();
            format!("## {}{upstream}", branch.name.shorten())
        }
        // A branch without commits.
        _ => {
            let branch = head.referent_name().map(|name| name.shorten().to_str_lossy());
            format!("## No commits yet on {}", branch.unwrap_or_default())
        }
    })
}

/// The upstream branch and how far the branch is from it; none if it has none.
fn upstream(reader: &Reader, branch: &FullNameRef) -> Option<String> {
    let repo = &reader.repo;
    let name = upstream_name(reader, branch)?;
    let short = name.strip_prefix("refs/remotes/").or(name.strip_prefix("refs/heads/")).unwrap_or(&name);
    let Ok(mut upstream) = repo.find_reference(name.as_str()) else {
        return Some(format!("...{short} [gone]"));
    };
    let (own, other) = (repo.head_id().ok()?.detach(), upstream.peel_to_id().ok()?.detach());
    let count = |tip: ObjectId, hidden: ObjectId| {
        let walk = repo.rev_walk([tip]).with_hidden([hidden]).all().ok()?;
        Some(walk.take(COUNTED_COMMITS_MAX).count())
    };
    let text = match (count(own, other)?, count(other, own)?) {
        (0, 0) => String::new(),
        (ahead, 0) => format!(" [ahead {ahead}]"),
        (0, behind) => format!(" [behind {behind}]"),
        (ahead, behind) => format!(" [ahead {ahead}, behind {behind}]"),
    };
    Some(format!("...{short}{text}"))
}

/// The reference that the upstream branch is fetched to, by the usual names: the library does not use settings of a
/// repository without trust for it.
fn upstream_name(reader: &Reader, branch: &FullNameRef) -> Option<String> {
    let config = reader.repo.config_snapshot();
    let setting = |key: &str| {
        let value = config.string(format!("branch.{}.{key}", branch.shorten()).as_str())?;
        value.to_str().ok().map(str::to_owned)
    };
    let (remote, merge) = (setting("remote")?, setting("merge")?);
    match &*remote {
        "." => Some(merge),
        remote => Some(format!("refs/remotes/{remote}/{}", merge.strip_prefix("refs/heads/")?)),
    }
}

fn state_name(state: &gix::state::InProgress) -> &'static str {
    use gix::state::InProgress;
    match state {
        InProgress::ApplyMailbox | InProgress::ApplyMailboxRebase => "am",
        InProgress::Bisect => "bisect",
        InProgress::CherryPick | InProgress::CherryPickSequence => "cherry-pick",
        InProgress::Merge => "merge",
        InProgress::Rebase | InProgress::RebaseInteractive => "rebase",
        InProgress::Revert | InProgress::RevertSequence => "revert",
    }
}
