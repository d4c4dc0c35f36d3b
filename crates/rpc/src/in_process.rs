//! In-process API for programs that embed the daemon. It uses the same handlers, authorization and faults as HTTP,
//! without serialization.

use nexus3_protocol::methods::{self, spec};
use nexus3_protocol::{AgentApi, ErrorCode, RpcError};

use crate::caller::Caller;
use crate::dispatcher::{Dispatcher, Target};

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

    fn agent_target(&self, agent_id: &str) -> Result<Target, RpcError> {
        let not_found = |_| RpcError::new(ErrorCode::InvalidParams, format!("Agent not found: {agent_id}"));
        self.dispatcher.agent_target(agent_id, &self.caller).map_err(not_found)
    }
}

macro_rules! in_process_calls {
    ($( $(#[doc = $doc:literal])* $spec:ident $call:ident = $name:literal at $door:ident for $access:ident $(($tool:literal))? $(of $field:ident)?: $params:ident => $output:ident; )*) => {
        impl AgentApi for InProcessApi {
            type Fault = RpcError;

            $( in_process_call! { $door: $spec $call $params $output } )*
        }
    };
}

macro_rules! in_process_call {
    (Daemon: $spec:ident $call:ident $params:ident $output:ident) => {
        async fn $call(&self, params: &methods::$params) -> Result<methods::$output, RpcError> {
            let target = self.dispatcher.daemon_target();
            Ok(self.dispatcher.invoke::<spec::$spec>(&target, &self.caller, params.clone()).await?)
        }
    };
    (Agent: $spec:ident $call:ident $params:ident $output:ident) => {
        async fn $call(
            &self,
            agent_id: &str,
            params: &methods::$params,
        ) -> Result<methods::$output, RpcError> {
            let target = self.agent_target(agent_id)?;
            Ok(self.dispatcher.invoke::<spec::$spec>(&target, &self.caller, params.clone()).await?)
        }
    };
}

nexus3_protocol::for_each_method!(in_process_calls);
