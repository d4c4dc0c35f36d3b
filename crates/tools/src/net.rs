//! Tools that connect to hosts. [`egress`] alone opens sockets, to addresses that it has checked against the permit; the
//! tools parse arguments and format results.

mod egress;
mod http_request;
mod markdown;
mod media;
mod web_fetch;

pub use egress::{NetworkClient, NetworkLimits, NetworkOptions, Resolve, ResolvedAddresses, SystemResolver};
pub(crate) use egress::{PermittedConnection, RequestedUrl};

use crate::definition::{ToolEntry, tool};

/// The tools, in the order in which models see them.
pub(crate) const TOOLS: &[ToolEntry] = &[tool::<web_fetch::Fetch>(), tool::<http_request::Request>()];
