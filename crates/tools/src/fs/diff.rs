//! Unified diffs of edits: the changed places are known, so that no lines have to be compared to find them.

use std::ops::Range;

/// One changed place: byte ranges in the old and in the new text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TextChange {
    pub(super) old: Range<usize>,
    pub(super) new: Range<usize>,
}

/// Unchanged lines around a change.
const CONTEXT_LINES: usize = 3;

/// Maximum length of a diff for a model.
const DIFF_BYTES_MAX: usize = 16 << 10;

/// Maximum length of a line in a diff.
const LINE_CHARS_MAX: usize = 500;

/// A replaced range of a text.
pub(super) type Splice<'a> = (Range<usize>, &'a str);

/// Replaces ranges of a text, sorted and without overlaps. Returns the new text and the changed places.
pub(super) fn splice(text: &str, splices: &[Splice<'_>]) -> (String, Vec<TextChange>) {
    let (mut new, mut changes, mut end) = (String::with_capacity(text.len()), Vec::new(), 0);
    for (range, replacement) in splices {
        new.push_str(&text[end..range.start]);
        let start = new.len();
        new.push_str(replacement);
        changes.push(TextChange { old: range.clone(), new: start..new.len() });
        end = range.end;
    }
    new.push_str(&text[end..]);
    (new, changes)
}

/// The unified diff of one file, truncated for a model; empty if nothing changed.
pub(super) fn unified_diff(path: &str, old: &str, new: &str, changes: &[TextChange]) -> String {
    let (old, new) = (Lines::of(old), Lines::of(new));
    let mut text = String::new();
    for hunk in group(line_changes(&old, &new, changes)) {
        if text.is_empty() {
            text = format!("--- {path}\n+++ {path}\n");
        }
        push_hunk(&mut text, &hunk, &old, &new);
    }
    truncate(text)
}

/// The lines of a text with their line ends.
struct Lines<'a> {
    lines: Vec<&'a str>,
    /// Where each line starts.
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let starts = lines.iter().scan(0, |start, line| {
            let this = *start;
            *start += line.len();
            Some(this)
        });
        Self { starts: starts.collect(), lines }
    }

    /// The lines that a byte range touches, including the one that its end is in.
    fn touched(&self, range: &Range<usize>) -> Range<usize> {
        let index = |byte: usize| self.starts.partition_point(|start| *start <= byte).saturating_sub(1);
        index(range.start)..(index(range.end) + 1).min(self.lines.len())
    }
}

/// Changed lines: ranges in the old and in the new lines.
struct LineChange {
    old: Range<usize>,
    new: Range<usize>,
}

fn line_changes(old: &Lines<'_>, new: &Lines<'_>, changes: &[TextChange]) -> Vec<LineChange> {
    let mut merged: Vec<LineChange> = Vec::new();
    for change in changes {
        let next = LineChange { old: old.touched(&change.old), new: new.touched(&change.new) };
        match merged.last_mut() {
            Some(last) if next.old.start < last.old.end || next.new.start < last.new.end => {
                last.old.end = last.old.end.max(next.old.end);
                last.new.end = last.new.end.max(next.new.end);
            }
            _ => merged.push(next),
        }
    }
    for change in &mut merged {
        trim_common(change, &old.lines, &new.lines);
    }
    merged.retain(|change| !change.old.is_empty() || !change.new.is_empty());
    merged
}

/// Leaves out equal lines at both ends.
fn trim_common(change: &mut LineChange, old: &[&str], new: &[&str]) {
    let both = |change: &LineChange| !change.old.is_empty() && !change.new.is_empty();
    while both(change) && old[change.old.start] == new[change.new.start] {
        change.old.start += 1;
        change.new.start += 1;
    }
    while both(change) && old[change.old.end - 1] == new[change.new.end - 1] {
        change.old.end -= 1;
        change.new.end -= 1;
    }
}

/// Groups changes whose contexts touch.
fn group(changes: Vec<LineChange>) -> Vec<Vec<LineChange>> {
    let mut hunks: Vec<Vec<LineChange>> = Vec::new();
    for change in changes {
        match hunks.last_mut() {
            Some(hunk)
                if hunk.last().is_some_and(|last| change.old.start <= last.old.end + 2 * CONTEXT_LINES) =>
            {
                hunk.push(change);
            }
            _ => hunks.push(vec![change]),
        }
    }
    hunks
}

