//! Reads request bodies with limits on size, time, and the number of large bodies in memory.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::{Body, Incoming};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::refusal::Refusal;

/// Largest accepted body.
const BODY_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Bytes of an oversized body that are read and discarded, so that the client finishes sending and reads the 413.
const DRAINED_BYTES_MAX: u64 = 4 * BODY_BYTES_MAX;

const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Largest body that needs no permit; a conversation that fits a small model's context window is smaller.
const SMALL_BYTES_MAX: u64 = 1024 * 1024;

/// Larger bodies that may be read, queued or processed at a time.
const LARGE_BODIES_MAX: usize = 4;

/// Reader of request bodies, shared by all connections.
pub(super) struct BodyReader {
    large_body_permits: Arc<Semaphore>,
}

/// A request body.
pub(super) struct ReceivedBody {
    pub(super) body: Vec<u8>,
    /// Permit of a large body; held until its request is finished.
    pub(super) permit: Option<OwnedSemaphorePermit>,
}

impl BodyReader {
    pub(super) fn new() -> Self {
        Self { large_body_permits: Arc::new(Semaphore::new(LARGE_BODIES_MAX)) }
    }

    pub(super) async fn read(&self, body: Incoming) -> Result<ReceivedBody, Refusal> {
        // A body without Content-Length may become as large as the limit.
        let bytes = body.size_hint().exact().unwrap_or(BODY_BYTES_MAX);
        if bytes > DRAINED_BYTES_MAX {
            return Err(too_large());
        }
        let permit = match bytes {
            0..=SMALL_BYTES_MAX => None,
            _ => {
                Some(Arc::clone(&self.large_body_permits).try_acquire_owned().map_err(|_| too_many_large())?)
            }
        };
        let collected = tokio::time::timeout(BODY_TIMEOUT, collect(body)).await;
        let timed_out = |_| {
            let text = format!("the request body did not arrive within {} s", BODY_TIMEOUT.as_secs());
            Refusal::invalid_with_status(StatusCode::REQUEST_TIMEOUT, text)
        };
        Ok(ReceivedBody { body: collected.map_err(timed_out)??, permit })
    }
}

async fn collect(mut body: Incoming) -> Result<Vec<u8>, Refusal> {
    let mut content = Vec::new();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|fault| Refusal::invalid(format!("reading the body failed: {fault}")))?;
        let Ok(part) = frame.into_data() else { continue };
        bytes += part.len() as u64;
        if bytes > DRAINED_BYTES_MAX {
            break;
        }
        if bytes > BODY_BYTES_MAX {
            content = Vec::new();
        } else {
            content.extend_from_slice(&part);
        }
    }
    if bytes > BODY_BYTES_MAX { Err(too_large()) } else { Ok(content) }
}

fn too_large() -> Refusal {
    let text = format!("the request body is larger than {BODY_BYTES_MAX} bytes");
    Refusal::invalid_with_status(StatusCode::PAYLOAD_TOO_LARGE, text)
}

fn too_many_large() -> Refusal {
    Refusal::busy("too many large requests in flight; retry later")
}
