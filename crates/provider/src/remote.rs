//! Client of a model on a server: acquires a permit, sends the request, retries by policy, and returns the response
//! stream. Dropping the stream cancels the request and leaves the queue.

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

/// Interval of heartbeats while the server prepares its response head.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);

/// A model client whose errors are classified, so that a fallback can take over.
pub(crate) trait ModelClient: Provider {
    /// Sends the request, with retries, until the response begins; reports progress meanwhile.
    fn start(
        &self,
        request: ModelRequest,
        progress: ProgressSender,
        has_fallback: HasFallback,
    ) -> ResponseFuture;
}

/// A model on a server; clones share it.
#[derive(Clone)]
pub(crate) struct RemoteModel {
    pub(crate) inner: Arc<Remote>,
}

/// State of a remote model.
pub(crate) struct Remote {
    /// Model name as the user configured it.
    pub(crate) name: String,
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) dialect: Arc<dyn Dialect>,
    /// URL that requests are posted to.
    pub(crate) url: reqwest::Url,
    pub(crate) options: ModelOptions,
    pub(crate) spec: ModelSpec,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) prefix_cache: Arc<PrefixCache>,
    /// Whether requests name the agent tree.
    pub(crate) root_header: RootHeader,
}

/// Advice added to the rejection of a request with images.
const IMAGES_ADVICE: &str = "(The conversation contains images. If one of them is the cause: remove its message with \
                               rollback_agent, or older ones with compact.)";

/// Whether requests carry the `x-nexus-root` header, which lets the server schedule the agent trees fairly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RootHeader {
    Send,
    Omit,
}

impl Remote {
    async fn start(
        self: Arc<Self>,
        request: ModelRequest,
        progress: ProgressSender,
        has_fallback: HasFallback,
    ) -> Result<ModelStream, ModelError> {
        let started = self.call_with_retries(&request, &progress, has_fallback).await;
        started.map_err(|error| {
            let error = error.map_fault(|fault| self.endpoint.redact_fault(fault));
            let has_images = |message: &Arc<Message>| !message.images.is_empty();
            // An image that the server rejects would fail every later request of the conversation.
            if error.class == ErrorClass::Invalid && request.messages.iter().any(has_images) {
                return error.map_fault(|fault| Fault {
                    public: format!("{} {IMAGES_ADVICE}", fault.public).into(),
                    ..fault
                });
            }
            error
        })
    }

    async fn call_with_retries(
        &self,
        request: &ModelRequest,
        progress: &ProgressSender,
        has_fallback: HasFallback,
    ) -> Result<ModelStream, ModelError> {
        let encoded = self.dialect.encode(&self.options, request, &self.prefix_cache);
        let body = encoded.map_err(|fault| ModelError::new(ErrorClass::Invalid, fault))?;
        tracing::debug!(target: "nexus3::raw", direction = "request", body = %BodyText(&body));
        let request_headers = match self.root_header {
            RootHeader::Send => vec![("x-nexus-root", request.requester.root.to_string())],
            RootHeader::Omit => Vec::new(),
        };
        let (queue, policy) = (&self.endpoint.queue, &self.endpoint.retry_policy);
        queue.record_request();
        let mut cool_down_max = match has_fallback {
            HasFallback::No => CoolDownMax::For(policy.total_timeout),
            HasFallback::Yes => {
                CoolDownMax::Until(Instant::now() + policy.total_timeout.min(FALLBACK_WAIT_MAX))
            }
        };
        let mut last: Option<ModelError> = None;
        for tries in 1.. {
            progress.mark_waiting();
            let permit = match queue.acquire(request.requester.root, cool_down_max, has_fallback).await {
                Ok(permit) => permit,
                Err(not_sent) => return Err(last.unwrap_or(not_sent)),
            };
            progress.mark_sent();
            let deadline = cool_down_max.deadline();
            cool_down_max = CoolDownMax::Until(deadline);
            let error = match self.call_once(&body, &request_headers, progress).await {
                Ok(stream) => {
                    permit.record_outcome(RequestOutcome::Available);
                    return Ok(stream.into_stream(permit));
                }
                Err(error) => error.with_attempts(tries),
            };
            permit.record_outcome(request_outcome(&error));
            drop(permit);
            let pause = error.retry_after.unwrap_or_default().max(backoff(tries));
            let is_last = tries >= policy.tries_max || Instant::now() + pause > deadline;
            if !error.class.is_retryable() || is_last || !queue.withdraw_retry() {
                return Err(error);
            }
            let fault = self.endpoint.redact_fault(error.fault.clone());
            tracing::info!(model = self.name, tries, pause_ms = pause.as_millis(), "retrying: {fault}");
            last = Some(error);
            progress.mark_waiting();
            tokio::time::sleep(pause).await;
        }
        Err(last.unwrap_or_else(|| {
            ModelError::unavailable("API request timed out", "too many attempts".to_owned())
        }))
    }