fn push_hunk(text: &mut String, hunk: &[LineChange], old: &Lines<'_>, new: &Lines<'_>) {
    let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { return };
    let before = first.old.start.min(CONTEXT_LINES);
    let after = (old.lines.len() - last.old.end).min(CONTEXT_LINES);
    let header = |range: Range<usize>| match range.len() {
        0 => format!("{},0", range.start),
        1 => format!("{}", range.start + 1),
        count => format!("{},{count}", range.start + 1),
    };
    let old_range = header(first.old.start - before..last.old.end + after);
    let new_range = header(first.new.start - before..last.new.end + after);
    text.push_str(&format!("@@ -{old_range} +{new_range} @@\n"));
    let mut position = first.old.start - before;
    for change in hunk {
        push_lines(text, ' ', &old.lines[position..change.old.start]);
        push_lines(text, '-', &old.lines[change.old.clone()]);
        push_lines(text, '+', &new.lines[change.new.clone()]);
        position = change.old.end;
    }
    push_lines(text, ' ', &old.lines[position..position + after]);
}

fn push_lines(text: &mut String, sign: char, lines: &[&str]) {
    for line in lines {
        text.push(sign);
        let content = line.trim_end_matches(['\r', '\n']);
        match content.char_indices().nth(LINE_CHARS_MAX) {
            Some((cut, _)) => text.push_str(&format!("{}… [{} bytes]", &content[..cut], content.len())),
            None => text.push_str(content),
        }
        text.push('\n');
        if !line.ends_with('\n') {
            text.push_str("\\ No newline at end of file\n");
        }
    }
}

fn truncate(mut text: String) -> String {
    if text.len() > DIFF_BYTES_MAX {
        let total = text.lines().count();
        let cut = text.floor_char_boundary(DIFF_BYTES_MAX);
        text.truncate(text[..cut].rfind('\n').map_or(cut, |end| end + 1));
        let shown = text.lines().count();
        text.push_str(&format!(
            "[{shown} of {total} lines of the diff shown; read the file to see the rest]\n"
        ));
    }
    text.truncate(text.trim_end_matches('\n').len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff(old: &str, splices: &[Splice<'_>]) -> String {
        let (new, changes) = splice(old, splices);
        unified_diff("f", old, &new, &changes)
    }

    #[test]
    fn diff_shows_changed_lines_with_context() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let expected = "--- f\n+++ f\n@@ -2,7 +2,8 @@\n 2\n 3\n 4\n-5\n+five\n+5b\n 6\n 7\n 8";
        assert_eq!(diff(old, &[(8..9, "five\n5b")]), expected);
        assert_eq!(diff(old, &[(0..2, "")]), "--- f\n+++ f\n@@ -1,4 +1,3 @@\n-1\n 2\n 3\n 4");
        assert_eq!(diff(old, &[(0..1, "1")]), "", "nothing changed");
    }

    #[test]
    fn distant_changes_are_separate_hunks() {
        let old: String = (0..20).map(|line| format!("{line:02}\n")).collect();
        let text = diff(&old, &[(0..2, "a"), (57..59, "z")]);
        assert_eq!(
            text,
            "--- f\n+++ f\n@@ -1,4 +1,4 @@\n-00\n+a\n 01\n 02\n 03\n@@ -17,4 +17,4 @@\n 16\n 17\n 18\n-19\n+z"
        );
        let text = diff(&old, &[(0..2, "a"), (3..5, "b")]);
        assert_eq!(text, "--- f\n+++ f\n@@ -1,5 +1,5 @@\n-00\n+a\n-01\n+b\n 02\n 03\n 04");
    }

    #[test]
    fn joined_lines_and_missing_final_newlines_are_shown() {
        assert_eq!(diff("a\nb\n", &[(1..2, "")]), "--- f\n+++ f\n@@ -1,2 +1 @@\n-a\n-b\n+ab");
        let none = "\\ No newline at end of file";
        assert_eq!(diff("a\n", &[(1..2, "")]), format!("--- f\n+++ f\n@@ -1 +1 @@\n-a\n+a\n{none}"));
        assert_eq!(diff("", &[(0..0, "x\n")]), "--- f\n+++ f\n@@ -0,0 +1 @@\n+x");
        assert_eq!(diff("x\n", &[(0..2, "")]), "--- f\n+++ f\n@@ -1 +0,0 @@\n-x");
    }

    #[test]
    fn long_diff_is_truncated_at_a_line() {
        let text = diff("x\n", &[(0..2, &"é\n".repeat(20_000))]);
        assert!(text.len() < DIFF_BYTES_MAX + 200 && text.contains(" of 20004 lines of the diff shown; "));
        let text = diff("x", &[(0..1, &"é".repeat(20_000))]);
        assert!(text.contains("… [40000 bytes]\n"), "{text}");
    }
}
