//! Changed files as a patch in git's format: headers, hunks with three lines of context.

use gix::ObjectId;
use gix::bstr::{BStr, BString, ByteSlice};
use gix::diff::blob::pipeline::{Mode, WorktreeRoots};
use gix::diff::blob::platform::prepare_diff::Operation;
use gix::diff::blob::unified_diff::{ConsumeHunk, ContextSize, DiffLineKind, HunkHeader};
use gix::diff::blob::{
    Diff, InternedInput, Platform, ResourceKind, UnifiedDiff, diff_with_slider_heuristics,
};
use gix::objs::tree::EntryKind;

use crate::changes::{FileChange, Side, Source};
use crate::failed;
use crate::page::{Page, quote};
use crate::reader::Reader;
use crate::scope::CLOSED_NOTE;

/// Maximum length of the context behind a hunk's header.
const FUNCTION_BYTES_MAX: usize = 80;

/// Writes patches. The caches read objects, and files of the working tree in the form in which git stores them.
pub(crate) struct Patches<'a> {
    reader: &'a Reader,
    objects: Option<Platform>,
    worktree: Option<Platform>,
}

impl<'a> Patches<'a> {
    pub(crate) fn new(reader: &'a Reader) -> Self {
        Self { reader, objects: None, worktree: None }
    }

    /// Writes the patches of all changes.
    pub(crate) fn write(&mut self, changes: &[FileChange], page: &mut Page) -> Result<(), String> {
        for change in changes {
            if page.is_exhausted() {
                break;
            }
            if change.is_unmerged {
                page.push(&format!("* Unmerged path {}", quote(change.path())));
            }
            match (&change.old, &change.new) {
                // A file that became a link, or the reverse: git writes a deletion and an addition.
                (Some(old), Some(new)) if family(old.kind) != family(new.kind) => {
                    self.write_change(Some(old), None, page)?;
                    self.write_change(None, Some(new), page)?;
                }
                (old, new) => self.write_change(old.as_ref(), new.as_ref(), page)?,
            }
        }
        Ok(())
    }

    fn write_change(
        &mut self,
        old: Option<&Side>,
        new: Option<&Side>,
        page: &mut Page,
    ) -> Result<(), String> {
        let Some(any) = new.or(old) else { return Ok(()) };
        let sides = [old, new];
        if sides.iter().flatten().any(|side| self.reader.scope.is_closed(side.path.as_ref())) {
            page.push(&first_line(old.unwrap_or(any), new.unwrap_or(any)));
            page.push(CLOSED_NOTE);
            return Ok(());
        }
        if family(any.kind) == Family::Submodule {
            write_submodule(old, new, page);
            return Ok(());
        }
        if let Some(new) = new
            && !self.is_readable(new)
        {
            page.push(&first_line(old.unwrap_or(any), new));
            page.push("[not shown: it is not a regular file]");
            return Ok(());
        }
        self.write_contents(old, new, page).map_err(|why| format!("{}: {why}", quote(any.path.as_ref())))
    }

    /// Whether a side can be read without blocking.
    fn is_readable(&self, side: &Side) -> bool {
        let Source::Worktree(_) = side.source else { return true };
        let path = self.reader.worktree.join(side.path.to_path_lossy());
        path.symlink_metadata().is_ok_and(|found| found.is_file() || found.is_symlink())
    }

    fn write_contents(
        &mut self,
        old: Option<&Side>,
        new: Option<&Side>,
        page: &mut Page,
    ) -> Result<(), String> {
        let reader = self.reader;
        let fail = failed("it cannot be compared");
        let is_in_worktree = new.is_some_and(|new| matches!(new.source, Source::Worktree(_)));
        let cache = self.cache(is_in_worktree)?;
        let null = reader.repo.object_hash().null();
        let resources = [(old, new, ResourceKind::OldOrSource), (new, old, ResourceKind::NewOrDestination)];
        for (side, other, resource) in resources {
            // A side that does not exist has the null id, and the path of the other one.
            let Some(present) = side.or(other) else { return Ok(()) };
            let id = match side.map(|side| side.source) {
                Some(Source::Object(id) | Source::Worktree(Some(id))) => id,
                Some(Source::Worktree(None)) | None => null,
            };
            let set =
                cache.set_resource(id, present.kind, present.path.as_ref(), resource, &reader.repo.objects);
            set.map_err(|error| fail(error.into_error()))?;
        }
        let prepared = cache.prepare_diff().map_err(|error| fail(error.into_error()))?;
        let contents = Contents {
            old: prepared.old.data.as_slice(),
            new: prepared.new.data.as_slice(),
            algorithm: match prepared.operation {
                Operation::InternalDiff { algorithm } => Some(algorithm),
                Operation::ExternalCommand { .. } | Operation::SourceOrDestinationIsBinary => None,
            },
        };
        let ids = [
            old.map(|side| id_of(reader, side, contents.old)),
            new.map(|side| id_of(reader, side, contents.new)),
        ];
        write_patch(old.zip(ids[0]), new.zip(ids[1]), &contents, page);
        cache.clear_resource_cache_keep_allocation();
        Ok(())
    }

