//! Truncates a text to a token limit: removes its middle and inserts a note instead.

use crate::TokenCount;
use crate::tokens::Counting;

/// Limit of attempts with a smaller size when the result still has too many tokens.
const ATTEMPTS_MAX: u32 = 16;

/// The note with the number of omitted bytes.
#[must_use]
pub fn omission_note(bytes: usize) -> String {
    format!("[… {bytes} bytes left out …]")
}

/// Returns the text if it has at most `tokens_max` tokens; otherwise its beginning and end, with a note between them.
/// `note` gets the offset and the length of the gap in bytes.
#[must_use]
pub fn truncate_middle(
    text: &str,
    tokens_max: TokenCount,
    count: Counting<'_>,
    note: &dyn Fn(usize, usize) -> String,
) -> String {
    // A token has at least one byte.
    if text.len() as TokenCount <= tokens_max {
        return text.to_owned();
    }
    let tokens = count(text);
    if tokens <= tokens_max {
        return text.to_owned();
    }
    let mut retained_bytes = proportional_bytes(
        text.len(),
        tokens_max.saturating_sub(count(&note(text.len(), text.len()))),
        tokens,
    );
    for _ in 0..ATTEMPTS_MAX {
        let cut = replace_middle(text, retained_bytes, note);
        if retained_bytes == 0 || count(&cut) <= tokens_max {
            return cut;
        }
        retained_bytes = retained_bytes * 3 / 4;
    }
    replace_middle(text, 0, note)
}

/// The bytes that correspond to `wanted` of `tokens` tokens.
fn proportional_bytes(bytes: usize, wanted: TokenCount, tokens: TokenCount) -> usize {
    let share = bytes as u128 * u128::from(wanted) / u128::from(tokens.max(1));
    usize::try_from(share).unwrap_or(bytes)
}

/// Retains `retained_bytes` bytes, two thirds of them from the beginning.
fn replace_middle(text: &str, retained_bytes: usize, note: &dyn Fn(usize, usize) -> String) -> String {
    let head = text.floor_char_boundary(retained_bytes - retained_bytes / 3);
    let tail = text.ceil_char_boundary(text.len() - retained_bytes / 3).max(head);
    let note = note(head, tail - head);
    let separator = |part: &str| if part.is_empty() { "" } else { "\n" };
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
    fn text_within_the_limit_is_unchanged() {
        assert_eq!(truncated("short", 5), "short");
        assert_eq!(truncated(&"a".repeat(400), 100), "a".repeat(400));
        assert_eq!(truncated("", 0), "");
    }

    #[test]
    fn note_counts_the_bytes_omitted_from_the_middle() {
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
    fn limit_of_zero_leaves_only_the_note() {
        assert_eq!(truncated(&"x".repeat(100), 0), "[… 100 bytes left out …]");
    }
}
