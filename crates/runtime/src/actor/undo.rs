//! Undoes the file changes of a turn, between turns.

use std::ops::ControlFlow;

use agent::journal::Record;
use agent::outside::{RestoreFault, TurnChanges};
use agent::permission::{FilePath, Grantor};
use agent::{Fault, FaultKind, PrincipalId};
use tokio::sync::oneshot;

use super::{Actor, Command};
use crate::admission::shutting_down;
use crate::handle::AgentHandle;
use crate::pool::Initiator;

/// A request to undo the file changes of a turn.
pub(crate) struct UndoRequest {
    /// The turn; none for the latest that changed files.
    pub(crate) turn: Option<u64>,
    pub(crate) initiator: PrincipalId,
    pub(crate) reply: oneshot::Sender<Result<UndoneTurn, Fault>>,
}

/// A turn whose file changes were undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoneTurn {
    /// The turn.
    pub turn: u64,
    /// The restored paths. A path that already was as before the turn is not among them.
    pub restored: Vec<FilePath>,
}

impl AgentHandle {
    /// Undoes the file changes of a turn, or of the latest turn that has any, all or nothing.
    ///
    /// # Errors
    /// When a turn is open, the changes cannot be undone, a file changed since, permission is denied, or the commit
    /// failed.
    pub async fn undo_turn(&self, turn: Option<u64>, initiator: Initiator<'_>) -> Result<UndoneTurn, Fault> {
        let (reply, receiver) = oneshot::channel();
        let request = UndoRequest { turn, initiator: initiator.principal_id(), reply };
        let sent = self.inbox.send(Box::new(Command::Undo(request))).await;
        sent.map_err(|_| self.shared.unavailable())?;
        receiver.await.unwrap_or_else(|_| Err(self.shared.unavailable()))
    }
}

impl Actor {
    pub(super) async fn undo(&mut self, request: UndoRequest) -> ControlFlow<()> {
        let UndoRequest { turn, initiator, reply } = request;
        // The admin who asks for an undo approves of it; an agent may need an approval of others.
        let approved_by = (initiator == PrincipalId::Admin).then_some(Grantor::Admin);
        let undone = match self.restore_turn(turn, approved_by).await {
            Ok(undone) => undone,
            Err(fault) => {
                let _ = reply.send(Err(fault));
                return ControlFlow::Continue(());
            }
        };
        let record = Record::TurnUndone { turn: undone.turn, by: initiator, paths: undone.restored.clone() };
        match self.shared.append(vec![record], |_| {}).await {
            Ok(()) => {
                let _ = reply.send(Ok(undone));
                ControlFlow::Continue(())
            }
            Err(fault) => {
                let fault = Fault::from(fault);
                let _ = reply.send(Err(fault.clone()));
                self.reload(fault).await
            }
        }
    }

    /// Restores the files of a turn, with the write permissions that the agent has now.
    async fn restore_turn(
        &self,
        turn: Option<u64>,
        approved_by: Option<Grantor>,
    ) -> Result<UndoneTurn, Fault> {
        let recorded = self.shared.store.turn_changes(self.shared.node.serial, turn).await?;
        let TurnChanges { turn, changes, .. } = check_undoable(recorded, turn)?;
        let paths = changes.iter().map(|change| change.path.clone()).collect();
        let permit = self.shared.authorize_writes(paths, approved_by);
        let permit = permit.map_err(|denial| Fault::denied(denial.dimension.name(), denial.text))?;
        let pool = self.shared.pool.upgrade().ok_or_else(shutting_down)?;
        let restore = move || pool.outside.workspace.restore_files(&changes, &permit);
        let restored = tokio::task::spawn_blocking(restore).await;
        let restored = restored.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        let restored = restored.map_err(|fault| restore_fault(turn, &fault))?;
        Ok(UndoneTurn { turn, restored })
    }
}

fn check_undoable(recorded: Option<TurnChanges>, turn: Option<u64>) -> Result<TurnChanges, Fault> {
    let refused = |text: String| Err(Fault::new(FaultKind::Invalid, text));
    let recorded = match (recorded, turn) {
        (Some(recorded), _) => recorded,
        (None, Some(turn)) => return refused(format!("turn {turn} changed no files with file tools")),
        (None, None) => return refused("no turn changed files with file tools".to_owned()),
    };
    let turn = recorded.turn;
    match &recorded.not_undoable {
        _ if recorded.is_undone => refused(format!("turn {turn} is undone already; name an earlier turn")),
        Some(why) => refused(format!("turn {turn} cannot be undone: {why}")),
        None => Ok(recorded),
    }
}

fn restore_fault(turn: u64, fault: &RestoreFault) -> Fault {
    let kind = match fault {
        RestoreFault::ChangedSince(_) => FaultKind::Conflict,
        RestoreFault::Failed(_) => FaultKind::Invalid,
    };
    Fault::new(kind, format!("turn {turn} cannot be undone, no file was changed: {fault}"))
}
