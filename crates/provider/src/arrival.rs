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
use crate::failing::{Class, Failing, recognised};
use crate::fair_queue::QueuePermit;
use crate::sse::SseDecoder;
use crate::standing::Teller;

/// The most bytes one answer may have, with all its events around it.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How long the end of a body may take once the answer in it is whole.
const TAIL_TIMEOUT: Duration = Duration::from_secs(1);

/// How many times the idle time may pass without one whole event. Idle is told by bytes, because servers that are busy
/// write comments to stay connected; but what never becomes an event is no answer.
const IDLES_PER_EVENT: u32 = 5;

pub(crate) struct Arrival {
    endpoint: Arc<Endpoint>,
    response: reqwest::Response,
    events: SseDecoder,
    answer: Box<dyn ResponseDecoder>,
    ready: VecDeque<Result<ModelEvent, Fault>>,
    bytes_read: usize,
    heard: Instant,
    /// Until when the end of the body is waited for; set when the answer is whole.
    tail_until: Option<Instant>,
    over: bool,
    /// Given back when the answer is over.
    place: Option<QueuePermit>,
}

impl Arrival {
    /// Reads until something of the answer has come. When nothing of it does, it may be asked for again.
    pub(crate) async fn begin(
        endpoint: Arc<Endpoint>,
        response: reqwest::Response,
        answer: Box<dyn ResponseDecoder>,
        teller: &Teller,
    ) -> Result<Self, Failing> {
        let mut arrival = Self {
            endpoint,
            response,
            events: SseDecoder::default(),
            answer,
            ready: VecDeque::new(),
            bytes_read: 0,
            heard: Instant::now(),
            tail_until: None,
            over: false,
            place: None,
        };
        while arrival.ready.is_empty() && !arrival.answer.has_started() && !arrival.over {
            if let Some(failing) = arrival.read_on().await {
                return Err(failing);
            }
            teller.lives();
        }
        if arrival.answer.has_started() {
            return Ok(arrival);
        }
        match arrival.ready.pop_front() {
            // The stream ended where an answer should have begun.
            Some(Err(fault)) if arrival.over => Err(Failing::new(Class::Down, recognised(fault))),
            Some(Err(fault)) => Err(Failing::of_stream(fault)),
            Some(Ok(event)) => {
                arrival.ready.push_front(Ok(event));
                Ok(arrival)
            }
            None => Ok(arrival),
        }
    }

    pub(crate) fn stream(mut self, place: QueuePermit) -> ModelStream {
        self.place = Some(place);
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
                if item.is_err() || self.over && self.ready.is_empty() {
                    self.over = true;
                    self.ready.clear();
                    self.place = None;
                }
                return Some(item.map_err(|fault| self.endpoint.redact_fault(recognised(fault))));
            }
            if self.over {
                return None;
            }
            if let Some(failing) = self.read_on().await {
                self.ready.push_back(Err(failing.fault));
            } else if self.ready.is_empty() && !self.over {
                // Part of an event, or a comment to keep the connection alive.
                return Some(Ok(ModelEvent::Alive));
            }
        }
    }

    /// Takes more of the body. Behind a whole answer it may neither fail nor take long: all that is left to win is
    /// the connection.
    async fn read_on(&mut self) -> Option<Failing> {
        if let Some(until) = self.tail_until {
            let chunk = tokio::time::timeout_at(until, self.response.chunk()).await;
            if !matches!(chunk, Ok(Ok(Some(_)))) {
                self.end();
            }
            return None;
        }
        let idle = self.endpoint.patience.idle;
        let (idle_until, event_until) = (Instant::now() + idle, self.heard + idle * IDLES_PER_EVENT);
        match tokio::time::timeout_at(idle_until.min(event_until), self.response.chunk()).await {
            Ok(Ok(Some(bytes))) => self.take(&bytes),
            Ok(Ok(None)) => self.end(),
            Ok(Err(fault)) => {
                return Some(self.cut("the connection was cut").caused_by(error_chain(&fault.without_url())));
            }
            Err(_) if event_until < idle_until => {
                let seconds = (idle * IDLES_PER_EVENT).as_secs_f64();
                return Some(self.cut(&format!("the model sent nothing whole for {seconds} s")));
            }
            Err(_) => {
                return Some(self.cut(&format!("the model was silent for {} s", idle.as_secs_f64())));
            }
        }
        None
    }

    fn cut(&self, why: &str) -> Failing {
        let text = if self.answer.has_started() {
            format!(
                "Streaming response was interrupted before completion: {why}. \
                 Partial output may have been displayed; retry the request."
            )
        } else {
            format!("Streaming response failed before any data was received: {why}.")
        };
        Failing::new(Class::Down, Fault::new(FaultKind::Model, text))
    }

    fn end(&mut self) {
        self.over = true;
        let Self { answer, ready, .. } = self;
        answer.finish(&mut |event| ready.push_back(event));
    }

    fn take(&mut self, bytes: &[u8]) {
        self.bytes_read += bytes.len();
        if self.bytes_read > ANSWER_BYTES_MAX {
            self.ready.push_back(Err(Fault::new(FaultKind::Model, "The model's answer is too long.")));
            return;
        }
        let Self { events, answer, ready, heard, endpoint, .. } = self;
        let fed = events.feed(bytes, |data| {
            let body = || endpoint.redact(&String::from_utf8_lossy(data));
            tracing::debug!(target: "nexus3::raw", direction = "chunk", body = %body());
            *heard = Instant::now();
            answer.decode(data, &mut |event| ready.push_back(event));
        });
        if fed.is_err() {
            ready.push_back(Err(Fault::new(FaultKind::Model, "The model sent an event that is too long.")));
        }
        self.tail_until = self.answer.is_complete().then(|| Instant::now() + TAIL_TIMEOUT);
    }
}
