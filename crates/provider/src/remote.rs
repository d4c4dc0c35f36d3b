//! A model behind a server: waits at the gate, asks, asks again where that may help, and reads the answer. A dropped
//! stream ends its request and leaves the queue.

use std::sync::Arc;
use std::time::Duration;

use agent::outside::{ModelRequest, ModelSpec, ModelStream, Provider};
use agent::{Fault, Message, TokenCount};
use futures_util::stream;
use tokio::time::Instant;

use crate::dialect::{Dialect, ModelOptions};
use crate::endpoint::{Endpoint, OutgoingRequest};
use crate::error_class::{ErrorClass, ModelError};
use crate::fair_queue::{CoolDownMax, RequestOutcome};
use crate::prefix_cache::PrefixCache;
use crate::request_progress::{ProgressSender, ResponseFuture, stream_with_progress};
use crate::response_stream::ResponseStream;
use crate::retry_policy::{FALLBACK_WAIT_MAX, FirstByteWait, HasFallback, backoff};
use crate::tokenizer::Tokenizer;

/// How often it is told that a server still works at the head of its answer.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);

/// A model whose failing is sorted, so that another can be asked in its place.
pub(crate) trait ModelClient: Provider {
    /// Asks until the answer begins, and tells how the question stands meanwhile.
    fn start(&self, request: ModelRequest, teller: ProgressSender, behind: HasFallback) -> ResponseFuture;
}

/// A model behind a server.
#[derive(Clone)]
pub(crate) struct RemoteModel {
    pub(crate) inner: Arc<Remote>,
}

pub(crate) struct Remote {
    /// As the user names it.
    pub(crate) name: String,
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) dialect: Arc<dyn Dialect>,
    /// Where questions go.
    pub(crate) url: reqwest::Url,
    pub(crate) options: ModelOptions,
    pub(crate) traits: ModelSpec,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) prefix_cache: Arc<PrefixCache>,
    /// Whether the server is told which tree asks.
    pub(crate) root_header: RootHeader,
}

/// What is said with a refusal of a question that shows pictures.
const IMAGES_ADVICE: &str = "(The conversation shows pictures. If one of them is why: rollback_agent takes the message out, \
                               compact the older ones.)";

/// Whether a server is told which tree asks, to be fair between them itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RootHeader {
    Send,
    Omit,
}

impl Remote {
    async fn start(
        self: Arc<Self>,
        request: ModelRequest,
        teller: ProgressSender,
        behind: HasFallback,
    ) -> Result<ModelStream, ModelError> {
        let begun = self.call_with_retries(&request, &teller, behind).await;
        begun.map_err(|failing| {
            let failing = failing.map_fault(|fault| self.endpoint.redact_fault(fault));
            let shows = |message: &Arc<Message>| !message.images.is_empty();
            // A picture that a server does not take would be refused with every question that follows.
            if failing.class == ErrorClass::Invalid && request.messages.iter().any(shows) {
                return failing.map_fault(|fault| Fault {
                    public: format!("{} {IMAGES_ADVICE}", fault.public).into(),
                    ..fault
                });
            }
            failing
        })
    }

    async fn call_with_retries(
        &self,
        request: &ModelRequest,
        teller: &ProgressSender,
        behind: HasFallback,
    ) -> Result<ModelStream, ModelError> {
        let written = self.dialect.encode(&self.options, request, &self.prefix_cache);
        let body = written.map_err(|fault| ModelError::new(ErrorClass::Invalid, fault))?;
        tracing::debug!(target: "nexus3::raw", direction = "request", body = %BodyText(&body));
        let own_headers = match self.root_header {
            RootHeader::Send => vec![("x-nexus-root", request.requester.root.to_string())],
            RootHeader::Omit => Vec::new(),
        };
        let (gate, patience) = (&self.endpoint.queue, &self.endpoint.retry_policy);
        gate.record_request();
        let mut rest_max = match behind {
            HasFallback::No => CoolDownMax::For(patience.total_timeout),
            HasFallback::Yes => {
                CoolDownMax::Until(Instant::now() + patience.total_timeout.min(FALLBACK_WAIT_MAX))
            }
        };
        let mut last: Option<ModelError> = None;
        for tries in 1.. {
            teller.mark_waiting();
            let place = match gate.acquire(request.requester.root, rest_max, behind).await {
                Ok(place) => place,
                Err(unasked) => return Err(last.unwrap_or(unasked)),
            };
            teller.mark_sent();
            let deadline = rest_max.deadline();
            rest_max = CoolDownMax::Until(deadline);
            let failing = match self.call_once(&body, &own_headers, teller).await {
                Ok(reading) => {
                    place.record_outcome(RequestOutcome::Available);
                    return Ok(reading.into_stream(place));
                }
                Err(failing) => failing.with_attempts(tries),
            };
            place.record_outcome(request_outcome(&failing));
            drop(place);
            let pause = failing.retry_after.unwrap_or_default().max(backoff(tries));
            let is_last = tries >= patience.tries_max || Instant::now() + pause > deadline;
            if !failing.class.is_retryable() || is_last || !gate.withdraw_retry() {
                return Err(failing);
            }
            let fault = self.endpoint.redact_fault(failing.fault.clone());
            tracing::info!(model = self.name, tries, pause_ms = pause.as_millis(), "asking again: {fault}");
            last = Some(failing);
            teller.mark_waiting();
            tokio::time::sleep(pause).await;
        }
        Err(last.unwrap_or_else(|| {
            ModelError::unavailable("API request timed out", "it was tried too often".to_owned())
        }))
    }