    async fn call_once(
        &self,
        body: &[bytes::Bytes],
        request_headers: &[(&'static str, String)],
        progress: &ProgressSender,
    ) -> Result<ResponseStream, ModelError> {
        let headers = self.dialect.headers();
        let sending = self.endpoint.send(OutgoingRequest { url: &self.url, body, headers, request_headers });
        let response = match self.endpoint.retry_policy.first_byte_wait {
            FirstByteWait::Silent => sending.await?,
            FirstByteWait::Heartbeat => with_heartbeats(sending, progress).await?,
        };
        ResponseStream::wait_for_content(
            Arc::clone(&self.endpoint),
            response,
            self.dialect.decoder(),
            progress,
        )
        .await
    }
}

/// Emits heartbeats until the response head arrives or the request fails.
async fn with_heartbeats<T>(response: impl Future<Output = T>, progress: &ProgressSender) -> T {
    let mut response = std::pin::pin!(response);
    loop {
        match tokio::time::timeout(HEARTBEAT_INTERVAL, &mut response).await {
            Ok(response) => return response,
            Err(_) => progress.heartbeat(),
        }
    }
}

fn request_outcome(error: &ModelError) -> RequestOutcome {
    match error.class {
        ErrorClass::Unavailable => RequestOutcome::Unavailable(error.retry_after),
        ErrorClass::RateLimited => RequestOutcome::RateLimited(error.retry_after),
        ErrorClass::Refused | ErrorClass::Invalid | ErrorClass::ContextFull | ErrorClass::NotSent => {
            RequestOutcome::Available
        }
    }
}

/// Request body as text, for the raw log.
struct BodyText<'b>(&'b [bytes::Bytes]);

impl std::fmt::Display for BodyText<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A piece may end within a UTF-8 character.
        out.write_str(&String::from_utf8_lossy(&self.0.concat()))
    }
}

impl ModelClient for RemoteModel {
    fn start(
        &self,
        request: ModelRequest,
        progress: ProgressSender,
        has_fallback: HasFallback,
    ) -> ResponseFuture {
        Box::pin(Arc::clone(&self.inner).start(request, progress, has_fallback))
    }
}

impl Provider for RemoteModel {
    fn call(&self, request: ModelRequest) -> ModelStream {
        stream_with_progress(|progress| self.start(request, progress, HasFallback::No))
    }

    fn model(&self) -> Option<&str> {
        Some(&self.inner.name)
    }

    fn spec(&self) -> &ModelSpec {
        &self.inner.spec
    }

    fn count(&self, text: &str) -> TokenCount {
        self.inner.tokenizer.count(text)
    }
}

/// Returns a stream that yields only this fault.
pub(crate) fn fault_stream(fault: Fault) -> ModelStream {
    Box::pin(stream::once(std::future::ready(Err(fault))))
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn heartbeats_are_emitted_until_the_response_head() {
        let stream = stream_with_progress(|progress| {
            Box::pin(async move {
                progress.mark_sent();
                with_heartbeats(tokio::time::sleep(Duration::from_secs(25)), &progress).await;
                Ok(fault_stream(Fault::new(agent::FaultKind::Model, "the end")))
            })
        });
        let events: Vec<_> = stream.collect().await;
        assert_eq!(events.len(), 3, "{events:?}");
        assert!(
            events[..2].iter().all(|item| *item == Ok(agent::outside::ModelEvent::Heartbeat)),
            "{events:?}"
        );
    }
}
