//! A `send` whose turn is told while it is worked on, and whose last event is its answer.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
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
use runtime::{BusEvent, EventScope, Subscription, TurnFuture};

use super::{CallReply, EventBytes, encode_event};
use crate::caller::Caller;
use crate::dispatcher::{Dispatcher, Target};
use crate::events::event;
use crate::methods::conversation::send_output;
use crate::routing::parse_params;

/// A send that was asked for.
struct SendRequest {
    dispatcher: Dispatcher,
    target: Target,
    caller: Caller,
    params: Result<SendParams, RpcError>,
    id: Id<'static>,
}

/// How far it has come.
enum Stage {
    Requested(Box<SendRequest>),
    Streaming(Box<SendStream>),
    Finished,
}

impl Dispatcher {
    /// Answers one body to a caller that takes events: a `send` is told as it goes, anything else is answered as usual.
    pub async fn respond_streaming(&self, entrance: Target, caller: &Caller, body: &[u8]) -> CallReply {
        match Incoming::parse(body, EnvelopeRules::HTTP) {
            Ok(Incoming::Single(Request { method, params: Params::Named(params), id: Some(id) }))
                if method == Method::Send.name() && !id.is_null() =>
            {
                let asked = SendRequest {
                    dispatcher: self.clone(),
                    target: entrance,
                    caller: caller.clone(),
                    params: parse_params::<spec::Send>(&params),
                    id: id.into_owned(),
                };
                let pieces = stream::unfold(Stage::Requested(Box::new(asked)), next_chunk);
                CallReply::Stream(EventBytes::new(pieces))
            }
            _ => CallReply::Complete(self.respond(entrance, caller, body).await),
        }
    }
}

async fn next_chunk(stage: Stage) -> Option<(Vec<u8>, Stage)> {
    let mut telling = match stage {
        Stage::Finished => return None,
        Stage::Streaming(telling) => telling,
        Stage::Requested(asked) => {
            let id = asked.id.clone();
            // As at the desk: a panic is this call's answer.
            let begun = AssertUnwindSafe(asked.start()).catch_unwind().await.unwrap_or_else(|_| {
                tracing::error!(method = Method::Send.name(), "a handler panicked");
                Err(RpcError::new(ErrorCode::Internal, "Internal error: the call panicked"))
            });
            match begun {
                Ok(telling) => Box::new(telling),
                Err(error) => return Some((response_event(&encode_error(&id, &error)), Stage::Finished)),
            }
        }
    };
    Some(match telling.next_event().await {
        Some(piece) => (piece, Stage::Streaming(telling)),
        None => (response_event(&telling.final_response()), Stage::Finished),
    })
}

impl SendRequest {
    /// Listens first, so that nothing of the turn is missed, and sends then.
    async fn start(self) -> Result<SendStream, RpcError> {
        let SendRequest { dispatcher: desk, target: entrance, caller, params, id } = self;
        let params = params?;
        let begin = async {
            let agent = desk.resolve_agent(&entrance, &caller, Method::Send).await?;
            let message = desk.new_message(&caller, &agent, params).await?;
            let subscription = desk.pool.subscribe(EventScope::Agent(agent.clone()), None).await?;
            let turn = TurnFilter::new(message.request_id.clone());
            Ok((agent.submit(message)?, subscription, turn))
        };
        let begun: Result<_, Fault> = begin.await;
        let (answering, subscription, turn) =
            begun.map_err(|fault| desk.audited_error(&fault, &caller, Method::Send))?;
        Ok(SendStream {
            dispatcher: desk,
            caller,
            id,
            subscription,
            pending_response: answering,
            turn,
            end: None,
        })
    }
}

/// A send under way. The turn does not need anybody to listen.
struct SendStream {
    dispatcher: Dispatcher,
    caller: Caller,
    id: Id<'static>,
    subscription: Subscription,
    pending_response: TurnFuture,
    turn: TurnFilter,
    end: Option<Result<TurnEnd, Fault>>,
}

enum Step {
    Item(BusEvent),
    TurnEnded(Result<TurnEnd, Fault>),
    /// Nothing more can be told.
    SubscriptionLost,
}

impl SendStream {
    /// The next piece to tell; none when the answer is next.
    async fn next_event(&mut self) -> Option<Vec<u8>> {
        loop {
            match self.next_step().await? {
                Step::Item(item) if self.turn.accepts(&item) => return Some(encode_event(&event(&item))),
                Step::Item(_) => {}
                Step::TurnEnded(end) => self.end = Some(end),
                Step::SubscriptionLost => {
                    self.turn.has_ended = true;
                    if self.end.is_none() {
                        self.end = Some((&mut self.pending_response).await);
                    }
                }
            }
        }
    }

    async fn next_step(&mut self) -> Option<Step> {
        let heard = |item: Result<BusEvent, Fault>| item.map_or(Step::SubscriptionLost, Step::Item);
        match &self.end {
            Some(_) if self.turn.has_ended => None,
            // The end is kept, so it will be told.
            Some(end) if self.turn.has_turn() && is_end_journaled(end) => {
                Some(heard(self.subscription.next().await))
            }
            // What was told before the answer is here already.
            Some(_) => self.subscription.next().now_or_never().map(heard),
            None => {
                let Self { subscription, pending_response: answering, .. } = self;
                let mut item = pin!(subscription.next());
                let step = poll_fn(|cx| {
                    if let Poll::Ready(item) = item.as_mut().poll(cx) {
                        return Poll::Ready(heard(item));
                    }
                    Pin::new(&mut *answering).poll(cx).map(Step::TurnEnded)
                });
                Some(step.await)
            }
        }
    }

    fn final_response(&mut self) -> Vec<u8> {
        let request_id = self.turn.request_id.clone();
        let answered = match self.end.take() {
            Some(Ok(end)) => encode_result(&self.id, &send_output(request_id, end)).map_err(|fault| {
                tracing::error!(%fault, "an output could not be written");
                RpcError::new(ErrorCode::Internal, "Internal error: the result could not be written")
            }),
            Some(Err(fault)) => Err(self.dispatcher.audited_error(&fault, &self.caller, Method::Send)),
            None => Err(RpcError::new(ErrorCode::Internal, "Internal error: the turn has no end")),
        };
        answered.unwrap_or_else(|error| encode_error(&self.id, &error))
    }
}

/// Whether a turn that ended so has its end in the journal.
fn is_end_journaled(end: &Result<TurnEnd, Fault>) -> bool {
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

/// Which of an agent's events belong to one send.
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
            // A send that is repeated while it runs is known by what its model says.
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
