//! Model responses behind a panic barrier. The only caller of [`Provider::call`](agent::outside::Provider::call), for
//! turns and for summaries: a panic of the provider fails the call, not the actor.

use std::panic::AssertUnwindSafe;

use agent::outside::{ModelEvent, ModelRequest, ModelStream, Requester};
use agent::{Fault, FaultKind};
use futures_util::{FutureExt, StreamExt};

use super::turn_driver::panic_text;
use crate::handle::Shared;

/// A streaming model response. Dropping it cancels the request.
pub(super) struct GuardedStream {
    /// The stream, or the text of the panic that prevented it.
    stream: Result<ModelStream, String>,
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
    /// Calls the agent's model.
    pub(super) fn start(shared: &Shared, request: ModelRequest) -> Self {
        let requester = Requester { agent: Some(shared.id.clone()), root: shared.node.root() };
        let request = ModelRequest { requester, ..request };
        let stream = std::panic::catch_unwind(AssertUnwindSafe(|| shared.provider.call(request)));
        Self { stream: stream.map_err(|panic| panic_text(panic.as_ref()).to_owned()) }
    }

    /// Waits for the next event. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<ModelEvent, StreamEnd> {
        let stream = self.stream.as_mut().map_err(|panic| StreamEnd::Panicked(panic.clone()))?;
        match AssertUnwindSafe(stream.next()).catch_unwind().await {
            Ok(Some(event)) => event.map_err(StreamEnd::Failed),
            Ok(None) => Err(StreamEnd::Ended),
            Err(panic) => Err(StreamEnd::Panicked(panic_text(panic.as_ref()).to_owned())),
        }
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
