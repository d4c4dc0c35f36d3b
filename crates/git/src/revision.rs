//! Revisions as callers write them. Only commits: a tree or blob by its id would evade the rules about paths.

use gix::bstr::ByteSlice;

use crate::describe;

/// Maximum length of a revision.
const REVISION_BYTES_MAX: usize = 256;

/// Resolves a revision to a commit.
pub(crate) fn find_commit<'repo>(
    repo: &'repo gix::Repository,
    rev: &str,
) -> Result<gix::Commit<'repo>, String> {
    let fail = |why: &str| format!("revision {rev:?}: {why}");
    check(rev).map_err(|why| {
        let short: String = rev.chars().take(60).collect();
        format!("revision {short:?}: {why}")
    })?;
    let id = repo.rev_parse_single(rev.as_bytes().as_bstr()).map_err(|error| fail(&describe(&error)))?;
    let object = id.object().map_err(|error| fail(&describe(&error)))?;
    let kind = object.kind;
    let commit = object
        .peel_to_kind(gix::objs::Kind::Commit)
        .map_err(|_| fail(&format!("it is a {kind}, not a commit")))?;
    commit.try_into_commit().map_err(|error| fail(&describe(&error)))
}

fn check(rev: &str) -> Result<(), &'static str> {
    if rev.is_empty() {
        return Err("it is empty");
    }
    if rev.len() > REVISION_BYTES_MAX {
        return Err("it is longer than 256 bytes");
    }
    if rev.starts_with('-') {
        return Err("it begins with `-`; options are not supported");
    }
    if rev.contains("..") {
        return Err("it is a range; git.diff compares `from` and `to`");
    }
    if rev.contains(':') {
        return Err("it contains `:`; name the file in `path`");
    }
    if rev.chars().any(char::is_control) {
        return Err("it contains control characters");
    }
    Ok(())
}