    fn cache(&mut self, is_in_worktree: bool) -> Result<&mut Platform, String> {
        let cache = if is_in_worktree { &mut self.worktree } else { &mut self.objects };
        if cache.is_none() {
            let root = is_in_worktree.then(|| self.reader.worktree.clone());
            let roots = WorktreeRoots { old_root: None, new_root: root };
            let made = self.reader.repo.diff_resource_cache(Mode::ToGit, roots);
            *cache = Some(made.map_err(failed("the attributes cannot be read"))?);
        }
        cache.as_mut().ok_or_else(|| "no cache".to_owned())
    }
}

/// What git distinguishes by a deletion and an addition.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    File,
    Link,
    Submodule,
}

fn family(kind: EntryKind) -> Family {
    match kind {
        EntryKind::Link => Family::Link,
        EntryKind::Commit => Family::Submodule,
        EntryKind::Blob | EntryKind::BlobExecutable | EntryKind::Tree => Family::File,
    }
}

/// Both contents; no algorithm if one is binary.
struct Contents<'a> {
    old: Option<&'a [u8]>,
    new: Option<&'a [u8]>,
    algorithm: Option<gix::diff::blob::Algorithm>,
}

/// Maximum size of a binary file of the working tree whose id is computed.
const HASHED_BYTES_MAX: u64 = 64 << 20;

/// The id of a side; of a file in the working tree it is computed.
fn id_of(reader: &Reader, side: &Side, content: Option<&[u8]>) -> ObjectId {
    let null = reader.repo.object_hash().null();
    let hash = |bytes: &[u8]| {
        let hashed = gix::objs::compute_hash(reader.repo.object_hash(), gix::objs::Kind::Blob, bytes);
        hashed.unwrap_or(null)
    };
    match (side.source, content) {
        (Source::Object(id), _) => id,
        (Source::Worktree(_), Some(content)) => hash(content),
        (Source::Worktree(_), None) => {
            let path = reader.worktree.join(side.path.to_path_lossy());
            let is_short = path.symlink_metadata().is_ok_and(|found| found.len() <= HASHED_BYTES_MAX);
            is_short.then(|| std::fs::read(path).ok()).flatten().map_or(null, |bytes| hash(&bytes))
        }
    }
}

fn first_line(old: &Side, new: &Side) -> String {
    format!("diff --git {} {}", prefixed("a", old.path.as_ref()), prefixed("b", new.path.as_ref()))
}

fn prefixed(prefix: &str, path: &BStr) -> String {
    let path: BString = [prefix.as_bytes(), b"/", path].concat().into();
    quote(path.as_ref())
}

fn octal(kind: EntryKind) -> &'static BStr {
    kind.as_octal_str()
}

/// As git abbreviates ids in small repositories.
fn short(id: ObjectId) -> String {
    id.to_hex_with_len(7).to_string()
}

fn write_patch(
    old: Option<(&Side, ObjectId)>,
    new: Option<(&Side, ObjectId)>,
    contents: &Contents<'_>,
    page: &mut Page,
) {
    let is_same = matches!((old, new), (Some((_, old)), Some((_, new))) if old == new);
    let (before, after) = (contents.old.unwrap_or_default(), contents.new.unwrap_or_default());
    let input = InternedInput::new(
        gix::diff::blob::sources::byte_lines(before),
        gix::diff::blob::sources::byte_lines(after),
    );
    let diff = contents.algorithm.map(|algorithm| diff_with_slider_heuristics(algorithm, &input));
    let similarity = diff.as_ref().map_or(100, |diff| similarity(diff, &input, before.len(), after.len()));
    let is_header_only = write_header(old, new, if is_same { 100 } else { similarity }, page);
    if is_same && is_header_only {
        return;
    }
    let name = |prefix, side: Option<(&Side, ObjectId)>| {
        side.map_or_else(|| "/dev/null".to_owned(), |(side, _)| prefixed(prefix, side.path.as_ref()))
    };
    match diff {
        None => page.push(&format!("Binary files {} and {} differ", name("a", old), name("b", new))),
        Some(diff) if diff.count_additions() + diff.count_removals() > 0 => {
            // Git ends a name with a space in it by a tab.
            let tab =
                |name: String| if name.contains(' ') && !name.starts_with('"') { name + "\t" } else { name };
            page.push(&format!("--- {}", tab(name("a", old))));
            page.push(&format!("+++ {}", tab(name("b", new))));
            let hunks = Hunks { before, page };
            // The writer itself does not fail.
            let _ = UnifiedDiff::new(&diff, &input, hunks, ContextSize::symmetrical(3)).consume();
        }
        Some(_) => {}
    }
}

