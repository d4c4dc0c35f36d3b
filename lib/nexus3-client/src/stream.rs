//! What comes piece by piece: the daemon's events, and a turn while it is worked on. A stream has its own connection,
//! which ends when it is dropped.

#[cfg(test)]
mod tests;

use hyper::header::{ACCEPT, HeaderValue};
use nexus3_protocol::envelope::write_request;
use nexus3_protocol::events::{EventQuery, RESPONSE_EVENT};
use nexus3_protocol::methods::{SendOutput, SendParams, spec};
use nexus3_protocol::sse::{MEDIA_TYPE, SseEvent, SseReader};
use nexus3_protocol::{Id, MethodSpec};

use crate::client::{ANSWER_BYTES_MAX, Client, Target, path, read_answer, unwritable, with_causes};
use crate::link::{Answer, Ask, Flow, Link, LinkFault, watch};
use crate::{AgentClient, ClientFault, Endpoint};

/// How faults name the call that watches.
const WATCHING: &str = "events";

/// Which events to watch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watch {
    /// Only this agent's; all that the caller may see when there is none.
    pub agent_id: Option<String>,
    /// Where to begin and which kinds.
    pub query: EventQuery,
}

/// Events as they come.
pub struct EventStream {
    endpoint: Endpoint,
    method: &'static str,
    flow: Flow,
    reader: SseReader,
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
    Answer(Box<SendOutput>),
}

impl Client {
    /// Watches what happens.
    ///
    /// # Errors
    /// When the daemon cannot be reached or says no.
    pub async fn watch(&self, what: &Watch) -> Result<EventStream, ClientFault> {
        let ask = self.signed(watch(self.endpoint(), &watch_path(what)?).map_err(unwritable)?);
        match self.begin(WATCHING, ask).await? {
            Begun::Events(stream) => Ok(*stream),
            Begun::Answer(answer) => Err(self.refused(WATCHING, &answer)),
        }
    }

    async fn begin(&self, method: &'static str, ask: Ask) -> Result<Begun, ClientFault> {
        let endpoint = self.endpoint().clone();
        let asking = async {
            let link = Link::open(&endpoint)
                .await
                .map_err(|source| ClientFault::Connect { endpoint: endpoint.clone(), source })?;
            let flow = link.begin(ask).await.map_err(|fault| self.broken(method, fault))?;
            if flow.is_of_type(MEDIA_TYPE) {
                let (endpoint, reader) = (endpoint.clone(), SseReader::new(ANSWER_BYTES_MAX));
                return Ok(Begun::Events(Box::new(EventStream { endpoint, method, flow, reader })));
            }
            let answer = flow.whole(ANSWER_BYTES_MAX).await.map_err(|fault| self.broken(method, fault))?;
            Ok(Begun::Answer(answer))
        };
        tokio::time::timeout(self.timeout(), asking).await.unwrap_or_else(|_| {
            Err(ClientFault::Timeout { endpoint: endpoint.clone(), method, after: self.timeout() })
        })
    }

    fn broken(&self, method: &'static str, fault: LinkFault) -> ClientFault {
        match self.settle(method, Err(fault)) {
            Err(fault) => fault,
            Ok(answer) => self.refused(method, &answer),
        }
    }

    /// An answer where a stream was expected: mostly the door's refusal.
    fn refused(&self, method: &'static str, answer: &Answer) -> ClientFault {
        let (endpoint, status) = (self.endpoint().clone(), answer.status);
        match read_answer::<spec::Discover>(answer, &Id::from(0)) {
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
        let body = write_request(Some(&id), method, params).map_err(unwritable)?;
        let mut ask = client.ask(Target::Agent(&self.agent_id), body)?;
        ask.headers_mut().insert(ACCEPT, HeaderValue::from_static(MEDIA_TYPE));
        match client.begin(method, ask).await? {
            Begun::Events(events) => Ok(SendStream { events: *events, id }),
            Begun::Answer(answer) => Err(client.refused(method, &answer)),
        }
    }
}

enum Begun {
    Events(Box<EventStream>),
    Answer(Answer),
}

impl EventStream {
    /// The next event; none when the daemon has ended the stream. Nothing is lost when the wait is given up.
    ///
    /// # Errors
    /// When the connection breaks or what comes is no event.
    pub async fn next(&mut self) -> Result<Option<SseEvent>, ClientFault> {
        loop {
            if let Some(event) = self.reader.next_event().map_err(|fault| self.garbled(&fault.to_string()))? {
                return Ok(Some(event));
            }
            let bytes = self.flow.bytes().await.map_err(|fault| ClientFault::Transport {
                endpoint: self.endpoint.clone(),
                method: self.method,
                reason: with_causes(&fault),
            })?;
            let Some(bytes) = bytes else { return Ok(None) };
            self.reader.feed(&bytes);
        }
    }

    /// The journal's number that the stream stands behind: where to begin to miss nothing of what comes after.
    #[must_use]
    pub fn position(&self) -> Option<u64> {
        self.reader.last_event_id()?.parse().ok()
    }

    fn garbled(&self, reason: &str) -> ClientFault {
        let (endpoint, method, status) = (self.endpoint.clone(), self.method, self.flow.status());
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
        let status = self.events.flow.status();
        let answer = Answer { status, body: event.data.into_bytes() };
        let outcome =
            read_answer::<spec::Send>(&answer, &self.id).map_err(|reason| self.events.garbled(&reason))?;
        outcome
            .map(|output| SendStep::Answer(Box::new(output)))
            .map_err(|error| ClientFault::Rpc { status, error })
    }
}

fn watch_path(what: &Watch) -> Result<String, ClientFault> {
    let door = what.agent_id.as_deref().map_or(Ok(String::new()), |id| path(Target::Agent(id)))?;
    Ok(format!("{door}/events{}", what.query.write()))
}
