//! Approximate size of records in memory, for caches that are bounded by bytes.

use super::Record;
use crate::Message;
use crate::compaction::CompactionPart;

/// Size of a record without its texts.
const FIXED_BYTES: usize = 512;

impl Record {
    /// The approximate size of the record in memory: its texts and images, and a fixed amount for the rest.
    #[must_use]
    pub fn content_bytes(&self) -> usize {
        FIXED_BYTES + self.text_bytes()
    }

    fn text_bytes(&self) -> usize {
        match self {
            Record::Created(record) => record.system_prompt.as_ref().map_or(0, String::len),
            Record::TurnAccepted(accepted) => message_bytes(&accepted.message),
            Record::MessageAdded(message) | Record::Steered { message, .. } => message_bytes(message),
            Record::CallDone { outcome, .. } => outcome.text().len(),
            Record::ApprovalRequested(request) => request.arguments.len() + request.reason.len(),
            Record::ApprovalAnswered(answer) => answer.note.as_ref().map_or(0, String::len),
            Record::TurnUndone { paths, .. } => paths.iter().map(|path| path.as_str().len()).sum(),
            Record::TurnEnded { end, .. } => end.content.len(),
            Record::Compacted(compaction) => compaction.parts.iter().map(part_bytes).sum(),
            Record::Denied { text, .. } => text.len(),
            Record::PermissionsChanged { .. }
            | Record::Renamed { .. }
            | Record::Finished { .. }
            | Record::Destroyed { .. }
            | Record::TurnBegun { .. }
            | Record::CallBegun { .. }
            | Record::TurnReopened { .. }
            | Record::RolledBack { .. }
            | Record::DaemonStarted { .. }
            | Record::DaemonStopped => 0,
        }
    }
}

fn part_bytes(part: &CompactionPart) -> usize {
    match part {
        CompactionPart::Retained { .. } => 0,
        CompactionPart::Inserted(message) => message_bytes(message),
    }
}

fn message_bytes(message: &Message) -> usize {
    let images: usize = message.images.iter().map(|image| image.data.len()).sum();
    let calls: usize = message.tool_calls.iter().map(|call| FIXED_BYTES + call.arguments.len()).sum();
    let reasoning = message.reasoning_block.as_ref().map_or(0, String::len);
    message.text.len() + images + calls + reasoning
}
