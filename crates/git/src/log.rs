//! `git log`: commits by date, or those that changed a path.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use gix::ObjectId;
use gix::bstr::ByteSlice;
use gix::objs::tree::EntryMode;

use crate::commit_text::commit_text;
use crate::failed;
use crate::page::TEXT_BYTES_MAX;
use crate::reader::Reader;
use crate::revision::find_commit;

/// Maximum number of commits in one result.
const COMMITS_MAX: usize = 200;

/// The commits from an offset on, newest first.
pub(crate) fn log(reader: &Reader, rev: Option<&str>, count: usize, offset: usize) -> Result<String, String> {
    let head = find_commit(&reader.repo, rev.unwrap_or("HEAD"))?;
    let mut walk = Walk::new(reader, head.id)?;
    let mut skipped = 0;
    while skipped < offset {
        if walk.next_commit()?.is_none() {
            return Err(beyond_end(offset, skipped));
        }
        skipped += 1;
    }
    let mut texts: Vec<String> = Vec::new();
    let mut bytes = 0;
    let mut is_complete = true;
    while let Some(commit) = walk.next_commit()? {
        if texts.len() == count.clamp(1, COMMITS_MAX) || bytes > TEXT_BYTES_MAX {
            is_complete = false;
            break;
        }
        let text = commit_text(&commit)?;
        bytes += text.len();
        texts.push(text);
    }
    if texts.is_empty() && offset > 0 {
        return Err(beyond_end(offset, skipped));
    }
    if texts.is_empty() {
        return Ok("no commits".to_owned());
    }
    if !is_complete {
        let (first, end) = (offset + 1, offset + texts.len());
        texts.push(format!("[commits {first} to {end}; continue with offset {end}]"));
    }
    Ok(texts.join("\n\n"))
}

fn beyond_end(offset: usize, commits: usize) -> String {
    format!("offset {offset} is beyond the end: there are {commits} commits")
}

/// A file or directory in the tree of a commit.
type PathEntry = Option<(EntryMode, ObjectId)>;

/// A walk through the history in git's order: by commit date, those of one date in the order in which they were found.
/// With a path, merges that take it from one parent are followed to this parent only.
struct Walk<'a> {
    reader: &'a Reader,
    pending: BinaryHeap<(i64, Reverse<u64>, ObjectId)>,
    found: HashSet<ObjectId>,
    number: u64,
    /// Commits whose parents are not in the repository.
    shallow: HashSet<ObjectId>,
    entries: HashMap<ObjectId, PathEntry>,
}

impl<'a> Walk<'a> {
    fn new(reader: &'a Reader, start: ObjectId) -> Result<Self, String> {
        let shallow = reader.repo.shallow_commits().map_err(failed("the list of shallow commits"))?;
        let shallow = shallow.map(|commits| commits.iter().copied().collect()).unwrap_or_default();
        let mut walk = Self {
            reader,
            pending: BinaryHeap::new(),
            found: HashSet::new(),
            number: 0,
            shallow,
            entries: HashMap::new(),
        };
        walk.add(start)?;
        Ok(walk)
    }

    fn add(&mut self, id: ObjectId) -> Result<(), String> {
        if self.found.insert(id) {
            let commit = self.find(id)?;
            let seconds = commit.time().map_or(0, |time| time.seconds);
            self.pending.push((seconds, Reverse(self.number), id));
            self.number += 1;
        }
        Ok(())
    }

    fn find(&self, id: ObjectId) -> Result<gix::Commit<'a>, String> {
        self.reader.repo.find_commit(id).map_err(failed("a commit cannot be read"))
    }

    /// The next commit to show.
    fn next_commit(&mut self) -> Result<Option<gix::Commit<'a>>, String> {
        while let Some((_, _, id)) = self.pending.pop() {
            let commit = self.find(id)?;
            let is_shallow = self.shallow.contains(&id);
            let parents: Vec<ObjectId> =
                if is_shallow { Vec::new() } else { commit.parent_ids().map(gix::Id::detach).collect() };
            if self.is_shown(&commit, &parents)? {
                return Ok(Some(commit));
            }
        }
        Ok(None)
    }

    /// Whether a commit is shown; adds the parents to follow.
    fn is_shown(&mut self, commit: &gix::Commit<'_>, parents: &[ObjectId]) -> Result<bool, String> {
        if !self.reader.scope.path().is_empty() {
            let entry = self.entry(commit.id)?;
            for parent in parents {
                if self.entry(*parent)? == entry {
                    self.add(*parent)?;
                    return Ok(false);
                }
            }
            if parents.is_empty() && entry.is_none() {
                return Ok(false);
            }
        }
        parents.iter().try_for_each(|parent| self.add(*parent))?;
        Ok(true)
    }

    fn entry(&mut self, id: ObjectId) -> Result<PathEntry, String> {
        if let Some(entry) = self.entries.get(&id) {
            return Ok(*entry);
        }
        let fail = failed("a tree cannot be read");
        let tree = self.find(id)?.tree().map_err(&fail)?;
        let parts = self.reader.scope.path().split_str("/");
        let found = tree.lookup_entry(parts).map_err(&fail)?;
        let entry = found.map(|entry| (entry.mode(), entry.object_id()));
        self.entries.insert(id, entry);
        Ok(entry)
    }
}
