//! Event streams: the daemon's events, and the events of one streamed `send`. A stream has its own connection, which
//! closes when the stream is dropped.

#[cfg(test)]
mod tests;

use hyper::header::{ACCEPT, HeaderValue};
use nexus3_protocol::envelope::encode_request;
use nexus3_protocol::events::{EventQuery, RESPONSE_EVENT};
use nexus3_protocol::methods::{SendOutput, SendParams, spec};
use nexus3_protocol::sse::{MEDIA_TYPE, SseDecoder, SseEvent};
use nexus3_protocol::{Id, MethodSpec};

use crate::client::{
    CallTarget, Client, RESPONSE_BYTES_MAX, decode_response, error_chain, request_fault, target_path,
};
use crate::connection::{
    Connection, ConnectionFault, HttpRequest, HttpResponse, StreamingResponse, event_stream_get,
};
use crate::{AgentClient, ClientFault, Endpoint};

/// Name of the subscription request in error texts.
const EVENTS_METHOD: &str = "events";

/// What to subscribe to: one agent or all, cursor and filter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventSubscription {
    /// Only events of this agent; `None`: of all agents visible to the caller.
    pub agent_id: Option<String>,
    /// Cursor and filter.
    pub query: EventQuery,
}

/// A stream of events.
pub struct EventStream {
    endpoint: Endpoint,
    method: &'static str,
    response: StreamingResponse,
    decoder: SseDecoder,
}

/// A streamed `send`.
pub struct SendStream {
    events: EventStream,
    id: Id<'static>,
}

/// An item of a streamed `send`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendStep {
    /// An event of the turn.
    Event(SseEvent),
    /// The response; the stream ends with it.
    Response(Box<SendOutput>),
}

impl Client {
    /// Subscribes to events.
    ///
    /// # Errors
    /// When the daemon cannot be reached or rejects the request.
    pub async fn subscribe(&self, subscription: &EventSubscription) -> Result<EventStream, ClientFault> {
        let request = self.with_authorization(
            event_stream_get(self.endpoint(), &events_path(subscription)?).map_err(request_fault)?,
        );
        match self.open_stream(EVENTS_METHOD, request).await? {
            StreamStart::Events(stream) => Ok(*stream),
            StreamStart::Response(response) => Err(self.response_fault(EVENTS_METHOD, &response)),
        }
    }

    async fn open_stream(
        &self,
        method: &'static str,
        request: HttpRequest,
    ) -> Result<StreamStart, ClientFault> {
        let endpoint = self.endpoint().clone();
        let open = async {
            let connection = Connection::connect(&endpoint)
                .await
                .map_err(|source| ClientFault::Connect { endpoint: endpoint.clone(), source })?;
            let response = connection
                .send_streaming(request)
                .await
                .map_err(|fault| self.connection_fault(method, fault))?;
            if response.has_media_type(MEDIA_TYPE) {
                let (endpoint, decoder) = (endpoint.clone(), SseDecoder::new(RESPONSE_BYTES_MAX));
                return Ok(StreamStart::Events(Box::new(EventStream {
                    endpoint,
                    method,
                    response,
                    decoder,
                })));
            }
            let response = response
                .collect(RESPONSE_BYTES_MAX)
                .await
                .map_err(|fault| self.connection_fault(method, fault))?;
            Ok(StreamStart::Response(response))
        };
        tokio::time::timeout(self.timeout(), open).await.unwrap_or_else(|_| {
            Err(ClientFault::Timeout { endpoint: endpoint.clone(), method, after: self.timeout() })
        })
    }

    fn connection_fault(&self, method: &'static str, fault: ConnectionFault) -> ClientFault {
        match self.finish_exchange(method, Err(fault)) {
            Err(fault) => fault,
            Ok(response) => self.response_fault(method, &response),
        }
    }

