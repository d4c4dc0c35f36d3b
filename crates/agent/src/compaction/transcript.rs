//! The transcript of messages for a summary request: redacted, and truncated to the available tokens.

use super::is_summary;
use crate::tokens::Counting;
use crate::truncate::{omission_note, truncate_middle};
use crate::{Message, Role, TokenCount, redact};

/// Token limits of tool outputs and arguments, tried in order until the transcript fits.
const OUTPUT_TOKENS_STEPS: [TokenCount; 3] = [1000, 100, 20];

/// The divisor for the share of one message, once outputs have their lowest limit.
const MESSAGE_SHARE_DIVISOR: TokenCount = 4;

/// One message of the transcript. Redacted before truncation, because a truncated secret would not be recognized.
struct TranscriptLine {
    role: Role,
    is_summary: bool,
    text: String,
    calls: Vec<(String, String)>,
}

impl TranscriptLine {
    fn from_message(message: &Message) -> Self {
        let calls = message.tool_calls.iter();
        Self {
            role: message.role,
            is_summary: is_summary(message),
            text: redact(&message.text).into_owned(),
            calls: calls.map(|call| (call.name.clone(), redact(&call.arguments).into_owned())).collect(),
        }
    }

    fn render(&self, output_max: TokenCount, text_max: TokenCount, count: Counting<'_>) -> String {
        let truncated = |text: &str, max| truncate_middle(text, max, count, &|_, bytes| omission_note(bytes));
        let role = self.role.as_str().to_uppercase();
        let own_max = if self.role == Role::Tool { output_max } else { text_max };
        let mut text = format!("{role}: {}\n", truncated(&self.text, own_max));
        for (name, arguments) in &self.calls {
            text.push_str(&format!("-> {name}({})\n", truncated(arguments, output_max)));
        }
        text
    }
}

/// The transcript, in message order. Shortens tool outputs first, then long messages, then omits the oldest messages
/// except earlier summaries, which represent more messages than themselves.
pub(super) fn transcript(messages: &[&Message], tokens_max: TokenCount, count: Counting<'_>) -> String {
    let lines: Vec<_> = messages.iter().map(|message| TranscriptLine::from_message(message)).collect();
    for output_max in OUTPUT_TOKENS_STEPS {
        let texts: Vec<_> =
            lines.iter().map(|line| line.render(output_max, TokenCount::MAX, count)).collect();
        if texts.iter().map(|text| count(text)).sum::<TokenCount>() <= tokens_max {
            return texts.concat();
        }
    }
    newest_lines(&lines, tokens_max, count)
}

fn newest_lines(lines: &[TranscriptLine], tokens_max: TokenCount, count: Counting<'_>) -> String {
    let mut left = tokens_max;
    let mut texts: Vec<_> = vec![None; lines.len()];
    let mut try_add = |index: usize| {
        let text = lines[index].render(
            OUTPUT_TOKENS_STEPS[OUTPUT_TOKENS_STEPS.len() - 1],
            (tokens_max / MESSAGE_SHARE_DIVISOR).max(1),
            count,
        );
        let tokens = count(&text);
        let fits = tokens <= left;
        if fits {
            left -= tokens;
            texts[index] = Some(text);
        }
        fits
    };
    let (summaries, others): (Vec<_>, Vec<_>) =
        (0..lines.len()).rev().partition(|index| lines[*index].is_summary);
    for index in summaries {
        try_add(index);
    }
    let _ = others.into_iter().all(try_add);
    let missing = texts.iter().filter(|text| text.is_none()).count();
    if let Some(gap) = texts.iter().position(Option::is_none) {
        texts[gap] = Some(format!("[{missing} earlier messages left out]\n"));
    }
    texts.into_iter().flatten().collect()
}
