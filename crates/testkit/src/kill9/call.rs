//! JSON-RPC calls to a daemon that may be killed at any time, with a lost reply as a regular outcome.

use std::io;
use std::sync::Arc;

use serde_json::Value;

use crate::client::{DaemonClient, rpc_request};
use crate::raw::RawConnection;

/// A daemon that may be gone.
#[derive(Debug, Clone)]
pub(super) struct DaemonAddress(pub(super) Arc<DaemonClient>);

/// Outcome of a call.
#[derive(Debug)]
pub(super) enum Reply {
    Result(Value),
    Error(RpcError),
    /// Unknown: the connection ended before the response.
    Lost,
}

#[derive(Debug)]
pub(super) struct RpcError {
    pub(super) code: i64,
    pub(super) message: String,
    /// The `kind` in the error's data.
    pub(super) kind: String,
}

/// A call whose request was sent.
pub(super) struct PendingCall(Option<RawConnection>);

impl DaemonAddress {
    pub(super) fn new(port: u16, token: Option<&str>) -> Self {
        Self(Arc::new(DaemonClient::new(port, token.map(str::to_owned))))
    }

    pub(super) fn call(&self, path: &str, method: &str, params: &Value) -> Reply {
        self.start_call(path, method, params).wait_reply()
    }

    pub(super) fn start_call(&self, path: &str, method: &str, params: &Value) -> PendingCall {
        PendingCall(self.try_start_call(path, method, params).ok())
    }

    fn try_start_call(&self, path: &str, method: &str, params: &Value) -> io::Result<RawConnection> {
        let body = rpc_request(1, method, params.clone());
        let mut connection = RawConnection::try_open(self.0.port())?;
        connection.try_send(&self.0.post_bytes(path, &[], body.as_bytes()))?;
        Ok(connection)
    }
}

impl PendingCall {
    pub(super) fn wait_reply(self) -> Reply {
        let http_response = self.0.and_then(|mut connection| connection.try_read_response().ok());
        let Some(http_response) = http_response else { return Reply::Lost };
        let Ok(mut response) = serde_json::from_slice::<Value>(&http_response.body) else {
            let text = format!("status {}: {}", http_response.status, http_response.text());
            return Reply::Error(RpcError { code: 0, message: text, kind: String::new() });
        };
        if response.get("result").is_some() {
            return Reply::Result(response["result"].take());
        }
        let error = &response["error"];
        Reply::Error(RpcError {
            code: error["code"].as_i64().unwrap_or_default(),
            message: error["message"].as_str().unwrap_or_default().to_owned(),
            kind: error["data"]["kind"].as_str().unwrap_or_default().to_owned(),
        })
    }
}

impl RpcError {
    /// Whether the same call may succeed later.
    pub(super) fn is_retryable(&self) -> bool {
        self.code == -32001 || self.is_interrupted()
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.kind == "interrupted"
    }
}
