//! In-process API for programs that embed the daemon. It uses the same handlers, authorization and faults as HTTP,
//! without serialization.

use nexus3_protocol::methods::{self, spec};
use nexus3_protocol::{AgentApi, ErrorCode, Method, RpcError};
use runtime::AgentHandle;

use crate::caller::Caller;
use crate::dispatcher::Dispatcher;
use crate::routing::{AgentHandler, DaemonHandler};

/// An [`AgentApi`] that calls a [`Dispatcher`] in the same process.
#[derive(Clone)]
pub struct InProcessApi {
    dispatcher: Dispatcher,
    caller: Caller,
}

impl InProcessApi {
    /// Creates an API with admin permissions.
    #[must_use]
    pub fn new(dispatcher: Dispatcher) -> Self {
        Self { dispatcher, caller: Caller::admin() }
    }

    /// Returns an API that acts as an agent, limited to that agent's permissions.
    #[must_use]
    pub fn acting_as(&self, agent_id: &str) -> Self {
        Self { dispatcher: self.dispatcher.clone(), caller: self.caller.clone().acting_as(agent_id) }
    }

    async fn resolve_agent(&self, agent_id: &str, method: Method) -> Result<AgentHandle, RpcError> {
        let target = self
            .dispatcher
            .agent_target(agent_id)
            .map_err(|_| RpcError::new(ErrorCode::InvalidParams, format!("Agent not found: {agent_id}")))?;
        let agent = self.dispatcher.resolve_agent(&target, &self.caller, method).await;
        agent.map_err(|fault| self.dispatcher.audited_error(&fault, &self.caller, method))
    }
}

macro_rules! in_process_calls {
    ($( $(#[doc = $doc:literal])* $spec:ident $call:ident = $name:literal at $door:ident: $params:ident => $output:ident; )*) => {
        impl AgentApi for InProcessApi {
            type Fault = RpcError;

            $( in_process_call! { $door: $spec $call $params $output } )*
        }
    };
}

macro_rules! in_process_call {
    (Daemon: $spec:ident $call:ident $params:ident $output:ident) => {
        async fn $call(&self, params: &methods::$params) -> Result<methods::$output, RpcError> {
            let result =
                DaemonHandler::<spec::$spec>::handle(&self.dispatcher, &self.caller, params.clone()).await;
            result.map_err(|fault| self.dispatcher.audited_error(&fault, &self.caller, Method::$spec))
        }
    };
    (Agent: $spec:ident $call:ident $params:ident $output:ident) => {
        async fn $call(
            &self,
            agent_id: &str,
            params: &methods::$params,
        ) -> Result<methods::$output, RpcError> {
            let agent = self.resolve_agent(agent_id, Method::$spec).await?;
            let result =
                AgentHandler::<spec::$spec>::handle(&self.dispatcher, &self.caller, &agent, params.clone())
                    .await;
            result.map_err(|fault| self.dispatcher.audited_error(&fault, &self.caller, Method::$spec))
        }
    };
}

nexus3_protocol::for_each_method!(in_process_calls);
