//! Absolute, normalized paths, and sets of directories closed under intersection. The path's text selects the directory
//! that permits it; the file is then opened relative to that directory's handle, so that symbolic links cannot escape
//! it.

use std::fmt;
use std::sync::Arc;

/// Maximum length of a path.
const PATH_BYTES_MAX: usize = 4096;

/// A normalized absolute path: no `.`, no `..`, no empty component, no trailing slash.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePath(Arc<str>);

/// Why a text is not a valid path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathFault {
    /// The text is empty.
    #[error("the path is empty")]
    Empty,
    /// The text contains a NUL byte, which no file name has.
    #[error("the path contains a NUL byte")]
    Nul,
    /// The path exceeds the maximum length.
    #[error("the path is longer than {PATH_BYTES_MAX} bytes")]
    TooLong,
}

/// A path to open: the directory that permits it, and the rest relative to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootedPath {
    /// The permitting directory.
    pub root: FilePath,
    /// The rest of the path; empty for the directory itself.
    pub relative: String,
}

impl FilePath {
    /// The root directory.
    #[must_use]
    pub fn root() -> Self {
        Self(Arc::from("/"))
    }

    /// Normalizes a path; a relative one starts at `base`. Resolves `..` in the text, never on disk.
    ///
    /// # Errors
    /// When the path is not valid for any file.
    pub fn resolve(text: &str, base: &FilePath) -> Result<Self, PathFault> {
        if text.is_empty() {
            return Err(PathFault::Empty);
        }
        if text.contains('\0') {
            return Err(PathFault::Nul);
        }
        let start = if text.starts_with('/') { "/" } else { base.as_str() };
        let mut parts: Vec<&str> = start.split('/').filter(|part| !part.is_empty()).collect();
        for part in text.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        let path = Self(Arc::from(format!("/{}", parts.join("/"))));
        if path.0.len() > PATH_BYTES_MAX { Err(PathFault::TooLong) } else { Ok(path) }
    }

    /// The path's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `path` is this directory or inside it, by components: `/a/bc` is not in `/a/b`.
    #[must_use]
    pub fn contains(&self, path: &FilePath) -> bool {
        self.relative_path(path).is_some()
    }

    /// The directory that contains the path; the root contains itself.
    #[must_use]
    pub fn parent(&self) -> FilePath {
        match self.0.rsplit_once('/') {
            Some((parent, _)) if !parent.is_empty() => Self(Arc::from(parent)),
            _ => Self::root(),
        }
    }

    /// The part of `path` below this directory, if it is inside.
    #[must_use]
    pub fn relative_path<'a>(&self, path: &'a FilePath) -> Option<&'a str> {
        if &*self.0 == "/" {
            return path.0.strip_prefix('/');
        }
        let rest = path.0.strip_prefix(&*self.0)?;
        if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Debug for FilePath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, out)
    }
}

/// A set of directories including all their contents.
#[derive(Clone, PartialEq, Eq)]
pub struct DirectorySet {
    /// Sorted; no root contains another.
    roots: Vec<FilePath>,
}

impl DirectorySet {
    /// The empty set.
    #[must_use]
    pub fn none() -> Self {
        Self { roots: Vec::new() }
    }

    /// The set of all files.
    #[must_use]
    pub fn all() -> Self {
        Self::from_roots([FilePath::root()])
    }

    /// The set of these directories.
    #[must_use]
    pub fn from_roots(roots: impl IntoIterator<Item = FilePath>) -> Self {
        let mut roots: Vec<FilePath> = roots.into_iter().collect();
        // By length: a directory precedes its contents.
        roots.sort_by_key(|root| root.as_str().len());
        let mut minimal: Vec<FilePath> = Vec::with_capacity(roots.len());
        for root in roots {
            if !minimal.iter().any(|other| other.contains(&root)) {
                minimal.push(root);
            }
        }
        minimal.sort();
        Self { roots: minimal }
    }

    /// The directories, without nested ones.
    #[must_use]
    pub fn roots(&self) -> &[FilePath] {
        &self.roots
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    /// Finds the directory that contains a path.
    #[must_use]
    pub fn find(&self, path: &FilePath) -> Option<RootedPath> {
        let rooted = |root: &FilePath| {
            root.relative_path(path).map(|rest| RootedPath { root: root.clone(), relative: rest.to_owned() })
        };
        self.roots.iter().find_map(rooted)
    }

    /// The set with this directory too.
    #[must_use]
    pub fn with(&self, directory: FilePath) -> DirectorySet {
        Self::from_roots(self.roots.iter().cloned().chain([directory]))
    }

    /// The intersection of both sets.
    #[must_use]
    pub fn intersection(&self, other: &DirectorySet) -> DirectorySet {
        let pairs = self.roots.iter().flat_map(|a| other.roots.iter().map(move |b| (a, b)));
        let common = |(a, b): (&FilePath, &FilePath)| match (a.contains(b), b.contains(a)) {
            (true, _) => Some(b.clone()),
            (_, true) => Some(a.clone()),
            _ => None,
        };
        DirectorySet::from_roots(pairs.filter_map(common))
    }

    /// Whether this set is a subset of the other.
    #[must_use]
    pub fn is_within(&self, other: &DirectorySet) -> bool {
        self.roots.iter().all(|root| other.roots.iter().any(|outer| outer.contains(root)))
    }
}

impl fmt::Display for DirectorySet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.roots.as_slice() {
            [] => out.write_str("nowhere"),
            [root] if root.as_str() == "/" => out.write_str("anywhere"),
            roots => {
                for (index, root) in roots.iter().enumerate() {
                    let separator = if index == 0 { "" } else { ", " };
                    write!(out, "{separator}{root}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Debug for DirectorySet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}
