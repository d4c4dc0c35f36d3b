//! Reading bodies within their bounds: of one body, of its time, and of how many large ones are in the house.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::{Body, Incoming};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::refusal::Refusal;

/// The largest body.
const BODY_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// What is read and thrown away of one that is too large, so that its sender comes to read the refusal.
const DRAINED_BYTES_MAX: u64 = 4 * BODY_BYTES_MAX;

const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// No conversation that fits a small model's window is larger than this.
const SMALL_BYTES_MAX: u64 = 1024 * 1024;

/// Larger ones that may be read, wait or be worked on at a time.
const LARGE_BODIES_MAX: usize = 4;

/// Takes bodies in.
pub(super) struct BodyReader {
    large_body_permits: Arc<Semaphore>,
}

/// A body that was read.
pub(super) struct ReceivedBody {
    pub(super) body: Vec<u8>,
    /// Kept as long as what was read from the body is.
    pub(super) permit: Option<OwnedSemaphorePermit>,
}

impl BodyReader {
    pub(super) fn new() -> Self {
        Self { large_body_permits: Arc::new(Semaphore::new(LARGE_BODIES_MAX)) }
    }

    pub(super) async fn read(&self, body: Incoming) -> Result<ReceivedBody, Refusal> {
        // A sender that does not say how much comes may send as much as there may be.
        let bytes = body.size_hint().exact().unwrap_or(BODY_BYTES_MAX);
        if bytes > DRAINED_BYTES_MAX {
            return Err(too_large());
        }
        let place = match bytes {
            0..=SMALL_BYTES_MAX => None,
            _ => {
                Some(Arc::clone(&self.large_body_permits).try_acquire_owned().map_err(|_| too_many_large())?)
            }
        };
        let read = tokio::time::timeout(BODY_TIMEOUT, collect(body)).await;
        let late = |_| Refusal::invalid_with_status(StatusCode::REQUEST_TIMEOUT, "the body took too long");
        Ok(ReceivedBody { body: read.map_err(late)??, permit: place })
    }
}

async fn collect(mut body: Incoming) -> Result<Vec<u8>, Refusal> {
    let mut kept = Vec::new();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|fault| Refusal::invalid(format!("the body broke off: {fault}")))?;
        let Ok(part) = frame.into_data() else { continue };
        bytes += part.len() as u64;
        if bytes > DRAINED_BYTES_MAX {
            break;
        }
        if bytes > BODY_BYTES_MAX {
            kept = Vec::new();
        } else {
            kept.extend_from_slice(&part);
        }
    }
    if bytes > BODY_BYTES_MAX { Err(too_large()) } else { Ok(kept) }
}

fn too_large() -> Refusal {
    let text = format!("the body is larger than {BODY_BYTES_MAX} bytes");
    Refusal::invalid_with_status(StatusCode::PAYLOAD_TOO_LARGE, text)
}

fn too_many_large() -> Refusal {
    Refusal::busy("too many large requests are in work; ask again later")
}