/// Writes the lines before the contents; returns whether they could be all.
fn write_header(
    old: Option<(&Side, ObjectId)>,
    new: Option<(&Side, ObjectId)>,
    similarity: usize,
    page: &mut Page,
) -> bool {
    let null = |id: ObjectId| short(id.kind().null());
    match (old, new) {
        (Some((old, old_id)), Some((new, new_id))) => {
            page.push(&first_line(old, new));
            if old.kind != new.kind {
                page.push(&format!("old mode {}", octal(old.kind)));
                page.push(&format!("new mode {}", octal(new.kind)));
            }
            if old.path != new.path {
                page.push(&format!("similarity index {similarity}%"));
                page.push(&format!("rename from {}", quote(old.path.as_ref())));
                page.push(&format!("rename to {}", quote(new.path.as_ref())));
            }
            if old_id != new_id {
                let mode = if old.kind == new.kind { format!(" {}", octal(new.kind)) } else { String::new() };
                page.push(&format!("index {}..{}{mode}", short(old_id), short(new_id)));
            }
            true
        }
        (Some((old, id)), None) => {
            page.push(&first_line(old, old));
            page.push(&format!("deleted file mode {}", octal(old.kind)));
            page.push(&format!("index {}..{}", short(id), null(id)));
            false
        }
        (None, Some((new, id))) => {
            page.push(&first_line(new, new));
            page.push(&format!("new file mode {}", octal(new.kind)));
            page.push(&format!("index {}..{}", null(id), short(id)));
            false
        }
        (None, None) => true,
    }
}

/// How much of the longer content is in both, as a percentage, as git computes it.
fn similarity(diff: &Diff, input: &InternedInput<&[u8]>, before: usize, after: usize) -> usize {
    let removed = diff.hunks().flat_map(|hunk| hunk.before).map(|line| {
        let token = input.before[line as usize];
        input.interner[token].len()
    });
    let common = before - removed.sum::<usize>();
    (common * 100).checked_div(before.max(after)).unwrap_or(100)
}

fn write_submodule(old: Option<&Side>, new: Option<&Side>, page: &mut Page) {
    let id = |side: Option<&Side>| match side.map(|side| side.source) {
        Some(Source::Object(id)) => Some(id),
        _ => None,
    };
    let (Some(any), ids) = (new.or(old), [id(old), id(new)]) else { return };
    page.push(&first_line(old.unwrap_or(any), new.unwrap_or(any)));
    for (sign, id) in ["-", "+"].iter().zip(ids) {
        if let Some(id) = id {
            page.push(&format!("{sign}Subproject commit {id}"));
        }
    }
}

/// Writes hunks.
struct Hunks<'a> {
    before: &'a [u8],
    page: &'a mut Page,
}

impl ConsumeHunk for Hunks<'_> {
    type Out = ();

    fn consume_hunk(&mut self, header: HunkHeader, lines: &[(DiffLineKind, &[u8])]) -> std::io::Result<()> {
        let old = range(header.before_hunk_start, header.before_hunk_len);
        let new = range(header.after_hunk_start, header.after_hunk_len);
        let function = function_line(self.before, header.before_hunk_start as usize);
        self.page.push_bytes(&[format!("@@ -{old} +{new} @@").as_bytes(), &function].concat());
        for (kind, line) in lines {
            let sign = [kind.to_prefix() as u8];
            match line.strip_suffix(b"\n") {
                Some(line) => self.page.push_bytes(&[&sign, line].concat()),
                None => {
                    self.page.push_bytes(&[&sign, *line].concat());
                    self.page.push("\\ No newline at end of file");
                }
            }
        }
        Ok(())
    }

    fn finish(self) {}
}

/// A range as git writes it: the length one is left out, and an empty range begins one line earlier.
fn range(start: u32, length: u32) -> String {
    match length {
        0 => format!("{},0", start - 1),
        1 => start.to_string(),
        length => format!("{start},{length}"),
    }
}

/// The last line before a hunk that begins with a letter: usually the head of a function.
fn function_line(before: &[u8], hunk_start: usize) -> Vec<u8> {
    let is_head =
        |line: &&[u8]| line.first().is_some_and(|first| first.is_ascii_alphabetic() || b"_$".contains(first));
    let above = before.split_str("\n").take(hunk_start.saturating_sub(1));
    match above.filter(is_head).last() {
        Some(line) => [b" ", line[..line.len().min(FUNCTION_BYTES_MAX)].trim_end()].concat(),
        None => Vec::new(),
    }
}
