//! Output of a tool call while it runs, published as deltas: whole characters, without known secrets, at intervals, and
//! bounded. The result of the call has its own copy, so that what is omitted here is not lost.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent::outside::{ToolOutputSink, ToolOutputStream};
use agent::{KnownSecrets, RequestId, ToolOutcome};
use tokio::sync::Notify;

use crate::event_bus::{Delta, DeltaKind};
use crate::handle::Shared;

/// Publishes the output of one tool call.
pub(super) struct OutputPublisher {
    pub(super) shared: Arc<Shared>,
    request_id: RequestId,
    pub(super) turn: u64,
    call_id: Arc<str>,
    state: Mutex<State>,
    has_output: Notify,
}

struct State {
    stdout: PendingOutput,
    stderr: PendingOutput,
    /// Bytes that this call may still publish.
    bytes_left: usize,
}

/// Output of one stream that is not published yet.
#[derive(Default)]
struct PendingOutput {
    text: String,
    /// The beginning of a character whose end is still to come.
    incomplete: Vec<u8>,
    /// Bytes that came faster than they are published.
    omitted: usize,
    /// Whether text is omitted up to the next line: it may be the end of a secret whose beginning was omitted.
    skips_line: bool,
}

/// The least time between two deltas of a call.
const INTERVAL: Duration = Duration::from_millis(100);

/// Output of one stream between two deltas.
const PENDING_BYTES_MAX: usize = 128 << 10;

/// Output of one call.
const PUBLISHED_BYTES_MAX: usize = 1 << 20;

impl OutputPublisher {
    pub(super) fn new(shared: Arc<Shared>, request_id: RequestId, turn: u64, call_id: &str) -> Self {
        let pending = PendingOutput::default;
        let state = State { stdout: pending(), stderr: pending(), bytes_left: PUBLISHED_BYTES_MAX };
        let (state, has_output) = (Mutex::new(state), Notify::new());
        Self { shared, request_id, turn, call_id: Arc::from(call_id), state, has_output }
    }

    /// Runs a call, and publishes its output meanwhile.
    pub(super) async fn publish_during(&self, call: impl Future<Output = ToolOutcome>) -> ToolOutcome {
        let mut call = pin!(call);
        let outcome = loop {
            tokio::select! {
                biased;
                outcome = &mut call => break outcome,
                () = self.has_output.notified() => self.publish(PendingOutput::take_complete),
            }
            tokio::select! {
                biased;
                outcome = &mut call => break outcome,
                () = tokio::time::sleep(INTERVAL) => {}
            }
        };
        self.publish(PendingOutput::take_all);
        outcome
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, take: fn(&mut PendingOutput, &KnownSecrets) -> String) {
        let mut state = self.state();
        let State { stdout, stderr, bytes_left } = &mut *state;
        for (stream, pending) in [(ToolOutputStream::Stdout, stdout), (ToolOutputStream::Stderr, stderr)] {
            let mut text = take(pending, &self.shared.known_secrets);
            if text.is_empty() || *bytes_left == 0 || !self.shared.event_bus.has_subscribers() {
                continue;
            }
            if text.len() >= *bytes_left {
                text.truncate(text.floor_char_boundary(*bytes_left));
                text.push_str("\n[further output is in the result only]\n");
            }
            *bytes_left = bytes_left.saturating_sub(text.len());
            self.shared.event_bus.publish_delta(Delta {
                agent: self.shared.node.serial,
                agent_id: self.shared.id.clone(),
                request_id: self.request_id.clone(),
                turn: self.turn,
                kind: DeltaKind::ToolOutput { call_id: Arc::clone(&self.call_id), stream },
                text,
            });
        }
    }
}

impl ToolOutputSink for OutputPublisher {
    fn push(&self, stream: ToolOutputStream, bytes: &[u8]) {
        let mut state = self.state();
        match stream {
            ToolOutputStream::Stdout => state.stdout.push(bytes),
            ToolOutputStream::Stderr => state.stderr.push(bytes),
        }
        drop(state);
        self.has_output.notify_one();
    }
}

