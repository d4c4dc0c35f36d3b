//! An answer on its way, from its head to the end of its body, also past its last event, so that the connection can be
//! used again. Holds its place at the gate until then. What the events mean is left to the dialect.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use agent::outside::{ModelEvent, ModelStream};
use agent::{Fault, FaultKind};
use futures_util::stream;
use tokio::time::Instant;

use crate::dialect::ResponseDecoder;
use crate::endpoint::{Endpoint, error_chain};
use crate::error_class::{ErrorClass, ModelError, reclassify};
use crate::fair_queue::QueuePermit;
use crate::request_progress::ProgressSender;
use crate::sse::SseDecoder;

/// The most bytes one answer may have, with all its events around it.
const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How long the end of a body may take once the answer in it is whole.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// How many times the idle time may pass without one whole event. Idle is told by bytes, because servers that are busy
/// write comments to stay connected; but what never becomes an event is no answer.
const IDLES_PER_EVENT: u32 = 5;

pub(crate) struct ResponseStream {
    endpoint: Arc<Endpoint>,
    response: reqwest::Response,
    events: SseDecoder,
    decoder: Box<dyn ResponseDecoder>,
    ready: VecDeque<Result<ModelEvent, Fault>>,
    bytes_read: usize,
    last_event_at: Instant,
    /// Until when the end of the body is waited for; set when the answer is whole.
    drain_until: Option<Instant>,
    is_finished: bool,
    /// Given back when the answer is over.
    permit: Option<QueuePermit>,
}

impl ResponseStream {
    /// Reads until something of the answer has come. When nothing of it does, it may be asked for again.
    pub(crate) async fn wait_for_content(
        endpoint: Arc<Endpoint>,
        response: reqwest::Response,
        answer: Box<dyn ResponseDecoder>,
        teller: &ProgressSender,
    ) -> Result<Self, ModelError> {
        let mut arrival = Self {
            endpoint,
            response,
            events: SseDecoder::default(),
            decoder: answer,
            ready: VecDeque::new(),
            bytes_read: 0,
            last_event_at: Instant::now(),
            drain_until: None,
            is_finished: false,
            permit: None,
        };
        while arrival.ready.is_empty() && !arrival.decoder.has_started() && !arrival.is_finished {
            if let Some(failing) = arrival.read_chunk().await {
                return Err(failing);
            }
            teller.heartbeat();
        }
        if arrival.decoder.has_started() {
            return Ok(arrival);
        }
        match arrival.ready.pop_front() {
            // The stream ended where an answer should have begun.
            Some(Err(fault)) if arrival.is_finished => {
                Err(ModelError::new(ErrorClass::Unavailable, reclassify(fault)))
            }
            Some(Err(fault)) => Err(ModelError::from_stream_fault(fault)),
            Some(Ok(event)) => {
                arrival.ready.push_front(Ok(event));
                Ok(arrival)
            }
            None => Ok(arrival),
        }
    }

    pub(crate) fn into_stream(mut self, place: QueuePermit) -> ModelStream {
        self.permit = Some(place);
        let stream =
            stream::unfold(
                self,
                |mut arrival| async move { arrival.next().await.map(|item| (item, arrival)) },
            );
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
                return Some(item.map_err(|fault| self.endpoint.redact_fault(reclassify(fault))));
            }
            if self.is_finished {
                return None;
            }
            if let Some(failing) = self.read_chunk().await {
                self.ready.push_back(Err(failing.fault));
            } else if self.ready.is_empty() && !self.is_finished {
                // Part of an event, or a comment to keep the connection alive.
                return Some(Ok(ModelEvent::Heartbeat));
            }
        }
    }

    /// Takes more of the body. Behind a whole answer it may neither fail nor take long: all that is left to win is
    /// the connection.
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
                    self.interrupted_error(&format!("the model sent nothing whole for {seconds} s")),
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
        let Self { decoder: answer, ready, .. } = self;
        answer.finish(&mut |event| ready.push_back(event));
    }

    fn decode(&mut self, bytes: &[u8]) {
        self.bytes_read += bytes.len();
        if self.bytes_read > RESPONSE_BYTES_MAX {
            self.ready.push_back(Err(Fault::new(FaultKind::Model, "The model's answer is too long.")));
            return;
        }
        let Self { events, decoder: answer, ready, last_event_at: heard, endpoint, .. } = self;
        let fed = events.feed(bytes, |data| {
            let body = || endpoint.redact(&String::from_utf8_lossy(data));
            tracing::debug!(target: "nexus3::raw", direction = "chunk", body = %body());
            *heard = Instant::now();
            answer.decode(data, &mut |event| ready.push_back(event));
        });
        if fed.is_err() {
            ready.push_back(Err(Fault::new(FaultKind::Model, "The model sent an event that is too long.")));
        }
        self.drain_until = self.decoder.is_complete().then(|| Instant::now() + DRAIN_TIMEOUT);
    }
}