    /// Converts a response that is not an event stream, usually a rejection, to an error.
    fn response_fault(&self, method: &'static str, response: &HttpResponse) -> ClientFault {
        let (endpoint, status) = (self.endpoint().clone(), response.status);
        match decode_response::<spec::Discover>(response, &Id::from(0)) {
            Ok(Err(error)) => ClientFault::Rpc { status, error },
            Ok(Ok(_)) => {
                let reason = "no event stream".to_owned();
                ClientFault::Protocol { endpoint, method, status, reason }
            }
            Err(reason) => ClientFault::Protocol { endpoint, method, status, reason },
        }
    }
}

impl AgentClient<'_> {
    /// Sends a message and streams the events of its turn, then the response.
    ///
    /// # Errors
    /// When the daemon cannot be reached or rejects the request.
    pub async fn send_streamed(&self, params: &SendParams) -> Result<SendStream, ClientFault> {
        let (client, method) = (self.client, spec::Send::METHOD.name());
        let id = client.next_id();
        let body = encode_request(Some(&id), method, params).map_err(request_fault)?;
        let mut request = client.post_request(CallTarget::Agent(&self.agent_id), body)?;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(MEDIA_TYPE));
        match client.open_stream(method, request).await? {
            StreamStart::Events(events) => Ok(SendStream { events: *events, id }),
            StreamStart::Response(response) => Err(client.response_fault(method, &response)),
        }
    }
}

enum StreamStart {
    Events(Box<EventStream>),
    Response(HttpResponse),
}

impl EventStream {
    /// Returns the next event, or `None` when the daemon has ended the stream. Cancel safe.
    ///
    /// # Errors
    /// When the connection fails or the data is not an event stream.
    pub async fn next(&mut self) -> Result<Option<SseEvent>, ClientFault> {
        loop {
            if let Some(event) =
                self.decoder.next_event().map_err(|fault| self.protocol_fault(&fault.to_string()))?
            {
                return Ok(Some(event));
            }
            let bytes = self.response.next_chunk().await.map_err(|fault| ClientFault::Transport {
                endpoint: self.endpoint.clone(),
                method: self.method,
                reason: error_chain(&fault),
            })?;
            let Some(bytes) = bytes else { return Ok(None) };
            self.decoder.feed(&bytes);
        }
    }

    /// The last sequence number received, with an event or alone: the cursor for resuming without gaps.
    #[must_use]
    pub fn cursor(&self) -> Option<u64> {
        self.decoder.last_event_id()?.parse().ok()
    }

    fn protocol_fault(&self, reason: &str) -> ClientFault {
        let (endpoint, method, status) = (self.endpoint.clone(), self.method, self.response.status());
        ClientFault::Protocol { endpoint, method, status, reason: reason.to_owned() }
    }
}

impl SendStream {
    /// Returns the next event or the response. Cancel safe.
    ///
    /// # Errors
    /// When the connection fails before the response, or when the response is an error.
    pub async fn next(&mut self) -> Result<SendStep, ClientFault> {
        let Some(event) = self.events.next().await? else {
            return Err(ClientFault::Transport {
                endpoint: self.events.endpoint.clone(),
                method: self.events.method,
                reason: "the stream ended before the response".to_owned(),
            });
        };
        if event.event != RESPONSE_EVENT {
            return Ok(SendStep::Event(event));
        }
        let status = self.events.response.status();
        let response = HttpResponse { status, body: event.data.into_bytes() };
        let outcome = decode_response::<spec::Send>(&response, &self.id)
            .map_err(|reason| self.events.protocol_fault(&reason))?;
        outcome
            .map(|output| SendStep::Response(Box::new(output)))
            .map_err(|error| ClientFault::Rpc { status, error })
    }
}

fn events_path(subscription: &EventSubscription) -> Result<String, ClientFault> {
    let agent_id = subscription.agent_id.as_deref();
    let base = agent_id.map_or(Ok(String::new()), |id| target_path(CallTarget::Agent(id)))?;
    Ok(format!("{base}/events{}", subscription.query.to_query_string()))
}
