//! `git diff`: changes between two commits, a commit and the working tree, the index and either.

use crate::changes::{between_trees, from_commit_to_worktree, staged, unstaged};
use crate::failed;
use crate::page::Page;
use crate::patch::Patches;
use crate::reader::Reader;
use crate::revision::find_commit;

/// The changes as a patch.
pub(crate) fn diff(
    reader: &Reader,
    from: Option<&str>,
    to: Option<&str>,
    is_staged: bool,
    offset: usize,
) -> Result<String, String> {
    let repo = &reader.repo;
    let tree = |rev: &str| find_commit(repo, rev)?.tree().map_err(failed("the tree cannot be read"));
    let changes = match (from, to, is_staged) {
        (None, Some(_), _) => return Err("`to` needs `from`".to_owned()),
        (Some(_), Some(_), true) => return Err("`staged` compares with the index: leave `to` out".to_owned()),
        (Some(from), Some(to), false) => between_trees(reader, Some(&tree(from)?), &tree(to)?)?,
        (Some(from), None, false) => from_commit_to_worktree(reader, tree(from)?.id)?,
        (Some(from), None, true) => staged(reader, tree(from)?.id)?,
        (None, None, true) => {
            let head = repo.head_tree_id_or_empty().map_err(failed("HEAD cannot be read"))?;
            staged(reader, head.detach())?
        }
        (None, None, false) => unstaged(reader)?,
    };
    let mut page = Page::new(offset);
    Patches::new(reader).write(&changes, &mut page)?;
    if page.is_empty() {
        return Ok("no changes".to_owned());
    }
    page.into_text()
}
