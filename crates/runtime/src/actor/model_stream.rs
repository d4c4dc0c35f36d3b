//! Model responses behind a panic barrier. The only caller of [`Provider::call`](agent::outside::Provider::call), for
//! turns and for summaries: a panic of the provider fails the call, not the actor. Limits the bytes of a response, and
//! counts its tokens in case the model does not report them.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use agent::outside::{ModelEvent, ModelRequest, ModelStream, Provider, Requester};
use agent::{Fault, FaultKind, TokenCount, Usage};
use futures_util::{FutureExt, StreamExt};

use super::turn_driver::panic_text;
use crate::answer_budget::AnswerReservation;
use crate::handle::Shared;

/// Bytes per token of text that only the provider has seen.
const BYTES_PER_TOKEN: usize = 4;

/// A streaming model response. Dropping it cancels the request.
pub(super) struct GuardedStream {
    /// The stream, or the text of the panic that prevented it.
    stream: Result<ModelStream, String>,
    provider: Arc<dyn Provider>,
    /// Our count of the request's tokens.
    input_tokens: TokenCount,
    /// Our count of the response's tokens so far.
    output_tokens: TokenCount,
    /// Bytes of the response that the provider holds.
    buffered_bytes: usize,
    /// Whether any content has arrived.
    has_content: bool,
    /// Whether the usage was emitted.
    has_usage: bool,
    /// Whether the response is complete; emitted after the usage.
    is_done: bool,
}

/// Why a stream has no further event.
pub(super) enum StreamEnd {
    /// The model, or the connection to it, failed.
    Failed(Fault),
    /// The stream ended before the response was complete.
    Ended,
    /// The provider panicked; the text of the panic.
    Panicked(String),
}

impl GuardedStream {
    /// Calls the agent's model with a request of `input_tokens` by our own count.
    pub(super) fn start(shared: &Shared, request: ModelRequest, input_tokens: TokenCount) -> Self {
        let requester = Requester { agent: Some(shared.id.clone()), root: shared.node.root() };
        let request = ModelRequest { requester, ..request };
        let stream = std::panic::catch_unwind(AssertUnwindSafe(|| shared.provider.call(request)));
        Self {
            stream: stream.map_err(|panic| panic_text(panic.as_ref()).to_owned()),
            provider: Arc::clone(&shared.provider),
            input_tokens,
            output_tokens: 0,
            buffered_bytes: 0,
            has_content: false,
            has_usage: false,
            is_done: false,
        }
    }

    /// Waits for the next event. Emits a usage before `Done`: the one that the model reported, as far as it can be
    /// true, or our own count. Fails when the response exceeds the limits of `answer`. Cancel safe.
    pub(super) async fn next(&mut self, answer: &mut AnswerReservation) -> Result<ModelEvent, StreamEnd> {
        if std::mem::take(&mut self.is_done) {
            return Ok(ModelEvent::Done);
        }
        let stream = self.stream.as_mut().map_err(|panic| StreamEnd::Panicked(panic.clone()))?;
        let event = match AssertUnwindSafe(stream.next()).catch_unwind().await {
            Ok(Some(event)) => event.map_err(StreamEnd::Failed)?,
            Ok(None) => return Err(StreamEnd::Ended),
            Err(panic) => return Err(StreamEnd::Panicked(panic_text(panic.as_ref()).to_owned())),
        };
        self.count_output(&event);
        answer.receive(&event).map_err(StreamEnd::Failed)?;
        Ok(match event {
            ModelEvent::Usage(usage) => ModelEvent::Usage(self.plausible(usage)),
            ModelEvent::FallbackUsage(usage, prices) => {
                ModelEvent::FallbackUsage(self.plausible(usage), prices)
            }
            ModelEvent::Done if !self.has_usage => {
                (self.has_usage, self.is_done) = (true, true);
                ModelEvent::Usage(Usage::counted(self.input_tokens, self.output_tokens))
            }
            event => event,
        })
    }

    /// Takes our count of a response that broke off before the model reported its usage, if any content had arrived:
    /// the provider charges for it.
    pub(super) fn take_unreported_usage(&mut self) -> Option<Usage> {
        let is_unreported = self.has_content && !std::mem::replace(&mut self.has_usage, true);
        let buffered_tokens = (self.buffered_bytes / BYTES_PER_TOKEN) as TokenCount;
        is_unreported.then(|| Usage::counted(self.input_tokens, self.output_tokens + buffered_tokens))
    }

    fn count_output(&mut self, event: &ModelEvent) {
        let tokens = match event {
            ModelEvent::Text(text) | ModelEvent::Reasoning(text) => self.provider.count(text),
            ModelEvent::ToolCall(call) => {
                self.buffered_bytes = 0;
                self.provider.count(&call.name) + self.provider.count(&call.arguments)
            }
            ModelEvent::Buffered(bytes) => {
                self.buffered_bytes = *bytes;
                0
            }
            _ => return,
        };
        self.has_content = true;
        self.output_tokens = self.output_tokens.saturating_add(tokens);
    }

    fn plausible(&mut self, usage: Usage) -> Usage {
        self.has_usage = true;
        let window_tokens = self.provider.spec().window_tokens;
        let checked = usage.or_counted(self.input_tokens, self.output_tokens, window_tokens);
        if checked.estimated > 0 {
            tracing::debug!(
                input = usage.input,
                output = usage.output,
                "the model's usage report cannot be true: counting tokens instead"
            );
        }
        checked
    }
}

impl Drop for GuardedStream {
    fn drop(&mut self) {
        let stream = std::mem::replace(&mut self.stream, Err(String::new()));
        if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(|| drop(stream))) {
            tracing::warn!(panic = panic_text(panic.as_ref()), "model stream panicked on drop");
        }
    }
}

impl StreamEnd {
    /// Converts to the fault of a turn.
    pub(super) fn into_fault(self) -> Fault {
        match self {
            StreamEnd::Failed(fault) => fault,
            StreamEnd::Ended => stream_ended(),
            StreamEnd::Panicked(text) => {
                Fault::new(FaultKind::Internal, "Internal error: the turn panicked").caused_by(text)
            }
        }
    }
}

/// The fault of a response that was cut off.
pub(super) fn stream_ended() -> Fault {
    let text = "Streaming response was interrupted before completion: the stream ended. \
                Partial output may have been displayed; retry the request.";
    Fault::new(FaultKind::Model, text)
}
