//! Makes a text short enough for a model: its middle goes, with a note in its place.

use crate::TokenCount;
use crate::tokens::Counting;

/// How often a cut is made shorter when the count says that it is still too long.
const ATTEMPTS_MAX: u32 = 16;

/// The note that says how much is missing.
#[must_use]
pub fn omission_note(bytes: usize) -> String {
    format!("[… {bytes} bytes left out …]")
}

/// The text, if it is not more than so many tokens; otherwise its beginning and its end with a note between them, which
/// is given where the gap begins and how many bytes it has.
#[must_use]
pub fn truncate_middle(
    text: &str,
    tokens_max: TokenCount,
    count: Counting<'_>,
    note: &dyn Fn(usize, usize) -> String,
) -> String {
    // No token is shorter than a byte.
    if text.len() as TokenCount <= tokens_max {
        return text.to_owned();
    }
    let tokens = count(text);
    if tokens <= tokens_max {
        return text.to_owned();
    }
    let mut keep = proportional_bytes(
        text.len(),
        tokens_max.saturating_sub(count(&note(text.len(), text.len()))),
        tokens,
    );
    for _ in 0..ATTEMPTS_MAX {
        let cut = replace_middle(text, keep, note);
        if keep == 0 || count(&cut) <= tokens_max {
            return cut;
        }
        keep = keep * 3 / 4;
    }
    replace_middle(text, 0, note)
}

/// The share of the bytes that is `wanted` of `tokens`.
fn proportional_bytes(bytes: usize, wanted: TokenCount, tokens: TokenCount) -> usize {
    let share = bytes as u128 * u128::from(wanted) / u128::from(tokens.max(1));
    usize::try_from(share).unwrap_or(bytes)
}

/// Two thirds of what stays is the beginning.
fn replace_middle(text: &str, keep: usize, note: &dyn Fn(usize, usize) -> String) -> String {
    let head = text.floor_char_boundary(keep - keep / 3);
    let tail = text.ceil_char_boundary(text.len() - keep / 3).max(head);
    let note = note(head, tail - head);
    let separator = |there: &str| if there.is_empty() { "" } else { "\n" };
    let (before, after) = (&text[..head], &text[tail..]);
    [before, separator(before), &note, separator(after), after].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::estimate_tokens;

    fn truncated(text: &str, tokens_max: TokenCount) -> String {
        truncate_middle(text, tokens_max, &estimate_tokens, &|_, bytes| omission_note(bytes))
    }

    #[test]
    fn a_text_that_fits_stays_as_it_is() {
        assert_eq!(truncated("short", 5), "short");
        assert_eq!(truncated(&"a".repeat(400), 100), "a".repeat(400));
        assert_eq!(truncated("", 0), "");
    }

    #[test]
    fn beginning_and_end_stay_and_the_note_says_what_is_missing() {
        let text = format!("begin{}end", "ä".repeat(10_000));
        for tokens_max in [20, 100, 1000, 2000] {
            let cut = truncated(&text, tokens_max);
            assert!(cut.starts_with("begin") && cut.ends_with("end"), "{tokens_max}");
            assert!(estimate_tokens(&cut) <= tokens_max, "{tokens_max}: {}", estimate_tokens(&cut));
            let missing: usize = cut.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or_default();
            let note = omission_note(missing).len() + 2;
            assert_eq!(cut.len() - note + missing, text.len(), "{tokens_max}");
        }
    }

    #[test]
    fn even_no_room_gives_an_end() {
        assert_eq!(truncated(&"x".repeat(100), 0), "[… 100 bytes left out …]");
    }
}
