//! What comes piece by piece: the daemon's events, and a turn while it is worked on. A stream has its own connection,
//! which ends when it is dropped.

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

/// How faults name the call that watches.
const EVENTS_METHOD: &str = "events";

/// Which events to watch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventSubscription {
    /// Only this agent's; all that the caller may see when there is none.
    pub agent_id: Option<String>,
    /// Where to begin and which kinds.
    pub query: EventQuery,
}

/// Events as they come.
pub struct EventStream {
    endpoint: Endpoint,
    method: &'static str,
    response: StreamingResponse,
    decoder: SseDecoder,
}

/// A send as it is worked on.
pub struct SendStream {
    events: EventStream,
    id: Id<'static>,
}

/// One step of a streamed send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendStep {
    /// Something happened in the turn.
    Event(SseEvent),
    /// The turn is over; nothing more comes.
    Response(Box<SendOutput>),
}

impl Client {
    /// Watches what happens.
    ///
    /// # Errors
    /// When the daemon cannot be reached or says no.
    pub async fn subscribe(&self, what: &EventSubscription) -> Result<EventStream, ClientFault> {
        let ask = self.with_authorization(
            event_stream_get(self.endpoint(), &events_path(what)?).map_err(request_fault)?,
        );
        match self.open_stream(EVENTS_METHOD, ask).await? {
            StreamStart::Events(stream) => Ok(*stream),
            StreamStart::Response(answer) => Err(self.response_fault(EVENTS_METHOD, &answer)),
        }
    }

    async fn open_stream(&self, method: &'static str, ask: HttpRequest) -> Result<StreamStart, ClientFault> {
        let endpoint = self.endpoint().clone();
        let asking = async {
            let link = Connection::connect(&endpoint)
                .await
                .map_err(|source| ClientFault::Connect { endpoint: endpoint.clone(), source })?;
            let flow =
                link.send_streaming(ask).await.map_err(|fault| self.connection_fault(method, fault))?;
            if flow.has_media_type(MEDIA_TYPE) {
                let (endpoint, reader) = (endpoint.clone(), SseDecoder::new(RESPONSE_BYTES_MAX));
                return Ok(StreamStart::Events(Box::new(EventStream {
                    endpoint,
                    method,
                    response: flow,
                    decoder: reader,
                })));
            }
            let answer = flow
                .collect(RESPONSE_BYTES_MAX)
                .await
                .map_err(|fault| self.connection_fault(method, fault))?;
            Ok(StreamStart::Response(answer))
        };
        tokio::time::timeout(self.timeout(), asking).await.unwrap_or_else(|_| {
            Err(ClientFault::Timeout { endpoint: endpoint.clone(), method, after: self.timeout() })
        })
    }

    fn connection_fault(&self, method: &'static str, fault: ConnectionFault) -> ClientFault {
        match self.finish_exchange(method, Err(fault)) {
            Err(fault) => fault,
            Ok(answer) => self.response_fault(method, &answer),
        }
    }

    /// An answer where a stream was expected: mostly the door's refusal.
    fn response_fault(&self, method: &'static str, answer: &HttpResponse) -> ClientFault {
        let (endpoint, status) = (self.endpoint().clone(), answer.status);
        match decode_response::<spec::Discover>(answer, &Id::from(0)) {
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
    /// Sends a message and tells what happens in its turn until it is answered.
    ///
    /// # Errors
    /// When the daemon cannot be reached or says no.
    pub async fn send_streamed(&self, params: &SendParams) -> Result<SendStream, ClientFault> {
        let (client, method) = (self.client, spec::Send::METHOD.name());
        let id = client.next_id();
        let body = encode_request(Some(&id), method, params).map_err(request_fault)?;
        let mut ask = client.post_request(CallTarget::Agent(&self.agent_id), body)?;
        ask.headers_mut().insert(ACCEPT, HeaderValue::from_static(MEDIA_TYPE));
        match client.open_stream(method, ask).await? {
            StreamStart::Events(events) => Ok(SendStream { events: *events, id }),
            StreamStart::Response(answer) => Err(client.response_fault(method, &answer)),
        }
    }
}

enum StreamStart {
    Events(Box<EventStream>),
    Response(HttpResponse),
}

impl EventStream {
    /// The next event; none when the daemon has ended the stream. Nothing is lost when the wait is given up.
    ///
    /// # Errors
    /// When the connection breaks or what comes is no event.
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

    /// The journal's number that the stream stands behind: where to begin to miss nothing of what comes after.
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
    /// The next step. Nothing is lost when the wait is given up.
    ///
    /// # Errors
    /// When the connection breaks before the answer, or when the answer says no.
    pub async fn next(&mut self) -> Result<SendStep, ClientFault> {
        let Some(event) = self.events.next().await? else {
            return Err(ClientFault::Transport {
                endpoint: self.events.endpoint.clone(),
                method: self.events.method,
                reason: "the stream ended before the answer".to_owned(),
            });
        };
        if event.event != RESPONSE_EVENT {
            return Ok(SendStep::Event(event));
        }
        let status = self.events.response.status();
        let answer = HttpResponse { status, body: event.data.into_bytes() };
        let outcome = decode_response::<spec::Send>(&answer, &self.id)
            .map_err(|reason| self.events.protocol_fault(&reason))?;
        outcome
            .map(|output| SendStep::Response(Box::new(output)))
            .map_err(|error| ClientFault::Rpc { status, error })
    }
}

fn events_path(what: &EventSubscription) -> Result<String, ClientFault> {
    let door = what.agent_id.as_deref().map_or(Ok(String::new()), |id| target_path(CallTarget::Agent(id)))?;
    Ok(format!("{door}/events{}", what.query.to_query_string()))
}