impl PendingOutput {
    fn push(&mut self, bytes: &[u8]) {
        if self.omitted > 0 || self.text.len() + bytes.len() > PENDING_BYTES_MAX {
            self.omitted += bytes.len();
            return;
        }
        let mut bytes = bytes;
        if self.skips_line {
            let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return };
            self.skips_line = false;
            bytes = &bytes[end + 1..];
        }
        self.incomplete.extend_from_slice(bytes);
        let whole = self.incomplete.len() - incomplete_bytes(&self.incomplete);
        let rest = self.incomplete.split_off(whole);
        self.text.push_str(&String::from_utf8_lossy(&self.incomplete));
        self.incomplete = rest;
    }

    /// Takes the text, except an end that may be the beginning of a secret.
    fn take_complete(&mut self, secrets: &KnownSecrets) -> String {
        let rest = self.text.split_off(secrets.complete_length(&self.text));
        let mut text = secrets.redact(&std::mem::replace(&mut self.text, rest)).into_owned();
        if self.omitted > 0 {
            let omitted = self.omitted + self.text.len() + self.incomplete.len();
            *self = Self { skips_line: true, ..Self::default() };
            text.push_str(&format!("\n[… {omitted} bytes omitted …]\n"));
        }
        text
    }

    /// Takes all text: none follows.
    fn take_all(&mut self, secrets: &KnownSecrets) -> String {
        let complete = self.take_complete(secrets);
        let bytes = [self.text.as_bytes(), &self.incomplete].concat();
        let rest = String::from_utf8_lossy(&bytes);
        let rest = secrets.redact(&rest);
        *self = Self::default();
        complete + &rest
    }
}

/// The length of a character that is cut at the end; zero if none is.
fn incomplete_bytes(bytes: &[u8]) -> usize {
    let last = bytes.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
    match std::str::from_utf8(last) {
        Err(error) if error.error_len().is_none() => last.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> KnownSecrets {
        let secrets = KnownSecrets::default();
        secrets.add("sk-1234567890");
        secrets
    }

    #[test]
    fn output_in_pieces_is_whole_characters_without_secrets() {
        let text = "käse sk-1234567890\u{20ac} nothing\n";
        let bytes = text.as_bytes();
        for cut in 0..bytes.len() {
            let mut pending = PendingOutput::default();
            pending.push(&bytes[..cut]);
            let first = pending.take_complete(&secrets());
            pending.push(&bytes[cut..]);
            assert_eq!(first + &pending.take_all(&secrets()), "käse [redacted]\u{20ac} nothing\n", "{cut}");
        }
    }

    #[test]
    fn threat_119_streamed_disguises_show_no_part_of_a_secret() {
        let text = "> s\u{1b}[31mk-12\u{1b}]0;t\u{7}34\n56%37\\u00389\u{200b}0 <\n";
        for cut in 0..text.len() {
            let mut pending = PendingOutput::default();
            pending.push(&text.as_bytes()[..cut]);
            let first = pending.take_complete(&secrets());
            pending.push(&text.as_bytes()[cut..]);
            assert_eq!(first + &pending.take_all(&secrets()), "> [redacted] <\n", "{cut}");
        }
    }

    #[test]
    fn output_is_shown_before_its_line_ends() {
        let mut pending = PendingOutput::default();
        pending.push(b"Password: ");
        assert_eq!(pending.take_complete(&secrets()), "Password: ");
    }

    #[test]
    fn omitted_output_is_counted_and_shows_no_part_of_a_secret() {
        let mut pending = PendingOutput::default();
        pending.push(b"start sk-12345");
        pending.push(&[b'x'; PENDING_BYTES_MAX]);
        pending.push(b"more");
        let omitted = PENDING_BYTES_MAX + "sk-12345more".len();
        assert_eq!(pending.take_complete(&secrets()), format!("start \n[… {omitted} bytes omitted …]\n"));
        pending.push(b"67890 and");
        pending.push(b" more\nnext");
        assert_eq!(pending.take_all(&secrets()), "next");
    }

    #[test]
    fn invalid_bytes_are_replaced_and_hold_nothing_back() {
        let mut pending = PendingOutput::default();
        pending.push(b"a\xff!\xe2\x82");
        assert_eq!(pending.take_complete(&secrets()), "a\u{fffd}!");
        assert_eq!(pending.take_all(&secrets()), "\u{fffd}");
    }
}
