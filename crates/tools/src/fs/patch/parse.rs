//! Parses unified diffs as models write them: line numbers and counts may be wrong, empty context lines may lack their
//! space.

/// The changes of one file.
#[derive(Debug)]
pub(super) struct FilePatch {
    pub(super) path: String,
    pub(super) kind: PatchKind,
    pub(super) hunks: Vec<Hunk>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PatchKind {
    Create,
    Change,
    Delete,
}

/// A changed place.
#[derive(Debug, Default)]
pub(super) struct Hunk {
    /// The line of the old file at which it should be, counted from 0.
    pub(super) start: usize,
    pub(super) lines: Vec<PatchLine>,
    /// Whether the new text ends without a newline.
    pub(super) lacks_final_newline: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PatchLine {
    Context(String),
    Removed(String),
    Added(String),
}

/// Maximum number of hunks of one patch.
const HUNKS_MAX: usize = 1_000;

/// The line before the signature of a patch that git wrote as a mail.
const SIGNATURE: &str = "-- ";

/// Parses a patch; `path` names the file of a patch without headers.
pub(super) fn parse(text: &str, path: Option<&str>) -> Result<Vec<FilePatch>, String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut files: Vec<FilePatch> = Vec::new();
    let (mut index, mut hunks) = (0, 0);
    while let Some(line) = lines.get(index) {
        if is_file_header(&lines, index) {
            files.push(parse_header(line, lines[index + 1], path)?);
            index += 2;
        } else if line.starts_with("@@") {
            if files.is_empty() {
                let path = path.ok_or(
                    "the patch names no file: begin with `--- a/FILE` and `+++ b/FILE`, or pass `path`",
                )?;
                files.push(FilePatch { path: path.to_owned(), kind: PatchKind::Change, hunks: Vec::new() });
            }
            let (hunk, end) = parse_hunk(&lines, index)?;
            hunks += 1;
            if let Some(file) = files.last_mut() {
                file.hunks.push(hunk);
            }
            index = end;
        } else if line.starts_with("GIT binary patch") || line.starts_with("rename from ") {
            return Err(format!(
                "line {}: binary patches and renames are not supported; use fs.move",
                index + 1
            ));
        } else {
            index += 1;
        }
    }
    check(files, hunks, path)
}

fn check(files: Vec<FilePatch>, hunks: usize, path: Option<&str>) -> Result<Vec<FilePatch>, String> {
    if files.is_empty() || files.iter().any(|file| file.hunks.is_empty()) {
        return Err("the patch has no hunks: a hunk begins with `@@ -LINE,COUNT +LINE,COUNT @@`".to_owned());
    }
    if hunks > HUNKS_MAX {
        return Err(format!("the patch has more than {HUNKS_MAX} hunks"));
    }
    if path.is_some() && files.len() > 1 {
        return Err("the patch changes several files: leave `path` out".to_owned());
    }
    for (index, file) in files.iter().enumerate() {
        if files[..index].iter().any(|other| other.path == file.path) {
            return Err(format!("{} is in the patch twice: combine its hunks", file.path));
        }
    }
    Ok(files)
}

fn is_file_header(lines: &[&str], index: usize) -> bool {
    let starts =
        |offset: usize, prefix: &str| lines.get(index + offset).is_some_and(|line| line.starts_with(prefix));
    starts(0, "--- ") && starts(1, "+++ ") && starts(2, "@@")
}

fn parse_header(old: &str, new: &str, path: Option<&str>) -> Result<FilePatch, String> {
    let name = |line: &str| line[4..].split('\t').next().unwrap_or_default().trim_end().to_owned();
    let (old, new) = (name(old), name(new));
    let (kind, name, prefix) = match (old.as_str(), new.as_str()) {
        ("/dev/null", new) => (PatchKind::Create, new, "b/"),
        (old, "/dev/null") => (PatchKind::Delete, old, "a/"),
        (_, new) => (PatchKind::Change, new, "b/"),
    };
    // Without the prefixes of git, both names are equal.
    let name = if old == new { name } else { name.strip_prefix(prefix).unwrap_or(name) };
    let path = path.unwrap_or(name).to_owned();
    if path.is_empty() {
        Err("the patch has a header without a file name".to_owned())
    } else {
        Ok(FilePatch { path, kind, hunks: Vec::new() })
    }
}

/// Parses the hunk that starts at a line. Returns the line after it.
fn parse_hunk(lines: &[&str], start: usize) -> Result<(Hunk, usize), String> {
    let (old_start, mut old_left, mut new_left) = parse_range(lines[start]);
    // Without old lines, the number is that of the line before.
    let start_index = if old_left == 0 { old_start } else { old_start.saturating_sub(1) };
    let mut hunk = Hunk { start: start_index, ..Hunk::default() };
    let (mut index, is_counted) = (start + 1, old_left + new_left > 0);
    while let Some(line) = lines.get(index) {
        let is_complete = old_left <= 0 && new_left <= 0;
        if line.starts_with("@@") || line.starts_with("diff --git ") || is_file_header(lines, index) {
            break;
        }
        if is_counted && is_complete && *line == SIGNATURE {
            break;
        }
        let (mark, rest) = line.split_at_checked(1).unwrap_or(("", ""));
        match mark {
            "" if is_complete => break,
            "" | " " => hunk.lines.push(PatchLine::Context(rest.to_owned())),
            "-" => hunk.lines.push(PatchLine::Removed(rest.to_owned())),
            "+" => hunk.lines.push(PatchLine::Added(rest.to_owned())),
            "\\" => hunk.lacks_final_newline = !matches!(hunk.lines.last(), Some(PatchLine::Removed(_))),
            _ if is_complete => break,
            _ => return Err(format!("line {}: a line of a hunk begins with ` `, `-` or `+`", index + 1)),
        }
        old_left -= i64::from(matches!(mark, "" | " " | "-"));
        new_left -= i64::from(matches!(mark, "" | " " | "+"));
        index += 1;
    }
    if hunk.lines.iter().all(|line| matches!(line, PatchLine::Context(_))) {
        return Err(format!("line {}: the hunk changes nothing", start + 1));
    }
    Ok((hunk, index))
}

/// The first line and the counts of `@@ -1,2 +1,3 @@`; zeros for missing numbers.
fn parse_range(header: &str) -> (usize, i64, i64) {
    let mut parts = header.split_whitespace().skip(1);
    let mut part = |sign: char| -> (usize, i64) {
        let Some(range) = parts.next().and_then(|part| part.strip_prefix(sign)) else { return (0, 0) };
        let (first, count) = range.split_once(',').unwrap_or((range, "1"));
        (first.parse().unwrap_or(0), count.parse().unwrap_or(0))
    };
    let (start, old) = part('-');
    (start, old, part('+').1)
}
