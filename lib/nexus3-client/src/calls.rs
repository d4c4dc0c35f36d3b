//! A typed call for every method of the list: the daemon's on [`Client`], an agent's on [`AgentClient`], and all of
//! them through [`AgentApi`], for code that also runs in process.

#[cfg(test)]
mod tests;

use nexus3_protocol::AgentApi;
use nexus3_protocol::methods::{self, spec};

use crate::{AgentClient, CallTarget, Client, ClientFault};

macro_rules! typed_calls {
    ($( $(#[doc = $doc:literal])* $spec:ident $call:ident = $name:literal at $door:ident for $access:ident $(($tool:literal))? $(of $field:ident)?: $params:ident => $output:ident; )*) => {
        $( typed_call! { $door: $(#[doc = $doc])* $spec $call $params $output } )*
    };
}

macro_rules! typed_call {
    (Daemon: $(#[doc = $doc:literal])* $spec:ident $call:ident $params:ident $output:ident) => {
        impl Client {
            $(#[doc = $doc])*
            ///
            /// # Errors
            /// See [`ClientFault`].
            pub async fn $call(&self, params: &methods::$params) -> Result<methods::$output, ClientFault> {
                self.call::<spec::$spec>(CallTarget::Daemon, params).await
            }
        }
    };
    (Agent: $(#[doc = $doc:literal])* $spec:ident $call:ident $params:ident $output:ident) => {
        impl AgentClient<'_> {
            $(#[doc = $doc])*
            ///
            /// # Errors
            /// See [`ClientFault`].
            pub async fn $call(&self, params: &methods::$params) -> Result<methods::$output, ClientFault> {
                self.client.call::<spec::$spec>(CallTarget::Agent(&self.agent_id), params).await
            }
        }
    };
}

nexus3_protocol::for_each_method!(typed_calls);

macro_rules! api_calls {
    ($( $(#[doc = $doc:literal])* $spec:ident $call:ident = $name:literal at $door:ident for $access:ident $(($tool:literal))? $(of $field:ident)?: $params:ident => $output:ident; )*) => {
        impl AgentApi for Client {
            type Fault = ClientFault;

            $( api_call! { $door: $spec $call $params $output } )*
        }
    };
}

macro_rules! api_call {
    (Daemon: $spec:ident $call:ident $params:ident $output:ident) => {
        async fn $call(&self, params: &methods::$params) -> Result<methods::$output, ClientFault> {
            self.call::<spec::$spec>(CallTarget::Daemon, params).await
        }
    };
    (Agent: $spec:ident $call:ident $params:ident $output:ident) => {
        async fn $call(
            &self,
            agent_id: &str,
            params: &methods::$params,
        ) -> Result<methods::$output, ClientFault> {
            self.call::<spec::$spec>(CallTarget::Agent(agent_id), params).await
        }
    };
}

nexus3_protocol::for_each_method!(api_calls);
