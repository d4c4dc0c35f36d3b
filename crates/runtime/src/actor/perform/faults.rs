//! What is said when a model ends without a word or panics.

use std::any::Any;

use agent::{Fault, FaultKind};

pub(super) fn silent() -> Fault {
    let text = "Streaming response was interrupted before completion: the stream ended. \
                Partial output may have been displayed; retry the request.";
    Fault::new(FaultKind::Model, text)
}

pub(super) fn panicked(panic: &(dyn Any + Send)) -> Fault {
    Fault::new(FaultKind::Internal, "Internal error: the turn panicked").caused_by(panic_text(panic))
}

pub(super) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}
