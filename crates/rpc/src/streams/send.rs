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
use nexus3_protocol::{ErrorCode, Id, Incoming, Method, Params, Request, RpcError, Rules, sse};
use runtime::{Answering, BusEvent, EventScope, Subscription};

use super::{EventStream, Reply, written};
use crate::caller::Caller;
use crate::dispatcher::{Dispatcher, Target};
use crate::routing::parse_params;
use crate::events::event;
use crate::methods::calls::send_output;

/// A send that was asked for.
struct Asked {
    desk: Dispatcher,
    entrance: Target,
    caller: Caller,
    params: Result<SendParams, RpcError>,
    id: Id<'static>,
}

/// How far it has come.
enum Stage {
    Asked(Box<Asked>),
    Told(Box<Telling>),
    Answered,
}

impl Dispatcher {
    /// Answers one body to a caller that takes events: a `send` is told as it goes, anything else is answered as usual.
    pub async fn answer_streaming(&self, entrance: Target, caller: &Caller, body: &[u8]) -> Reply {
        match Incoming::parse(body, Rules::HTTP) {
            Ok(Incoming::Single(Request { method, params: Params::Named(params), id: Some(id) }))
                if method == Method::Send.name() && !id.is_null() =>
            {
                let asked = Asked {
                    desk: self.clone(),
                    entrance,
                    caller: caller.clone(),
                    params: parse_params::<spec::Send>(&params),
                    id: id.into_owned(),
                };
                let pieces = stream::unfold(Stage::Asked(Box::new(asked)), next);
                Reply::Stream(EventStream::of(pieces))
            }
            _ => Reply::Whole(self.respond(entrance, caller, body).await),
        }
    }
}

async fn next(stage: Stage) -> Option<(Vec<u8>, Stage)> {
    let mut telling = match stage {
        Stage::Answered => return None,
        Stage::Told(telling) => telling,
        Stage::Asked(asked) => {
            let id = asked.id.clone();
            // As at the desk: a panic is this call's answer.
            let begun = AssertUnwindSafe(asked.begin()).catch_unwind().await.unwrap_or_else(|_| {
                tracing::error!(method = Method::Send.name(), "a handler panicked");
                Err(RpcError::new(ErrorCode::Internal, "Internal error: the call panicked"))
            });
            match begun {
                Ok(telling) => Box::new(telling),
                Err(error) => return Some((response(&encode_error(&id, &error)), Stage::Answered)),
            }
        }
    };
    Some(match telling.next().await {
        Some(piece) => (piece, Stage::Told(telling)),
        None => (response(&telling.answer()), Stage::Answered),
    })
}

impl Asked {
    /// Listens first, so that nothing of the turn is missed, and sends then.
    async fn begin(self) -> Result<Telling, RpcError> {
        let Asked { desk, entrance, caller, params, id } = self;
        let params = params?;
        let begin = async {
            let agent = desk.resolve_agent(&entrance, &caller, Method::Send).await?;
            let message = desk.new_message(&caller, &agent, params).await?;
            let subscription = desk.pool.subscribe(EventScope::Agent(agent.clone()), None).await?;
            let turn = TurnWatch::new(message.request_id.clone());
            Ok((agent.submit(message)?, subscription, turn))
        };
        let begun: Result<_, Fault> = begin.await;
        let (answering, subscription, turn) =
            begun.map_err(|fault| desk.answered(&fault, &caller, Method::Send))?;
        Ok(Telling { desk, caller, id, subscription, answering, turn, end: None })
    }
}

/// A send under way. The turn does not need anybody to listen.
struct Telling {
    desk: Dispatcher,
    caller: Caller,
    id: Id<'static>,
    subscription: Subscription,
    answering: Answering,
    turn: TurnWatch,
    end: Option<Result<TurnEnd, Fault>>,
}

enum Step {
    Item(BusEvent),
    End(Result<TurnEnd, Fault>),
    /// Nothing more can be told.
    Unheard,
}

impl Telling {
    /// The next piece to tell; none when the answer is next.
    async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            match self.step().await? {
                Step::Item(item) if self.turn.takes(&item) => return Some(written(&event(&item))),
                Step::Item(_) => {}
                Step::End(end) => self.end = Some(end),
                Step::Unheard => {
                    self.turn.is_over = true;
                    if self.end.is_none() {
                        self.end = Some((&mut self.answering).await);
                    }
                }
            }
        }
    }

    async fn step(&mut self) -> Option<Step> {
        let heard = |item: Result<BusEvent, Fault>| item.map_or(Step::Unheard, Step::Item);
        match &self.end {
            Some(_) if self.turn.is_over => None,
            // The end is kept, so it will be told.
            Some(end) if self.turn.is_known() && is_kept(end) => Some(heard(self.subscription.next().await)),
            // What was told before the answer is here already.
            Some(_) => self.subscription.next().now_or_never().map(heard),
            None => {
                let Self { subscription, answering, .. } = self;
                let mut item = pin!(subscription.next());
                let step = poll_fn(|cx| {
                    if let Poll::Ready(item) = item.as_mut().poll(cx) {
                        return Poll::Ready(heard(item));
                    }
                    Pin::new(&mut *answering).poll(cx).map(Step::End)
                });
                Some(step.await)
            }
        }
    }

    fn answer(&mut self) -> Vec<u8> {
        let request_id = self.turn.request_id.clone();
        let answered = match self.end.take() {
            Some(Ok(end)) => encode_result(&self.id, &send_output(request_id, end)).map_err(|fault| {
                tracing::error!(%fault, "an output could not be written");
                RpcError::new(ErrorCode::Internal, "Internal error: the result could not be written")
            }),
            Some(Err(fault)) => Err(self.desk.answered(&fault, &self.caller, Method::Send)),
            None => Err(RpcError::new(ErrorCode::Internal, "Internal error: the turn has no end")),
        };
        answered.unwrap_or_else(|error| encode_error(&self.id, &error))
    }
}

/// Whether a turn that ended so has its end in the journal.
fn is_kept(end: &Result<TurnEnd, Fault>) -> bool {
    match end {
        Ok(end) => end.outcome == TurnOutcome::Completed,
        Err(fault) => {
            matches!(fault.kind, FaultKind::Model | FaultKind::ContextFull | FaultKind::Interrupted)
        }
    }
}

fn response(json: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(json.len() + 32);
    sse::write_event(&mut bytes, None, RESPONSE_EVENT, &String::from_utf8_lossy(json));
    bytes
}

/// Which of an agent's events belong to one send.
struct TurnWatch {
    request_id: RequestId,
    turn: Option<u64>,
    is_running: bool,
    is_over: bool,
}

impl TurnWatch {
    fn new(request_id: RequestId) -> Self {
        Self { request_id, turn: None, is_running: false, is_over: false }
    }

    fn is_known(&self) -> bool {
        self.turn.is_some()
    }

    fn takes(&mut self, item: &BusEvent) -> bool {
        match item {
            BusEvent::Entry(entry) => self.takes_entry(entry),
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

    fn takes_entry(&mut self, entry: &JournalEntry) -> bool {
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
                self.is_over |= is_ours;
                is_ours
            }
            Record::Destroyed { .. } => {
                self.is_over = true;
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
