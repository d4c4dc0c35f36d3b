//! Which paths of the working tree a request shows: those at or below its path, without blocked and closed ones.

use std::path::Path;

use gix::bstr::{BStr, BString, ByteSlice};

use crate::request::GitRequest;

/// The paths of a request.
pub(crate) struct Scope {
    worktree: String,
    path: BString,
    blocked: Vec<String>,
    is_closed: fn(&str) -> bool,
}

impl Scope {
    pub(crate) fn new(request: &GitRequest, is_closed: fn(&str) -> bool) -> Self {
        Self {
            worktree: request.worktree.trim_end_matches('/').to_owned(),
            path: request.path.trim_matches('/').into(),
            blocked: request.blocked.clone(),
            is_closed,
        }
    }

    /// The path of the request, relative to the working tree; empty for all.
    pub(crate) fn path(&self) -> &BStr {
        self.path.as_bstr()
    }

    /// The path as a pattern that matches it literally, for the library.
    pub(crate) fn patterns(&self) -> Vec<BString> {
        if self.path.is_empty() {
            return Vec::new();
        }
        vec![[b":(top,literal)", self.path.as_slice()].concat().into()]
    }

    /// Whether a path is at or below the one of the request, and not blocked.
    pub(crate) fn contains(&self, path: &BStr) -> bool {
        let is_chosen = self.path.is_empty()
            || path
                .strip_prefix(self.path.as_slice())
                .is_some_and(|rest| matches!(rest.first(), None | Some(b'/')));
        is_chosen && !self.is_blocked(path)
    }

    /// Whether a file's content is not shown: it is blocked, or closed by its name.
    pub(crate) fn is_closed(&self, path: &BStr) -> bool {
        self.is_blocked(path) || (self.is_closed)(&self.absolute(path))
    }

    fn is_blocked(&self, path: &BStr) -> bool {
        let path = self.absolute(path);
        self.blocked.iter().any(|blocked| Path::new(&path).starts_with(blocked))
    }

    fn absolute(&self, path: &BStr) -> String {
        format!("{}/{}", self.worktree, path.trim_end_with(|last| last == '/').to_str_lossy())
    }
}

/// The note in place of a content that is not shown.
pub(crate) const CLOSED_NOTE: &str = "[not shown: the file is blocked, or contains credentials]";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::GitOperation;

    fn scope(path: &str) -> Scope {
        let request = GitRequest {
            worktree: "/w".to_owned(),
            roots: vec!["/w".to_owned()],
            path: path.to_owned(),
            blocked: vec!["/w/home".to_owned(), "/elsewhere".to_owned()],
            operation: GitOperation::Status { offset: 0 },
        };
        Scope::new(&request, |path| path.ends_with("/.netrc"))
    }

    #[test]
    fn path_selects_itself_and_what_is_below_it() {
        let cases = [
            ("", "a", true),
            ("a", "a", true),
            ("a", "a/b", true),
            ("a", "ab", false),
            ("a/b", "a", false),
            ("", "home", false),
            ("", "home/x", false),
            ("", "homes", true),
        ];
        for (path, candidate, expected) in cases {
            assert_eq!(scope(path).contains(candidate.into()), expected, "{path:?} {candidate:?}");
        }
    }

    #[test]
    fn blocked_files_and_credentials_are_closed() {
        for (path, expected) in [("home/x", true), ("a/.netrc", true), (".netrc", true), ("netrc", false)] {
            assert_eq!(scope("").is_closed(path.into()), expected, "{path}");
        }
    }
}
