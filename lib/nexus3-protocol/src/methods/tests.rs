//! Method list: names, JSON of every parameter and result type, error texts, and the OpenRPC document.

mod faults;
mod lifecycle;
mod list;
mod openrpc;
mod permissions;
mod shapes;

use super::*;
use crate::json::{Json, ParamFault, from_members, parse};

macro_rules! define_parse_params {
    ($( $(#[doc = $doc:literal])* $spec:ident $call:ident = $name:literal at $door:ident for $access:ident $(($tool:literal))? $(of $field:ident)?: $params:ident => $output:ident; )*) => {
        /// Deserializes the parameters of a method as the dispatcher does and drops them.
        fn parse_params(method: Method, text: &str) -> Result<(), ParamFault> {
            let Json::Object(members) = parse(text.as_bytes()).unwrap().value else {
                panic!("not an object: {text}");
            };
            match method { $( Method::$spec => from_members::<$params>(&members).map(drop), )* }
        }
    };
}

crate::for_each_method!(define_parse_params);
