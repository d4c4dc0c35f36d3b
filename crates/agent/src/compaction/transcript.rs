//! Messages as a text that a model can sum up: without secrets, and as long as there is room for.

use super::is_summary;
use crate::tokens::Counting;
use crate::truncate::{omission_note, truncate_middle};
use crate::{Message, Role, TokenCount, redact};

/// What is left of a tool's output or a call's arguments, in tokens, when there is less and less room.
const OUTPUT_TOKENS_STEPS: [TokenCount; 3] = [1000, 100, 20];

/// A message may be so much of the whole, once outputs are as short as they get.
const MESSAGE_SHARE_DIVISOR: TokenCount = 4;

/// Secrets go first: half of one would look like nothing.
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
        let cut = |text: &str, max| truncate_middle(text, max, count, &|_, bytes| omission_note(bytes));
        let role = self.role.as_str().to_uppercase();
        let own_max = if self.role == Role::Tool { output_max } else { text_max };
        let mut text = format!("{role}: {}\n", cut(&self.text, own_max));
        for (name, arguments) in &self.calls {
            text.push_str(&format!("-> {name}({})\n", cut(arguments, output_max)));
        }
        text
    }
}

/// The messages in their order. Outputs of tools are shortened first, then long messages, then the oldest are left out,
/// but for earlier summaries, which stand for more than themselves.
pub(super) fn transcript(messages: &[&Message], room: TokenCount, count: Counting<'_>) -> String {
    let lines: Vec<_> = messages.iter().map(|message| TranscriptLine::from_message(message)).collect();
    for output_max in OUTPUT_TOKENS_STEPS {
        let texts: Vec<_> =
            lines.iter().map(|line| line.render(output_max, TokenCount::MAX, count)).collect();
        if texts.iter().map(|text| count(text)).sum::<TokenCount>() <= room {
            return texts.concat();
        }
    }
    newest_lines(&lines, room, count)
}

fn newest_lines(lines: &[TranscriptLine], room: TokenCount, count: Counting<'_>) -> String {
    let mut left = room;
    let mut texts: Vec<_> = vec![None; lines.len()];
    let mut fits = |place: usize| {
        let text = lines[place].render(
            OUTPUT_TOKENS_STEPS[OUTPUT_TOKENS_STEPS.len() - 1],
            (room / MESSAGE_SHARE_DIVISOR).max(1),
            count,
        );
        let tokens = count(&text);
        let fits = tokens <= left;
        if fits {
            left -= tokens;
            texts[place] = Some(text);
        }
        fits
    };
    let (summaries, others): (Vec<_>, Vec<_>) =
        (0..lines.len()).rev().partition(|place| lines[*place].is_summary);
    for place in summaries {
        fits(place);
    }
    let _ = others.into_iter().all(fits);
    let missing = texts.iter().filter(|text| text.is_none()).count();
    if let Some(gap) = texts.iter().position(Option::is_none) {
        texts[gap] = Some(format!("[{missing} earlier messages left out]\n"));
    }
    texts.into_iter().flatten().collect()
}
