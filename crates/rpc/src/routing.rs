//! Maps method names to handlers. The match is generated from the method list: a method without a handler does not
//! compile.

use std::borrow::Cow;

use agent::Fault;
use nexus3_protocol::json::{Json, from_members};
use nexus3_protocol::methods::spec;
use nexus3_protocol::{Door, Method, MethodSpec, RpcError, for_each_method};
use runtime::AgentHandle;

use crate::caller::Caller;
use crate::dispatcher::{Dispatcher, Output, Target, TargetKind};
use crate::fault::{invalid_params, method_not_found};

/// Handler of a daemon method.
pub(crate) trait DaemonHandler<M: MethodSpec> {
    async fn handle(&self, caller: &Caller, params: M::Params) -> Result<M::Output, Fault>;
}

/// Handler of an agent method. The caller has been authorized before.
pub(crate) trait AgentHandler<M: MethodSpec> {
    async fn handle(
        &self,
        caller: &Caller,
        agent: &AgentHandle,
        params: M::Params,
    ) -> Result<M::Output, Fault>;
}

type Members<'a> = [(Cow<'a, str>, Json<'a>)];

impl Dispatcher {
    pub(crate) async fn dispatch(
        &self,
        target: &Target,
        caller: &Caller,
        name: &str,
        params: &Members<'_>,
    ) -> Result<Box<dyn Output>, RpcError> {
        let method = Method::find(name).filter(|method| accepts_method(target.door(), *method));
        let method = method.ok_or_else(|| method_not_found(name))?;

        macro_rules! handle {
            (Daemon $spec:ident) => {
                DaemonHandler::<spec::$spec>::handle(self, caller, parse_params::<spec::$spec>(params)?).await
            };
            (Agent $spec:ident) => {{
                let params = parse_params::<spec::$spec>(params)?;
                let agent = self
                    .resolve_agent(target, caller, method)
                    .await
                    .map_err(|fault| self.audited_error(&fault, caller, method))?;
                AgentHandler::<spec::$spec>::handle(self, caller, &agent, params).await
            }};
        }
        macro_rules! handle_all {
            ($( $(#[doc = $doc:literal])* $spec:ident $call:ident = $name:literal at $door:ident: $params:ident => $output:ident; )*) => {
                match method {
                    $( Method::$spec => handle!($door $spec)
                        .map(|output| Box::new(output) as Box<dyn Output>)
                        .map_err(|fault| self.audited_error(&fault, caller, method)), )*
                }
            };
        }
        for_each_method!(handle_all)
    }

    /// Authorizes the caller and returns the target agent. For the daemon that is `main`, created on first use.
    pub(crate) async fn resolve_agent(
        &self,
        target: &Target,
        caller: &Caller,
        method: Method,
    ) -> Result<AgentHandle, Fault> {
        match &target.0 {
            // The body may arrive long after the head; if the agent was destroyed meanwhile, this fails.
            TargetKind::Agent(agent) => {
                caller.authorize(&self.pool, agent, method.into()).await?;
                self.pool.wake(agent).await
            }
            TargetKind::Daemon => caller.authorize_main(&self.pool, method).await,
        }
    }
}

/// The daemon's door also accepts agent methods, for `main`.
fn accepts_method(door: Door, method: Method) -> bool {
    door == Door::Daemon || method.door() == Door::Agent
}

pub(crate) fn parse_params<M: MethodSpec>(params: &Members<'_>) -> Result<M::Params, RpcError> {
    from_members(params).map_err(|fault| invalid_params(&fault))
}
