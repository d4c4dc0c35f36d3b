//! Streaming `send`: the stream carries the events of its turn, and ends with the JSON-RPC response as the last event.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use agent::journal::Record;
use agent::outside::JournalEntry;
use agent::{Fault, FaultKind, RequestId, TurnEnd, TurnOutcome};
use futures_util::{FutureExt, stream};
use nexus3_protocol::envelope::{encode_error, encode_result};
use nexus3_protocol::events::RESPONSE_EVENT;
use nexus3_protocol::methods::{SendParams, spec};
use nexus3_protocol::{EnvelopeRules, ErrorCode, Id, Incoming, Method, Params, Request, RpcError, sse};
use runtime::{AgentHandle, BusEvent, EventScope, Subscription, TurnFuture};

use super::{CallReply, EventBytes, encode_event};
use crate::caller::{Caller, Principal};
use crate::dispatcher::{Dispatcher, Target};
use crate::events::event;
use crate::fault::rpc_error_logged;
use crate::methods::conversation::send_output;
use crate::operation::{Handler, Operation};
use crate::routing::parse_params;

/// A parsed `send` that has not started.
struct SendRequest {
    dispatcher: Dispatcher,
    target: Target,
    caller: Caller,
    params: Result<SendParams, RpcError>,
    id: Id<'static>,
}

/// State of the stream.
enum Stage {
    Requested(Box<SendRequest>),
    Streaming(Box<SendStream>),
    Finished,
}

impl Dispatcher {
    /// Handles one request body of a client that accepts event streams: a `send` is streamed, any other method gets a
    /// complete response.
    pub async fn respond_streaming(
        &self,
        target: Target,
        caller: &Caller,
        body: &[u8],
        rules: EnvelopeRules,
    ) -> CallReply {
        match Incoming::parse(body, rules) {
            Ok(Incoming::Single(Request { method, params: Params::Named(params), id: Some(id) }))
                if method == Method::Send.name() && !id.is_null() =>
            {
                let request = SendRequest {
                    dispatcher: self.clone(),
                    target,
                    caller: caller.clone(),
                    params: parse_params::<spec::Send>(&params),
                    id: id.into_owned(),
                };
                let chunks = stream::unfold(Stage::Requested(Box::new(request)), next_chunk);
                CallReply::Stream(EventBytes::new(chunks))
            }
            _ => CallReply::Complete(self.respond(&target, caller, body, rules).await),
        }
    }
}

async fn next_chunk(stage: Stage) -> Option<(Vec<u8>, Stage)> {
    let mut stream = match stage {
        Stage::Finished => return None,
        Stage::Streaming(stream) => stream,
        Stage::Requested(request) => {
            let id = request.id.clone();
            match request.start().await {
                Ok(stream) => Box::new(stream),
                Err(error) => return Some((response_event(&encode_error(&id, &error)), Stage::Finished)),
            }
        }
    };
    Some(match stream.next_event().await {
        Some(chunk) => (chunk, Stage::Streaming(stream)),
        None => (response_event(&stream.final_response()), Stage::Finished),
    })
}

impl SendRequest {
    async fn start(self) -> Result<SendStream, RpcError> {
        let SendRequest { dispatcher, target, caller, params, id } = self;
        let started = dispatcher.invoke::<StreamedSend>(&target, &caller, params?).await?;
        Ok(SendStream { dispatcher, caller, id, started, end: None })
    }
}

/// Operation: `send` whose turn is streamed.
struct StreamedSend;

/// A submitted message: the events of its turn, and its response.
struct StartedSend {
    subscription: Subscription,
    pending_response: TurnFuture,
    turn: TurnFilter,
}

impl Operation for StreamedSend {
    const NAME: &'static str = <spec::Send as Operation>::NAME;
    type Params = SendParams;
    type Output = StartedSend;
    type Subject = AgentHandle;

    async fn authorize(
        dispatcher: &Dispatcher,
        target: &Target,
        principal: &Principal,
        params: &SendParams,
    ) -> Result<AgentHandle, Fault> {
        spec::Send::authorize(dispatcher, target, principal, params).await
    }
}

impl Handler<StreamedSend> for Dispatcher {
    /// Subscribes first, so that no event of the turn is missed, then submits the message.
    async fn handle(
        &self,
        principal: &Principal,
        agent: &AgentHandle,
        params: SendParams,
    ) -> Result<StartedSend, Fault> {
        let message = self.new_message(principal, agent, params).await?;
        let subscription = self.pool.subscribe(EventScope::Agent(agent.clone()), None).await?;
        let turn = TurnFilter::new(message.request_id.clone());
        Ok(StartedSend { pending_response: agent.submit(message)?, subscription, turn })
    }
}

/// A `send` in flight. Its turn continues if the client disconnects.
struct SendStream {
    dispatcher: Dispatcher,
    caller: Caller,
    id: Id<'static>,
    started: StartedSend,
    end: Option<Result<TurnEnd, Fault>>,
}

enum Step {
    Item(BusEvent),
    TurnEnded(Result<TurnEnd, Fault>),
    /// The subscription failed; no more events can be delivered.
    SubscriptionLost,
}

