//! An open repository, after the check that nothing of it is outside the directories that may be read. The kernel refuses
//! to open what is outside; this check says what is wrong.

use std::path::{Path, PathBuf};

use gix::bstr::ByteSlice;
use gix::open::Options;
use gix::sec::Trust;

use crate::failed;
use crate::request::GitRequest;
use crate::scope::Scope;

/// An open repository with the scope of a request.
pub(crate) struct Reader {
    pub(crate) repo: gix::Repository,
    pub(crate) worktree: PathBuf,
    pub(crate) scope: Scope,
}

/// Settings that a repository does not change: longer files are not compared, and larger objects not loaded.
const OVERRIDES: [&str; 2] = ["core.bigFileThreshold=16777216", "gitoxide.objects.allocLimit=268435456"];

/// The cache of decoded objects, for walks through the history.
const OBJECT_CACHE_BYTES: usize = 32 << 20;

/// Files that the library reads at once. A named pipe in the place of one would block without end.
const PLAIN_FILES: [&str; 11] = [
    "HEAD",
    "config",
    "config.worktree",
    "commondir",
    "gitdir",
    "index",
    "packed-refs",
    "shallow",
    "info/exclude",
    "info/attributes",
    "objects/info/alternates",
];
const PLAIN_WORKTREE_FILES: [&str; 3] = [".gitattributes", ".gitignore", ".gitmodules"];

/// Maximum length of the list of alternates.
const ALTERNATES_BYTES_MAX: u64 = 1 << 20;

impl Reader {
    /// Opens the repository without trust in its configuration: no command of it is run, nothing outside is included.
    pub(crate) fn open(request: &GitRequest, is_closed: fn(&str) -> bool) -> Result<Self, String> {
        let worktree = PathBuf::from(&request.worktree);
        let roots: Vec<&Path> = request.roots.iter().map(Path::new).collect();
        let dot_git = worktree.join(".git");
        check_plain_files(&worktree, &PLAIN_WORKTREE_FILES)?;
        if dot_git.is_dir() {
            check_plain_files(&dot_git, &PLAIN_FILES)?;
        }
        let options = Options::isolated().with(Trust::Reduced).config_overrides(OVERRIDES);
        let opened = options.open(worktree.clone());
        let mut repo = opened.map_err(failed("the repository cannot be opened"))?.to_thread_local();
        check_location(&repo, &worktree, &roots)?;
        repo.object_cache_size_if_unset(OBJECT_CACHE_BYTES);
        Ok(Self { repo, worktree, scope: Scope::new(request, is_closed) })
    }
}

fn check_plain_files(directory: &Path, names: &[&str]) -> Result<(), String> {
    for name in names {
        let path = directory.join(name);
        match path.metadata() {
            Ok(found) if !found.is_file() => return Err(format!("{} is not a regular file", path.display())),
            _ => {}
        }
    }
    Ok(())
}

/// Checks that all parts of the repository are in the roots.
fn check_location(repo: &gix::Repository, worktree: &Path, roots: &[&Path]) -> Result<(), String> {
    let tree = repo.workdir().ok_or("the repository is bare: it has no working tree")?;
    let configured = configured_worktree(repo);
    for tree in [Some(tree), configured.as_deref()].into_iter().flatten() {
        if real_path("the working tree", tree)? != worktree {
            return Err(format!(
                "refused: core.worktree of the repository leads to {}, not to {}",
                tree.display(),
                worktree.display()
            ));
        }
    }
    let objects = repo.objects.store_ref().path().to_owned();
    let parts = [
        ("the git directory", repo.git_dir()),
        ("the common git directory", repo.common_dir()),
        ("the object directory", &objects),
    ];
    for (what, path) in parts {
        check_inside(what, path, roots)?;
    }
    for directory in [repo.git_dir(), repo.common_dir()] {
        check_plain_files(directory, &PLAIN_FILES)?;
    }
    alternates(&objects)?
        .iter()
        .try_for_each(|path| check_inside("an alternate object directory", path, roots))
}

/// The working tree that the configuration names. The library ignores it without trust; a caller that expects its content
/// gets an error. It does not apply to linked working trees.
fn configured_worktree(repo: &gix::Repository) -> Option<PathBuf> {
    let path = repo.config_snapshot().string("core.worktree")?;
    (repo.git_dir() == repo.common_dir()).then(|| repo.git_dir().join(path.to_path_lossy()))
}

fn check_inside(what: &str, path: &Path, roots: &[&Path]) -> Result<(), String> {
    let real = real_path(what, path)?;
    if roots.iter().any(|root| real.starts_with(root)) {
        return Ok(());
    }
    Err(format!(
        "refused: {what} of the repository is {}, outside of the repository's own directories",
        real.display()
    ))
}

fn real_path(what: &str, path: &Path) -> Result<PathBuf, String> {
    path.canonicalize().map_err(|error| format!("refused: {what} {} cannot be read: {error}", path.display()))
}

/// The alternates as they are written; those of alternates are in directories that have been checked.
fn alternates(objects: &Path) -> Result<Vec<PathBuf>, String> {
    let list = objects.join("info/alternates");
    match list.metadata() {
        Err(_) => return Ok(Vec::new()),
        Ok(found) if found.len() > ALTERNATES_BYTES_MAX => {
            return Err(format!("{} is too long", list.display()));
        }
        Ok(_) => {}
    }
    let text = std::fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))?;
    let paths = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(paths.map(|line| objects.join(line.trim_matches('"'))).collect())
}
