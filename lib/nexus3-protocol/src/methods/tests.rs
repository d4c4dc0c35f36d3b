//! The method list: its names, the JSON of every params and output struct, each fault's message, the document.

mod faults;
mod lifecycle;
mod list;
mod openrpc;
mod permissions;
mod shapes;

use super::*;
use crate::json::{Json, ParamFault, from_members, parse};

macro_rules! define_parse_params {
    ($( $(#[doc = $doc:literal])* $spec:ident $call:ident = $name:literal at $door:ident: $params:ident => $output:ident; )*) => {
        /// What a door does with a method's parameters, less the result.
        fn parse_params(method: Method, text: &str) -> Result<(), ParamFault> {
            let Json::Object(members) = parse(text.as_bytes()).unwrap().value else {
                panic!("an object was expected: {text}");
            };
            match method { $( Method::$spec => from_members::<$params>(&members).map(drop), )* }
        }
    };
}

crate::for_each_method!(define_parse_params);
