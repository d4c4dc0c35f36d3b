//! A send from the moment it is taken to its answer.

use agent::journal::{AcceptedTurn, OpenTurn, Record, TurnStage};
use agent::outside::StoreFault;
use agent::{Fault, FaultKind, Message, RequestId, TurnEnd, TurnOutcome};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::admission::AdmissionPermit;
use crate::handle::NewMessage;

pub(crate) type Reply = oneshot::Sender<Result<TurnEnd, Fault>>;
pub(crate) type CommitWaiter = oneshot::Sender<Result<(), Fault>>;
/// Nothing while the store has not said anything.
pub(super) type CommitStatus = watch::Receiver<Option<Result<(), StoreFault>>>;

/// A send that waits or runs.
pub(crate) struct PendingTurn {
    pub(super) message: NewMessage,
    /// Everybody who asked for it: the same send may be repeated while it is open.
    pub(super) replies: Vec<Reply>,
    /// Everybody who wants to know that it is kept.
    pub(super) commit_waiters: Vec<CommitWaiter>,
    pub(super) permit: AdmissionPermit,
    pub(super) turn: u64,
    pub(super) acceptance: Acceptance,
    /// How far it had come before.
    pub(super) stage: TurnStage,
    /// How often it was begun again.
    pub(super) attempts: u32,
    /// Whether it was open when the agent woke.
    pub(super) was_recovered: bool,
    /// Each is cancelled when an earlier send of that name is over that was being ended when this one came.
    pub(super) earlier_cancellations: Vec<CancellationToken>,
}

/// Whether the store knows of a send.
pub(super) enum Acceptance {
    /// Not yet: it is told when the turn begins.
    NotEnqueued,
    /// It was told; this says what came of it.
    Enqueued(CommitStatus),
    Committed,
    /// It was over before, and is to be opened again with so many messages in the context.
    Reopened(usize),
}

impl PendingTurn {
    pub(crate) fn new(message: NewMessage, place: AdmissionPermit, turn: u64) -> Self {
        Self {
            message,
            replies: Vec::new(),
            commit_waiters: Vec::new(),
            permit: place,
            turn,
            acceptance: Acceptance::NotEnqueued,
            stage: TurnStage::Waiting,
            attempts: 0,
            was_recovered: false,
            earlier_cancellations: Vec::new(),
        }
    }

    /// A turn that the store knows to be open.
    pub(crate) fn from_stored(open: OpenTurn, place: AdmissionPermit) -> Self {
        let OpenTurn { accepted, stage, attempts } = open;
        let AcceptedTurn { turn, request_id, message } = accepted;
        let Message { text, images, source, .. } = message;
        let message = NewMessage { text, images, request_id, source };
        let new = Self::new(message, place, turn);
        Self { acceptance: Acceptance::Committed, stage, attempts, was_recovered: true, ..new }
    }

    /// The store knows of it.
    pub(crate) fn mark_committed(&mut self) {
        self.acceptance = Acceptance::Committed;
    }

    pub(crate) fn with_reply(mut self, reply: Reply) -> Self {
        self.replies.push(reply);
        self
    }

    /// For the journal: the send was taken.
    pub(crate) fn accepted_record(&self) -> Record {
        let message = self.message.to_message();
        let request_id = self.message.request_id.clone();
        Record::TurnAccepted(Box::new(AcceptedTurn { turn: self.turn, request_id, message }))
    }

    /// For the journal: the send is over.
    pub(super) fn ended_record(&self, end: TurnEnd) -> Record {
        let request_id = self.message.request_id.clone();
        Record::TurnEnded { turn: self.turn, request_id, end: Box::new(end) }
    }

    /// Whether nobody waits for the answer.
    pub(super) fn is_unattended(&self) -> bool {
        self.replies.iter().all(oneshot::Sender::is_closed)
    }

    /// Whether the store knows of it: then it goes on when the daemon is started again.
    pub(super) fn is_known_to_store(&self) -> bool {
        !matches!(self.acceptance, Acceptance::NotEnqueued)
    }

    /// Whether it is sure that the name is this send's and no other's.
    pub(super) fn owns_request_id(&self) -> bool {
        match &self.acceptance {
            Acceptance::NotEnqueued => false,
            Acceptance::Enqueued(says) => matches!(*says.borrow(), Some(Ok(()))),
            Acceptance::Committed | Acceptance::Reopened(_) => true,
        }
    }

    /// It is kept, or it cannot be.
    pub(super) fn notify_committed(&mut self, kept: &Result<(), Fault>) {
        // Whoever went away does not want to know.
        self.commit_waiters.drain(..).for_each(|keeping| drop(keeping.send(kept.clone())));
    }

    /// The place is free before the answer is out: whoever gets it may send again at once. A caller that went away
    /// does not want the answer; that is its right.
    pub(super) fn respond(mut self, answer: &Result<TurnEnd, Fault>) {
        self.notify_committed(&answer.as_ref().map(|_| ()).map_err(Clone::clone));
        drop(self.permit);
        for reply in self.replies {
            let _ = reply.send(answer.clone());
        }
    }

    pub(super) fn respond_cancelled(self) {
        self.respond(&Ok(TurnEnd::cancelled_before_start()));
    }
}

/// A turn's end as its sender is told.
pub(super) fn turn_result(end: TurnEnd) -> Result<TurnEnd, Fault> {
    match end.outcome {
        TurnOutcome::Failed(fault) => Err(fault),
        TurnOutcome::Interrupted(why) => {
            Err(Fault::new(FaultKind::Interrupted, format!("interrupted: {why}")))
        }
        TurnOutcome::Completed | TurnOutcome::Cancelled => Ok(end),
    }
}

/// What the store says of a send in line; nothing when nobody is left to say it.
pub(super) async fn commit_result(says: &mut CommitStatus) -> Option<Result<(), StoreFault>> {
    says.wait_for(Option::is_some).await.ok().and_then(|said| said.clone())
}

pub(super) fn content_mismatch(name: &RequestId) -> Fault {
    Fault::new(FaultKind::Invalid, format!("request_id was used before with other content: {name}"))
}