impl SendStream {
    /// Returns the next event; `None` when only the response is left.
    async fn next_event(&mut self) -> Option<Vec<u8>> {
        loop {
            match self.next_step().await? {
                Step::Item(item) if self.started.turn.accepts(&item) => {
                    return Some(encode_event(&event(&item)));
                }
                Step::Item(_) => {}
                Step::TurnEnded(end) => self.end = Some(end),
                Step::SubscriptionLost => {
                    self.started.turn.has_ended = true;
                    if self.end.is_none() {
                        self.end = Some((&mut self.started.pending_response).await);
                    }
                }
            }
        }
    }

    async fn next_step(&mut self) -> Option<Step> {
        let to_step = |item: Result<BusEvent, Fault>| item.map_or(Step::SubscriptionLost, Step::Item);
        match &self.end {
            Some(_) if self.started.turn.has_ended => None,
            // The turn's end is in the journal, so its event will be delivered.
            Some(end) if self.started.turn.has_turn() && is_end_journalled(end) => {
                Some(to_step(self.started.subscription.next().await))
            }
            // Events published before the response are already queued.
            Some(_) => self.started.subscription.next().now_or_never().map(to_step),
            None => {
                let StartedSend { subscription, pending_response, .. } = &mut self.started;
                let mut item = pin!(subscription.next());
                let step = poll_fn(|cx| {
                    if let Poll::Ready(item) = item.as_mut().poll(cx) {
                        return Poll::Ready(to_step(item));
                    }
                    Pin::new(&mut *pending_response).poll(cx).map(Step::TurnEnded)
                });
                Some(step.await)
            }
        }
    }

    fn final_response(&mut self) -> Vec<u8> {
        let request_id = self.started.turn.request_id.clone();
        let response = match self.end.take() {
            Some(Ok(end)) => encode_result(&self.id, &send_output(request_id, end)).map_err(|fault| {
                tracing::error!(%fault, "cannot serialize a result");
                RpcError::new(ErrorCode::Internal, "Internal error: the result cannot be serialized")
            }),
            Some(Err(fault)) => {
                self.dispatcher.audit_denial(&fault, &self.caller, StreamedSend::NAME);
                Err(rpc_error_logged(&fault))
            }
            None => Err(RpcError::new(ErrorCode::Internal, "Internal error: the turn has no end")),
        };
        response.unwrap_or_else(|error| encode_error(&self.id, &error))
    }
}

/// Whether a turn with this end always has a `turn_ended` record in the journal. A cancelled turn has none if its agent
/// was destroyed; with any other end, the turn may have been refused or its end not committed.
fn is_end_journalled(end: &Result<TurnEnd, Fault>) -> bool {
    match end {
        Ok(end) => end.outcome == TurnOutcome::Completed,
        Err(fault) => {
            matches!(fault.kind, FaultKind::Model | FaultKind::ContextFull | FaultKind::Interrupted)
        }
    }
}

fn response_event(json: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(json.len() + 32);
    sse::write_event(&mut bytes, None, RESPONSE_EVENT, &String::from_utf8_lossy(json));
    bytes
}

/// Selects the events of one turn among an agent's events.
struct TurnFilter {
    request_id: RequestId,
    turn: Option<u64>,
    is_running: bool,
    has_ended: bool,
}

impl TurnFilter {
    fn new(request_id: RequestId) -> Self {
        Self { request_id, turn: None, is_running: false, has_ended: false }
    }

    fn has_turn(&self) -> bool {
        self.turn.is_some()
    }

    fn accepts(&mut self, item: &BusEvent) -> bool {
        match item {
            BusEvent::Entry(entry) => self.accepts_entry(entry),
            // A duplicate of a running `send` missed the earlier records and finds its turn by the deltas.
            BusEvent::Delta(delta) if delta.request_id == self.request_id => {
                self.turn = Some(delta.turn);
                self.is_running = true;
                true
            }
            BusEvent::Lagged => self.is_running,
            BusEvent::Delta(_) | BusEvent::Gap { .. } => false,
        }
    }

    fn accepts_entry(&mut self, entry: &JournalEntry) -> bool {
        match &entry.record {
            Record::TurnAccepted(accepted) => {
                let is_ours = accepted.request_id == self.request_id;
                if is_ours {
                    self.turn = Some(accepted.turn);
                }
                is_ours
            }
            Record::TurnReopened { turn, request_id, .. } => {
                let is_ours = *request_id == self.request_id;
                if is_ours {
                    self.turn = Some(*turn);
                    self.is_running = true;
                }
                is_ours
            }
            Record::TurnBegun { turn } => {
                self.is_running = self.turn == Some(*turn);
                self.is_running
            }
            Record::MessageAdded(_) => self.is_running,
            Record::Steered { turn, .. } | Record::CallBegun { turn, .. } | Record::CallDone { turn, .. } => {
                self.turn == Some(*turn)
            }
            Record::TurnEnded { request_id, .. } => {
                let is_ours = *request_id == self.request_id;
                self.has_ended |= is_ours;
                is_ours
            }
            Record::Destroyed { .. } => {
                self.has_ended = true;
                true
            }
            Record::Created(_)
            | Record::PermissionsChanged { .. }
            | Record::Renamed { .. }
            | Record::Finished { .. }
            | Record::RolledBack { .. }
            | Record::Compacted(_)
            | Record::Denied { .. }
            | Record::DaemonStarted { .. }
            | Record::DaemonStopped => false,
        }
    }
}
