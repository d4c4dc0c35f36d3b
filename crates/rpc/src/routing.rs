//! Maps method names to operations. Both macros expand the method list: a method without an access rule, or without a
//! handler, does not compile.

use std::borrow::Cow;

use agent::Fault;
use nexus3_protocol::json::{Json, from_members};
use nexus3_protocol::methods::spec;
use nexus3_protocol::{Door, Method, MethodSpec, RpcError, for_each_method};
use runtime::{AgentHandle, AgentRef};

use crate::authorization::agent_not_found;
use crate::caller::{Caller, Principal};
use crate::dispatcher::{Dispatcher, Output, Target};
use crate::fault::{invalid_params, method_not_found};
use crate::methods::agents::parse_id;
use crate::operation::Operation;

/// Implements [`Operation`] for a method. Each arm is an allowed combination of door and access rule, with the type of
/// the subject and its authorization.
macro_rules! operation {
    ($spec:ident at Daemon for Admin) => {
        operation!(@impl $spec, (), |_, _, principal, _| principal.authorize_admin(Self::NAME));
    };
    ($spec:ident at Daemon for Anyone) => {
        operation!(@impl $spec, (), |_, _, _, _| Ok(()));
    };
    // The subject may be missing: destroying it again is not an error.
    ($spec:ident at Daemon for Subtree of $field:ident) => {
        operation!(@impl $spec, Option<AgentRef>, |dispatcher, _, principal, params| {
            let id = parse_id(stringify!($field), &params.$field)?;
            dispatcher.find_authorized(principal, &id, Method::$spec.access(), Self::NAME).await
        });
    };
    ($spec:ident at Daemon for Reach($tool:literal) of $field:ident) => {
        operation!(@impl $spec, AgentRef, |dispatcher, _, principal, params| {
            let id = parse_id(stringify!($field), &params.$field)?;
            let found = dispatcher.find_authorized(principal, &id, Method::$spec.access(), Self::NAME).await?;
            found.ok_or_else(|| agent_not_found(&id))
        });
    };
    ($spec:ident at Agent for Reach($tool:literal)) => {
        operation!(@on_target $spec);
    };
    ($spec:ident at Agent for SelfOrReach($tool:literal)) => {
        operation!(@on_target $spec);
    };
    (@on_target $spec:ident) => {
        operation!(@impl $spec, AgentHandle, |dispatcher, target, principal, _| {
            dispatcher.target_agent(target, principal, Method::$spec.access(), Self::NAME).await
        });
    };
    (@impl $spec:ident, $subject:ty, |$dispatcher:pat_param, $target:pat_param, $principal:pat_param, $params:pat_param| $authorized:expr) => {
        impl Operation for spec::$spec {
            const NAME: &'static str = Method::$spec.name();
            type Params = <spec::$spec as MethodSpec>::Params;
            type Output = <spec::$spec as MethodSpec>::Output;
            type Subject = $subject;

            async fn authorize(
                $dispatcher: &Dispatcher,
                $target: &Target,
                $principal: &Principal,
                $params: &Self::Params,
            ) -> Result<$subject, Fault> {
                $authorized
            }
        }
    };
}

macro_rules! operations {
    ($( $(#[doc = $doc:literal])* $spec:ident $call:ident = $name:literal at $door:ident for $access:ident $(($tool:literal))? $(of $field:ident)?: $params:ident => $output:ident; )*) => {
        $( operation! { $spec at $door for $access $(($tool))? $(of $field)? } )*

        impl Dispatcher {
            async fn invoke_method(
                &self,
                method: Method,
                target: &Target,
                caller: &Caller,
                params: &Members<'_>,
            ) -> Result<Box<dyn Output>, RpcError> {
                match method {
                    $( Method::$spec => {
                        let params = parse_params::<spec::$spec>(params)?;
                        let output = self.invoke::<spec::$spec>(target, caller, params).await?;
                        Ok(Box::new(output) as Box<dyn Output>)
                    } )*
                }
            }
        }
    };
}

for_each_method!(operations);

type Members<'a> = [(Cow<'a, str>, Json<'a>)];

impl Dispatcher {
    /// Invokes the method of this name with JSON parameters.
    pub(crate) async fn dispatch(
        &self,
        target: &Target,
        caller: &Caller,
        name: &str,
        params: &Members<'_>,
    ) -> Result<Box<dyn Output>, RpcError> {
        let method = Method::find(name).filter(|method| accepts_method(target.door(), *method));
        let method = method.ok_or_else(|| method_not_found(name))?;
        self.invoke_method(method, target, caller, params).await
    }
}

/// The daemon's door also accepts agent methods, for `main`.
fn accepts_method(door: Door, method: Method) -> bool {
    door == Door::Daemon || method.door() == Door::Agent
}

pub(crate) fn parse_params<M: MethodSpec>(params: &Members<'_>) -> Result<M::Params, RpcError> {
    from_members(params).map_err(|fault| invalid_params(&fault))
}
