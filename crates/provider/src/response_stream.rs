//! Streaming response, read to the end of its body, also past its last event, so that the connection can be reused.
//! Holds its queue permit until then. The meaning of the events is left to the dialect.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use agent::outside::{ModelEvent, ModelStream};
use agent::{Fault, FaultKind};
use futures_util::stream;
use tokio::time::Instant;

use crate::dialect::ResponseDecoder;
use crate::endpoint::{Endpoint, error_chain};
use crate::error_class::{ErrorClass, ModelError, detect_context_full};
use crate::fair_queue::QueuePermit;
use crate::request_progress::ProgressSender;
use crate::sse::SseDecoder;

/// Most bytes of one response body.
const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Longest wait for the end of the body after the response is complete.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Idle timeouts that may pass without a complete event. Any byte resets the idle timeout itself, because busy servers
/// send SSE comments as keep-alive; without this limit, comments alone would hold a response open forever.
const IDLES_PER_EVENT: u32 = 5;

/// Change of the buffered bytes that is worth an event.
const BUFFERED_STEP_BYTES: usize = 64 * 1024;

/// One response whose head has arrived.
pub(crate) struct ResponseStream {
    endpoint: Arc<Endpoint>,
    response: reqwest::Response,
    events: SseDecoder,
    decoder: Box<dyn ResponseDecoder>,
    ready: VecDeque<Result<ModelEvent, Fault>>,
    bytes_read: usize,
    /// The last number of buffered bytes that was emitted.
    buffered_reported: usize,
    last_event_at: Instant,
    /// Deadline for the end of the body; set when the response is complete.
    drain_until: Option<Instant>,
    is_finished: bool,
    /// Released at the end of the response.
    permit: Option<QueuePermit>,
}

impl ResponseStream {
    /// Reads until the first content arrives. If none does, the request may be retried.
    pub(crate) async fn wait_for_content(
        endpoint: Arc<Endpoint>,
        response: reqwest::Response,
        decoder: Box<dyn ResponseDecoder>,
        progress: &ProgressSender,
    ) -> Result<Self, ModelError> {
        let mut stream = Self {
            endpoint,
            response,
            events: SseDecoder::default(),
            decoder,
            ready: VecDeque::new(),
            bytes_read: 0,
            buffered_reported: 0,
            last_event_at: Instant::now(),
            drain_until: None,
            is_finished: false,
            permit: None,
        };
        while stream.ready.is_empty() && !stream.decoder.has_started() && !stream.is_finished {
            if let Some(error) = stream.read_chunk().await {
                return Err(error);
            }
            progress.heartbeat();
        }
        if stream.decoder.has_started() {
            return Ok(stream);
        }
        match stream.ready.pop_front() {
            // The stream ended before any content.
            Some(Err(fault)) if stream.is_finished => {
                Err(ModelError::new(ErrorClass::Unavailable, detect_context_full(fault)))
            }
            Some(Err(fault)) => Err(ModelError::from_stream_fault(fault)),
            Some(Ok(event)) => {
                stream.ready.push_front(Ok(event));
                Ok(stream)
            }
            None => Ok(stream),
        }
    }

    pub(crate) fn into_stream(mut self, permit: QueuePermit) -> ModelStream {
        self.permit = Some(permit);
        let stream =
            stream::unfold(self, |mut stream| async move { stream.next().await.map(|item| (item, stream)) });
        Box::pin(stream)
    }

    async fn next(&mut self) -> Option<Result<ModelEvent, Fault>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                if item.is_err() || self.is_finished && self.ready.is_empty() {
                    self.is_finished = true;
                    self.ready.clear();
                    self.permit = None;
                }
                return Some(item.map_err(|fault| self.endpoint.redact_fault(detect_context_full(fault))));
            }
            if self.is_finished {
                return None;
            }
            if let Some(error) = self.read_chunk().await {
                self.ready.push_back(Err(error.fault));
            } else if self.ready.is_empty() && !self.is_finished {
                // A partial event or a keep-alive comment.
                return Some(Ok(ModelEvent::Heartbeat));
            }
        }
    }

    /// Reads the next chunk of the body. After the complete response it neither fails nor waits long: draining the body
    /// only serves to reuse the connection.
    async fn read_chunk(&mut self) -> Option<ModelError> {
        if let Some(until) = self.drain_until {
            let chunk = tokio::time::timeout_at(until, self.response.chunk()).await;
            if !matches!(chunk, Ok(Ok(Some(_)))) {
                self.finish();
            }
            return None;
        }
        let idle = self.endpoint.retry_policy.idle_timeout;
        let (idle_until, event_until) = (Instant::now() + idle, self.last_event_at + idle * IDLES_PER_EVENT);
        match tokio::time::timeout_at(idle_until.min(event_until), self.response.chunk()).await {
            Ok(Ok(Some(bytes))) => self.decode(&bytes),
            Ok(Ok(None)) => self.finish(),
            Ok(Err(fault)) => {
                return Some(
                    self.interrupted_error("the connection was cut")
                        .caused_by(error_chain(&fault.without_url())),
                );
            }
            Err(_) if event_until < idle_until => {
                let seconds = (idle * IDLES_PER_EVENT).as_secs_f64();
                return Some(
                    self.interrupted_error(&format!("the model sent no complete event for {seconds} s")),
                );
            }
            Err(_) => {
                return Some(
                    self.interrupted_error(&format!("the model was silent for {} s", idle.as_secs_f64())),
                );
            }
        }
        None
    }

    fn interrupted_error(&self, why: &str) -> ModelError {
        let text = if self.decoder.has_started() {
            format!(
                "Streaming response was interrupted before completion: {why}. \
                 Partial output may have been displayed; retry the request."
            )
        } else {
            format!("Streaming response failed before any data was received: {why}.")
        };
        ModelError::new(ErrorClass::Unavailable, Fault::new(FaultKind::Model, text))
    }

    fn finish(&mut self) {
        self.is_finished = true;
        let Self { decoder, ready, .. } = self;
        decoder.finish(&mut |event| ready.push_back(event));
    }

    fn decode(&mut self, bytes: &[u8]) {
        self.bytes_read += bytes.len();
        if self.bytes_read > RESPONSE_BYTES_MAX {
            self.ready.push_back(Err(Fault::new(FaultKind::Model, "The model's response is too long.")));
            return;
        }
        let Self { events, decoder, ready, last_event_at, endpoint, .. } = self;
        let fed = events.feed(bytes, |data| {
            let body = || endpoint.redact(&String::from_utf8_lossy(data));
            tracing::debug!(target: "nexus3::raw", direction = "chunk", body = %body());
            *last_event_at = Instant::now();
            decoder.decode(data, &mut |event| ready.push_back(event));
        });
        if fed.is_err() {
            ready.push_back(Err(Fault::new(FaultKind::Model, "The model sent an event that is too long.")));
        }
        let buffered = decoder.buffered_bytes() + events.buffered_bytes();
        if decoder.has_started() && buffered.abs_diff(self.buffered_reported) >= BUFFERED_STEP_BYTES {
            self.buffered_reported = buffered;
            ready.push_back(Ok(ModelEvent::Buffered(buffered)));
        }
        self.drain_until = self.decoder.is_complete().then(|| Instant::now() + DRAIN_TIMEOUT);
    }
}
