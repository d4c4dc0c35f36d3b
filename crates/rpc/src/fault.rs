//! Faults in numbers: the only place that knows which fault is which JSON-RPC error.

use agent::{Fault, FaultKind};
use nexus3_protocol::json::ParamFault;
use nexus3_protocol::{ErrorCode, Method, RpcError};
use serde_json::json;

use crate::caller::Caller;
use crate::desk::Desk;

/// The error a caller gets for a fault. What only the log should know goes there.
pub(crate) fn to_error(fault: &Fault) -> RpcError {
    let public = fault.public.as_ref();
    match fault.kind {
        FaultKind::Invalid | FaultKind::NotFound => RpcError::new(ErrorCode::InvalidParams, public),
        FaultKind::Denied => {
            RpcError::new(ErrorCode::InvalidParams, public).with_data(json!({ "kind": "permission_denied" }))
        }
        FaultKind::Busy { retry_after_ms } => {
            RpcError::new(ErrorCode::Busy, public).with_data(json!({ "retry_after_ms": retry_after_ms }))
        }
        FaultKind::Model => RpcError::new(ErrorCode::Internal, public),
        FaultKind::Internal => {
            tracing::error!(cause = fault.cause.as_deref().unwrap_or("unknown"), "internal fault: {public}");
            RpcError::new(ErrorCode::Internal, public)
        }
    }
}

impl Desk {
    /// The same, for a call: what was denied is written to the audit trail, once, here.
    pub(crate) fn answered(&self, fault: &Fault, caller: &Caller, method: Method) -> RpcError {
        if fault.kind == FaultKind::Denied {
            tracing::warn!(
                target: "nexus3::audit",
                event = "denied", principal = caller.name(&self.pool), action = method.name(),
                rule = fault.cause.as_deref().unwrap_or("ceiling"), "{}", fault.public
            );
        }
        to_error(fault)
    }
}

pub(crate) fn bad_params(fault: &ParamFault) -> RpcError {
    RpcError::new(ErrorCode::InvalidParams, fault.to_string())
}

pub(crate) fn no_method(name: &str) -> RpcError {
    let shown: String = name.chars().take(200).collect();
    RpcError::new(ErrorCode::MethodNotFound, format!("Method not found: {shown}"))
}
