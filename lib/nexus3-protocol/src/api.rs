//! The API as a trait, implemented by the HTTP client and by the in-process API. It is generated from the method list,
//! so an implementation that lacks a method does not compile.

use std::future::Future;

use crate::methods;

macro_rules! declare_calls {
    ($( $(#[doc = $doc:literal])* $spec:ident $call:ident = $name:literal at $door:ident for $access:ident $(($tool:literal))? $(of $field:ident)?: $params:ident => $output:ident; )*) => {
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

/// The methods of a daemon and, by agent id, of its agents. Code generic over this trait runs over HTTP and in process.
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
    /// Error of a failed call.
    type Fault: std::error::Error + Send;

    /// Returns the methods of one agent.
    fn for_agent<'a>(&'a self, agent_id: &'a str) -> AgentScope<'a, Self>
    where
        Self: Sized,
    {
        AgentScope { api: self, agent_id }
    }

    crate::for_each_method!(declare_calls);
}

/// The methods of one agent; created by [`AgentApi::for_agent`].
pub struct AgentScope<'a, A> {
    api: &'a A,
    agent_id: &'a str,
}

impl<A: AgentApi> AgentScope<'_, A> {
    /// The agent's id.
    #[must_use]
    pub fn agent_id(&self) -> &str {
        self.agent_id
    }
}

macro_rules! scope_calls {
    ($( $(#[doc = $doc:literal])* $spec:ident $call:ident = $name:literal at $door:ident for $access:ident $(($tool:literal))? $(of $field:ident)?: $params:ident => $output:ident; )*) => {
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
            /// As the method of [`AgentApi`].
            pub async fn $call(&self, params: &methods::$params) -> Result<methods::$output, A::Fault> {
                self.api.$call(self.agent_id, params).await
            }
        }
    };
}

crate::for_each_method!(scope_calls);
