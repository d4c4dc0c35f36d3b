//! A request from its acceptance to its response.

use agent::journal::{AcceptedTurn, OpenTurn, OpenTurnState, Record, RestartPolicy};
use agent::outside::StoreFault;
use agent::{Fault, FaultKind, Message, RequestId, TurnEnd, TurnOutcome};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::admission::AdmissionPermit;
use crate::handle::NewMessage;

pub(crate) type Reply = oneshot::Sender<Result<TurnEnd, Fault>>;
pub(crate) type CommitWaiter = oneshot::Sender<Result<(), Fault>>;
/// `None` until the store has committed or rejected the request.
pub(super) type CommitStatus = watch::Receiver<Option<Result<(), StoreFault>>>;

/// Attempts at a turn, each cut off by a daemon stop, before it is marked as interrupted.
const TURN_ATTEMPTS_MAX: u32 = 3;

/// A queued or running request.
pub(crate) struct PendingTurn {
    pub(super) message: NewMessage,
    /// Reply channels: duplicates of a pending request join it.
    pub(super) replies: Vec<Reply>,
    /// Callers that wait for the commit of the request.
    pub(super) commit_waiters: Vec<CommitWaiter>,
    pub(super) permit: AdmissionPermit,
    pub(super) turn: u64,
    pub(super) acceptance: Acceptance,
    /// Progress of a recovered turn.
    pub(super) state: OpenTurnState,
    /// How often the turn was reopened.
    pub(super) attempts: u32,
    /// Whether the turn was recovered from the store.
    pub(super) was_recovered: bool,
    /// Signalled when earlier requests with this id, whose cancellation was in progress when this one arrived, have
    /// ended.
    pub(super) earlier_cancellations: Vec<CancellationToken>,
}

/// How far a request is persisted.
pub(super) enum Acceptance {
    /// Not enqueued; appended with the start of the turn.
    NotEnqueued,
    /// Enqueued at the store; the receiver holds the commit result.
    Enqueued(CommitStatus),
    Committed,
    /// Ended before; to be reopened with this many messages in the context.
    Reopened(usize),
}

impl PendingTurn {
    pub(crate) fn new(message: NewMessage, permit: AdmissionPermit, turn: u64) -> Self {
        Self {
            message,
            replies: Vec::new(),
            commit_waiters: Vec::new(),
            permit,
            turn,
            acceptance: Acceptance::NotEnqueued,
            state: OpenTurnState::Waiting,
            attempts: 0,
            was_recovered: false,
            earlier_cancellations: Vec::new(),
        }
    }

    /// Creates a pending turn from an open turn in the store.
    pub(crate) fn from_stored(open: OpenTurn, permit: AdmissionPermit) -> Self {
        let OpenTurn { accepted, state, attempts } = open;
        let AcceptedTurn { turn, request_id, message } = accepted;
        let Message { text, images, source, .. } = message;
        let message = NewMessage { text, images, request_id, source };
        let new = Self::new(message, permit, turn);
        Self { acceptance: Acceptance::Committed, state, attempts, was_recovered: true, ..new }
    }

    /// Marks the request as committed.
    pub(crate) fn mark_committed(&mut self) {
        self.acceptance = Acceptance::Committed;
    }

    pub(crate) fn with_reply(mut self, reply: Reply) -> Self {
        self.replies.push(reply);
        self
    }

    /// Returns the journal record of the acceptance.
    pub(crate) fn accepted_record(&self) -> Record {
        let message = self.message.to_message();
        let request_id = self.message.request_id.clone();
        Record::TurnAccepted(Box::new(AcceptedTurn { turn: self.turn, request_id, message }))
    }

    /// Returns the journal record of the end.
    pub(super) fn ended_record(&self, end: TurnEnd) -> Record {
        let request_id = self.message.request_id.clone();
        Record::TurnEnded { turn: self.turn, request_id, end: Box::new(end) }
    }

    /// Returns why a recovered turn is marked as interrupted instead of resumed: the agent's restart policy says so, or
    /// the turn was attempted so often that it may be what crashes the daemon.
    pub(super) fn resume_refusal(&self, on_restart: RestartPolicy) -> Option<String> {
        if !self.was_recovered {
            return None;
        }
        if self.attempts + 1 >= TURN_ATTEMPTS_MAX {
            return Some(format!("the daemon stopped {TURN_ATTEMPTS_MAX} times while the turn ran"));
        }
        let is_marked = on_restart == RestartPolicy::Mark;
        is_marked.then(|| "the daemon stopped before the turn had ended".to_owned())
    }

    /// Whether no caller waits for the response.
    pub(super) fn is_unattended(&self) -> bool {
        self.replies.iter().all(oneshot::Sender::is_closed)
    }

    /// Whether the request is enqueued or committed; then it resumes after a restart.
    pub(super) fn is_known_to_store(&self) -> bool {
        !matches!(self.acceptance, Acceptance::NotEnqueued)
    }

    /// Whether the store has committed this request under its id.
    pub(super) fn owns_request_id(&self) -> bool {
        match &self.acceptance {
            Acceptance::NotEnqueued => false,
            Acceptance::Enqueued(status) => matches!(*status.borrow(), Some(Ok(()))),
            Acceptance::Committed | Acceptance::Reopened(_) => true,
        }
    }

    /// Reports the commit result to the waiting callers.
    pub(super) fn notify_committed(&mut self, result: &Result<(), Fault>) {
        // A closed channel is a caller that left.
        self.commit_waiters.drain(..).for_each(|waiter| drop(waiter.send(result.clone())));
    }

    /// Sends the response. Releases the permit first: a caller may send again as soon as it has the response. Callers
    /// that left are ignored.
    pub(super) fn respond(mut self, result: &Result<TurnEnd, Fault>) {
        self.notify_committed(&result.as_ref().map(|_| ()).map_err(Clone::clone));
        drop(self.permit);
        for reply in self.replies {
            let _ = reply.send(result.clone());
        }
    }

    pub(super) fn respond_cancelled(self) {
        self.respond(&Ok(TurnEnd::cancelled_before_start()));
    }
}

/// Converts the end of a turn to the result that the caller gets.
pub(super) fn turn_result(end: TurnEnd) -> Result<TurnEnd, Fault> {
    match end.outcome {
        TurnOutcome::Failed(fault) => Err(fault),
        TurnOutcome::Interrupted(why) => {
            Err(Fault::new(FaultKind::Interrupted, format!("interrupted: {why}")))
        }
        TurnOutcome::Completed | TurnOutcome::Cancelled => Ok(end),
    }
}

/// Waits for the commit result of an enqueued request; `None` when the sender is gone.
pub(super) async fn commit_result(status: &mut CommitStatus) -> Option<Result<(), StoreFault>> {
    status.wait_for(Option::is_some).await.ok().and_then(|result| result.clone())
}

pub(super) fn content_mismatch(request_id: &RequestId) -> Fault {
    Fault::new(FaultKind::Invalid, format!("request_id was used before with other content: {request_id}"))
}
