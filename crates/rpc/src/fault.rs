//! Mapping of faults to JSON-RPC errors: the only code that decides which error code a fault gets.

use agent::{Fault, FaultKind};
use nexus3_protocol::json::ParamFault;
use nexus3_protocol::{ErrorCode, RpcError};
use serde_json::json;

use crate::caller::{Caller, Principal};
use crate::dispatcher::Dispatcher;

/// Returns the JSON-RPC error for a fault, and logs the cause of an internal fault, which the caller must not see.
pub(crate) fn rpc_error_logged(fault: &Fault) -> RpcError {
    if fault.kind == FaultKind::Internal {
        let cause = fault.cause.as_deref().unwrap_or("unknown");
        tracing::error!(cause, "internal fault: {}", fault.public);
    }
    rpc_error(fault)
}

/// Returns the JSON-RPC error for a fault that was logged before.
pub(crate) fn rpc_error(fault: &Fault) -> RpcError {
    let public = fault.public.as_ref();
    match fault.kind {
        FaultKind::Invalid | FaultKind::NotFound => RpcError::new(ErrorCode::InvalidParams, public),
        FaultKind::Denied => {
            RpcError::new(ErrorCode::InvalidParams, public).with_data(json!({ "kind": "permission_denied" }))
        }
        FaultKind::Conflict => {
            RpcError::new(ErrorCode::InvalidParams, public).with_data(json!({ "kind": "conflict" }))
        }
        FaultKind::Busy { retry_after_ms } => {
            RpcError::new(ErrorCode::Busy, public).with_data(json!({ "retry_after_ms": retry_after_ms }))
        }
        FaultKind::Full { retry_after_ms } => {
            let data = json!({ "kind": "storage_full", "retry_after_ms": retry_after_ms });
            RpcError::new(ErrorCode::Busy, public).with_data(data)
        }
        FaultKind::Interrupted => {
            RpcError::new(ErrorCode::Internal, public).with_data(json!({ "kind": "interrupted" }))
        }
        FaultKind::ContextFull => {
            RpcError::new(ErrorCode::Internal, public).with_data(json!({ "kind": "context_full" }))
        }
        FaultKind::Model | FaultKind::Internal => RpcError::new(ErrorCode::Internal, public),
    }
}

impl Dispatcher {
    /// Records a denial once in the audit trail: in the journal and in the log. Other faults are not recorded.
    pub(crate) fn audit_denial(&self, fault: &Fault, caller: &Caller, operation: &str) {
        if fault.kind != FaultKind::Denied {
            return;
        }
        let principal = caller.audit_id(&self.pool);
        let rule = fault.cause.as_deref().unwrap_or("ceiling");
        tracing::warn!(
            target: "nexus3::audit",
            event = "denied", %principal, action = operation, rule, "{}", fault.public
        );
        let own = match caller.principal(&self.pool) {
            Ok(Principal::Agent(own)) => Some(own),
            Ok(Principal::Admin) | Err(_) => None,
        };
        self.pool.record_denial(principal, own.as_ref(), operation, rule, &fault.public);
    }
}

pub(crate) fn invalid_params(fault: &ParamFault) -> RpcError {
    RpcError::new(ErrorCode::InvalidParams, fault.to_string())
}

pub(crate) fn method_not_found(name: &str) -> RpcError {
    let excerpt: String = name.chars().take(200).collect();
    RpcError::new(ErrorCode::MethodNotFound, format!("Method not found: {excerpt}"))
}