    async fn call_once(
        &self,
        body: &[bytes::Bytes],
        own_headers: &[(&'static str, String)],
        teller: &ProgressSender,
    ) -> Result<ResponseStream, ModelError> {
        let headers = self.dialect.headers();
        let sending = self.endpoint.send(OutgoingRequest {
            url: &self.url,
            body,
            headers,
            request_headers: own_headers,
        });
        let response = match self.endpoint.retry_policy.first_byte_wait {
            FirstByteWait::Silent => sending.await?,
            FirstByteWait::Heartbeat => with_heartbeats(sending, teller).await?,
        };
        ResponseStream::wait_for_content(Arc::clone(&self.endpoint), response, self.dialect.decoder(), teller)
            .await
    }
}

/// Tells now and then that the server is at it, until it has answered or was given up.
async fn with_heartbeats<T>(answer: impl Future<Output = T>, teller: &ProgressSender) -> T {
    let mut answer = std::pin::pin!(answer);
    loop {
        match tokio::time::timeout(HEARTBEAT_INTERVAL, &mut answer).await {
            Ok(answer) => return answer,
            Err(_) => teller.heartbeat(),
        }
    }
}

fn request_outcome(failing: &ModelError) -> RequestOutcome {
    match failing.class {
        ErrorClass::Unavailable => RequestOutcome::Unavailable(failing.retry_after),
        ErrorClass::RateLimited => RequestOutcome::RateLimited(failing.retry_after),
        ErrorClass::Refused | ErrorClass::Invalid | ErrorClass::ContextFull | ErrorClass::NotSent => {
            RequestOutcome::Available
        }
    }
}

/// A body for the log.
struct BodyText<'b>(&'b [bytes::Bytes]);

impl std::fmt::Display for BodyText<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Pieces may end in the middle of a letter.
        let whole: Vec<u8> = self.0.concat();
        out.write_str(&String::from_utf8_lossy(&whole))
    }
}

impl ModelClient for RemoteModel {
    fn start(&self, request: ModelRequest, teller: ProgressSender, behind: HasFallback) -> ResponseFuture {
        Box::pin(Arc::clone(&self.inner).start(request, teller, behind))
    }
}

impl Provider for RemoteModel {
    fn call(&self, request: ModelRequest) -> ModelStream {
        stream_with_progress(|teller| self.start(request, teller, HasFallback::No))
    }

    fn model(&self) -> Option<&str> {
        Some(&self.inner.name)
    }

    fn spec(&self) -> &ModelSpec {
        &self.inner.traits
    }

    fn count(&self, text: &str) -> TokenCount {
        self.inner.tokenizer.count(text)
    }
}

/// A model that is only a fault: it was named, and cannot be reached for a reason that is known.
pub(crate) fn fault_stream(fault: Fault) -> ModelStream {
    Box::pin(stream::once(std::future::ready(Err(fault))))
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_reads_its_model_is_told_alive_until_it_answers() {
        let stream = stream_with_progress(|teller| {
            Box::pin(async move {
                teller.mark_sent();
                with_heartbeats(tokio::time::sleep(Duration::from_secs(25)), &teller).await;
                Ok(fault_stream(Fault::new(agent::FaultKind::Model, "the end")))
            })
        });
        let told: Vec<_> = stream.collect().await;
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[..2].iter().all(|item| *item == Ok(agent::outside::ModelEvent::Heartbeat)), "{told:?}");
    }
}
