//! One trait for everybody who calls agents: over HTTP or in the same process. Made from the method list, so a method
//! that one of them lacks does not compile. Code written against it runs on both.

use std::future::Future;

use crate::methods;

macro_rules! declare_calls {
    ($( $(#[doc = $doc:literal])* $spec:ident $call:ident = $name:literal at $door:ident: $params:ident => $output:ident; )*) => {
        $( declare_call! { $door: $(#[doc = $doc])* $call $params $output } )*
    };
}

macro_rules! declare_call {
    (Daemon: $(#[doc = $doc:literal])* $call:ident $params:ident $output:ident) => {
        $(#[doc = $doc])*
        fn $call(
            &self,
            params: &methods::$params,
        ) -> impl Future<Output = Result<methods::$output, Self::Fault>> + Send;
    };
    (Agent: $(#[doc = $doc:literal])* $call:ident $params:ident $output:ident) => {
        $(#[doc = $doc])*
        fn $call(
            &self,
            agent_id: &str,
            params: &methods::$params,
        ) -> impl Future<Output = Result<methods::$output, Self::Fault>> + Send;
    };
}

/// The methods of a daemon, and of its agents by name.
///
/// ```
/// use nexus3_protocol::{AgentApi, methods::{CreateAgentParams, SendParams}};
///
/// async fn greet<A: AgentApi>(api: &A) -> Result<String, A::Fault> {
///     let created = api.create_agent(&CreateAgentParams::default()).await?;
///     let message = SendParams { content: "Hello!".into(), ..SendParams::default() };
///     Ok(api.for_agent(&created.agent_id).send(&message).await?.content)
/// }
/// ```
pub trait AgentApi: Sync {
    /// Why a call failed.
    type Fault: std::error::Error + Send;

    /// One agent's methods.
    fn for_agent<'a>(&'a self, agent_id: &'a str) -> AgentScope<'a, Self>
    where
        Self: Sized,
    {
        AgentScope { api: self, agent_id }
    }

    crate::for_each_method!(declare_calls);
}

/// One agent's methods.
pub struct AgentScope<'a, A> {
    api: &'a A,
    agent_id: &'a str,
}

impl<A: AgentApi> AgentScope<'_, A> {
    /// The agent.
    #[must_use]
    pub fn agent_id(&self) -> &str {
        self.agent_id
    }
}

macro_rules! scope_calls {
    ($( $(#[doc = $doc:literal])* $spec:ident $call:ident = $name:literal at $door:ident: $params:ident => $output:ident; )*) => {
        $( scope_call! { $door: $(#[doc = $doc])* $call $params $output } )*
    };
}

macro_rules! scope_call {
    (Daemon: $($rest:tt)*) => {};
    (Agent: $(#[doc = $doc:literal])* $call:ident $params:ident $output:ident) => {
        impl<A: AgentApi> AgentScope<'_, A> {
            $(#[doc = $doc])*
            ///
            /// # Errors
            /// As the API's own call.
            pub async fn $call(&self, params: &methods::$params) -> Result<methods::$output, A::Fault> {
                self.api.$call(self.agent_id, params).await
            }
        }
    };
}

crate::for_each_method!(scope_calls);
