//! Applies hunks to a text. A hunk may have moved; its context may differ in trailing whitespace, or in up to two lines
//! at its ends, if its place is unambiguous. Removed lines have to match.

use std::ops::Range;

use super::parse::{Hunk, PatchLine};
use crate::fs::diff::{TextChange, splice};
use crate::fs::newlines::NewlineStyle;

/// Context lines that may differ at each end of a hunk.
const FUZZ_MAX: usize = 2;

/// Applies all hunks. Returns the new text and the changed places.
pub(super) fn apply(text: &str, hunks: &[Hunk]) -> Result<(String, Vec<TextChange>), String> {
    let style = NewlineStyle::of(text);
    let line_end = style.apply("\n".to_owned());
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut starts = vec![0];
    starts.extend(lines.iter().scan(0, |end, line| {
        *end += line.len();
        Some(*end)
    }));
    let (mut splices, mut end, mut drift) = (Vec::new(), 0, 0_i64);
    for (index, hunk) in hunks.iter().enumerate() {
        let wanted = usize::try_from(i64::try_from(hunk.start).unwrap_or(0) + drift).unwrap_or(0);
        let (at, skipped, trailing) =
            locate(&lines, hunk, wanted, end).map_err(|why| format!("hunk {}: {why}", index + 1))?;
        let used = &hunk.lines[skipped..hunk.lines.len() - trailing];
        let (new, old_count) = replacement(&lines[at..], used, &line_end);
        let range: Range<usize> = starts[at]..starts[at + old_count];
        drift = i64::try_from(at).unwrap_or(0) - i64::try_from(hunk.start + skipped).unwrap_or(0);
        end = at + old_count;
        splices.push((range, finish(new, hunk, end == lines.len(), trailing, &line_end)));
    }
    // Text that is added behind a last line without a newline.
    if let Some((range, new)) = splices.last_mut()
        && range.start == range.end
        && range.start == text.len()
        && !text.is_empty()
        && !text.ends_with('\n')
    {
        new.insert_str(0, &line_end);
    }
    let splices: Vec<_> = splices.iter().map(|(range, new)| (range.clone(), new.as_str())).collect();
    Ok(splice(text, &splices))
}

/// The new text of a hunk, and how many old lines it replaces. Context is taken from the file.
fn replacement(old: &[&str], lines: &[PatchLine], line_end: &str) -> (String, usize) {
    let (mut new, mut count) = (String::new(), 0);
    for line in lines {
        match line {
            PatchLine::Context(_) => {
                new.push_str(old[count]);
                count += 1;
            }
            PatchLine::Removed(_) => count += 1,
            PatchLine::Added(text) => {
                if !new.is_empty() && !new.ends_with('\n') {
                    new.push_str(line_end);
                }
                new.push_str(text.trim_end_matches('\r'));
                new.push_str(line_end);
            }
        }
    }
    (new, count)
}

/// Removes the final newline, if the hunk says so.
fn finish(mut new: String, hunk: &Hunk, is_at_end: bool, trailing: usize, line_end: &str) -> String {
    if hunk.lacks_final_newline && is_at_end && trailing == 0 && new.ends_with(line_end) {
        new.truncate(new.len() - line_end.len());
    }
    new
}

/// Finds a hunk: the line, and the context lines to skip at its start and end.
fn locate(lines: &[&str], hunk: &Hunk, wanted: usize, from: usize) -> Result<(usize, usize, usize), String> {
    let is_context = |line: &&PatchLine| matches!(line, PatchLine::Context(_));
    let (before, after) = (
        hunk.lines.iter().take_while(is_context).count(),
        hunk.lines.iter().rev().take_while(is_context).count(),
    );
    let mut seen = 0;
    for fuzz in 0..=FUZZ_MAX {
        let (skipped, trailing) = (fuzz.min(before), fuzz.min(after));
        let old: Vec<&str> =
            hunk.lines[skipped..hunk.lines.len() - trailing].iter().filter_map(old_text).collect();
        for is_exact in [true, false] {
            if fuzz > 0 && old.is_empty() {
                continue;
            }
            let places = find(lines, &old, from, is_exact);
            let wanted = wanted + skipped;
            if is_exact && fuzz == 0 {
                if let Some(at) = nearest(&places, wanted) {
                    return Ok((at, skipped, trailing));
                }
            } else if let [only] = places.as_slice() {
                return Ok((*only, skipped, trailing));
            }
            seen = seen.max(places.len());
        }
    }
    Err(if seen > 1 {
        format!("its lines are {seen} times in the file; add context lines")
    } else {
        "its lines are not in the file; read the file and write the patch for its current content".to_owned()
    })
}

fn old_text(line: &PatchLine) -> Option<&str> {
    match line {
        PatchLine::Context(text) | PatchLine::Removed(text) => Some(text),
        PatchLine::Added(_) => None,
    }
}

fn find(lines: &[&str], old: &[&str], from: usize, is_exact: bool) -> Vec<usize> {
    let is_equal = |line: &str, wanted: &str| {
        let line = line.trim_end_matches(['\n', '\r']);
        if is_exact { line == wanted.trim_end_matches('\r') } else { line.trim_end() == wanted.trim_end() }
    };
    let last = (lines.len() + 1).saturating_sub(old.len());
    (from..last)
        .filter(|at| old.iter().zip(&lines[*at..]).all(|(wanted, line)| is_equal(line, wanted)))
        .collect()
}

/// The place nearest to the wanted line; none if two are equally near.
fn nearest(places: &[usize], wanted: usize) -> Option<usize> {
    let best = *places.iter().min_by_key(|place| place.abs_diff(wanted))?;
    let is_tie = |place: &&usize| place.abs_diff(wanted) == best.abs_diff(wanted);
    (places.iter().filter(is_tie).count() == 1).then_some(best)
}
