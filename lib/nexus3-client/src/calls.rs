//! A typed call for every entry of the method list: the daemon's own on [`Client`], an agent's on [`AgentClient`].

use nexus3_protocol::methods::{self, spec};

use crate::{AgentClient, Client, ClientFault, Target};

macro_rules! typed_calls {
    ($( $(#[doc = $doc:literal])* $spec:ident $call:ident = $name:literal at $door:ident: $params:ident => $output:ident; )*) => {
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
                self.call::<spec::$spec>(Target::Daemon, params).await
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
                self.client.call::<spec::$spec>(Target::Agent(&self.agent_id), params).await
            }
        }
    };
}

nexus3_protocol::for_each_method!(typed_calls);
