//! The one way into the daemon: every method and stream is an [`Operation`], and [`Dispatcher::invoke`] authorizes it,
//! runs its handler behind the panic barrier, and audits a denial.

use std::panic::AssertUnwindSafe;

use agent::Fault;
use futures_util::FutureExt;
use nexus3_protocol::{ErrorCode, RpcError};

use crate::caller::{Caller, Principal};
use crate::dispatcher::{Dispatcher, Target};
use crate::fault::rpc_error_logged;

/// An operation that callers invoke. The method list implements it for every method.
pub(crate) trait Operation {
    /// Name in messages and in the audit log.
    const NAME: &'static str;
    type Params;
    type Output;
    /// What the operation acts on: nothing, or an agent. Only `authorize` creates it.
    type Subject;

    /// Authorizes the principal and resolves the subject.
    async fn authorize(
        dispatcher: &Dispatcher,
        target: &Target,
        principal: &Principal,
        params: &Self::Params,
    ) -> Result<Self::Subject, Fault>;
}

/// Handler of an operation. It runs only after [`Operation::authorize`].
pub(crate) trait Handler<O: Operation> {
    async fn handle(
        &self,
        principal: &Principal,
        subject: &O::Subject,
        params: O::Params,
    ) -> Result<O::Output, Fault>;
}

/// Error text of an operation whose handler panicked.
pub(crate) const PANICKED_TEXT: &str = "Internal error: the call panicked";

/// Why an operation failed.
pub(crate) enum CallFault {
    /// It was denied or failed.
    Fault(Fault),
    /// Its handler panicked. A panic fails only its own call.
    Panicked,
}

impl Dispatcher {
    /// Authorizes and runs an operation. Every transport calls operations through this function.
    pub(crate) async fn invoke<O: Operation>(
        &self,
        target: &Target,
        caller: &Caller,
        params: O::Params,
    ) -> Result<O::Output, CallFault>
    where
        Self: Handler<O>,
    {
        let call = async {
            self.pool.check_running()?;
            let principal = caller.principal(&self.pool)?;
            let subject = O::authorize(self, target, &principal, &params).await?;
            Handler::<O>::handle(self, &principal, &subject, params).await
        };
        match AssertUnwindSafe(call).catch_unwind().await {
            Ok(Ok(output)) => Ok(output),
            Ok(Err(fault)) => {
                self.audit_denial(&fault, caller, O::NAME);
                Err(CallFault::Fault(fault))
            }
            Err(_) => {
                tracing::error!(method = O::NAME, "a handler panicked");
                Err(CallFault::Panicked)
            }
        }
    }
}

impl From<CallFault> for RpcError {
    fn from(fault: CallFault) -> Self {
        match fault {
            CallFault::Fault(fault) => rpc_error_logged(&fault),
            CallFault::Panicked => RpcError::new(ErrorCode::Internal, PANICKED_TEXT),
        }
    }
}
