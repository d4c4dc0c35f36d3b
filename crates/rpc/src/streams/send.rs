//! Streaming `send`: the stream carries the events of its turn, and ends with the JSON-RPC response as the last event.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use agent::journal::Record;
use agent::outside::JournalEntry;
use agent::{Fault, FaultKind, RequestId, TurnEnd, TurnOutcome};
use bytes::Bytes;
use futures_util::{FutureExt, stream};
use nexus3_protocol::envelope::{encode_error, encode_result};
use nexus3_protocol::events::RESPONSE_EVENT;
use nexus3_protocol::methods::{SendParams, spec};
use nexus3_protocol::{EnvelopeRules, ErrorCode, Id, Incoming, Method, Params, Request, RpcError, sse};
use runtime::{AgentHandle, BusEvent, EventScope, Subscription, TurnFuture};

use super::encoded_events::{Encoding, PIECE_BYTES_MAX, PieceReader};
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
    /// The response is the end of the turn in the journal, whose pieces are being read.
    Responding(Box<SendStream>),
    /// The bytes of a response that is not in the journal.
    Closing(Bytes),
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
                if method == Method::Send.name() && !id.is_null() && !self.pool.is_stopping() =>
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

async fn next_chunk(stage: Stage) -> Option<(Bytes, Stage)> {
    let mut stream = match stage {
        Stage::Closing(bytes) => return next_of_response(bytes),
        Stage::Responding(mut stream) => {
            let piece = stream.next_piece().await?;
            return Some((piece, Stage::Responding(stream)));
        }
        Stage::Streaming(stream) => stream,
        Stage::Requested(request) => {
            let id = request.id.clone();
            match request.start().await {
                Ok(stream) => Box::new(stream),
                Err(error) => return next_of_response(response_event(&encode_error(&id, &error)).into()),
            }
        }
    };
    match stream.next_event().await {
        Some(chunk) => Some((chunk, Stage::Streaming(stream))),
        None => match stream.journalled_response().await {
            Some(piece) => Some((piece, Stage::Responding(stream))),
            None => next_of_response(response_event(&stream.final_response()).into()),
        },
    }
}

/// Splits a piece off a response.
fn next_of_response(mut bytes: Bytes) -> Option<(Bytes, Stage)> {
    let piece = bytes.split_to(bytes.len().min(PIECE_BYTES_MAX));
    (!piece.is_empty()).then_some((piece, Stage::Closing(bytes)))
}

impl SendRequest {
    async fn start(self) -> Result<SendStream, RpcError> {
        let SendRequest { dispatcher, target, caller, params, id } = self;
        let started = dispatcher.invoke::<StreamedSend>(&target, &caller, params?).await?;
        let pieces = dispatcher.encoded_events.reader();
        Ok(SendStream { dispatcher, caller, id, started, pieces, end: None })
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
    pieces: PieceReader,
    end: Option<Result<TurnEnd, Fault>>,
}

enum Step {
    Item(BusEvent),
    TurnEnded(Result<TurnEnd, Fault>),
    /// The subscription failed; no more events can be delivered.
    SubscriptionLost,
}

impl SendStream {
    /// Returns the next bytes of an event; `None` when only the response is left.
    async fn next_event(&mut self) -> Option<Bytes> {
        if let Some(piece) = self.next_piece().await {
            return Some(piece);
        }
        loop {
            match self.next_step().await? {
                Step::Item(item) if self.started.turn.accepts(&item) => {
                    self.drop_journalled_content();
                    return Some(match &item {
                        BusEvent::Entry(entry) => self.pieces.begin(Encoding::Event, entry),
                        _ => encode_event(&event(&item)).into(),
                    });
                }
                Step::Item(_) => {}
                Step::TurnEnded(end) => {
                    self.end = Some(end);
                    self.drop_journalled_content();
                }
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

    /// Returns the next piece of the entry that was begun. If the journal cannot be read, the stream ends within an
    /// event: the client discards it and may send the request again.
    async fn next_piece(&mut self) -> Option<Bytes> {
        let piece = self.pieces.next(&self.started.subscription).await;
        piece.unwrap_or_else(|fault| {
            let cause = fault.cause.as_deref().unwrap_or_default();
            tracing::error!(cause, "stream of a send ended: the journal cannot be read: {fault}");
            None
        })
    }

    /// Begins the response with the content in the journal, so that a stream which is not read does not hold it.
    async fn journalled_response(&mut self) -> Option<Bytes> {
        let sequence = self.started.turn.ended_at.filter(|_| matches!(self.end, Some(Ok(_))))?;
        match self.started.subscription.entry(sequence).await {
            Ok(entry) => Some(self.pieces.begin(Encoding::Response(self.id.clone()), &entry)),
            Err(fault) => {
                self.end = Some(Err(fault));
                None
            }
        }
    }

    /// Drops the content of the response once it is known to be in the journal.
    fn drop_journalled_content(&mut self) {
        if let (Some(_), Some(Ok(end))) = (self.started.turn.ended_at, &mut self.end) {
            end.content = String::new();
        }
    }

    fn final_response(&mut self) -> Vec<u8> {
        let request_id = self.started.turn.request_id.clone();
        let error = match self.end.take() {
            Some(Ok(end)) => return result_bytes(&self.id, request_id, end),
            Some(Err(fault)) => {
                self.dispatcher.audit_denial(&fault, &self.caller, StreamedSend::NAME);
                rpc_error_logged(&fault)
            }
            None => RpcError::new(ErrorCode::Internal, "Internal error: the turn has no end"),
        };
        encode_error(&self.id, &error)
    }
}

/// Encodes the end of a turn as the response event of a streamed `send`.
pub(super) fn encode_response(id: &Id<'_>, entry: &JournalEntry) -> Vec<u8> {
    match &entry.record {
        Record::TurnEnded { request_id, end, .. } => {
            response_event(&result_bytes(id, request_id.clone(), TurnEnd::clone(end)))
        }
        // Not expected: the sequence is the one of the turn's end.
        _ => Vec::new(),
    }
}

fn result_bytes(id: &Id<'_>, request_id: RequestId, end: TurnEnd) -> Vec<u8> {
    encode_result(id, &send_output(request_id, end)).unwrap_or_else(|fault| {
        tracing::error!(%fault, "cannot serialize a result");
        let error = RpcError::new(ErrorCode::Internal, "Internal error: the result cannot be serialized");
        encode_error(id, &error)
    })
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
    /// Sequence of the turn's end.
    ended_at: Option<u64>,
}

impl TurnFilter {
    fn new(request_id: RequestId) -> Self {
        Self { request_id, turn: None, is_running: false, has_ended: false, ended_at: None }
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
            Record::ApprovalRequested(request) => self.turn == Some(request.turn),
            Record::ApprovalAnswered(answer) => self.turn == Some(answer.turn),
            Record::TurnEnded { request_id, .. } => {
                let is_ours = *request_id == self.request_id;
                if is_ours {
                    self.has_ended = true;
                    self.ended_at = Some(entry.sequence);
                }
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
            | Record::TurnUndone { .. }
            | Record::RolledBack { .. }
            | Record::Compacted(_)
            | Record::Denied { .. }
            | Record::DaemonStarted { .. }
            | Record::DaemonStopped => false,
        }
    }
}
